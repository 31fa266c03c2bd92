"""The stored statuses of the coordinator, in files of other versions."""

from __future__ import annotations

from contextlib import closing
from dataclasses import fields, replace
from pathlib import Path

from sluice.model import TablePath
from sluice.model import types as t
from sluice.model.record_fields import fields_of
from sluice.server.coordinator.tiering.rows import TieringRows
from sluice.server.storage.database import Database
from sluice.statuses import TableStatus

NEW = TableStatus(7, TablePath("shop", "orders"), 60_000, 0)
OLDEST = """
CREATE TABLE tiering (
    table_id INTEGER PRIMARY KEY REFERENCES tables (table_id) ON DELETE CASCADE,
    tiering_epoch INTEGER NOT NULL, scheduled_from_ms INTEGER NOT NULL,
    last_tiered_ms INTEGER, last_error TEXT, last_error_ms INTEGER, failures INTEGER NOT NULL,
    file_size INTEGER, record_count INTEGER) STRICT
"""


def opened(folder: Path) -> Database:
    database = Database(folder / "metadata.sqlite")
    with database.transaction() as connection:
        connection.execute("INSERT OR IGNORE INTO databases VALUES ('shop', x'', 0, 0)")
        connection.execute(
            "INSERT OR IGNORE INTO tables VALUES (7, 'shop', 'orders', x'', 1, 0, 0)"
        )
    return database


def stored(rows: TieringRows, database: Database, status: TableStatus) -> TableStatus | None:
    with database.transaction() as connection:
        rows.store(connection, [status])
    return rows.load(NEW)


def test_each_described_field_is_stored(tmp_path: Path) -> None:
    values = {
        entry.name: "text" if entry.data_type == t.STRING else 40 + at
        for at, entry in enumerate(fields_of(TableStatus))
    }
    status = replace(NEW, **{**values, "paused": True})
    with closing(opened(tmp_path)) as database:
        assert stored(TieringRows(database), database, status) == status
    with closing(opened(tmp_path)) as database:
        assert TieringRows(database).load(NEW) == status
    left_out = {field.name for field in fields(TableStatus)} - set(values)
    of_a_claim = {"heartbeat_ms", "claimed_ms", "claimed_by"}
    assert left_out == {"table_id", "path", "freshness_ms", "state", *of_a_claim}


def test_a_file_of_the_first_version_gets_the_later_columns(tmp_path: Path) -> None:
    with closing(opened(tmp_path)) as database:
        with database.transaction() as connection:
            connection.execute(OLDEST)
            connection.execute("INSERT INTO tiering VALUES (7, 3, 5, NULL, 'no', 9, 2, NULL, 8)")
        rows = TieringRows(database)
        found = rows.load(NEW)
        assert found is not None
        assert (found.tiering_epoch, found.failures, found.record_count) == (3, 2, 8)
        assert (found.paused, found.next_attempt_ms) == (False, None)
        assert stored(rows, database, replace(found, paused=True)) == replace(found, paused=True)


def test_a_column_of_a_newer_version_is_kept(tmp_path: Path) -> None:
    with closing(opened(tmp_path)) as database:
        rows = TieringRows(database)
        stored(rows, database, replace(NEW, paused=True))
        with database.transaction() as connection:
            connection.execute("ALTER TABLE tiering ADD COLUMN later TEXT")
            connection.execute("UPDATE tiering SET later = 'theirs'")
    with closing(opened(tmp_path)) as database:
        rows = TieringRows(database)
        found = rows.load(NEW)
        assert found is not None
        assert found.paused
        stored(rows, database, replace(found, failures=4))
        assert database.query("SELECT later, failures, paused FROM tiering") == [("theirs", 4, 1)]
