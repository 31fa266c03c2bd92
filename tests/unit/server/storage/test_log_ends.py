"""What the metadata says of the end of a log stays beyond it, and is stored rarely."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from sluice.model import TableBucket
from sluice.server import log_ends
from sluice.server.log_ends import StoredLogEnds
from sluice.server.storage.database import Database
from tests.support.programs.processes import wait_for
from tests.unit.server.storage.test_removed_logs import QUIET, ends
from tests.unit.server.support import Node, batch, give_up
from tests.unit.server.tablet.logs.test_recovery import folder_of

TABLE, DROPPED = 1, 2
BUCKET = TableBucket(TABLE, None, 0)


@pytest.fixture(autouse=True)
def few_reserved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_ends, "RESERVED", 8)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    """With one table."""
    database = Database(tmp_path / "metadata.sqlite")
    with database.transaction() as connection:
        connection.execute("INSERT INTO databases VALUES ('db', x'', 0, 0)")
        connection.execute("INSERT INTO tables VALUES (?, 'db', 't', x'', 1, 0, 0)", (TABLE,))
    yield database
    database.close()


def stored(database: Database) -> list[tuple[int, ...]]:
    return database.query("SELECT table_id, bucket, end_offset, is_exact FROM log_ends")


def test_an_end_is_stored_again_only_when_the_log_comes_near(database: Database) -> None:
    found = StoredLogEnds(database)
    seen = []
    for end in range(1, 30):
        found.reserve({BUCKET: end})
        ((*_, reserved, _),) = stored(database)
        assert reserved > end
        seen.append(reserved)
    assert seen[:4] == [9] * 4
    assert len(set(seen)) < len(seen) / 4


def test_a_table_that_was_dropped_in_between_keeps_no_end_from_being_stored(
    database: Database,
) -> None:
    found = StoredLogEnds(database)
    dropped = TableBucket(DROPPED, None, 0)
    for store in (found.reserve, found.close):
        with capture_logs() as events:
            store({dropped: 5, BUCKET: 5})
        assert not events
        assert [row[:2] for row in stored(database)] == [(TABLE, 0)]
    assert stored(database) == [(TABLE, 0, 5, 1)]


def test_a_log_that_outgrows_its_reserve_gives_no_offset_twice(
    start: Callable[..., Node], tmp_path: Path
) -> None:
    node = start(sync_interval_ms=20, **QUIET)
    table = node.caller.create_table()
    node.caller.produce(table, batch("x"))
    wait_for("a first end", lambda: ends(tmp_path))
    node.caller.produce(table, batch(*"x" * 19))
    wait_for("a further one", lambda: ends(tmp_path)[0][0] > 20)
    crashed = tmp_path / "crashed"
    shutil.copytree(tmp_path / "data", crashed / "data")
    shutil.rmtree(folder_of(crashed, table))
    other = Node(crashed / "data", **QUIET)
    try:
        assert len(give_up(other.caller.address)) == 1
        assert other.caller.produce(table, batch("x")) > 20
    finally:
        other.stop()
