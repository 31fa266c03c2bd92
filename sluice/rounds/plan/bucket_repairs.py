"""Repairs of single buckets whose log cannot be copied, when a user requests them (docs/repair.md).

A gap is accepted, an unreadable batch is skipped, or a bucket of a primary-key table is rebuilt
from its current rows. Each is part of a round like any other, and the summary of its lake snapshot
records it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from sluice.model import TableBucket
from sluice.rounds.values.history import LakeHistory
from sluice.rounds.values.note_lists import NOTED_MAX, capped
from sluice.rounds.values.offsets import TABLE_ID_KEY
from sluice.rounds.values.types import (
    LakePart,
    LakeSnapshot,
    OffsetRange,
    Split,
    SplitResult,
)

GAPS_KEY = "sluice.gaps"
SKIPPED_KEY = "sluice.skipped"
REBUILT_KEY = "sluice.rebuilt"
"""Keys in a snapshot summary: offset ranges by bucket, as JSON ``{"BUCKET": [START, STOP]}``.

A bucket with several ranges has them one after another: ``[START, STOP, START, STOP]``.
"""
_NOT_IN_LOG, _SKIPPED = "were no longer in the log", "were skipped"


@dataclass(frozen=True, slots=True)
class BucketRepairs:
    """The repairs of one round: at most one for each bucket, but any number of skipped batches."""

    gaps: tuple[OffsetRange, ...] = ()
    """Ranges that no log has any more and that the lake will lack."""
    skipped: tuple[OffsetRange, ...] = ()
    """Batches that cannot be read and that the lake will lack."""
    rebuilt: tuple[OffsetRange, ...] = ()
    """Ranges that are not copied, because their buckets are read from the current rows."""
    seen_main: int | None = None
    """The snapshot of main that the user saw before files are removed; None: not known."""

    def __len__(self) -> int:
        """The number of repaired buckets."""
        return len({one.bucket for one in (*self.gaps, *self.skipped, *self.rebuilt)})

    def without(self, buckets: Iterable[TableBucket]) -> BucketRepairs:
        """The repairs without those of buckets that were not copied.

        Gaps stay: the offset of their bucket moves even if nothing behind the gap is copied.
        """
        left = set(buckets)

        def kept(ranges: Sequence[OffsetRange]) -> tuple[OffsetRange, ...]:
            return tuple(one for one in ranges if one.bucket not in left)

        return replace(self, skipped=kept(self.skipped), rebuilt=kept(self.rebuilt))

    def with_gaps(self, lost: Iterable[OffsetRange]) -> BucketRepairs:
        """The repairs with more lost ranges, each joined to the gap of its bucket."""
        gaps = {gap.bucket: gap for gap in self.gaps}
        for one in lost:
            gap = gaps.get(one.bucket, one)
            start, stop = min(gap.start, one.start), max(gap.stop, one.stop)
            gaps[one.bucket] = OffsetRange(one.bucket, start, stop)
        return replace(self, gaps=tuple(gaps.values()))

    def offsets(self) -> dict[TableBucket, int]:
        """The new offsets of buckets that accept a gap."""
        return {gap.bucket: gap.stop for gap in self.gaps}

    def replaced(self, splits: Sequence[Split]) -> list[LakePart]:
        """The buckets whose files the commit removes."""
        again = {one.bucket for one in self.rebuilt}
        return [
            LakePart(s.partition_values, s.bucket.bucket, self.seen_main)
            for s in splits
            if s.bucket in again
        ]

    def summary(self) -> dict[str, str]:
        """The entries of the snapshot's summary."""
        found = {GAPS_KEY: self.gaps, SKIPPED_KEY: self.skipped, REBUILT_KEY: self.rebuilt}
        return {key: _to_text(ranges) for key, ranges in found.items() if ranges}

    def accepted(self) -> str:
        """What the lake will lack, for the status of the table; empty if it lacks nothing."""
        texts = [f"{gap} {_NOT_IN_LOG}" for gap in self.gaps]
        texts += [f"{one} {_SKIPPED}" for one in self.skipped]
        more = len(texts) - NOTED_MAX
        if more > 0:
            summary = "the lake snapshot's summary has all of them"
            texts[NOTED_MAX:] = [f"and {more} more ranges: {summary}"]
        return "; ".join(texts)

    def notes(self) -> list[str]:
        """Notes for users about the repairs."""
        found = [self.accepted()] if self.gaps or self.skipped else []
        return found + capped(
            [
                f"bucket {one.bucket.name} was rebuilt: its files were replaced by its current rows"
                for one in self.rebuilt
            ]
        )


NO_REPAIRS = BucketRepairs()


def accepted_in(table_id: int, snapshot: LakeSnapshot | None) -> str:
    """What a snapshot's summary records as missing, in the words of ``BucketRepairs.accepted``.

    The round that committed it may have died before its report.
    """
    return "" if snapshot is None else repairs_in(table_id, snapshot).accepted()


def repairs_in(table_id: int, snapshot: LakeSnapshot) -> BucketRepairs:
    """The repairs that a snapshot's summary records."""
    gaps, skipped, rebuilt = (
        tuple(ranges_in(table_id, snapshot.summary, key))
        for key in (GAPS_KEY, SKIPPED_KEY, REBUILT_KEY)
    )
    return BucketRepairs(gaps, skipped, rebuilt)


def ranges_in(table_id: int, summary: Mapping[str, str], *keys: str) -> list[OffsetRange]:
    """The offset ranges that a snapshot's summary records under these keys."""
    found = []
    for key in keys:
        for name, ends in json.loads(summary.get(key, "{}")).items():
            bucket = TableBucket.named(table_id, name)
            pairs = zip(ends[::2], ends[1::2], strict=True)
            found += [OffsetRange(bucket, start, stop) for start, stop in pairs]
    return found


def left_out_in(
    table_id: int, history: LakeHistory, keys: Sequence[str] = (SKIPPED_KEY, REBUILT_KEY)
) -> list[OffsetRange]:
    """What a log could not supply to the rounds of a table, as the lake's snapshots record it.

    Snapshots that were rolled back count, and expired ones as far as they are known. In a table
    with a primary key, such a bucket was rebuilt, or its batch was skipped.
    """
    entries = {**history.expired, **history.snapshots}.values()
    ours = [one.summary for one in entries if one.summary.get(TABLE_ID_KEY) == str(table_id)]
    found = {one for s in ours for one in ranges_in(table_id, s, *keys)}
    return sorted(found, key=lambda one: one.start)


def done(
    repairs: BucketRepairs, splits: Sequence[Split], results: Sequence[SplitResult]
) -> BucketRepairs:
    """The repairs of the buckets that were copied: a failed split repairs nothing."""
    failed = {split.bucket for split in splits} - {result.bucket for result in results}
    return repairs.without(failed)


def _to_text(ranges: Sequence[OffsetRange]) -> str:
    found: dict[str, list[int]] = {}
    for one in ranges:
        found.setdefault(one.bucket.name, []).extend((one.start, one.stop))
    return json.dumps(found)
