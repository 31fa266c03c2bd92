import org.apache.fluss.client.table.Table;
import org.apache.fluss.client.table.writer.UpsertResult;
import org.apache.fluss.client.table.writer.UpsertWriter;
import org.apache.fluss.metadata.Schema;
import org.apache.fluss.metadata.TableDescriptor;
import org.apache.fluss.metadata.TablePath;
import org.apache.fluss.row.BinaryString;
import org.apache.fluss.row.GenericRow;
import org.apache.fluss.types.DataTypes;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;

/** Upserts, partial updates and deletes, with the changelog that they leave. */
final class Upserts {
    static void tell(Place place) throws Exception {
        place.makeDatabase();
        whole(place);
        partial(place);
        images(place);
        deletes(place);
    }

    private static void whole(Place place) throws Exception {
        TablePath path = place.make("whole", Tables.keyed(1).build());
        try (Table table = place.table(path)) {
            UpsertWriter writer = table.newUpsert().createWriter();
            place.ask("an insert", () -> end(writer.upsert(row(1, "a", 10L))));
            place.ask("an update", () -> end(writer.upsert(row(1, "b", 11L))));
            place.ask("the same again", () -> end(writer.upsert(row(1, "b", 11L))));
            place.ask("nulls", () -> end(writer.upsert(row(2, null, null))));
            place.ask(
                    "a delete",
                    () -> Place.done(writer.delete(row(1, null, null))).getLogEndOffset());
            place.ask(
                    "a delete of what is not there",
                    () -> Place.done(writer.delete(row(7, null, null))).getLogEndOffset());
            place.ask("an insert after the delete", () -> end(writer.upsert(row(1, "c", 12L))));
            place.ask("many at once", () -> many(writer));
            place.ask("the changelog", () -> Rows.log(table, 0, -2, 13));
            place.ask("the changelog from offset 3", () -> Rows.log(table, 0, 3, 10));
            place.ask(
                    "two columns of the changelog",
                    () -> Rows.projected(table, new int[] {2, 0}, 0, -2, 13));
            place.ask("its rows", () -> Rows.limited(table, 0, 100));
            place.ask("a key that is null", () -> end(writer.upsert(row(null, "a", 1L))));
            place.ask("an append", () -> table.newAppend().createWriter());
        }
    }

    private static long many(UpsertWriter writer) throws Exception {
        List<CompletableFuture<UpsertResult>> sent = new ArrayList<>();
        for (int i = 0; i < 3; i++) {
            sent.add(writer.upsert(row(20 + i, "m" + i, (long) i)));
        }
        sent.add(writer.upsert(row(20, "again", 0L)));
        writer.flush();
        long end = 0;
        for (CompletableFuture<UpsertResult> each : sent) {
            end = Math.max(end, end(each));
        }
        return end;
    }

    private static void partial(Place place) throws Exception {
        TablePath path = place.make("partial", Tables.keyed(1).build());
        try (Table table = place.table(path)) {
            UpsertWriter names = table.newUpsert().partialUpdate("id", "name").createWriter();
            UpsertWriter amounts = table.newUpsert().partialUpdate(new int[] {0, 2}).createWriter();
            place.ask("a name", () -> end(names.upsert(row(1, "a", null))));
            place.ask("an amount", () -> end(amounts.upsert(row(1, null, 5L))));
            place.ask("another name", () -> end(names.upsert(row(1, "b", null))));
            place.ask("an amount of a new row", () -> end(amounts.upsert(row(2, null, 6L))));
            place.ask(
                    "a name less",
                    () -> Place.done(names.delete(row(1, null, null))).getLogEndOffset());
            place.ask(
                    "an amount less",
                    () -> Place.done(amounts.delete(row(1, null, null))).getLogEndOffset());
            place.ask(
                    "an amount less of the other",
                    () -> Place.done(amounts.delete(row(2, null, null))).getLogEndOffset());
            place.ask("changes of parts", () -> Rows.log(table, 0, -2, 8));
            place.ask("rows of parts", () -> Rows.limited(table, 0, 100));
            place.ask(
                    "without the key",
                    () -> table.newUpsert().partialUpdate("name").createWriter());
            place.ask(
                    "of a missing column",
                    () -> table.newUpsert().partialUpdate("id", "nothing").createWriter());
        }
        TablePath strict =
                place.make(
                        "strict",
                        TableDescriptor.builder()
                                .schema(
                                        Schema.newBuilder()
                                                .column("id", DataTypes.INT())
                                                .column("name", DataTypes.STRING().copy(false))
                                                .column("amount", DataTypes.BIGINT())
                                                .primaryKey("id")
                                                .build())
                                .distributedBy(1)
                                .build());
        try (Table table = place.table(strict)) {
            place.ask(
                    "of a row with columns that are never null",
                    () -> table.newUpsert().partialUpdate("id", "amount").createWriter());
        }
    }

    private static void images(Place place) throws Exception {
        TablePath path =
                place.make(
                        "image", Tables.keyed(1).property("table.changelog.image", "WAL").build());
        try (Table table = place.table(path)) {
            UpsertWriter writer = table.newUpsert().createWriter();
            end(writer.upsert(row(1, "a", 1L)));
            end(writer.upsert(row(1, "b", 2L)));
            Place.done(writer.delete(row(1, null, null)));
            place.ask("changes of the image WAL", () -> Rows.log(table, 0, -2, 3));
        }
        TablePath indexed =
                place.make(
                        "indexed", Tables.keyed(1).property("table.kv.format", "INDEXED").build());
        try (Table table = place.table(indexed)) {
            UpsertWriter writer = table.newUpsert().createWriter();
            end(writer.upsert(row(1, "a", 1L)));
            end(
                    table.newUpsert()
                            .partialUpdate("id", "name")
                            .createWriter()
                            .upsert(row(1, "b", null)));
            place.ask("changes of indexed rows", () -> Rows.log(table, 0, -2, 3));
        }
    }

    private static void deletes(Place place) throws Exception {
        for (String behavior : new String[] {"ALLOW", "IGNORE", "DISABLE"}) {
            TablePath path =
                    place.make(
                            "deletes_" + behavior.toLowerCase(),
                            Tables.keyed(1).property("table.delete.behavior", behavior).build());
            try (Table table = place.table(path)) {
                UpsertWriter writer = table.newUpsert().createWriter();
                end(writer.upsert(row(1, "a", 1L)));
                place.ask(
                        "a delete, " + behavior,
                        () -> Place.done(writer.delete(row(1, null, null))).getLogEndOffset());
                place.ask("rows, " + behavior, () -> Rows.limited(table, 0, 100));
            }
        }
    }

    private static long end(CompletableFuture<UpsertResult> sent) throws Exception {
        return Place.done(sent).getLogEndOffset();
    }

    static GenericRow row(Integer id, String name, Long amount) {
        return GenericRow.of(id, name == null ? null : BinaryString.fromString(name), amount);
    }
}
