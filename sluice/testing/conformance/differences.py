"""Where the embedded server answers otherwise than a real Fluss, on purpose, and why.

Each entry is asserted exactly: an answer that is neither expected nor the one listed here fails,
and so does an entry whose difference is gone.
"""

from __future__ import annotations

from dataclasses import dataclass

FENCED = (
    "an Apache Fluss cluster does not fence lake commits; the embedded server does"
    " (docs/fluss/known-problems.md#unfenced-lake-commits)"
)
CLEARER = "a real Fluss answers -1 with a stack trace; ours says what is wrong"
BACKWARDS = "ours refuses a commit that takes offsets back; a real Fluss takes any"
COLUMNS = "Fluss 0.9.1 cannot add a column to an Iceberg lake table; here the next round adds it"
SYSTEM_COLUMN = "ours keeps the lake's system columns free from the start, also for later tiering"
LOOKED_AT = "a real Fluss confirms a lease on whatever is asked for; ours looks (its issue 2600)"
LIMITED = "a real Fluss takes any lease id and duration; ours says what is wrong"
FINAL = "a real Fluss makes a lease that is gone anew; ours lets nobody renew what was dropped"
AT_ONCE = (
    "a real Fluss lets a new table wait for its freshness; here its first round is due at once"
)
AFTERWARDS = "ours remembers during a round that another one is wanted; a real Fluss has no call"
LEASE_CALL = "one of our own calls about leases, which no Fluss has"


@dataclass(frozen=True, slots=True)
class Difference:
    """What the embedded server answers to a question instead, and the reason."""

    answered: object
    reason: str


EMBEDDED: dict[tuple[str, str], Difference] = {
    ("tables", "no buckets"): Difference("InvalidTable", CLEARER),
    ("tables", "schema of a missing one"): Difference(
        "TableNotExist", "the table is what is missing, and its own error says so"
    ),
    ("schemas", "adding one that must not be null"): Difference("InvalidAlterTable", CLEARER),
    ("schemas", "adding a system column"): Difference("InvalidAlterTable", SYSTEM_COLUMN),
    ("schemas", "schema id at the end"): Difference(2, SYSTEM_COLUMN),
    ("options", "a column while it is tiered"): Difference("done", COLUMNS),
    ("options", "tiering on again"): Difference("done", COLUMNS),
    ("due", "a new one, at once"): Difference(True, AT_ONCE),
    ("due", "one that is tiered from now on"): Difference(True, AT_ONCE),
    ("due", "wanted during a round"): Difference("done", AFTERWARDS),
    ("due", "another round follows it"): Difference(True, AFTERWARDS),
    ("lake_snapshots", "offsets of one bucket"): Difference("InvalidUpdateVersion", BACKWARDS),
    ("lake_snapshots", "nothing is merged in"): Difference((33, {0: 8, 1: 9}), BACKWARDS),
    ("lake_fences", "prepare for an unknown table"): Difference(
        "TableNotExist", "a real Fluss writes an offsets file for any id"
    ),
    ("lake_fences", "commit of an older tiering epoch"): Difference("FencedTieringEpoch", FENCED),
    ("lake_fences", "commit of another coordinator epoch"): Difference(
        "InvalidCoordinator", FENCED
    ),
    ("lake_fences", "commit after the end of the round"): Difference("FencedTieringEpoch", FENCED),
    ("statuses", "of a table that is being tiered"): Difference(
        ["Tiering"], "seed 001's call, which Fluss 0.9.1 has not"
    ),
    ("kv_snapshots", "files"): Difference(
        [".log", ".sst", "CURRENT", "MANIFEST", "OPTIONS"],
        "a checkpoint of this RocksDB has its own log too, which is empty",
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
}
"""(scenario, question) -> its answer; the same over gRPC and over Fluss's own protocol."""
