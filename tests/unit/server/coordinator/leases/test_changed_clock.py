"""A server whose wall clock is set two days forward or back while it runs, or while it does not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from sluice.leases import RESTART_GRACE_MS
from sluice.model import TableBucket
from sluice.server.coordinator.leases.leases import KvSnapshotLeases
from sluice.server.coordinator.leases.store import SqliteLeaseStore
from sluice.server.storage.database import Database
from tests.support.statuses.lease_parts import FaultyStore, ManualClock, MemorySnapshots
from tests.unit.server.coordinator.calls.test_tiering_calls import (
    LAKE_TABLE,
    beat,
    claim,
    entry,
    status,
)
from tests.unit.server.support import Node, OwnedClock

TWO_DAYS_MS = 2 * 86_400_000
JUMPS = pytest.mark.parametrize("jump_ms", [-TWO_DAYS_MS, TWO_DAYS_MS])
NEVER_MS = 86_400_000
HOUR_MS = 3_600_000


class ChangedClock(ManualClock):
    """Its wall clock can be set without time passing."""

    jumped_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.jumped_ms


@pytest.fixture
def node(start: Callable[..., Node], clock: OwnedClock) -> Node:
    clock.ms = 10 * TWO_DAYS_MS
    node = start(clock=clock, tiering_check_interval_ms=3_600_000)
    node.caller.create_table(descriptor=LAKE_TABLE)
    return node


@JUMPS
def test_a_live_worker_keeps_its_claim_and_a_dead_one_loses_it(
    node: Node, clock: OwnedClock, jump_ms: int
) -> None:
    held = claim(node.caller)
    clock.jump(jump_ms)
    clock.ms += 60_000
    (answer,) = beat(node.caller, tiering_tables=[entry(held)]).tiering_table_resp
    assert not answer.HasField("error")
    assert status(node.caller).status == "Tiering"
    clock.ms += 120_000
    now = status(node.caller)
    assert (now.status, now.failures) == ("Failed", 1)
    assert "no heartbeat for 120 s" in now.last_error


@JUMPS
@pytest.mark.parametrize("restarted", [False, True])
def test_tiering_goes_on_after_its_freshness(
    node: Node, clock: OwnedClock, jump_ms: int, restarted: bool
) -> None:
    held = claim(node.caller)
    beat(node.caller, finished_tables=[entry(held)])
    clock.jump(jump_ms)
    if restarted:
        node.restart()
    assert (claim(node.caller) is None) == (jump_ms < 0)
    clock.ms += 10_000
    epoch = status(node.caller).tiering_epoch
    assert epoch == held.tiering_table.tiering_epoch + 1


class Leased:
    """Leases on a clock that can be changed, with one lease of an hour."""

    def __init__(self, folder: Path) -> None:
        self.clock = ChangedClock()
        self.database = Database(folder / "metadata.sqlite")
        self.store = FaultyStore(SqliteLeaseStore(self.database))
        self.restart()
        self.clock.ms += RESTART_GRACE_MS
        snapshots = MemorySnapshots()
        newest = snapshots.complete(TableBucket(1, None, 0))
        self.leases.acquire("job", HOUR_MS, {1: {(-1, 0): newest}}, snapshots)

    def restart(self) -> None:
        self.leases = KvSnapshotLeases(self.store, self.clock, lambda *_: True)
        self.leases.start(NEVER_MS)

    def left_ms(self) -> int | None:
        """How long the lease goes on, as users see it; None: it has expired."""
        self.leases.check()
        now_ms, leases = self.leases.all()
        return leases[0].expires_ms - now_ms if leases else None


@pytest.fixture
def leased(tmp_path: Path) -> Iterator[Leased]:
    made = Leased(tmp_path)
    with closing(made.database):
        yield made
        made.leases.stop()


@JUMPS
def test_a_lease_ends_after_its_duration(leased: Leased, jump_ms: int) -> None:
    leased.clock.jumped_ms = jump_ms
    leased.clock.ms += HOUR_MS - 1
    assert leased.left_ms() == 1
    leased.clock.ms += 1
    assert leased.left_ms() is None


@JUMPS
def test_a_renewal_counts_from_its_time(leased: Leased, jump_ms: int) -> None:
    leased.clock.jumped_ms = jump_ms
    leased.clock.ms += HOUR_MS - 1
    leased.leases.renew("job", HOUR_MS)
    leased.clock.ms += HOUR_MS - 1
    assert leased.left_ms() == 1


def test_a_lease_is_not_kept_by_a_clock_that_went_back_before_a_restart(leased: Leased) -> None:
    leased.clock.jumped_ms = -TWO_DAYS_MS
    leased.leases.stop()
    leased.restart()
    leased.clock.ms += HOUR_MS
    assert leased.left_ms() is None


def test_a_clock_that_went_forward_before_a_restart_leaves_time_to_renew(leased: Leased) -> None:
    leased.clock.jumped_ms = TWO_DAYS_MS
    leased.leases.stop()
    leased.restart()
    leased.clock.ms += RESTART_GRACE_MS - 1
    leased.leases.check()
    leased.leases.renew("job", HOUR_MS)
    leased.clock.ms += 1
    assert leased.left_ms() == HOUR_MS - 1


@pytest.mark.parametrize("fault", ["before", "after"])
def test_a_lease_read_back_after_a_failed_write_keeps_its_time(leased: Leased, fault: str) -> None:
    leased.clock.jumped_ms = TWO_DAYS_MS
    leased.clock.ms += 1_000
    leased.store.fault = fault
    with pytest.raises(Exception, match="disk I/O error"):
        leased.leases.renew("job", 2 * HOUR_MS)
    left = {"before": HOUR_MS - 1_000, "after": 2 * HOUR_MS}
    assert leased.left_ms() == left[fault]
