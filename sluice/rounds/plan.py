"""What a round will copy: one split per bucket whose log has grown since the lake's offsets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sluice.errors import LogBehindLake, UnsupportedLakeOption
from sluice.model import EARLIEST, LakeSnapshotInfo, Partition, TableBucket, TableInfo
from sluice.rounds.keyed_options import NO_KEYED_OPTIONS, KeyedRoundOptions
from sluice.rounds.limits import RoundLimits, with_limits
from sluice.rounds.ports import Cluster
from sluice.rounds.types import LakeSnapshot, Split

_NOT_HONOURED = {
    "table.datalake.auto-compaction": "compact with Iceberg's rewrite_data_files instead",
    "table.datalake.auto-expire-snapshot": "expire with Iceberg's expire_snapshots instead",
    "table.datalake.historical-partition.enabled": "expired partitions are read from the lake",
}
_NAMED_MAX = 5


@dataclass(frozen=True, slots=True)
class RoundPlan:
    """Splits of one round, and what they are planned from."""

    info: TableInfo
    base: LakeSnapshot | None
    """Our newest snapshot in the lake; the commit must build on exactly this one."""
    registered: LakeSnapshotInfo | None
    splits: tuple[Split, ...]
    offsets: int
    """How many offsets the splits cover; the rows to expect, but for empty batches."""
    created_again: tuple[tuple[str, ...], ...] = ()
    """Values of partitions never tiered: rows that the lake has there belong to dropped ones."""
    notes: tuple[str, ...] = ()

    @property
    def known(self) -> Mapping[TableBucket, int]:
        return self.registered.offsets if self.registered else {}


def check_options(info: TableInfo) -> None:
    """:raises UnsupportedLakeOption: for a lake option of Fluss that this project ignores."""
    for option, instead in _NOT_HONOURED.items():
        if info.descriptor.properties.get(option, "false").lower() == "true":
            raise UnsupportedLakeOption(
                f"table {info.path} sets {option}=true, which is not honoured: set it to false;"
                f" {instead}",
                option=option,
            )


def make_plan(
    info: TableInfo,
    cluster: Cluster,
    base: LakeSnapshot | None,
    registered: LakeSnapshotInfo | None,
    limits: RoundLimits | None = None,
    now_ms: int = 0,
    keyed: KeyedRoundOptions = NO_KEYED_OPTIONS,
) -> RoundPlan:
    """Compares each bucket's registered offset with the end of its log.

    :param limits: how long the round may copy from ``now_ms`` on, and how much; None: no limit.
    :param keyed: of a table with a primary key, what buckets that were never tiered begin with.
    :raises LogBehindLake: a log ends before what was tiered of it.
    """
    known = registered.offsets if registered else {}
    notes: list[str] = []
    partitions: Sequence[Partition | None] = (None,)
    if info.is_partitioned:
        partitions = cluster.partitions(info.path)
        notes += _expired(known, {p.partition_id for p in partitions if p is not None})
    splits: list[Split] = []
    covered: list[int] = []
    created_again: list[tuple[str, ...]] = []
    tiered_before = {bucket.partition_id for bucket in known}
    for partition in partitions:
        found, offsets = _splits_of(info, cluster, partition, known, keyed)
        splits += found
        covered += offsets
        if found and partition is not None and partition.partition_id not in tiered_before:
            created_again.append(partition.values)
    if limits is not None:
        splits = list(with_limits(splits, covered, limits, info, now_ms))
    return RoundPlan(
        info, base, registered, tuple(splits), sum(covered), tuple(created_again), tuple(notes)
    )


def _splits_of(
    info: TableInfo,
    cluster: Cluster,
    partition: Partition | None,
    known: Mapping[TableBucket, int],
    keyed: KeyedRoundOptions,
) -> tuple[list[Split], list[int]]:
    """Splits of one partition (or of a table without any), and how many offsets each covers."""
    partition_id = partition.partition_id if partition else None
    values = partition.values if partition else ()
    numbers = range(info.bucket_count)
    buckets = {n: TableBucket(info.table_id, partition_id, n) for n in numbers}
    latest = cluster.latest_offsets(info.path, info.table_id, partition_id, numbers)
    fresh = [n for n in numbers if buckets[n] not in known and latest[n] > 0]
    earliest: Mapping[int, int] = {}
    if fresh:
        earliest = cluster.earliest_offsets(info.path, info.table_id, partition_id, fresh)
    splits, covered = [], []
    for number, bucket in buckets.items():
        start = known.get(bucket, earliest.get(number, 0))
        stop = latest[number]
        if bucket in known and start > stop:
            raise _log_behind(info, bucket, start, stop)
        if info.has_primary_key and bucket not in known:
            if stop > 0:
                splits.append(keyed.first_split(info, bucket, values, start, stop))
                covered.append(stop)
            continue
        if start >= stop:
            continue
        changes = keyed.split_options(info) if info.has_primary_key else None
        first = start if bucket in known else EARLIEST
        splits.append(Split(bucket, values, first, stop, keyed=changes))
        covered.append(stop - start)
    return splits, covered


def _log_behind(info: TableInfo, bucket: TableBucket, tiered: int, end: int) -> LogBehindLake:
    """Rows appended from here on take offsets that the lake holds already: a round after the log
    has grown past them would skip those rows and never know.
    """
    return LogBehindLake(
        f"bucket {bucket} of table {info.path}: its log ends at offset {end}, but it was tiered up"
        f" to {tiered}. The log has lost rows: its server lost power before they were on disk, or"
        " its data directory was replaced. Nothing is committed for the table. Stop writing to it:"
        f" rows that are appended now take offsets below {tiered} and would be passed over. Bring"
        " the server's data directory back; or rename the lake table, which has the rows, and drop"
        " the Fluss table and create it again. If only a leader has just changed, the next round"
        " finds the log whole",
        table=str(info.path),
        tiered_offset=tiered,
        log_end_offset=end,
    )


def _expired(known: Mapping[TableBucket, int], present: set[int]) -> list[str]:
    """One note on partitions that are gone: what they held beyond these offsets was not tiered."""
    gone: dict[int, list[str]] = {}
    for bucket, offset in known.items():
        if bucket.partition_id is not None and bucket.partition_id not in present:
            gone.setdefault(bucket.partition_id, []).append(f"{bucket.bucket}:{offset}")
    if not gone:
        return []
    named = [f"{i} (bucket:offset {', '.join(gone[i])})" for i in sorted(gone)[-_NAMED_MAX:]]
    more = f" and {len(gone) - len(named)} earlier ones" if len(gone) > len(named) else ""
    return [
        f"partitions no longer there: {'; '.join(named)}{more}: what their logs held from those"
        " offsets on was not tiered"
    ]
