"""How far a table's lake must come, and how much of that is missing. Does not import Airflow.

Offsets are read as a round reads them: what it would copy of a bucket is what is missing there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from sluice.errors import ConfigurationError, LogBehindLake
from sluice.model import LakeSnapshotInfo, TableBucket, TableInfo, bucket_count_in
from sluice.rounds.plan.dropped import again_if_dropped, dropped_of
from sluice.rounds.plan.plan import offsets_to_copy
from sluice_airflow.goals.until import Until

if TYPE_CHECKING:
    from sluice.client import Client


@dataclass(frozen=True, slots=True)
class Goal:
    """The offsets that the lake must reach."""

    ends: Mapping[str, int] = field(default_factory=dict)
    """Exclusive end offsets by the bucket's name, without buckets that had reached theirs."""
    offsets_sum: int | None = None
    """The sum of all end offsets; then ``ends`` is empty."""
    rows: int = 0
    """Offsets below the ends of all buckets: about the number of rows."""
    buckets: int = 0
    """Buckets that have such offsets."""

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "ends": dict(self.ends)}


@dataclass(frozen=True, slots=True)
class Missing:
    """What the lake lacks of a goal."""

    by_bucket: Mapping[str, int] = field(default_factory=dict)
    """Offsets by the bucket's name."""
    dropped: Mapping[int, int] = field(default_factory=dict)
    """Offsets that are not waited for, by the id of the dropped partition."""
    rows: int = 0


def resolve(
    client: Client, info: TableInfo, until: Until, lake: LakeSnapshotInfo | None
) -> tuple[Goal, Missing]:
    """Finds the offsets that ``until`` stands for now, and what the lake lacks of them.

    :param lake: the registered lake snapshot, read before.
    :raises ConfigurationError: ``until`` names a bucket that the table cannot have.
    :raises InvalidTimestamp: the time has not come by the clock of a bucket's server.
    :raises LogBehindLake: a log ends before its registered offset.
    :raises ClaimLost: the table was dropped.
    """
    if until.offsets_sum is not None:
        return look(client, info, Goal(offsets_sum=until.offsets_sum, rows=until.offsets_sum), lake)
    known = _registered(lake)
    ends = _ends(client, info, until)
    if until.time_ms is None and until.ends is None:
        _check_logs(info, ends, known)
    goal, missing = look(client, info, Goal({b.name: end for b, end in ends.items()}), lake)
    reached = {bucket.name: min(known.get(bucket, 0), end) for bucket, end in ends.items()}
    with_rows = missing.by_bucket.keys() | {name for name, rows in reached.items() if rows}
    goal = Goal(
        ends={name: end for name, end in goal.ends.items() if name in missing.by_bucket},
        rows=sum(reached.values()) + missing.rows,
        buckets=len(with_rows),
    )
    return goal, missing


def look(
    client: Client, info: TableInfo, goal: Goal, lake: LakeSnapshotInfo | None
) -> tuple[Goal, Missing]:
    """Reads what the lake lacks of a goal.

    :returns: the goal without the buckets of partitions that were dropped, and what is missing.
    :raises ClaimLost: the table was dropped.
    """
    known = _registered(lake)
    if goal.offsets_sum is not None:
        return goal, Missing(rows=max(goal.offsets_sum - offsets_sum(lake), 0))
    named = {TableBucket.named(info.table_id, name): end for name, end in goal.ends.items()}
    behind = {bucket: end for bucket, end in named.items() if known.get(bucket, 0) < end}

    def read() -> tuple[dict[int, int], dict[str, int]]:
        dropped = dropped_of((bucket.partition_id for bucket in behind), info, client.tiering)
        there = {b: end for b, end in behind.items() if b.partition_id not in dropped}
        gone = _by_partition(behind, known, dropped)
        return gone, _rows_missing(client, info, there, known)

    gone, missing = again_if_dropped(info, client.tiering, read)
    if gone:
        kept = {b.name: end for b, end in named.items() if b.partition_id not in gone}
        goal = replace(goal, ends=kept, rows=goal.rows - sum(gone.values()))
    return goal, Missing(missing, gone, sum(missing.values()))


