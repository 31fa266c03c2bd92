"""A partition or the table is dropped while a round runs: no failure, no loss without a note."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from sluice.errors import LakeRolledBack, PartitionNotExists, SplitFailed, TableNotExist
from sluice.model import Partition, TableBucket, TableInfo, TablePath
from sluice.rounds.plan.bucket_repairs import GAPS_KEY
from sluice.rounds.records.result import RoundResult
from sluice.rounds.repair.request import RepairRequest
from sluice.rounds.repair.round import run_repair
from sluice.rounds.round.round import run_round
from sluice.rounds.values.attempt import RoundPorts
from sluice.rounds.values.ports import SplitRunner, SplitWriterFactory
from sluice.rounds.values.types import RepairMode, Split, SplitFailure, SplitResult
from tests.support.models.memory_cluster import MemoryCluster
from tests.unit.rounds.conftest import World
from tests.unit.rounds.repairs import mended, shown

PHASES = ("recover", "plan", "copy", "prepare", "lake_commit", "fluss_commit")
STEPS = [f"{phase}.{when}" for phase in PHASES for when in ("before", "after")]
DROPPED = "partition mon (id 5) was dropped during the round"


def appended(world: World) -> World:
    """Rows of both partitions in the lake, and new ones of both."""
    for partition_id in (5, 6):
        world.append(0, 3, partition_id)
    world.round()
    for partition_id in (5, 6):
        world.append(0, 2, partition_id)
    return world


def lake_ends(world: World) -> dict[TableBucket, int]:
    assert world.cluster.info is not None
    registered = world.cluster.lake_snapshot(world.cluster.info.path)
    assert registered is not None
    return dict(registered.offsets)


@pytest.mark.parametrize("step", STEPS)
def test_a_partition_dropped_at_any_step_fails_no_round(
    partitioned: World, at: Callable[[str, Callable[[], None]], None], step: str
) -> None:
    world = appended(partitioned)
    at(step, lambda: world.cluster.drop_partition(5))
    result = world.round()
    copied = step not in ("recover.before", "recover.after", "plan.before", "plan.after") and (
        step != "copy.before"
    )
    assert (result.outcome, result.rows) == ("committed", 4 if copied else 2)
    assert result.offsets == {"5/0": 5 if copied else 3, "6/0": 5}
    assert lake_ends(world) == {world.bucket(0, 5): 5 if copied else 3, world.bucket(0, 6): 5}
    noted = (f"{DROPPED}: bucket 0 offsets [3, 5) were not tiered",)
    assert (result.notes == noted) == (step in ("plan.after", "copy.before"))
    assert result.details().note == (result.notes[0] if result.notes == noted else None)
    assert world.round().outcome == "nothing_new"
    assert world.table.unreferenced_files() == set()


@pytest.mark.parametrize("step", STEPS)
def test_a_table_dropped_at_any_step_is_a_lost_claim(
    world: World, at: Callable[[str, Callable[[], None]], None], step: str
) -> None:
    world.append(0, 3)
    at(step, world.cluster.drop_table)
    result = world.round()
    if step == "fluss_commit.after":
        assert result.outcome == "committed"
        return
    assert result.outcome == "claim_lost"
    landed = step in (
        "prepare.after", "lake_commit.before", "lake_commit.after", "fluss_commit.before",
    )  # fmt: skip
    assert (result.lake_snapshot_id is not None) == landed
    assert result.is_given_up != landed


def test_a_table_created_again_while_it_is_copied_is_a_lost_claim(
    world: World, at: Callable[[str, Callable[[], None]], None]
) -> None:
    world.append(0, 3)
    at("copy.before", lambda: world.cluster.create_again(2))
    result = world.round()
    assert result.outcome == "claim_lost"
    assert "dropped and created again with id 2" in result.notes[0]
    assert world.table.files == {}


def test_a_table_dropped_just_before_the_fluss_commit_has_its_rows_in_the_lake(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.append(0, 3)
    commit = world.cluster.commit_lake_snapshot

    def dropping(*arguments: Any) -> None:
        world.cluster.drop_table()
        commit(*arguments)

    monkeypatch.setattr(world.cluster, "commit_lake_snapshot", dropping)
    result = world.round()
    assert (result.outcome, result.is_given_up) == ("claim_lost", False)


class Stale(MemoryCluster):
    """A tablet server of it does not know partition 5 yet."""

    def check_exists(self, bucket: TableBucket) -> None:
        super().check_exists(bucket)
        if bucket.partition_id == 5:
            raise PartitionNotExists("partition 5 does not exist")


@pytest.mark.parametrize("reads", [False, True])
def test_a_tablets_error_alone_does_not_make_a_partition_a_dropped_one(
    partitioned: World, reads: bool
) -> None:
    world = appended(partitioned)
    world.cluster.__class__ = Stale
    before = lake_ends(world)

    def runner(info: TableInfo, writers: SplitWriterFactory) -> SplitRunner:
        world.cluster.__class__ = Stale
        return world.runner(info, writers)

    if reads:
        world.cluster.__class__ = MemoryCluster
    claim = world.cluster.begin_round()
    with pytest.raises(SplitFailed if reads else PartitionNotExists, match="partition 5 does not"):
        run_round(claim, RoundPorts(world.cluster, world.lake, runner), "x")
    assert lake_ends(world)[world.bucket(0, 5)] == before[world.bucket(0, 5)]
    world.cluster.__class__ = MemoryCluster
    assert world.round().outcome == "committed"
    world.assert_exactly_once()


def test_a_partition_dropped_between_its_list_and_its_offsets_is_skipped(
    partitioned: World,
) -> None:
    world = appended(partitioned)

    class Dropping(MemoryCluster):
        def partitions(self, path: TablePath) -> list[Partition]:
            found = super().partitions(path)
            self.drop_partition(5)
            return found

    world.cluster.__class__ = Dropping
    result = world.round()
    assert (result.outcome, result.rows) == ("committed", 2)
    assert result.offsets == {"5/0": 3, "6/0": 5}
    assert any("partition id 5 (bucket:offset 0:3)" in note for note in result.notes)


def test_a_round_whose_only_partition_is_dropped_has_nothing_to_commit(
    partitioned: World, at: Callable[[str, Callable[[], None]], None]
) -> None:
    world = partitioned
    world.append(0, 3, 5)
    at("copy.before", lambda: world.cluster.drop_partition(5))
    result = world.round()
    assert (result.outcome, result.offsets) == ("nothing_new", {})
    assert result.notes == (f"{DROPPED}: bucket 0 offsets below 3 were not tiered",)
    assert result.details().note == result.notes[0]
    assert RoundResult.from_json(json.loads(json.dumps(result.to_json()))) == result
    [checked] = (
        replace(result, history_notes=("partition password=hunter2 (id 5)",))
        .checked(["hunter2"])
        .history_notes
    )
    assert "hunter2" not in checked
    both = replace(result, forced="the size limit was reached").details().note
    assert both == f"the size limit was reached; {result.notes[0]}"
    assert world.table.snapshots() == []


def test_what_was_read_of_a_dropped_partition_is_committed(partitioned: World) -> None:
    """Two buckets; the drop comes when one of them has been copied."""
    world = partitioned
    assert world.cluster.info is not None
    world.append(0, 3, 5)
    world.append(1, 4, 5)
    described = replace(world.cluster.info.descriptor, bucket_count=2)
    world.cluster.info = replace(world.cluster.info, descriptor=described)

    def runner(info: TableInfo, writers: SplitWriterFactory) -> SplitRunner:
        def run(splits: Sequence[Split]) -> Iterator[SplitResult | SplitFailure]:
            yield from world.runner(info, writers)(splits[:1])
            world.cluster.drop_partition(5)
            yield from world.runner(info, writers)(splits[1:])

        return run

    result = run_round(
        world.cluster.begin_round(), RoundPorts(world.cluster, world.lake, runner), "x"
    )
    assert (result.outcome, result.rows, result.offsets) == ("committed", 3, {"5/0": 3})
    assert f"{DROPPED}: bucket 1 offsets below 4 were not tiered" in result.notes


def test_a_new_partition_that_is_dropped_again_does_not_remove_the_old_ones_rows(
    partitioned: World, at: Callable[[str, Callable[[], None]], None]
) -> None:
    """Its offsets are not in the lake, so the lake's rows are still those of the old one."""
    world = appended(partitioned)
    world.cluster.drop_partition(5)
    world.cluster.add_partition(Partition(9, ("mon",)))
    world.append(0, 1, 9)
    at("copy.before", lambda: world.cluster.drop_partition(9))
    result = world.round()
    assert (result.outcome, result.offsets) == ("committed", {"5/0": 3, "6/0": 5})
    assert [row[2] for row in world.table.rows() if row[0] == ("mon",)] == [0, 1, 2]


