"""A log that somebody removed while the server was stopped: none of its offsets is given again."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from sluice.client import connect
from sluice.errors import CorruptRecord, LogStorageError
from sluice.model import TablePath
from sluice.server.storage.database import Database
from tests.support.programs.processes import wait_for
from tests.unit.server.coordinator.calls.test_catalog_calls import (
    PARTITIONED,
    create_partition,
    drop_partition,
    partitions,
)
from tests.unit.server.coordinator.calls.test_tiering_calls import LAKE_TABLE
from tests.unit.server.coordinator.tiering.test_lake_snapshots import commit, prepare
from tests.unit.server.kv_support import KvCaller
from tests.unit.server.support import Node, batch, give_up
from tests.unit.server.tablet.logs.test_recovery import crash_copy, fill, folder_of, names

QUIET = {"kv_snapshot_interval_ms": 0, "log_ttl_check_interval_ms": 0}
END = 20


@pytest.fixture
def node(start: Callable[..., Node]) -> Node:
    return start(**QUIET)


def ends(folder: Path) -> list[tuple[int, bool]]:
    """What the metadata says of the ends of logs, and whether exactly."""
    database = Database(folder / "data/metadata.sqlite")
    try:
        rows = database.query("SELECT end_offset, is_exact FROM log_ends ORDER BY table_id, bucket")
    finally:
        database.close()
    return [(end, bool(is_exact)) for end, is_exact in rows]


def test_a_removed_log_continues_at_its_end(node: Node, tmp_path: Path) -> None:
    table = fill(node.caller)
    node.stop()
    assert ends(tmp_path) == [(END, True)]
    shutil.rmtree(folder_of(tmp_path, table))
    with capture_logs() as events:
        node.start()
    assert any(str(folder_of(tmp_path, table)) in str(one.get("problem")) for one in events)
    for _ in range(2):
        with pytest.raises(CorruptRecord, match=f"refuses reads and writes: .* 0 to {END - 1} up"):
            node.caller.produce(table, batch("x"))
        assert node.caller.offsets(table, kind=1) == [END]
        node.restart()
    assert len(give_up(node.caller.address)) == 1
    assert node.caller.produce(table, batch("x")) == END
    for _ in range(2):
        assert node.caller.fetch(table, END).records
        for offset in (0, END - 1):
            with pytest.raises(CorruptRecord, match=f"offsets 0 to {END - 1} are lost"):
                node.caller.fetch(table, offset)
        assert node.caller.offsets(table, kind=1) == [END + 1]
        node.restart()


@pytest.mark.parametrize("is_written_after", [False, True])
def test_a_removed_log_makes_no_age_of_decades(
    node: Node, tmp_path: Path, *, is_written_after: bool
) -> None:
    """What was lost has no time; the age is that of the first row that has one."""
    table = node.caller.create_table(descriptor=LAKE_TABLE)
    node.caller.produce(table, batch("a"))
    node.stop()
    shutil.rmtree(folder_of(tmp_path, table))
    node.start()
    if is_written_after:
        give_up(node.caller.address)
        node.caller.produce(table, batch("b"))
    with connect(node.caller.address) as client:
        [status] = client.statuses.list()
    assert (status.lag_rows, status.lag_ms is not None) == (1 + is_written_after, True)
    assert 0 <= (status.lag_ms or 0) < 600_000


def test_an_untouched_bucket_stays_empty(node: Node) -> None:
    table = node.caller.create_table()
    node.restart()
    assert node.caller.offsets(table, kind=1) == [0]
    assert node.caller.produce(table, batch("x")) == 0


def test_a_lost_last_segment_leaves_its_offsets(start: Callable[..., Node], tmp_path: Path) -> None:
    node = start(segment_bytes=1_300, **QUIET)
    table = fill(node.caller)
    node.stop()
    last = int(Path(names(folder_of(tmp_path, table), ".log")[-1]).stem)
    for path in folder_of(tmp_path, table).glob(f"{last:020d}.*"):
        path.unlink()
    node.start()
    assert len(give_up(node.caller.address)) == 1
    assert node.caller.produce(table, batch("x")) == END
    with pytest.raises(CorruptRecord, match=f"offsets {last} to {END - 1} are lost"):
        node.caller.fetch(table, last)
    assert len(node.caller.fetch(table, 0).records)


def test_a_start_that_fails_leaves_the_end_for_the_next_one(node: Node, tmp_path: Path) -> None:
    table = fill(node.caller)
    other = node.caller.create_table(TablePath("db", "other"))
    node.caller.produce(other, batch("x", "y"))
    node.stop()
    older = tmp_path / "older"
    shutil.copytree(folder_of(tmp_path, table), older)
    node.start()
    assert node.caller.produce(table, batch("x", "y", "z")) == END
    node.stop()
    shutil.rmtree(folder_of(tmp_path, table))
    shutil.copytree(older, folder_of(tmp_path, table))
    log = tmp_path / f"data/log/db/other-{other}/log-0/{0:020d}.log"
    log.rename(log.with_suffix(".kept"))
    log.mkdir()
    with pytest.raises(LogStorageError, match="Is a directory"):
        node.start()
    assert ends(tmp_path) == [(END + 3, True), (2, True)]
    log.rmdir()
    log.with_suffix(".kept").rename(log)
    node.start()
    assert len(give_up(node.caller.address)) == 1
    assert node.caller.produce(table, batch("x")) == END + 3


@pytest.mark.parametrize("restarted", [False, True])
def test_after_a_kill_the_end_is_unknown_but_no_offset_is_given_twice(
    start: Callable[..., Node], tmp_path: Path, restarted: bool
) -> None:
    node = start(sync_interval_ms=20, **QUIET)
    table = fill(node.caller)
    if restarted:
        node.restart()  # it knows the end, but more is written
        node.caller.produce(table, batch("y", "y"))
    else:
        wait_for("a sync", lambda: ends(tmp_path))
    end = node.caller.offsets(table, kind=1)[0]
    ((reserved, is_exact),) = ends(tmp_path)
    assert (reserved > end, is_exact) == (True, False)
    crashed = tmp_path / "crashed"
    shutil.copytree(tmp_path / "data", crashed / "data")
    shutil.rmtree(folder_of(crashed, table))
    other = Node(crashed / "data", **QUIET)
    try:
        assert len(give_up(other.caller.address)) == 1
        assert other.caller.produce(table, batch("x")) == reserved
        with pytest.raises(CorruptRecord, match="offsets 0 to"):
            other.caller.fetch(table, end - 1)
        other.restart()
        assert other.caller.produce(table, batch("x")) == reserved + 1
    finally:
        other.stop()


def test_a_kill_alone_changes_no_offset(start: Callable[..., Node], tmp_path: Path) -> None:
    node = start(sync_interval_ms=20, **QUIET)
    table = fill(node.caller)
    wait_for("a sync", lambda: ends(tmp_path))
    other = crash_copy(tmp_path, start, **QUIET)
    try:
        assert other.caller.produce(table, batch("x")) == END
    finally:
        other.stop()


def test_rows_behind_the_lake_are_not_given_twice(node: Node, tmp_path: Path) -> None:
    table = node.caller.create_table(descriptor=LAKE_TABLE)
    for n in range(10):
        node.caller.produce(table, batch(str(n)))
    commit(node.caller, table, 1, prepare(node.caller, table, {0: 6}))
    node.stop()
    shutil.rmtree(folder_of(tmp_path, table))
    for _ in range(2):
        node.start()
        with pytest.raises(CorruptRecord, match="give the offsets 6 to 9 up"):
            node.caller.fetch(table, 6)
        assert node.caller.offsets(table, kind=1) == [10]
        node.stop()
    node.start()
    assert len(give_up(node.caller.address)) == 1
    with pytest.raises(CorruptRecord, match="offsets 6 to 9 are lost"):
        node.caller.fetch(table, 6)
    assert node.caller.produce(table, batch("x")) == 10


def test_a_store_goes_on_without_its_log(node: Node, tmp_path: Path) -> None:
    kv = KvCaller(node.caller)
    for key in range(4):
        kv.put((key, "x", key))
    expected = kv.table()
    node.stop()
    shutil.rmtree(tmp_path / "data/log/db")
    node.start()
    kv = KvCaller(node.caller, create=False)
    with pytest.raises(CorruptRecord, match="refuses reads and writes"):
        kv.table()
    assert len(give_up(node.caller.address)) == 1
    assert kv.table() == expected
    assert kv.put((9, "y", 9)) == 5


def test_a_snapshot_tells_of_the_log_of_an_earlier_version(node: Node, tmp_path: Path) -> None:
    kv = KvCaller(node.caller)
    for key in range(4):
        kv.put((key, "x", key))
    node.cluster.take_kv_snapshots(kv.path)
    expected = kv.table()
    node.stop()
    database = Database(tmp_path / "data/metadata.sqlite")
    with database.transaction() as connection:
        connection.execute("DELETE FROM log_ends")
    database.close()
    shutil.rmtree(tmp_path / "data/log/db")
    node.start()
    kv = KvCaller(node.caller, create=False)
    with pytest.raises(CorruptRecord, match="refuses reads and writes"):
        kv.table()
    assert len(give_up(node.caller.address)) == 1
    assert kv.table() == expected
    assert kv.put((9, "y", 9)) == 5


def test_logs_of_an_earlier_version_are_recorded_at_the_start(node: Node, tmp_path: Path) -> None:
    fill(node.caller)
    node.stop()
    database = Database(tmp_path / "data/metadata.sqlite")
    with database.transaction() as connection:
        connection.execute("DELETE FROM log_ends")
    database.close()
    node.start()
    ((end, is_exact),) = ends(tmp_path)
    assert (end > END, is_exact) == (True, False)


def test_what_is_dropped_leaves_no_record(node: Node, tmp_path: Path) -> None:
    table = node.caller.create_table(descriptor=PARTITIONED)
    create_partition(node.caller, "eu")
    node.caller.produce(table, batch("eu"), partition_id=partitions(node.caller)["eu"])
    node.restart()
    assert len(ends(tmp_path)) == 1
    drop_partition(node.caller, "eu")
    assert ends(tmp_path) == []
