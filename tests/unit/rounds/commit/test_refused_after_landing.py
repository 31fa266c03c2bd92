"""A commit that landed, was called refused, and is no longer among main's ancestors: its files are
referenced all the same, and stay.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sluice.errors import LakeCommitRefused, LakeTableMismatch
from tests.unit.rounds.conftest import World


def commit_that_is_called_refused(world: World, meanwhile: Callable[[], None]) -> None:
    """The next commit lands; before its driver hears that it was refused, other things happen."""
    commit = world.table.commit

    def slow(*arguments: Any) -> Any:
        world.table.commit = commit  # type: ignore[method-assign]
        commit(*arguments)
        meanwhile()
        raise LakeCommitRefused("conflict")

    world.table.commit = slow  # type: ignore[method-assign]


def referenced_files_are_there(world: World) -> bool:
    return world.table.referenced()[0] <= set(world.table.files)


@pytest.mark.parametrize("forgotten", [False, True])
def test_files_stay_that_a_snapshot_had_which_has_expired(world: World, forgotten: bool) -> None:
    world.append(0, 3)
    world.round()
    world.append(0, 2)

    def overtaken_and_expired() -> None:
        landed = world.table.snapshots()[0].snapshot_id
        world.append(0, 1)
        world.round()
        world.table.expire(landed)
        if forgotten:
            world.table.forget_expired()

    commit_that_is_called_refused(world, overtaken_and_expired)
    with pytest.raises(LakeCommitRefused):
        world.round()
    assert referenced_files_are_there(world)
    world.assert_exactly_once()


def test_files_stay_of_a_snapshot_that_was_rolled_back(world: World) -> None:
    world.append(0, 3)
    first = world.round().lake_snapshot_id
    world.append(0, 2)
    commit_that_is_called_refused(world, lambda: world.table.roll_back_to(first))
    with pytest.raises(LakeCommitRefused):
        world.round()
    assert referenced_files_are_there(world)


@pytest.mark.parametrize("has_base", [True, False])
@pytest.mark.parametrize("read_on", [False, True])
def test_files_stay_of_an_expired_snapshot_that_another_branch_descends_from(
    world: World, has_base: bool, read_on: bool
) -> None:
    """Main is back at the base, and no living snapshot has the commit's id.

    If the base has expired as well, earlier metadata is read until it is found, and shows the
    commit. If not, the branch has an unknown ancestor.
    """
    empty_lake_table(world)
    if has_base:
        world.append(0, 3)
        world.round()
    world.append(0, 2)
    table = world.table

    def branched_and_expired() -> None:
        landed, *before = [one.snapshot_id for one in table.snapshots()]
        table.foreign_commit()  # a user's branch keeps it, with the files of the commit
        table.roll_back_to(before[0] if before else None)
        table.tagged = table.foreign_commit()
        table.expire(landed, *(before if read_on else []))

    commit_that_is_called_refused(world, branched_and_expired)
    with pytest.raises(LakeCommitRefused):
        world.round()
    assert referenced_files_are_there(world)


def test_rows_of_a_dropped_table_are_seen_though_our_snapshots_have_expired(world: World) -> None:
    world.append(0, 3)
    ours = world.round().lake_snapshot_id
    assert ours is not None
    before = world.table.foreign_commit()
    world.append(0, 2)
    world.round()  # the tag moves on
    world.table.roll_back_to(before)
    world.table.expire(ours)
    world.cluster.create_again(9)
    world.append(0, 1)
    with pytest.raises(LakeTableMismatch, match="under another name"):
        world.round()
    assert len(world.table.rows()) == 3


@pytest.mark.parametrize("forgotten", [False, True])
def test_files_stay_of_a_first_snapshot_that_has_expired(world: World, forgotten: bool) -> None:
    """There is no base: only a history back to main's first snapshot shows what has landed."""
    empty_lake_table(world)
    world.append(0, 2)

    def overtaken_and_expired() -> None:
        landed = world.table.snapshots()[0].snapshot_id
        world.append(0, 1)
        world.round()
        world.table.expire(landed)
        if forgotten:
            world.table.forget_expired()

    commit_that_is_called_refused(world, overtaken_and_expired)
    with pytest.raises(LakeCommitRefused):
        world.round()
    assert referenced_files_are_there(world)
    world.assert_exactly_once()


def empty_lake_table(world: World) -> None:
    """As a first round leaves it that died before its commit."""
    assert world.cluster.info is not None
    world.lake.create(world.cluster.info)


def refused(world: World) -> None:
    """The next commit is refused, and has not landed."""
    commit = world.table.commit

    def conflict(*_arguments: Any) -> Any:
        world.table.commit = commit  # type: ignore[method-assign]
        raise LakeCommitRefused("conflict")

    world.table.commit = conflict  # type: ignore[method-assign]
    with pytest.raises(LakeCommitRefused):
        world.round()


def test_files_of_a_first_commit_that_was_refused_are_deleted(world: World) -> None:
    empty_lake_table(world)
    world.append(0, 2)
    refused(world)
    assert set(world.table.files) == set()
    world.round()
    world.assert_exactly_once()


def test_files_of_a_refused_commit_are_deleted_though_older_history_is_unknown(
    world: World,
) -> None:
    """Main must be known back to the base only."""
    made = []
    for _ in range(3):
        world.append(0, 3)
        made.append(world.round().lake_snapshot_id)
    world.table.expire(made[0])
    world.table.forget_expired()
    assert not world.table.history().is_complete()
    world.append(0, 2)
    refused(world)
    assert set(world.table.files) == world.table.referenced()[0]
    world.round()
    world.assert_exactly_once()
