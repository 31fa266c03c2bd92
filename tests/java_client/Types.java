import org.apache.fluss.client.table.Table;
import org.apache.fluss.client.table.writer.AppendWriter;
import org.apache.fluss.client.table.writer.UpsertWriter;
import org.apache.fluss.metadata.Schema;
import org.apache.fluss.metadata.TableDescriptor;
import org.apache.fluss.metadata.TablePath;
import org.apache.fluss.row.BinaryString;
import org.apache.fluss.row.Decimal;
import org.apache.fluss.row.GenericArray;
import org.apache.fluss.row.GenericMap;
import org.apache.fluss.row.GenericRow;
import org.apache.fluss.row.TimestampLtz;
import org.apache.fluss.row.TimestampNtz;
import org.apache.fluss.types.DataTypes;

import java.math.BigDecimal;
import java.util.Collections;

/** Every type in a log table and in a keyed one: values, extremes, nulls. */
final class Types {
    private static final int FIELDS = 25;

    static void tell(Place place) throws Exception {
        place.makeDatabase();
        GenericRow[] plain = {some(1), extreme(2), nulls(3)};
        for (String compression : new String[] {"NONE", "LZ4_FRAME", "ZSTD"}) {
            TablePath path =
                    place.make(
                            "log_" + compression.toLowerCase(),
                            described(false)
                                    .property("table.log.arrow.compression.type", compression)
                                    .build());
            try (Table table = place.table(path)) {
                AppendWriter writer = table.newAppend().createWriter();
                for (GenericRow row : plain) {
                    writer.append(row);
                }
                writer.flush();
                place.ask("log, " + compression, () -> Rows.log(table, 0, -2, plain.length));
                place.ask("log, limited, " + compression, () -> Rows.limited(table, 0, 10));
            }
        }
        for (String format : new String[] {"COMPACTED", "INDEXED"}) {
            // Fluss 0.9.1 fails to write the row of extremes as an indexed row
            boolean all = format.equals("COMPACTED");
            GenericRow[] rows = all ? plain : new GenericRow[] {plain[0], plain[2]};
            TablePath path =
                    place.make(
                            "keyed_" + format.toLowerCase(),
                            described(true).property("table.kv.format", format).build());
            try (Table table = place.table(path)) {
                UpsertWriter writer = table.newUpsert().createWriter();
                for (GenericRow row : rows) {
                    place.ask(
                            "upsert " + row.getInt(0) + ", " + format,
                            () -> Place.done(writer.upsert(row)).getLogEndOffset());
                }
                place.ask("changes, " + format, () -> Rows.log(table, 0, -2, rows.length));
                place.ask("keyed, " + format, () -> Rows.limited(table, 0, 10));
                place.ask(
                        "looked up, " + format,
                        () ->
                                Text.row(
                                        Place.done(
                                                        table.newLookup()
                                                                .createLookuper()
                                                                .lookup(GenericRow.of(all ? 2 : 3)))
                                                .getSingletonRow(),
                                        table.getTableInfo().getRowType()));
            }
        }
    }

