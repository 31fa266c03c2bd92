"""What a round does, on a person's word, with a lake that is behind Fluss (docs/repair.md).

Both ways end in a commit of the lake like any other: prepared, on the newest snapshot of ours as
its base, then registered. A round that dies in between is healed by the next one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from sluice.errors import LogBehindLake
from sluice.model import LakeSnapshotInfo, TableBucket, TableInfo
from sluice.rounds.ports import Cluster


class RepairMode(Enum):
    """How a round treats a lake that is behind Fluss."""

    RETIER = "retier"
    """Copy from the logs what the lake lacks, up to and beyond what Fluss has registered."""
    ADOPT = "adopt"
    """Take main for what Fluss has registered: only our mark on it has expired."""


@dataclass(frozen=True, slots=True)
class RetierPlan:
    """From where a table is tiered again."""

    known: Mapping[TableBucket, int]
    """Where each bucket begins; one that is not named begins at the start of its log."""
    floor: Mapping[TableBucket, int]
    """What Fluss has registered of buckets that are still there: no commit may end below."""
    again: int
    """How many offsets that were tiered before are copied again."""
    lost: tuple[str, ...] = field(default=())
    """Offsets that the lake lacks and no log holds any more, in words."""
    anew: tuple[tuple[str, ...], ...] = field(default=())
    """Values of partitions that the lake never had: rows that it has there go."""


def plan_retier(
    info: TableInfo,
    cluster: Cluster,
    held: Mapping[TableBucket, int],
    registered: LakeSnapshotInfo,
) -> RetierPlan:
    """What tiering again has to begin with, so that the lake misses nothing that a log still has.

    :param held: up to where the lake holds each bucket.
    :raises LogBehindLake: a log ends before what Fluss has registered of it; or changes are lost of
        keys whose rows the lake has.
    """
    known, floor, lost, again = {**registered.offsets, **held}, {}, list[str](), 0
    living: dict[int | None, tuple[str, ...]] = {None: ()}
    if info.is_partitioned:
        living = {p.partition_id: p.values for p in cluster.partitions(info.path)}
    for partition_id, buckets in _by_partition(registered.offsets).items():
        if partition_id not in living:  # its logs are gone: this is all that there ever will be
            for bucket in buckets:
                end = registered.offsets[bucket]
                known[bucket] = max(held.get(bucket, 0), end)
                if held.get(bucket, 0) < end:
                    lost.append(_range(bucket, held.get(bucket, 0), end, "its partition is gone"))
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
            first = _first(info, bucket, held.get(bucket), start)
            if first > has:
                lost.append(_range(bucket, has, first, "its log begins there"))
            known[bucket] = first
            again += max(0, floor[bucket] - first)
            if bucket not in held and first < end:
                del known[bucket]  # never tiered: rows of an earlier partition of its name go
    begun = {bucket.partition_id for bucket in known}
    anew = [living[one] for one in _by_partition(floor) if one is not None and one not in begun]
    return RetierPlan(known, floor, again, tuple(lost), tuple(anew))


def _by_partition(buckets: Iterable[TableBucket]) -> dict[int | None, list[TableBucket]]:
    found: dict[int | None, list[TableBucket]] = {}
    for bucket in buckets:
        found.setdefault(bucket.partition_id, []).append(bucket)
    return found


def _range(bucket: TableBucket, start: int, end: int, why: str) -> str:
    return f"bucket {bucket}: offsets {start} to {end - 1} ({why})"


def _cut(info: TableInfo, bucket: TableBucket, end: int, registered: int) -> LogBehindLake:
    return LogBehindLake(
        f"bucket {bucket} of table {info.path}: its log ends at offset {end}, but Fluss has"
        f" registered {registered} as tiered: the log has lost rows, and cannot give them again",
        table=str(info.path),
        tiered_offset=registered,
        log_end_offset=end,
    )


def _first(info: TableInfo, bucket: TableBucket, held: int | None, start: int) -> int:
    """The offset from which on a bucket is copied again.

    :raises LogBehindLake: nobody can say any more which rows of the lake have changed.
    """
    if info.has_primary_key and held is None:
        return 0  # a KV snapshot, or a scan, has what its log has lost
    if held is not None and start > held and info.has_primary_key:
        raise LogBehindLake(
            f"bucket {bucket} of table {info.path}: the lake holds it up to offset {held}, and its"
            f" log begins at {start}: what was changed in between is lost. Rename the lake table or"
            " drop it: it is made anew from KV snapshots then",
            table=str(info.path),
            tiered_offset=held,
            log_end_offset=start,
        )
    return max(held or 0, start)
