import org.apache.fluss.client.table.Table;
import org.apache.fluss.client.table.scanner.Scan;
import org.apache.fluss.client.table.scanner.ScanRecord;
import org.apache.fluss.client.table.scanner.batch.BatchScanner;
import org.apache.fluss.client.table.scanner.log.LogScanner;
import org.apache.fluss.client.table.scanner.log.ScanRecords;
import org.apache.fluss.metadata.TableBucket;
import org.apache.fluss.row.InternalRow;
import org.apache.fluss.types.RowType;
import org.apache.fluss.utils.CloseableIterator;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.TreeMap;

/** What scans give, as text: "KIND OFFSET (fields)". */
final class Rows {
    /** So long is waited for a row that should not come. */
    static final Duration QUIET = Duration.ofMillis(700);

    /** So long for one that should. */
    static final Duration PATIENCE = Duration.ofSeconds(8);

    /** The next rows of a bucket of a plain table, at most so many. */
    static List<String> log(Table table, int bucket, long offset, int rows) throws Exception {
        try (LogScanner scanner = table.newScan().createLogScanner()) {
            scanner.subscribe(bucket, offset);
            return flat(take(scanner, table.getTableInfo().getRowType(), rows));
        }
    }

    static List<String> projected(Table table, int[] columns, int bucket, long offset, int rows)
            throws Exception {
        try (LogScanner scanner = table.newScan().project(columns).createLogScanner()) {
            scanner.subscribe(bucket, offset);
            return flat(take(scanner, table.getTableInfo().getRowType().project(columns), rows));
        }
    }

    /**
     * Rows by bucket, or by partition and bucket, as soon as there are so many, or no more come.
     */
    static TreeMap<String, List<String>> take(LogScanner scanner, RowType type, int rows) {
        TreeMap<String, List<String>> found = new TreeMap<>();
        int count = 0;
        while (count < rows) {
            int more = next(scanner, PATIENCE, type, found);
            if (more == 0) {
                break;
            }
            count += more;
        }
        return found;
    }

    /**
     * The next rows that come in time.
     *
     * <p>Since 1.0 a poll ends without rows, too, as soon as a bucket without any has answered.
     */
    private static int next(
            LogScanner scanner,
            Duration patience,
            RowType type,
            TreeMap<String, List<String>> found) {
        long end = System.nanoTime() + patience.toNanos();
        int count = 0;
        while (count == 0 && System.nanoTime() < end) {
            count = add(scanner.poll(Duration.ofNanos(end - System.nanoTime())), type, found);
        }
        return count;
    }

    /** What comes in a time in which nothing should. */
    static TreeMap<String, List<String>> quiet(LogScanner scanner, RowType type) {
        TreeMap<String, List<String>> found = new TreeMap<>();
        next(scanner, QUIET, type, found);
        return found;
    }

    private static int add(ScanRecords records, RowType type, TreeMap<String, List<String>> found) {
        for (TableBucket bucket : records.buckets()) {
            String name = "bucket " + bucket.getBucket();
            for (ScanRecord record : records.records(bucket)) {
                String line =
                        record.getChangeType().shortString()
                                + " "
                                + record.logOffset()
                                + " "
                                + Text.row(record.getRow(), type)
                                + (record.timestamp() > 0 ? "" : " without a time");
                found.computeIfAbsent(name, key -> new ArrayList<>()).add(line);
            }
        }
        return records.count();
    }

    static List<String> flat(TreeMap<String, List<String>> byBucket) {
        List<String> all = new ArrayList<>();
        byBucket.values().forEach(all::addAll);
        return all;
    }

    static List<String> limited(Table table, int bucket, int limit) throws Exception {
        return limited(
                table,
                table.newScan().limit(limit),
                table.getTableInfo().getRowType(),
                bucket,
                null);
    }

    static List<String> limited(Table table, Scan scan, RowType type, int bucket, Long partition)
            throws Exception {
        TableBucket where = new TableBucket(table.getTableInfo().getTableId(), partition, bucket);
        return batches(scan.createBatchScanner(where), type);
    }

    /** All rows of a batch scan, sorted: RocksDB's order is that of the keys' bytes. */
    static List<String> batches(BatchScanner scanner, RowType type) throws Exception {
        List<String> rows = new ArrayList<>();
        try (BatchScanner open = scanner) {
            CloseableIterator<InternalRow> batch;
            while ((batch = open.pollBatch(Place.PATIENCE)) != null) {
                while (batch.hasNext()) {
                    rows.add(Text.row(batch.next(), type));
                }
                batch.close();
            }
        }
        Collections.sort(rows);
        return rows;
    }
}
