import org.apache.fluss.metadata.Schema;
import org.apache.fluss.metadata.TableDescriptor;
import org.apache.fluss.metadata.TablePath;
import org.apache.fluss.types.DataType;
import org.apache.fluss.types.DataTypes;

/** Descriptors that a server refuses, or takes. */
final class RefusedTables {
    static void tell(Place place) throws Exception {
        place.makeDatabase();
        for (String name : new String[] {"", "a.b", "a b", "__t", "x".repeat(201)}) {
            String shown = name.length() > 20 ? "a long name" : "'" + name + "'";
            create(place, "named " + shown, name, Tables.log(1));
        }
        create(
                place,
                "without columns",
                TableDescriptor.builder().schema(Schema.newBuilder().build()).distributedBy(1));
        create(
                place,
                "of no buckets",
                TableDescriptor.builder().schema(Tables.logSchema()).distributedBy(0));
        create(place, "of three replicas", Tables.log(1).property("table.replication.factor", "3"));
        create(place, "of no replicas", Tables.log(1).property("table.replication.factor", "0"));
        for (String name : new String[] {"__offset", "__bucket", "_change_type", "_log_offset"}) {
            create(place, "with a column " + name, column(name, DataTypes.INT()));
        }
        property(place, "table.nothing", "1");
        property(place, "table.log.ttl", "soon");
        property(place, "table.log.ttl", "-1");
        property(place, "table.log.format", "CSV");
        property(place, "table.log.arrow.compression.type", "GZIP");
        property(place, "table.log.arrow.compression.zstd.level", "99");
        property(place, "table.log.tiered.local-segments", "0");
        property(place, "table.log.tiered.local-segments", "many");
        property(place, "table.kv.format", "CSV");
        property(place, "table.datalake.enabled", "perhaps");
        property(place, "table.datalake.format", "paimon");
        property(place, "table.merge-engine", "first_row");
        property(place, "table.changelog.image", "WAL");
        property(place, "table.delete.behavior", "DISABLE");
        property(place, "owner", "ann");
        property(place, "table.auto-partition.enabled", "true");
        property(place, "table.statistics.columns", "name");
        keyed(place, "table.kv.format", "CSV");
        keyed(place, "table.merge-engine", "newest");
        keyed(place, "table.merge-engine", "versioned");
        keyed(place, "table.merge-engine.versioned.ver-column", "name");
        keyed(place, "table.delete.behavior", "NEVER");
        keyed(place, "table.changelog.image", "HALF");
        keyed(place, "table.kv.format-version", "2");
        keyed(place, "table.kv.format-version", "7");
        create(
                place,
                "versioned by a text",
                Tables.keyed(1)
                        .property("table.merge-engine", "versioned")
                        .property("table.merge-engine.versioned.ver-column", "name"));
        create(
                place,
                "versioned by a missing column",
                Tables.keyed(1)
                        .property("table.merge-engine", "versioned")
                        .property("table.merge-engine.versioned.ver-column", "version"));
        create(
                place,
                "first row with deletes",
                Tables.keyed(1)
                        .property("table.merge-engine", "first_row")
                        .property("table.delete.behavior", "ALLOW"));
        partitioned(place);
    }

    private static void partitioned(Place place) {
        Schema daily = Tables.dailySchema(false);
        create(
                place,
                "partitioned by nothing known",
                TableDescriptor.builder().schema(daily).partitionedBy("week").distributedBy(1));
        create(
                place,
                "partitioned by what is no key",
                TableDescriptor.builder()
                        .schema(Tables.keyedSchema())
                        .partitionedBy("name")
                        .distributedBy(1));
        create(
                place,
                "partitioned by its bucket key",
                TableDescriptor.builder()
                        .schema(daily)
                        .partitionedBy("day")
                        .distributedBy(1, "day"));
        for (DataType type :
                new DataType[] {
                    DataTypes.INT(),
                    DataTypes.BIGINT(),
                    DataTypes.DATE(),
                    DataTypes.BOOLEAN(),
                    DataTypes.DOUBLE()
                }) {
            Schema schema =
                    Schema.newBuilder().column("id", DataTypes.INT()).column("part", type).build();
            create(
                    place,
                    "partitioned by " + type,
                    TableDescriptor.builder()
                            .schema(schema)
                            .partitionedBy("part")
                            .distributedBy(1, "id"));
        }
        create(
                place,
                "bucketed by nothing known",
                TableDescriptor.builder().schema(Tables.logSchema()).distributedBy(1, "week"));
        create(
                place,
                "bucketed by what is no key",
                TableDescriptor.builder().schema(Tables.keyedSchema()).distributedBy(1, "name"));
        create(
                place,
                "bucketed by an array",
                TableDescriptor.builder()
                        .schema(
                                Schema.newBuilder()
                                        .column("id", DataTypes.ARRAY(DataTypes.INT()))
                                        .build())
                        .distributedBy(1, "id"));
        for (DataType type :
                new DataType[] {
                    DataTypes.BOOLEAN(), DataTypes.TINYINT(), DataTypes.TIMESTAMP_LTZ(3)
                }) {
            create(
                    place,
                    "keyed by " + type,
                    TableDescriptor.builder()
                            .schema(Schema.newBuilder().column("id", type).primaryKey("id").build())
                            .distributedBy(1));
        }
    }

    private static TableDescriptor.Builder column(String name, DataType type) {
        Schema schema =
                Schema.newBuilder().column("id", DataTypes.INT()).column(name, type).build();
        return TableDescriptor.builder().schema(schema).distributedBy(1);
    }

    private static void property(Place place, String key, String value) {
        create(place, "with " + key + "=" + value, Tables.log(1).property(key, value));
    }

    private static void keyed(Place place, String key, String value) {
        create(place, "keyed, with " + key + "=" + value, Tables.keyed(1).property(key, value));
    }

    private static void create(Place place, String question, TableDescriptor.Builder builder) {
        create(place, question, "t", builder);
    }

    private static void create(
            Place place, String question, String name, TableDescriptor.Builder builder) {
        TablePath path = TablePath.of(place.database, name);
        place.ask(question, () -> place.admin.createTable(path, builder.build(), false));
        try {
            Place.done(place.admin.dropTable(path, true));
        } catch (Exception ignored) { // it never was
        }
    }
}
