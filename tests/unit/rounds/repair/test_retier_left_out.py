"""A lake that was rolled back past a repair of its logs is tiered again without what they lack."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from sluice.errors import SplitFailed
from sluice.rounds.plan.bucket_repairs import SKIPPED_KEY
from sluice.rounds.repair.diagnose import diagnose
from sluice.rounds.values.types import OffsetRange, RepairMode
from tests.unit.rounds.conftest import World
from tests.unit.rounds.keyed_world import KeyedWorld
from tests.unit.rounds.repairs import found, mended, seen, skipped


@pytest.fixture
def after_skips(world: World) -> World:
    """The batches at 5 and 11 were skipped, then the lake was rolled back to offset 3."""
    world.append(0, 3)
    first = world.round()
    for rows in (2, 4, 2, 3, 1):
        world.append(0, rows)
    world.cluster.unreadable = {(world.bucket(0), 5), (world.bucket(0), 11)}
    skipped(world, 5, 9)
    skipped(world, 11, 14)
    world.round()
    world.table.roll_back_to(first.lake_snapshot_id)
    return world


def test_skipped_batches_are_left_out_again(after_skips: World) -> None:
    retier = next(one for one in found(after_skips).actions if one.name == "retier")
    assert retier.risks == ()  # a user has accepted them
    assert "what was skipped before: bucket 0: offsets 5 to 8, bucket 0: offsets 11" in (
        retier.effect
    )
    result = mended(after_skips, RepairMode.RETIER)
    assert after_skips.offsets_in_lake(0) == [0, 1, 2, 3, 4, 9, 10, 14]
    assert (result.offsets["0"], result.forced) == (15, "")
    assert result.accepted == (
        "bucket 0: offsets 5 to 8 were skipped; bucket 0: offsets 11 to 13 were skipped"
    )
    newest = after_skips.table.newest_tiering_snapshot()
    assert newest is not None
    assert json.loads(newest.summary[SKIPPED_KEY]) == {"0": [5, 9, 11, 14]}
    assert found(after_skips).healthy


@pytest.mark.parametrize("is_tagged", [True, False])
def test_expired_snapshots_say_what_was_skipped(after_skips: World, is_tagged: bool) -> None:
    """Expiry takes those that main lacks; the tag keeps the newest one."""
    table = after_skips.table
    if not is_tagged:
        table.tagged = None
    kept = {table.history().main, table.tagged}
    table.expire(*set(table.history().snapshots) - kept)
    mended(after_skips, RepairMode.RETIER)
    assert after_skips.offsets_in_lake(0) == [0, 1, 2, 3, 4, 9, 10, 14]


def test_a_batch_that_was_damaged_after_it_was_tiered_is_left_out_if_a_user_names_it(
    rolled_back: World,
) -> None:
    world = rolled_back
    batch = OffsetRange(world.bucket(1), 0, 4)
    world.cluster.unreadable = {(batch.bucket, batch.start)}
    with pytest.raises(SplitFailed, match="--skip 1:0`"):
        mended(world, RepairMode.RETIER)
    state = replace(seen(world), unreadable=batch)
    action = next(one for one in diagnose(state, world.cluster).actions if one.name == "retier")
    assert action.risks == (f"lost for good: {batch} (the batch cannot be read)",)
    assert "skipped before" not in action.effect
    result = mended(world, RepairMode.RETIER, accepted=action, unreadable=batch)
    assert result.accepted == "bucket 1: offsets 0 to 3 were skipped"
    assert world.offsets_in_lake(0) == [0, 1, 2, 3, 4]
    assert world.offsets_in_lake(1) == [4]
    assert found(world).healthy


def test_it_can_be_rolled_back_and_tiered_again_many_times(after_skips: World) -> None:
    for _ in range(2):
        mended(after_skips, RepairMode.RETIER)
        after_skips.table.roll_back_to(after_skips.table.snapshots()[-1].snapshot_id)
    after_skips.cluster.truncate_before(after_skips.bucket(0), 9)
    mended(after_skips, RepairMode.RETIER)
    assert after_skips.offsets_in_lake(0) == [0, 1, 2, 9, 10, 14]


def test_a_batch_behind_what_was_tiered_does_not_prevent_it(rolled_back: World) -> None:
    world = rolled_back
    world.cluster.unreadable = {(world.bucket(0), 5)}
    world.append(0, 2)
    world.append(1, 3)
    result = mended(world, RepairMode.RETIER)
    assert result.offsets == {"0": 5, "1": 5}
    with pytest.raises(SplitFailed, match="--skip 0:5`"):
        world.round()
    assert len(world.offsets_in_lake(1)) == 8
    skipped(world, 5, 7)
    assert found(world).healthy


@pytest.mark.parametrize("with_snapshot", [True, False])
@pytest.mark.parametrize("cause", ["batch", "beginning", "unknown end"])
def test_a_rebuilt_bucket_is_read_again(cause: str, with_snapshot: bool) -> None:
    world = KeyedWorld()
    zero = world.bucket(0)
    world.put(zero, k2=1, k4=1)
    first = world.round()
    world.put(world.bucket(1), k1=1)
    lost = world.cluster.logs[zero][-1].next_offset
    world.delete(zero, 2)
    end = world.cluster.logs[zero][-1].next_offset
    world.put(zero, k4=2)
    batch = None
    if cause == "beginning":
        world.cluster.truncate_before(zero, end)
    else:
        world.cluster.unreadable = {(zero, lost)}
        batch = OffsetRange(zero, lost, end if cause == "batch" else lost)
    world.snapshot(zero)
    world.round(repair_mode=RepairMode.REBUILD, unreadable=batch)
    world.round()
    world.table.roll_back_to(first.lake_snapshot_id)
    world.put(zero, k6=1)
    if not with_snapshot:
        world.leased.clear()
        with pytest.raises(SplitFailed, match="KeyedSplitOptions"):  # the model supports no scans
            world.round(repair_mode=RepairMode.RETIER)
        return
    world.round(repair_mode=RepairMode.RETIER)
    world.round()
    world.assert_equal()


def damaged_after_it_was_tiered(
    *, begins_at_lake_end: bool = True
) -> tuple[KeyedWorld, OffsetRange]:
    """A batch of bucket 0 was damaged, and the lake is rolled back to before it."""
    world = KeyedWorld()
    zero = world.bucket(0)
    world.put(zero, k2=1, k4=1)
    first = world.round()
    if not begins_at_lake_end:
        world.put(zero, k6=1)
    lost = world.cluster.logs[zero][-1].next_offset
    world.delete(zero, 2)
    end = world.cluster.logs[zero][-1].next_offset
    world.put(zero, k4=2)
    world.round()
    world.table.roll_back_to(first.lake_snapshot_id)
    world.cluster.unreadable = {(zero, lost)}
    return world, OffsetRange(zero, lost, end)


@pytest.mark.parametrize("is_end_known", [True, False])
def test_a_bucket_with_a_primary_key_is_read_again_behind_a_named_batch(
    *, is_end_known: bool
) -> None:
    world, batch = damaged_after_it_was_tiered()
    world.snapshot(batch.bucket)
    with pytest.raises(SplitFailed, match=f"--skip 0:{batch.start}`"):
        world.round(repair_mode=RepairMode.RETIER)
    if not is_end_known:
        batch = replace(batch, stop=batch.start)
    world.round(repair_mode=RepairMode.RETIER, unreadable=batch)
    world.round()
    world.assert_equal()


@pytest.mark.parametrize("begins_at_lake_end", [True, False])
def test_a_named_batch_whose_bucket_cannot_be_read_again_stays_named(
    *, begins_at_lake_end: bool
) -> None:
    world, batch = damaged_after_it_was_tiered(begins_at_lake_end=begins_at_lake_end)
    with pytest.raises(SplitFailed) as failed:  # the model supports no scans
        world.round(repair_mode=RepairMode.RETIER, unreadable=batch)
    text = str(failed.value)
    assert f"the batch at offset {batch.start} cannot be read, and the rebuild of the" in text
    assert text.endswith(
        f"`sluice repair db.t --skip 0:{batch.start}` with the same --warehouse or --config: it"
        " lists the possible repairs"
    )


def test_rows_of_other_writers_in_a_rebuilt_bucket_are_not_deleted_unnamed() -> None:
    world = KeyedWorld()
    zero = world.bucket(0)
    world.put(zero, k2=1)
    first = world.round()
    world.delete(zero, 2)
    world.round()
    world.table.roll_back_to(first.lake_snapshot_id)
    world.cluster.truncate_before(zero, 2)
    world.table.foreign_commit(summary={"operation": "append"})
    [retier] = [one for one in found(world).actions if one.name == "retier"]  # type: ignore[arg-type]
    assert retier.risks == ("main loses any rows that other writers have added to bucket 0",)
    assert retier.seen_main == world.table.history().main
