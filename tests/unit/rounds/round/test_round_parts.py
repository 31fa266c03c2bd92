"""Rounds whose windows are divided into parts; without an error they are as any other round."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from sluice.errors import LogBeginsAfterLake, SluiceError, SplitFailed, StorageError
from sluice.model import Partition, TableInfo
from sluice.rounds.commit.options import RoundOptions
from sluice.rounds.copy.parts import PartRules
from sluice.rounds.records.result import RoundResult
from sluice.rounds.round.round import run_round
from sluice.rounds.values.attempt import RoundPorts
from sluice.rounds.values.ports import SplitRunner, SplitWriterFactory
from sluice.rounds.values.types import (
    LogRecords,
    OffsetRange,
    RepairMode,
    Split,
    SplitFailure,
    SplitResult,
)
from tests.support.models.any_round import any_round, request_of
from tests.support.models.memory_cluster import MemoryCluster
from tests.unit.rounds.conftest import World

RULES = PartRules(parallelism=2, offsets=4)


class Unreadable(MemoryCluster):
    """One batch cannot be read."""

    bad = 0

    def read(self, split: Split) -> Iterator[LogRecords]:
        for records in super().read(split):
            if records.base_offset == self.bad:
                raise StorageError("disk on fire")
            yield records


def tier(
    world: World,
    started: list[Split],
    repair: RepairMode | None = None,
    bad: OffsetRange | None = None,
) -> RoundResult:
    world.attempts += 1

    def runner(info: TableInfo, writers: SplitWriterFactory) -> SplitRunner:
        def run(splits: Sequence[Split]) -> Iterator[SplitResult | SplitFailure]:
            started.extend(splits)
            yield from world.runner(info, writers)(splits[::-1])

        return run

    return any_round(
        world.cluster.begin_round(),
        RoundPorts(world.cluster, world.lake, runner),
        str(world.attempts),
        request_of(repair, bad),
        RoundOptions(parts=RULES),
    )


def unreadable(world: World, bad: int) -> None:
    world.cluster.__class__ = Unreadable
    world.cluster.bad = bad  # type: ignore[attr-defined]


def test_a_round_of_parts_has_one_result_for_each_bucket(world: World) -> None:
    for rows in (3, 3, 3, 3, 3, 3):
        world.append(0, rows)
    world.append(1, 5)
    started: list[Split] = []
    result = tier(world, started)
    assert [(s.bucket.bucket, s.start_offset, s.stop_offset) for s in started] == [
        (0, -2, 4),
        (0, 4, 9),
        (0, 9, 13),
        (0, 13, 18),
        (1, -2, 5),
    ]
    assert (result.outcome, result.rows, result.files) == ("committed", 23, 5)
    assert (result.offsets, result.forced) == ({"0": 18, "1": 5}, "")
    assert (result.lag_rows_before, result.lag_rows_after) == (23, 0)
    world.assert_exactly_once()
    world.append(0, 5)
    started.clear()
    assert tier(world, started).rows == 5
    assert [split.part for split in started] == [None]


def test_the_parts_before_a_failed_one_are_committed(world: World) -> None:
    for _ in range(10):
        world.append(0, 2)
    unreadable(world, 12)
    with pytest.raises(SplitFailed) as caught:
        tier(world, [])
    assert str(caught.value) == (
        "bucket 0 of table db.t failed from offset 10 on: StorageError: disk on fire"
    )
    committed = caught.value.details["committed"]
    assert (committed.rows, committed.offsets) == (10, {"0": 10})
    assert (committed.lag_rows_before, committed.lag_rows_after) == (20, 10)
    assert world.offsets_in_lake() == list(range(10))
    assert world.table.unreferenced_files() == set()
    unreadable(world, -1)
    assert tier(world, []).rows == 10
    world.assert_exactly_once()


def test_the_first_part_fails_alone(world: World) -> None:
    for _ in range(10):
        world.append(0, 2)
    world.append(1, 3)
    unreadable(world, 0)
    world.cluster.starts[world.bucket(1)] = 0
    with pytest.raises(SplitFailed, match="disk on fire"):
        tier(world, [])
    assert world.table.files == {}


def test_a_batch_in_a_later_part_is_skipped_from_the_lakes_end_on(world: World) -> None:
    for _ in range(20):
        world.append(0, 2)
    world.append(1, 1)
    world.cluster.unreadable = {(world.bucket(0), 18)}
    with pytest.raises(SplitFailed) as caught:
        tier(world, [])
    assert str(caught.value).startswith(
        "bucket 0 of table db.t failed from offset 10 on, 1 other bucket was committed: the batch"
        " at offset 18 cannot be read: wrong checksum. Run `sluice repair db.t --skip 0:18`"
    )
    started: list[Split] = []
    skipped = tier(world, started, RepairMode.SKIP, OffsetRange(world.bucket(0), 18, 20))
    assert [(s.start_offset, s.stop_offset, s.part) for s in started] == [(10, 20, None)]
    assert (skipped.rows, skipped.offsets) == (8, {"0": 20, "1": 1})
    tier(world, [])
    assert world.offsets_in_lake() == [*range(18), *range(20, 40)]


@pytest.mark.parametrize(
    ("log_start", "kind", "text"),
    [
        (
            10,
            LogBeginsAfterLake,
            "the log of bucket 0 begins at offset 10, the lake ends at offset 8",
        ),
        (8, SplitFailed, "LogOffsetOutOfRange: bucket 1:0: 7 is before 8"),
    ],
)
def test_a_log_that_retention_shortens_before_a_later_part_is_read(
    world: World, log_start: int, kind: type[SluiceError], text: str
) -> None:
    world.append(0, 2)
    tier(world, [])
    for _ in range(10):
        world.append(0, 2)

    class Shortened(MemoryCluster):
        def read(self, split: Split) -> Iterator[LogRecords]:
            if split.part_number == 1:
                self.truncate_before(split.bucket, log_start)
            yield from super().read(split)

    world.cluster.__class__ = Shortened
    with pytest.raises(kind) as caught:
        run_round(
            world.cluster.begin_round(),
            RoundPorts(world.cluster, world.lake, world.runner),
            "late",
            RoundOptions(parts=RULES),
        )
    expected = f"bucket 0 of table db.t failed from offset 8 on: {text}"
    assert str(caught.value).startswith(expected)
    assert world.offsets_in_lake() == list(range(8))
    if log_start == 8:  # the lake has what the log has lost
        assert tier(world, []).rows == 14
        assert world.offsets_in_lake() == list(range(22))


class Dropping(MemoryCluster):
    """Drops a partition before the second part of its window is read."""

    def read(self, split: Split) -> Iterator[LogRecords]:
        if split.part_number == 1 and split.bucket.partition_id is not None:
            self.drop_partition(split.bucket.partition_id)
        yield from super().read(split)


def tier_dropping(world: World) -> RoundResult:
    """The parts are read in their order."""
    world.cluster.__class__ = Dropping
    return run_round(
        world.cluster.begin_round(),
        RoundPorts(world.cluster, world.lake, world.runner),
        "dropping",
        RoundOptions(parts=RULES),
    )


def test_a_partition_dropped_behind_its_first_part_names_the_rest(partitioned: World) -> None:
    world = partitioned
    for _ in range(4):
        world.append(0, 4, 5)
    world.append(0, 3, 6)
    result = tier_dropping(world)
    assert (result.outcome, result.rows) == ("committed", 7)
    assert result.offsets == {"5/0": 4, "6/0": 3}
    assert result.notes == (
        "partition mon (id 5) was dropped during the round: bucket 0 offsets [4, 16) were not"
        " tiered",
    )


def test_a_new_partition_dropped_behind_its_first_part_replaces_the_earlier_rows(
    partitioned: World,
) -> None:
    world = partitioned
    world.append(0, 6, 5)
    world.round()
    world.cluster.drop_partition(5)
    world.cluster.add_partition(Partition(9, ("mon",)))
    for _ in range(4):
        world.append(0, 4, 9)
    result = tier_dropping(world)
    assert result.offsets == {"5/0": 6, "9/0": 4}
    assert world.offsets_in_lake() == [0, 1, 2, 3]


def test_a_repair_that_fails_in_a_later_part_commits_nothing(world: World) -> None:
    first = None
    for _ in range(10):
        world.append(0, 2)
        first = first or tier(world, [])
    tier(world, [])
    assert first is not None
    world.table.roll_back_to(first.lake_snapshot_id)
    files = set(world.table.files)
    unreadable(world, 16)
    with pytest.raises(SplitFailed, match="disk on fire"):
        tier(world, [], RepairMode.RETIER)
    assert set(world.table.files) == files
    unreadable(world, -1)
    started: list[Split] = []
    assert tier(world, started, RepairMode.RETIER).rows == 18
    assert len(started) == 4
    world.assert_exactly_once()
