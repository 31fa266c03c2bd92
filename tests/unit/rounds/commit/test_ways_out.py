"""Each way in which a commit ends, and the files that are left then, offsets files among them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sluice.errors import (
    LakeCommitOutcomeUnknown,
    LakeCommitRefused,
    LakeNotWritable,
    NetworkError,
)
from sluice.rounds.commit.ways_out import Deletable, WayOut
from tests.unit.rounds.conftest import World

Break = Callable[[World, pytest.MonkeyPatch], None]


@pytest.fixture
def world(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    """With a first round, and offsets that are always in a file."""
    monkeypatch.setattr("sluice.rounds.values.offsets.SUMMARY_BYTES_MAX", 10)
    world.append(0, 3)
    world.round()
    world.append(0, 2)
    return world


def left(world: World) -> tuple[set[str], set[str]]:
    return set(world.table.files), set(world.table.beside)


def not_tried(world: World, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(world.cluster, "prepare_lake_snapshot", raising(NetworkError("gone")))


def commit_fails(error: Exception, *, lands: bool = False, is_seen: bool = True) -> Break:
    def arrange(world: World, patch: pytest.MonkeyPatch) -> None:
        commit = world.table.commit

        def failing(*arguments: Any) -> Any:
            if lands:
                commit(*arguments)
            raise error

        patch.setattr(world.table, "commit", failing)
        if not is_seen:
            patch.setattr(world.table, "history", raising(LakeNotWritable("away")))

    return arrange


def unknown_and_unread(world: World, patch: pytest.MonkeyPatch) -> None:
    """The answer was lost, and then the table cannot be read."""

    def failing(*_: Any) -> Any:
        patch.setattr(world.table, "find_tiering_snapshot", raising(LakeNotWritable("away")))
        raise LakeCommitOutcomeUnknown("no answer")

    patch.setattr(world.table, "commit", failing)


def fluss_fails(world: World, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(world.cluster, "commit_lake_snapshot", raising(NetworkError("gone")))


def raising(error: Exception) -> Callable[..., Any]:
    def raise_it(*_: Any, **__: Any) -> Any:
        raise error

    return raise_it


WAYS: dict[str, tuple[Break, type[Exception], Deletable]] = {
    "not tried": (not_tried, NetworkError, WayOut.NOT_TRIED.deletable),
    "not written": (
        commit_fails(LakeNotWritable("full")),
        LakeNotWritable,
        WayOut.NOT_WRITTEN.deletable,
    ),
    "refused": (
        commit_fails(LakeCommitRefused("conflict")),
        LakeCommitRefused,
        WayOut.REFUSED.deletable,
    ),
    "refused, and not seen": (
        commit_fails(LakeCommitRefused("conflict"), is_seen=False),
        LakeCommitRefused,
        WayOut.MAY_BE_REFERENCED.deletable,
    ),
    "unknown": (unknown_and_unread, LakeCommitOutcomeUnknown, WayOut.UNKNOWN.deletable),
    "unknown, and not there": (
        commit_fails(LakeCommitOutcomeUnknown("no answer")),
        LakeCommitOutcomeUnknown,
        WayOut.UNKNOWN.deletable,
    ),
    "an error of fluss": (fluss_fails, NetworkError, Deletable.NONE),
}


@pytest.mark.parametrize("way", WAYS)
def test_what_a_commit_that_fails_deletes(
    world: World, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    arrange, error, deletable = WAYS[way]
    before = left(world)
    with monkeypatch.context() as patch:
        arrange(world, patch)
        with pytest.raises(error):
            world.round()
    files, beside = left(world)
    is_deleted = deletable is Deletable.ALL
    assert (files == before[0], beside == before[1]) == (is_deleted, is_deleted)
    assert world.table.referenced()[0] <= files
    world.round()
    world.assert_exactly_once()


@pytest.mark.parametrize("error", [LakeCommitRefused, LakeCommitOutcomeUnknown])
def test_a_commit_that_landed_in_spite_of_its_error_is_a_success(
    world: World, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    with monkeypatch.context() as patch:
        commit_fails(error("no answer"), lands=True)(world, patch)
        assert world.round().outcome == "committed"
    world.assert_exactly_once()
    assert world.table.referenced()[0] == set(world.table.files)


def test_a_claim_lost_after_the_lake_commit_deletes_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, answers = world.cluster.still_claimed, iter((True, False))
    before = left(world)
    with monkeypatch.context() as patch:
        patch.setattr(world.cluster, "still_claimed", lambda claim: next(answers) and held(claim))
        result = world.round()
    assert (result.outcome, result.lake_snapshot_id is not None) == ("claim_lost", True)
    assert left(world)[0] > before[0]
    world.round()
    world.assert_exactly_once()


def test_every_way_says_what_may_be_deleted() -> None:
    assert {way.deletable for way in WayOut} == set(Deletable)
    assert all(way.what for way in WayOut)
