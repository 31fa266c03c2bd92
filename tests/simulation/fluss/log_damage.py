"""Logs that lose their beginning before it was tiered, and batches that become unreadable."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence

from sluice.errors import LogBeginsAfterLake
from sluice.model import TableBucket
from sluice.rounds.plan.bucket_repairs import GAPS_KEY, SKIPPED_KEY, ranges_in
from sluice.rounds.values.offsets import TABLE_ID_KEY
from sluice.rounds.values.types import LakeSnapshot, OffsetRange
from tests.simulation.fluss.cluster import FlussTable

LOST, DAMAGED = "log lost its beginning", "batch damaged"
GIVEN_UP = "tiered rows given up"
_BEGINS_LATE = re.compile(
    r"log of bucket (\S+) begins at offset (\d+), the lake ends at offset (\d+)"
)
_SHARE = 0.2
"""How many seeds have such logs; the others stay as they are."""
_OFTEN = 0.06
_EVENTS_MAX = 3
_LOSSES = 0.3
"""How many seeds have users who accept that a lake that is tiered again lacks rows."""


class LogDamage:
    """Damages logs of one simulation, and knows which rows nobody can read any more."""

    def __init__(self, seed: int, note: Callable[[str], None]) -> None:
        self._rng = random.Random(f"damage {seed}")
        self._note = note
        self._is_on = self._rng.random() < _SHARE
        self._left = _EVENTS_MAX
        self.unreadable: dict[TableBucket, set[int]] = {}
        """Offsets that were lost or damaged before they were tiered, or that a user gave up."""
        self._gives_up = random.Random(f"losses {seed}").random() < _LOSSES
        self.batches: set[tuple[TableBucket, int]] = set()
        """Damaged batches: bucket and base offset."""

    def has(self, fluss: FlussTable) -> bool:
        """Whether a log of the table was ever damaged."""
        return any(bucket.table_id == fluss.described.table_id for bucket in self.unreadable)

    def has_lost(self, gaps: Sequence[OffsetRange]) -> bool:
        """Whether nobody can read these offsets any more; False if there are none."""
        known = [self.unreadable.get(one.bucket, set()) for one in gaps]
        lost = [had.issuperset(range(g.start, g.stop)) for g, had in zip(gaps, known, strict=True)]
        return bool(lost) and all(lost)

    def is_due(self) -> bool:
        return self._is_on and self._left > 0 and self._rng.random() < _OFTEN

    def may_give_up(self, fluss: FlussTable, lost: Sequence[OffsetRange]) -> bool:
        """Whether a user may give up rows that were tiered and that no log has any more.

        Rows of dropped partitions are not given up: the coordinator no longer has their names.
        """
        return not lost or (self._gives_up and {one.bucket for one in lost} <= {*fluss.buckets()})

    def give_up(self, lost: Sequence[OffsetRange]) -> None:
        if lost:
            self._note(GIVEN_UP)
        for one in lost:
            self.unreadable.setdefault(one.bucket, set()).update(range(one.start, one.stop))

    def happen(self, fluss: FlussTable) -> None:
        """Damages the log of a bucket behind what Fluss has registered."""
        registered = fluss.latest_registered()
        known = registered.offsets if registered is not None else {}
        behind = {b: known.get(b, 0) for b in fluss.buckets() if fluss.end(b) > known.get(b, 0)}
        if not behind:
            return
        bucket = self._rng.choice(sorted(behind, key=str))
        log = [one for one in fluss.logs.get(bucket, []) if one.base_offset >= behind[bucket]]
        if not log:
            return
        self._left -= 1
        batch = self._rng.choice(log)
        if bucket in known and self._rng.random() < 0.5:
            self._note(LOST)
            fluss.truncate_before(bucket, batch.next_offset)
            lost = range(behind[bucket], batch.next_offset)
        else:
            self._note(DAMAGED)
            fluss.unreadable.add((bucket, batch.base_offset))
            self.batches.add((bucket, batch.base_offset))
            lost = range(batch.base_offset, batch.next_offset)
        self.unreadable.setdefault(bucket, set()).update(lost)


def named_gaps(error: LogBeginsAfterLake, table_id: int) -> list[OffsetRange]:
    """The offsets that the error says a log has lost.

    A round names one bucket in the details. A repair that no longer fits the table fails with the
    text of a new diagnosis, which may name several.
    """
    if "bucket" in error.details:
        ends = error.details["tiered_offset"], error.details["log_start_offset"]
        return [OffsetRange(error.details["bucket"], *ends)]
    return [
        OffsetRange(TableBucket.named(table_id, bucket), int(end), int(start))
        for bucket, start, end in _BEGINS_LATE.findall(str(error))
    ]


def unreadable_batch(fluss: FlussTable, bucket_name: str, offset: int) -> OffsetRange | None:
    """The batch that a user named, by the checks of `sluice repair --skip`."""
    bucket = TableBucket.named(fluss.described.table_id, bucket_name)
    registered = fluss.latest_registered()
    tiered = registered.offsets.get(bucket, 0) if registered is not None else 0
    if (bucket, offset) not in fluss.unreadable or offset < tiered:
        return None
    for records in fluss.logs.get(bucket, ()):
        if records.base_offset == offset and bucket in fluss.buckets():
            return OffsetRange(bucket, offset, records.next_offset)
    return None


class AcceptedRanges:
    """The ranges that lake snapshots record as missing, from their summaries alone."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, int | None], dict[TableBucket, set[int]]] = {}

    def at(
        self, uuid: str, main: int | None, parent: int | None, summary: Mapping[str, str]
    ) -> Mapping[TableBucket, set[int]]:
        """What main lacks because a user accepted it: its own ranges and its ancestors'.

        Called for each snapshot as soon as it is main, before its ancestors can expire.
        """
        if (uuid, main) not in self._known:
            found = {b: set(held) for b, held in self._known.get((uuid, parent), {}).items()}
            if GAPS_KEY in summary or SKIPPED_KEY in summary:
                table_id = int(summary[TABLE_ID_KEY])
                for one in ranges_in(table_id, summary, GAPS_KEY, SKIPPED_KEY):
                    found.setdefault(one.bucket, set()).update(range(one.start, one.stop))
            self._known[uuid, main] = found
        return self._known[uuid, main]


def without_cause(
    accepted: Mapping[TableBucket, set[int]], damage: LogDamage, ours: LakeSnapshot | None
) -> str:
    """A range that a snapshot records as missing although it could be read; empty if none is."""
    for bucket, offsets in accepted.items():
        if left := offsets - damage.unreadable.get(bucket, set()):
            return f"{ours and ours.snapshot_id} accepts {sorted(left)} of {bucket} without a cause"
    return ""
