"""Lost claims and further rounds of a try, against a real server whose clock the test owns."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from sluice.client import Client
from sluice.client.tiering.heartbeats import Heartbeats
from sluice.client.tiering.idle import Waiting
from sluice.config import ClientConfig, ServerConfig
from sluice.errors import ClaimLost, LeaseNotObtained
from sluice.model import Claim, Reason, TableBucket, TablePath
from sluice.rounds.records.json_files import read_json
from sluice.rounds.records.result import RoundFailure, RoundResult
from sluice.server.cluster import EmbeddedCluster
from sluice_airflow.acquire.requests import Request, acquire_request
from sluice_airflow.claims import leasing
from sluice_airflow.claims.claimed_again import mark_ended
from sluice_airflow.claims.packs import PackLimits
from sluice_airflow.config.connection import FlussConnection
from sluice_airflow.outcomes.account import CLAIM_LOST, NOTHING_NEW, TIERED, of_verdict
from sluice_airflow.outcomes.settle import settle
from sluice_airflow.tier.next_rounds import CLAIMS_LOST_MAX, NextRounds
from sluice_airflow.tier.tried_table import TriedTable
from tests.airflow.operators.test_waiting import OwnedClock
from tests.airflow.place import AirflowProcess, Place
from tests.support.network.ports import kept_port

JOB = "sluice-job"
OTHER = "host:7"
LIMITS = PackLimits(100, 5_000_000)
SILENT_MS = 121_000
"""After it the coordinator ends a claim without heartbeats."""
SHORT_S = 1.5
"""Long enough for two attempts to claim."""


@dataclass
class Shop(Place):
    clock: OwnedClock
    heartbeats: Heartbeats
    restart: Callable[[], object]

    @property
    def connection_(self) -> FlussConnection:
        return FlussConnection(self.address, work_uri=f"file://{self.work}")

    def rounds(self, due_s: float = 30.0, **more: object) -> NextRounds:
        return NextRounds(
            self.client,
            self.connection_,
            JOB,
            self.heartbeats,
            due_s=due_s,
            **more,  # type: ignore[arg-type]
        )

    def tried(self, *names: str, wait: bool = False) -> list[TriedTable]:
        """Tables whose claims the run has, each with three rows."""
        for name in names:
            self.table(name, freshness="1h")
        request = Request([f"shop.{name}" for name in names], 100, wait=wait)
        found = acquire_request(self.client, self.connection_, JOB, request, LIMITS, 4, 20.0)
        return [TriedTable(t, "1") for pack in found.packs for t in pack["tables"]]

    def one(self, *, wait: bool = False) -> TriedTable:
        [table] = self.tried("a", wait=wait)
        return table

    def lose(self, table: TriedTable) -> None:
        """As the driver of a table ends when its worker was silent for too long."""
        self.clock.ms += SILENT_MS
        assert not self.client.tiering.still_claimed(table.claim)
        table.fail_with(ClaimLost("the coordinator reports a lost claim"))

    def settled(self, table: TriedTable) -> tuple[str, str]:
        verdict = settle(self.client, table.entry, table.xcom(), None)
        found = of_verdict(verdict)
        return found["became"], found["text"]


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    clock = OwnedClock()
    with ExitStack() as stack:
        address = f"grpc://127.0.0.1:{stack.enter_context(kept_port())}"
        config = ServerConfig(
            data_dir=str(tmp_path / "data"), listen=address, tiering_check_interval_ms=20
        )
        servers = stack.enter_context(ExitStack())

        def restart() -> None:
            servers.close()
            servers.enter_context(EmbeddedCluster(config, clock))

        restart()
        client = stack.enter_context(Client(ClientConfig(address), clock))
        client.admin.create_database("shop")
        heartbeats = stack.enter_context(Heartbeats(client.tiering, interval_s=3600.0))
        none: AirflowProcess = None  # type: ignore[assignment]
        work = tmp_path / "work"
        yield Shop(none, client, address, work, clock, heartbeats, restart)


def register(shop: Shop, claim: Claim, end: int) -> None:
    """What a round does on the Fluss side, with a made-up lake snapshot."""
    tiering, offsets = shop.client.tiering, {TableBucket(claim.table_id, None, 0): end}
    path = tiering.prepare_lake_snapshot(claim.table_id, claim.path, offsets)
    tiering.commit_lake_snapshot(claim, 4711 + end, path, offsets, {}, -1)


def end_early(shop: Shop, table: TriedTable) -> None:
    """As a round of one row that a limit ended."""
    register(shop, table.claim, 1)
    table.outcome = RoundResult.of(
        table.claim, "committed", rows=1, forced="the limit of the test", offsets={"0": 1}
    )


def taken_by_other(shop: Shop, path: TablePath) -> Claim:
    shop.client.statuses.request_round(path)
    claim = shop.client.tiering.claim([path], by=OTHER)
    assert claim is not None
    return claim


def test_a_claim_without_heartbeats_is_taken_again_before_its_next_attempt(shop: Shop) -> None:
    table = shop.one()
    shop.lose(table)
    status = shop.status(table.claim.path)
    assert (status.status, status.failures) == ("Failed", 1)
    assert (status.next_attempt_ms or 0) > shop.clock.ms
    assert shop.rounds().begin([table], "1-0") == [table]
    assert table.outcome is None
    status = shop.status(table.claim.path)
    assert (status.status, status.claimed_by) == ("Tiering", JOB)
    assert status.failures == 1, "only a success clears them"


def test_a_claim_that_a_restart_of_the_coordinator_has_ended_is_taken_again(shop: Shop) -> None:
    table = shop.one()
    shop.restart()
    assert not shop.client.tiering.still_claimed(table.claim)
    table.fail_with(ClaimLost("the coordinator has restarted"))
    shop.client.admin.set_options(table.claim.path, {"table.datalake.freshness": "1d"})
    assert shop.rounds().begin([table], "1-0") == [table]
    assert shop.client.tiering.still_claimed(table.claim)


def test_the_claim_of_another_worker_is_not_taken(shop: Shop) -> None:
    table = shop.one()
    shop.lose(table)
    other = taken_by_other(shop, table.claim.path)
    began = time.monotonic()
    assert shop.rounds().begin([table], "1-0") == []
    assert time.monotonic() - began < 10, "it does not wait for that round"
    assert shop.client.tiering.still_claimed(other)
    became, text = shop.settled(table)
    assert became == CLAIM_LOST
    assert text.startswith("not claimed again: held: host:7 tiers it (tiering epoch 2); ClaimLost")


def test_what_another_worker_has_done_since_is_left_as_it_is(shop: Shop) -> None:
    good, bad = shop.tried("good", "bad")
    shop.lose(good)
    bad.fail_with(ClaimLost("lost, too"))
    shop.client.tiering.finished(taken_by_other(shop, good.claim.path))
    denied = Reason.from_text("denied")
    shop.client.tiering.failed(taken_by_other(shop, bad.claim.path), denied)
    assert shop.rounds().begin([good, bad], "1-0") == []
    said = "not claimed again: claim lost: another round has "
    assert shop.settled(good)[1].startswith(f"{said}tiered it (tiering epoch 2); ClaimLost")
    assert shop.settled(bad)[1].startswith(f"{said}failed (tiering epoch 2); ClaimLost")
    assert shop.status(good.claim.path).status == "Scheduled"
    status = shop.status(bad.claim.path)
    assert (status.status, status.last_error) == ("Failed", "denied")


@pytest.mark.parametrize("act", ["pause", "drop", "disable"])
def test_a_table_that_a_user_stopped_is_not_taken(shop: Shop, act: str) -> None:
    table = shop.one()
    shop.lose(table)
    path = table.claim.path
    if act == "pause":
        shop.client.statuses.pause(path)
    elif act == "drop":
        shop.client.admin.drop_table(path)
    else:
        shop.client.admin.set_options(path, {"table.datalake.enabled": "false"})
    began = time.monotonic()
    assert shop.rounds().begin([table], "1-0") == []
    assert time.monotonic() - began < 10
    assert shop.client.tiering.claims_of(JOB) == []
    why = "`sluice resume shop.a`" if act == "pause" else "was dropped, or is no longer tiered"
    assert why in shop.settled(table)[1]


def test_a_claim_that_the_run_itself_has_ended_is_not_taken(shop: Shop) -> None:
    """A user marked the task, and its process lives on where Airflow cannot reach it."""
    table = shop.one()
    mark_ended(table.plan_uri)
    shop.client.tiering.release(table.claim, Reason.from_text("StoppedByUser: x"), stopped=True)
    table.fail_with(ClaimLost("released"))
    assert shop.rounds().begin([table], "1-0") == []
    assert shop.client.tiering.claims_of(JOB) == []
    assert "another task of the run has ended its claim" in shop.settled(table)[1]


def test_a_cleared_task_takes_the_claim_that_its_run_had_ended_before(shop: Shop) -> None:
    table = shop.one()
    mark_ended(table.plan_uri)
    shop.client.tiering.release(table.claim, Reason.from_text("StoppedByUser: x"), stopped=True)
    table.fail_with(ClaimLost("released"))
    assert shop.rounds(ended_before={table.plan_uri}).begin([table], "1-0") == [table]


def test_claims_are_not_taken_again_for_ever(shop: Shop) -> None:
    table, rounds = shop.one(), shop.rounds()
    for number in range(CLAIMS_LOST_MAX):
        shop.lose(table)
        assert rounds.begin([table], f"1-{number}") == [table]
    shop.lose(table)
    assert rounds.begin([table], "1-9") == rounds.begin([table], "1-10") == []
    assert shop.client.tiering.claims_of(JOB) == []
    became, text = shop.settled(table)
    assert became == CLAIM_LOST
    assert text.startswith("not claimed again: its claim was lost 4 times; ClaimLost: the coord")


def test_a_lost_table_without_new_rows_has_nothing_new(shop: Shop) -> None:
    """A run that waits for the table makes it due, although another worker has tiered it."""
    table = shop.one(wait=True)
    shop.lose(table)
    other = taken_by_other(shop, table.claim.path)
    register(shop, other, 3)
    shop.client.tiering.finished(other)
    assert shop.rounds().begin([table], "1-0") == []
    assert shop.settled(table) == (NOTHING_NEW, "")
    written = read_json(table.outcome_uri) or {}
    assert written["outcome"] == "nothing_new"


def test_another_worker_may_reach_the_end(shop: Shop) -> None:
    """The rows of the run's own round stay its result, and the run succeeds."""
    table = shop.one(wait=True)
    end_early(shop, table)
    shop.clock.ms += 1_000
    assert isinstance(table.outcome, RoundResult)
    shop.client.tiering.finished(table.claim, forced=True, details=table.outcome.details(JOB))
    table.is_reported = True
    other = shop.client.tiering.claim([table.claim.path], by=OTHER)
    assert other is not None
    register(shop, other, 3)
    shop.client.tiering.finished(other)
    assert shop.rounds().begin([table], "1-0") == []
    became, text = shop.settled(table)
    assert (became, text) == (TIERED, "1 row")