    private static TableDescriptor.Builder described(boolean keyed) {
        Schema.Builder schema =
                Schema.newBuilder()
                        .column("id", DataTypes.INT())
                        .column("bool", DataTypes.BOOLEAN())
                        .column("tiny", DataTypes.TINYINT())
                        .column("small", DataTypes.SMALLINT())
                        .column("big", DataTypes.BIGINT())
                        .column("real", DataTypes.FLOAT())
                        .column("wide", DataTypes.DOUBLE())
                        .column("letters", DataTypes.CHAR(3))
                        .column("text", DataTypes.STRING())
                        .column("raw", DataTypes.BINARY(4))
                        .column("bytes", DataTypes.BYTES())
                        .column("price", DataTypes.DECIMAL(5, 2))
                        .column("sum", DataTypes.DECIMAL(30, 10))
                        .column("day", DataTypes.DATE())
                        .column("time", DataTypes.TIME())
                        .column("ts0", DataTypes.TIMESTAMP(0))
                        .column("ts3", DataTypes.TIMESTAMP(3))
                        .column("ts6", DataTypes.TIMESTAMP(6))
                        .column("ts9", DataTypes.TIMESTAMP(9))
                        .column("ltz3", DataTypes.TIMESTAMP_LTZ(3))
                        .column("ltz6", DataTypes.TIMESTAMP_LTZ(6))
                        .column("list", DataTypes.ARRAY(DataTypes.STRING()))
                        .column("map", DataTypes.MAP(DataTypes.STRING(), DataTypes.INT()))
                        .column(
                                "row",
                                DataTypes.ROW(
                                        DataTypes.FIELD("a", DataTypes.INT()),
                                        DataTypes.FIELD("b", DataTypes.STRING())))
                        .column("lists", DataTypes.ARRAY(DataTypes.ARRAY(DataTypes.BIGINT())));
        if (keyed) {
            schema.primaryKey("id");
        }
        return TableDescriptor.builder().schema(schema.build()).distributedBy(1, "id");
    }

    private static GenericRow some(int id) {
        return GenericRow.of(
                id,
                true,
                (byte) 7,
                (short) 300,
                5_000_000_000L,
                1.5f,
                2.25,
                BinaryString.fromString("abc"),
                BinaryString.fromString("grüße, 世界"),
                new byte[] {1, 2, 3, 4},
                new byte[] {9, 8, 7, 6, 5, 4, 3, 2, 1},
                Decimal.fromBigDecimal(new BigDecimal("123.45"), 5, 2),
                Decimal.fromBigDecimal(new BigDecimal("12345678901234567890.0123456789"), 30, 10),
                20_000,
                45_296_789,
                TimestampNtz.fromMillis(1_700_000_000_000L),
                TimestampNtz.fromMillis(1_700_000_000_123L),
                TimestampNtz.fromMillis(1_700_000_000_123L, 456_000),
                TimestampNtz.fromMillis(1_700_000_000_123L, 456_789),
                TimestampLtz.fromEpochMillis(1_700_000_000_123L),
                TimestampLtz.fromEpochMillis(1_700_000_000_123L, 456_000),
                new GenericArray(
                        new Object[] {
                            BinaryString.fromString("x"),
                            null,
                            BinaryString.fromString("longer than seven")
                        }),
                new GenericMap(Collections.singletonMap(BinaryString.fromString("k"), 1)),
                GenericRow.of(1, BinaryString.fromString("in it")),
                new GenericArray(
                        new Object[] {
                            new GenericArray(new Object[] {1L, null}),
                            null,
                            new GenericArray(new Object[] {})
                        }));
    }

    private static GenericRow extreme(int id) {
        return GenericRow.of(
                id,
                false,
                Byte.MIN_VALUE,
                Short.MIN_VALUE,
                Long.MIN_VALUE,
                Float.NaN,
                Double.NEGATIVE_INFINITY,
                BinaryString.fromString("xyz"),
                BinaryString.fromString(""),
                new byte[] {-1, 0, 0, 0},
                new byte[] {},
                Decimal.fromBigDecimal(new BigDecimal("-999.99"), 5, 2),
                Decimal.fromBigDecimal(new BigDecimal("-0.0000000001"), 30, 10),
                -719_528,
                86_399_999,
                TimestampNtz.fromMillis(-1_000L),
                TimestampNtz.fromMillis(-1L),
                TimestampNtz.fromMillis(0, 1_000),
                TimestampNtz.fromMillis(0, 1),
                TimestampLtz.fromEpochMillis(-62_135_596_800_000L),
                TimestampLtz.fromEpochMillis(0),
                new GenericArray(new Object[] {}),
                new GenericMap(Collections.emptyMap()),
                GenericRow.of(null, null),
                new GenericArray(new Object[] {}));
    }

    private static GenericRow nulls(int id) {
        GenericRow row = new GenericRow(FIELDS);
        row.setField(0, id);
        return row;
    }
}
