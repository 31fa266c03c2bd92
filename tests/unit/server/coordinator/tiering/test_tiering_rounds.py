"""The history of rounds of the embedded server, in files of other versions."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path

from sluice.model import TieringRound
from sluice.model import types as t
from sluice.model.record_fields import fields_of
from sluice.server.coordinator.tiering.rounds import TieringRounds
from sluice.server.storage.database import Database, record_columns

LATER = ("deletes_as", "lookup_files", "lookup_bytes", "lookup_ms", "expire_ms")
"""Columns that files of older versions lack."""


def opened(folder: Path) -> Database:
    database = Database(folder / "metadata.sqlite")
    with database.transaction() as connection:
        connection.execute("INSERT OR IGNORE INTO databases VALUES ('shop', x'', 0, 0)")
        connection.execute(
            "INSERT OR IGNORE INTO tables VALUES (7, 'shop', 'orders', x'', 1, 0, 0)"
        )
    return database


def stored(rounds: TieringRounds, database: Database, *ended: TieringRound) -> list[TieringRound]:
    with database.transaction() as connection:
        rounds.store(connection, ended)
    return rounds.newest(7, 10)


def a_round(number: int) -> TieringRound:
    """A round that has every field."""
    values = {
        entry.name: "text" if entry.data_type == t.STRING else 40 + at
        for at, entry in enumerate(fields_of(TieringRound))
    }
    return TieringRound(**{**values, "table_id": 7, "round_number": number})


def test_each_described_field_is_stored(tmp_path: Path) -> None:
    with closing(opened(tmp_path)) as database:
        assert stored(TieringRounds(database), database, a_round(1)) == [a_round(1)]


def test_a_file_of_an_older_version_gets_the_later_columns(tmp_path: Path) -> None:
    with closing(opened(tmp_path)) as database:
        older = {n: kind for n, kind in record_columns(TieringRound).items() if n not in LATER}
        columns = {**older, "table_id": "INTEGER NOT NULL REFERENCES tables (table_id)"}
        database.ensure_table("tiering_rounds", columns, ", PRIMARY KEY (table_id, round_number)")
        with database.transaction() as connection:
            connection.execute(
                "INSERT INTO tiering_rounds (table_id, round_number, keys_deleted) VALUES (7, 1, 4)"
            )
        rounds = TieringRounds(database)
        (older_round,) = rounds.newest(7, 10)
        assert older_round == TieringRound(table_id=7, round_number=1, keys_deleted=4)
        assert stored(rounds, database, a_round(2)) == [a_round(2), older_round]


def test_an_older_version_reads_and_writes_the_file_of_a_newer_one(tmp_path: Path) -> None:
    """As this version does with a column that it does not know."""
    with closing(opened(tmp_path)) as database:
        stored(TieringRounds(database), database, a_round(1))
        with database.transaction() as connection:
            connection.execute("ALTER TABLE tiering_rounds ADD COLUMN later TEXT")
            connection.execute("UPDATE tiering_rounds SET later = 'theirs'")
    with closing(opened(tmp_path)) as database:
        rounds = TieringRounds(database)
        second = replace(a_round(2), deletes_as=None)
        assert stored(rounds, database, second) == [second, a_round(1)]
        found = database.query("SELECT later FROM tiering_rounds ORDER BY round_number")
        assert found == [("theirs",), (None,)]
