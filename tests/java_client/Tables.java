import org.apache.fluss.metadata.Schema;
import org.apache.fluss.metadata.SchemaInfo;
import org.apache.fluss.metadata.TableDescriptor;
import org.apache.fluss.metadata.TableInfo;
import org.apache.fluss.metadata.TablePath;
import org.apache.fluss.types.DataTypes;

import java.util.Map;
import java.util.TreeMap;

/** Tables of each kind, made, told and dropped. */
final class Tables {
    static Schema logSchema() {
        return Schema.newBuilder()
                .column("id", DataTypes.INT())
                .withComment("the number")
                .column("name", DataTypes.STRING())
                .column("amount", DataTypes.BIGINT())
                .build();
    }

    static Schema keyedSchema() {
        return Schema.newBuilder()
                .column("id", DataTypes.INT())
                .column("name", DataTypes.STRING())
                .column("amount", DataTypes.BIGINT())
                .primaryKey("id")
                .build();
    }

    static Schema dailySchema(boolean keyed) {
        Schema.Builder builder =
                Schema.newBuilder()
                        .column("id", DataTypes.INT())
                        .column("name", DataTypes.STRING())
                        .column("day", DataTypes.STRING());
        return keyed ? builder.primaryKey("id", "day").build() : builder.build();
    }

    /** (id INT, name STRING, amount BIGINT), its buckets by id. */
    static TableDescriptor.Builder log(int buckets) {
        return TableDescriptor.builder().schema(logSchema()).distributedBy(buckets, "id");
    }

    /** The same with the primary key id. */
    static TableDescriptor.Builder keyed(int buckets) {
        return TableDescriptor.builder().schema(keyedSchema()).distributedBy(buckets, "id");
    }

    /** (id INT, name STRING, day STRING), a partition a day. */
    static TableDescriptor.Builder daily(boolean keyed, int buckets) {
        return TableDescriptor.builder()
                .schema(dailySchema(keyed))
                .partitionedBy("day")
                .distributedBy(buckets, "id");
    }

    static void tell(Place place) throws Exception {
        place.makeDatabase();
        TableDescriptor described =
                log(2).comment("what happened")
                        .property("table.log.ttl", "3d")
                        .property("table.log.arrow.compression.type", "LZ4_FRAME")
                        .customProperty("owner", "ann")
                        .build();
        TablePath log = place.path("log");
        place.ask("there at first", () -> place.admin.tableExists(log));
        place.ask("create", () -> place.admin.createTable(log, described, false));
        place.ask("create again", () -> place.admin.createTable(log, described, false));
        place.ask(
                "create if it is missing",
                () -> place.admin.createTable(log, keyed(3).build(), true));
        place.ask("there", () -> place.admin.tableExists(log));
        told(place, "log", log);
        create(place, "keyed", keyed(3).build());
        create(place, "no_buckets", TableDescriptor.builder().schema(logSchema()).build());
        create(
                place,
                "no_bucket_key",
                TableDescriptor.builder().schema(logSchema()).distributedBy(2).build());
        create(place, "daily", daily(false, 2).build());
        create(place, "daily_keyed", daily(true, 2).build());
        create(place, "part_of_the_key", partOfTheKey());
        create(place, "indexed_rows", keyed(1).property("table.kv.format", "INDEXED").build());
        create(place, "in_the_lake", log(1).property("table.datalake.enabled", "true").build());
        create(
                place,
                "lake_options",
                log(1).property("table.datalake.freshness", "30s")
                        .customProperty("iceberg.a.b", "c")
                        .build());
        place.ask(
                "listed",
                () -> new java.util.TreeSet<>(Place.done(place.admin.listTables(place.database))));
        place.ask("drop", () -> place.admin.dropTable(log, false));
        place.ask("there at the end", () -> place.admin.tableExists(log));
        place.ask("drop again", () -> place.admin.dropTable(log, false));
        place.ask("drop if it is there", () -> place.admin.dropTable(log, true));
        place.ask("info of a missing one", () -> place.admin.getTableInfo(log));
        place.ask("schema of a missing one", () -> place.admin.getTableSchema(log));
        place.ask("its client", () -> place.connection.getTable(log).getTableInfo());
        place.ask(
                "in a missing database",
                () -> place.admin.tableExists(TablePath.of("nowhere", "t")));
        place.ask(
                "create in a missing database",
                () -> place.admin.createTable(TablePath.of("nowhere", "t"), log(1).build(), false));
        place.ask(
                "create if missing in a missing database",
                () -> place.admin.createTable(TablePath.of("nowhere", "t"), log(1).build(), true));
        place.ask(
                "drop in a missing database",
                () -> place.admin.dropTable(TablePath.of("nowhere", "t"), false));
        place.ask(
                "schema by number",
                () -> place.admin.getTableSchema(place.path("keyed"), 1).get().getSchemaId());
        place.ask(
                "schema of a wrong number",
                () -> place.admin.getTableSchema(place.path("keyed"), 9));
    }

    private static TableDescriptor partOfTheKey() {
        Schema schema =
                Schema.newBuilder()
                        .column("shop", DataTypes.STRING())
                        .column("id", DataTypes.INT())
                        .column("n", DataTypes.INT())
                        .primaryKey("shop", "id")
                        .build();
        return TableDescriptor.builder().schema(schema).distributedBy(2, "shop").build();
    }

    private static void create(Place place, String name, TableDescriptor descriptor) {
        TablePath path = place.path(name);
        place.ask("create " + name, () -> place.admin.createTable(path, descriptor, false));
        told(place, name, path);
    }

    /** Everything about a table, one question each. */
    static void told(Place place, String name, TablePath path) {
        place.ask(name + ": schema", () -> schema(Place.done(place.admin.getTableSchema(path))));
        TableInfo info;
        try {
            info = Place.done(place.admin.getTableInfo(path));
        } catch (Exception error) {
            place.failed(name + ": info", error);
            return;
        }
        place.say(name + ": path", info.getTablePath());
        place.say(name + ": buckets", info.getNumBuckets() + " by " + info.getBucketKeys());
        place.say(name + ": default bucket key", info.isDefaultBucketKey());
        place.say(
                name + ": keys",
                info.getPrimaryKeys() + ", physical " + info.getPhysicalPrimaryKeys());
        place.say(name + ": partition keys", info.getPartitionKeys());
        place.say(name + ": comment", info.getComment().orElse("none"));
        Map<String, String> properties = new TreeMap<>();
        for (Map.Entry<String, String> each : info.getProperties().toMap().entrySet()) {
            properties.put(each.getKey(), Text.masked(each.getValue()));
        }
        place.say(name + ": properties", properties);
        place.say(name + ": custom properties", info.getCustomProperties().toMap());
        place.say(name + ": columns", info.getSchema().getColumns());
        place.say(
                name + ": ids and times",
                (info.getTableId() >= 0)
                        + " "
                        + info.getSchemaId()
                        + " "
                        + (info.getCreatedTime() > 0)
                        + " "
                        + (info.getModifiedTime() >= info.getCreatedTime()));
    }

    private static String schema(SchemaInfo info) {
        return info.getSchemaId() + ": " + info.getSchema();
    }
}
