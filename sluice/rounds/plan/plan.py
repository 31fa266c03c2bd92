"""Plans a round: one split per bucket whose log has grown since the registered offsets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

from sluice.errors import FlussError, LogBehindLake, UnsupportedLakeOption
from sluice.iceberg_rules.lake_tables import NAME_OPTIONS
from sluice.model import (
    EARLIEST,
    LakeSnapshotInfo,
    Partition,
    TableBucket,
    TableInfo,
    bucket_count_in,
)
from sluice.rounds.plan.bucket_counts import check_bucket_counts
from sluice.rounds.plan.bucket_repairs import NO_REPAIRS, BucketRepairs
from sluice.rounds.plan.dropped import dropped_of, existing_table, is_unanswered, not_tiered
from sluice.rounds.plan.keyed_options import NO_KEYED_OPTIONS, KeyedRoundOptions
from sluice.rounds.plan.noted_drops import dropped_in, dropped_note, dropped_summary, partition_ids
from sluice.rounds.values.attempt import Attempt
from sluice.rounds.values.limits import RoundLimits, with_limits
from sluice.rounds.values.note_lists import capped
from sluice.rounds.values.ports import Cluster, LakeTable
from sluice.rounds.values.types import LakeSnapshot, OffsetRange, Split

ICEBERG = "iceberg"
_NOT_HONOURED = {
    "table.datalake.historical-partition.enabled": "read expired partitions from the lake",
}


@dataclass(frozen=True, slots=True)
class RoundPlan:
    """The splits of one round, and the state that they are planned from."""

    info: TableInfo
    base: LakeSnapshot | None
    """The newest tiering snapshot of the lake; the commit must be based on exactly this one."""
    registered: LakeSnapshotInfo | None
    splits: tuple[Split, ...]
    offsets: int
    """The number of offsets that the splits cover: about the number of rows."""
    created_again: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    """Values by id of partitions that the base does not have: rows that the lake has there are of
    dropped ones."""
    partitions: frozenset[int | None] = frozenset({None})
    """The ids of the partitions that exist; None: the table has no partitions."""
    notes: tuple[str, ...] = ()
    """Notes about partitions dropped before the round, made by the commit that records them."""
    not_tiered: tuple[str, ...] = ()
    """Notes that name the rows of partitions that were dropped during the round."""
    repairs: BucketRepairs = NO_REPAIRS

    @property
    def known(self) -> Mapping[TableBucket, int]:
        return self.registered.offsets if self.registered else {}

    def created_again_in(self, offsets: Iterable[TableBucket]) -> list[tuple[str, ...]]:
        """The partitions whose earlier rows a commit with these offsets deletes, if there are any.

        The commit that first has offsets of a partition deletes them, even if it copies none of its
        rows: no later round would.
        """
        tiered = partition_ids(offsets)
        return [values for one, values in self.created_again.items() if one in tiered]

    def dropped_summary(self, offsets: Iterable[TableBucket]) -> dict[str, str]:
        """The summary entry that names the dropped partitions among those of the new offsets."""
        if None in self.partitions:  # the table has none, or they were not listed
            return {}
        tiered = partition_ids(offsets)
        return dropped_summary(tiered, tiered - self.partitions)

    def without_dropped(self, failed: Sequence[Split], dropped: Set[int]) -> RoundPlan:
        """This plan after partitions were dropped, without their splits that failed.

        :param failed: from the first offset on that was not copied.
        """
        gone = [split for split in failed if split.bucket.partition_id in dropped]
        buckets = {split.bucket for split in gone}
        return replace(
            self,
            splits=tuple(split for split in self.splits if split.bucket not in buckets),
            partitions=self.partitions - dropped,
            not_tiered=(*self.not_tiered, *not_tiered(gone)),
            repairs=self.repairs.without(split.bucket for split in gone),
        )


def check_options(info: TableInfo) -> None:
    """Refuses tables with a lake option or a lake format that Sluice does not support.

    :raises UnsupportedLakeOption: names the option, or the format.
    :raises InvalidConfig: the values of KV snapshots have a layout that Sluice does not know.
    """
    check_lake_format(info)
    _ = info.value_tag_size  # raises
    for option, own in zip(NAME_OPTIONS, (info.path.database, info.path.table), strict=True):
        if (named := info.descriptor.properties.get(option, own)) != own:
            raise UnsupportedLakeOption(
                f"table {info.path} sets {option}={named}, which Sluice does not support: a lake"
                " table has the name of its Fluss table; leave this one to Fluss's own tiering"
                " service",
                option=option,
            )
    for option, instead in _NOT_HONOURED.items():
        if info.descriptor.properties.get(option, "false").lower() == "true":
            raise UnsupportedLakeOption(
                f"table {info.path} sets {option}=true, which Sluice does not support: set it to"
                f" false; {instead}",
                option=option,
            )


def check_lake_format(info: TableInfo) -> None:
    """Refuses tables of another lake: their buckets are not those that Iceberg computes.

    :raises UnsupportedLakeOption: names the format.
    """
    lake_format = (info.datalake_format or ICEBERG).lower()
    if lake_format != ICEBERG:
        raise UnsupportedLakeOption(
            f"table {info.path} has the lake format {lake_format} (table.datalake.format), which"
            " its cluster set at its creation: Sluice tiers only tables of the format iceberg;"
            f" leave this one to Fluss's own tiering service for {lake_format}",
            option="table.datalake.format",
        )


def claimed_table(attempt: Attempt) -> TableInfo:
    """The table of the claim, as it is now.

    :raises ClaimLost: it was dropped, or dropped and created again.
    :raises UnsupportedLakeOption, InvalidConfig: see :func:`check_options`.
    """
    info = existing_table(attempt.cluster, attempt.claim.path, attempt.claim.table_id)
    check_options(info)
    return info


def with_newest_schema(attempt: Attempt, plan: RoundPlan, table: LakeTable) -> RoundPlan:
    """Reads the schema again, after all stop offsets are known.

    Rows below the stop offsets cannot have a newer schema than this one, so no column is lost.
    """
    info = claimed_table(attempt)
    if info.schema_id == plan.info.schema_id:
        return plan
    attempt.notes += table.add_missing_columns(info)
    return replace(plan, info=info)


def make_plan(
    info: TableInfo,
    cluster: Cluster,
    base: LakeSnapshot | None,
    registered: LakeSnapshotInfo | None,
    limits: RoundLimits | None = None,
    now_ms: int = 0,
    keyed: KeyedRoundOptions = NO_KEYED_OPTIONS,
    *,
    also_idle: bool = False,
) -> RoundPlan:
    """Compares each bucket's registered offset with the end of its log.

    Skips partitions that are dropped meanwhile.

    :param limits: how long (from ``now_ms`` on) and how much the round may copy; None: no limit.
    :param keyed: for a table with a primary key: leased KV snapshots, memory and spill folder.
    :param also_idle: buckets without new rows have a split, too, which copies nothing.
    :raises UnsupportedLakeOption: see :func:`check_bucket_counts`.
    :raises LogBehindLake: a log ends before its registered offset.
    :raises ClaimLost: the table was dropped.
    """
    known = registered.offsets if registered else {}
    dropped: list[str] = []
    partitions: Sequence[Partition | None] = (None,)
    if info.is_partitioned:
        partitions = cluster.partitions(info.path)
        check_bucket_counts(info, partitions)
    splits: list[Split] = []
    covered: list[int] = []
    created_again: dict[int, tuple[str, ...]] = {}
    tiered_before = partition_ids(known)
    present: set[int | None] = set()
    for partition in partitions:
        try:
            found, offsets = _splits_of(info, cluster, partition, known, keyed, also_idle)
        except FlussError as error:
            if partition is None or is_unanswered(error):
                raise
            if not dropped_of([partition.partition_id], info, cluster):
                raise
            if partition.partition_id not in tiered_before:
                dropped.append(
                    f"partition {'/'.join(partition.values)} (id {partition.partition_id}) was"
                    " dropped during the round: none of its rows was tiered"
                )
            continue
        present.add(partition.partition_id if partition else None)
        splits += found
        covered += offsets
        if found and partition is not None and partition.partition_id not in tiered_before:
            created_again[partition.partition_id] = partition.values
    if limits is not None:
        splits = list(with_limits(splits, covered, limits, info, now_ms))
    return RoundPlan(
        info,
        base,
        registered,
        tuple(splits),
        sum(covered),
        created_again,
        frozenset(present),
        tuple(_dropped_before(base, known, present)),
        tuple(capped(dropped)),
    )


def offsets_to_copy(info: TableInfo, tiered: int | None, earliest: int, latest: int) -> int:
    """The number of offsets of a bucket that a round copies; below 0: its log is behind the lake.

    Whether a table is idle is decided by the same rule (sluice/client/tiering/idle.py).

    :param tiered: the registered offset; None: the bucket was never tiered.
    :param earliest: where the log begins, of a bucket that was never tiered.
    """
    if tiered is not None:
        return latest - tiered
    if info.has_primary_key:  # rows that its log has lost are in its KV snapshots
        return max(latest, 0)
    return max(latest - earliest, 0)


def _splits_of(
    info: TableInfo,
    cluster: Cluster,
    partition: Partition | None,
    known: Mapping[TableBucket, int],
    keyed: KeyedRoundOptions,
    also_idle: bool,
) -> tuple[list[Split], list[int]]:
    """Splits of a partition (or of an unpartitioned table), and the number of offsets of each."""
    partition_id = partition.partition_id if partition else None
    values = partition.values if partition else ()
    numbers = range(bucket_count_in(info, partition))
    buckets = {n: TableBucket(info.table_id, partition_id, n) for n in numbers}
    latest = cluster.latest_offsets(info.path, info.table_id, partition_id, numbers)
    fresh = [n for n in numbers if buckets[n] not in known and latest[n] > 0]
    earliest: Mapping[int, int] = {}
    if fresh:
        earliest = cluster.earliest_offsets(info.path, info.table_id, partition_id, fresh)
    splits, covered = [], []
    for number, bucket in buckets.items():
        start, stop = known.get(bucket, earliest.get(number, 0)), latest[number]
        count = offsets_to_copy(info, known.get(bucket), earliest.get(number, 0), stop)
        if count < 0:
            raise _log_behind(info, bucket, start, stop)
        if count == 0 and not (also_idle and bucket in known):
            continue
        covered.append(count)
        if info.has_primary_key and bucket not in known:
            splits.append(keyed.first_split(info, bucket, values, start, stop))
            continue
        changes = keyed.split_options(info) if info.has_primary_key else None
        first = start if bucket in known else EARLIEST
        splits.append(Split(bucket, values, first, stop, keyed=changes, earliest_offset=start))
    return splits, covered


def late_starts(plan: RoundPlan) -> list[str]:
    """Notes on buckets whose log lost its beginning before the first round copied them.

    Only for a table that was tiered before: the first round of a table may come late.
    """
    if plan.registered is None:
        return []
    late = [
        OffsetRange(split.bucket, 0, split.earliest_offset)
        for split in plan.splits
        if split.start_offset == EARLIEST and split.keyed is None and split.earliest_offset > 0
    ]
    when = "were no longer in the log when the bucket was first tiered"
    return capped([f"{one} {when}" for one in late])


def _log_behind(info: TableInfo, bucket: TableBucket, tiered: int, end: int) -> LogBehindLake:
    """The error for a log that ends before its tiered offset.

    Rows appended now get offsets that the lake already holds. Once the log has grown past them, a
    round would skip those rows without noticing.
    """
    return LogBehindLake(
        f"bucket {bucket} of table {info.path}: its log ends at offset {end}, but rows up to offset"
        f" {tiered} were tiered. The log has lost rows: the server lost power before they were on"
        " disk, or its data directory was replaced. Nothing was committed. If only a leader has"
        " just changed, the next round finds the complete log. Otherwise stop writing to the"
        f" table: rows appended now get offsets below {tiered} and would not be tiered. Then"
        " restore the server's data directory. If it is lost, write to a new Fluss table of another"
        " name: the lake table keeps the tiered rows",
        table=str(info.path),
        tiered_offset=tiered,
        log_end_offset=end,
    )


def _dropped_before(
    base: LakeSnapshot | None, known: Mapping[TableBucket, int], present: Set[int | None]
) -> list[str]:
    """A note on partitions that were dropped since the base was committed."""
    tiered = partition_ids(known)
    noted = dropped_in(base.summary, tiered) if base is not None else None
    return [] if noted is None else dropped_note(tiered - present - noted, known)
