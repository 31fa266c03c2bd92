import org.apache.fluss.client.metadata.LakeSnapshot;
import org.apache.fluss.metadata.TableBucket;
import org.apache.fluss.metadata.TablePath;

import java.util.Map;
import java.util.TreeMap;

/**
 * Lake snapshots: none, and those of lake.tiered, which the test has registered: 7 and then 9, both
 * kept.
 */
final class Lake {
    static void tell(Place place) throws Exception {
        place.makeDatabase();
        TablePath plain = place.make("plain", Tables.log(1).build());
        place.ask("none", () -> told(Place.done(place.admin.getLatestLakeSnapshot(plain))));
        place.ask(
                "none that is readable",
                () -> told(Place.done(place.admin.getReadableLakeSnapshot(plain))));
        TablePath missing = place.path("missing");
        place.ask(
                "of a missing table",
                () -> told(Place.done(place.admin.getLatestLakeSnapshot(missing))));
        TablePath tiered = TablePath.of("lake", "tiered");
        place.ask("the latest", () -> told(Place.done(place.admin.getLatestLakeSnapshot(tiered))));
        place.ask(
                "the readable one",
                () -> told(Place.done(place.admin.getReadableLakeSnapshot(tiered))));
        for (long id : new long[] {7, 9, 8}) {
            place.ask(
                    "number " + id,
                    () -> told(Place.done(place.admin.getLakeSnapshot(tiered, id))));
        }
    }

    private static String told(LakeSnapshot snapshot) {
        Map<String, Long> offsets = new TreeMap<>();
        for (Map.Entry<TableBucket, Long> each : snapshot.getTableBucketsOffset().entrySet()) {
            offsets.put("bucket " + each.getKey().getBucket(), each.getValue());
        }
        return snapshot.getSnapshotId() + " up to " + offsets;
    }
}
