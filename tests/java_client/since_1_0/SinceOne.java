import org.apache.fluss.client.admin.ClusterHealth;
import org.apache.fluss.client.metadata.ActiveKvSnapshots;
import org.apache.fluss.client.table.Table;
import org.apache.fluss.client.table.writer.UpsertWriter;
import org.apache.fluss.cluster.rebalance.ServerTag;
import org.apache.fluss.config.cluster.ConfigEntry;
import org.apache.fluss.metadata.DatabaseChange;
import org.apache.fluss.metadata.DatabaseDescriptor;
import org.apache.fluss.metadata.DatabaseInfo;
import org.apache.fluss.metadata.PartitionInfo;
import org.apache.fluss.metadata.TableBucket;
import org.apache.fluss.metadata.TableChange;
import org.apache.fluss.metadata.TablePath;
import org.apache.fluss.types.DataTypes;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;

/** What the client has since 1.0, and calls of 0.9.1 whose answers it shows more of. */
final class SinceOne implements Tour.Subject {
    private static final long NOBODY = 987_654_321L;

    @Override
    public void tell(Place place) throws Exception {
        place.makeDatabase();
        database(place);
        settings(place);
        TablePath keyed = place.make("keyed", Tables.keyed(2).build());
        place.ask("health", () -> health(Place.done(place.admin.getClusterHealth())));
        snapshots(place, keyed);
        remoteLogs(place, keyed);
        partitions(place);
        producers(place, keyed);
        alterations(place);
        place.ask(
                "a tag of a rack",
                () ->
                        place.admin.addServerTagByRack(
                                Collections.singletonList("r1"), ServerTag.TEMPORARY_OFFLINE));
        place.ask(
                "a tag of a rack less",
                () ->
                        place.admin.removeServerTagByRack(
                                Collections.singletonList("r1"), ServerTag.TEMPORARY_OFFLINE));
    }

    private static void database(Place place) {
        String name = place.database;
        alter(
                place,
                "a comment and two options",
                name,
                DatabaseChange.updateComment("for the tour"),
                DatabaseChange.set("owner", "ann"),
                DatabaseChange.set("team", "blue"));
        alter(
                place,
                "another value and an option less",
                name,
                DatabaseChange.set("owner", "bob"),
                DatabaseChange.reset("team"));
        alter(place, "no comment", name, DatabaseChange.updateComment(""));
        alter(place, "the same", name, DatabaseChange.set("owner", "bob"));
        alter(place, "nothing", name);
        alter(place, "a missing database", "tour_missing", DatabaseChange.set("owner", "bob"));
        place.ask(
                "a database if it is there",
                () ->
                        place.admin.alterDatabase(
                                "tour_missing",
                                List.of(DatabaseChange.set("owner", "bob")),
                                true));
    }

    private static void alter(
            Place place, String question, String name, DatabaseChange... changes) {
        place.ask(question, () -> place.admin.alterDatabase(name, Arrays.asList(changes), false));
        place.ask(
                question + ": seen",
                () -> {
                    DatabaseInfo info = Place.done(place.admin.getDatabaseInfo(name));
                    DatabaseDescriptor found = info.getDatabaseDescriptor();
                    return found.getComment().orElse("no comment")
                            + ", "
                            + Text.of(found.getCustomProperties());
                });
    }

    private static void settings(Place place) {
        place.ask(
                "settings",
                () -> {
                    Map<String, String> found = new HashMap<>();
                    for (ConfigEntry each : Place.done(place.admin.describeClusterConfigs())) {
                        if (each.key().startsWith("default.")) {
                            found.put(each.key(), each.value() + " of " + each.source());
                        }
                    }
                    return found;
                });
    }

    /** Replicas and leaders that are missing, and the status. */
    private static String health(ClusterHealth health) {
        int outOfSync = health.getNumReplicas() - health.getInSyncReplicas();
        int notActive = health.getNumLeaderReplicas() - health.getActiveLeaderReplicas();
        return health.getStatus()
                + ", any buckets "
                + (health.getNumLeaderReplicas() > 0)
                + ", not in sync "
                + outOfSync
                + ", not active "
                + notActive;
    }

