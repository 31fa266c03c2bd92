"""Windows that are divided into parts: joined they are what one split would have copied."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice.errors import SplitFailed, StorageError
from sluice.model import EARLIEST, TableBucket
from sluice.model import types as t
from sluice.rounds.copy.parts import PartRules, in_copy_order
from sluice.rounds.copy.split import copy_split
from sluice.rounds.values.types import (
    KeyedSplitOptions,
    OffsetRange,
    Split,
    SplitFailure,
    SplitLimit,
    SplitResult,
)
from tests.support.models.memory_cluster import MemoryCluster
from tests.support.models.memory_lake import MemoryLakeTable
from tests.support.models.tables import table_info

INFO = table_info({"a": t.BIGINT})
BUCKET = TableBucket(INFO.table_id, None, 0)
MILLION = 1_000_000
ROWS = pa.RecordBatch.from_pydict({"a": pa.array(range(16), pa.int64())})


def window(stop: int, start: int = 0, bucket: int = 0) -> Split:
    return Split(TableBucket(INFO.table_id, None, bucket), (), start, stop)


class StandingClock:
    """Stands still until a batch is read, which takes a second."""

    seconds = 1_000

    def now_ms(self) -> int:
        return 1000 * self.seconds

    def monotonic_s(self) -> float:
        return float(self.seconds)

    def sleep(self, seconds: float) -> None:
        raise AssertionError("nothing here sleeps")


class Copies:
    """A log of batches of the given sizes (0: an empty batch), and copies of its windows."""

    def __init__(self, sizes: Sequence[int], first: int = 0) -> None:
        self.log, self.table, self.clock = (
            MemoryCluster(INFO),
            MemoryLakeTable("x"),
            StandingClock(),
        )
        self.log.starts[BUCKET] = first
        for i, size in enumerate(sizes):
            self.log.append(BUCKET, ROWS.slice(0, size), timestamp_ms=i)
        self.end = self.log.latest_offsets(INFO.path, INFO.table_id, None, [0])[0]
        self.unreadable: set[int] = set()
        """Base offsets of batches."""
        self.batch_s = 0

    def read(self, split: Split):  # type: ignore[no-untyped-def]
        for records in self.log.read(split):
            if records.base_offset in self.unreadable:
                raise StorageError(f"offset {records.base_offset} cannot be read")
            yield records
            self.clock.seconds += self.batch_s

    def copy(self, split: Split) -> SplitResult | SplitFailure:
        writers = self.table.writer_factory("w", [split])
        return copy_split(split, self, writers, clock=self.clock)

    def offsets_in(self, result: SplitResult) -> list[int]:
        return sorted(row[2] for file in result.files for row in self.table.files[file.path])


SIZES = st.lists(st.integers(0, 12), min_size=1, max_size=25)
RULES = st.builds(PartRules, st.integers(2, 6), st.integers(1, 20))


@settings(deadline=None)
@given(SIZES, RULES, st.integers(0, 40), st.booleans(), st.data())
def test_parts_that_are_joined_are_one_split(
    sizes: list[int], rules: PartRules, first: int, from_earliest: bool, data: st.DataObject
) -> None:
    copies = Copies(sizes, first)
    start = EARLIEST if from_earliest else data.draw(st.integers(first, copies.end - 1))
    stop = data.draw(st.integers(max(first, start) + 1, copies.end))
    split = replace(window(stop, start), earliest_offset=first)
    alone = copies.copy(split)
    assert isinstance(alone, SplitResult)
    held = copies.offsets_in(alone)
    parts = rules.divide([split])
    outcomes = data.draw(st.permutations([copies.copy(part) for part in parts]))
    joined = rules.join(parts, outcomes)
    assert (joined.failures, joined.unused) == ([], [])
    [result] = joined.results
    assert copies.offsets_in(result) == held
    assert len({file.path for file in result.files}) == len(result.files)
    assert result.next_offset == alone.next_offset == stop
    assert (result.rows, result.limit_reached) == (alone.rows, "")
    assert result.max_timestamp_ms == alone.max_timestamp_ms
    assert result.bytes_read == alone.bytes_read
    assert set(result.seconds) == set(alone.seconds)


@settings(deadline=None)
@given(SIZES, RULES, st.integers(0, 30), st.data())
def test_what_a_deadline_leaves_is_a_window_without_gaps(
    sizes: list[int], rules: PartRules, seconds: int, data: st.DataObject
) -> None:
    copies = Copies(sizes)
    now_ms = copies.clock.now_ms()
    copies.batch_s = 1
    limit = SplitLimit(now_ms + 1000 * seconds, 1000 * seconds)
    parts = rules.divide([replace(window(copies.end), limit=limit)])
    ran = data.draw(st.permutations(parts))
    joined = rules.join(parts, [copies.copy(part) for part in ran])
    [result] = joined.results
    assert joined.failures == []
    check_kept(copies, parts, joined.unused, result)
    assert (result.next_offset == copies.end) == (not result.limit_reached)


@settings(deadline=None)
@given(SIZES, RULES, st.data())
def test_a_part_that_fails_leaves_the_parts_before_it(
    sizes: list[int], rules: PartRules, data: st.DataObject
) -> None:
    copies = Copies(sizes)
    bases = [records.base_offset for records in copies.log.logs[BUCKET]]
    copies.unreadable = set(data.draw(st.lists(st.sampled_from(bases), min_size=1, max_size=3)))
    parts = rules.divide([window(copies.end)])
    outcomes = data.draw(st.permutations([copies.copy(part) for part in parts]))
    joined = rules.join(parts, outcomes)
    [failure] = joined.failures
    lost = min(copies.unreadable)
    assert failure.reason.text == f"offset {lost} cannot be read"
    assert len(joined.results) <= 1
    for result in joined.results:
        assert result.next_offset <= lost
        check_kept(copies, parts, joined.unused, result)


def check_kept(
    copies: Copies, parts: Sequence[Split], unused: Sequence[object], result: SplitResult
) -> None:
    """The result has each row before its end once; all other files are unused."""
    log = copies.log.logs[BUCKET]
    assert result.next_offset in {records.next_offset for records in log}
    before = [r for r in log if r.next_offset <= result.next_offset]
    expected = [r.base_offset + i for r in before for i in range(r.batch.num_rows)]
    assert copies.offsets_in(result) == expected
    assert result.rows == len(expected)
    kept = {file.path for file in result.files}
    assert kept | {file.path for file in unused} == set(copies.table.files)  # type: ignore[attr-defined]
    assert kept.isdisjoint(file.path for file in unused)  # type: ignore[attr-defined]


def test_a_log_that_changed_between_its_parts_is_a_failure() -> None:
    copies = Copies([5, 5, 5, 5])
    rules = PartRules(2, 5)
    parts = rules.divide([window(20)])
    first = copies.copy(parts[0])
    copies.log.logs[BUCKET] = []  # another leader, with other batches
    for size in (7, 7, 6):
        copies.log.append(BUCKET, ROWS.slice(0, size))
    joined = rules.join(parts, [first, *(copies.copy(part) for part in parts[1:])])
    [failure] = joined.failures
    assert failure.reason.text == (
        f"bucket {BUCKET}: a part of its log ended at offset 5, and the next part began at offset"
        " 7: the log has changed while it was read"
    )
    assert [result.next_offset for result in joined.results] == [5]
    assert len(joined.unused) == 2


@settings(deadline=None)
@given(SIZES, RULES, st.data())
def test_retention_may_delete_the_first_parts_of_a_bucket_never_tiered(
    sizes: list[int], rules: PartRules, data: st.DataObject
) -> None:
    copies = Copies(sizes)
    parts = rules.divide([window(copies.end, EARLIEST)])
    copies.log.truncate_before(BUCKET, data.draw(st.integers(0, copies.end - 1)))
    joined = rules.join(parts, [copies.copy(part) for part in parts])
    [result] = joined.results
    assert (joined.failures, joined.unused) == ([], [])
    held = [r.base_offset + i for r in copies.log.logs[BUCKET] for i in range(r.batch.num_rows)]
    assert copies.offsets_in(result) == held
    assert result.next_offset == copies.end


def test_nothing_is_committed_of_a_bucket_of_which_nothing_was_read() -> None:
    copies, rules = Copies([5, 5, 5, 5]), PartRules(2, 5)
    limit = SplitLimit(copies.clock.now_ms(), 60_000)
    parts = rules.divide([replace(window(20, EARLIEST), limit=limit)])
    copies.log.truncate_before(BUCKET, 12)
    joined = rules.join(parts, [copies.copy(part) for part in parts])
    assert (joined.results, joined.unused) == ([], [])
    [failure] = joined.failures
    assert failure.reason.retryable
    assert "its log begins at offset 10 since the round was planned" in failure.reason.text


def test_a_part_without_an_outcome_or_with_two_is_an_error() -> None:
    copies, rules = Copies([5, 5, 5, 5]), PartRules(2, 5)
    parts = rules.divide([window(20)])
    outcomes = [copies.copy(part) for part in parts]
    with pytest.raises(SplitFailed, match="4 splits were planned, but 3 returned a result"):
        rules.join(parts, outcomes[1:])
    with pytest.raises(SplitFailed, match="4 splits were planned, but 5 returned a result"):
        rules.join(parts, [*outcomes, outcomes[2]])
    with pytest.raises(SplitFailed, match="4 splits were planned, but 4 returned a result"):
        rules.join(parts, [*outcomes[1:], outcomes[2]])


def test_a_later_part_after_the_deadline_opens_no_log() -> None:
    copies = Copies([5, 5])
    now_ms = copies.clock.now_ms()
    late = replace(window(10), limit=SplitLimit(now_ms, 60_000))
    first, second = PartRules(2, 5).divide([late])
    copies.log.logs.clear()
    copies.log.starts[BUCKET] = 50  # any read would fail
    result = copies.copy(second)
    assert isinstance(result, SplitResult)
    assert (result.files, result.begin_offset, result.limit_reached) == ((), None, "time")
    assert isinstance(copies.copy(first), SplitFailure)


@pytest.mark.parametrize(
    ("parallelism", "stops", "expected"),
    [
        (1, [9 * MILLION], [1]),
        (2, [MILLION], [1]),
        (2, [1_400_000], [1]),
        (2, [4 * MILLION], [4]),
        (2, [4_500_000], [4]),
        (8, [4 * MILLION], [4]),
        (2, [MILLION] * 8, [1] * 8),
        (2, [6 * MILLION, 100_000], [4, 1]),
        (2, [100 * MILLION], [25]),
        (2, [100_000 * MILLION], [1000]),
    ],
)
def test_the_number_of_parts(parallelism: int, stops: list[int], expected: list[int]) -> None:
    splits = [window(stop, bucket=i) for i, stop in enumerate(stops)]
    parts = PartRules(parallelism).divide(splits)
    counts = [sum(part.bucket == split.bucket for part in parts) for split in splits]
    assert counts == expected
    for split in splits:
        mine = [part for part in parts if part.bucket == split.bucket]
        assert mine[0].start_offset == split.start_offset
        assert mine[-1].stop_offset == split.stop_offset
        assert [part.stop_offset for part in mine[:-1]] == [part.start_offset for part in mine[1:]]
        assert pickle.loads(pickle.dumps(mine)) == mine


def test_what_is_not_divided() -> None:
    long = window(9 * MILLION)
    keyed = replace(long, keyed=KeyedSplitOptions(("a",)))
    limited = replace(long, limit=SplitLimit(1, 1, max_bytes=1000))
    skipping = replace(long, skipped=(OffsetRange(BUCKET, 5, 9),))
    assert PartRules(2).divide([keyed, limited, skipping]) == [keyed, limited, skipping]
    assert PartRules(2, 0).divide([long]) == [long]


def test_a_window_from_the_earliest_offset_is_divided_where_the_log_begins() -> None:
    split = replace(window(14 * MILLION, EARLIEST), earliest_offset=10 * MILLION)
    parts = PartRules(2).divide([split])
    assert [part.start_offset // MILLION for part in parts[1:]] == [11, 12, 13]
    assert parts[0].start_offset == EARLIEST


def test_first_parts_start_before_later_ones() -> None:
    parts = PartRules(2).divide([window(2 * MILLION), window(6 * MILLION, bucket=1)])
    order = [(part.bucket.bucket, part.part_number) for part in in_copy_order(parts)]
    assert order == [(0, 0), (1, 0), (1, 1), (1, 2)]
