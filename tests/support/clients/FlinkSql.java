import java.io.PrintWriter;
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.table.api.EnvironmentSettings;
import org.apache.flink.table.api.TableEnvironment;
import org.apache.flink.table.api.TableResult;
import org.apache.flink.types.Row;
import org.apache.flink.util.CloseableIterator;

/**
 * Runs SQL statements one after another in this process: FlinkSql batch|streaming STATEMENTS ANSWERS.
 *
 * <p>Each line of STATEMENTS is the most rows to read, a tab, and a statement. Each line of ANSWERS is
 * the number of the statement, a tab, and a row. A query ends at its end or at its most rows.
 */
public final class FlinkSql {
    public static void main(String[] args) throws Exception {
        Configuration conf = new Configuration();
        conf.setString("parallelism.default", "2");
        conf.setString("taskmanager.memory.network.max", "64mb");
        conf.setString("taskmanager.memory.network.min", "64mb");
        conf.setString("taskmanager.memory.managed.size", "64mb");
        EnvironmentSettings.Builder settings = EnvironmentSettings.newInstance().withConfiguration(conf);
        TableEnvironment table =
                TableEnvironment.create(
                        (args[0].equals("batch") ? settings.inBatchMode() : settings.inStreamingMode())
                                .build());
        try (PrintWriter answers = new PrintWriter(Files.newBufferedWriter(Path.of(args[2])))) {
            int number = 0;
            for (String line : Files.readAllLines(Path.of(args[1]))) {
                int tab = line.indexOf('\t');
                run(table, number++, Integer.parseInt(line.substring(0, tab)), line.substring(tab), answers);
                answers.flush();
            }
        }
        System.exit(0); // threads of a cancelled query do not keep the process
    }

    private static void run(TableEnvironment table, int number, int most, String sql, PrintWriter answers)
            throws Exception {
        TableResult result = table.executeSql(sql);
        if (most == 0) {
            result.await();
            return;
        }
        try (CloseableIterator<Row> rows = result.collect()) {
            for (int read = 0; read < most && rows.hasNext(); read++) {
                answers.println(number + "\t" + rows.next());
            }
        }
    }
}
