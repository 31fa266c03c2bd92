"""Lists the deliberate differences between the embedded server and Apache Fluss, with reasons.

Each entry is checked exactly. An answer that is neither expected nor listed here is a failure, and
so is an entry whose difference no longer exists.
"""

from __future__ import annotations

from tests.conformance.difference import CLEARER, FENCED, LOOKED_AT, Difference
from tests.conformance.field_differences import FIELDS

BACKWARDS = "the embedded server refuses commits whose offsets go back; Apache Fluss accepts them"
COLUMNS = "Fluss 0.9.1 cannot add columns to an Iceberg lake table; Sluice's next round adds them"
SYSTEM_COLUMN = "the embedded server reserves the names of the lake's system columns from the start"
LIMITED = "Apache Fluss accepts any lease id and duration; the embedded server validates them"
FINAL = "Apache Fluss creates a dropped lease again when it is renewed; Sluice returns an error"
AT_ONCE = (
    "a real Fluss lets a new table wait for its freshness; here its first round is due at once"
)
AFTERWARDS = "the embedded server accepts a request for a next round; Apache Fluss has no such call"
LEASE_CALL = "a call of Sluice's own about leases, which Apache Fluss does not have"

EMBEDDED: dict[tuple[str, str], Difference] = {
    ("tables", "no buckets"): Difference("InvalidTable", CLEARER),
    ("tables", "schema of a missing one"): Difference(
        "TableNotExist", "the error names the missing table, not its schema"
    ),
    ("schemas", "adding one that must not be null"): Difference("InvalidAlterTable", CLEARER),
    ("schemas", "adding a system column"): Difference("InvalidAlterTable", SYSTEM_COLUMN),
    ("schemas", "schema id at the end"): Difference(2, SYSTEM_COLUMN),
    ("options", "a column while it is tiered"): Difference("done", COLUMNS),
    ("options", "tiering on again"): Difference("done", COLUMNS),
    ("idle_tables", "a table that is missing among others"): Difference("TableNotExist", CLEARER),
    ("due", "a new one, at once"): Difference(True, AT_ONCE),
    ("due", "one that is tiered from now on"): Difference(True, AT_ONCE),
    ("due", "wanted during a round"): Difference("done", AFTERWARDS),
    ("due", "another round follows it"): Difference(True, AFTERWARDS),
    ("forced_finishes", "of epoch 0, before any round"): Difference("FencedTieringEpoch", AT_ONCE),
    ("lake_snapshots", "offsets of one bucket"): Difference("InvalidUpdateVersion", BACKWARDS),
    ("lake_snapshots", "nothing is merged in"): Difference((33, {0: 8, 1: 9}), BACKWARDS),
    ("lake_fences", "prepare for an unknown table"): Difference(
        "TableNotExist", "Apache Fluss writes an offsets file for any id"
    ),
    ("lake_fences", "commit of an older tiering epoch"): Difference("FencedTieringEpoch", FENCED),
    ("lake_fences", "commit of another coordinator epoch"): Difference(
        "InvalidCoordinator", FENCED
    ),
    ("lake_fences", "commit after the end of the round"): Difference("FencedTieringEpoch", FENCED),
    ("statuses", "of a table that is being tiered"): Difference(
        ["Tiering"], "a call of Sluice's own, which Fluss 0.9.1 does not have"
    ),
    ("kv_snapshots", "files"): Difference(
        [".log", ".sst", "CURRENT", "MANIFEST", "OPTIONS"],
        "a checkpoint of the embedded server's RocksDB also contains an empty write-ahead log",
    ),
    ("kv_snapshots", "listed"): Difference(True, "a call that Fluss has after 0.9.1"),
    ("lease_calls", "what never was"): Difference([0], LOOKED_AT),
    ("lease_calls", "of no bucket"): Difference([7], LOOKED_AT),
    ("lease_calls", "for no time"): Difference("InvalidLease", LIMITED),
    ("lease_calls", "under a name of spaces"): Difference("InvalidLease", LIMITED),
    ("lease_calls", "renew by its own call"): Difference("done", LEASE_CALL),
    ("lease_calls", "listed"): Difference(True, LEASE_CALL),
    ("lease_calls", "renew what holds nothing"): Difference("LeaseNotExist", FINAL),
    ("lease_calls", "renew what is dropped"): Difference("LeaseNotExist", FINAL),
    **FIELDS,
}
"""(scenario, question) -> its answer; the same over gRPC and over Fluss's own protocol."""
