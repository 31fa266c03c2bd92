import org.apache.fluss.client.Connection;
import org.apache.fluss.client.ConnectionFactory;
import org.apache.fluss.config.ConfigOptions;
import org.apache.fluss.config.Configuration;

import java.util.Arrays;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Set;

/**
 * What Fluss's own client sees of a cluster: subject, question and answer, a line each.
 *
 * <p>The first argument is the address, HOST:PORT; further ones are subjects, by default all of a
 * cluster with a lake, or settings of the client, KEY=VALUE. Two clusters that behave the same give
 * the same lines: nothing printed differs between runs.
 */
final class Tour {
    interface Subject {
        void tell(Place place) throws Exception;
    }

    /** Exit code: Fluss 0.9.1 has missed a table, and another cluster is needed. */
    private static final int MISSED = 3;

    private static final String WITHOUT_A_LAKE = "without_a_lake";
    private static final Map<String, Subject> SUBJECTS = new LinkedHashMap<>();

    static {
        SUBJECTS.put("protocol", Protocol::tell);
        SUBJECTS.put("databases", Databases::tell);
        SUBJECTS.put("tables", Tables::tell);
        SUBJECTS.put("refused_tables", RefusedTables::tell);
        SUBJECTS.put("partitions", Partitions::tell);
        SUBJECTS.put("alterations", Alterations::tell);
        SUBJECTS.put("types", Types::tell);
        SUBJECTS.put("log_scans", LogScans::tell);
        SUBJECTS.put("partition_scans", PartitionScans::tell);
        SUBJECTS.put("offsets", Offsets::tell);
        SUBJECTS.put("limit_scans", LimitScans::tell);
        SUBJECTS.put("upserts", Upserts::tell);
        SUBJECTS.put("merge_engines", MergeEngines::tell);
        SUBJECTS.put("lookups", Lookups::tell);
        SUBJECTS.put("kv_snapshots", Snapshots::tell);
        SUBJECTS.put("row_formats", RowFormats::tell);
        SUBJECTS.put("auto_increment", AutoIncrement::tell);
        SUBJECTS.put("lake", Lake::tell);
        SUBJECTS.put("settings", Settings::tell);
        SUBJECTS.put("cluster", Cluster::tell);
        SUBJECTS.put(WITHOUT_A_LAKE, WithoutALake::tell);
        try { // compiled with a client that has what it uses
            Class<?> more = Class.forName("SinceOne");
            SUBJECTS.put("since_1_0", (Subject) more.getDeclaredConstructor().newInstance());
        } catch (ReflectiveOperationException older) {
            SUBJECTS.remove("since_1_0");
        }
    }

    public static void main(String[] arguments) throws Exception {
        Configuration configuration = new Configuration();
        configuration.setString(ConfigOptions.BOOTSTRAP_SERVERS.key(), arguments[0]);
        Set<String> asked = new HashSet<>();
        for (String each : Arrays.asList(arguments).subList(1, arguments.length)) {
            int equals = each.indexOf('=');
            if (equals < 0) {
                asked.add(each);
            } else {
                configuration.setString(each.substring(0, equals), each.substring(equals + 1));
            }
        }
        if (asked.isEmpty()) {
            asked.addAll(SUBJECTS.keySet());
            asked.remove(WITHOUT_A_LAKE);
        }
        try (Connection connection = ConnectionFactory.createConnection(configuration)) {
            for (Map.Entry<String, Subject> subject : SUBJECTS.entrySet()) {
                if (asked.contains(subject.getKey())) {
                    tell(
                            new Place(configuration, connection, subject.getKey()),
                            subject.getValue());
                }
            }
        }
        System.exit(0); // 1.0.0 leaves threads of a scanner that it refused to make
    }

    private static void tell(Place place, Subject subject) {
        long began = System.nanoTime();
        try {
            subject.tell(place);
        } catch (Place.TableMissed missed) {
            System.err.println(missed.getMessage());
            System.exit(MISSED);
        } catch (Exception error) { // the other subjects are told all the same
            error.printStackTrace();
            place.failed("ends early", error);
        }
        System.err.printf("%s: %d ms%n", place.subject, (System.nanoTime() - began) / 1_000_000);
    }
}
