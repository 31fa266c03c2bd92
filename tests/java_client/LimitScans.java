import org.apache.fluss.client.table.Table;
import org.apache.fluss.client.table.scanner.Scan;
import org.apache.fluss.client.table.writer.AppendWriter;
import org.apache.fluss.client.table.writer.UpsertWriter;
import org.apache.fluss.metadata.TablePath;
import org.apache.fluss.row.BinaryString;
import org.apache.fluss.row.GenericRow;
import org.apache.fluss.types.RowType;

import java.util.List;

/** The last rows of a log and the first ones by key. */
final class LimitScans {
    static void tell(Place place) throws Exception {
        place.makeDatabase();
        TablePath log = place.make("log", Tables.log(1).build());
        try (Table table = place.table(log)) {
            all(place, "an empty log", table);
            AppendWriter writer = table.newAppend().createWriter();
            for (int i = 0; i < 10; i++) {
                Place.done(writer.append(row(i)));
            }
            all(place, "a log", table);
            wrong(place, "a log", table);
        }
        TablePath keyed = place.make("keyed", Tables.keyed(1).build());
        try (Table table = place.table(keyed)) {
            all(place, "an empty keyed table", table);
            UpsertWriter writer = table.newUpsert().createWriter();
            for (int i = 0; i < 10; i++) {
                Place.done(writer.upsert(row(i)));
            }
            Place.done(writer.delete(row(1)));
            all(place, "a keyed table", table);
            wrong(place, "a keyed table", table);
        }
    }

    private static void all(Place place, String of, Table table) {
        for (int limit : new int[] {1, 3, 100}) {
            place.ask(of + ", limit " + limit, () -> Rows.limited(table, 0, limit));
        }
        place.ask(
                of + ", two columns",
                () -> {
                    int[] columns = {2, 0};
                    RowType type = table.getTableInfo().getRowType().project(columns);
                    return Rows.limited(
                            table, table.newScan().project(columns).limit(4), type, 0, null);
                });
    }

    private static void wrong(Place place, String of, Table table) {
        place.ask(of + ", limit 0", () -> Rows.limited(table, 0, 0));
        place.ask(of + ", limit -1", () -> Rows.limited(table, 0, -1));
        place.ask(of + ", a bucket that is not there", () -> Rows.limited(table, 7, 1));
        place.ask(of + ", without a limit", () -> scan(table, table.newScan()));
    }

    private static List<String> scan(Table table, Scan scan) throws Exception {
        return Rows.limited(table, scan, table.getTableInfo().getRowType(), 0, null);
    }

    private static GenericRow row(int id) {
        return GenericRow.of(id, BinaryString.fromString("n" + id), 10L * id);
    }
}
