"""A lake behind Fluss, on the models: what is found, what can be done, and moves of main."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from sluice.errors import (
    LakeCommitOutcomeUnknown,
    LakeCommitRefused,
    LakeTableMissing,
    UnsupportedLakeOption,
)
from sluice.model import types as t
from sluice.rounds.repair.diagnose import apply_action, diagnose
from sluice.rounds.values.offsets import OFFSETS_FILE_KEY
from sluice.rounds.values.types import RepairMode
from tests.support.models.memory_cluster import MemoryCluster
from tests.support.models.tables import table_info
from tests.unit.rounds.conftest import World
from tests.unit.rounds.repairs import forget_ours, found, mended, put_right, seen, ways

# ---- nothing to do, or nothing that a round would not do ----


def test_a_table_in_order_is_left_alone(world: World) -> None:
    assert world.cluster.info is not None
    fresh = found(world)
    assert (fresh.healthy, fresh.actions) == (True, ())
    assert "first round creates it" in fresh.state
    world.round()
    assert found(world).healthy
    world.append(0, 1)
    world.round()
    assert found(world).facts["registered with Fluss"].endswith(", 1 offset in 1 bucket")
    world.append(1, 2)
    world.round()
    answer = found(world)
    assert (answer.healthy, answer.actions) == (True, ())
    assert answer.facts["registered with Fluss"].endswith(", 3 offsets in 2 buckets")


def test_a_table_that_every_round_refuses_is_not_called_in_order() -> None:
    info = table_info(
        {"a": t.BIGINT}, properties={"table.datalake.historical-partition.enabled": "true"}
    )
    with pytest.raises(
        UnsupportedLakeOption, match="partition.enabled=true, which Sluice does not support"
    ):
        found(World(MemoryCluster(info)))


def test_snapshots_of_another_lake_format_are_no_lake_of_ours(rolled_back: World) -> None:
    info = rolled_back.cluster.info
    assert info is not None
    properties = {**info.descriptor.properties, "table.datalake.format": "paimon"}
    descriptor = replace(info.descriptor, properties=properties)
    rolled_back.cluster.info = replace(info, descriptor=descriptor)
    with pytest.raises(UnsupportedLakeOption, match="has the lake format paimon"):
        found(rolled_back)


def test_what_is_said_does_not_send_to_the_command_that_says_it(rolled_back: World) -> None:
    state = found(rolled_back).state
    assert "is behind snapshot" in state
    rolled_back.lake.tables.clear()
    assert "is missing in mem:/" in found(rolled_back).state
    assert "sluice repair" not in state + found(rolled_back).state


def test_looking_changes_nothing(rolled_back: World) -> None:
    before = (rolled_back.table.history(), list(rolled_back.cluster.registered))
    found(rolled_back)
    assert (rolled_back.table.history(), rolled_back.cluster.registered) == before
    assert rolled_back.cluster.begin_round().tiering_epoch == 4


def test_a_snapshot_that_fluss_does_not_know_is_registered_by_a_round(
    world: World, arm: Callable[[str], None]
) -> None:
    world.append(0, 3)
    arm("round.fluss_commit.before=raise")
    with pytest.raises(RuntimeError):
        world.round()
    assert ways(world) == {"register": True}
    world.round()
    assert found(world).healthy
    world.assert_exactly_once()


def test_a_tag_that_was_removed_is_set_again(world: World) -> None:
    world.append(0, 3)
    result = world.round()
    world.table.tagged = None
    assert ways(world) == {"tag": True}
    put_right(world)
    assert world.table.tagged == result.lake_snapshot_id
    assert found(world).healthy


# ---- rolled back, and the registered snapshot is still there ----


def test_main_comes_forward_again(rolled_back: World) -> None:
    assert ways(rolled_back) == {"restore": True, "retier": True}
    put_right(rolled_back)
    assert found(rolled_back).healthy
    rolled_back.append(0, 1)
    assert rolled_back.round().rows == 1
    rolled_back.assert_exactly_once()


def test_rows_of_other_writers_are_not_dropped_without_a_word(rolled_back: World) -> None:
    rolled_back.table.foreign_commit([((), 0, -1)], {"operation": "append", "added-records": "1"})
    assert ways(rolled_back) == {"retier": True, "restore": False}
    [restore] = [way for way in found(rolled_back).actions if way.name == "restore"]
    assert "another writer's, append, +1 rows" in restore.risks[0]
    apply_action(restore, seen(rolled_back))  # named: done
    rolled_back.assert_exactly_once()


def test_a_compaction_is_no_loss(rolled_back: World) -> None:
    rolled_back.table.foreign_commit(summary={"operation": "replace"})
    assert ways(rolled_back)["restore"]


def test_rows_that_the_rollback_was_to_remove_do_not_come_back_without_a_word(
    world: World,
) -> None:
    world.append(0, 3)
    first = world.round()
    world.table.foreign_commit([((), 0, -1)], {"operation": "append"})
    world.append(0, 2)
    world.round()
    world.table.roll_back_to(first.lake_snapshot_id)
    assert ways(world) == {"retier": True, "restore": False}
    assert "which may have been rolled back on purpose" in found(world).actions[1].risks[0]
    mended(world, RepairMode.RETIER)
    world.assert_exactly_once()


@pytest.mark.parametrize("forgotten", [False, True])
def test_an_expired_snapshots_rows_are_not_dropped_without_a_word(
    rolled_back: World, forgotten: bool
) -> None:
    """Another writer appends, compacts, and expires its own snapshot."""
    world = rolled_back
    appended = world.table.foreign_commit([((), 0, -1)], {"operation": "append"})
    world.table.foreign_commit(summary={"operation": "replace"})
    world.table.expire(appended)
    if forgotten:
        world.table.forget_expired()
        world.table.tagged = None
    [restore] = [way for way in found(world).actions if way.name == "restore"]
    told = "which ones is unknown" if forgotten else f"main loses snapshot {appended}"
    assert told in restore.risks[0]


def test_a_snapshot_of_a_dropped_table_says_nothing_of_this_one(world: World) -> None:
    """Its lake table was left, and all of its snapshots have expired but a compaction."""
    world.append(0, 3)
    forget_ours(world, world.round())
    assert world.cluster.info is not None
    world.cluster.info = replace(world.cluster.info, table_id=2)
    answer = found(world)
    assert "retier" not in [way.name for way in answer.actions]
    assert any("table id 1, which was dropped" in text for text in answer.advice)


def test_main_moves_only_from_where_it_was_seen(rolled_back: World) -> None:
    rolled_back.table.before_commit = lambda: rolled_back.table.foreign_commit() and None
    before = seen(rolled_back)
    with pytest.raises(LakeCommitRefused):
        put_right(rolled_back)
    assert rolled_back.table.history().main != before.history.main, "the other writer's stays"


def test_a_lost_answer_is_looked_up(rolled_back: World) -> None:
    rolled_back.table.lose_answer = True
    put_right(rolled_back)
    assert found(rolled_back).healthy


def test_an_answer_that_cannot_be_looked_up_is_unknown(rolled_back: World) -> None:
    sight = seen(rolled_back)
    way = diagnose(sight, rolled_back.cluster).recommended
    assert way is not None
    rolled_back.table.lose_answer = True
    target = seen(rolled_back).history.main
    rolled_back.table.history = lambda: sight.history  # type: ignore[method-assign]
    with pytest.raises(LakeCommitOutcomeUnknown):
        apply_action(way, sight)
    assert target == sight.history.main


@pytest.mark.parametrize("step", ["repair.restore.before", "repair.restore.after"])
def test_a_repair_that_dies_can_be_done_again(
    rolled_back: World, arm: Callable[[str], None], step: str
) -> None:
    arm(f"{step}=raise")
    with pytest.raises(RuntimeError, match=step):
        put_right(rolled_back)
    arm("")
    if not found(rolled_back).healthy:
        put_right(rolled_back)
    rolled_back.append(0, 2)
    assert rolled_back.round().rows == 2
    rolled_back.assert_exactly_once()


# ---- no table, another table, no offsets ----


def test_a_missing_lake_table_is_only_made_anew_when_that_is_wanted(
    world: World, arm: Callable[[str], None]
) -> None:
    world.append(0, 3)
    world.round()
    world.lake.tables.clear()
    answer = found(world)
    assert (answer.recommended, [way.name for way in answer.actions]) == (None, ["retier"])
    assert "creates a second one" in answer.actions[0].risks[0]
    assert "register_table('db.t'" in answer.advice[1]
    with pytest.raises(LakeTableMissing):
        mended(world, RepairMode.ADOPT)
    assert world.lake.tables == {}
    arm("round.lake_commit.before=raise")  # made, and nothing committed
    with pytest.raises(RuntimeError):
        mended(world, RepairMode.RETIER)
    assert ways(world) == {"retier": True, "adopt": False}
    mended(world, RepairMode.RETIER)
    world.assert_exactly_once()


def test_the_rows_of_a_dropped_table_are_nobodys_to_repair(world: World) -> None:
    world.append(0, 3)
    world.round()
    world.cluster.create_again(2)
    answer = found(world)
    assert (answer.healthy, answer.actions) == (False, ())
    assert "create the new Fluss table under another name" in answer.state


def test_lost_offsets_of_a_snapshot_that_fluss_does_not_know(
    world: World, arm: Callable[[str], None]
) -> None:
    """Main goes back to what Fluss knows; the dead round's rows are copied again."""
    world.append(0, 3)
    first = world.round()
    world.append(0, 2)
    arm("round.fluss_commit.before=raise")
    with pytest.raises(RuntimeError):
        world.round()
    lost = world.table.snapshots()[0]
    summary = dict(lost.summary)
    del summary["sluice.offsets"]
    world.table.roll_back_to(first.lake_snapshot_id)
    world.table.foreign_commit(summary=summary | {OFFSETS_FILE_KEY: "mem:/gone"} | {
        "sluice.offsets-file-bytes": "70000", "sluice.offsets-file-sha256": "0",
    })  # fmt: skip
    assert "the file does not exist" in found(world).state
    assert ways(world) == {"restore": False}, "a driver of the first snapshot could commit again"
    [restore] = found(world).actions
    assert f"planned its round from snapshot {first.lake_snapshot_id}" in restore.risks[0]
    apply_action(restore, seen(world))
    assert world.round().rows == 2
    world.assert_exactly_once()


