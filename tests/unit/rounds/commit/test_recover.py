"""What a round finds in lake and cluster before it plans: dead rounds, rollbacks, partitions."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sluice.errors import (
    LakeCommitRefused,
    LakeRolledBack,
    LakeTableMismatch,
    LakeTableMissing,
    LogBehindLake,
)
from sluice.model import Partition, TableInfo
from sluice.rounds.round.round import run_round
from sluice.rounds.values.attempt import RoundPorts
from sluice.rounds.values.ports import SplitRunner, SplitWriterFactory
from tests.unit.rounds.conftest import World


def test_a_snapshot_that_fluss_does_not_know_is_registered_first(
    world: World, arm: Callable[[str], None]
) -> None:
    world.append(0, 3)
    first = world.round()
    world.append(0, 2)
    arm("round.fluss_commit.before=raise")
    with pytest.raises(RuntimeError):
        world.round()
    lost = world.table.snapshots()[0].snapshot_id
    old_file = world.table.snapshots()[0].summary["fluss-offsets"]
    del world.cluster.offsets_files[old_file]  # an abandoned file may go at any time
    result = world.round()
    assert (result.outcome, result.recovered_snapshot_id) == ("nothing_new", lost)
    assert world.cluster.commits[-1] == (lost, {world.bucket(0): 5}, first.lake_snapshot_id)
    world.assert_exactly_once()


def test_a_snapshot_of_flusss_own_tiering_is_registered_by_its_path(world: World) -> None:
    world.append(0, 3)
    world.round()
    path = world.cluster.prepare_lake_snapshot(1, world.cluster.info.path, {world.bucket(0): 3})  # type: ignore[union-attr]
    flink = {"commit-user": "__fluss_lake_tiering", "fluss-offsets": path}
    snapshot_id = world.table.foreign_commit(summary=flink)
    result = world.round()
    assert result.recovered_snapshot_id == snapshot_id
    assert world.cluster.registered[-1].offsets_path == path


def test_the_tag_that_fluss_does_not_set_is_set_by_the_recovery(world: World) -> None:
    world.append(0, 3)
    world.round()
    path = world.cluster.prepare_lake_snapshot(1, world.cluster.info.path, {world.bucket(0): 3})  # type: ignore[union-attr]
    flink = {"commit-user": "__fluss_lake_tiering", "fluss-offsets": path}
    snapshot_id = world.table.foreign_commit(summary=flink)
    world.round()
    assert world.table.tagged == snapshot_id


def test_a_tag_that_cannot_be_moved_is_a_note(world: World) -> None:
    world.append(0, 3)
    world.round()
    path = world.cluster.prepare_lake_snapshot(1, world.cluster.info.path, {world.bucket(0): 3})  # type: ignore[union-attr]
    flink = {"commit-user": "__fluss_lake_tiering", "fluss-offsets": path}
    snapshot_id = world.table.foreign_commit(summary=flink)
    world.table.tag_fails = True
    result = world.round()
    assert result.recovered_snapshot_id == snapshot_id
    assert "could not be tagged" in result.notes[0]


def test_a_death_before_the_tag_of_a_recovered_snapshot_loses_and_doubles_nothing(
    world: World, arm: Callable[[str], None]
) -> None:
    world.append(0, 3)
    arm("round.fluss_commit.before=raise")
    with pytest.raises(RuntimeError):
        world.round()
    arm("round.tag.before=raise")
    with pytest.raises(RuntimeError, match="tag"):
        world.round()
    world.append(0, 2)
    assert world.round().rows == 2
    world.assert_exactly_once()


def test_expiry_takes_no_snapshot_that_fluss_does_not_know(
    world: World, arm: Callable[[str], None]
) -> None:
    """The tag comes with the commit: it would be too late for a driver that dies after it."""
    world.append(0, 3)
    world.round()
    world.append(0, 2)
    arm("round.lake_commit.after=raise")
    with pytest.raises(RuntimeError):
        world.round()
    assert world.table.tagged == world.table.snapshots()[0].snapshot_id


@pytest.mark.parametrize("path", ["", '{"0":3}'])
def test_snapshots_of_an_old_fluss_are_refused(world: World, path: str) -> None:
    world.append(0, 3)
    world.round()
    world.table.foreign_commit(
        summary={"commit-user": "__fluss_lake_tiering", "fluss-offsets": path}
    )
    with pytest.raises(LakeTableMismatch, match=r"Fluss 0\.8"):
        world.round()


def test_a_snapshot_of_flusss_own_tiering_does_not_hide_a_rollback(world: World) -> None:
    world.append(0, 3)
    first = world.round()
    world.append(0, 2)
    second = world.round()
    world.table.roll_back_to(first.lake_snapshot_id)
    path = world.cluster.prepare_lake_snapshot(
        1, world.cluster.table_info(world.cluster.begin_round().path).path, {world.bucket(0): 3}
    )
    world.table.foreign_commit(
        summary={"commit-user": "__fluss_lake_tiering", "fluss-offsets": path}
    )
    with pytest.raises(LakeRolledBack, match=f"{second.lake_snapshot_id} is not in its history"):
        world.round()


def test_epochs_that_begin_anew_do_not_pass_for_an_earlier_try(world: World) -> None:
    """Tiering switched off and on: the same epochs come again, for other rounds."""
    for _ in range(2):
        world.append(0, 1)
        world.round()
    world.cluster.tiering_epoch = 0
    world.append(0, 1)
    assert world.round().outcome == "committed"
    world.assert_exactly_once()


def test_rows_of_a_dropped_table_are_never_taken_for_those_of_its_successor(world: World) -> None:
    world.append(0, 3)
    world.round()
    world.cluster.create_again(2)
    world.append(0, 1)
    with pytest.raises(LakeTableMismatch, match="table id 1, which was dropped"):
        world.round()


def test_a_missing_lake_table_is_never_created_anew(world: World) -> None:
    world.append(0, 3)
    world.round()
    world.lake.tables.clear()
    with pytest.raises(LakeTableMissing, match=r"missing in mem:/.*--warehouse"):
        world.round()
    assert world.lake.tables == {}


def test_a_lake_rolled_back_is_an_error_that_names_the_repair(world: World) -> None:
    world.append(0, 3)
    first = world.round()
    world.append(0, 2)
    second = world.round()
    world.table.roll_back_to(first.lake_snapshot_id)
    repair = (
        rf"behind snapshot {second.lake_snapshot_id}.*at 3 where Fluss has 5.*sluice repair db\.t"
    )
    with pytest.raises(LakeRolledBack, match=repair):
        world.round()
    world.table.roll_back_to(None)
    with pytest.raises(LakeRolledBack, match="no tiering snapshot"):
        world.round()


@pytest.mark.parametrize("first_expires", [False, True])
def test_the_tag_does_not_pass_for_an_ancestor_after_a_rollback_and_an_expiry(
    world: World, first_expires: bool
) -> None:
    """The tagged snapshot is older than all that is left of main, and main lacks its rows."""
    world.append(0, 3)
    first = world.round()
    world.append(0, 2)
    second = world.round()
    assert first.lake_snapshot_id is not None
    world.table.roll_back_to(first.lake_snapshot_id)
    middle = world.table.foreign_commit()
    world.table.foreign_commit()
    world.table.expire(middle)
    if first_expires:
        world.table.expire(first.lake_snapshot_id)
    assert world.table.tagged == second.lake_snapshot_id
    with pytest.raises(LakeRolledBack):
        world.round()


def test_an_expired_registered_snapshot_stops_nothing(
    world: World, arm: Callable[[str], None]
) -> None:
    """Known problem 10 of Fluss's own tiering: offsets tell here, not the snapshot's presence."""
    world.append(0, 3)
    first = world.round()
    world.append(0, 2)
    arm("round.fluss_commit.before=raise")
    with pytest.raises(RuntimeError):
        world.round()
    assert first.lake_snapshot_id is not None
    world.table.expire(first.lake_snapshot_id)
    assert world.round().outcome == "nothing_new"
    world.assert_exactly_once()


def test_expiry_between_our_snapshot_and_other_writers_stops_nothing(world: World) -> None:
    """Compaction and expiry on a table that had nothing new for days."""
    world.append(0, 3)
    world.round()
    middle = world.table.foreign_commit()
    world.table.foreign_commit()
    world.table.expire(middle)
    assert world.round().outcome == "nothing_new"
    world.append(0, 2)
    assert world.round().outcome == "committed"
    world.assert_exactly_once()


def test_a_log_that_ends_before_what_was_tiered_of_it_stops_the_table(world: World) -> None:
    for bucket in (0, 1):
        world.append(bucket, 3)
        world.append(bucket, 4)
    first = world.round()
    world.cluster.lose_from(world.bucket(1), 3)
    for _ in range(2):
        world.append(0, 1)
        with pytest.raises(LogBehindLake) as caught:
            world.round()
        for text in (
            "bucket 1:1 of table db.t",
            "ends at offset 3",
            "rows up to offset 7 were tiered",
        ):
            assert text in str(caught.value)
    assert [s.snapshot_id for s in world.table.snapshots()] == [first.lake_snapshot_id]
    assert world.table.unreferenced_files() == set()
    world.append(1, 4)  # the lost rows, as if they were brought back
    assert world.round().rows == 2
    world.assert_exactly_once()


def test_partitions_are_tiered_each_with_its_own_offsets(partitioned: World) -> None:
    partitioned.append(0, 3, partition_id=5)
    partitioned.append(0, 2, partition_id=6)
    result = partitioned.round()
    assert result.offsets == {"5/0": 3, "6/0": 2}
    partitioned.assert_exactly_once()


def test_a_partition_created_again_loses_its_old_rows_in_the_same_commit(
    partitioned: World,
) -> None:
    partitioned.append(0, 3, partition_id=5)
    partitioned.append(0, 1, partition_id=6)
    partitioned.round()
    partitioned.cluster.drop_partition(5)
    partitioned.cluster.add_partition(Partition(9, ("mon",)))
    del partitioned.cluster.logs[partitioned.bucket(0, 5)]
    partitioned.append(0, 2, partition_id=9)
    result = partitioned.round()
    assert sorted(partitioned.table.rows()) == [
        (("mon",), 0, 0), (("mon",), 0, 1), (("tue",), 0, 0),
    ]  # fmt: skip
    assert len(partitioned.table.snapshots()) == 2
    assert any("mon was dropped and created again" in note for note in result.notes)


def test_a_rollback_that_is_undone_before_the_commit_leaves_no_old_rows(
    partitioned: World,
) -> None:
    """While main is back, the partition's old rows are not to be seen; the commit finds them."""
    partitioned.append(0, 1, partition_id=6)
    first = partitioned.round()
    partitioned.append(0, 3, partition_id=5)
    second = partitioned.round()
    partitioned.cluster.drop_partition(5)
    partitioned.cluster.add_partition(Partition(9, ("mon",)))
    del partitioned.cluster.logs[partitioned.bucket(0, 5)]
    partitioned.append(0, 2, partition_id=9)

    def while_rolled_back(info: TableInfo, writers: SplitWriterFactory) -> SplitRunner:
        partitioned.table.roll_back_to(first.lake_snapshot_id)
        partitioned.table.before_commit = lambda: partitioned.table.roll_back_to(
            second.lake_snapshot_id
        )
        return partitioned.runner(info, writers)

    claim = partitioned.cluster.begin_round()
    with pytest.raises(LakeCommitRefused, match="our newest snapshot is"):
        run_round(claim, RoundPorts(partitioned.cluster, partitioned.lake, while_rolled_back), "x")
    partitioned.table.before_commit = None
    partitioned.table.roll_back_to(second.lake_snapshot_id)
    result = partitioned.round()
    assert any("mon was dropped and created again" in note for note in result.notes)
    assert partitioned.table.rows() == [(("mon",), 0, 0), (("mon",), 0, 1), (("tue",), 0, 0)]
