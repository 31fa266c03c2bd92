"""What must always hold of a round of a table with a primary key, on the models."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice.errors import InvalidConfig, LakeRolledBack, SplitFailed
from sluice.model import COMMIT_TIMESTAMP, LOG_OFFSET, Partition
from sluice.rounds.values.limits import RoundLimits
from sluice.rounds.values.types import RepairMode
from tests.support.models.memory_cluster import MemoryCluster
from tests.support.models.memory_writer import BUCKET
from tests.unit.rounds.keyed_world import FULL, WAL, KeyedWorld, keyed_info

STEPS = [
    f"round.{phase}.{edge}"
    for phase in ("recover", "plan", "copy", "prepare", "lake_commit", "fluss_commit")
    for edge in ("before", "after")
]


@pytest.fixture(params=[FULL, WAL])
def world(request: pytest.FixtureRequest) -> KeyedWorld:
    return KeyedWorld(image=request.param)


def test_a_log_from_its_beginning_needs_no_deletes(world: KeyedWorld) -> None:
    one = world.bucket(1)
    world.put(one, k1=1, k2=2)
    world.put(one, k1=11, k3=3)
    world.delete(one, 2)
    result = world.round()
    assert (result.outcome, result.rows, result.deletes, result.files) == ("committed", 2, 0, 1)
    world.assert_equal()
    rows = world.table.keyed_rows()
    assert {row[BUCKET] for row in rows.values()} == {1}
    assert all(row[LOG_OFFSET] >= 2 for row in rows.values())


def test_a_layout_of_values_that_is_not_known_is_refused_first(world: KeyedWorld) -> None:
    info = world.cluster.info
    assert info is not None
    properties = {**info.descriptor.properties, "table.kv.value-layout-version": "3"}
    world.cluster.info = replace(info, descriptor=replace(info.descriptor, properties=properties))
    with pytest.raises(InvalidConfig, match="as new as the cluster"):
        world.round()
    assert world.lake.tables == {}


def test_a_snapshot_and_the_log_behind_it_come_in_one_commit(world: KeyedWorld) -> None:
    bucket = world.bucket()
    world.put(bucket, k1=1, k2=2, k3=3, k4=4)
    held = world.snapshot(bucket)
    world.put(bucket, k2=22, k5=5)
    world.delete(bucket, 3)
    world.cluster.truncate_before(bucket, held.log_offset)  # what is before it may be gone
    result = world.round()
    assert (result.rows, result.deletes) == (4, 0)
    assert result.offsets == {"0": world.cluster.logs[bucket][-1].next_offset}
    world.assert_equal()
    assert len(world.table.snapshots()) == 1
    rows = {row["id"]: row for row in world.table.keyed_rows().values()}
    assert {key: rows[key][LOG_OFFSET] == -1 for key in rows} == {
        1: True, 2: False, 4: True, 5: False,
    }  # fmt: skip
    assert rows[1][COMMIT_TIMESTAMP].timestamp() == -0.001
    assert rows[5][COMMIT_TIMESTAMP].timestamp() == 5.0


def test_a_snapshot_ahead_of_the_end_that_was_planned_counts(world: KeyedWorld) -> None:
    bucket = world.bucket()
    world.put(bucket, k1=1)
    held = world.snapshot(bucket)
    world.cluster.lose_from(bucket, 0)  # no longer what ListOffsets says
    world.cluster.append(bucket, world.cluster.snapshots[bucket, 1].content.slice(0, 0))
    assert held.log_offset == 1
    world.leased[bucket] = type(held)(bucket, held.snapshot_id, 1)
    assert world.round().offsets == {"0": 1}
    assert world.in_lake() == {((), 1): 1}


def test_later_rounds_delete_what_may_be_there_and_only_that() -> None:
    world = KeyedWorld()
    bucket = world.bucket()
    world.put(bucket, k1=1, k2=2, k3=3)
    world.round()
    world.put(bucket, k1=11)
    world.delete(bucket, 2)
    world.put(bucket, k9=9)  # an insert: the lake has no row of it
    result = world.round()
    assert (result.rows, result.deletes, result.files) == (2, 2, 2)
    world.assert_equal()


def test_a_key_inserted_and_deleted_between_two_rounds_leaves_nothing(world: KeyedWorld) -> None:
    bucket = world.bucket()
    world.put(bucket, k1=1)
    world.round()
    world.put(bucket, k7=7)
    world.delete(bucket, 7)
    result = world.round()
    assert (result.rows, result.deletes) == (0, 0 if world.image == FULL else 1)
    world.assert_equal()


def test_a_key_deleted_and_inserted_again_within_one_round(world: KeyedWorld) -> None:
    bucket = world.bucket()
    world.put(bucket, k1=1)
    world.round()
    world.delete(bucket, 1)
    world.put(bucket, k1=100)
    result = world.round()
    assert (result.rows, result.deletes) == (1, 1)
    world.assert_equal()


def test_a_round_of_deletes_only_writes_no_data_file(world: KeyedWorld) -> None:
    bucket = world.bucket()
    world.put(bucket, k1=1, k2=2)
    world.round()
    world.delete(bucket, 1, 2)
    result = world.round()
    assert (result.outcome, result.rows, result.deletes, result.files) == ("committed", 0, 2, 1)
    world.assert_equal()


def test_deletes_of_unknown_keys_advance_the_offsets_alone(world: KeyedWorld) -> None:
    bucket = world.bucket()
    world.put(bucket, k1=1)
    world.round()
    world.delete(bucket, 50)  # an empty batch
    result = world.round()
    assert (result.outcome, result.files, result.offsets) == ("committed", 0, {"0": 2})
    world.assert_equal()


def test_a_foreign_compaction_between_plan_and_commit(world: KeyedWorld) -> None:
    bucket = world.bucket()
    world.put(bucket, k1=1, k2=2)
    world.round()
    world.put(bucket, k1=11)
    world.table.before_commit = lambda: world.table.foreign_compaction() and None
    world.round()
    world.delete(bucket, 2)
    world.round()
    world.assert_equal()


@pytest.mark.parametrize("step", STEPS)
def test_a_round_that_dies_anywhere_leaves_the_table(
    world: KeyedWorld, arm: Callable[[str], None], step: str
) -> None:
    zero, one = world.bucket(0), world.bucket(1)
    world.put(zero, k1=1, k2=2)
    world.round()
    world.put(zero, k1=11)
    world.put(one, k5=5)
    world.snapshot(one)
    world.put(one, k5=55, k6=6)
    arm(f"{step}=raise")
    with pytest.raises(RuntimeError, match=step):
        world.round()
    world.delete(one, 5)
    world.round()
    world.round()
    world.assert_equal()


def test_a_window_that_is_cut_ends_between_changes_of_one_key() -> None:
    world = KeyedWorld(limits=RoundLimits(max_bytes=1))
    bucket = world.bucket()
    for n in range(4):
        world.put(bucket, k1=n, k2=-n)
    results = [world.round() for _ in range(4)]
    assert [bool(result.forced) for result in results] == [True, True, True, False]
    assert [result.deletes for result in results] == [0, 2, 2, 2]
    world.assert_equal()


def test_a_log_without_its_beginning_and_without_a_snapshot_is_not_read() -> None:
    world = KeyedWorld()
    bucket = world.bucket()
    world.put(bucket, k1=1)
    world.put(bucket, k2=2)
    world.cluster.truncate_before(bucket, 1)
    with pytest.raises(SplitFailed, match="KvSnapshotNotExist"):
        world.round()
    assert world.table.snapshots() == []


def test_changes_without_change_types_are_refused() -> None:
    world = KeyedWorld()
    batch = pa.RecordBatch.from_pydict({"id": pa.array([1]), "n": pa.array([1])})
    world.cluster.append(world.bucket(), batch)
    with pytest.raises(SplitFailed, match="no change types"):
        world.round()


def test_a_lake_that_was_rolled_back_is_tiered_again(world: KeyedWorld) -> None:
    zero, one = world.bucket(0), world.bucket(1)
    world.put(zero, k1=1, k2=2)
    first = world.round()
    world.put(zero, k1=11)
    world.put(one, k5=5)
    world.round()
    world.delete(zero, 2)
    world.put(one, k5=55, k7=7)
    world.round()
    world.table.roll_back_to(first.lake_snapshot_id)
    with pytest.raises(LakeRolledBack):
        world.round()
    world.snapshot(one)  # leased for all buckets; the lake has never had this one
    world.put(one, k7=77)
    world.round(repair_mode=RepairMode.RETIER)
    world.round()
    world.assert_equal()


@pytest.mark.parametrize("with_snapshot", [False, True])
def test_a_retier_counts_only_the_changes_that_it_leaves(
    world: KeyedWorld, with_snapshot: bool
) -> None:
    world.put(world.bucket(0), k2=2)
    first = world.round()
    one = world.bucket(1)
    world.put(one, k1=1, k3=3, k5=5, k7=7)
    world.round()
    world.table.roll_back_to(first.lake_snapshot_id)
    if with_snapshot:
        world.snapshot(one)
    world.put(one, k9=9, k11=11)
    result = world.round(repair_mode=RepairMode.RETIER)
    assert (result.rows, result.lag_rows_after) == (4, 2)
    assert world.round().lag_rows_before == 2


@pytest.mark.parametrize("missing", [False, True])
def test_buckets_whose_log_has_lost_changes_are_read_again(missing: bool) -> None:
    world = KeyedWorld()
    zero, one = world.bucket(0), world.bucket(1)
    world.put(zero, k1=1, k2=2)
    first = world.round()
    world.put(zero, k1=11)
    world.put(one, k5=5)
    world.round()
    world.table.roll_back_to(first.lake_snapshot_id)
    world.cluster.truncate_before(zero, 4)
    world.cluster.truncate_before(one, 1)
    world.snapshot(zero)
    world.snapshot(one)
    if missing:
        world.lake.tables.clear()
    world.round(repair_mode=RepairMode.RETIER)
    assert world.in_lake() == world.expected()


# ---- partitions ----


@pytest.fixture
def days() -> KeyedWorld:
    cluster = MemoryCluster(keyed_info(partitioned=True), [MONDAY, Partition(6, ("tue",))])
    return KeyedWorld(cluster)


MONDAY = Partition(5, ("mon",))


def test_one_key_in_two_partitions(days: KeyedWorld) -> None:
    monday, tuesday = days.bucket(0, 5), days.bucket(0, 6)
    days.put(monday, k1=1)
    days.put(tuesday, k1=2)
    days.round()
    days.delete(monday, 1)
    days.put(tuesday, k1=3)
    days.round()
    days.assert_equal()


@pytest.mark.parametrize("with_snapshot", [True, False])
def test_a_partition_created_again_while_others_change(
    days: KeyedWorld, with_snapshot: bool
) -> None:
    days.put(days.bucket(0, 5), k1=1, k2=2)
    days.put(days.bucket(0, 6), k1=1, k2=2)
    days.round()
    days.drop(MONDAY)
    days.cluster.add_partition(Partition(9, ("mon",)))
    days.put(days.bucket(0, 9), k2=20)
    if with_snapshot:
        days.snapshot(days.bucket(0, 9))
    days.put(days.bucket(0, 6), k2=22)
    result = days.round()
    assert (result.rows, result.deletes) == (2, 1)
    assert any("mon was dropped and created again" in note for note in result.notes)
    days.assert_equal()


def test_an_expired_partition_is_named_with_what_was_tiered_of_it(days: KeyedWorld) -> None:
    days.put(days.bucket(0, 5), k1=1)
    days.round()
    days.put(days.bucket(0, 5), k2=2)
    days.drop(MONDAY)
    days.put(days.bucket(0, 6), k1=1)
    result = days.round()
    assert any("partition id 5 (bucket:offset 0:1)" in note for note in result.notes)
    assert days.in_lake() == {(("mon",), 1): 1, (("tue",), 1): 1}


# ---- anything ----

_ops = st.one_of(
    st.tuples(st.just("put"), st.integers(0, 1), st.lists(st.integers(0, 5), max_size=4)),
    st.tuples(st.just("delete"), st.integers(0, 1), st.lists(st.integers(0, 5), max_size=4)),
    st.tuples(st.just("snapshot"), st.integers(0, 1), st.just([])),
    st.tuples(st.just("tier"), st.integers(0, 2), st.just([])),
    st.tuples(st.just("compact"), st.just(0), st.just([])),
)


@pytest.mark.parametrize("image", [FULL, WAL])
@settings(max_examples=60, deadline=None)
@given(ops=st.lists(_ops, max_size=30))
def test_the_lake_equals_the_table_after_each_round(
    image: str, ops: list[tuple[str, int, list[int]]]
) -> None:
    world = KeyedWorld(image=image)
    counted = 0
    for what, number, keys in [*ops, ("tier", 0, [])]:
        bucket = world.bucket(number % 2)
        keys = [2 * key + number % 2 for key in keys]  # a key has one bucket
        if what == "put":
            puts = []
            for key in keys:
                counted += 1
                puts.append((key, counted))
            world.change(bucket, puts)
        elif what == "delete":
            world.delete(bucket, *dict.fromkeys(keys))
        elif what == "snapshot":
            world.snapshot(bucket)
        elif what == "compact":
            if world.lake.tables and world.table.snapshots():
                world.table.foreign_compaction()
        else:
            world.limits = RoundLimits(max_bytes=1) if number == 2 else None
            result = world.round()
            while result.forced:
                result = world.round()
            assert world.in_lake() == world.expected()


def test_changes_beyond_the_memory_limit_go_to_disk_and_leave_it(tmp_path: Path) -> None:
    world = KeyedWorld(memory_bytes=64 * 1024, spill_dir=str(tmp_path))
    bucket = world.bucket()
    keys = 20_000
    for start in range(0, keys, 1000):
        world.change(bucket, [(key, key) for key in range(start, start + 1000)])
    world.snapshot(bucket)
    world.change(bucket, [(key, -key) for key in range(0, keys, 3)])
    world.round()
    world.assert_equal()
    world.change(bucket, [(key, 2 * key) for key in range(0, keys, 2)])
    result = world.round()
    assert (result.rows, result.deletes) == (keys // 2, keys // 2)
    world.assert_equal()
    assert list(tmp_path.iterdir()) == []
