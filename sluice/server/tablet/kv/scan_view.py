"""Reads the rows of a store at one point in time, from any key on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sluice.errors import RecordTooLarge
from sluice.server.tablet.kv.store import SnapshotIterator, failure

BATCH_HEAD_BYTES = 9
VALUE_HEAD_BYTES = 4
"""Of a value batch: its own head, and what stands before each value."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Stored values ordered by key, and the key of the next row."""

    values: list[bytes]
    next_key: bytes | None
    """None: there is no next row."""


class KvView:
    """An iterator of RocksDB, whose rows stay as they were when it was made.

    It keeps the store open: release it before the store is closed. One thread reads at a time.
    A snapshot of RocksDB is held in addition, because RocksDB counts snapshots, not iterators.
    """

    def __init__(self, name: str, iterator: SnapshotIterator) -> None:
        self._name = name
        self._iterator: SnapshotIterator | None = iterator

    def release(self) -> None:
        """Releases the rows. A second call does nothing."""
        self._iterator = None

    def read(
        self, start: bytes | None, rows_max: int | None, batch_bytes: int, bytes_max: int
    ) -> Rows:
        """Reads rows until their batch has ``batch_bytes``, but at least one, if there is any.

        :param start: the key of the first row; None: the first row of the store.
        :param rows_max: maximum number of rows; None: no limit.
        :param bytes_max: the limit that a batch must not exceed.
        :raises RecordTooLarge: a single row exceeds it. :raises KvStorageError: RocksDB failed.
        """
        assert self._iterator is not None, "released"
        rows: Any = self._iterator.rows
        size, too_large = BATCH_HEAD_BYTES, False
        values: list[bytes] = []
        try:
            rows.seek_to_first() if start is None else rows.seek(start)
            # The library gives row by row.
            while (value := rows.value()) is not None:
                grown = size + VALUE_HEAD_BYTES + len(value)
                too_large = grown > bytes_max
                if too_large or (values and (size >= batch_bytes or len(values) == rows_max)):
                    break
                values.append(value)
                size = grown
                rows.next()
            next_key = rows.key() if value is not None else None
            if next_key is None:
                rows.status()  # it also ends where a block is damaged
        except Exception as error:
            raise failure(f"of bucket {self._name} cannot be read", error) from error
        finally:
            rows = None  # or an error on its way would keep the store open
        if too_large and not values:
            raise RecordTooLarge(
                f"bucket {self._name}: a response with one row has {grown} bytes, more than the"
                f" limit of {bytes_max}"
            )
        return Rows(values, next_key)
