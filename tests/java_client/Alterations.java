import org.apache.fluss.client.table.Table;
import org.apache.fluss.client.table.writer.AppendWriter;
import org.apache.fluss.client.table.writer.UpsertWriter;
import org.apache.fluss.metadata.TableChange;
import org.apache.fluss.metadata.TablePath;
import org.apache.fluss.row.BinaryString;
import org.apache.fluss.row.GenericRow;
import org.apache.fluss.types.DataTypes;

import java.util.Arrays;
import java.util.Collections;
import java.util.List;

/** Options and columns of tables with rows, changed. */
final class Alterations {
    static void tell(Place place) throws Exception {
        place.makeDatabase();
        options(place);
        columns(place);
        keyed(place);
        both(place);
    }

    private static void options(Place place) throws Exception {
        TablePath path =
                place.make(
                        "options",
                        Tables.log(1)
                                .property("table.log.ttl", "3d")
                                .customProperty("a", "1")
                                .build());
        alter(place, "an option", path, TableChange.set("table.log.ttl", "5d"));
        alter(place, "a property of one's own", path, TableChange.set("owner", "bob"));
        alter(place, "a property less", path, TableChange.reset("a"));
        alter(place, "a property that is not there", path, TableChange.reset("b"));
        alter(place, "freshness", path, TableChange.set("table.datalake.freshness", "1min"));
        alter(
                place,
                "local segments",
                path,
                TableChange.set("table.log.tiered.local-segments", "5"));
        alter(place, "what cannot change", path, TableChange.set("table.log.format", "INDEXED"));
        alter(place, "buckets", path, TableChange.set("bucket.num", "3"));
        alter(place, "what is not known", path, TableChange.set("table.nothing", "1"));
        alter(place, "a wrong value", path, TableChange.set("table.log.ttl", "soon"));
        alter(
                place,
                "two, one of them wrong",
                path,
                TableChange.set("c", "1"),
                TableChange.set("table.nothing", "1"));
        alter(place, "nothing", path);
        alter(place, "an option less", path, TableChange.reset("table.log.ttl"));
        alter(place, "a lake option", path, TableChange.set("iceberg.commit.retry", "3"));
        Tables.told(place, "options", path);
        TablePath missing = place.path("missing");
        alter(place, "a missing table", missing, TableChange.set("a", "1"));
        place.ask(
                "a missing table, if it is there",
                () ->
                        place.admin.alterTable(
                                missing,
                                Collections.singletonList(TableChange.set("a", "1")),
                                true));
    }

    private static void columns(Place place) throws Exception {
        TablePath path = place.make("columns", Tables.log(1).build());
        try (Table table = place.table(path)) {
            AppendWriter writer = table.newAppend().createWriter();
            Place.done(writer.append(GenericRow.of(1, BinaryString.fromString("a"), 10L)));
        }
        alter(place, "a column", path, add("more", TableChange.ColumnPosition.last()));
        alter(
                place,
                "a column that is there",
                path,
                add("more", TableChange.ColumnPosition.last()));
        alter(place, "a first column", path, add("first", TableChange.ColumnPosition.first()));
        alter(
                place,
                "a column after another",
                path,
                add("next", TableChange.ColumnPosition.after("id")));
        alter(
                place,
                "a column that is never null",
                path,
                TableChange.addColumn(
                        "must",
                        DataTypes.INT().copy(false),
                        "why not",
                        TableChange.ColumnPosition.last()));
        alter(place, "a column less", path, TableChange.dropColumn("name"));
        alter(place, "another name", path, TableChange.renameColumn("name", "label"));
        alter(
                place,
                "another type",
                path,
                TableChange.modifyColumn(
                        "name", DataTypes.BYTES(), null, TableChange.ColumnPosition.last()));
        Tables.told(place, "columns", path);
        place.ask("the schema before", () -> place.admin.getTableSchema(path, 1).get().getSchema());
        place.ask("the schema after", () -> place.admin.getTableSchema(path, 2).get().getSchema());
        try (Table table = place.table(path)) {
            AppendWriter writer = table.newAppend().createWriter();
            place.ask(
                    "a row of the old columns",
                    () -> writer.append(GenericRow.of(2, BinaryString.fromString("b"), 20L)));
            Place.done(
                    writer.append(
                            GenericRow.of(
                                    3,
                                    BinaryString.fromString("c"),
                                    30L,
                                    BinaryString.fromString("x"))));
            place.ask("rows of both schemas", () -> Rows.log(table, 0, -2, 2));
            place.ask(
                    "the new column of both",
                    () -> Rows.projected(table, new int[] {3, 0}, 0, -2, 2));
        }
    }

    private static void both(Place place) throws Exception {
        TablePath path = place.make("both", Tables.log(1).build());
        alter(
                place,
                "a column and an option",
                path,
                add("both", TableChange.ColumnPosition.last()),
                TableChange.set("owner", "ann"));
    }

    private static void keyed(Place place) throws Exception {
        TablePath path = place.make("keyed", Tables.keyed(1).build());
        try (Table table = place.table(path)) {
            UpsertWriter writer = table.newUpsert().createWriter();
            writer.upsert(GenericRow.of(1, BinaryString.fromString("a"), 10L));
            writer.upsert(GenericRow.of(2, BinaryString.fromString("b"), 20L));
            writer.flush();
        }
        alter(
                place,
                "a column of a keyed table",
                path,
                add("more", TableChange.ColumnPosition.last()));
        try (Table table = place.table(path)) {
            UpsertWriter writer = table.newUpsert().createWriter();
            Place.done(
                    writer.upsert(
                            GenericRow.of(
                                    2,
                                    BinaryString.fromString("B"),
                                    21L,
                                    BinaryString.fromString("x"))));
            Place.done(writer.delete(GenericRow.of(1, null, null, null)));
            place.ask("changes of both schemas", () -> Rows.log(table, 0, -2, 5));
            place.ask("rows after it", () -> Rows.limited(table, 0, 10));
        }
    }

    private static TableChange add(String name, TableChange.ColumnPosition position) {
        return TableChange.addColumn(name, DataTypes.STRING(), "new", position);
    }

    private static void alter(
            Place place, String question, TablePath path, TableChange... changes) {
        List<TableChange> all = Arrays.asList(changes);
        place.ask(question, () -> place.admin.alterTable(path, all, false));
    }
}
