import org.apache.fluss.client.table.Table;
import org.apache.fluss.client.table.writer.UpsertWriter;
import org.apache.fluss.metadata.Schema;
import org.apache.fluss.metadata.TableChange;
import org.apache.fluss.metadata.TableDescriptor;
import org.apache.fluss.metadata.TablePath;
import org.apache.fluss.row.BinaryString;
import org.apache.fluss.row.GenericRow;
import org.apache.fluss.row.TimestampLtz;
import org.apache.fluss.types.DataType;
import org.apache.fluss.types.DataTypes;

import java.util.Collections;

/**
 * A cluster without a lake: keys that a lake would not allow. Not among the subjects by default.
 */
final class WithoutALake {
    static void tell(Place place) throws Exception {
        place.makeDatabase();
        composite(place);
        types(place);
        TablePath path = place.make("log", Tables.log(1).build());
        Tables.told(place, "log", path);
        place.ask(
                "tiering on",
                () ->
                        place.admin.alterTable(
                                path,
                                Collections.singletonList(
                                        TableChange.set("table.datalake.enabled", "true")),
                                false));
        place.ask(
                "a tiered table",
                () ->
                        place.admin.createTable(
                                place.path("tiered"),
                                Tables.log(1).property("table.datalake.enabled", "true").build(),
                                false));
        place.ask("lake snapshot", () -> place.admin.getLatestLakeSnapshot(path));
    }

    private static void composite(Place place) throws Exception {
        Schema schema =
                Schema.newBuilder()
                        .column("shop", DataTypes.STRING())
                        .column("floor", DataTypes.INT())
                        .column("id", DataTypes.BIGINT())
                        .column("n", DataTypes.INT())
                        .primaryKey("shop", "floor", "id")
                        .build();
        TablePath whole =
                place.make(
                        "whole_key",
                        TableDescriptor.builder().schema(schema).distributedBy(3).build());
        Tables.told(place, "whole key", whole);
        TablePath part =
                place.make(
                        "part_of_the_key",
                        TableDescriptor.builder()
                                .schema(schema)
                                .distributedBy(3, "shop", "floor")
                                .build());
        Tables.told(place, "part of the key", part);
        for (TablePath path : new TablePath[] {whole, part}) {
            String name = path.equals(whole) ? "whole key" : "part of the key";
            try (Table table = place.table(path)) {
                UpsertWriter writer = table.newUpsert().createWriter();
                for (int i = 0; i < 12; i++) {
                    writer.upsert(
                            GenericRow.of(
                                    BinaryString.fromString("s" + i % 2), i % 3, (long) i, i));
                }
                writer.flush();
                for (int bucket = 0; bucket < 3; bucket++) {
                    int each = bucket;
                    place.ask(name + ": bucket " + bucket, () -> Rows.limited(table, each, 99));
                }
                place.ask(
                        name + ": lookup",
                        () ->
                                Lookups.all(
                                        table.newLookup().createLookuper(),
                                        table,
                                        GenericRow.of(BinaryString.fromString("s1"), 1, 7L)));
                place.ask(
                        name + ": prefix",
                        () ->
                                Lookups.all(
                                        table.newLookup()
                                                .lookupBy("shop", "floor")
                                                .createLookuper(),
                                        table,
                                        GenericRow.of(BinaryString.fromString("s0"), 2)));
            }
        }
    }

    private static void types(Place place) throws Exception {
        DataType[] types = {
            DataTypes.BOOLEAN(),
            DataTypes.TINYINT(),
            DataTypes.SMALLINT(),
            DataTypes.TIMESTAMP_LTZ(3)
        };
        Object[] keys = {
            true, (byte) 5, (short) 500, TimestampLtz.fromEpochMillis(1_700_000_000_123L)
        };
        for (int i = 0; i < types.length; i++) {
            Schema schema =
                    Schema.newBuilder()
                            .column("id", types[i])
                            .column("n", DataTypes.INT())
                            .primaryKey("id")
                            .build();
            TablePath path =
                    place.make(
                            "type_" + i,
                            TableDescriptor.builder().schema(schema).distributedBy(2).build());
            Object key = keys[i];
            try (Table table = place.table(path)) {
                Place.done(table.newUpsert().createWriter().upsert(GenericRow.of(key, 1)));
                place.ask(
                        "key of " + types[i],
                        () ->
                                Lookups.all(
                                        table.newLookup().createLookuper(),
                                        table,
                                        GenericRow.of(key)));
                place.ask("its bucket, " + types[i], () -> Rows.limited(table, 0, 9));
            }
        }
    }
}
