"""Scans while store, table, client or time end them: at every gap, one after the other.

The stores are the server's own. A wrapper around them stops at each gap of a call and acts
there; what has to wait for the call is seen to wait for it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sluice.errors import (
    FlussError,
    ScannerExpired,
    UnknownScannerId,
    UnknownTableOrBucket,
)
from sluice.formats.kv.value_batch import values_of
from sluice.model import TableBucket, TablePath
from sluice.scans import ContinueScan, OpenScan, ScanLimits
from sluice.server.tablet.buckets.replicas import Replicas
from sluice.server.tablet.kv.manager import KvManager
from sluice.server.tablet.kv.scan_context import Pin, View
from sluice.server.tablet.kv.scan_manager import ScanBatch, ScannableTablet, ScannerManager
from sluice.server.tablet.kv.scan_view import Rows
from sluice.server.tablet.kv.tablet import KvTablet
from tests.support.harness.findings import finding
from tests.unit.server.kv_support import KvCaller, Row
from tests.unit.server.support import Node, OwnedClock
from tests.unit.server.tablet.kv.test_kv_tablets import open_files

ROWS = [(number, f"text {number}", number) for number in range(40)]
SMALL = 100

OUTSIDE = ("at the name", "before the lock", "behind the lock")
OPENING = ("before the view", "after the view", "at the pin")
READING = ("before the read", "behind the read")


class MonotonicClock(OwnedClock):
    """All time stands until the test moves it."""

    def monotonic_s(self) -> float:
        return self.ms / 1000


class Gaps:
    """The stores of a server, and what happens at the gaps of the next call."""

    def __init__(self, stores: KvManager) -> None:
        self._stores = stores
        self._at: dict[str, Callable[[], None]] = {}
        self.passed: list[str] = []

    def at(self, gap: str, act: Callable[[], None]) -> None:
        """Does something at a gap, once."""
        self._at[gap] = act

    def reach(self, gap: str) -> None:
        self.passed.append(gap)
        act = self._at.pop(gap, None)
        if act is not None:
            act()

    @contextmanager
    def leading(self, bucket: TableBucket) -> Iterator[ScannableTablet]:
        self.reach("before the lock")
        with self._stores.leading(bucket) as tablet:
            yield GapsTablet(self, tablet)
        self.reach("behind the lock")

    def pin(self, bucket: TableBucket) -> Pin:
        self.reach("at the pin")
        return self._stores.pin(bucket)

    def on_closing(self, listener: Callable[[TableBucket], None]) -> None:
        self._stores.on_closing(listener)

    def name(self) -> str:
        self.reach("at the name")
        return f"scan-{len(self.passed)}"


class GapsTablet:
    def __init__(self, gaps: Gaps, tablet: KvTablet) -> None:
        self._gaps, self._tablet = gaps, tablet

    def open_view(self) -> tuple[View, int]:
        self._gaps.reach("before the view")
        view, log_offset = self._tablet.open_view()
        self._gaps.reach("after the view")
        return GapsView(self._gaps, view), log_offset


class GapsView:
    def __init__(self, gaps: Gaps, view: View) -> None:
        self._gaps, self._view = gaps, view

    def read(
        self, start: bytes | None, rows_max: int | None, batch_bytes: int, bytes_max: int
    ) -> Rows:
        self._gaps.reach("before the read")
        rows = self._view.read(start, rows_max, batch_bytes, bytes_max)
        self._gaps.reach("behind the read")
        return rows

    def release(self) -> None:
        self._view.release()


class Site:
    """One server, a table for each case, and scans of it through the gaps."""

    def __init__(self, node: Node, data: Path) -> None:
        assert node.cluster._parts is not None
        self.node = node
        self._data = data
        self.stores: KvManager = node.cluster._parts._kv
        self.replicas: Replicas = node.cluster._parts._replicas
        self.clock = MonotonicClock()
        self.gaps = Gaps(self.stores)
        self.scanners = ScannerManager(
            self.gaps,
            self.clock,
            ScanLimits(ttl_ms=1_000),
            message_bytes_max=1 << 20,
            new_id=self.gaps.name,
        )
        self._tables = 0
        self._threads: list[threading.Thread] = []

    def table(self) -> None:
        """A new table, which all that follows is about."""
        self._tables += 1
        self.kv = KvCaller(self.node.caller, TablePath("db", f"t{self._tables}"))
        self.kv.put(*ROWS)
        self.bucket = TableBucket(self.kv.table_id, None, 0)

    # -- calls

    def open(self) -> ScanBatch:
        return self.scanners.open(OpenScan(self.bucket, None, SMALL))

    def more(self, scan: ScanBatch, call: int, batch_bytes: int = SMALL) -> ScanBatch:
        assert scan.scanner_id is not None
        return self.scanners.resume(ContinueScan(scan.scanner_id, call, batch_bytes))

    def rows(self, *answers: ScanBatch) -> list[Row | None]:
        return [
            row
            for answer in answers
            if answer.records is not None
            for row in self.kv.rows(values_of(answer.records))
        ]

    # -- what happens meanwhile

    def lose(self, how: str) -> None:
        if how == "closed":
            with self.replicas.exclusive(self.bucket):
                self.stores._lost(self.bucket)
        else:
            self.node.caller.drop_table(self.kv.path)

    def begin(self, act: Callable[[], object]) -> threading.Thread:
        thread = threading.Thread(target=act)
        self._threads.append(thread)
        thread.start()
        return thread

    def lose_soon(self, how: str) -> None:
        """Begins to lose the bucket; returns when that waits for the call under way."""
        lock = self.replicas._lock_of(self.bucket)
        self.begin(lambda: self.lose(how))
        until(lambda: lock._writers_waiting == 1)

    def wait(self) -> None:
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive()
        self._threads.clear()

    # -- what is left

    @finding()
    def check_nothing_left(self) -> None:
        """No session, no snapshot of RocksDB, no open store that nobody can open again."""
        assert self.scanners.open_scans == self.scanners._sessions.reserved == 0
        assert not self.scanners._contexts
        assert self.bucket not in self.stores._pins
        try:
            self.replicas._check_there(self.bucket)
        except UnknownTableOrBucket:
            folder = self._data / "kv" / "db" / f"{self.kv.path.table}-{self.kv.table_id}"
            assert open_files(folder) == []
            return
        assert self.kv.scan() == ROWS
        with self.stores.leading(self.bucket) as tablet:
            assert tablet.snapshots_open() == 0


def until(happened: Callable[[], bool]) -> None:
    waiting = threading.Event()
    for _ in range(6_000):
        if happened():
            return
        waiting.wait(0.01)
    raise AssertionError("it did not happen in a minute")


@pytest.fixture
def site(node: Node, tmp_path: Path) -> Iterator[Site]:
    site = Site(node, tmp_path / "data")
    yield site
    site.scanners.stop()


LOSSES = ("closed", "dropped")


def test_a_store_is_lost_at_each_gap_of_an_open(site: Site) -> None:
    seen: set[str] = set()
    for gap in ("at the name", "before the lock"):
        site.table()
        site.gaps.at(gap, lambda: site.lose("dropped"))
        with pytest.raises(UnknownTableOrBucket):
            site.open()
        site.check_nothing_left()
        seen |= set(site.gaps.passed)
    for how in LOSSES:
        for gap in (*OPENING, *READING):
            site.table()
            site.gaps.at(gap, lambda how=how: site.lose_soon(how))
            scan = site.open()  # it was first
            site.wait()
            assert site.rows(scan) == ROWS[: len(site.rows(scan))]
            with pytest.raises(ScannerExpired, match="no longer serves its bucket"):
                site.more(scan, 1)
            site.check_nothing_left()
        site.table()
        site.gaps.at("behind the lock", lambda how=how: site.lose(how))
        scan = site.open()
        assert scan.has_more
        with pytest.raises(ScannerExpired):
            site.more(scan, 1)
        site.check_nothing_left()
        seen |= set(site.gaps.passed)
    assert seen == {*OUTSIDE, *OPENING, *READING}
    assert not site.gaps._at


def test_a_store_is_lost_at_each_gap_of_a_continuation(site: Site) -> None:
    for how in LOSSES:
        for call, batch_bytes in ((0, SMALL), (1, SMALL), (1, 1 << 19)):  # again, next, last
            site.table()
            scan = site.open()
            site.gaps.at("before the lock", lambda how=how: site.lose(how))
            with pytest.raises((UnknownTableOrBucket, ScannerExpired)):
                site.more(scan, call, batch_bytes)
            site.check_nothing_left()
            for gap in READING:
                site.table()
                scan = site.open()
                site.gaps.at(gap, lambda how=how: site.lose_soon(how))
                answer = site.more(scan, call, batch_bytes)
                site.wait()
                found = site.rows(scan, *[answer] * (call > 0))
                assert found == ROWS[: len(found)]
                assert answer.has_more == (len(found) < len(ROWS))
                with pytest.raises(FlussError) as error:
                    site.more(scan, call + 1)
                expected = ScannerExpired if answer.has_more else UnknownScannerId
                assert type(error.value) is expected
                site.check_nothing_left()
    assert not site.gaps._at


def test_a_client_closes_its_scan_at_each_gap_of_a_call(site: Site) -> None:
    site.table()
    for gap in ("before the lock", *READING):
        for batch_bytes in (SMALL, 1 << 19):
            scan = site.open()
            assert scan.scanner_id is not None
            name = scan.scanner_id
            site.gaps.at(gap, lambda name=name: site.scanners.close(name))
            with pytest.raises(UnknownScannerId):
                site.more(scan, 1, batch_bytes)
            site.check_nothing_left()
    scan = site.open()
    assert scan.scanner_id is not None
    name = scan.scanner_id
    site.gaps.at("behind the lock", lambda: site.scanners.close(name))
    assert site.more(scan, 1).has_more
    site.check_nothing_left()


def test_time_runs_out_at_each_gap_of_a_call(site: Site) -> None:
    site.table()
    expired: list[int] = []

    def expire() -> None:
        site.clock.ms += 1_001
        expired.append(site.scanners.expire())

    scan = site.open()
    site.gaps.at("before the lock", expire)
    with pytest.raises(ScannerExpired, match="it was idle for more than 1000 ms"):
        site.more(scan, 1)
    assert expired == [1]
    site.check_nothing_left()
    scan = site.open()
    first = site.rows(scan)
    for call, gap in ((1, "before the read"), (2, "behind the read")):
        site.gaps.at(gap, expire)
        first += site.rows(site.more(scan, call))  # who reads is not idle
    assert first == ROWS[: len(first)]
    assert expired == [1, 0, 0]
    expire()
    assert expired[-1] == 1
    site.check_nothing_left()


@pytest.mark.parametrize("batch_bytes", [SMALL, 1 << 19])
def test_calls_that_overlap_do_each_other_no_harm(site: Site, batch_bytes: int) -> None:
    """The same call twice and the one behind it, all begun while the first of them reads."""
    site.table()
    for gap in READING:
        scan = site.open()
        assert scan.scanner_id is not None
        context = site.scanners._contexts[scan.scanner_id]
        answers: dict[str, ScanBatch | FlussError] = {}

        def ask(name: str, call: int, scan: ScanBatch = scan) -> None:
            try:
                answers[name] = site.more(scan, call, batch_bytes)  # noqa: B023
            except FlussError as error:
                answers[name] = error  # noqa: B023

        def overlap() -> None:
            site.begin(lambda: ask("same", 1))
            until(lambda: context._users == 2)  # noqa: B023

        site.gaps.at(gap, overlap)
        first = site.more(scan, 1, batch_bytes)
        site.wait()
        same = answers["same"]
        assert same == first
        rows = site.rows(scan, first)
        call = 2
        while first.has_more:
            first = site.more(scan, call)
            rows += site.rows(first)
            call += 1
        assert rows == ROWS
        site.check_nothing_left()


def test_opens_that_overlap_open_one_scan(site: Site) -> None:
    """The same open again while the first one is on its way, at each gap."""
    for gap in (*OPENING, *READING, "behind the lock"):
        site.table()
        request = OpenScan(site.bucket, None, SMALL, b"wanted" * 3)
        answers: list[ScanBatch] = []

        def overlap(request: OpenScan = request, answers: list[ScanBatch] = answers) -> None:
            thread = site.begin(lambda: answers.append(site.scanners.open(request)))
            thread.join(60)

        site.gaps.at(gap, overlap)
        assert site.scanners.open(request) == answers[0]
        assert site.scanners.open_scans == 1
        with site.stores.leading(site.bucket) as tablet:
            assert tablet.snapshots_open() == 1
        rows, call = site.rows(answers[0]), 1
        while answers[-1].has_more:
            answers.append(site.more(answers[0], call))
            rows += site.rows(answers[-1])
            call += 1
        assert rows == ROWS
        site.wait()
        site.check_nothing_left()


def test_a_call_that_comes_too_early_waits_for_the_one_before(site: Site) -> None:
    site.table()
    scan = site.open()
    assert scan.scanner_id is not None
    context = site.scanners._contexts[scan.scanner_id]
    answers: list[ScanBatch] = []

    def overlap() -> None:
        site.begin(lambda: answers.append(site.more(scan, 2)))
        until(lambda: context._users == 2)

    site.gaps.at("before the read", overlap)
    second = site.more(scan, 1)
    site.wait()
    rows = site.rows(scan, second, *answers)
    assert rows == ROWS[: len(rows)]
    site.scanners.close(scan.scanner_id)
    site.check_nothing_left()


def test_a_store_that_fails_under_a_call_ends_all_scans_of_it(site: Site) -> None:
    site.table()
    scans = [site.open(), site.open()]

    def fail() -> None:
        with site.stores.leading(site.bucket) as tablet:
            assert tablet._store is not None
            tablet._store.close()  # as if RocksDB had given up

    site.gaps.at("before the lock", fail)
    site.more(scans[0], 1)  # its rows are frozen
    with pytest.raises(FlussError, match="cannot be"):
        site.open()
    for scan in scans:
        with pytest.raises(ScannerExpired):
            site.more(scan, 2)
    site.check_nothing_left()


def test_a_server_that_stops_ends_its_scans_and_begins_none(site: Site) -> None:
    site.table()
    scan = site.open()
    site.scanners.start(3_600_000)
    site.scanners.stop()
    with pytest.raises(ScannerExpired, match="the server was stopped"):
        site.more(scan, 1)
    with pytest.raises(FlussError, match="is stopping"):
        site.open()
    site.check_nothing_left()
