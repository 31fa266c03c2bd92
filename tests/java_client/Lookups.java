import org.apache.fluss.client.lookup.Lookuper;
import org.apache.fluss.client.table.Table;
import org.apache.fluss.client.table.writer.UpsertWriter;
import org.apache.fluss.metadata.Schema;
import org.apache.fluss.metadata.TableDescriptor;
import org.apache.fluss.metadata.TablePath;
import org.apache.fluss.row.BinaryString;
import org.apache.fluss.row.GenericRow;
import org.apache.fluss.row.InternalRow;
import org.apache.fluss.types.DataTypes;
import org.apache.fluss.types.RowType;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;

/** Lookups by key and by the beginning of a key. */
final class Lookups {
    static void tell(Place place) throws Exception {
        place.makeDatabase();
        byKey(place);
        byPrefix(place);
        partitioned(place);
    }

    private static void byKey(Place place) throws Exception {
        TablePath path = place.make("by_key", Tables.keyed(3).build());
        try (Table table = place.table(path)) {
            UpsertWriter writer = table.newUpsert().createWriter();
            for (int i = 0; i < 20; i++) {
                writer.upsert(Upserts.row(i, "n" + i, (long) i));
            }
            writer.flush();
            Lookuper lookuper = table.newLookup().createLookuper();
            for (int id : new int[] {0, 7, 19, 99, -1}) {
                place.ask("key " + id, () -> one(lookuper, table, GenericRow.of(id)));
            }
            place.ask("many keys", () -> many(lookuper, table));
            place.ask(
                    "a key that is null", () -> one(lookuper, table, GenericRow.of((Object) null)));
            place.ask(
                    "a key of a wrong type",
                    () -> one(lookuper, table, GenericRow.of(BinaryString.fromString("1"))));
            place.ask(
                    "by another column", () -> table.newLookup().lookupBy("name").createLookuper());
            place.ask(
                    "by the key's name",
                    () ->
                            one(
                                    table.newLookup().lookupBy("id").createLookuper(),
                                    table,
                                    GenericRow.of(7)));
            Place.done(writer.delete(Upserts.row(7, null, null)));
            place.ask("a deleted key", () -> one(lookuper, table, GenericRow.of(7)));
            place.ask(
                    "inserted if it is missing",
                    () ->
                            one(
                                    table.newLookup().enableInsertIfNotExists().createLookuper(),
                                    table,
                                    GenericRow.of(50)));
        }
    }

    private static List<String> many(Lookuper lookuper, Table table) throws Exception {
        List<java.util.concurrent.CompletableFuture<org.apache.fluss.client.lookup.LookupResult>>
                sent = new ArrayList<>();
        for (int i = 15; i < 25; i++) {
            sent.add(lookuper.lookup(GenericRow.of(i)));
        }
        List<String> found = new ArrayList<>();
        for (var each : sent) {
            found.add(
                    Text.row(
                            Place.done(each).getSingletonRow(), table.getTableInfo().getRowType()));
        }
        return found;
    }

    private static Schema.Builder shops() {
        return Schema.newBuilder()
                .column("shop", DataTypes.STRING())
                .column("id", DataTypes.INT())
                .column("day", DataTypes.STRING())
                .column("n", DataTypes.BIGINT());
    }

    private static void byPrefix(Place place) throws Exception {
        TableDescriptor descriptor =
                TableDescriptor.builder()
                        .schema(shops().primaryKey("shop", "id").build())
                        .distributedBy(2, "shop")
                        .build();
        TablePath path = place.make("by_prefix", descriptor);
        try (Table table = place.table(path)) {
            UpsertWriter writer = table.newUpsert().createWriter();
            for (int i = 0; i < 6; i++) {
                writer.upsert(shop(i < 4 ? "north" : "northern", i, "d"));
            }
            writer.flush();
            Lookuper prefix = table.newLookup().lookupBy("shop").createLookuper();
            for (String shop : new String[] {"north", "northern", "nor", ""}) {
                place.ask(
                        "prefix '" + shop + "'",
                        () -> all(prefix, table, GenericRow.of(BinaryString.fromString(shop))));
            }
            Lookuper whole = table.newLookup().createLookuper();
            place.ask(
                    "a whole key",
                    () -> one(whole, table, GenericRow.of(BinaryString.fromString("north"), 2)));
            place.ask(
                    "a whole key that is not there",
                    () -> one(whole, table, GenericRow.of(BinaryString.fromString("north"), 9)));
            place.ask(
                    "by the rest of the key",
                    () -> table.newLookup().lookupBy("id").createLookuper());
            place.ask(
                    "by the key, turned",
                    () -> table.newLookup().lookupBy("id", "shop").createLookuper());
        }
    }

    private static void partitioned(Place place) throws Exception {
        TableDescriptor descriptor =
                TableDescriptor.builder()
                        .schema(shops().primaryKey("shop", "id", "day").build())
                        .partitionedBy("day")
                        .distributedBy(1, "shop")
                        .build();
        TablePath path = place.path("daily");
        Place.done(place.admin.createTable(path, descriptor, false));
        place.makePartition(path, "d1");
        try (Table table = place.table(path)) {
            UpsertWriter writer = table.newUpsert().createWriter();
            for (int i = 0; i < 3; i++) {
                writer.upsert(shop("north", i, "d1"));
            }
            writer.flush();
            Lookuper prefix = table.newLookup().lookupBy("shop", "day").createLookuper();
            for (String day : new String[] {"d1", "nothing"}) {
                place.ask(
                        "prefix in " + day,
                        () ->
                                all(
                                        prefix,
                                        table,
                                        GenericRow.of(
                                                BinaryString.fromString("north"),
                                                BinaryString.fromString(day))));
            }
            place.ask(
                    "prefix without the partition",
                    () -> table.newLookup().lookupBy("shop").createLookuper());
        }
    }

    static String one(Lookuper lookuper, Table table, InternalRow key) throws Exception {
        return Text.row(
                Place.done(lookuper.lookup(key)).getSingletonRow(),
                table.getTableInfo().getRowType());
    }

    static List<String> all(Lookuper lookuper, Table table, InternalRow key) throws Exception {
        RowType type = table.getTableInfo().getRowType();
        List<String> rows = new ArrayList<>();
        for (InternalRow row : Place.done(lookuper.lookup(key)).getRowList()) {
            rows.add(Text.row(row, type));
        }
        Collections.sort(rows);
        return rows;
    }

    private static GenericRow shop(String shop, int id, String day) {
        return GenericRow.of(
                BinaryString.fromString(shop), id, BinaryString.fromString(day), (long) id);
    }
}
