"""Cache of recorded tiering statuses, for when the status table cannot be read or written."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from sluice.statuses import RecordedStatus

TABLES_MAX = 10_000
"""Maximum number of cached tables; the cache is cleared when it is reached."""


class StatusCache:
    """Status rows as last read, and the results of rounds that could not be written.

    Safe for use by many threads.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards the rest
        self._rows: dict[int, RecordedStatus] = {}
        self._unwritten: dict[int, Mapping[str, Any]] = {}

    def read(self, ids: Iterable[int], rows: Mapping[int, RecordedStatus]) -> None:
        """Stores the rows just read for these tables.

        A result that another process wrote later replaces this process's unwritten result.
        """
        with self._lock:
            if len(self._rows) >= TABLES_MAX:
                self._rows.clear()
            for table_id in ids:
                row = rows.get(table_id, RecordedStatus(table_id))
                self._rows[table_id] = row
                ours = self._unwritten.get(table_id)
                if ours is not None and (row.ended_ms or 0) > ours["ended_ms"]:
                    del self._unwritten[table_id]

    def row(self, table_id: int) -> RecordedStatus | None:
        """Returns the row with its unwritten columns; None if it was never read."""
        with self._lock:
            row, ours = self._rows.get(table_id), self._unwritten.get(table_id)
        return row if ours is None else replace(row or RecordedStatus(table_id), **ours)

    def unwritten(self, table_id: int) -> Mapping[str, Any]:
        """Returns the columns of a result that were not written; empty if there are none."""
        with self._lock:
            return self._unwritten.get(table_id, {})

    def not_written(self, table_id: int, ended: Mapping[str, Any]) -> None:
        """Keeps the columns of a result for the table's next event."""
        with self._lock:
            if len(self._unwritten) >= TABLES_MAX:
                self._unwritten.clear()
            self._unwritten[table_id] = ended

    def written(self, table_id: int) -> None:
        """Notes that the row is completely written."""
        with self._lock:
            self._unwritten.pop(table_id, None)
