"""Expiry as the last phase of a round: when it runs, and what its errors do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from sluice.errors import LakeCommitOutcomeUnknown, LakeCommitRefused, LakeNotWritable
from sluice.model import LakeSnapshotInfo, TableInfo, TablePath
from sluice.model import types as t
from sluice.rounds.commit.options import RoundOptions
from sluice.rounds.records.result import RoundResult
from sluice.rounds.values.attempt import RoundPorts
from sluice.rounds.values.expiry import AUTO_EXPIRE, ROUND_MS_KEY
from sluice.rounds.values.limits import RoundLimits
from sluice.rounds.values.ports import RunnerFactory, SplitRunner, SplitWriterFactory
from sluice.rounds.values.types import RepairMode
from tests.simulation.clock import ManualClock
from tests.support.models.any_round import any_round, request_of
from tests.support.models.memory_cluster import MemoryCluster
from tests.support.models.tables import table_info
from tests.unit.rounds.conftest import World

MINUTE_MS = 60_000
ROUNDS = 9


class Timed:
    """Rounds on a clock that stands still, a minute apart."""

    def __init__(self, world: World) -> None:
        self.world, self.clock = world, ManualClock()
        self.expires = True

    def tier(
        self,
        rows: int = 1,
        repair_mode: RepairMode | None = None,
        runner: RunnerFactory | None = None,
    ) -> RoundResult:
        world, self.world.attempts = self.world, self.world.attempts + 1
        if rows:
            world.append(0, rows)
        self.clock.advance(MINUTE_MS)
        result = any_round(
            world.cluster.begin_round(),
            RoundPorts(world.cluster, world.lake, runner or world.runner, self.clock),
            str(world.attempts),
            request_of(repair_mode, None),
            RoundOptions(RoundLimits(1_000), expire_snapshots=self.expires),
        )
        table = world.table
        table.now_ms = self.clock.now_ms
        table.properties["history.expire.max-snapshot-age-ms"] = str(3 * MINUTE_MS)
        return result


@pytest.fixture
def timed(world: World) -> Timed:
    return Timed(world)


def set_option(world: World) -> None:
    info = world.cluster.info
    assert info is not None
    properties = {**info.descriptor.properties, AUTO_EXPIRE: "true"}
    world.cluster.info = replace(info, descriptor=replace(info.descriptor, properties=properties))


@pytest.mark.parametrize("by_option", [True, False])
def test_old_snapshots_expire_after_a_round(timed: Timed, by_option: bool) -> None:
    timed.expires = not by_option
    if by_option:
        set_option(timed.world)
    results = [timed.tier() for _ in range(ROUNDS)]
    expired = [result.snapshots_expired for result in results]
    assert sum(expired) == max(expired) == 5
    assert len(timed.world.table.snapshots()) == ROUNDS - 5
    [last] = [result for result in results if result.snapshots_expired]
    assert "expire" in last.seconds
    assert (last.details().snapshots_expired, last.details().expire_ms) == (5, 0)
    assert last.notes == ()
    timed.world.assert_exactly_once()


def test_without_option_and_setting_nothing_expires(timed: Timed) -> None:
    timed.expires = False
    results = [timed.tier() for _ in range(ROUNDS)]
    assert {result.snapshots_expired for result in results} == {0}
    assert not any("expire" in result.seconds for result in results)


def test_a_round_that_commits_nothing_expires_nothing(timed: Timed) -> None:
    timed.expires = False
    for _ in range(ROUNDS):
        timed.tier()
    timed.expires = True
    result = timed.tier(rows=0)
    assert (result.outcome, result.snapshots_expired) == ("nothing_new", 0)
    assert "expire" not in result.seconds
    assert timed.tier().snapshots_expired == 7


def test_a_repair_expires_nothing(timed: Timed) -> None:
    timed.expires = False
    results = [timed.tier() for _ in range(ROUNDS)]
    timed.world.table.roll_back_to(results[-2].lake_snapshot_id)
    timed.expires = True
    repaired = timed.tier(rows=0, repair_mode=RepairMode.RETIER)
    assert (repaired.outcome, repaired.snapshots_expired) == ("committed", 0)
    assert timed.tier().snapshots_expired > 0
    timed.world.assert_exactly_once()


@pytest.mark.parametrize(
    "error",
    [
        LakeNotWritable("the catalog refuses, password=hunter2secret"),
        LakeCommitRefused("others were faster, password=hunter2secret"),
        LakeCommitOutcomeUnknown("no answer, password=hunter2secret"),
        ValueError("password=hunter2secret"),
    ],
)
def test_an_error_is_a_note_without_secrets(timed: Timed, error: Exception) -> None:
    def fail() -> None:
        raise error

    for _ in range(ROUNDS):
        result = timed.tier()
        timed.world.table.before_expiry = fail
    assert result.outcome == "committed"
    [note] = result.notes
    assert note.startswith("old lake snapshots were not expired: ")
    assert "hunter2secret" not in note
    assert result.snapshots_expired == 0
    assert "expire" in result.seconds
    timed.world.assert_exactly_once()


def test_an_armed_failpoint_is_an_error_too(timed: Timed, arm: Callable[[str], None]) -> None:
    timed.tier()
    arm("round.expire.before=raise")
    result = timed.tier()
    assert result.outcome == "committed"
    assert ["round.expire.before" in note for note in result.notes] == [True]


class _LateRegistration(MemoryCluster):
    """As Apache Fluss: after each commit, an older round registers its own snapshot."""

    late: int | None = None
    _is_over = False

    def commit_lake_snapshot(self, *arguments: Any) -> None:
        super().commit_lake_snapshot(*arguments)
        self._is_over = True

    def lake_snapshot(self, path: TablePath) -> LakeSnapshotInfo | None:
        found = super().lake_snapshot(path)
        if found is None or self.late is None or not self._is_over:
            return found
        return replace(found, snapshot_id=self.late)


def test_the_registered_snapshot_is_read_again() -> None:
    cluster = _LateRegistration(table_info({"a": t.BIGINT}, buckets=2))
    timed = Timed(World(cluster))
    timed.expires = False
    results = [timed.tier() for _ in range(ROUNDS)]
    timed.expires, cluster._is_over = True, False
    cluster.late = results[0].lake_snapshot_id
    assert timed.tier().snapshots_expired == 5
    assert cluster.late in timed.world.table.stored_snapshots().entries


def test_a_commit_says_how_long_its_round_took(timed: Timed) -> None:
    world = timed.world

    def slow(info: TableInfo, writers: SplitWriterFactory) -> SplitRunner:
        timed.clock.advance(1_234)
        return world.runner(info, writers)

    timed.tier(runner=slow)
    newest = world.table.newest_tiering_snapshot()
    assert newest is not None
    assert newest.summary[ROUND_MS_KEY] == "1234"
