import org.apache.fluss.client.table.Table;
import org.apache.fluss.client.table.writer.UpsertWriter;
import org.apache.fluss.metadata.TableDescriptor;
import org.apache.fluss.metadata.TablePath;

/** Tables that keep the first row of a key, or the newest version. */
final class MergeEngines {
    static void tell(Place place) throws Exception {
        place.makeDatabase();
        told(
                place,
                "first row",
                "first_row",
                Tables.keyed(1).property("table.merge-engine", "first_row"));
        TableDescriptor.Builder versioned =
                Tables.keyed(1)
                        .property("table.merge-engine", "versioned")
                        .property("table.merge-engine.versioned.ver-column", "amount");
        told(place, "versioned", "versioned", versioned);
        told(
                place,
                "versioned, WAL",
                "versioned_wal",
                versioned.property("table.changelog.image", "WAL"));
    }

    private static void told(
            Place place, String name, String table, TableDescriptor.Builder builder)
            throws Exception {
        TablePath path = place.make(table, builder.build());
        Tables.told(place, name, path);
        try (Table open = place.table(path)) {
            UpsertWriter writer = open.newUpsert().createWriter();
            long[] versions = {5, 7, 6, 7};
            for (int i = 0; i < versions.length; i++) {
                String text = "n" + i;
                long version = versions[i];
                place.ask(
                        name + ": version " + version + " of " + text,
                        () ->
                                Place.done(writer.upsert(Upserts.row(1, text, version)))
                                        .getLogEndOffset());
            }
            place.ask(
                    name + ": a row without a version",
                    () ->
                            Place.done(writer.upsert(Upserts.row(1, "null", null)))
                                    .getLogEndOffset());
            place.ask(
                    name + ": a delete",
                    () -> Place.done(writer.delete(Upserts.row(1, null, null))).getLogEndOffset());
            place.ask(
                    name + ": a partial update",
                    () -> {
                        open.newUpsert().partialUpdate("id", "name").createWriter();
                        return "done";
                    });
            Place.done(writer.upsert(Upserts.row(2, "last", 1L)));
            place.ask(
                    name + ": changes",
                    () ->
                            Rows.log(
                                    open,
                                    0,
                                    -2,
                                    open.getTableInfo()
                                                    .getTableConfig()
                                                    .getChangelogImage()
                                                    .toString()
                                                    .equals("WAL")
                                            ? 4
                                            : name.startsWith("f") ? 2 : 6));
            place.ask(name + ": rows", () -> Rows.limited(open, 0, 9));
        }
    }
}
