"""The history of rounds in SQLite: the newest rounds of each table."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

from sluice.model import TieringRound
from sluice.model.record_fields import fields_of
from sluice.model.round_record import ROUNDS_KEPT
from sluice.server.storage.database import Database, record_columns

_NAMES = tuple(entry.name for entry in fields_of(TieringRound))
_INSERT = f"""
INSERT OR REPLACE INTO tiering_rounds ({", ".join(_NAMES)})
SELECT {", ".join("?" * len(_NAMES))} WHERE EXISTS (SELECT 1 FROM tables WHERE table_id = ?)
"""  # noqa: S608  (names of fields)
_DELETE = "DELETE FROM tiering_rounds WHERE table_id = ? AND round_number <= ?"
_SELECT = f"""
SELECT {", ".join(_NAMES)} FROM tiering_rounds WHERE table_id = ?
ORDER BY round_number DESC LIMIT ?
"""  # noqa: S608  (names of fields)


class TieringRounds:
    """Keeps the newest ``ROUNDS_KEPT`` rounds of each table."""

    def __init__(self, database: Database) -> None:
        self._database = database
        reference = "INTEGER NOT NULL REFERENCES tables (table_id) ON DELETE CASCADE"
        columns = {**record_columns(TieringRound), "table_id": reference}
        key = ", PRIMARY KEY (table_id, round_number)"
        database.ensure_table("tiering_rounds", columns, key)

    def store(self, connection: sqlite3.Connection, ended: Iterable[TieringRound]) -> None:
        """Stores ended rounds of existing tables in the caller's transaction."""
        for each in ended:
            values = [getattr(each, name) for name in _NAMES]
            connection.execute(_INSERT, (*values, each.table_id))
            connection.execute(_DELETE, (each.table_id, (each.round_number or 0) - ROUNDS_KEPT))

    def newest(self, table_id: int, limit: int) -> list[TieringRound]:
        """The newest rounds of a table, the newest first."""
        rows = self._database.query(_SELECT, table_id, max(limit, 0))
        return [TieringRound(**dict(zip(_NAMES, row, strict=True))) for row in rows]
