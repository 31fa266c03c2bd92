"""When the bucket count of a table may be altered. Stateless.

See docs/fluss/keys-and-buckets.md#bucket-counts-of-partitions
"""

from __future__ import annotations

from dataclasses import replace

from sluice.errors import BucketMaxNum, InvalidAlterTable
from sluice.model import TableInfo
from sluice.server.coordinator.catalog.descriptor_rules import BUCKETS_MAX
from sluice.server.coordinator.catalog.kv_table_rules import MERGE_ENGINE

_HISTORICAL = "table.datalake.historical-partition.enabled"


def with_bucket_count(info: TableInfo, count: int) -> TableInfo:
    """The table with another bucket count for the partitions to come.

    :raises InvalidAlterTable, BucketMaxNum: it cannot be altered like this.
    """
    why = f"table {info.path}: bucket.num cannot be altered to {count}"
    properties = info.descriptor.properties
    if not info.is_partitioned:
        raise InvalidAlterTable(
            f"{why}: the table has no partitions, so its rows would have to move; create a table"
            f" with {count} buckets, and copy the rows"
        )
    if count < 1:
        raise InvalidAlterTable(f"{why}: use 1 or more")
    if count > BUCKETS_MAX:
        raise BucketMaxNum(f"{why}: the maximum is {BUCKETS_MAX}")
    if info.datalake_enabled:
        raise InvalidAlterTable(
            f"{why} while the table is tiered: this is not supported by the Iceberg lake catalog"
            " yet. Its lake table has one number of buckets for all partitions"
        )
    if properties.get(MERGE_ENGINE, "").lower() == "aggregation":
        raise InvalidAlterTable(f"{why}: {MERGE_ENGINE} is aggregation")
    if properties.get(_HISTORICAL, "false").lower() == "true":
        raise InvalidAlterTable(f"{why}: {_HISTORICAL} is true")
    return replace(info, descriptor=replace(info.descriptor, bucket_count=count))
