"""The rows of a store as they were at one moment, read from any key on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sluice.errors import RecordTooLarge
from sluice.server.tablet.kv_store import SnapshotIterator, failure

BATCH_HEAD_BYTES = 9
VALUE_HEAD_BYTES = 4
"""Of a value batch: its own head, and what stands before each value."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Stored values in the order of their keys, and the key of the row behind them."""

    values: list[bytes]
    next_key: bytes | None
    """None: there is none."""


class KvView:
    """An iterator of RocksDB, whose rows stay as they were when it was made.

    It keeps the store open: release it before the store is closed. One thread reads at a time.
    A snapshot of RocksDB is held beside it, because RocksDB counts those, and not iterators.
    """

    def __init__(self, name: str, iterator: SnapshotIterator) -> None:
        self._name = name
        self._iterator: SnapshotIterator | None = iterator

    def release(self) -> None:
        """Gives the rows up. A second call does nothing."""
        self._iterator = None

    def read(
        self, start: bytes | None, rows_max: int | None, batch_bytes: int, bytes_max: int
    ) -> Rows:
        """One row at least, if there is one, then more until their batch has ``batch_bytes``.

        :param start: the key of the first row; None begins with the first that there is.
        :param rows_max: most rows; None: no limit.
        :param bytes_max: what a batch may never exceed.
        :raises RecordTooLarge: a single row does. :raises KvStorageError: RocksDB fails.
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
                f"bucket {self._name}: a row takes {grown} bytes in an answer, which has at most"
                f" {bytes_max}"
            )
        return Rows(values, next_key)