@pytest.mark.parametrize("step", ["plan.before", "copy.before", "copy.after"])
def test_a_repair_does_not_lose_a_partition_that_is_dropped_meanwhile(
    partitioned: World, at: Callable[[str, Callable[[], None]], None], step: str
) -> None:
    world = appended(partitioned)
    first = world.table.snapshots()[-1].snapshot_id
    world.round()
    world.table.roll_back_to(first)
    before = lake_ends(world)
    at(step, lambda: world.cluster.drop_partition(5))
    files = set(world.table.files)
    if step != "copy.after":
        with pytest.raises(LakeRolledBack, match="lost for good: bucket 5/0: offsets 3 to 4"):
            mended(world, RepairMode.RETIER)
        assert set(world.table.files) == files
    result = mended(world, RepairMode.RETIER)
    assert (result.outcome, result.rows) == ("committed", 4 if step == "copy.after" else 2)
    assert bool(result.accepted) == (step != "copy.after")
    assert lake_ends(world) == before
    assert world.round().outcome == "nothing_new"


def test_a_partition_dropped_between_list_and_offsets_of_a_repair(partitioned: World) -> None:
    world = appended(partitioned)
    first = world.table.snapshots()[-1].snapshot_id
    world.round()
    world.table.roll_back_to(first)

    class Dropping(MemoryCluster):
        def partitions(self, path: TablePath) -> list[Partition]:
            found = super().partitions(path)
            self.drop_partition(5)
            return found

    world.cluster.__class__ = Dropping
    with pytest.raises(LakeRolledBack, match="new risk: lost for good: bucket 5/0: offsets 3 to 4"):
        run_repair(
            world.cluster.begin_round(),
            RoundPorts(world.cluster, world.lake, world.runner),
            "x",
            RepairRequest(mode=RepairMode.RETIER),
        )
    result = mended(world, RepairMode.RETIER)  # the user has seen it now
    assert (result.outcome, result.rows) == ("committed", 2)
    assert result.accepted == "bucket 5/0: offsets 3 to 4 were no longer in the log"


