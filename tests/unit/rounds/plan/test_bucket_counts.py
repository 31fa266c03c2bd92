"""Rounds of a table whose partitions have different numbers of buckets."""

from __future__ import annotations

import pytest

from sluice.errors import UnsupportedLakeOption
from sluice.model import Partition
from sluice.model import types as t
from tests.support.models.memory_cluster import MemoryCluster
from tests.support.models.tables import table_info
from tests.unit.rounds.conftest import World

COLUMNS = {"a": t.BIGINT.not_null(), "day": t.STRING.not_null()}
EARLY, LATE = Partition(5, ("d1",), 2), Partition(6, ("d2",), 4)


def rescaled(*partitions: Partition, **more: tuple[str, ...]) -> World:
    info = table_info(COLUMNS, partition_keys=("day",), buckets=4, **more)  # type: ignore[arg-type]
    return World(MemoryCluster(info, partitions))


def test_without_a_key_all_buckets_of_all_partitions_are_tiered() -> None:
    world = rescaled(EARLY, LATE)
    for rows in (10, 7):
        for partition in (EARLY, LATE):
            assert partition.bucket_count is not None
            for number in range(partition.bucket_count):
                world.append(number, rows + number, partition.partition_id)
        assert world.round().outcome == "committed"
        world.assert_exactly_once()
    assert world.round().outcome == "nothing_new"


@pytest.mark.parametrize("key", [{"bucket_keys": ("a",)}, {"primary_key": ("a", "day")}])
def test_with_a_key_the_round_is_refused_before_a_lake_table_is_made(
    key: dict[str, tuple[str, ...]],
) -> None:
    world = rescaled(EARLY, LATE, **key)
    world.append(0, 10, EARLY.partition_id)
    with pytest.raises(UnsupportedLakeOption) as refused:
        world.round()
    said = str(refused.value)
    assert "partition d1 has 2 buckets, but the table has 4 since bucket.num was altered" in said
    assert "copy the rows, or tier it once the partitions with other numbers have expired" in said
    assert refused.value.details["option"] == "bucket.num"
    assert world.lake.tables == {}


def test_a_table_that_is_tiered_already_is_refused_as_well() -> None:
    world = rescaled(LATE, bucket_keys=("a",))
    world.append(3, 10, LATE.partition_id)
    assert world.round().outcome == "committed"
    world.cluster.add_partition(EARLY)
    world.cluster.add_partition(Partition(7, ("d3",), 8))
    with pytest.raises(UnsupportedLakeOption, match=r"partition d1 \(and 1 other partition\) has"):
        world.round()
    world.cluster.drop_partition(EARLY.partition_id)
    world.cluster.drop_partition(7)
    world.append(3, 5, LATE.partition_id)
    assert world.round().rows == 5


def test_partitions_without_a_number_have_the_tables() -> None:
    world = rescaled(Partition(5, ("d1",)), Partition(6, ("d2",), 4), bucket_keys=("a",))
    world.append(3, 10, 5)
    world.append(3, 10, 6)
    assert world.round().rows == 20
    world.assert_exactly_once()
