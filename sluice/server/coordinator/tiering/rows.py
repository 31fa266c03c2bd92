"""The stored part of the coordinator's tiering statuses: its described fields, in SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from dataclasses import replace

from sluice.model.record_fields import fields_of
from sluice.server.storage.database import Database, record_columns
from sluice.statuses import TableStatus

_NAMES = tuple(entry.name for entry in fields_of(TableStatus))
_SELECT = f"SELECT {', '.join(_NAMES)} FROM tiering WHERE table_id = ?"  # noqa: S608
_UPSERT = f"""
INSERT INTO tiering (table_id, {", ".join(_NAMES)})
SELECT ?, {", ".join("?" * len(_NAMES))} WHERE EXISTS (SELECT 1 FROM tables WHERE table_id = ?)
ON CONFLICT (table_id) DO UPDATE SET {", ".join(f"{n} = excluded.{n}" for n in _NAMES)}
"""  # noqa: S608  (names of fields)


class TieringRows:
    """One row for each table that is or was tiered. Columns of a newer version are kept."""

    def __init__(self, database: Database) -> None:
        self._database = database
        table_id = "INTEGER PRIMARY KEY REFERENCES tables (table_id) ON DELETE CASCADE"
        database.ensure_table("tiering", {"table_id": table_id, **record_columns(TableStatus)})

    def load(self, new: TableStatus) -> TableStatus | None:
        """The stored status of a table; None if it has none.

        :param new: has the fields that are not stored.
        """
        rows = self._database.query(_SELECT, new.table_id)
        if not rows:
            return None
        values = dict(zip(_NAMES, rows[0], strict=True))
        return replace(new, **{**values, "paused": bool(values["paused"])})

    def store(self, connection: sqlite3.Connection, statuses: Iterable[TableStatus]) -> None:
        """Stores the statuses of existing tables in the caller's transaction."""
        rows = [(s.table_id, *_values(s), s.table_id) for s in statuses]
        connection.executemany(_UPSERT, rows)

    @staticmethod
    def same(one: TableStatus, other: TableStatus) -> bool:
        """Whether the stored parts are equal."""
        return _values(one) == _values(other)


def _values(status: TableStatus) -> tuple[object, ...]:
    return tuple(getattr(status, name) for name in _NAMES)
