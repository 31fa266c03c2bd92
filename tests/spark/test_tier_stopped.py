"""`sluice tier` that is stopped by a signal or killed: its claim, its lease and its exit code."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from sluice.model import TieringStatus
from sluice.rounds.progress import NoProgress
from sluice.stop_signals import Terminated, sigterm_raises
from tests.support.driver_process import DriverProcess
from tests.support.processes import SLUICE

from .conftest import STOCK, LocalStock

pytestmark = pytest.mark.spark


@pytest.fixture
def keyed(stock: LocalStock) -> LocalStock:
    """A table that was never tiered, with a KV snapshot of both buckets."""
    stock.create()
    stock.put({key: key for key in range(20)})
    stock.snapshots()
    return stock


class At(NoProgress):
    """Does something once, on the round's thread, when a phase begins."""

    def __init__(self, name: str, act: Callable[[], object]) -> None:
        self._name, self._act = name, act
        self.phases: list[str] = []

    def phase(self, name: str) -> None:
        self.phases.append(name)
        if name == self._name and self.phases.count(name) == 1:
            self._act()


def status(stock: LocalStock) -> TieringStatus:
    [found] = stock.client.statuses.list(STOCK)
    return found


def command(stock: LocalStock, home: Path, failpoints: str) -> DriverProcess:
    words = ("--warehouse", str(stock.site.warehouse), "--bootstrap", stock.client.config.bootstrap)
    return DriverProcess(
        [SLUICE, "tier", str(STOCK), *words], home, {"SLUICE_FAILPOINTS": failpoints}
    )


def test_a_signal_while_the_claim_is_made_waits_for_its_answer(
    keyed: LocalStock, tmp_path: Path
) -> None:
    driver = command(keyed, tmp_path, "round.claim.after=stop")
    driver.wait_until_stopped()
    driver._process.terminate()
    driver.go_on()
    assert driver.wait() == 128 + signal.SIGTERM, driver.said
    assert (status(keyed).status, status(keyed).failures) == ("Pending", 0)


@pytest.mark.parametrize(
    ("number", "phase"),
    [(signal.SIGTERM, "recover"), (signal.SIGTERM, "copy"), (signal.SIGINT, "copy")],
)
def test_a_signal_before_the_commit_releases_claim_and_lease(
    keyed: LocalStock, number: signal.Signals, phase: str
) -> None:
    with pytest.raises(KeyboardInterrupt) as caught, sigterm_raises():
        keyed.tier(At(phase, lambda: signal.raise_signal(number)))
    assert isinstance(caught.value, Terminated) == (number == signal.SIGTERM)
    assert keyed.client.leases.all() == []
    assert (status(keyed).status, status(keyed).failures) == ("Pending", 0)
    assert keyed.client.admin.lake_snapshot(STOCK) is None
    keyed.tier()
    keyed.assert_equal()


@pytest.mark.parametrize("phase", ["prepare", "lake_commit"])
def test_a_signal_during_the_commit_waits_for_its_end(keyed: LocalStock, phase: str) -> None:
    with pytest.raises(Terminated), sigterm_raises():
        keyed.tier(At(phase, lambda: signal.raise_signal(signal.SIGTERM)))
    assert keyed.client.admin.lake_snapshot(STOCK) is not None
    assert status(keyed).last_round_ms is not None, "the round was not reported as finished"
    assert keyed.client.leases.all() == []
    assert keyed.tier().outcome == "nothing_new"
    keyed.assert_equal()


def test_a_second_ctrl_c_does_not_wait_and_the_next_round_finds_the_commit(
    keyed: LocalStock,
) -> None:
    def twice() -> None:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        keyed.tier(At("fluss_commit", twice))
    assert keyed.client.admin.lake_snapshot(STOCK) is None
    assert (status(keyed).status, status(keyed).failures) == ("Pending", 0)
    found = keyed.tier()
    assert found.recovered_snapshot_id is not None
    keyed.assert_equal()
