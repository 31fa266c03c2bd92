"""Counters of auto-increment columns in the metadata file; they end with their table."""

from __future__ import annotations

from sluice.server.storage.database import Database


class StoredSequences:
    """A number is stored as reserved before it is given out."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def reserve(self, table_id: int, column_id: int, count: int) -> int:
        """Reserves ``count`` numbers of a column; returns how many were reserved before.

        :raises StorageError: they cannot be stored as reserved, or the table was dropped.
        """
        with self._database.transaction() as connection:
            ((reserved,),) = connection.execute(
                "INSERT INTO auto_increment (table_id, column_id, reserved) VALUES (?, ?, ?)"
                " ON CONFLICT (table_id, column_id)"
                " DO UPDATE SET reserved = reserved + excluded.reserved RETURNING reserved",
                (table_id, column_id, count),
            ).fetchall()
        return int(reserved) - count
