"""`sluice tier` that is stopped by a signal or killed: its claim, its lease and its exit code."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from click.testing import CliRunner

from sluice.cli.main import cli
from sluice.client.leases import keeper as lease_keeper
from sluice.client.leases.tier_lease import TIER_LEASE_MS, tier_lease_id
from sluice.client.tiering.tiering import TieringClient
from sluice.driver.lakes.jvm import Jvm
from sluice.errors import LeaseLost
from sluice.model import Claim, LeaseInfo, TieringStatus
from sluice.stop_signals import Terminated, sigterm_raises
from sluice.wire import fluss_api_pb2 as pb
from tests.spark.conftest import STOCK, At, LocalStock
from tests.support.programs.driver_process import DriverProcess
from tests.support.programs.processes import SLUICE, wait_for

pytestmark = pytest.mark.spark


@pytest.fixture
def keyed(stock: LocalStock) -> LocalStock:
    """A table that was never tiered, with a KV snapshot of both buckets."""
    stock.create()
    stock.put({key: key for key in range(20)})
    stock.snapshots()
    return stock


def status(stock: LocalStock) -> TieringStatus:
    [found] = stock.client.statuses.list(STOCK)
    return found


def words(stock: LocalStock) -> list[str]:
    lake, address = str(stock.site.warehouse), stock.client.config.bootstrap
    return ["tier", str(STOCK), "--warehouse", lake, "--bootstrap", address]


def command(stock: LocalStock, home: Path, failpoints: str) -> DriverProcess:
    return DriverProcess([SLUICE, *words(stock)], home, {"SLUICE_FAILPOINTS": failpoints})


@contextmanager
def held(stock: LocalStock, home: Path) -> Iterator[tuple[DriverProcess, psutil.Process]]:
    """`sluice tier`, stopped while it holds claim and lease and its JVM runs."""
    driver = command(stock, home, "round.lease.after=stop")
    try:
        driver.wait_until_stopped()
        [java] = psutil.Process(driver._process.pid).children(recursive=True)
        yield driver, java
    finally:
        driver.kill()


def end_claim(stock: LocalStock) -> None:
    """What the coordinator does after its timeout, at once and without a failure."""
    found = status(stock)
    epoch = stock.client.tiering._heartbeat(
        pb.LakeTieringHeartbeatRequest(), idempotent=True
    ).coordinator_epoch
    claim = Claim(found.table_id, STOCK, found.tiering_epoch, epoch)
    stock.client.tiering.finished(claim, forced=True)


def leases_at_copy(stock: LocalStock) -> list[LeaseInfo]:
    """The leases while a round copies; there are none after it."""
    seen: list[LeaseInfo] = []
    stock.tier(At("copy", lambda: seen.extend(stock.client.leases.all())))
    assert stock.client.leases.all() == []
    return seen


@pytest.mark.slow
def test_sigterm_ends_a_round_without_a_trace_and_kill_9_leaves_what_the_next_takes(
    keyed: LocalStock, tmp_path: Path
) -> None:
    leases = keyed.client.leases
    with held(keyed, tmp_path) as (driver, java):
        [lease] = leases.all()
        left_ms = lease.expires_ms - lease.renewed_ms
        driver._process.terminate()
        driver.go_on()
        assert driver.wait() == 128 + signal.SIGTERM, driver.said
        wait_for("Java to end", lambda: not java.is_running(), 10)
    # a list tells the end by the clock of the answer, rounded to milliseconds
    assert abs(left_ms - TIER_LEASE_MS) <= 2
    assert TIER_LEASE_MS == 600_000
    assert leases.all() == []
    assert (status(keyed).status, status(keyed).failures) == ("Pending", 0)
    assert status(keyed).stopped == "StoppedByUser: SIGTERM ended `sluice tier`"

    with held(keyed, tmp_path) as (driver, java):
        driver.kill()
        wait_for("Java to end", lambda: not java.is_running(), 10)
    assert [left.lease_id for left in leases.all()] == [lease.lease_id]
    end_claim(keyed)
    assert [(seen.lease_id, seen.buckets) for seen in leases_at_copy(keyed)] == [
        (lease.lease_id, 2)
    ]
    keyed.assert_equal()


def test_a_signal_while_the_claim_is_made_waits_for_its_answer(
    keyed: LocalStock, tmp_path: Path
) -> None:
    driver = command(keyed, tmp_path, "round.claim.after=stop")
    driver.wait_until_stopped()
    driver._process.terminate()
    driver.go_on()
    assert driver.wait() == 128 + signal.SIGTERM, driver.said
    assert (status(keyed).status, status(keyed).failures) == ("Pending", 0)


def test_sigterm_while_the_command_waits_ends_it(
    keyed: LocalStock, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim = keyed.site.claim(STOCK)
    waiting = SimpleNamespace(
        monotonic=time.monotonic, sleep=lambda _: signal.raise_signal(signal.SIGTERM)
    )
    monkeypatch.setattr("sluice.cli.tiering.tier.time", waiting)
    done = CliRunner().invoke(cli, [*words(keyed), "--wait", "5min"])
    assert (done.exit_code, done.stderr) == (
        128 + signal.SIGTERM,
        "\nsluice: stopped by SIGTERM: nothing was committed, because the table was not claimed"
        " yet\n",
    )
    assert keyed.client.tiering.beat([claim]) == {claim.table_id: None}


@pytest.mark.parametrize(
    ("number", "phase"),
    [
        pytest.param(signal.SIGTERM, "recover", marks=pytest.mark.long),
        (signal.SIGTERM, "copy"),
        pytest.param(signal.SIGINT, "copy", marks=pytest.mark.long),
        pytest.param(signal.SIGTERM, "after the copy", marks=pytest.mark.long),
    ],
)
def test_a_signal_before_the_commit_releases_claim_and_lease(
    keyed: LocalStock, number: signal.Signals, phase: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object) -> bool:
        signal.raise_signal(number)
        return True

    with monkeypatch.context() as patched:
        if phase == "after the copy":
            patched.setattr(TieringClient, "still_claimed", stop)
        with pytest.raises(KeyboardInterrupt) as caught, sigterm_raises():
            keyed.tier(At(phase, stop))
    assert list(keyed.site.warehouse.rglob("*.parquet")) == []
    assert isinstance(caught.value, Terminated) == (number == signal.SIGTERM)
    assert keyed.client.leases.all() == []
    assert (status(keyed).status, status(keyed).failures) == ("Pending", 0)
    name = "SIGTERM" if number == signal.SIGTERM else "Ctrl-C"
    assert status(keyed).stopped == f"StoppedByUser: {name} ended `sluice tier`"
    assert keyed.client.admin.lake_snapshot(STOCK) is None
    keyed.tier()
    assert status(keyed).stopped is None
    keyed.assert_equal()


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.long)]
)
def test_a_signal_ends_a_call_into_java(
    number: signal.Signals, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)  # Airflow, once imported, logs what py4j does
    with Jvm() as java:
        sender = threading.Timer(0.5, lambda: os.kill(os.getpid(), number))
        sender.start()
        with pytest.raises(KeyboardInterrupt) as caught, sigterm_raises():
            java.gateway.jvm.Thread.sleep(60_000)
        assert isinstance(caught.value, Terminated) == (number == signal.SIGTERM)
        assert java.gateway.jvm.Math.abs(-1) == 1, "another connection still works"
    assert (caplog.text, "Traceback" in capfd.readouterr().err) == ("", False)


@pytest.mark.parametrize("phase", [pytest.param("prepare", marks=pytest.mark.long), "lake_commit"])
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


def test_a_lease_left_over_is_reduced_to_what_the_next_round_needs(keyed: LocalStock) -> None:
    keyed.tier()
    table_id = status(keyed).table_id
    with tier_lease_id(table_id) as left_over:
        newest = keyed.client.leases.latest(STOCK).snapshots
        keyed.client.leases.acquire(left_over, TIER_LEASE_MS, newest.values())
    keyed.put({1: 100})
    assert leases_at_copy(keyed) == []


def test_a_second_living_process_has_a_lease_of_its_own(keyed: LocalStock) -> None:
    with tier_lease_id(status(keyed).table_id) as first:
        [seen] = leases_at_copy(keyed)
    assert seen.lease_id == f"{first}.2"


def test_the_lease_is_renewed_and_its_loss_ends_the_round(
    keyed: LocalStock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(lease_keeper, "_INTERVAL_MAX_S", 0.02)
    leases = keyed.client.leases

    def lose() -> None:
        [before] = leases.all()
        wait_for("a renewal", lambda: leases.all()[0].expires_ms > before.expires_ms, 10)
        leases.drop(before.lease_id)
        wait_for("the loss", lambda: "is lost, its KV snapshots" in caplog.text, 10)

    with pytest.raises(LeaseLost, match=r"lease sluice-tier-\S+ is lost"):
        keyed.tier(At("copy", lose))
    assert "is lost, its KV snapshots may be deleted" in (status(keyed).last_error or "")
    assert keyed.client.admin.lake_snapshot(STOCK) is None
