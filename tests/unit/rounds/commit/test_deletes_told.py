"""How a round deletes keys stands in its result and in the snapshot's summary."""

from __future__ import annotations

import json

from sluice.rounds.commit.files import DELETES_KEY
from sluice.rounds.commit.options import RoundOptions
from sluice.rounds.plan.keyed_options import KeyedRoundOptions
from sluice.rounds.records.result import RoundResult
from sluice.rounds.round.round import run_round
from sluice.rounds.values.attempt import RoundPorts
from sluice.rounds.values.limits import LookupBudget
from tests.unit.rounds.keyed_world import KeyedWorld


def changed() -> KeyedWorld:
    """A table whose second round changes a key of each of its two buckets."""
    world = KeyedWorld()
    for number, key in enumerate(("k1", "k2")):
        world.put(world.bucket(number), **{key: 1})
        world.put(world.bucket(number), **{f"{key}0": 1})
    world.round()
    for number, key in enumerate(("k1", "k2")):
        world.put(world.bucket(number), **{key: 2})
    return world


def second_round(world: KeyedWorld, budget: LookupBudget) -> RoundResult:
    world.attempts += 1
    return run_round(
        world.cluster.begin_round(),
        RoundPorts(world.cluster, world.lake, world.runner),
        str(world.attempts),
        RoundOptions(keyed=KeyedRoundOptions(lookups=budget)),
    )


def summary(world: KeyedWorld) -> dict[str, object]:
    newest = world.table.newest_tiering_snapshot()
    assert newest is not None
    told: dict[str, object] = json.loads(newest.summary[DELETES_KEY])
    return told


def test_positions_are_usual() -> None:
    world = changed()
    result = second_round(world, LookupBudget())
    assert (result.deletes, result.deletes_as, result.lookup_files) == (2, "positions", 2)
    told = summary(world)
    assert (told["kinds"], told["position-buckets"], told["files-read"]) == (["position"], 2, 2)
    world.assert_equal()


def test_without_a_budget_of_bytes_there_are_equality_deletes() -> None:
    world = changed()
    result = second_round(world, LookupBudget(bytes_max=0))
    assert result.deletes_as == "equality deletes (tiering.position_lookup_bytes is 0)"
    assert (result.deletes, result.lookup_files) == (2, 0)
    assert summary(world)["kinds"] == ["equality"]
    world.assert_equal()


def test_a_bucket_with_more_files_than_the_setting_allows_is_named() -> None:
    world = changed()
    world.put(world.bucket(1), k2=3)
    second_round(world, LookupBudget())
    world.put(world.bucket(1), k2=4)
    result = second_round(world, LookupBudget(files_max=1))
    assert result.deletes_as.startswith("equality deletes (2 data files may have the keys")
    assert "tiering.position_lookup_files = 1" in result.deletes_as
    world.assert_equal()


def test_one_of_two_buckets_is_too_large() -> None:
    world = changed()
    second_round(world, LookupBudget(bytes_max=0))
    world.put(world.bucket(1), k2=3)
    second_round(world, LookupBudget())
    for number, key in enumerate(("k1", "k2")):
        world.put(world.bucket(number), **{key: 4})
    result = second_round(world, LookupBudget(files_max=2))
    kinds, _, why = result.deletes_as.partition(" (")
    assert kinds == "positions in 1 of 2 buckets, equality deletes in the others"
    assert why.startswith("bucket 1: 3 data files may have the keys")
    assert (summary(world)["kinds"], result.lookup_files) == (["position", "equality"], 2)
    world.assert_equal()
