"""Rounds that compact a primary-key table in their own commit, and what others do meanwhile."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from sluice.errors import LakeNotWritable
from sluice.rounds.records.result import RoundResult
from sluice.rounds.upkeep.compacted import COMPACTION_KEY
from sluice.rounds.upkeep.compaction import AUTO_COMPACTION, CompactionOptions
from sluice.rounds.values.limits import LookupBudget, RoundLimits
from sluice.rounds.values.types import RepairMode
from tests.unit.rounds.keyed_world import KeyedWorld

ALWAYS = CompactionOptions(always=True)
KEYS = range(0, 40, 2)


@pytest.fixture(params=[False, True], ids=["positions", "vectors"])
def world(request: pytest.FixtureRequest) -> KeyedWorld:
    """A bucket with five data files, and deleted rows in them."""
    found = KeyedWorld()
    found.put(found.bucket(), **{f"k{key}": 0 for key in KEYS})
    found.round()
    found.table.as_vectors = request.param
    for number in range(1, 5):
        found.put(found.bucket(), **{f"k{key}": number for key in (2, 4, 100 + 2 * number)})
        found.round()
    found.assert_equal()
    assert len(data_files(found)) == 5
    found.compaction = ALWAYS
    return found


def data_files(world: KeyedWorld) -> list[str]:
    return [path for path in world.table.paths() if world.table.keyed[path].rows]


def changed(world: KeyedWorld) -> RoundResult:
    """A round that changes, deletes and adds a key."""
    world.put(world.bucket(), k4=9, k200=9)
    world.delete(world.bucket(), 6)
    return world.round()


def test_one_commit_replaces_the_files_and_has_the_changes(world: KeyedWorld) -> None:
    before = set(data_files(world))
    result = changed(world)
    world.assert_equal()
    [left] = data_files(world)
    assert left not in before
    assert left.endswith("-compacted")
    keys = [key for key, _ in world.table.keyed[left].rows]
    assert keys == sorted(keys)
    assert len(world.table.paths()) == 1  # without deletes, which apply to nothing any more
    assert result.files_compacted == 5
    assert result.compacted == "5 data files of 1 bucket were rewritten as 1"
    assert result.deletes_as == "positions"
    summary = json.loads(world.table.snapshots()[0].summary[COMPACTION_KEY])
    assert (summary["files-removed"], summary["files-written"]) == (5, 1)
    assert world.table.unreferenced_files() == set()


def test_a_table_asks_for_it_by_its_option(world: KeyedWorld) -> None:
    world.compaction = CompactionOptions()
    assert changed(world).compacted == ""
    info = world.cluster.info
    assert info is not None
    properties = {**info.descriptor.properties, AUTO_COMPACTION: "true"}
    world.cluster.info = replace(info, descriptor=replace(info.descriptor, properties=properties))
    world.put(world.bucket(), k4=10)
    assert world.round().files_compacted == 6
    world.assert_equal()


@pytest.mark.parametrize("why", ["the option is off", "no bytes"])
def test_without_it_files_stay(world: KeyedWorld, why: str) -> None:
    off = why == "the option is off"
    world.compaction = CompactionOptions() if off else CompactionOptions(True, 0)
    result = changed(world)
    assert (result.files_compacted, result.compacted, len(data_files(world))) == (0, "", 6)
    assert COMPACTION_KEY not in world.table.snapshots()[0].summary


def test_files_with_equality_deletes_are_healed(world: KeyedWorld) -> None:
    world.compaction = CompactionOptions()
    world.lookups = LookupBudget(0)
    for number in range(3):
        world.put(world.bucket(), k2=50 + number)
        world.delete(world.bucket(), 8 + 2 * number)
        assert world.round().deletes_as.startswith("equality deletes")
    world.lookups, world.compaction = LookupBudget(), ALWAYS
    result = changed(world)
    world.assert_equal()
    assert len(data_files(world)) == 1
    assert result.deletes_as == "positions"
    assert len(world.table.paths()) == 1  # PyIceberg refuses a table with any equality delete


def test_equality_deletes_of_files_that_stay_stay(world: KeyedWorld) -> None:
    world.compaction, world.lookups = CompactionOptions(), LookupBudget(0)
    world.put(world.bucket(), k2=50, k6=50)
    world.round()
    world.compaction = CompactionOptions(True, bytes_max=8 * 12, files_min=3)
    world.lookups = LookupBudget()
    assert 0 < changed(world).files_compacted < 6
    world.assert_equal()
    assert any(world.table.keyed[path].deletes for path in world.table.paths())


def test_a_round_with_equality_deletes_compacts_too(world: KeyedWorld) -> None:
    world.lookups = LookupBudget(0)
    result = changed(world)
    world.assert_equal()
    assert result.files_compacted == 5
    assert result.deletes_as.startswith("equality deletes")


def test_a_budget_leaves_files_with_positions_behind(world: KeyedWorld) -> None:
    world.compaction = CompactionOptions(True, bytes_max=8 * 12, files_min=3)
    result = changed(world)
    world.assert_equal()
    assert 2 <= result.files_compacted <= 4
    assert len(data_files(world)) == 6 - result.files_compacted


def test_others_who_rewrite_files_meanwhile_win(world: KeyedWorld) -> None:
    world.table.before_commit = lambda: world.table.foreign_compaction() and None
    result = changed(world)
    world.assert_equal()
    assert result.files_compacted == 0
    assert result.compacted.startswith("1 bucket left out: others have changed files meanwhile: ")
    assert any(note.startswith("the compaction was given up: ") for note in result.notes)
    assert result.deletes_as == "positions"
    assert world.table.unreferenced_files() == set()
    assert not [path for path in world.table.paths() if path.endswith("-compacted")]


def test_others_who_rewrite_files_again_and_again_do_not_starve_the_round(
    world: KeyedWorld,
) -> None:
    left = [3]

    def meddle() -> None:
        world.table.foreign_compaction()
        left[0] -= 1
        world.table.before_commit = meddle if left[0] else None

    world.table.before_commit = meddle
    result = changed(world)
    world.assert_equal()
    assert left == [0]
    assert "the lake refused positions 3 times" in result.deletes_as
    assert world.table.unreferenced_files() == set()


def test_a_round_that_only_adds_keys_gives_its_compaction_up_too(world: KeyedWorld) -> None:
    world.table.before_commit = lambda: world.table.foreign_compaction() and None
    world.put(world.bucket(), k300=1, k301=1)
    result = world.round()
    world.assert_equal()
    assert (result.files_compacted, result.rows, result.deletes) == (0, 2, 0)


def test_a_missing_file_leaves_the_compaction_out(world: KeyedWorld) -> None:
    [old, *_] = sorted(data_files(world))
    kept = world.table.files.pop(old)
    world.put(world.bucket(), k500=1)
    world.image = "WAL"
    result = world.round()
    world.table.files[old] = kept
    assert result.files_compacted == 0
    assert result.compacted == f"1 bucket left out: {old} is missing"
    world.assert_equal()


def test_a_compaction_that_would_pass_the_time_limit_is_left_out(
    world: KeyedWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sluice.rounds.upkeep.compaction.ROW_S", 3600.0)
    world.limits = RoundLimits(max_ms=60_000)
    result = changed(world)
    world.assert_equal()
    assert (result.files_compacted, result.compacted) == (0, "")  # it was not planned
    assert len(data_files(world)) == 6


@pytest.mark.parametrize(
    "fault", ["lose_answer", "land_and_refuse", "lose_commit"], ids=lambda name: name
)
def test_an_unknown_or_misnamed_outcome_is_looked_up(world: KeyedWorld, fault: str) -> None:
    setattr(world.table, fault, True)
    world.put(world.bucket(), k4=9, k200=9)
    if fault == "lose_commit":
        with pytest.raises(Exception, match="no answer"):
            world.round()
    else:
        world.round()
    world.put(world.bucket(), k4=10)
    world.round()
    world.assert_equal()


def test_a_refused_commit_leaves_no_file(world: KeyedWorld) -> None:
    kept = set(world.table.files)

    def gone() -> None:
        raise LakeNotWritable("the catalog refuses")

    world.table.before_commit = gone
    world.put(world.bucket(), k4=9, k200=9)
    with pytest.raises(LakeNotWritable):
        world.round()
    assert set(world.table.files) == kept


def test_a_repair_compacts_nothing(world: KeyedWorld) -> None:
    changed(world)
    for number in range(5):
        world.put(world.bucket(), **{f"k{600 + number}": 1})
        world.compaction = CompactionOptions()
        world.round()
    world.compaction = ALWAYS
    snapshots = world.table.snapshots()
    world.table.roll_back_to(snapshots[1].snapshot_id)
    result = world.round(repair_mode=RepairMode.RETIER)
    assert result.compacted == ""
    world.assert_equal()
