import static java.nio.charset.StandardCharsets.UTF_8;

import org.apache.fluss.client.Connection;
import org.apache.fluss.client.admin.Admin;
import org.apache.fluss.client.admin.OffsetSpec;
import org.apache.fluss.client.table.Table;
import org.apache.fluss.config.Configuration;
import org.apache.fluss.exception.FlussRuntimeException;
import org.apache.fluss.metadata.DatabaseDescriptor;
import org.apache.fluss.metadata.TableDescriptor;
import org.apache.fluss.metadata.TablePath;

import java.io.PrintStream;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.stream.Collectors;
import java.util.stream.IntStream;

/** A database of one subject, and its questions. */
final class Place {
    /** The cluster is of no use any more: the caller starts another one. */
    static final class TableMissed extends RuntimeException {
        TableMissed(String message) {
            super(message);
        }
    }

    /** A call that takes longer is an answer too: Fluss never answers some calls. */
    static final Duration PATIENCE = Duration.ofSeconds(20);

    /** So long may leaders take, and KV snapshots. */
    static final Duration LEADERS = Duration.ofSeconds(10);

    /** Fluss 0.9.1 may miss a new table: then it is made again under this name. */
    private static final String AGAIN = "_again";

    private static final PrintStream OUT = new PrintStream(System.out, true, UTF_8);

    final Configuration configuration;
    final Connection connection;
    final Admin admin;
    final String subject;
    final String database;

    Place(Configuration configuration, Connection connection, String subject) {
        this.configuration = configuration;
        this.connection = connection;
        this.admin = connection.getAdmin();
        this.subject = subject;
        this.database = "tour_" + subject;
    }

    void makeDatabase() throws Exception {
        done(admin.createDatabase(database, DatabaseDescriptor.EMPTY, false));
    }

    TablePath path(String table) {
        return TablePath.of(database, table);
    }

    /** Makes a table without partitions, and waits for its leaders. */
    TablePath make(String name, TableDescriptor descriptor) throws Exception {
        for (String each : new String[] {name, name + AGAIN}) {
            TablePath path = path(each);
            done(admin.createTable(path, descriptor, false));
            if (eventually(() -> isLed(path, null)) != null) {
                return path;
            }
            done(admin.dropTable(path, false));
        }
        throw new TableMissed("no leaders of " + path(name) + ", twice created");
    }

    /**
     * Makes a partition of a table by day, and waits for its leaders.
     *
     * <p>If Fluss has missed the table, a partition of it leaves all later tables without leaders.
     */
    void makePartition(TablePath path, String day) throws Exception {
        done(admin.createPartition(path, Partitions.day(day), false));
        awaitPartition(path, day);
    }

    void awaitPartition(TablePath path, String name) throws Exception {
        if (eventually(() -> isLed(path, name)) == null) {
            throw new TableMissed("no leaders of partition " + name + " of " + path);
        }
    }

    /** True once every bucket has a leader, and null before. */
    private Boolean isLed(TablePath path, String partition) throws Exception {
        int count = done(admin.getTableInfo(path)).getNumBuckets();
        List<Integer> buckets = IntStream.range(0, count).boxed().collect(Collectors.toList());
        OffsetSpec spec = new OffsetSpec.EarliestSpec();
        try {
            done(
                    (partition == null
                                    ? admin.listOffsets(path, buckets, spec)
                                    : admin.listOffsets(path, partition, buckets, spec))
                            .all());
            return true;
        } catch (ExecutionException | TimeoutException | FlussRuntimeException notYet) {
            return null;
        }
    }

    Table table(TablePath path) {
        return connection.getTable(path);
    }

    /** Prints what a call answers, or how it fails. */
    void ask(String question, Callable<?> call) {
        Object answer;
        try {
            answer = call.call();
            if (answer instanceof CompletableFuture) {
                Object found = done((CompletableFuture<?>) answer);
                answer = found == null ? "done" : found;
            }
        } catch (Exception error) {
            failed(question, error);
            return;
        }
        say(question, answer);
    }

    void say(String question, Object answer) {
        print(question, Text.of(answer));
    }

    /** Prints an error's class; its message is a line of its own. */
    void failed(String question, Throwable error) {
        Throwable cause = error;
        while ((cause instanceof ExecutionException || cause instanceof CompletionException)
                && cause.getCause() != null) {
            cause = cause.getCause();
        }
        print(question, cause.getClass().getSimpleName());
        String[] lines = String.valueOf(cause.getMessage()).split("\n");
        print(question + ", in words", Text.masked(lines[0]));
    }

    private void print(String question, String answer) {
        OUT.println(subject + "\t" + question + "\t" + answer.replace(AGAIN, ""));
    }

    static <T> T done(CompletableFuture<T> call) throws Exception {
        return call.get(PATIENCE.toMillis(), TimeUnit.MILLISECONDS);
    }

    /** Asks again until the answer is not null. */
    static <T> T eventually(Callable<T> call) throws Exception {
        long end = System.nanoTime() + LEADERS.toNanos();
        while (true) {
            T found = call.call();
            if (found != null || System.nanoTime() > end) {
                return found;
            }
            Thread.sleep(50);
        }
    }
}
