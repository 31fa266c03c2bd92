import org.apache.fluss.client.Connection;
import org.apache.fluss.client.ConnectionFactory;
import org.apache.fluss.client.table.Table;
import org.apache.fluss.client.table.scanner.ScanRecord;
import org.apache.fluss.client.table.scanner.log.LogScanner;
import org.apache.fluss.client.table.writer.AppendWriter;
import org.apache.fluss.cluster.ServerNode;
import org.apache.fluss.cluster.ServerType;
import org.apache.fluss.config.Configuration;
import org.apache.fluss.metadata.TableDescriptor;
import org.apache.fluss.metadata.TablePath;
import org.apache.fluss.row.BinaryString;
import org.apache.fluss.row.GenericRow;

import java.time.Duration;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;

/** Clients with other settings: addresses, acknowledgements, small batches and small fetches. */
final class Settings {
    private static final int BUCKETS = 3;
    private static final int ROWS = 300;

    static void tell(Place place) throws Exception {
        place.makeDatabase();
        place.ask("through the tablet server", () -> throughTheTabletServer(place));
        String[] writers = {
            "client.writer.enable-idempotence=false client.writer.acks=0",
            "client.writer.batch-size=1kb client.writer.bucket.no-key-assigner=round_robin",
        };
        TablePath path = null;
        for (int i = 0; i < writers.length; i++) {
            TableDescriptor descriptor =
                    TableDescriptor.builder()
                            .schema(Tables.logSchema())
                            .distributedBy(BUCKETS)
                            .build();
            TablePath written = path = place.make("written_" + i, descriptor);
            String settings = writers[i];
            place.ask("written, " + settings, () -> written(place, written, settings));
        }
        TablePath written = path;
        String[] readers = {
            "client.scanner.log.fetch.max-bytes=1kb client.scanner.log.max-poll-records=7",
            "client.scanner.log.fetch.max-bytes-for-bucket=1kb"
                    + " client.scanner.log.fetch.wait-max-time=0ms",
        };
        for (String settings : readers) {
            place.ask("read, " + settings, () -> read(place, written, settings));
        }
    }

    private static boolean throughTheTabletServer(Place place) throws Exception {
        for (ServerNode each : Place.done(place.admin.getServerNodes())) {
            if (each.serverType() == ServerType.TABLET_SERVER) {
                String address = each.host() + ":" + each.port();
                try (Connection connection = connect(place, "bootstrap.servers=" + address)) {
                    return Place.done(connection.getAdmin().databaseExists(place.database));
                }
            }
        }
        return false;
    }

    /** A client with settings KEY=VALUE, separated by spaces. It takes 2 s to close. */
    private static Connection connect(Place place, String settings) {
        Configuration configuration = new Configuration(place.configuration);
        for (String each : settings.split(" ")) {
            configuration.setString(each.split("=")[0], each.split("=")[1]);
        }
        return ConnectionFactory.createConnection(configuration);
    }

    /** Writes rows with other settings, and reads them without. */
    private static String written(Place place, TablePath path, String settings) throws Exception {
        try (Connection connection = connect(place, settings);
                Table table = connection.getTable(path)) {
            AppendWriter writer = table.newAppend().createWriter();
            for (int i = 0; i < ROWS; i++) {
                writer.append(GenericRow.of(i, BinaryString.fromString("a name of " + i), 1L * i));
            }
            writer.flush();
        }
        return scanned(place.connection, path);
    }

    private static String read(Place place, TablePath path, String settings) throws Exception {
        try (Connection connection = connect(place, settings)) {
            return scanned(connection, path);
        }
    }

    /** How many rows there are, and whether the offsets of each bucket follow. */
    private static String scanned(Connection connection, TablePath path) throws Exception {
        Map<Integer, Long> next = new TreeMap<>();
        TreeSet<Integer> ids = new TreeSet<>();
        boolean follow = true;
        try (Table table = connection.getTable(path);
                LogScanner scanner = table.newScan().createLogScanner()) {
            for (int bucket = 0; bucket < BUCKETS; bucket++) {
                scanner.subscribeFromBeginning(bucket);
            }
            long end = System.nanoTime() + Place.PATIENCE.toNanos();
            while (ids.size() < ROWS && System.nanoTime() < end) {
                var records = scanner.poll(Duration.ofSeconds(1));
                for (var bucket : records.buckets()) {
                    for (ScanRecord record : records.records(bucket)) {
                        follow &= next.getOrDefault(bucket.getBucket(), 0L) == record.logOffset();
                        next.put(bucket.getBucket(), record.logOffset() + 1);
                        ids.add(record.getRow().getInt(0));
                    }
                }
            }
        }
        long rows = next.values().stream().mapToLong(Long::longValue).sum();
        return rows + " rows, " + ids.size() + " of them different, in order " + follow;
    }
}
