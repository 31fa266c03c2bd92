"""Splits on threads: results as they come, and an end that leaves nothing running."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pytest

from sluice.driver.threads import ThreadRunner
from sluice.model import TableBucket
from sluice.model import types as t
from sluice.rounds.copy.parts import PartRules
from sluice.rounds.values.types import LogRecords, Split, SplitFailure, SplitLimit, SplitResult
from tests.support.models.memory_lake import MemoryLakeTable
from tests.support.models.tables import table_info

INFO = table_info({"a": t.BIGINT}, buckets=8)
SPLITS = [Split(TableBucket(1, None, n), (), 0, 10 + n) for n in range(8)]


class Log:
    """Ten batches or more per bucket; counts how many are read at once."""

    def __init__(self) -> None:
        self.lock = threading.Lock()  # guards the counts
        self.open = self.most = 0
        self.order: list[int] = []
        self.gate = threading.Event()
        self.gate.set()

    def read(self, split: Split) -> Iterator[LogRecords]:
        with self.lock:
            self.open += 1
            self.most = max(self.most, self.open)
            self.order.append(split.bucket.bucket)
        try:
            for offset in range(split.stop_offset):
                assert self.gate.wait(60)
                batch = pa.RecordBatch.from_pydict({"a": pa.array([offset])})
                yield LogRecords(batch, offset, offset + 1, 0, 1)
        finally:
            with self.lock:
                self.open -= 1


@pytest.mark.parametrize("parallelism", [1, 3, 20])
def test_every_split_comes_back_once_and_no_more_are_open_than_asked(parallelism: int) -> None:
    log, table = Log(), MemoryLakeTable("mem:/t")
    rows: list[int] = []
    writers = table.writer_factory("w", SPLITS)
    runner = ThreadRunner(log, writers, parallelism, on_rows=rows.append)
    results = list(runner(SPLITS))
    assert sorted(r.bucket.bucket for r in results) == list(range(8))
    assert all(isinstance(r, SplitResult) for r in results)
    assert len(rows) == sum(s.stop_offset for s in SPLITS)
    assert log.most <= parallelism
    assert log.open == 0


def test_long_logs_begin_first() -> None:
    log, table = Log(), MemoryLakeTable("mem:/t")
    list(ThreadRunner(log, table.writer_factory("w", SPLITS), 1)(SPLITS))
    assert log.order == [7, 6, 5, 4, 3, 2, 1, 0]


def test_a_runner_that_is_left_early_ends_its_splits_and_their_files() -> None:
    log, table = Log(), MemoryLakeTable("mem:/t")
    outcomes = ThreadRunner(log, table.writer_factory("w", SPLITS), 2)(SPLITS)
    first = next(outcomes)
    log.gate.clear()
    threading.Timer(0.05, log.gate.set).start()
    outcomes.close()  # type: ignore[attr-defined]
    assert log.open == 0
    assert set(table.files) <= {f"mem:/t/w-0-{b.bucket}" for b in SPLITS}
    assert isinstance(first, SplitResult)
    assert len(log.order) <= 4


def test_two_threads_copy_the_window_of_one_bucket() -> None:
    both = threading.Barrier(2)

    class Meeting:
        def read(self, split: Split) -> Iterator[LogRecords]:
            both.wait(60)
            for offset in range(split.start_offset, split.stop_offset):
                yield LogRecords(
                    pa.RecordBatch.from_pydict({"a": [offset]}), offset, offset + 1, 0, 1
                )

    rules, table = PartRules(parallelism=2, offsets=10), MemoryLakeTable("mem:/t")
    parts = rules.divide([Split(TableBucket(1, None, 0), (), 0, 40)])
    outcomes = list(ThreadRunner(Meeting(), table.writer_factory("w", parts), 2)(parts))
    [result] = rules.join(parts, outcomes).results
    assert (len(parts), result.rows, result.next_offset) == (4, 40, 40)


class TickingClock:
    """A second passes with each look."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards the seconds
        self._seconds = 0

    def now_ms(self) -> int:
        return 1000 * self._seconds

    def monotonic_s(self) -> float:
        with self._lock:
            self._seconds += 1
            return float(self._seconds)

    def sleep(self, seconds: float) -> None:
        raise AssertionError("nothing here sleeps")


@pytest.mark.parametrize("parallelism", [1, 3])
def test_after_the_deadline_every_split_still_gives_one_batch(parallelism: int) -> None:
    log, table = Log(), MemoryLakeTable("mem:/t")
    limited = [replace(split, limit=SplitLimit(8_000, 8_000)) for split in SPLITS]
    writers = table.writer_factory("w", limited)
    runner = ThreadRunner(log, writers, parallelism, clock=TickingClock())
    results = [r for r in runner(limited) if isinstance(r, SplitResult)]
    assert {result.limit_reached for result in results} == {"time"}
    assert len(results) == 8
    # What is written is what is told, batch by batch.
    written = {result.bucket: sum(file.rows for file in result.files) for result in results}
    assert written == {result.bucket: result.next_offset for result in results}
    assert min(written.values()) == 1
    assert sum(written.values()) < 30
    assert log.open == 0


def test_a_lost_claim_ends_what_is_being_copied() -> None:
    log, table = Log(), MemoryLakeTable("mem:/t")
    lost = threading.Event()
    lost.set()
    runner = ThreadRunner(log, table.writer_factory("w", SPLITS), 2, cancelled=lost)
    outcomes = list(runner(SPLITS))
    assert {type(o) for o in outcomes} == {SplitFailure}
    assert table.files == {}


def test_a_failed_split_ends_no_other() -> None:
    class Failing(Log):
        def read(self, split: Split) -> Iterator[LogRecords]:
            if split.bucket.bucket == 7:
                raise OSError("the disk is gone")
            return super().read(split)

    table = MemoryLakeTable("mem:/t")
    outcomes = list(ThreadRunner(Failing(), table.writer_factory("w", SPLITS), 2)(SPLITS))
    failed = [o.bucket.bucket for o in outcomes if isinstance(o, SplitFailure)]
    done = {o.bucket.bucket: o.rows for o in outcomes if isinstance(o, SplitResult)}
    assert failed == [7]
    assert done == {n: 10 + n for n in range(7)}


def test_after_the_claim_is_lost_splits_that_waited_read_nothing() -> None:
    log, lost = Log(), threading.Event()
    lost.set()
    table = MemoryLakeTable("mem:/t")
    list(ThreadRunner(log, table.writer_factory("w", SPLITS), 2, cancelled=lost)(SPLITS))
    assert log.order == []
