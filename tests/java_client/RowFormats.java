import org.apache.fluss.client.table.Table;
import org.apache.fluss.client.table.writer.AppendWriter;
import org.apache.fluss.client.table.writer.UpsertWriter;
import org.apache.fluss.metadata.TableDescriptor;
import org.apache.fluss.metadata.TablePath;
import org.apache.fluss.row.BinaryString;
import org.apache.fluss.row.GenericRow;

/** Logs that hold rows instead of Arrow. */
final class RowFormats {
    static void tell(Place place) throws Exception {
        place.makeDatabase();
        for (String format : new String[] {"INDEXED", "COMPACTED"}) {
            TableDescriptor descriptor = Tables.log(1).property("table.log.format", format).build();
            TablePath path = place.make("log_" + format.toLowerCase(), descriptor);
            try (Table table = place.table(path)) {
                AppendWriter writer = table.newAppend().createWriter();
                for (int i = 0; i < 3; i++) {
                    int id = i;
                    place.ask(
                            format + ": append " + i,
                            () -> {
                                Place.done(writer.append(row(id)));
                                return "done";
                            });
                }
                place.ask(format + ": rows", () -> Rows.log(table, 0, -2, 3));
                place.ask(format + ": from offset 2", () -> Rows.log(table, 0, 2, 1));
                place.ask(
                        format + ": two columns",
                        () -> Rows.projected(table, new int[] {2, 0}, 0, -2, 3));
                place.ask(format + ": the last", () -> Rows.limited(table, 0, 2));
            }
        }
        keyed(place, "keyed_compacted", Tables.keyed(1).property("table.log.format", "COMPACTED"));
        keyed(
                place,
                "keyed_indexed",
                Tables.keyed(1)
                        .property("table.log.format", "INDEXED")
                        .property("table.kv.format", "INDEXED"));
        place.ask(
                "compacted rows with an indexed log",
                () ->
                        place.admin.createTable(
                                place.path("t"),
                                Tables.keyed(1).property("table.log.format", "INDEXED").build(),
                                false));
    }

    private static void keyed(Place place, String name, TableDescriptor.Builder builder)
            throws Exception {
        try (Table table = place.table(place.make(name, builder.build()))) {
            UpsertWriter writer = table.newUpsert().createWriter();
            place.ask(name + ": insert", () -> Place.done(writer.upsert(row(1))).getLogEndOffset());
            if (name.equals(
                    "keyed_indexed")) { // Fluss 0.9.1 makes such a table and cannot write it
                return;
            }
            Place.done(writer.upsert(Upserts.row(1, "changed", null)));
            Place.done(writer.delete(row(1)));
            Place.done(writer.upsert(row(2)));
            place.ask(name + ": changes", () -> Rows.log(table, 0, -2, 5));
            place.ask(name + ": rows", () -> Rows.limited(table, 0, 9));
        }
    }

    private static GenericRow row(int id) {
        return GenericRow.of(id, id == 2 ? null : BinaryString.fromString("n" + id), 10L * id);
    }
}