def offsets_sum(lake: LakeSnapshotInfo | None) -> int:
    """The sum of the end offsets of all buckets in the lake, dropped partitions included."""
    return sum(_registered(lake).values())


def _registered(lake: LakeSnapshotInfo | None) -> Mapping[TableBucket, int]:
    return {} if lake is None else lake.offsets


def _ends(client: Client, info: TableInfo, until: Until) -> dict[TableBucket, int]:
    if until.ends is None:
        return again_if_dropped(
            info, client.tiering, lambda: client.admin.table_offsets(info, until.time_ms)
        )
    ends = {TableBucket.named(info.table_id, name): end for name, end in until.ends.items()}
    counts: Mapping[int | None, int] = {None: info.bucket_count}
    if info.is_partitioned:
        of_table = client.admin.partitions_of(info)
        counts = {one.partition_id: bucket_count_in(info, one) for one in of_table}
    for bucket in ends:
        if (bucket.partition_id is not None) != info.is_partitioned:
            form = "PARTITION_ID/BUCKET" if info.is_partitioned else "BUCKET"
            raise ConfigurationError(
                f"until: {info.path} has no bucket {bucket.name!r}; its buckets are named {form}"
            )
        count = counts.get(bucket.partition_id, bucket.bucket + 1)  # a dropped one is no error
        if bucket.bucket >= count:
            raise ConfigurationError(
                f"until: {info.path} has no bucket {bucket.name!r}; its buckets are numbered from 0"
                f" to {count - 1}"
            )
    return ends


def _check_logs(
    info: TableInfo, ends: Mapping[TableBucket, int], known: Mapping[TableBucket, int]
) -> None:
    """:raises LogBehindLake: new rows would get offsets that the lake already has."""
    for bucket, end in ends.items():
        if end < known.get(bucket, 0):
            raise LogBehindLake(
                f"bucket {bucket.name} of {info.path}: its log ends at offset {end}, but the lake"
                f" has it up to {known[bucket]}; if this stays so, the log has lost rows:"
                f" `sluice status {info.path}` shows what the rounds say"
            )


def _rows_missing(
    client: Client,
    info: TableInfo,
    ends: Mapping[TableBucket, int],
    known: Mapping[TableBucket, int],
) -> dict[str, int]:
    """What a round would copy of these buckets, by name, where that is something.

    :param ends: of buckets that the lake does not have up to there.
    """
    starts: dict[TableBucket, int] = {}
    if not info.has_primary_key:
        starts = _log_starts(client, info, [bucket for bucket in ends if bucket not in known])
    rows = {
        bucket.name: offsets_to_copy(info, known.get(bucket), starts.get(bucket, 0), end)
        for bucket, end in ends.items()
    }
    return {name: count for name, count in rows.items() if count > 0}


def _log_starts(
    client: Client, info: TableInfo, buckets: Iterable[TableBucket]
) -> dict[TableBucket, int]:
    """Where the logs begin of buckets that were never tiered; a dropped partition has none."""
    numbers: dict[int | None, list[int]] = {}
    for bucket in buckets:
        numbers.setdefault(bucket.partition_id, []).append(bucket.bucket)
    found = {}
    for partition_id, asked in numbers.items():
        starts = client.admin.list_offsets(
            info.path, asked, partition_id, "earliest", table_id=info.table_id
        )
        found.update({TableBucket(info.table_id, partition_id, n): at for n, at in starts.items()})
    return found


def _by_partition(
    behind: Mapping[TableBucket, int], known: Mapping[TableBucket, int], dropped: Set[int]
) -> dict[int, int]:
    """The offsets that the lake lacks of dropped partitions, by the partition's id."""
    found: dict[int, int] = {}
    for bucket, end in behind.items():
        if bucket.partition_id is not None and bucket.partition_id in dropped:
            rows = found.get(bucket.partition_id, 0) + end - known.get(bucket, 0)
            found[bucket.partition_id] = rows
    return found
