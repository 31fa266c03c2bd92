import org.apache.fluss.metadata.DatabaseDescriptor;
import org.apache.fluss.metadata.DatabaseInfo;
import org.apache.fluss.metadata.DatabaseSummary;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;

/** Databases, made, told and dropped. */
final class Databases {
    static void tell(Place place) throws Exception {
        String name = place.database;
        DatabaseDescriptor described =
                DatabaseDescriptor.builder()
                        .comment("for the tour")
                        .customProperties(Collections.singletonMap("owner", "ann"))
                        .build();
        place.ask("there at first", () -> place.admin.databaseExists(name));
        place.ask("the first database", () -> place.admin.databaseExists("fluss"));
        place.ask("tables of the first database", () -> place.admin.listTables("fluss"));
        place.ask("create", () -> place.admin.createDatabase(name, described, false));
        place.ask("create again", () -> place.admin.createDatabase(name, described, false));
        place.ask(
                "create if it is missing",
                () -> place.admin.createDatabase(name, DatabaseDescriptor.EMPTY, true));
        place.ask("there", () -> place.admin.databaseExists(name));
        place.ask("info", () -> info(place.admin.getDatabaseInfo(name).get()));
        place.ask("listed", () -> place.admin.listDatabases().get().contains(name));
        place.ask("empty", () -> place.admin.listTables(name));
        for (String wrong : new String[] {"", "a.b", "a b", "__mine", "x".repeat(201)}) {
            String shown = wrong.length() > 20 ? "a long name" : "'" + wrong + "'";
            place.ask(
                    "create " + shown,
                    () -> place.admin.createDatabase(wrong, DatabaseDescriptor.EMPTY, false));
        }
        place.make("t", Tables.log(1).build());
        place.ask("summary", () -> summary(place, name));
        place.ask("drop with a table", () -> place.admin.dropDatabase(name, false, false));
        place.ask("drop with its table", () -> place.admin.dropDatabase(name, false, true));
        place.ask("there at the end", () -> place.admin.databaseExists(name));
        place.ask("drop again", () -> place.admin.dropDatabase(name, false, true));
        place.ask("drop if it is there", () -> place.admin.dropDatabase(name, true, true));
        place.ask("info of a missing one", () -> place.admin.getDatabaseInfo(name));
        place.ask("tables of a missing one", () -> place.admin.listTables(name));
    }

    private static String info(DatabaseInfo info) {
        DatabaseDescriptor descriptor = info.getDatabaseDescriptor();
        return info.getDatabaseName()
                + ", comment "
                + descriptor.getComment().orElse("none")
                + ", "
                + Text.of(descriptor.getCustomProperties())
                + ", times "
                + (info.getCreatedTime() > 0 && info.getModifiedTime() >= info.getCreatedTime());
    }

    private static List<String> summary(Place place, String name) throws Exception {
        List<String> found = new ArrayList<>();
        for (DatabaseSummary each : Place.done(place.admin.listDatabaseSummaries())) {
            if (each.getDatabaseName().equals(name)) {
                found.add(
                        name
                                + ", tables "
                                + each.getTableCount()
                                + ", time "
                                + (each.getCreatedTime() > 0));
            }
        }
        return found;
    }
}
