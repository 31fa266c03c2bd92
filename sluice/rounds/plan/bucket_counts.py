"""Whether the partitions of a table have the bucket counts that its lake table needs.

See docs/fluss/keys-and-buckets.md#bucket-counts-of-partitions
"""

from __future__ import annotations

from collections.abc import Iterable

from sluice.errors import UnsupportedLakeOption
from sluice.model import Partition, TableInfo, bucket_count_in
from sluice.quantities import counted
from sluice.rounds.values.ports import Cluster

OPTION = "bucket.num"


def check_partitions(info: TableInfo, cluster: Cluster) -> None:
    """:func:`check_bucket_counts` of the partitions that exist now."""
    if info.is_partitioned and _has_key(info):
        check_bucket_counts(info, cluster.partitions(info.path))


def check_bucket_counts(info: TableInfo, partitions: Iterable[Partition | None]) -> None:
    """Refuses a table with a bucket key whose partitions have different bucket counts.

    Its lake table has one partition field ``bucket[n](key)`` for all partitions. A table without a
    bucket key has none: there, each partition may have its own count.

    :raises UnsupportedLakeOption: names a partition, its count and the table's count.
    """
    if not _has_key(info):
        return
    others = [
        one
        for one in partitions
        if one is not None and bucket_count_in(info, one) != info.bucket_count
    ]
    if not others:
        return
    first, more = others[0], len(others) - 1
    also = f" (and {counted(more, 'other partition')})" if more else ""
    raise UnsupportedLakeOption(
        f"table {info.path}: partition {first.name}{also} has"
        f" {counted(bucket_count_in(info, first), 'bucket')}, but the table has"
        f" {info.bucket_count} since {OPTION} was altered. Its rows are assigned to buckets by a"
        " key, and an Iceberg table has one number of buckets for all partitions: it cannot be"
        " tiered like this. Create a table with one number of buckets and copy the rows, or tier"
        " it once the partitions with other numbers have expired",
        option=OPTION,
    )


def _has_key(info: TableInfo) -> bool:
    return bool(info.descriptor.bucket_keys) or info.has_primary_key
