import org.apache.fluss.client.admin.OffsetSpec;
import org.apache.fluss.client.table.Table;
import org.apache.fluss.client.table.writer.AppendWriter;
import org.apache.fluss.metadata.TablePath;
import org.apache.fluss.row.BinaryString;
import org.apache.fluss.row.GenericRow;

import java.util.Collection;
import java.util.List;
import java.util.Map;

/** Offsets of a log: earliest, latest, and those of a time. */
final class Offsets {
    private static final Collection<Integer> BUCKETS = List.of(0, 1);

    static void tell(Place place) throws Exception {
        place.makeDatabase();
        TablePath path = place.make("events", Tables.log(2).build());
        OffsetSpec now = new OffsetSpec.TimestampSpec(System.currentTimeMillis() - 1);
        all(place, "of an empty table", path, now);
        long first = System.currentTimeMillis();
        Thread.sleep(10);
        try (Table table = place.table(path)) {
            AppendWriter writer = table.newAppend().createWriter();
            for (int i = 0; i < 5; i++) {
                Place.done(writer.append(GenericRow.of(1, BinaryString.fromString("a"), 1L)));
            }
            Thread.sleep(10);
            long second = System.currentTimeMillis();
            Thread.sleep(10);
            for (int i = 0; i < 2; i++) {
                Place.done(writer.append(GenericRow.of(1, BinaryString.fromString("a"), 1L)));
            }
            Thread.sleep(10);
            all(place, "before all rows", path, new OffsetSpec.TimestampSpec(first));
            all(place, "between rows", path, new OffsetSpec.TimestampSpec(second));
            all(
                    place,
                    "after all rows",
                    path,
                    new OffsetSpec.TimestampSpec(System.currentTimeMillis() - 1));
        }
        OffsetSpec later = new OffsetSpec.TimestampSpec(System.currentTimeMillis() + 3_600_000);
        place.ask("of the future", () -> offsets(place, path, BUCKETS, later));
        place.ask(
                "of the time 0",
                () -> offsets(place, path, BUCKETS, new OffsetSpec.TimestampSpec(0)));
        place.ask(
                "of no buckets",
                () -> offsets(place, path, List.of(), new OffsetSpec.LatestSpec()));
        place.ask(
                "of a partition of a plain table",
                () ->
                        Place.done(
                                place.admin
                                        .listOffsets(
                                                path, "p", BUCKETS, new OffsetSpec.LatestSpec())
                                        .all()));
        place.ask(
                "of a missing table",
                () -> offsets(place, place.path("missing"), BUCKETS, new OffsetSpec.LatestSpec()));
    }

    private static void all(Place place, String when, TablePath path, OffsetSpec time) {
        place.ask(
                "earliest, " + when,
                () -> offsets(place, path, BUCKETS, new OffsetSpec.EarliestSpec()));
        place.ask(
                "latest, " + when,
                () -> offsets(place, path, BUCKETS, new OffsetSpec.LatestSpec()));
        place.ask("of a time, " + when, () -> offsets(place, path, BUCKETS, time));
    }

    private static Map<Integer, Long> offsets(
            Place place, TablePath path, Collection<Integer> buckets, OffsetSpec spec)
            throws Exception {
        return Place.done(place.admin.listOffsets(path, buckets, spec).all());
    }
}
