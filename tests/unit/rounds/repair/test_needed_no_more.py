"""A repair of a table that needs none: it copies what is new, and nothing else happens."""

from __future__ import annotations

import pytest

from sluice.rounds.commit.options import RoundOptions
from sluice.rounds.repair.request import RepairRequest
from sluice.rounds.repair.round import run_repair
from sluice.rounds.upkeep.compaction import CompactionOptions
from sluice.rounds.values.attempt import RoundPorts
from sluice.rounds.values.limits import RoundLimits
from sluice.rounds.values.types import RepairMode
from tests.unit.rounds.conftest import World

EVERYTHING = RoundOptions(
    limits=RoundLimits(max_bytes=1),
    compaction=CompactionOptions(always=True),
    expire_snapshots=True,
)


@pytest.mark.parametrize("mode", RepairMode)
def test_it_has_no_limits_and_compacts_and_expires_nothing(world: World, mode: RepairMode) -> None:
    for _ in range(12):  # so many small files that an ordinary round would compact them
        world.append(0, 1)
        world.round()
    for rows in (3, 4, 5):
        world.append(0, rows)
    ports = RoundPorts(world.cluster, world.lake, world.runner)
    before = len(world.table.snapshots())
    result = run_repair(
        world.cluster.begin_round(), ports, "repair", RepairRequest(mode), EVERYTHING
    )
    assert (result.outcome, result.rows, result.forced) == ("committed", 12, "")
    assert (result.compacted, result.files_compacted) == ("", 0)
    assert (result.snapshots_expired, len(world.table.snapshots())) == (0, before + 1)
    world.assert_exactly_once()


@pytest.mark.parametrize("mode", RepairMode)
def test_without_new_rows_it_commits_nothing(world: World, mode: RepairMode) -> None:
    world.append(0, 3)
    world.round()
    ports = RoundPorts(world.cluster, world.lake, world.runner)
    result = run_repair(
        world.cluster.begin_round(), ports, "repair", RepairRequest(mode), EVERYTHING
    )
    assert (result.outcome, result.forced, result.lag_rows_after) == ("nothing_new", "", 0)
    assert len(world.table.snapshots()) == 1
