"""Numbers for auto-increment columns: each bucket takes them from a segment of its own.

See docs/fluss/kv-batches.md#auto-increment-columns
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from sluice.errors import UnknownServerError
from sluice.model import Column, TableBucket, TableInfo, TypeRoot

CACHE_SIZE = "table.auto-increment.cache-size"
_CACHE_SIZE = 100_000
_HIGHEST = {TypeRoot.INT: 2**31 - 1, TypeRoot.BIGINT: 2**63 - 1}


@dataclass(slots=True)
class _Segment:
    next: int = 1
    end: int = 0
    """Inclusive."""


class AutoIncrement:
    """The segments of all buckets, which live until the server stops.

    What is left of a segment is lost then, as in Fluss. ``_lock`` guards the mapping; a bucket's
    puts come one at a time.
    """

    def __init__(self, reserve: Callable[[int, int, int], int]) -> None:
        """:param reserve: as ``Database.reserve_numbers``."""
        self._reserve = reserve
        self._lock = threading.Lock()
        self._segments: dict[TableBucket, _Segment] = {}

    def take(self, bucket: TableBucket, info: TableInfo, count: int) -> np.ndarray:
        """The next ``count`` numbers (int64) for new rows of a bucket, ascending.

        :raises UnknownServerError: the column's type has no more numbers.
        :raises StorageError: no segment could be reserved.
        """
        column = info.schema.column(info.schema.auto_increment[0])
        size = int(info.descriptor.properties.get(CACHE_SIZE, _CACHE_SIZE))
        with self._lock:
            segment = self._segments.setdefault(bucket, _Segment())
        parts = []
        while count:
            left = segment.end - segment.next + 1
            if not left:
                wanted = -(-count // size) * size
                before = self._reserve(bucket.table_id, column.column_id, wanted)
                segment.next, segment.end = before + 1, before + wanted
                continue
            taken = min(left, count)
            _check_highest(info, column, segment.next + taken - 1)
            parts.append(np.arange(segment.next, segment.next + taken, dtype=np.int64))
            segment.next += taken
            count -= taken
        return np.concatenate(parts) if parts else np.empty(0, np.int64)

    def drop_table(self, info: TableInfo, partition_id: int | None = None) -> None:
        """Forgets the segments of a dropped table or partition."""
        with self._lock:
            for bucket in list(self._segments):
                if bucket.table_id == info.table_id and partition_id in (None, bucket.partition_id):
                    del self._segments[bucket]


def _check_highest(info: TableInfo, column: Column, number: int) -> None:
    highest = _HIGHEST[column.data_type.root]
    if number > highest:
        raise UnknownServerError(
            f"table {info.path}: auto-increment column {column.name!r} has no more numbers:"
            f" {column.data_type} ends at {highest}; copy the rows into a table with BIGINT"
        )
