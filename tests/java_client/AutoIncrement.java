import org.apache.fluss.client.table.Table;
import org.apache.fluss.client.table.writer.UpsertWriter;
import org.apache.fluss.metadata.Schema;
import org.apache.fluss.metadata.TableDescriptor;
import org.apache.fluss.metadata.TablePath;
import org.apache.fluss.row.BinaryString;
import org.apache.fluss.row.GenericRow;
import org.apache.fluss.types.DataTypes;

/** A column whose numbers the server gives. */
final class AutoIncrement {
    static void tell(Place place) throws Exception {
        place.makeDatabase();
        TablePath path = place.make("numbered", described().build());
        Tables.told(place, "numbered", path);
        try (Table table = place.table(path)) {
            place.ask(
                    "a writer of all columns",
                    () -> {
                        table.newUpsert().createWriter();
                        return "done";
                    });
            place.ask(
                    "a writer of the number",
                    () -> {
                        table.newUpsert().partialUpdate("name", "number").createWriter();
                        return "done";
                    });
            UpsertWriter writer = table.newUpsert().partialUpdate("name", "amount").createWriter();
            for (long i = 0; i < 3; i++) {
                GenericRow row = row(i == 1 ? "b" : "a", i);
                place.ask("upsert " + i, () -> Place.done(writer.upsert(row)).getLogEndOffset());
            }
            UpsertWriter keys = table.newUpsert().partialUpdate("name").createWriter();
            place.ask("a key alone", () -> Place.done(keys.upsert(row("c", null))).getLogEndOffset());
            place.ask("the key again", () -> Place.done(keys.upsert(row("c", null))).getLogEndOffset());
            place.ask("a delete", () -> Place.done(writer.delete(row("b", null))).getLogEndOffset());
            place.ask("changes", () -> Rows.log(table, 0, -2, 7));
            place.ask("rows", () -> Rows.limited(table, 0, 9));
            place.ask(
                    "looked up",
                    () ->
                            Lookups.one(
                                    table.newLookup().createLookuper(),
                                    table,
                                    GenericRow.of(BinaryString.fromString("b"))));
        }
        others(place);
    }

    /** Changes without old rows; numbers of a segment that ends. */
    private static void others(Place place) throws Exception {
        TablePath path =
                place.make(
                        "segments",
                        described()
                                .property("table.changelog.image", "WAL")
                                .property("table.auto-increment.cache-size", "2")
                                .build());
        try (Table table = place.table(path)) {
            UpsertWriter writer = table.newUpsert().partialUpdate("name", "amount").createWriter();
            for (String name : new String[] {"a", "b", "a", "c", "d", "e"}) {
                Place.done(writer.upsert(row(name, 1L)));
            }
            place.ask("changes of short segments", () -> Rows.log(table, 0, -2, 6));
        }
    }

    private static GenericRow row(String name, Long amount) {
        return GenericRow.of(BinaryString.fromString(name), null, amount);
    }

    private static TableDescriptor.Builder described() {
        Schema schema =
                Schema.newBuilder()
                        .column("name", DataTypes.STRING())
                        .column("number", DataTypes.BIGINT())
                        .column("amount", DataTypes.BIGINT())
                        .primaryKey("name")
                        .enableAutoIncrement("number")
                        .build();
        return TableDescriptor.builder().schema(schema).distributedBy(1);
    }
}
