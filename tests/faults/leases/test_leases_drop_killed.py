"""kill -9 of the server while a keeper renews without a pause what somebody drops.

Each renewal asks for another duration, so the time at which the stored lease ends tells which one
was the last: the last that was acknowledged, or the one under way.
"""

from __future__ import annotations

import copy
import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

from sluice.client import LeaseKeeper, connect
from sluice.errors import LeaseNotExist, RequestTimeOut
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from tests.faults.scenes.lease_history import DAY_MS, DEAD, History, PatientCaller
from tests.support.programs.clocked_server import ClockedServerProcess
from tests.support.programs.processes import wait_for

LEASE = "kept"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ClockedServerProcess]:
    process = ClockedServerProcess(tmp_path / "data")
    yield process
    process.kill()


class Renewer:
    """Renews as often as it can, also while the server is away."""

    def __init__(self, send: Callable[[int], object], durations_ms: Iterator[int]) -> None:
        self._send, self._durations_ms = send, durations_ms
        self._lock = threading.Lock()
        self.may_last_ms = [DAY_MS]
        """By the last renewal that was acknowledged, and by those whose answer is not there."""
        self._late_ms: list[int] = []
        self.renewed = self.refused = 0

    def renew(self) -> None:
        with self._lock:
            duration_ms = next(self._durations_ms)
            self.may_last_ms.append(duration_ms)
            try:
                self._send(duration_ms)
            except LeaseNotExist:
                self.refused += 1
                raise
            except RequestTimeOut:  # it may be done at any later time
                self._late_ms.append(duration_ms)
                raise
            self.may_last_ms = [*self._late_ms, duration_ms]
            self.renewed += 1

    @contextmanager
    def running(self, renew: Callable[[], None]) -> Iterator[None]:
        over = threading.Event()

        def run() -> None:
            while not over.wait(0.001):
                with suppress(LeaseNotExist, *DEAD):
                    renew()

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join(60)


class Race:
    """A lease that its keeper and a client of Fluss renew while somebody else drops it."""

    def __init__(self, server: ClockedServerProcess) -> None:
        self.server = server
        self.history = History(server, seed=7)
        with self.history.connected():
            self.history.put_everywhere()
        self.history.look()
        self.acknowledged = self.found = 0
        """Rounds in which the drop was answered; in which the lease was there after the kill."""

    def play(self, failpoint: str, *, at_once: bool = False) -> None:
        """The server dies at the failpoint, or else when the keeper knows of the drop.

        :param at_once: it dies as soon as it has answered the drop.
        """
        history = self.history
        history.start(failpoint)
        address, durations_ms = self.server.address, itertools.count(DAY_MS + 1)
        other = PatientCaller(address)
        with connect(address) as owner, closing(other.transport):
            by_call = Renewer(lambda ms: owner.leases.renew(LEASE, ms, retry=False), durations_ms)
            by_old_way = Renewer(
                lambda ms: other.call(
                    apis.ACQUIRE_KV_SNAPSHOT_LEASE,
                    pb.AcquireKvSnapshotLeaseRequest(lease_id=LEASE, lease_duration_ms=ms),
                ),
                durations_ms,
            )
            with history.connected():
                history.acquire(LEASE, DAY_MS, history.buckets)
            keeper = LeaseKeeper(LEASE, DAY_MS, by_call.renew)
            with keeper, by_call.running(keeper.renew), by_old_way.running(by_old_way.renew):
                self._drop(at_once, by_call, by_old_way)
                self._stays_dropped(keeper, by_call, by_old_way)

    def _drop(self, at_once: bool, *renewers: Renewer) -> None:
        history = self.history
        wait_for(
            "renewals, or the kill",
            lambda: not self.server.runs or all(each.renewed > 3 for each in renewers),
        )
        dropped = False
        with suppress(*DEAD), history.connected():
            history.drop(LEASE)
            dropped = True
        if dropped and not at_once:
            told = "both are told that it is gone, or the kill"
            wait_for(told, lambda: not self.server.runs or all(each.refused for each in renewers))
        self.server.kill()
        self.acknowledged += dropped
        also = []
        for duration_ms in [ms for each in renewers for ms in list(each.may_last_ms)]:
            also.append(copy.deepcopy(history.model))
            also[-1].hold(LEASE, {}, history.clock.now_ms() + duration_ms)
        history.look(also)
        self.found += LEASE in history.model.held
        if any(each.refused for each in renewers):
            assert history.model.held == {}, "somebody was told that it is gone"

    def _stays_dropped(self, keeper: LeaseKeeper, *renewers: Renewer) -> None:
        """Nobody brings it back, however often it is renewed, now and after the next start."""
        history = self.history
        history.start()
        with history.connected():
            history.drop(LEASE)
            history.agree()
            assert keeper.wait_lost(60)
            assert "the coordinator reports" in str(keeper.lost)
            goals = [each.refused + 3 for each in renewers]
            wait_for(
                "more renewals",
                lambda: all(each.refused >= n for each, n in zip(renewers, goals, strict=True)),
            )
            history.agree()
        history.look()
        assert history.model.held == {}


@pytest.mark.slow
def test_a_lease_that_is_dropped_beside_its_keeper_is_gone(server: ClockedServerProcess) -> None:
    race = Race(server)
    race.play("")
    assert race.acknowledged == 1
    assert race.found == 0


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_keeper_brings_nothing_back_whenever_the_server_dies(
    server: ClockedServerProcess,
) -> None:
    race = Race(server)
    for step in ("before", "after"):
        for passage in (5, 14, 25):  # the first always comes before the drop
            race.play(f"server.lease.{step}_commit=kill@{passage}")
    race.play("", at_once=True)
    assert race.acknowledged > 0
    assert race.found >= 2