    private static void snapshots(Place place, TablePath path) throws Exception {
        long id = Place.done(place.admin.getTableInfo(path)).getTableId();
        try (Table table = place.table(path)) {
            UpsertWriter writer = table.newUpsert().createWriter();
            for (int i = 0; i < 20; i++) {
                writer.upsert(Upserts.row(i, "n" + i, (long) i));
            }
            writer.flush();
        }
        place.ask(
                "KV snapshots of each bucket",
                () ->
                        Place.eventually(
                                () -> {
                                    ActiveKvSnapshots found =
                                            Place.done(place.admin.listKvSnapshots(id, null));
                                    int buckets = found.getSnapshotIdsByBucket().size();
                                    return buckets == 2 ? found.getTableId() == id : null;
                                }));
        place.ask("KV snapshots of nobody", () -> place.admin.listKvSnapshots(NOBODY, null));
        place.ask("KV snapshots of no partition", () -> place.admin.listKvSnapshots(id, NOBODY));
    }

    private static void remoteLogs(Place place, TablePath path) throws Exception {
        long id = Place.done(place.admin.getTableInfo(path)).getTableId();
        place.ask("manifests", () -> place.admin.listRemoteLogManifests(id, null));
        place.ask("manifests of nobody", () -> place.admin.listRemoteLogManifests(NOBODY, null));
        place.ask("manifests of no partition", () -> place.admin.listRemoteLogManifests(id, 77L));
    }

    private static void partitions(Place place) throws Exception {
        TablePath daily = place.path("daily");
        Place.done(place.admin.createTable(daily, Tables.daily(false, 1).build(), false));
        place.makePartition(daily, "d1");
        place.ask(
                "partitions with those of the system",
                () -> {
                    TreeSet<String> names = new TreeSet<>();
                    for (PartitionInfo each :
                            Place.done(place.admin.listPartitionInfos(daily, true))) {
                        names.add(each.getPartitionName());
                    }
                    return names;
                });
        TablePath plain = place.make("plain", Tables.log(1).build());
        place.ask(
                "partitions of a plain table with those of the system",
                () -> place.admin.listPartitionInfos(plain, true));
    }

    private static void producers(Place place, TablePath path) throws Exception {
        long id = Place.done(place.admin.getTableInfo(path)).getTableId();
        Map<TableBucket, Long> offsets = new HashMap<>();
        offsets.put(new TableBucket(id, 0), 7L);
        offsets.put(new TableBucket(id, 1), 0L);
        place.ask("register", () -> place.admin.registerProducerOffsets("one", offsets));
        offsets.put(new TableBucket(id, 0), 9L);
        place.ask("register again", () -> place.admin.registerProducerOffsets("one", offsets));
        place.ask("registered", () -> registered(place, id));
        place.ask("a wrong name", () -> place.admin.registerProducerOffsets("a b", offsets));
        place.ask("unregister", () -> place.admin.deleteProducerOffsets("one"));
        place.ask("unregister again", () -> place.admin.deleteProducerOffsets("one"));
    }

    private static List<String> registered(Place place, long id) throws Exception {
        List<String> found = new ArrayList<>();
        Map<TableBucket, Long> offsets =
                Place.done(place.admin.getProducerOffsets("one")).getTableOffsets().get(id);
        offsets.forEach((bucket, offset) -> found.add(bucket.getBucket() + " at " + offset));
        Collections.sort(found);
        return found;
    }

    private static void alterations(Place place) throws Exception {
        TablePath tiered =
                place.make("tiered", Tables.log(1).property("table.datalake.enabled", "true").build());
        place.ask(
                "a column of a tiered table",
                () ->
                        place.admin.alterTable(
                                tiered,
                                List.of(
                                        TableChange.addColumn(
                                                "more",
                                                DataTypes.STRING(),
                                                null,
                                                TableChange.ColumnPosition.last())),
                                false));
        place.ask(
                "another number of buckets",
                () -> place.admin.alterTable(tiered, List.of(TableChange.modifyBucketCount(4)), false));
    }
}
