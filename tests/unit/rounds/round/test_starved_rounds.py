"""Rounds whose commits meet rewrites of data files, each time: they end committed nevertheless."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from sluice.errors import LakeNotWritable
from sluice.rounds.commit.files import DELETES_KEY
from tests.unit.rounds.keyed_world import KeyedWorld


@pytest.fixture
def world() -> KeyedWorld:
    """The lake has keys 1 and 3; the next round changes 1 and deletes 3."""
    world = KeyedWorld()
    world.put(world.bucket(), k1=1, k3=3)
    world.round()
    world.put(world.bucket(), k1=2)
    world.delete(world.bucket(), 3)
    return world


def rewritten(world: KeyedWorld, times: int, then: Callable[[], None] | None = None) -> None:
    """Others rewrite all data files before each of the next commits."""
    left = times

    def rewrite() -> None:
        nonlocal left
        left -= 1
        world.table.foreign_compaction()
        world.table.before_commit = rewrite if left else then

    world.table.before_commit = rewrite


def cut_off(world: KeyedWorld) -> None:
    """Main is not known back to the base: the snapshot between them expired, and its metadata."""
    between = world.table.foreign_compaction()
    world.table.foreign_compaction()
    world.table.expire(between)
    world.table.forget_expired()


def how(world: KeyedWorld) -> dict[str, object]:
    newest = world.table.newest_tiering_snapshot()
    assert newest is not None
    found = json.loads(newest.summary[DELETES_KEY])
    return {name: found[name] for name in ("kinds", "lookups")}


@pytest.mark.parametrize("is_cut_off", [False, True])
@pytest.mark.parametrize(
    ("times", "kind", "lookups"),
    [(1, "position", 2), (3, "equality", 3), (9, "equality", 3)],
)
def test_a_round_that_meets_only_rewrites_is_committed(
    world: KeyedWorld, times: int, kind: str, lookups: int, is_cut_off: bool
) -> None:
    if is_cut_off:
        cut_off(world)
    rewritten(world, times)
    result = world.round()
    assert result.outcome == "committed"
    assert how(world) == {"kinds": [kind], "lookups": lookups}
    world.assert_equal()
    assert bool(world.table.unreferenced_files()) == is_cut_off


def test_files_that_a_snapshot_may_reference_are_kept_if_the_next_commit_cannot_be_written(
    world: KeyedWorld,
) -> None:
    """The first commit may have landed: nobody can tell."""
    cut_off(world)
    before = set(world.table.files)

    def unwritable() -> None:
        raise LakeNotWritable("the catalog is full")

    rewritten(world, 1, then=unwritable)
    with pytest.raises(LakeNotWritable, match="full"):
        world.round()
    kinds = {path.rpartition("-")[2] for path in set(world.table.files) - before}
    assert {"deletes", "positions0"} <= kinds


def test_a_landed_commit_that_is_called_refused_is_not_repeated(world: KeyedWorld) -> None:
    world.table.land_and_refuse = True
    before = len(world.table.snapshots())
    assert world.round().outcome == "committed"
    assert len(world.table.snapshots()) == before + 1
    world.assert_equal()
    assert not world.table.unreferenced_files()
