"""Ids of idempotent writers, from a cluster-wide counter that never repeats an id."""

from __future__ import annotations

from sluice.server.storage.database import Database

_COUNTER = "writer_id"


class StoredWriterIds:
    """Writer ids from the metadata file; an id is stored as issued before it is returned."""

    def __init__(self, database: Database) -> None:
        self._database = database
        # Only rises. A concurrent reader of the old value merely knows fewer ids.
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
