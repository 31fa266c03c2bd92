import org.apache.fluss.metadata.PartitionInfo;
import org.apache.fluss.metadata.PartitionSpec;
import org.apache.fluss.metadata.Schema;
import org.apache.fluss.metadata.TableDescriptor;
import org.apache.fluss.metadata.TablePath;
import org.apache.fluss.types.DataTypes;

import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** Partitions of one and of two keys, made, listed and dropped. */
final class Partitions {
    static PartitionSpec day(String value) {
        return new PartitionSpec(Collections.singletonMap("day", value));
    }

    static void tell(Place place) throws Exception {
        place.makeDatabase();
        TablePath daily = place.path("daily");
        Place.done(place.admin.createTable(daily, Tables.daily(false, 2).build(), false));
        place.ask("at first", () -> names(place, daily));
        place.ask("create", () -> place.admin.createPartition(daily, day("20260101"), false));
        place.awaitPartition(daily, "20260101");
        place.ask("create again", () -> place.admin.createPartition(daily, day("20260101"), false));
        place.ask(
                "create if it is missing",
                () -> place.admin.createPartition(daily, day("20260101"), true));
        place.ask(
                "create another", () -> place.admin.createPartition(daily, day("20260102"), false));
        place.ask("listed", () -> names(place, daily));
        for (String wrong : new String[] {"", "a b", "a.b", "a/b", "__mine", "a$b", "é"}) {
            place.ask(
                    "create '" + wrong + "'",
                    () -> place.admin.createPartition(daily, day(wrong), false));
        }
        place.ask(
                "create 'under_score-1'",
                () -> place.admin.createPartition(daily, day("under_score-1"), false));
        place.ask(
                "create by another key",
                () ->
                        place.admin.createPartition(
                                daily,
                                new PartitionSpec(Collections.singletonMap("week", "1")),
                                false));
        place.ask(
                "create by no key",
                () ->
                        place.admin.createPartition(
                                daily, new PartitionSpec(Collections.emptyMap()), false));
        place.ask("drop", () -> place.admin.dropPartition(daily, day("20260101"), false));
        place.ask("drop again", () -> place.admin.dropPartition(daily, day("20260101"), false));
        place.ask(
                "drop if it is there",
                () -> place.admin.dropPartition(daily, day("20260101"), true));
        place.ask("listed at the end", () -> names(place, daily));
        twoKeys(place);
        TablePath plain = place.make("plain", Tables.log(1).build());
        place.ask("of a plain table", () -> place.admin.listPartitionInfos(plain));
        place.ask(
                "created in a plain table",
                () -> place.admin.createPartition(plain, day("1"), false));
        place.ask(
                "dropped in a plain table",
                () -> place.admin.dropPartition(plain, day("1"), false));
        TablePath missing = place.path("missing");
        place.ask("of a missing table", () -> place.admin.listPartitionInfos(missing));
        place.ask(
                "created in a missing table",
                () -> place.admin.createPartition(missing, day("1"), false));
        place.ask(
                "dropped in a missing table",
                () -> place.admin.dropPartition(missing, day("1"), true));
    }

    private static void twoKeys(Place place) throws Exception {
        Schema schema =
                Schema.newBuilder()
                        .column("id", DataTypes.INT())
                        .column("land", DataTypes.STRING())
                        .column("day", DataTypes.STRING())
                        .build();
        TablePath path = place.path("two_keys");
        TableDescriptor descriptor =
                TableDescriptor.builder()
                        .schema(schema)
                        .partitionedBy("land", "day")
                        .distributedBy(1, "id")
                        .build();
        Place.done(place.admin.createTable(path, descriptor, false));
        for (String[] each : new String[][] {{"de", "1"}, {"de", "2"}, {"fr", "1"}}) {
            place.ask(
                    "create " + each[0] + " and " + each[1],
                    () -> place.admin.createPartition(path, spec(each[0], each[1]), false));
        }
        place.awaitPartition(path, "de$1");
        place.ask(
                "create by one of two keys",
                () -> place.admin.createPartition(path, day("1"), false));
        place.ask("two keys", () -> names(place, path));
        place.ask("of one day", () -> filtered(place, path, day("1")));
        place.ask("of a land and a day", () -> filtered(place, path, spec("de", "2")));
        place.ask("of a day that is not there", () -> filtered(place, path, day("9")));
        place.ask(
                "of a week",
                () ->
                        filtered(
                                place,
                                path,
                                new PartitionSpec(Collections.singletonMap("week", "1"))));
        place.ask("drop one of two keys", () -> place.admin.dropPartition(path, day("1"), false));
    }

    private static PartitionSpec spec(String land, String day) {
        Map<String, String> values = new LinkedHashMap<>();
        values.put("land", land);
        values.put("day", day);
        return new PartitionSpec(values);
    }

    private static List<String> names(Place place, TablePath path) throws Exception {
        return names(Place.done(place.admin.listPartitionInfos(path)));
    }

    private static List<String> filtered(Place place, TablePath path, PartitionSpec spec)
            throws Exception {
        return names(Place.done(place.admin.listPartitionInfos(path, spec)));
    }

    private static List<String> names(List<PartitionInfo> infos) {
        List<String> names = new ArrayList<>();
        for (PartitionInfo each : infos) {
            names.add(
                    each.getPartitionName()
                            + " "
                            + each.getResolvedPartitionSpec()
                            + (each.getPartitionId() >= 0 ? "" : " no id"));
        }
        Collections.sort(names);
        return names;
    }
}
