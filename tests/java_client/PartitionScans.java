import org.apache.fluss.client.admin.OffsetSpec;
import org.apache.fluss.client.table.Table;
import org.apache.fluss.client.table.scanner.log.LogScanner;
import org.apache.fluss.client.table.writer.AppendWriter;
import org.apache.fluss.client.table.writer.UpsertWriter;
import org.apache.fluss.metadata.PartitionInfo;
import org.apache.fluss.metadata.TablePath;
import org.apache.fluss.row.BinaryString;
import org.apache.fluss.row.GenericRow;
import org.apache.fluss.types.RowType;

import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/** Rows in partitions: some with rows, one empty, one that the writer makes, one that goes. */
final class PartitionScans {
    static void tell(Place place) throws Exception {
        place.makeDatabase();
        log(place);
        keyed(place);
    }

    private static void log(Place place) throws Exception {
        TablePath path = place.path("daily");
        Place.done(place.admin.createTable(path, Tables.daily(false, 1).build(), false));
        for (String day : new String[] {"d1", "d2", "empty"}) {
            place.makePartition(path, day);
        }
        try (Table table = place.table(path)) {
            AppendWriter writer = table.newAppend().createWriter();
            for (int i = 0; i < 3; i++) {
                writer.append(row(i, "d1"));
                writer.append(row(i, "d2"));
            }
            writer.flush();
            RowType type = table.getTableInfo().getRowType();
            Map<String, Long> ids = ids(place, path);
            place.say("partitions", ids.keySet());
            place.ask("one partition", () -> read(table, ids.get("d1"), 3));
            try (LogScanner scanner = table.newScan().createLogScanner()) {
                scanner.subscribeFromBeginning(ids.get("empty"), 0);
                place.say("an empty partition", Rows.quiet(scanner, type));
                scanner.subscribeFromBeginning(ids.get("d2"), 0);
                place.say("an empty partition and another", Rows.take(scanner, type, 3));
                scanner.unsubscribe(ids.get("d2"), 0);
                Place.done(writer.append(row(9, "d2")));
                place.say("after the end of a subscription", Rows.quiet(scanner, type));
                place.ask(
                        "a bucket of a partitioned table",
                        () -> {
                            scanner.subscribe(0, 0);
                            return "done";
                        });
            }
            place.ask(
                    "a row for a partition that the client makes",
                    () -> {
                        writer.append(row(1, "new"));
                        writer.flush();
                        return ids(place, path).keySet();
                    });
            offsets(place, path);
            Place.done(place.admin.dropPartition(path, Partitions.day("d1"), false));
            place.say("partitions at the end", ids(place, path).keySet());
            place.ask(
                    "a limited scan of a partition",
                    () -> Rows.limited(table, table.newScan().limit(2), type, 0, ids.get("d2")));
        }
    }

    private static void offsets(Place place, TablePath path) {
        place.ask("latest offsets of a partition", () -> offsets(place, path, "d2"));
        place.ask("latest offsets of an empty one", () -> offsets(place, path, "empty"));
        place.ask("latest offsets of none", () -> offsets(place, path, "nothing"));
        Collection<Integer> bucket = List.of(0);
        place.ask(
                "latest offsets without a partition",
                () -> place.admin.listOffsets(path, bucket, new OffsetSpec.LatestSpec()).all());
    }

    private static Map<Integer, Long> offsets(Place place, TablePath path, String partition)
            throws Exception {
        Collection<Integer> bucket = List.of(0);
        return Place.done(
                place.admin
                        .listOffsets(path, partition, bucket, new OffsetSpec.LatestSpec())
                        .all());
    }

    private static void keyed(Place place) throws Exception {
        TablePath path = place.path("daily_keyed");
        Place.done(place.admin.createTable(path, Tables.daily(true, 1).build(), false));
        for (String day : new String[] {"d1", "d2"}) {
            place.makePartition(path, day);
        }
        try (Table table = place.table(path)) {
            UpsertWriter writer = table.newUpsert().createWriter();
            Place.done(writer.upsert(row(1, "d1")));
            Place.done(writer.upsert(row(1, "d2")));
            Place.done(writer.upsert(row(1, "d1")));
            Place.done(writer.delete(row(1, "d2")));
            Map<String, Long> ids = ids(place, path);
            RowType type = table.getTableInfo().getRowType();
            place.ask("changes of a partition", () -> read(table, ids.get("d1"), 3));
            place.ask("changes of another", () -> read(table, ids.get("d2"), 2));
            for (String day : new String[] {"d1", "d2", "nothing"}) {
                place.ask(
                        "lookup in " + day,
                        () -> {
                            GenericRow key = GenericRow.of(1, BinaryString.fromString(day));
                            return Lookups.one(table.newLookup().createLookuper(), table, key);
                        });
            }
            place.ask(
                    "rows of a partition",
                    () -> Rows.limited(table, table.newScan().limit(9), type, 0, ids.get("d1")));
            place.ask("rows without a partition", () -> Rows.limited(table, 0, 9));
            place.ask(
                    "latest KV snapshots without a partition",
                    () -> place.admin.getLatestKvSnapshots(path).get().getBucketIds());
            place.ask(
                    "latest KV snapshots of none",
                    () -> place.admin.getLatestKvSnapshots(path, "nothing").get().getBucketIds());
        }
    }

    private static List<String> read(Table table, long partition, int rows) throws Exception {
        try (LogScanner scanner = table.newScan().createLogScanner()) {
            scanner.subscribeFromBeginning(partition, 0);
            return Rows.flat(Rows.take(scanner, table.getTableInfo().getRowType(), rows));
        }
    }

    private static Map<String, Long> ids(Place place, TablePath path) throws Exception {
        Map<String, Long> ids = new TreeMap<>();
        for (PartitionInfo each : Place.done(place.admin.listPartitionInfos(path))) {
            ids.put(each.getPartitionName(), each.getPartitionId());
        }
        return ids;
    }

    private static GenericRow row(int id, String day) {
        return GenericRow.of(id, BinaryString.fromString("n" + id), BinaryString.fromString(day));
    }
}
