import org.apache.fluss.client.admin.KvSnapshotLease;
import org.apache.fluss.client.admin.OffsetSpec;
import org.apache.fluss.client.metadata.KvSnapshotMetadata;
import org.apache.fluss.client.metadata.KvSnapshots;
import org.apache.fluss.client.table.Table;
import org.apache.fluss.client.table.scanner.Scan;
import org.apache.fluss.client.table.writer.UpsertWriter;
import org.apache.fluss.fs.FsPathAndFileName;
import org.apache.fluss.metadata.TableBucket;
import org.apache.fluss.metadata.TableChange;
import org.apache.fluss.metadata.TablePath;
import org.apache.fluss.row.BinaryString;
import org.apache.fluss.row.GenericRow;
import org.apache.fluss.types.DataTypes;
import org.apache.fluss.types.RowType;

import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;

/** KV snapshots: none, one, their files, and the rows that a client reads out of them. */
final class Snapshots {
    private static final int ROWS = 50;

    static void tell(Place place) throws Exception {
        place.makeDatabase();
        TablePath path = place.make("keyed", Tables.keyed(2).build());
        place.ask("before any row", () -> told(Place.done(place.admin.getLatestKvSnapshots(path))));
        try (Table table = place.table(path)) {
            UpsertWriter writer = table.newUpsert().createWriter();
            for (int i = 0; i < ROWS; i++) {
                writer.upsert(Upserts.row(i, "n" + i, (long) i));
            }
            writer.upsert(Upserts.row(3, "changed", null));
            writer.delete(Upserts.row(4, null, null));
            writer.flush();
            KvSnapshots snapshots = complete(place, path);
            place.say("after rows", told(snapshots));
            for (int bucket : new int[] {0, 1}) {
                TableBucket where = new TableBucket(snapshots.getTableId(), bucket);
                long id = snapshots.getSnapshotId(bucket).getAsLong();
                place.ask(
                        "files of bucket " + bucket,
                        () -> files(Place.done(place.admin.getKvSnapshotMetadata(where, id))));
                place.ask(
                        "rows of bucket " + bucket,
                        () -> rows(table, table.newScan(), null, where, id));
                place.ask(
                        "columns of bucket " + bucket,
                        () ->
                                rows(
                                        table,
                                        table.newScan().project(new int[] {2, 0}),
                                        new int[] {2, 0},
                                        where,
                                        id));
            }
            leases(place, snapshots);
            TableBucket first = new TableBucket(snapshots.getTableId(), 0);
            place.ask(
                    "files of a missing snapshot",
                    () -> files(Place.done(place.admin.getKvSnapshotMetadata(first, 9999))));
            place.ask(
                    "rows of a missing snapshot",
                    () -> rows(table, table.newScan(), null, first, 9999));
            place.ask(
                    "a limited scan of a snapshot",
                    () -> rows(table, table.newScan().limit(3), null, first, 0));
        }
        anotherSchema(place, path);
        place.ask(
                "of a missing table",
                () -> place.admin.getLatestKvSnapshots(place.path("missing")));
        TablePath log = place.make("log", Tables.log(1).build());
        place.ask("of a log table", () -> place.admin.getLatestKvSnapshots(log));
        place.ask(
                "of a partition of a plain table",
                () -> place.admin.getLatestKvSnapshots(path, "p"));
    }

    private static void anotherSchema(Place place, TablePath path) throws Exception {
        Place.done(
                place.admin.alterTable(
                        path,
                        Collections.singletonList(
                                TableChange.addColumn(
                                        "more",
                                        DataTypes.STRING(),
                                        null,
                                        TableChange.ColumnPosition.last())),
                        false));
        try (Table table = place.table(path)) {
            UpsertWriter writer = table.newUpsert().createWriter();
            Place.done(
                    writer.upsert(
                            GenericRow.of(
                                    100,
                                    BinaryString.fromString("new"),
                                    1L,
                                    BinaryString.fromString("more"))));
            Place.done(
                    writer.upsert(
                            GenericRow.of(
                                    3,
                                    BinaryString.fromString("new"),
                                    1L,
                                    BinaryString.fromString("more"))));
            KvSnapshots snapshots = complete(place, path);
            for (int bucket : new int[] {0, 1}) {
                TableBucket where = new TableBucket(snapshots.getTableId(), bucket);
                long id = snapshots.getSnapshotId(bucket).getAsLong();
                place.ask(
                        "rows of both schemas, bucket " + bucket,
                        () -> rows(table, table.newScan(), null, where, id));
            }
        }
    }

    /** The newest snapshots, once they hold all rows. */
    private static KvSnapshots complete(Place place, TablePath path) throws Exception {
        Collection<Integer> buckets = List.of(0, 1);
        Map<Integer, Long> ends =
                Place.done(
                        place.admin.listOffsets(path, buckets, new OffsetSpec.LatestSpec()).all());
        return Place.eventually(
                () -> {
                    KvSnapshots found = Place.done(place.admin.getLatestKvSnapshots(path));
                    for (int bucket : buckets) {
                        if (!found.getLogOffset(bucket).isPresent()
                                || found.getLogOffset(bucket).getAsLong() < ends.get(bucket)) {
                            return null;
                        }
                    }
                    return found;
                });
    }

    private static String told(KvSnapshots snapshots) {
        StringBuilder text = new StringBuilder();
        for (int bucket : new TreeSet<>(snapshots.getBucketIds())) {
            text.append("bucket ")
                    .append(bucket)
                    .append(snapshots.getSnapshotId(bucket).isPresent() ? ", snapshot" : ", none")
                    .append(" up to ")
                    .append(snapshots.getLogOffset(bucket))
                    .append("; ");
        }
        return text.append("partition ").append(snapshots.getPartitionId()).toString();
    }

    /** The kinds of files; their number depends on when RocksDB flushed. */
    private static String files(KvSnapshotMetadata metadata) {
        TreeSet<String> kinds = new TreeSet<>();
        for (FsPathAndFileName each : metadata.getSnapshotFiles()) {
            kinds.add(each.getFileName().replaceAll("\\d+", "N"));
        }
        return "up to " + metadata.getLogOffset() + ": " + kinds;
    }

    private static List<String> rows(
            Table table, Scan scan, int[] columns, TableBucket bucket, long id) throws Exception {
        RowType type = table.getTableInfo().getRowType();
        return Rows.batches(
                scan.createBatchScanner(bucket, id),
                columns == null ? type : type.project(columns));
    }

    private static void leases(Place place, KvSnapshots snapshots) {
        KvSnapshotLease lease = place.admin.createKvSnapshotLease("tour", 60_000);
        Map<TableBucket, Long> wanted = new HashMap<>();
        for (int bucket : new int[] {0, 1}) {
            wanted.put(
                    new TableBucket(snapshots.getTableId(), bucket),
                    snapshots.getSnapshotId(bucket).getAsLong());
        }
        place.ask(
                "leased",
                () -> Place.done(lease.acquireSnapshots(wanted)).getUnavailableTableBucketSet());
        place.ask("renewed", () -> lease.renew());
        place.ask(
                "released",
                () ->
                        lease.releaseSnapshots(
                                Collections.singleton(new TableBucket(snapshots.getTableId(), 0))));
        place.ask("dropped", () -> lease.dropLease());
        place.ask("dropped again", () -> lease.dropLease());
    }
}