def test_lost_offsets_of_the_very_first_snapshot(world: World) -> None:
    table = world.lake.create(world.cluster.table_info(world.cluster.begin_round().path))
    table.foreign_commit(summary={
        "commit-user": "__fluss_lake_tiering", OFFSETS_FILE_KEY: "mem:/gone",
        "sluice.offsets-file-bytes": "70000",
    })  # fmt: skip
    answer = found(world)
    assert answer.actions == ()
    assert "tier to another lake" in answer.advice[0]


def test_behind_a_snapshot_of_flusss_own_tiering_only_main_can_move(world: World) -> None:
    world.append(0, 3)
    first = world.round()
    world.append(0, 2)
    world.round()
    world.table.roll_back_to(first.lake_snapshot_id)
    assert world.cluster.info is not None
    path = world.cluster.prepare_lake_snapshot(1, world.cluster.info.path, {world.bucket(0): 3})
    flink = {"commit-user": "__fluss_lake_tiering", "fluss-offsets": path}
    world.table.foreign_commit(summary=flink)
    assert ways(world) == {"restore": False}
    assert "names no offsets" in " ".join(found(world).advice)


def test_the_answer_as_json(rolled_back: World) -> None:
    content = found(rolled_back).to_json()
    assert content["recommended"] == "restore"
    assert [one["name"] for one in content["repairs"]] == ["restore", "retier"]
    assert content["healthy"] is False
