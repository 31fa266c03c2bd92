"""Old segments are deleted by table.log.ttl, but none that somebody needs."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from sluice.errors import LogOffsetOutOfRange, OutOfOrderSequence
from sluice.server.tablet.buckets.files import LogFiles
from tests.support.programs.processes import wait_for
from tests.unit.server.coordinator.calls.test_leases_calls import acquire, release
from tests.unit.server.coordinator.calls.test_tiering_calls import LAKE_TABLE, alter
from tests.unit.server.coordinator.tiering.test_lake_snapshots import commit, prepare
from tests.unit.server.kv_support import KvCaller
from tests.unit.server.scan_support import open_scan
from tests.unit.server.support import PATH, Node, OwnedClock, batch
from tests.unit.server.tablet.logs.test_recovery import fill, folder_of, names

HOUR_MS = 3_600_000
QUIET = {"kv_snapshot_interval_ms": 0, "log_ttl_check_interval_ms": 0, "segment_bytes": 1_300}


@pytest.fixture
def node(start: Callable[..., Node], clock: OwnedClock) -> Node:
    return start(clock=clock, **QUIET)


def check(node: Node) -> int:
    """Deletes what has expired, and returns how many segments that were."""
    return node.cluster._parts.retention.check()  # type: ignore[union-attr]


def filled(node: Node, ttl: str = "1 h") -> int:
    """A table with twenty rows in several segments."""
    table = fill(node.caller)
    alter(node.caller, "table.log.ttl", ttl)
    return table


def test_old_segments_are_deleted(node: Node, clock: OwnedClock, tmp_path: Path) -> None:
    table = filled(node)
    before = node.caller.read_all(table)
    logs = names(folder_of(tmp_path, table), ".log")
    clock.ms += HOUR_MS
    assert check(node) == 0
    clock.ms += 1
    assert check(node) == len(logs) - 1
    first = int(Path(logs[-1]).stem)
    for _ in range(2):
        assert names(folder_of(tmp_path, table), ".log") == logs[-1:]
        assert node.caller.offsets(table, kind=0) == [first]
        assert node.caller.offsets(table, kind=1) == [20]
        assert node.caller.offsets(table, kind=2, startTimestamp=0) == [first]
        assert node.caller.read_all(table) == [one for one in before if one[0] >= first]
        with pytest.raises(LogOffsetOutOfRange, match=f"outside the log, .* {first} to 20"):
            node.caller.fetch(table, first - 1)
        assert check(node) == 0
        node.restart()
    assert node.caller.produce(table, batch("more", writer_id=0, sequence=10)) == 20


def test_a_young_batch_keeps_its_segment(node: Node, clock: OwnedClock) -> None:
    table = fill(node.caller, 4)
    alter(node.caller, "table.log.ttl", "1h")
    clock.ms += HOUR_MS
    for n in range(4, 10):
        node.caller.produce(table, batch("y" * 100, writer_id=0, sequence=n))
    clock.ms += 1
    check(node)
    (start,) = node.caller.offsets(table, kind=0)
    assert start <= 8  # the segment that has the fourth batch and younger ones


def test_the_default_is_that_of_fluss_and_zero_keeps_all(node: Node, clock: OwnedClock) -> None:
    table = fill(node.caller)
    clock.ms += 7 * 24 * HOUR_MS
    assert check(node) == 0
    clock.ms += 1
    alter(node.caller, "table.log.ttl", "0")
    assert check(node) == 0
    alter(node.caller, "table.log.ttl", "8 d")
    assert check(node) == 0
    alter(node.caller, "table.log.ttl", "7 d")
    assert check(node) > 0
    assert node.caller.offsets(table, kind=0) > [0]


def test_the_check_runs_in_the_background(start: Callable[..., Node], clock: OwnedClock) -> None:
    node = start(clock=clock, **QUIET | {"log_ttl_check_interval_ms": 1})
    table = filled(node)
    clock.ms += HOUR_MS + 1
    wait_for("deletion", lambda: node.caller.offsets(table, kind=0) > [0])


def test_an_upgrade_deletes_nothing_at_once(node: Node, clock: OwnedClock) -> None:
    filled(node)
    parts = node.cluster._parts
    assert parts is not None
    with parts._database.transaction() as connection:  # as an earlier version left it
        connection.execute("DELETE FROM counters WHERE name = 'log_ttl_since_ms'")
    clock.ms += 100 * HOUR_MS
    with capture_logs() as events:
        node.restart()
    assert any("deletes log segments" in event["event"] for event in events)
    clock.ms += HOUR_MS
    assert check(node) == 0
    with capture_logs() as events:
        node.restart()
    assert not any("deletes log segments" in event["event"] for event in events)
    clock.ms += 1
    assert check(node) > 0


def test_what_the_lake_lacks_stays(node: Node, clock: OwnedClock) -> None:
    table = node.caller.create_table(
        descriptor=LAKE_TABLE, properties=LAKE_TABLE.properties | {"table.log.ttl": "1h"}
    )
    for n in range(10):
        node.caller.produce(table, batch(str(n) * 100, "x"))
    clock.ms += HOUR_MS + 1
    assert check(node) == 0
    commit(node.caller, table, 1, prepare(node.caller, table, {0: 9}))
    assert check(node) == 1
    (start,) = node.caller.offsets(table, kind=0)
    assert 0 < start <= 9
    alter(node.caller, "table.datalake.enabled", "false")
    assert check(node) > 0


# -- primary-key tables


def filled_kv(node: Node) -> KvCaller:
    kv = KvCaller(node.caller, properties={"table.log.ttl": "1h"})
    for n in range(12):
        kv.put((n, "x" * 200, n))
    return kv


def start_of(kv: KvCaller) -> int:
    return kv.caller.offsets(kv.table_id, kind=0)[0]


def test_a_store_can_always_be_recovered(node: Node, clock: OwnedClock, tmp_path: Path) -> None:
    kv = filled_kv(node)
    clock.ms += HOUR_MS + 1
    assert check(node) == 0  # nothing but the log has the rows
    node.cluster.take_kv_snapshots(kv.path)
    for n in range(12, 20):
        kv.put((n, "x" * 200, n))
    clock.ms += HOUR_MS + 1
    assert check(node) > 0
    assert 0 < start_of(kv) <= 12
    node.stop()
    shutil.rmtree(tmp_path / "data/kv")
    node.start()
    again = KvCaller(node.caller, create=False)
    assert [again.lookup((n,))[0] for n in range(20)] == [(n, "x" * 200, n) for n in range(20)]


def test_a_store_that_is_older_than_the_log_comes_from_its_snapshot(
    node: Node, clock: OwnedClock, tmp_path: Path
) -> None:
    kv = KvCaller(node.caller, properties={"table.log.ttl": "1h"})
    kv.put((0, "x", 0))
    node.stop()
    shutil.copytree(tmp_path / "data/kv", tmp_path / "old")
    node.start()
    kv = KvCaller(node.caller, create=False)
    for n in range(1, 12):
        kv.put((n, "x" * 200, n))
    node.cluster.take_kv_snapshots(kv.path)
    clock.ms += HOUR_MS + 1
    assert check(node) > 0
    node.stop()
    shutil.rmtree(tmp_path / "data/kv")
    shutil.copytree(tmp_path / "old", tmp_path / "data/kv")
    node.start()
    again = KvCaller(node.caller, create=False)
    assert again.lookup((11,)) == [(11, "x" * 200, 11)]


def test_a_leased_snapshot_keeps_the_log_behind_it(node: Node, clock: OwnedClock) -> None:
    kv = KvCaller(node.caller, properties={"table.log.ttl": "1h"})
    kv.put((0, "x" * 200, 0))
    [leased] = node.cluster.take_kv_snapshots(kv.path).values()
    assert acquire(node, kv.table_id, (None, 0, leased)) == []
    for n in range(1, 20):
        kv.put((n, "x" * 200, n))
        if n > 15:
            node.cluster.take_kv_snapshots(kv.path)
    clock.ms += HOUR_MS + 1
    assert check(node) == 0
    release(node, kv.table_id)
    node.cluster._parts._kv_snapshots.retain()  # type: ignore[union-attr]
    assert check(node) > 0


def test_a_scan_keeps_the_log_behind_it(node: Node, clock: OwnedClock) -> None:
    kv = filled_kv(node)
    scan = open_scan(kv)
    for n in range(12, 30):
        kv.put((n, "x" * 200, n))
    node.cluster.take_kv_snapshots(kv.path)
    clock.ms += HOUR_MS + 1
    check(node)
    assert 0 < start_of(kv) <= 12
    scan.close()
    assert check(node) > 0
    assert start_of(kv) > 12


# -- crashes, failures and races


def test_a_crash_in_the_middle_leaves_a_log_without_a_hole(
    node: Node, clock: OwnedClock, tmp_path: Path, start: Callable[..., Node]
) -> None:
    table = filled(node)
    before = node.caller.read_all(table)
    node.stop()
    files = sorted(folder_of(tmp_path, table).glob("*.*"), key=lambda p: (p.stem, p.suffix))
    files = files[:-2]  # the last segment stays; each index goes before its log
    for count in range(len(files) + 1):
        shutil.copytree(tmp_path / "data", tmp_path / f"{count}/data")
        folder = folder_of(tmp_path / f"{count}", table)
        for path in files[:count]:
            (folder / path.name).unlink()
        other = Node(tmp_path / f"{count}/data", clock=clock, **QUIET)
        try:
            first = int(files[count].stem) if count < len(files) else None
            found = other.caller.read_all(table)
            assert (
                found == [one for one in before if first is None or one[0] >= first][-len(found) :]
            )
            assert other.caller.offsets(table, kind=0) == [found[0][0]]
            assert first is None or found[0][0] == first
            assert other.caller.produce(table, batch("x", writer_id=0, sequence=10)) == 20
        finally:
            other.stop()


@pytest.mark.parametrize("ttl", ["1 h", "0"])
def test_a_failed_deletion_is_tried_again(
    node: Node, clock: OwnedClock, tmp_path: Path, ttl: str
) -> None:
    table = node.caller.create_table(bucket_count=2, properties={"table.log.ttl": "1 h"})
    for n in range(20):
        node.caller.produce(table, batch(str(n) * 100), bucket=n % 2)
    folder = folder_of(tmp_path, table)
    logs = names(folder, ".log")
    assert len(logs) > 2
    in_the_way = folder / f"{Path(logs[1]).stem}.folder"
    in_the_way.mkdir()
    clock.ms += HOUR_MS + 1
    for _ in range(2):
        with capture_logs() as events:
            check(node)
        [failed] = [event for event in events if event["log_level"] == "error"]
        assert failed["event"] == "old log segments were not deleted"
        assert in_the_way.name in failed["error"]
    assert len(names(folder.with_name("log-1"), ".log")) == 1  # the other bucket is not held up
    (first,) = node.caller.offsets(table, kind=0)
    assert set(logs[2:]) <= set(names(folder, ".log"))  # they wait for the second
    alter(node.caller, "table.log.ttl", ttl)
    in_the_way.rmdir()
    assert check(node) == len(logs) - 2
    assert names(folder, ".log") == logs[-1:]
    node.restart()
    assert node.caller.offsets(table, kind=0) == [first]


def test_segments_are_deleted_from_the_oldest_on_and_indexes_first(
    node: Node, clock: OwnedClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = filled(node)
    order: list[str] = []
    unlink = Path.unlink

    def noted(path: Path, missing_ok: bool = False) -> None:
        if path.exists() and path.parent == folder_of(tmp_path, table):
            order.append(path.name)
        unlink(path, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", noted)
    clock.ms += HOUR_MS + 1
    check(node)
    assert len(order) > 4
    assert order == sorted(order)  # .index comes before .log


def test_idle_writers_are_remembered(node: Node, clock: OwnedClock) -> None:
    table = node.caller.create_table(properties={"table.log.ttl": "1h"})
    idle, busy = node.caller.init_writer(), node.caller.init_writer()
    for n in range(3):
        node.caller.produce(table, batch("x", writer_id=idle, sequence=n))
    for n in range(10):
        node.caller.produce(table, batch("y" * 100, writer_id=busy, sequence=n))
    clock.ms += HOUR_MS + 1
    assert check(node) > 0
    (start,) = node.caller.offsets(table, kind=0)
    assert start > 3
    for _ in range(2):
        assert node.caller.produce(table, batch("x", writer_id=idle, sequence=2)) == 2
        with pytest.raises(OutOfOrderSequence):
            node.caller.produce(table, batch("x", writer_id=idle, sequence=4))
        node.restart()
    assert node.caller.produce(table, batch("x", writer_id=idle, sequence=3)) == 13


class Racing(LogFiles):
    """Real files; once, something happens before a read."""

    before_read: Any = None

    def read_into(self, path: Path, position: int, target: memoryview) -> None:
        action, self.before_read = self.before_read, None
        if action is not None:
            action()
        super().read_into(path, position, target)


def test_a_fetch_whose_segment_is_deleted_is_told_why(
    start: Callable[..., Node], clock: OwnedClock
) -> None:
    files = Racing()
    node = start(clock=clock, files=files, **QUIET)
    table = filled(node)
    clock.ms += HOUR_MS + 1
    files.before_read = lambda: check(node)
    with pytest.raises(LogOffsetOutOfRange, match="offset 0 is outside the log"):
        node.caller.fetch(table, 0)


def test_a_table_whose_lake_offsets_are_lost_keeps_its_log(
    node: Node, clock: OwnedClock, tmp_path: Path
) -> None:
    table = node.caller.create_table(
        descriptor=LAKE_TABLE, properties=LAKE_TABLE.properties | {"table.log.ttl": "1h"}
    )
    for n in range(10):
        node.caller.produce(table, batch(str(n) * 100, "x"))
    commit(node.caller, table, 1, prepare(node.caller, table, {0: 20}))
    for path in (tmp_path / "data/remote/lake").rglob("*.offsets"):
        path.unlink()
    clock.ms += HOUR_MS + 1
    with capture_logs() as events:
        assert check(node) == 0
    assert [event["table"] for event in events] == [str(PATH)]
