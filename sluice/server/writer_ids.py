"""Ids of idempotent writers, from a cluster-wide counter that never repeats an id."""

from __future__ import annotations

import structlog

from sluice.server.storage.database import Database

SKIPPED = 1 << 20
"""Ids that are left out if the counter is behind the logs: of writers that no log knows yet."""

_COUNTER = "writer_id"

_log = structlog.get_logger("sluice.log")


class StoredWriterIds:
    """Writer ids from the metadata file; an id is stored as issued before it is returned."""

    def __init__(self, database: Database, in_logs: int) -> None:
        """Raises the counter above the ids that the logs know.

        A metadata file from a backup may be older than the logs. An id that is issued again would
        make the first batch of a new writer look like a repeated one.

        :param in_logs: the highest writer id of all logs, or -1.
        :raises StorageError: the counter cannot be read or stored.
        """
        self._database = database
        # Only rises. A concurrent reader of the old value merely knows fewer ids.
        self._next = database.next_value(_COUNTER)
        if in_logs >= self._next:
            _log.warning(
                "the metadata is older than the logs, so it comes from a backup; the next writer id"
                " is above those of the logs",
                writer_id=in_logs,
            )
            database.next_values(_COUNTER, in_logs + 1 + SKIPPED - self._next)
            self._next = database.next_value(_COUNTER)

    def issue(self) -> int:
        """Issues a new id.

        :raises StorageError: the id cannot be stored as issued.
        """
        writer_id = self._database.next_values(_COUNTER)
        self._next = max(self._next, writer_id + 1)
        return writer_id

    def is_issued(self, writer_id: int) -> bool:
        return writer_id < self._next
