import org.apache.fluss.rpc.protocol.ApiKeys;

/** The calls that the client knows, and the versions of each. No server is asked. */
final class Protocol {
    static void tell(Place place) {
        for (ApiKeys each : ApiKeys.values()) {
            place.say(
                    String.valueOf(each.id),
                    each.lowestSupportedVersion + "-" + each.highestSupportedVersion);
        }
    }
}
