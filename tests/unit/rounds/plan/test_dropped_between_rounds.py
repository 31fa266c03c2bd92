"""A partition that is dropped between two rounds is named by the next commit, and only by it."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from sluice.model import Partition
from sluice.rounds.plan.noted_drops import DROPPED_KEY, dropped_in, dropped_summary
from sluice.rounds.values.types import RepairMode
from tests.unit.rounds.conftest import World
from tests.unit.rounds.repairs import mended

GONE = (
    "dropped since the last commit: partition id 5 (bucket:offset 0:3). Rows from these offsets"
    " on, if there were any, are not in the lake"
)


def dropped(world: World) -> World:
    """A partition with rows in the lake was dropped, and the other has new rows."""
    world.append(0, 3, partition_id=5)
    world.append(0, 1, partition_id=6)
    world.round()
    world.cluster.drop_partition(5)
    world.append(0, 2, partition_id=6)
    return world


def test_the_next_commit_names_the_partition_and_no_later_round_does(partitioned: World) -> None:
    world = dropped(partitioned)
    assert world.round().notes == (GONE,)
    for _ in range(3):
        world.append(0, 1, partition_id=6)
        result = world.round()
        assert (result.outcome, result.notes) == ("committed", ())
        assert result.offsets["5/0"] == 3


def test_it_is_no_loss_in_the_history(partitioned: World) -> None:
    assert dropped(partitioned).round().details().note is None


def test_a_round_that_commits_nothing_names_no_partition(partitioned: World) -> None:
    world = dropped(partitioned)
    world.round()
    world.cluster.drop_partition(6)
    for _ in range(2):
        result = world.round()
        assert (result.outcome, result.notes) == ("nothing_new", ())
    world.cluster.add_partition(Partition(7, ("wed",)))
    world.append(0, 1, partition_id=7)
    assert "partition id 6 (bucket:offset 0:3)" in world.round().notes[0]


def test_each_of_several_partitions_is_named_once(partitioned: World) -> None:
    world = dropped(partitioned)
    for n in range(7, 20):
        world.cluster.add_partition(Partition(n, (f"day {n}",)))
        world.append(0, n, partition_id=n)
    world.round()
    for n in (9, 7, 19, 8):
        world.cluster.drop_partition(n)
        world.append(0, 1, partition_id=6)
        [note] = world.round().notes
        assert f"partition id {n} (bucket:offset 0:{n})" in note
        assert note.count("partition id") == 1


def test_a_snapshot_that_does_not_say_what_was_dropped_names_nothing(partitioned: World) -> None:
    """It is of an older version, which named every dropped partition in every round."""
    world = dropped(partitioned)
    newest = world.table.newest_tiering_snapshot()
    assert newest is not None
    old = {key: text for key, text in newest.summary.items() if key != DROPPED_KEY}
    node = world.table._nodes[newest.snapshot_id]
    world.table._nodes[newest.snapshot_id] = replace(node, snapshot=replace(newest, summary=old))
    assert world.round().notes == ()
    world.append(0, 2, partition_id=6)
    assert world.round().notes == ()


def test_a_repair_does_not_forget_what_was_named(partitioned: World) -> None:
    world = dropped(partitioned)
    first = world.round()
    world.append(0, 2, partition_id=6)
    world.round()
    world.table.roll_back_to(first.lake_snapshot_id)
    assert not any("dropped since" in note for note in mended(world, RepairMode.RETIER).notes)


@given(known=st.sets(st.integers(0, 30)), data=st.data())
def test_the_summary_gives_back_what_was_dropped(known: set[int], data: st.DataObject) -> None:
    gone = data.draw(st.sets(st.sampled_from(sorted(known)))) if known else set()
    assert dropped_in(dropped_summary(known, gone), known) == gone


def test_the_summary_of_ten_thousand_expired_partitions_is_short() -> None:
    text = dropped_summary(set(range(1, 20_000, 2)), set(range(1, 19_500, 2)))[DROPPED_KEY]
    assert text == "1-19499"
