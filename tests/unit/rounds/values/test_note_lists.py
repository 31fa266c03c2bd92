"""Notes have a limit of length, however many partitions and buckets they are about."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from sluice.model import Partition, TablePath
from sluice.rounds.plan.bucket_repairs import BucketRepairs
from sluice.rounds.values.note_lists import capped, first_of
from sluice.rounds.values.types import OffsetRange, RepairMode
from tests.support.models.memory_cluster import MemoryCluster
from tests.unit.rounds.conftest import World
from tests.unit.rounds.repairs import mended

MANY = 300
BYTES_MAX = 8_000


def many(world: World, first: int = 100) -> World:
    """Hundreds of partitions of three buckets each, with rows in all of them."""
    cluster = world.cluster
    assert cluster.info is not None
    cluster.info = replace(
        cluster.info, descriptor=replace(cluster.info.descriptor, bucket_count=3)
    )
    drop_all(world)
    for n in numbers(first):
        cluster.add_partition(Partition(n, (f"day-{n % 100_000}",)))
        for bucket in range(3):
            world.append(bucket, 1, n)
    return world


def numbers(first: int = 100) -> range:
    return range(first, first + MANY)


def drop_all(world: World) -> None:
    world.cluster.partitions_by_id.clear()


def is_short(notes: tuple[str, ...]) -> bool:
    text = "; ".join(notes)
    return f"and {MANY - 20} more" in text and len(text) < BYTES_MAX


def test_partitions_dropped_while_the_round_copies(
    partitioned: World, at: Callable[[str, Callable[[], None]], None]
) -> None:
    world = many(partitioned)
    at("copy.before", lambda: drop_all(world))
    result = world.round()
    assert is_short(result.history_notes)
    assert is_short((result.details().note or "",))
    assert "bucket 2 offsets below 1 were not tiered" in result.history_notes[0]


def test_partitions_dropped_while_the_round_plans(partitioned: World) -> None:
    world = many(partitioned)

    class Dropping(MemoryCluster):
        def partitions(self, path: TablePath) -> list[Partition]:
            found = super().partitions(path)
            self.partitions_by_id.clear()
            return found

    world.cluster.__class__ = Dropping
    assert is_short(world.round().history_notes)


def test_partitions_dropped_between_two_rounds(partitioned: World) -> None:
    world = many(partitioned)
    world.round()
    drop_all(world)
    world.cluster.add_partition(Partition(7, ("wed",)))
    world.append(0, 1, 7)
    assert is_short(world.round().notes)


def test_partitions_created_again(partitioned: World) -> None:
    many(partitioned).round()
    world = many(partitioned, 100_100)
    result = world.round()
    notes = tuple(one for one in result.notes if "dropped since" not in one)
    assert is_short(notes)
    assert "its old rows were deleted" in notes[0]
    assert (result.details().note or "") == "; ".join(notes)


def test_logs_that_lost_their_beginning_before_the_first_round(partitioned: World) -> None:
    world = partitioned
    world.append(0, 1, 5)
    world.round()
    many(world)
    for n in numbers():
        world.append(0, 2, n)
        world.cluster.truncate_before(world.bucket(0, n), 1)
    assert is_short(tuple(one for one in world.round().notes if "dropped since" not in one))


def test_accepted_gaps(partitioned: World) -> None:
    world = many(partitioned)
    world.round()
    for n in numbers():
        world.append(0, 2, n)
        world.cluster.truncate_before(world.bucket(0, n), 3)
    result = mended(world, RepairMode.ACCEPT_GAP)
    assert is_short(result.notes)
    assert is_short((result.accepted,))
    assert "the lake snapshot's summary has all of them" in result.accepted


def test_rebuilt_buckets(partitioned: World) -> None:
    ranges = tuple(OffsetRange(partitioned.bucket(0, n), 0, 1) for n in numbers())
    assert is_short(tuple(BucketRepairs(rebuilt=ranges).notes()))


def test_a_list_within_the_limit_is_complete() -> None:
    assert capped(["a", "b"]) == ["a", "b"]
    assert first_of(["a", "b", "c"], limit=3) == "a, b, c"
    assert first_of(["a", "b", "c"], limit=2) == "a, b and 1 more"
