"""A round that would take too long, or too much, ends early and loses nothing."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pytest

from sluice.errors import InvalidConfig
from sluice.model import TableBucket, TableInfo
from sluice.model import types as t
from sluice.rounds.commit.options import RoundOptions
from sluice.rounds.copy.split import copy_split
from sluice.rounds.plan.plan import make_plan
from sluice.rounds.records.result import RoundResult
from sluice.rounds.round.round import run_round
from sluice.rounds.values.attempt import RoundPorts
from sluice.rounds.values.limits import Limiter, RoundLimits, with_limits
from sluice.rounds.values.ports import SplitRunner, SplitWriterFactory
from sluice.rounds.values.types import LogRecords, Split, SplitFailure, SplitLimit, SplitResult
from tests.support.models.memory_cluster import MemoryCluster
from tests.support.models.memory_lake import MemoryLake
from tests.support.models.tables import table_info
from tests.unit.rounds.conftest import World

BUCKET = TableBucket(1, None, 0)


@dataclass
class TestClock:
    """Stands still until it is moved."""

    __test__ = False
    epoch_ms: int = 1_000_000
    up_s: float = 50.0

    def now_ms(self) -> int:
        return self.epoch_ms

    def monotonic_s(self) -> float:
        return self.up_s

    def sleep(self, seconds: float) -> None:
        raise AssertionError("nothing here sleeps")

    def advance(self, ms: int) -> None:
        self.epoch_ms += ms
        self.up_s += ms / 1000


class SlowCluster(MemoryCluster):
    """Each batch takes its time to be read."""

    def __init__(self, info: TableInfo, clock: TestClock, batch_ms: int) -> None:
        super().__init__(info)
        self.clock, self.batch_ms = clock, batch_ms
        self.open = 0

    def read(self, split: Split) -> Iterator[LogRecords]:
        self.open += 1
        try:
            for records in super().read(split):
                self.clock.advance(self.batch_ms)
                yield records
        finally:
            self.open -= 1


class Site(World):
    """A world with a clock of its own and rounds that have limits."""

    cluster: SlowCluster

    def __init__(self, batch_ms: int = 1_000, **properties: str) -> None:
        named = {f"table.datalake.{key}": value for key, value in properties.items()}
        info = table_info({"a": t.BIGINT}, buckets=3, properties=named)
        self.clock = TestClock()
        super().__init__(SlowCluster(info, self.clock, batch_ms), MemoryLake())

    def limited_round(self, limits: RoundLimits) -> RoundResult:
        def runner(_: TableInfo, writers: SplitWriterFactory) -> SplitRunner:
            def run(splits: Sequence[Split]) -> Iterator[SplitResult | SplitFailure]:
                for split in splits:
                    yield copy_split(split, self.cluster, writers, clock=self.clock)

            return run

        self.attempts += 1
        return run_round(
            self.cluster.begin_round(),
            RoundPorts(self.cluster, self.lake, runner, self.clock),
            str(self.attempts),
            RoundOptions(limits=limits),
        )

    def until_done(self, limits: RoundLimits) -> list[RoundResult]:
        results = []
        while not results or results[-1].forced:
            results.append(self.limited_round(limits))
            assert len(results) < 100
        return results


def test_a_round_ends_at_its_time_and_commits_what_it_has() -> None:
    site = Site()
    for _ in range(10):
        site.append(0, 5)
    result = site.limited_round(RoundLimits(max_ms=4_000))
    assert (result.outcome, result.rows, result.offsets) == ("committed", 20, {"0": 20})
    assert result.forced == (
        "ended early after 4 s (tiering.max_round_ms): 30 offsets in 1 of 1 buckets are left"
        " for the next round"
    )
    assert site.offsets_in_lake() == list(range(20))
    registered = site.cluster.lake_snapshot(site.cluster.info.path)  # type: ignore[union-attr]
    assert registered is not None
    assert registered.offsets == {site.bucket(0): 20}
    assert site.cluster.open == 0  # what was fetched ahead is let go


def test_the_time_of_a_round_is_its_tables_freshness_and_a_minute_at_least() -> None:
    minutes = {"3 min": 180, "10min": 600, "1s": 60, "0s": 60}
    for freshness, seconds in minutes.items():
        site = Site(10_000, freshness=freshness)
        for _ in range(100):
            site.append(0, 1)
        result = site.limited_round(RoundLimits())
        assert result.rows == seconds / 10
        assert result.forced.startswith(f"ended early after {seconds} s (table.datalake.freshness)")
    assert RoundLimits().round_ms(table_info({"a": t.BIGINT})) == 180_000
    with pytest.raises(InvalidConfig, match="freshness = 'soon'"):
        Site(freshness="soon").limited_round(RoundLimits())


def test_a_round_within_its_limits_is_not_forced() -> None:
    site = Site(1_000)
    for _ in range(4):
        site.append(0, 5)
    result = site.limited_round(RoundLimits(max_ms=4_000))  # reached with the last batch
    assert (result.rows, result.forced) == (20, "")
    site.assert_exactly_once()


@pytest.mark.parametrize("limits", [RoundLimits(max_ms=1), RoundLimits(1_000_000, 1)])
def test_every_bucket_gives_one_batch_however_late_it_begins(limits: RoundLimits) -> None:
    site = Site()
    for bucket in range(3):
        for _ in range(3):
            site.append(bucket, 2)
    result = site.limited_round(limits)
    assert result.offsets == {"0": 2, "1": 2, "2": 2}
    assert "12 offsets in 3 of 3 buckets are left" in result.forced


@pytest.mark.parametrize(
    "limits", [RoundLimits(max_ms=1), RoundLimits(max_ms=5_000), RoundLimits(1_000_000, 90)]
)
def test_rounds_until_all_is_tiered_bring_every_offset_once(limits: RoundLimits) -> None:
    site = Site()
    for step in range(12):
        for bucket in range(3):
            site.append(bucket, (step * 7 + bucket * 3) % 5)  # some are empty
    results = site.until_done(limits)
    assert len(results) > 2
    assert all(result.forced for result in results[:-1])
    site.assert_exactly_once()
    # Offsets go forward in every bucket that has any left, and never back.
    ends = [result.offsets for result in results]
    for before, after in itertools.pairwise(ends):
        assert all(after[bucket] >= offset for bucket, offset in before.items())
        assert before != after


def test_bytes_are_shared_in_proportion_to_what_there_is_to_do() -> None:
    site = Site()
    for _ in range(90):
        site.append(0, 10)  # 80 bytes a batch
    for _ in range(10):
        site.append(1, 10)
    site.append(2, 10)
    result = site.limited_round(RoundLimits(1_000_000, 4_040))
    assert result.offsets == {"0": 450, "1": 50, "2": 10}
    assert result.forced == (
        "ended early after 4040 bytes (tiering.max_round_bytes): 500 offsets in 2 of 3 buckets"
        " are left for the next round"
    )
    assert result.bytes_read <= 4_040 + 3 * 80  # one batch over, in each bucket


def test_shares_are_of_what_the_log_still_holds() -> None:
    """A bucket that was never tiered starts at its earliest offset, not at 0."""
    site = Site()
    for bucket in (0, 1):
        for _ in range(10):
            site.append(bucket, 10)
    site.cluster.truncate_before(site.bucket(0), 80)
    plan = make_plan(site.cluster._table(), site.cluster, None, None, RoundLimits(1, 1_200), 0)
    shares = {s.bucket.bucket: s.limit.max_bytes for s in plan.splits if s.limit is not None}
    assert shares == {0: 200, 1: 1_000}


def split_until(deadline_ms: int, round_ms: int) -> Split:
    return Split(BUCKET, (), 0, 100, SplitLimit(deadline_ms, round_ms))


@pytest.mark.parametrize(
    ("ahead_ms", "left_ms"),
    [
        (0, 10_000),
        (4_000, 6_000),
        (10_000, 0),
        (86_400_000, 0),
        (-3_000, 10_000),
        (-(10**9), 10_000),
    ],
)
def test_an_executors_clock_cannot_make_a_split_longer_than_the_round(
    ahead_ms: int, left_ms: int
) -> None:
    clock = TestClock()
    split = split_until(clock.epoch_ms + 10_000, 10_000)
    clock.epoch_ms += ahead_ms
    limiter = Limiter(pickle.loads(pickle.dumps(split)).limit, clock)
    clock.up_s += left_ms / 1000
    assert limiter.reached(10**12) == "time"
    if left_ms:
        clock.up_s -= 0.001
        assert limiter.reached(10**12) == ""


def test_a_wall_clock_that_jumps_while_a_split_is_copied_changes_nothing() -> None:
    clock = TestClock()
    limiter = Limiter(SplitLimit(clock.epoch_ms + 10_000, 10_000), clock)
    clock.epoch_ms += 10**9
    assert limiter.reached(0) == ""


def test_a_split_without_a_limit_is_copied_to_its_end() -> None:
    """So a snapshot of a bucket will be read, which cannot be cut."""
    assert Limiter(None, TestClock()).reached(10**15) == ""
    site = Site(10**9)
    for _ in range(5):
        site.append(0, 5)
    assert site.round().rows == 25


def test_a_missing_end_is_still_a_failure() -> None:
    """A log that ends before the plan says is no forced finish."""
    site = Site()
    site.append(0, 5)
    table = site.lake.create(site.cluster._table())
    split = Split(BUCKET, (), 0, 10, SplitLimit(site.clock.epoch_ms + 10**6, 10**6))
    writers: Callable[..., object] = table.writer_factory("w", [split])
    outcome = copy_split(split, site.cluster, writers, clock=site.clock)  # type: ignore[arg-type]
    assert isinstance(outcome, SplitFailure)
    said = "its log ended at offset 5, but the round planned to read up to offset 10"
    assert said in outcome.reason.text
    assert table.files == {}


def test_limits_of_no_splits_and_of_more_splits_than_bytes() -> None:
    info = table_info({"a": t.BIGINT})
    assert with_limits([], [], RoundLimits(1, 1), info, 0) == ()
    splits = [Split(TableBucket(1, None, n), (), 0, 1) for n in range(10)]
    found = with_limits(splits, [1] * 10, RoundLimits(1, 3), info, 0)
    assert {s.limit.max_bytes for s in found if s.limit is not None} == {1}
