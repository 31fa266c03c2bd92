"""A conversion of equality deletes in the simulated lake: what it writes, and what refuses it."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest

from sluice.model import TablePath
from sluice.model import types as t
from sluice.rounds.upkeep.conversion import Conversion
from tests.simulation import faults
from tests.simulation.actors import Actor
from tests.simulation.lake.context import LakeContext
from tests.simulation.lake.lake import DriverTable
from tests.simulation.lake.rewrites import Change, group_of, rewritten
from tests.simulation.lake.stored_lake import SimLake, SimTable
from tests.simulation.test_rewrites import data_files, land, rows, tier
from tests.support.models.tables import table_info

INFO = table_info({"a": t.BIGINT})
MEMORY = 1 << 20


class World:
    """A table of one bucket with the keys 1 to 4, and something that happens at a step."""

    def __init__(self, *, as_vectors: bool) -> None:
        self.lake = SimLake(lambda _: None, lambda: None, as_vectors=as_vectors)
        self.table = self.lake.create(INFO)
        self.at = ""
        self.happen: Callable[[], object] = lambda: None
        self.noted: list[str] = []
        self.faults = faults.NONE
        tier(self.table, {1: 10, 2: 20, 3: 30, 4: 40}, [])

    def convert(self, memory_bytes: int = MEMORY) -> Conversion:
        actor = Actor("maintainer", lambda _: None, 1)
        context = LakeContext(
            random.Random(1),
            self.lake,
            lambda: self.faults,
            self.noted.append,
            self._step,
            lambda _kind, _act: None,
            lambda _actor, _path: None,
            lambda _actor, _path, _going: None,
        )
        table = DriverTable(context, actor, TablePath("db", "t"), self.table)
        self.lake.tables[TablePath("db", "t")] = self.table
        return table.maintenance().convert(memory_bytes)

    def _step(self, _actor: Actor, name: str) -> None:
        if name == self.at:
            self.at = ""
            self.happen()


@pytest.fixture(params=[False, True], ids=["positions", "vectors"])
def world(request: pytest.FixtureRequest) -> World:
    return World(as_vectors=request.param)


def keys(table: SimTable) -> list[str]:
    return [path for path in table.paths() if table.keyed[path].deletes]


def left(table: SimTable) -> Sequence[str]:
    """The files of conversions that no snapshot references."""
    return sorted(path for path in table.unreferenced_files() if "maintenance" in path)


def test_it_marks_the_rows_that_are_older_than_the_deletes(world: World) -> None:
    tier(world.table, {2: 21}, [2, 3])
    tier(world.table, {2: 22, 3: 33}, [2])
    expected = rows(world.table)
    done = world.convert()
    assert rows(world.table) == expected == {1: 10, 2: 22, 3: 33, 4: 40}
    assert keys(world.table) == []
    assert (done.commits, done.refused, done.files_removed, done.rows) == (1, 0, 2, 3)
    assert world.convert() == Conversion(is_complete=True)


def test_little_memory_takes_one_file_after_the_other(world: World) -> None:
    tier(world.table, {2: 21}, [2, 3])
    tier(world.table, {2: 22, 3: 33}, [2])
    expected = rows(world.table)
    assert world.convert(64).commits == 2
    assert rows(world.table) == expected
    assert keys(world.table) == []


@pytest.mark.parametrize("by_position", [False, True], ids=["equality", "position"])
def test_a_round_that_commits_meanwhile(world: World, by_position: bool) -> None:
    """Only a second vector of the same data file is in the way."""
    tier(world.table, {2: 21}, [2])
    world.at = "maintain commits"
    world.happen = lambda: tier(world.table, {3: 31}, [3], by_position=by_position)
    done = world.convert()
    assert rows(world.table) == {1: 10, 2: 21, 3: 31, 4: 40}
    assert keys(world.table) == []
    assert done.refused == (by_position and world.table.as_vectors)
    assert left(world.table) == []


def test_a_rewrite_that_began_before_the_deletes(world: World) -> None:
    """Its rows have the deleted one, and an old number: without the deletes it would come back."""
    group = group_of(world.table, data_files(world.table))
    change = rewritten(world.table, group, keeps_number=True)
    tier(world.table, {2: 21}, [2])
    world.at = "maintain commits"
    world.happen = lambda: land(world.table, change)
    done = world.convert()
    assert rows(world.table) == {1: 10, 2: 21, 3: 30, 4: 40}
    assert (done.refused, done.commits) == (1, 1)
    assert left(world.table) == []


def test_an_answer_that_calls_it_refused_after_it_landed_and_expired(world: World) -> None:
    tier(world.table, {2: 21}, [2])

    def expire() -> None:
        landed = world.table.main
        assert landed is not None
        tier(world.table, {5: 50}, [])
        world.table.expire(landed)

    world.at, world.happen = "maintain looks", expire
    table = world.table
    found = list(table.stored_snapshots().entries)
    world.faults = faults.Faults(commit_misnamed=1.0)
    done = world.convert()
    assert len(table.stored_snapshots().entries) == len(found) + 1
    assert (done.refused, done.commits) == (0, 1)
    assert all(path in table.files for path in table.paths())
    assert rows(table) == {1: 10, 2: 21, 3: 30, 4: 40, 5: 50}


def test_deletes_that_apply_to_nothing_are_removed(world: World) -> None:
    tier(world.table, {2: 21}, [2])
    group = group_of(world.table, data_files(world.table))
    land(world.table, rewritten(world.table, group, keeps_number=True))
    assert len(keys(world.table)) == 1
    done = world.convert()
    assert (done.files_removed, done.useless_removed, done.commits) == (0, 1, 1)
    assert keys(world.table) == []
    assert rows(world.table) == {1: 10, 2: 21, 3: 30, 4: 40}


def test_a_version_that_another_writer_has_replaced_is_refused(world: World) -> None:
    tier(world.table, {2: 21}, [2])
    world.at = "conversion swaps"
    world.happen = lambda: land(world.table, Change(frozenset(), frozenset()))
    assert world.convert().refused == 1
    assert keys(world.table) == []
