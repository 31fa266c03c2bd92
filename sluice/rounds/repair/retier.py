"""How a round repairs a lake, when a user requests it (docs/repair.md).

All modes end in a lake commit like any other: prepared, based on the newest tiering snapshot, then
registered. If the round dies in between, the next round recovers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from sluice.errors import LogBehindLake
from sluice.model import LakeSnapshotInfo, TableBucket, TableInfo
from sluice.rounds.plan.noted_drops import partition_ids
from sluice.rounds.values.ports import Cluster
from sluice.rounds.values.types import OffsetRange, Split


@dataclass(frozen=True, slots=True)
class RetierPlan:
    """From which offsets a table is tiered again, and what that costs."""

    start_offsets: Mapping[TableBucket, int]
    """Start offset of each bucket; other buckets start at the start of their log."""
    minimum_offsets: Mapping[TableBucket, int]
    """Registered offsets of buckets that still exist: no commit may end below them."""
    repeated_offsets: int
    """The number of offsets that were tiered before and are copied again."""
    first_offsets: Mapping[TableBucket, int]
    """The first offset to copy of each bucket that still exists."""
    lost: tuple[OffsetRange, ...] = field(default=())
    """Offset ranges that the lake lacks and no log holds any more, at most one for each bucket."""
    lost_texts: tuple[str, ...] = field(default=())
    """Descriptions of these ranges."""
    new_partitions: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    """Values by id of partitions that the lake never had: rows that it has there are deleted."""
    skipped: tuple[OffsetRange, ...] = field(default=())
    """Batches that a user skipped before the lake was rolled back: they are left out again."""
    rebuilt: tuple[OffsetRange, ...] = field(default=())
    """What the logs of primary-key buckets cannot supply: these buckets are read again."""

    def begun(self, split: Split) -> Split:
        """The split with the planned start offset, if the lake has nothing of its bucket.

        If retention then deletes more of the log, the split fails, and no row is lost unnoticed.
        """
        if split.start_offset >= 0 or split.keyed or split.bucket not in self.first_offsets:
            return split
        first = self.first_offsets[split.bucket]
        return replace(split, start_offset=first, earliest_offset=first)


def plan_retier(
    info: TableInfo,
    cluster: Cluster,
    held: Mapping[TableBucket, int],
    registered: LakeSnapshotInfo,
    left_out: Sequence[OffsetRange] = (),
) -> RetierPlan:
    """Plans to tier a table again, so that the lake lacks nothing that a log still has.

    :param held: end offset of each bucket in the lake.
    :param left_out: ranges that earlier rounds left out at a user's request, by start offset.
    :raises LogBehindLake: a log ends before its registered offset.
    """
    known, floor, first_offsets, again = {**registered.offsets, **held}, {}, {}, 0
    lost: list[tuple[OffsetRange, str]] = []
    skipped: list[OffsetRange] = []
    rebuilt: list[OffsetRange] = []
    living: dict[int | None, tuple[str, ...]] = {None: ()}
    if info.is_partitioned:
        living = {p.partition_id: p.values for p in cluster.partitions(info.path)}
    for partition_id, buckets in _by_partition(registered.offsets).items():
        if partition_id not in living:  # the partition was dropped: its logs are deleted
            for bucket in buckets:
                end = registered.offsets[bucket]
                known[bucket] = max(held.get(bucket, 0), end)
                if held.get(bucket, 0) < end:
                    gone = OffsetRange(bucket, held.get(bucket, 0), end)
                    lost.append((gone, "its partition was dropped"))
            continue
        numbers = [bucket.bucket for bucket in buckets]
        where = (info.path, info.table_id, partition_id, numbers)
        earliest, latest = cluster.earliest_offsets(*where), cluster.latest_offsets(*where)
        for bucket in buckets:
            start, end = earliest[bucket.bucket], latest[bucket.bucket]
            floor[bucket] = registered.offsets[bucket]
            if end < floor[bucket]:
                raise _cut(info, bucket, end, floor[bucket])
            has = held.get(bucket, 0)
            within = [one for one in left_out if one.bucket == bucket and one.start < floor[bucket]]
            if info.has_primary_key:
                first = has
                rebuilt += _rebuilt(bucket, held.get(bucket), start, within)
            else:
                first = max(has, start)
                skipped += _skipped(bucket, first, within)
            if first > has:
                lost.append((OffsetRange(bucket, has, first), f"its log starts at {first}"))
            known[bucket] = first_offsets[bucket] = first
            again += max(0, floor[bucket] - first)
            if bucket not in held and first < end:
                del known[bucket]  # it begins like a bucket that was never tiered
    new = sorted(partition_ids(floor) - partition_ids(held))
    new_partitions = {one: living[one] for one in new}
    ranges, texts = tuple(one for one, _ in lost), tuple(_text(*entry) for entry in lost)
    return RetierPlan(
        known,
        floor,
        again,
        first_offsets,
        ranges,
        texts,
        new_partitions,
        tuple(skipped),
        tuple(rebuilt),
    )


def _by_partition(buckets: Iterable[TableBucket]) -> dict[int | None, list[TableBucket]]:
    found: dict[int | None, list[TableBucket]] = {}
    for bucket in buckets:
        found.setdefault(bucket.partition_id, []).append(bucket)
    return found


def _text(lost: OffsetRange, why: str) -> str:
    return f"bucket {lost.bucket}: offsets {lost.start} to {lost.stop - 1} ({why})"


def _cut(info: TableInfo, bucket: TableBucket, end: int, registered: int) -> LogBehindLake:
    return LogBehindLake(
        f"bucket {bucket} of table {info.path}: its log ends at offset {end}, but Fluss has"
        f" registered offset {registered} as tiered: the log has lost rows, so they cannot be"
        " copied again",
        table=str(info.path),
        tiered_offset=registered,
        log_end_offset=end,
    )


def _skipped(bucket: TableBucket, first: int, left_out: Sequence[OffsetRange]) -> list[OffsetRange]:
    """The skipped batches of a log table that the log still has from ``first`` on."""
    found = []
    for one in left_out:
        if one.stop > first:
            found.append(OffsetRange(bucket, max(first, one.start), one.stop))
            first = one.stop
    return found


def _rebuilt(
    bucket: TableBucket, held: int | None, start: int, left_out: Sequence[OffsetRange]
) -> list[OffsetRange]:
    """What the log of a primary-key bucket cannot supply behind the lake; at most one range.

    :param start: the first offset of the log. If the lake has nothing of the bucket, it begins with
        a KV snapshot or a scan, so a log that has lost its beginning is no reason.
    """
    has = held or 0
    stops = [max(one.stop, one.start + 1) for one in left_out if one.start >= has]
    if held is not None and start > held:
        stops.append(start)
    return [OffsetRange(bucket, has, max(stops))] if stops else []