@pytest.mark.parametrize(
    ("step", "registered", "rows"),
    [("plan.before", 4, []), ("copy.before", 4, []), ("copy.after", 6, [4, 5])],
)
def test_a_repair_keeps_the_gap_of_a_partition_that_is_dropped_meanwhile(
    partitioned: World,
    at: Callable[[str, Callable[[], None]], None],
    step: str,
    registered: int,
    rows: list[int],
) -> None:
    """Its bucket has lost offsets 2 and 3, which the user accepts."""
    world = partitioned
    world.append(0, 2, 5)
    first = world.round().lake_snapshot_id
    for _ in range(2, registered, 2):
        world.append(0, 2, 5)
    world.round()
    world.append(0, 1, 5)
    world.table.roll_back_to(first)
    world.cluster.truncate_before(world.bucket(0, 5), 4)
    accepted = shown(world, RepairMode.RETIER)
    at(step, lambda: world.cluster.drop_partition(5))
    result = mended(world, RepairMode.RETIER, accepted=accepted)
    assert result.outcome == "committed"
    assert world.offsets_in_lake(0) == [0, 1, *rows]
    assert lake_ends(world)[world.bucket(0, 5)] == registered
    newest = world.table.newest_tiering_snapshot()
    assert newest is not None
    assert json.loads(newest.summary[GAPS_KEY]) == {"5/0": [2, 4]}
    assert result.accepted == "bucket 5/0: offsets 2 to 3 were no longer in the log"


def no_such(*_: Any, **__: Any) -> Any:
    raise TableNotExist("no such table")


def test_a_tablets_word_that_the_table_is_gone_is_asked_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.append(0, 3)
    monkeypatch.setattr(world.cluster, "latest_offsets", no_such)
    with pytest.raises(TableNotExist):
        world.round()
