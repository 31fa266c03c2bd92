"""The keeper with time of the test's own, and with real threads where a call hangs."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from sluice.client import LeaseKeeper
from sluice.errors import FlussError, LeaseLost, LeaseNotExist, NetworkError
from tests.support.statuses.lease_parts import ManualClock


class Coordinator:
    """Answers renewals as it is told."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.answers_after_s = 0.0
        self.error: FlussError | None = None
        self.renewals = 0

    def renew(self) -> None:
        self.renewals += 1
        self.clock.sleep(self.answers_after_s)
        if self.error is not None:
            raise self.error


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def coordinator(clock: ManualClock) -> Coordinator:
    return Coordinator(clock)


def keeper_of(
    coordinator: Coordinator, clock: ManualClock, on_lost: Callable[[LeaseLost], None] | None = None
) -> LeaseKeeper:
    return LeaseKeeper(
        "job", 60_000, coordinator.renew, on_lost=on_lost, now=clock.monotonic_s, random=lambda: 1.0
    )


def test_a_renewed_lease_lasts_from_the_sending_on(
    coordinator: Coordinator, clock: ManualClock
) -> None:
    """The coordinator counts from when it receives the request, and may answer much later."""
    keeper = keeper_of(coordinator, clock)
    coordinator.answers_after_s = 20
    for _ in range(3):
        clock.sleep(39)
        keeper.renew()
        keeper.check()
    clock.sleep(39.9)
    assert keeper.lost is None
    clock.sleep(0.2)
    with pytest.raises(LeaseLost, match="lease job is lost.*no renewal succeeded for 60 s"):
        keeper.check()


def test_an_unknown_lease_is_lost_at_once(coordinator: Coordinator, clock: ManualClock) -> None:
    heard: list[LeaseLost] = []
    keeper = keeper_of(coordinator, clock, heard.append)
    coordinator.error = LeaseNotExist("lease job does not exist")
    keeper.renew()
    keeper.renew()
    assert keeper.wait_lost(0)
    [lost] = heard
    assert "the coordinator reports: lease job does not exist" in str(lost)
    coordinator.error = None
    keeper.renew()
    assert keeper.lost is lost, "what was lost stays lost"


def test_a_failure_is_tried_again_until_time_is_up(
    coordinator: Coordinator, clock: ManualClock
) -> None:
    keeper = keeper_of(coordinator, clock)
    coordinator.error = NetworkError("127.0.0.1:1 is away")
    clock.sleep(30)
    keeper.renew()
    assert keeper.lost is None
    coordinator.error = None
    keeper.renew()
    coordinator.error = NetworkError("127.0.0.1:1 is away")
    clock.sleep(59)
    keeper.renew()
    assert keeper.lost is None
    clock.sleep(1)
    keeper.renew()
    assert "for 60 s: 127.0.0.1:1 is away" in str(keeper.lost)


def test_renewals_come_three_times_in_a_lease_and_ten_times_after_a_failure(
    coordinator: Coordinator, clock: ManualClock
) -> None:
    day = LeaseKeeper("day", 86_400_000, coordinator.renew, random=lambda: 1.0)
    assert day._pause_s() == 60, "who drops a lease need not wait long until its owner knows"
    keeper = keeper_of(coordinator, clock)
    assert keeper._pause_s() == 20
    coordinator.error = NetworkError("away")
    clock.sleep(20)
    keeper.renew()
    assert keeper._pause_s() == pytest.approx(4)
    clock.sleep(39.99)
    assert keeper._pause_s() == pytest.approx(0.05)


def test_a_stopped_keeper_loses_nothing(coordinator: Coordinator, clock: ManualClock) -> None:
    """A lease that was dropped on purpose is not found lost by a renewal under way."""
    keeper = keeper_of(coordinator, clock)
    keeper.stop()
    coordinator.error = LeaseNotExist("dropped")
    keeper.renew()
    clock.sleep(1000)
    assert keeper.lost is None


def test_the_end_is_seen_while_a_call_hangs(clock: ManualClock) -> None:
    """No time goes by until the call is under way, so it is always begun in time."""
    answer, asked, heard = threading.Event(), threading.Event(), threading.Event()

    def renew() -> None:
        clock.sleep(2)
        asked.set()
        assert answer.wait(60)

    with LeaseKeeper(
        "job",
        1_000,
        renew,
        on_lost=lambda _: heard.set(),
        now=clock.monotonic_s,
        random=lambda: -0.99999,
    ) as keeper:
        assert asked.wait(60)
        assert heard.wait(60), "though the renewal has not come back"
        with pytest.raises(LeaseLost, match="sent no response"):
            keeper.check()
        answer.set()


def test_it_renews_by_itself() -> None:
    enough = threading.Event()
    renewals: list[int] = []

    def renew() -> None:
        renewals.append(1)
        if len(renewals) == 3:
            enough.set()

    with LeaseKeeper("job", 600_000, renew, random=lambda: -0.99999) as keeper:
        assert enough.wait(60)
        assert keeper.lost is None


def test_a_broken_callback_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def gone() -> None:
        raise LeaseNotExist("gone")

    def broken(_: LeaseLost) -> None:
        raise ValueError("broken callback")

    with LeaseKeeper("job", 600_000, gone, on_lost=broken, random=lambda: -0.99999) as keeper:
        assert keeper.wait_lost(60)
