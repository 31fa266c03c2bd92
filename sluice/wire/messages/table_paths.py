"""Table paths as messages and back, and the buckets that messages name."""

from __future__ import annotations

from typing import Any

from sluice.errors import PartitionNotExists
from sluice.model import TableBucket, TablePath
from sluice.wire import fluss_api_pb2 as pb


def table_path(path: TablePath) -> pb.PbTablePath:
    return pb.PbTablePath(database_name=path.database, table_name=path.table)


def path_of(message: pb.PbTablePath) -> TablePath:
    return TablePath(message.database_name, message.table_name)


def bucket_in(message: Any, table_id: int | None = None) -> TableBucket:
    """The bucket that a message names.

    :param table_id: the table, if another message has its id.
    """
    partition_id = message.partition_id if message.HasField("partition_id") else None
    return TableBucket(
        message.table_id if table_id is None else table_id, partition_id, message.bucket_id
    )


def refuse_history(item: Any, answer: Any) -> None:
    """Refuses the request for a bucket on behalf of an expired partition.

    See docs/fluss/messages.md#historical-partitions

    :raises PartitionNotExists: the request names such a partition, and so does the answer then.
    """
    if item.HasField("original_partition_name"):
        name = answer.original_partition_name = item.original_partition_name
        raise PartitionNotExists(
            f"partition {name!r} does not exist, and this server keeps no historical partitions:"
            " read its rows from the lake, or create it again"
        )


def bucket_ids(bucket: TableBucket) -> dict[str, Any]:
    """The fields of a message that names a bucket: the inverse of ``bucket_in``."""
    return {
        "table_id": bucket.table_id,
        "partition_id": bucket.partition_id,
        "bucket_id": bucket.bucket,
    }
