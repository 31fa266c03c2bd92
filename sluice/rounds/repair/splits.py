"""The splits of a repair: they copy no more than the repair needs (docs/repair.md).

A gap is accepted, an unreadable batch is skipped, a bucket of a primary-key table is rebuilt from
its current rows, or a table is tiered again up to the registered offsets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from sluice.errors import ConfigurationError, PartitionNotExists
from sluice.model import TableBucket, TableInfo
from sluice.rounds.plan.bucket_repairs import BucketRepairs
from sluice.rounds.plan.dropped import dropped_of
from sluice.rounds.plan.keyed_options import KeyedRoundOptions
from sluice.rounds.repair.retier import RetierPlan
from sluice.rounds.values.ports import Cluster
from sluice.rounds.values.types import OffsetRange, RepairMode, Split, StartMode


def log_gaps(
    info: TableInfo, cluster: Cluster, known: Mapping[TableBucket, int]
) -> list[OffsetRange]:
    """The ranges between the lake's end and the start of a log that begins after it.

    :param known: end offset of each bucket in the lake. Dropped partitions have no gaps.
    """
    living: set[int | None] = {None}
    if info.is_partitioned:
        living = {p.partition_id for p in cluster.partitions(info.path)}
    buckets: dict[int | None, list[int]] = {}
    for bucket in known:
        buckets.setdefault(bucket.partition_id, []).append(bucket.bucket)
    found = []
    for partition_id in living & buckets.keys():
        numbers = sorted(buckets[partition_id])
        try:
            starts = cluster.earliest_offsets(info.path, info.table_id, partition_id, numbers)
        except PartitionNotExists:  # a tablet server that has just started says so too
            if not dropped_of([partition_id], info, cluster):
                raise
            continue
        for number in numbers:
            bucket = TableBucket(info.table_id, partition_id, number)
            if starts[number] > known[bucket]:
                found.append(OffsetRange(bucket, known[bucket], starts[number]))
    return sorted(found, key=lambda gap: (gap.bucket.partition_id or 0, gap.bucket.bucket))


def repaired_splits(
    repair_mode: RepairMode,
    info: TableInfo,
    gaps: Sequence[OffsetRange],
    unreadable: OffsetRange | None,
    splits: Sequence[Split],
    keyed: KeyedRoundOptions,
) -> tuple[tuple[Split, ...], BucketRepairs]:
    """The splits that repair their buckets, and what they repair; nothing if nothing needs it.

    They copy no more than the repair needs, so that other damage does not prevent it. The next
    round copies the rest.

    :param unreadable: the batch that a user named; None: repair the buckets with gaps.
    :raises ConfigurationError: the log ends before the batch does.
    """
    if repair_mode is RepairMode.ACCEPT_GAP:
        return (), BucketRepairs(gaps=tuple(gaps))
    lost = {one.bucket: one for one in ([unreadable] if unreadable else gaps)}
    found = [split for split in splits if split.bucket in lost]
    found = [split for split in found if _starts_before(split, lost[split.bucket])]
    ranges = tuple(lost[split.bucket] for split in found)
    if repair_mode is RepairMode.SKIP:
        skipping = [_skipping(split, lost[split.bucket]) for split in found]
        return tuple(skipping), BucketRepairs(skipped=ranges)
    again = [rebuilding(split, lost[split.bucket], info, keyed) for split in found]
    return tuple(again), BucketRepairs(rebuilt=ranges)


def _skipping(split: Split, batch: OffsetRange) -> Split:
    """Copies the bucket up to the batch, and ends after it.

    :raises ConfigurationError: the log ends before the batch does.
    """
    if batch.stop > split.stop_offset:
        raise ConfigurationError(
            f"the batch to skip has offsets {batch.start} to {batch.stop - 1}, but the log of"
            f" bucket {batch.bucket.name} ends at offset {split.stop_offset}. Nothing was committed"
        )
    return replace(split, stop_offset=batch.stop, skipped=(batch,))


def _starts_before(split: Split, lost: OffsetRange) -> bool:
    """Whether the split would copy the range: the lake does not have it."""
    return split.start_offset <= lost.start < split.stop_offset


def rebuilding(
    split: Split, lost: OffsetRange, info: TableInfo, keyed: KeyedRoundOptions, stop: int = 0
) -> Split:
    """Reads the bucket from a KV snapshot behind the lost range, and the log up to ``stop``.

    The next round reads the rest. Without such a snapshot the bucket is scanned. Of a batch whose
    end is unknown, the lost range is empty: a snapshot taken exactly at its start is still before
    it.
    """
    snapshot, needed = keyed.snapshots.get(split.bucket), max(lost.stop, lost.start + 1)
    if snapshot is not None and snapshot.log_offset >= needed:
        return keyed.first_split(info, split.bucket, split.partition_values, lost.stop, stop)
    stop = split.stop_offset
    scan = keyed.split_options(info, StartMode.SCAN)
    if snapshot is not None:
        reason = (
            f"its newest KV snapshot ends at offset {snapshot.log_offset}, and one that ends at"
            f" {needed} or later is needed"
        )
        scan = replace(scan, scan_reason=reason)
    return replace(split, start_offset=stop, stop_offset=stop, keyed=scan)


def retier_splits(
    start: RetierPlan, info: TableInfo, splits: Sequence[Split], keyed: KeyedRoundOptions
) -> tuple[tuple[Split, ...], BucketRepairs]:
    """The splits of an ordinary round, up to the registered offsets, and what they leave out.

    The next round copies the rest: a batch behind the registered offsets that cannot be read must
    not prevent the repair, because it can be skipped only in a table that is not behind.
    """
    lost = {one.bucket: one for one in start.rebuilt}
    found = []
    for split in map(start.begun, splits):
        floor = start.minimum_offsets.get(split.bucket)
        if floor is None:
            continue
        if split.bucket in lost:
            found.append(rebuilding(split, lost[split.bucket], info, keyed, floor))
            continue
        if split.start_offset < floor or _is_begun_elsewhere(split):
            skipped = tuple(one for one in start.skipped if one.bucket == split.bucket)
            stop = max(split.start_offset, min(split.stop_offset, floor))
            found.append(replace(split, stop_offset=stop, skipped=skipped))
    rebuilt = tuple(lost[split.bucket] for split in found if split.bucket in lost)
    return tuple(found), BucketRepairs(start.lost, start.skipped, rebuilt)


def _is_begun_elsewhere(split: Split) -> bool:
    """Whether the split begins with a KV snapshot or a scan, and not with the log."""
    return split.keyed is not None and split.keyed.start_mode is not StartMode.INCREMENTAL
