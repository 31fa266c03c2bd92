"""Ids of idempotent writers: a counter of the whole cluster that never gives one twice."""

from __future__ import annotations

from sluice.server.storage.database import Database

_COUNTER = "writer_id"


class StoredWriterIds:
    """Writer ids from the metadata file; an id is stored as given before anybody gets it."""

    def __init__(self, database: Database) -> None:
        self._database = database
        # Only ever rises; a reader that sees the old value for a moment knows fewer ids.
        self._next = database.next_value(_COUNTER)

    def issue(self) -> int:
        """:raises StorageError: the id cannot be stored as given."""
        writer_id = self._database.next_values(_COUNTER)
        self._next = max(self._next, writer_id + 1)
        return writer_id

    def is_issued(self, writer_id: int) -> bool:
        return writer_id < self._next
