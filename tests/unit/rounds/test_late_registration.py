"""A real Fluss takes a commit from whoever sends one, however late: a round never plans from the
offsets of another snapshot than the one that it builds on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from sluice.errors import LakeCommitRefused, LakeRolledBack
from sluice.model import Claim
from sluice.rounds.retier import RepairMode
from sluice.rounds.types import LakeSnapshot
from sluice.testing.memory_cluster import MemoryCluster, RegisteredSnapshot

from .conftest import World
from .repairs import forget_ours, mended


class _Unfenced(MemoryCluster):
    """As a real Fluss: who sends a commit does not matter."""

    late: RegisteredSnapshot
    """What an older worker sends."""
    times = 0
    """How often it arrives, each time right behind somebody else's commit."""

    def commit_lake_snapshot(self, claim: Claim, *rest: Any) -> None:
        current = replace(
            claim, tiering_epoch=self.tiering_epoch, coordinator_epoch=self.coordinator_epoch
        )
        super().commit_lake_snapshot(current, *rest)
        if self.times:
            self.times -= 1
            self.registered.append(self.late)


@pytest.fixture
def unfenced(world: World) -> World:
    """One round of three rows; the worker that committed it is about to register it, too, with
    the offsets file of its own (the round behind it took a fresh one).
    """
    assert world.cluster.info is not None
    world.cluster = cluster = _Unfenced(world.cluster.info)
    world.append(0, 3)
    first = world.round().lake_snapshot_id
    assert first is not None
    path = cluster.prepare_lake_snapshot(1, world.cluster.info.path, {world.bucket(0): 3})
    cluster.late = RegisteredSnapshot(first, path)
    return world


def late(world: World, times: int) -> None:
    assert isinstance(world.cluster, _Unfenced)
    world.cluster.times = times


def die_between_the_commits(world: World, arm: Callable[[str], None]) -> None:
    world.append(0, 2)
    arm("round.fluss_commit.before=raise")
    with pytest.raises(RuntimeError):
        world.round()
    arm("")


@pytest.mark.parametrize("times", [1, 2])
def test_a_late_commit_behind_that_of_a_recovery_doubles_no_row(
    unfenced: World, arm: Callable[[str], None], times: int
) -> None:
    die_between_the_commits(unfenced, arm)
    lost = unfenced.table.snapshots()[0].snapshot_id
    unfenced.append(0, 1)
    late(unfenced, times)
    result = unfenced.round()
    assert (result.rows, result.recovered_snapshot_id) == (1, lost)
    unfenced.assert_exactly_once()


def test_late_commits_without_an_end_refuse_the_round(
    unfenced: World, arm: Callable[[str], None]
) -> None:
    die_between_the_commits(unfenced, arm)
    unfenced.append(0, 1)
    late(unfenced, 100)
    with pytest.raises(LakeCommitRefused, match="each time an older round registered another one"):
        unfenced.round()
    late(unfenced, 0)
    assert unfenced.round().rows == 1
    unfenced.assert_exactly_once()


def test_a_late_commit_behind_that_of_a_repair_doubles_no_row(unfenced: World) -> None:
    """What is registered late is not even in the lake any more."""
    unfenced.append(0, 2)
    forget_ours(unfenced, unfenced.round())
    unfenced.append(0, 1)
    late(unfenced, 1)
    assert mended(unfenced, RepairMode.ADOPT).rows == 1
    unfenced.assert_exactly_once()


def test_a_try_that_meets_a_landed_one_and_a_newer_round_sees_no_rollback(world: World) -> None:
    """The newer round comes while the try looks at the lake and at what is registered of it."""
    world.append(0, 3)
    claim = world.cluster.begin_round()
    table = world.lake.create(world.cluster.table_info(claim.path))
    look, delete = table.newest_tiering_snapshot, table.delete_files

    def slow_look() -> LakeSnapshot | None:
        table.newest_tiering_snapshot = look  # type: ignore[method-assign]
        found = look()
        world.append(0, 1)
        world.round()
        return found

    def delete_first(paths: Sequence[str]) -> None:
        delete(paths)
        table.newest_tiering_snapshot = slow_look  # type: ignore[method-assign]

    def other_try() -> None:
        world.round(claim)
        table.delete_files = delete_first  # type: ignore[method-assign]

    table.before_commit = other_try
    assert world.round(claim).outcome == "already_landed"
    world.assert_exactly_once()


@pytest.mark.parametrize("step", ["plan.before", "copy.before"])
@pytest.mark.parametrize("foreign", [True, False], ids=["beside other writers", "alone"])
def test_a_log_truncated_behind_a_registration_that_a_round_missed_loses_no_row(
    world: World, at: Callable[[str, Callable[[], None]], None], step: str, foreign: bool
) -> None:
    """An older round commits, main is rolled back below it, and retention follows Fluss's offsets.

    To the newer round, the lake and Fluss looked as if the table had never been tiered.
    """
    world.append(0, 3)
    world.append(0, 4)
    older = world.cluster.begin_round()
    table = world.lake.create(world.cluster.table_info(older.path))
    before = table.foreign_commit() if foreign else None

    def older_round() -> None:
        """It had verified its claim before the newer round began."""
        world.cluster.tiering_epoch = older.tiering_epoch
        world.round(older)
        world.cluster.tiering_epoch += 1
        table.roll_back_to(before)
        world.cluster.truncate_before(world.bucket(0), 3)

    at(step, older_round)
    with pytest.raises(LakeCommitRefused, match="was registered with Fluss"):
        world.round()
    assert world.offsets_in_lake() == []
    with pytest.raises(LakeRolledBack, match="its history has no tiering snapshot any more"):
        world.round()


def test_a_new_bucket_is_not_begun_after_a_registration_that_the_round_missed(
    partitioned: World, at: Callable[[str, Callable[[], None]], None]
) -> None:
    """The table was tiered before; only the bucket is new, and tiered by an older round."""
    partitioned.append(0, 1, 5)
    first = partitioned.round().lake_snapshot_id
    partitioned.append(0, 3, 6)
    partitioned.append(0, 4, 6)
    older = partitioned.cluster.begin_round()

    def older_round() -> None:
        partitioned.cluster.tiering_epoch = older.tiering_epoch
        partitioned.round(older)
        partitioned.cluster.tiering_epoch += 1
        partitioned.table.roll_back_to(first)
        partitioned.cluster.truncate_before(partitioned.bucket(0, 6), 3)

    at("copy.before", older_round)
    with pytest.raises(LakeCommitRefused, match="was registered with Fluss"):
        partitioned.round()
    with pytest.raises(LakeRolledBack):
        partitioned.round()
