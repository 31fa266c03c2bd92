"""Offsets of a table's buckets, and their JSON (docs/fluss/lake-snapshots.md#offsets-file).

Fluss's offsets files use this JSON, and so do the summaries of lake snapshots (``sluice.offsets``),
so a lake snapshot itself shows which part of each log it contains.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from sluice.model.paths import TableBucket

EARLIEST = -2
"""As a start offset: the earliest offset of the log."""
OFFSETS_VERSION = 1
_UNKNOWN = -1
_MAX_BUCKETS = 1 << 20
_MAX_OFFSET = 2**63 - 1


def offsets_to_text(table_id: int, offsets: Mapping[TableBucket, int]) -> str:
    """Returns the JSON of log end offsets (exclusive) of a table's buckets, as Fluss writes it.

    Array index = bucket, -1 = unknown.

    :raises ValueError: a bucket is of another table, or only some buckets have a partition.
    """
    by_partition: dict[int | None, dict[int, int]] = {}
    for bucket, offset in offsets.items():
        if bucket.table_id != table_id:
            raise ValueError(f"bucket {bucket} does not belong to table {table_id}")
        if not 0 <= bucket.bucket < _MAX_BUCKETS:
            raise ValueError(f"bucket {bucket}: bucket ids are 0 to {_MAX_BUCKETS - 1}")
        by_partition.setdefault(bucket.partition_id, {})[bucket.bucket] = offset
    content: dict[str, Any] = {"version": OFFSETS_VERSION, "table_id": table_id}
    if list(by_partition) == [None]:
        content["bucket_offsets"] = _dense(by_partition[None])
    elif by_partition:
        if None in by_partition:
            raise ValueError(f"table {table_id}: only some of the buckets have a partition")
        content["partition_offsets"] = [
            {"partition_id": partition_id, "bucket_offsets": _dense(of_partition)}
            for partition_id, of_partition in sorted(by_partition.items(), key=_first)
        ]
    return json.dumps(content, separators=(",", ":"))


def offsets_from_text(text: str | bytes) -> tuple[int, dict[TableBucket, int]]:
    """Returns the table id and the known offsets.

    :raises ValueError: the text is not this JSON in version 1; the message names the error.
    """
    try:
        node = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it is not JSON: {error}") from error
    if not isinstance(node, dict) or node.get("version") != OFFSETS_VERSION:
        raise ValueError(f"its version is not {OFFSETS_VERSION}: {str(node)[:80]}")
    table_id = _whole(node.get("table_id"), "table_id")
    offsets = _sparse(table_id, None, node.get("bucket_offsets", []))
    for partition in _list(node.get("partition_offsets", []), "partition_offsets"):
        if not isinstance(partition, dict):
            raise ValueError(f"partition_offsets has {str(partition)[:80]}, but needs JSON objects")
        partition_id = _whole(partition.get("partition_id"), "partition_id")
        offsets |= _sparse(table_id, partition_id, partition.get("bucket_offsets", []))
    return table_id, offsets


def _first(item: tuple[int | None, dict[int, int]]) -> int:
    assert item[0] is not None
    return item[0]


def _dense(offsets: Mapping[int, int]) -> list[int]:
    return [offsets.get(bucket, _UNKNOWN) for bucket in range(max(offsets) + 1)]


def _sparse(table_id: int, partition_id: int | None, values: Any) -> dict[TableBucket, int]:
    offsets = {}
    for bucket, value in enumerate(_list(values, "bucket_offsets")):
        offset = _whole(value, "bucket_offsets")
        if offset != _UNKNOWN:
            offsets[TableBucket(table_id, partition_id, bucket)] = offset
    return offsets


def _list(value: Any, key: str) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"{key} is {str(value)[:80]}, but must be a list")
    return value


def _whole(value: Any, key: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not -1 <= value <= _MAX_OFFSET:
        raise ValueError(f"{key} has {str(value)[:80]}, but needs integers from -1")
    return value
