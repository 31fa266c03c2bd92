import org.apache.fluss.client.table.Table;
import org.apache.fluss.cluster.ServerNode;
import org.apache.fluss.cluster.rebalance.GoalType;
import org.apache.fluss.cluster.rebalance.ServerTag;
import org.apache.fluss.metadata.TableBucket;
import org.apache.fluss.metadata.TablePath;
import org.apache.fluss.row.BinaryString;
import org.apache.fluss.row.GenericRow;
import org.apache.fluss.security.acl.AclBindingFilter;

import java.util.Collections;
import java.util.Map;
import java.util.TreeSet;

/** Calls about the cluster: its servers, statistics, settings, rules of access, and producers. */
final class Cluster {
    static void tell(Place place) throws Exception {
        place.makeDatabase();
        place.ask(
                "servers",
                () -> {
                    TreeSet<String> servers = new TreeSet<>();
                    for (ServerNode each : Place.done(place.admin.getServerNodes())) {
                        servers.add(each.serverType() + " " + each.host());
                    }
                    return servers;
                });
        TablePath log = place.make("log", Tables.log(2).build());
        TablePath keyed = place.make("keyed", Tables.keyed(2).build());
        try (Table table = place.table(log)) {
            Place.done(table.newAppend().createWriter().append(Upserts.row(1, "a", 1L)));
        }
        try (Table table = place.table(keyed)) {
            Place.done(table.newUpsert().createWriter().upsert(Upserts.row(1, "a", 1L)));
            Place.done(table.newUpsert().createWriter().upsert(Upserts.row(1, "b", 1L)));
        }
        place.ask(
                "rows of a log table",
                () -> Place.done(place.admin.getTableStats(log)).getRowCount());
        place.ask(
                "rows of a keyed table",
                () -> Place.done(place.admin.getTableStats(keyed)).getRowCount());
        TablePath uncounted =
                place.make(
                        "uncounted",
                        Tables.keyed(1).property("table.changelog.image", "WAL").build());
        try (Table table = place.table(uncounted)) {
            Place.done(table.newUpsert().createWriter().upsert(Upserts.row(1, "a", 1L)));
        }
        place.ask(
                "rows that are not counted",
                () -> Place.done(place.admin.getTableStats(uncounted)).getRowCount());
        TablePath daily = place.path("daily");
        Place.done(place.admin.createTable(daily, Tables.daily(false, 1).build(), false));
        place.makePartition(daily, "d1");
        try (Table table = place.table(daily)) {
            Place.done(
                    table.newAppend()
                            .createWriter()
                            .append(GenericRow.of(1, null, BinaryString.fromString("d1"))));
        }
        place.ask(
                "rows of partitions",
                () -> Place.done(place.admin.getTableStats(daily)).getRowCount());
        place.ask(
                "rows of a missing table",
                () -> Place.done(place.admin.getTableStats(place.path("missing"))).getRowCount());
        place.ask("settings", () -> Place.done(place.admin.describeClusterConfigs()).isEmpty());
        place.ask("rules of access", () -> place.admin.listAcls(AclBindingFilter.ANY));
        place.ask(
                "a tag of a server",
                () ->
                        place.admin.addServerTag(
                                Collections.singletonList(0), ServerTag.TEMPORARY_OFFLINE));
        place.ask(
                "a tag of a server less",
                () ->
                        place.admin.removeServerTag(
                                Collections.singletonList(0), ServerTag.TEMPORARY_OFFLINE));
        place.ask("progress of a rebalance", () -> place.admin.listRebalanceProgress(null));
        place.ask(
                "a rebalance",
                () ->
                        Place.done(
                                        place.admin.rebalance(
                                                Collections.singletonList(
                                                        GoalType.REPLICA_DISTRIBUTION)))
                                .isEmpty());
        long id = Place.done(place.admin.getTableInfo(log)).getTableId();
        Map<TableBucket, Long> offsets = Collections.singletonMap(new TableBucket(id, 0), 1L);
        place.ask(
                "offsets of a producer",
                () -> place.admin.registerProducerOffsets("tour", offsets));
        place.ask(
                "offsets of a producer again",
                () -> place.admin.registerProducerOffsets("tour", offsets));
        place.ask(
                "offsets of a producer, told",
                () -> Place.done(place.admin.getProducerOffsets("tour")).getTableOffsets().size());
        place.ask("offsets of a producer less", () -> place.admin.deleteProducerOffsets("tour"));
        place.ask(
                "offsets of a producer that is not there",
                () -> place.admin.getProducerOffsets("nobody"));
    }
}
