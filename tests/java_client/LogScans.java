import org.apache.fluss.client.admin.OffsetSpec;
import org.apache.fluss.client.table.Table;
import org.apache.fluss.client.table.scanner.log.LogScanner;
import org.apache.fluss.client.table.writer.AppendWriter;
import org.apache.fluss.metadata.TablePath;
import org.apache.fluss.row.BinaryString;
import org.apache.fluss.row.GenericRow;
import org.apache.fluss.types.RowType;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.concurrent.CompletableFuture;

/** Scans of a log table: buckets that are idle and busy, columns, and where a scan begins. */
final class LogScans {
    static final int ROWS = 40;

    static void tell(Place place) throws Exception {
        place.makeDatabase();
        TablePath path = place.make("events", Tables.log(2).build());
        try (Table table = place.table(path)) {
            RowType type = table.getTableInfo().getRowType();
            int busy = fill(table);
            int idle = 1 - busy;
            place.say("the busy bucket", busy);
            try (LogScanner scanner = table.newScan().createLogScanner()) {
                scanner.subscribeFromBeginning(idle);
                place.say("an idle bucket", Rows.quiet(scanner, type));
                scanner.subscribeFromBeginning(busy);
                place.say("an idle and a busy bucket", Rows.take(scanner, type, ROWS));
                place.say("both, read to the end", Rows.quiet(scanner, type));
                append(table, 1, "later");
                place.say("a row that came later", Rows.take(scanner, type, 1));
                scanner.unsubscribe(busy);
                append(table, 1, "unseen");
                place.say("after the end of a subscription", Rows.quiet(scanner, type));
                scanner.subscribe(busy, ROWS + 1);
                place.say("subscribed again", Rows.take(scanner, type, 1));
            }
            begins(place, table, busy);
            columns(place, table, busy);
            wrong(place, table, busy);
        }
    }

    /** Puts 40 rows into one bucket, the one of the key 1. */
    private static int fill(Table table) throws Exception {
        AppendWriter writer = table.newAppend().createWriter();
        List<CompletableFuture<?>> sent = new ArrayList<>();
        for (int i = 0; i < ROWS; i++) {
            sent.add(writer.append(row(1, "n" + i, i)));
        }
        writer.flush();
        for (CompletableFuture<?> each : sent) {
            Place.done(each);
        }
        try (LogScanner scanner = table.newScan().createLogScanner()) {
            scanner.subscribeFromBeginning(0);
            return Rows.quiet(scanner, table.getTableInfo().getRowType()).isEmpty() ? 1 : 0;
        }
    }

    private static void append(Table table, int id, String name) throws Exception {
        Place.done(table.newAppend().createWriter().append(row(id, name, 0)));
    }

    private static GenericRow row(int id, String name, long amount) {
        return GenericRow.of(id, BinaryString.fromString(name), amount);
    }

    private static void begins(Place place, Table table, int busy) throws Exception {
        TablePath path = table.getTableInfo().getTablePath();
        place.ask("from offset 38", () -> Rows.log(table, busy, 38, 4));
        place.ask("from the last", () -> Rows.log(table, busy, ROWS + 1, 1));
        long end = ROWS + 2;
        try (LogScanner scanner = table.newScan().createLogScanner()) {
            scanner.subscribe(busy, end);
            place.say("from the end", Rows.quiet(scanner, table.getTableInfo().getRowType()));
        }
        Thread.sleep(5);
        long before = System.currentTimeMillis();
        Thread.sleep(5);
        append(table, 1, "after a time");
        place.ask(
                "from a time",
                () -> {
                    Collection<Integer> bucket = List.of(busy);
                    long offset =
                            Place.done(
                                            place.admin
                                                    .listOffsets(
                                                            path,
                                                            bucket,
                                                            new OffsetSpec.TimestampSpec(before))
                                                    .all())
                                    .get(busy);
                    return Rows.log(table, busy, offset, 1);
                });
    }

    private static void columns(Place place, Table table, int busy) throws Exception {
        place.ask("columns by number", () -> Rows.projected(table, new int[] {2, 0}, busy, 38, 2));
        place.ask("one column", () -> Rows.projected(table, new int[] {1}, busy, 38, 2));
        place.ask(
                "all columns, turned",
                () -> Rows.projected(table, new int[] {2, 1, 0}, busy, 38, 2));
        place.ask(
                "no columns",
                () -> {
                    try (LogScanner scanner =
                            table.newScan().project(new int[] {}).createLogScanner()) {
                        scanner.subscribe(busy, 38);
                        return Rows.quiet(scanner, table.getTableInfo().getRowType());
                    }
                });
        place.ask("a column twice", () -> Rows.projected(table, new int[] {1, 1}, busy, 38, 2));
        place.ask(
                "a column that is not there",
                () -> Rows.projected(table, new int[] {7}, busy, 38, 2));
        place.ask(
                "columns by name",
                () -> {
                    try (LogScanner scanner =
                            table.newScan().project(List.of("amount", "id")).createLogScanner()) {
                        scanner.subscribe(busy, 38);
                        RowType type = table.getTableInfo().getRowType().project(new int[] {2, 0});
                        return Rows.take(scanner, type, 2);
                    }
                });
        place.ask(
                "a wrong name",
                () -> table.newScan().project(List.of("nothing")).createLogScanner());
        place.ask("a log scan with a limit", () -> table.newScan().limit(3).createLogScanner());
    }

    private static void wrong(Place place, Table table, int busy) throws Exception {
        place.ask("an offset beyond the end", () -> Rows.log(table, busy, 1000, 1));
        place.ask(
                "a row of too few fields",
                () -> table.newAppend().createWriter().append(GenericRow.of(1)));
        place.ask(
                "a row of a wrong type",
                () ->
                        table.newAppend()
                                .createWriter()
                                .append(GenericRow.of(1, BinaryString.fromString("a"), 1)));
        place.ask("an upsert", () -> table.newUpsert().createWriter());
        place.ask("a lookup", () -> table.newLookup().createLookuper());
        try (LogScanner scanner = table.newScan().createLogScanner()) {
            place.ask("a poll of nothing", () -> scanner.poll(Duration.ofMillis(10)));
            place.ask(
                    "a partition of a plain table",
                    () -> {
                        scanner.subscribe(1L, 0, 0);
                        return "done";
                    });
            scanner.subscribe(1 - busy, -2);
            Thread waker =
                    new Thread(
                            () -> {
                                sleep(200);
                                scanner.wakeup();
                            });
            waker.start();
            place.ask("woken up", () -> scanner.poll(Duration.ofSeconds(5)).count());
            waker.join();
        }
    }

    private static void sleep(long milliseconds) {
        try {
            Thread.sleep(milliseconds);
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }
}
