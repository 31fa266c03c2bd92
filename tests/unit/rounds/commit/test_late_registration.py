"""A real Fluss takes a commit from whoever sends one, however late: a round never plans from the
offsets of another snapshot than the one that it builds on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from sluice.errors import LakeCommitRefused, LakeFileUnreadable, LakeRolledBack
from sluice.model import Claim, TableBucket
from sluice.rounds.values.types import LakeSnapshot, RepairMode
from tests.support.models.memory_cluster import MemoryCluster, RegisteredSnapshot
from tests.unit.rounds.conftest import World
from tests.unit.rounds.repairs import forget_ours, mended


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


def overlooked(
    world: World, older: Claim, snapshot_id: int | None, truncated: dict[TableBucket, int]
) -> Callable[[], None]:
    """What a newer round overlooks: an older one commits, main is rolled back, retention deletes.

    The older round had verified its claim before the newer one began.
    """

    def older_round() -> None:
        world.cluster.tiering_epoch = older.tiering_epoch
        world.round(older)
        world.cluster.tiering_epoch = older.tiering_epoch + 1
        world.table.roll_back_to(snapshot_id)
        for bucket, offset in truncated.items():
            world.cluster.truncate_before(bucket, offset)

    return older_round


def assert_refused(world: World) -> None:
    """The next round is refused and deletes its files; the one behind it says what has happened."""
    with pytest.raises(LakeCommitRefused, match="another round registered lake snapshot"):
        world.round()
    assert not world.table.unreferenced_files()
    late = world.cluster.registered[-1].snapshot_id
    with pytest.raises(LakeRolledBack, match=f"behind snapshot {late}"):
        world.round()


@pytest.mark.parametrize("step", ["plan.before", "copy.before"])
@pytest.mark.parametrize("foreign", [True, False], ids=["beside other writers", "alone"])
def test_a_log_truncated_behind_an_overlooked_round_loses_no_row(
    world: World, at: Callable[[str, Callable[[], None]], None], step: str, foreign: bool
) -> None:
    """To the newer round, the lake and Fluss look as if the table had never been tiered."""
    world.append(0, 3)
    world.append(0, 4)
    older = world.cluster.begin_round()
    table = world.lake.create(world.cluster.table_info(older.path))
    before = table.foreign_commit() if foreign else None
    at(step, overlooked(world, older, before, {world.bucket(0): 3}))
    assert_refused(world)
    assert world.offsets_in_lake() == []


def test_a_new_partition_of_an_overlooked_round_loses_no_row(
    partitioned: World, at: Callable[[str, Callable[[], None]], None]
) -> None:
    partitioned.append(0, 1, 5)
    first = partitioned.round().lake_snapshot_id
    partitioned.append(0, 3, 6)
    partitioned.append(0, 4, 6)
    older = partitioned.cluster.begin_round()
    at("copy.before", overlooked(partitioned, older, first, {partitioned.bucket(0, 6): 3}))
    assert_refused(partitioned)


def test_a_bucket_deleted_behind_an_overlooked_round_is_reported(
    world: World, at: Callable[[str, Callable[[], None]], None]
) -> None:
    """The newer round has no split of it, and would register a snapshot that does not name it."""
    world.append(0, 3)
    first = world.round().lake_snapshot_id
    world.append(0, 1)
    world.append(1, 7)
    older = world.cluster.begin_round()
    at("plan.before", overlooked(world, older, first, {world.bucket(1): 7}))
    assert_refused(world)


def test_a_partition_dropped_behind_an_overlooked_round_is_reported(
    partitioned: World, at: Callable[[str, Callable[[], None]], None]
) -> None:
    """Also of a table with a primary key, whose KV snapshots are gone with the partition."""
    partitioned.append(0, 1, 5)
    first = partitioned.round().lake_snapshot_id
    partitioned.append(0, 1, 5)
    partitioned.append(0, 3, 6)
    older = partitioned.cluster.begin_round()
    older_round = overlooked(partitioned, older, first, {})

    def older_round_and_drop() -> None:
        older_round()
        partitioned.cluster.drop_partition(6)

    at("plan.before", older_round_and_drop)
    assert_refused(partitioned)


def test_a_recovery_hides_no_registration_that_it_overlooked(
    world: World, arm: Callable[[str], None]
) -> None:
    """It registers the snapshot of a dead round, which could not read bucket 1."""
    world.append(0, 3)
    world.round()
    world.append(1, 7)
    world.cluster.unreadable.add((world.bucket(1), 0))
    die_between_the_commits(world, arm)
    prepare = world.cluster.prepare_lake_snapshot

    def overlook(*what: Any) -> str:
        world.cluster.prepare_lake_snapshot = prepare  # type: ignore[method-assign]
        path = prepare(1, what[1], {world.bucket(0): 3, world.bucket(1): 7})
        world.cluster.registered.append(RegisteredSnapshot(4711, path))
        return prepare(*what)

    world.cluster.prepare_lake_snapshot = overlook  # type: ignore[method-assign]
    with pytest.raises(LakeCommitRefused, match="another round registered lake snapshot 4711"):
        world.round()
    with pytest.raises(LakeRolledBack, match="behind snapshot 4711"):
        world.round()


def test_two_drivers_that_recover_the_same_snapshot_agree(
    world: World, arm: Callable[[str], None]
) -> None:
    die_between_the_commits(world, arm)
    prepare = world.cluster.prepare_lake_snapshot
    lost = world.table.snapshots()[0].snapshot_id

    def be_slower(*what: Any) -> str:
        world.cluster.prepare_lake_snapshot = prepare  # type: ignore[method-assign]
        world.cluster.registered.append(RegisteredSnapshot(lost, prepare(*what)))
        return prepare(*what)

    world.cluster.prepare_lake_snapshot = be_slower  # type: ignore[method-assign]
    world.append(0, 1)
    result = world.round()
    assert (result.rows, result.recovered_snapshot_id) == (1, lost)
    world.assert_exactly_once()


@pytest.mark.parametrize("step", ["copy.before", "fluss_commit.before"])
def test_the_planned_snapshot_may_be_registered_again(
    unfenced: World, at: Callable[[str, Callable[[], None]], None], step: str
) -> None:
    assert isinstance(unfenced.cluster, _Unfenced)
    again = unfenced.cluster.late
    unfenced.append(0, 1)
    unfenced.append(1, 1)
    at(step, lambda: unfenced.cluster.registered.append(again))
    assert unfenced.round().rows == 2
    unfenced.assert_exactly_once()


def test_a_try_that_sees_the_registration_of_a_landed_one_reports_it(world: World) -> None:
    """Both have one claim: the other try commits after this one has searched for its commit."""
    world.append(0, 3)
    claim = world.cluster.begin_round()
    verify = world.cluster.still_claimed

    def other_try(asked: Claim) -> bool:
        world.cluster.still_claimed = verify  # type: ignore[method-assign]
        world.round(claim)
        return verify(asked)

    world.cluster.still_claimed = other_try  # type: ignore[method-assign]
    result = world.round(claim)
    assert result.outcome == "already_landed"
    world.assert_exactly_once()
    assert len(world.table.files) == 1


def test_a_refused_try_that_cannot_read_the_lake_deletes_its_files(
    world: World, at: Callable[[str, Callable[[], None]], None]
) -> None:
    """Whether its other try has landed stays unknown; nothing references this one's files."""
    world.append(0, 3)
    older = world.cluster.begin_round()
    table = world.lake.create(world.cluster.table_info(older.path))
    find = table.find_tiering_snapshot
    looks = iter([True, False])

    def find_once(*what: Any) -> LakeSnapshot | None:
        if next(looks):
            return find(*what)
        raise LakeFileUnreadable("no metadata file")

    def older_round_and_blindness() -> None:
        overlooked(world, older, None, {})()
        table.find_tiering_snapshot = find_once  # type: ignore[method-assign]

    at("copy.before", older_round_and_blindness)
    with pytest.raises(LakeFileUnreadable):
        world.round()
    assert not table.unreferenced_files()
