"""The buckets of a table as splits: where the lake ends, and where the log does."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from itertools import accumulate

from sluice.client import Client
from sluice.errors import PartitionNotExists, UnknownTableOrBucket
from sluice.model import Partition, TableBucket, TableInfo, TablePath, bucket_count_in
from sluice.page.cluster.per_owner import PerOwner
from sluice.page.tables.models import Split

WHOLE_MAX = 200
"""Most partitions of a table that is read as a whole: each costs one or two calls."""
WHOLE_SPLITS_MAX = 1_000
"""Most splits that are ordered by lag: one answer may have all. Lags change between two answers, so
a second page of that order would repeat some splits and leave others out."""
AT_ONCE = 8
"""Partitions of a cluster that are read at the same time, for all requests together."""


@dataclass(frozen=True, slots=True)
class FoundSplits:
    """One page of the splits of a table."""

    splits: Sequence[Split]
    total: int
    """All buckets of the table."""
    is_by_lag: bool
    """Whether the order is that of the lag. Else it is that of the partitions, the newest first."""
    lake_snapshot_id: int | None


def read_splits(client: Client, path: TablePath, offset: int, limit: int) -> FoundSplits:
    """Reads splits. A table with few splits is read as a whole, and ordered by lag.

    Of a table with more, only the partitions of the page are read, the newest first. A partition
    that was dropped meanwhile is left out.

    :raises TableNotExist: the table does not exist.
    """
    admin = client.admin
    info = admin.table_info(path)
    snapshot = admin.lake_snapshot(path)  # before the ends of the logs, which only grow
    if snapshot is not None and snapshot.table_id != info.table_id:
        snapshot = None  # of a table that was dropped and created again
    tiered = {} if snapshot is None else snapshot.offsets
    snapshot_id = None if snapshot is None else snapshot.snapshot_id
    partitions: list[Partition | None] = [None]
    if info.is_partitioned:
        partitions = [*reversed(admin.partitions_of(info))]
    counts = [bucket_count_in(info, partition) for partition in partitions]
    total = sum(counts)
    if len(partitions) <= WHOLE_MAX and total <= WHOLE_SPLITS_MAX:
        found = _splits(client, info, partitions, tiered)
        found.sort(key=lambda one: -(one.lag_rows or 0))
        return FoundSplits(found[offset : offset + limit], len(found), True, snapshot_id)
    ends = list(accumulate(counts))
    first = bisect_right(ends, offset)
    last = bisect_left(ends, offset + limit) + 1
    skipped = offset - (ends[first - 1] if first else 0)
    found = _splits(client, info, partitions[first:last], tiered)
    return FoundSplits(found[skipped : skipped + limit], total, False, snapshot_id)


def _splits(
    client: Client,
    info: TableInfo,
    partitions: Sequence[Partition | None],
    tiered: Mapping[TableBucket, int],
) -> list[Split]:
    """All splits of these partitions, in their order."""

    def read(partition: Partition | None) -> list[Split]:
        if partition is None:
            return _of_table(client, info, tiered)
        with suppress(PartitionNotExists, UnknownTableOrBucket):  # dropped in the meantime
            return _of_partition(client, info, partition, tiered)
        return []

    pool = _POOLS.of(client, lambda: ThreadPoolExecutor(AT_ONCE, "sluice-splits"))
    return [split for splits in pool.map(read, partitions) for split in splits]


_POOLS: PerOwner[Client, ThreadPoolExecutor] = PerOwner()
"""One pool of all requests for splits: many viewers do not call the cluster more at once."""


def _of_table(client: Client, info: TableInfo, tiered: Mapping[TableBucket, int]) -> list[Split]:
    try:
        return _of_partition(client, info, None, tiered)
    except UnknownTableOrBucket:
        client.admin.table_info(info.path)  # says so if the table was dropped in the meantime
        raise


def _of_partition(
    client: Client,
    info: TableInfo,
    partition: Partition | None,
    tiered: Mapping[TableBucket, int],
) -> list[Split]:
    admin, path, table_id = client.admin, info.path, info.table_id
    partition_id = None if partition is None else partition.partition_id
    numbers = range(bucket_count_in(info, partition))
    ends = admin.list_offsets(path, numbers, partition_id, table_id=table_id)
    at = {number: tiered.get(TableBucket(table_id, partition_id, number)) for number in ends}
    starts: Mapping[int, int] = {}
    if never := [number for number, end in ends.items() if at[number] is None and end > 0]:
        # Rows that expired before the first round do not count as lag, as in a status.
        starts = admin.list_offsets(path, never, partition_id, "earliest", table_id=table_id)

    def split(number: int, end: int) -> Split:
        begin = at[number]
        begin = starts.get(number, 0) if begin is None else begin
        return Split(
            partition=None if partition is None else partition.name,
            bucket=number,
            tiered_offset=at[number],
            start_offset=starts.get(number),
            end_offset=end,
            lag_rows=max(end - begin, 0),
        )

    return [split(number, end) for number, end in sorted(ends.items())]
