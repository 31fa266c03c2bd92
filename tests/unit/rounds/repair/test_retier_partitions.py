"""A partition was dropped and created again, and the lake is rolled back to the earlier one.

Tiered again, the lake has exactly the rows of the partition that exists, wherever its log begins.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sluice.model import Partition
from sluice.model import types as t
from sluice.rounds.values.types import RepairMode
from tests.support.models.memory_cluster import MemoryCluster
from tests.support.models.tables import table_info
from tests.unit.rounds.conftest import World
from tests.unit.rounds.keyed_world import KeyedWorld, keyed_info
from tests.unit.rounds.repairs import found, mended

OLD, NEW = Partition(5, ("mon",)), Partition(9, ("mon",))
REPLACED = "partition mon was dropped and created again: its old rows were deleted"

LOGS = [(0, 0), (1, 0), (2, 0), (0, 2), (1, 2), (2, 2), (3, 2), (4, 2)]
"""Where the log of the new partition begins, and its rows behind the registered offset 2."""


def replace_partition(world: World | KeyedWorld) -> None:
    """Drops the partition mon and creates it again."""
    world.cluster.drop_partition(OLD.partition_id)
    world.cluster.logs = {b: log for b, log in world.cluster.logs.items() if b.partition_id != 5}
    world.cluster.add_partition(NEW)


def at_old_partition(buckets: tuple[int, ...] = (0,)) -> World:
    """Two offsets of each bucket of the new partition are registered; the lake has the old rows."""
    columns = {"a": t.BIGINT, "day": t.STRING}
    info = table_info(columns, partition_keys=("day",), buckets=len(buckets))
    world = World(MemoryCluster(info, [OLD]))
    world.append(0, 3, OLD.partition_id)
    first = world.round()
    replace_partition(world)
    for bucket in (*buckets, *buckets):
        world.append(bucket, 1, NEW.partition_id)
    world.round()
    world.table.roll_back_to(first.lake_snapshot_id)
    return world


@pytest.mark.parametrize(("begins", "new_rows"), LOGS)
def test_the_rows_of_the_earlier_partition_are_deleted(begins: int, new_rows: int) -> None:
    world = at_old_partition()
    for _ in range(new_rows):
        world.append(0, 1, NEW.partition_id)
    world.cluster.truncate_before(world.bucket(0, NEW.partition_id), begins)
    result = mended(world, RepairMode.RETIER)
    assert world.offsets_in_lake() == list(range(begins, 2))
    assert REPLACED in result.notes
    assert found(world).healthy
    assert REPLACED not in world.round().notes
    assert world.offsets_in_lake() == list(range(begins, 2 + new_rows))


def test_one_bucket_has_an_empty_log() -> None:
    world = at_old_partition(buckets=(0, 1))
    world.cluster.truncate_before(world.bucket(0, NEW.partition_id), 2)
    assert REPLACED in mended(world, RepairMode.RETIER).notes
    assert (world.offsets_in_lake(0), world.offsets_in_lake(1)) == ([], [0, 1])


def test_a_partition_that_is_dropped_during_the_repair_leaves_no_earlier_rows(
    at: Callable[[str, Callable[[], None]], None],
) -> None:
    world = at_old_partition()
    world.cluster.truncate_before(world.bucket(0, NEW.partition_id), 2)
    at("plan.before", lambda: world.cluster.drop_partition(NEW.partition_id))
    assert REPLACED in mended(world, RepairMode.RETIER).notes
    assert world.table.rows() == []
    assert found(world).healthy


@pytest.mark.parametrize(
    ("begins", "new_rows", "with_snapshot"),
    [(0, 0, False), (0, 2, False), *((*logs, True) for logs in LOGS)],  # the model has no scans
)
def test_keys_of_the_earlier_partition_are_deleted(
    begins: int, new_rows: int, with_snapshot: bool
) -> None:
    world = KeyedWorld(MemoryCluster(keyed_info(partitioned=True), [OLD]))
    world.put(world.bucket(0, OLD.partition_id), k1=1, k2=2)
    first = world.round()
    world.drop(OLD)
    replace_partition(world)
    bucket = world.bucket(0, NEW.partition_id)
    world.put(bucket, k2=20)
    world.put(bucket, k3=30)
    world.round()
    world.table.roll_back_to(first.lake_snapshot_id)
    if new_rows:
        world.put(bucket, k4=40)
        world.put(bucket, k5=50)
    if with_snapshot:
        world.snapshot(bucket)
    world.cluster.truncate_before(bucket, begins)
    assert REPLACED in world.round(repair_mode=RepairMode.RETIER).notes
    assert (("mon",), 1) not in world.in_lake()
    world.round()
    world.assert_equal()