def test_a_table_whose_snapshots_cannot_be_leased_again_has_failed(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = shop.one()
    shop.lose(table)

    def refuse(*_: object) -> None:
        raise LeaseNotObtained("no snapshot is left")

    monkeypatch.setattr(leasing, "lease_snapshots", refuse)
    monkeypatch.setattr(Waiting, "needs_kv_snapshots", True)
    assert shop.rounds().begin([table], "1-0") == []
    assert reason(table) == "LeaseNotObtained: no snapshot is left"


def reason(table: TriedTable) -> str:
    assert isinstance(table.outcome, RoundFailure)
    return str(table.outcome.reason)


def test_a_next_round_begins(shop: Shop) -> None:
    table = shop.one(wait=True)
    end_early(shop, table)
    assert shop.rounds().begin([table], "1-0") == [table]
    assert (table.rounds, table.claim.tiering_epoch) == (2, 2)


def test_a_table_that_is_paused_before_its_next_round_says_so(shop: Shop) -> None:
    table = shop.one(wait=True)
    end_early(shop, table)
    shop.client.statuses.pause(table.claim.path)
    began = time.monotonic()
    assert shop.rounds().begin([table], "1-0") == []
    assert time.monotonic() - began < 10
    assert reason(table) == (
        "RoundsNotEnough: 1 round did not reach the end of the log at the time of the trigger"
        " (the limit of the test), and the table was not claimed again: paused: `sluice resume"
        " shop.a` resumes it"
    )


def test_a_table_that_is_held_before_its_next_round_says_by_whom(shop: Shop) -> None:
    table = shop.one(wait=True)
    end_early(shop, table)
    result = table.outcome
    assert isinstance(result, RoundResult)
    shop.client.tiering.finished(table.claim, forced=True, details=result.details(JOB))
    table.is_reported = True
    other = shop.client.tiering.claim([table.claim.path], by=OTHER)
    assert other is not None
    assert shop.rounds(SHORT_S).begin([table], "1-0") == []
    assert reason(table).endswith(
        "and the table was not claimed again: held: host:7 tiers it (tiering epoch 2)"
    )
    assert shop.client.tiering.still_claimed(other)
