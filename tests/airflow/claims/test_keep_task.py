"""The task keep_claims and its trigger; only Airflow's side is a fake."""

from __future__ import annotations

import asyncio
import io
import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from http.client import IncompleteRead
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.execution_time import task_runner
from airflow.sdk.execution_time.comms import SkipDownstreamTasks

from sluice.client import Client
from sluice.model import BucketSnapshot, Claim, Reason, TablePath
from sluice.rounds.records.plan_file import claim_of
from sluice_airflow.acquire.keeper import ClaimKeeper
from sluice_airflow.claims import leasing
from sluice_airflow.claims.claimed_again import mark_started, newest_claim
from sluice_airflow.operators import keep
from sluice_airflow.operators.keep import TIMED_OUT, SluiceKeepOperator, end_keeper
from sluice_airflow.triggers import keep as triggers
from tests.airflow.acquire.test_keeper import JOB, Shop
from tests.airflow.acquire.test_keeper import shop as shop
from tests.airflow.place import wait_until

try:
    from airflow.sdk.exceptions import TaskDeferred
except ImportError:  # Airflow 3.1
    from airflow.exceptions import TaskDeferred

pytestmark = pytest.mark.filterwarnings("default")
"""Airflow 3.1 warns of parts of its own."""
RUN_ID = "manual__1"
DROP = "drop_lease"
KEEP = "keep_claims"


class Airflow:
    """The states of a run's tasks, the health of the triggerer, what a task sends."""

    def __init__(self) -> None:
        self.states: dict[str, str | None] = {DROP: None, KEEP: "deferred"}
        self.triggerer = "healthy"
        self.health: list[bytes | Exception] = []
        """The first answers about the health, before the usual ones."""
        self.sent: list[Any] = []
        self.run_id, self.dag_id = RUN_ID, "sluice_lake_tiering"
        self.is_available: Callable[[], bool] = lambda: True

    def get_task_states(
        self, dag_id: str, task_ids: list[str], run_ids: list[str]
    ) -> dict[str, dict[str, str | None]]:
        assert (dag_id, run_ids) == (self.dag_id, [RUN_ID])
        if not self.is_available():
            raise ConnectionError("the database is away")
        return {RUN_ID: {n: state for n, state in self.states.items() if n in task_ids}}

    def urlopen(self, url: str, **_: Any) -> io.BytesIO:
        assert url.endswith("/api/v2/monitor/health")
        if self.health:
            answer = self.health.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return io.BytesIO(answer)
        return io.BytesIO(json.dumps({"triggerer": {"status": self.triggerer}}).encode())

    def send(self, msg: Any) -> None:
        self.sent.append(msg)

    def context(self) -> Any:
        dag_run = SimpleNamespace(run_id=RUN_ID, triggering_user_name="admin")
        return {"dag_run": dag_run, "ti": self}


@pytest.fixture
def airflow(monkeypatch: pytest.MonkeyPatch) -> Airflow:
    fake = Airflow()
    monkeypatch.setattr("urllib.request.urlopen", fake.urlopen)
    monkeypatch.setattr(keep, "HEALTH_WAIT_S", 0.3)
    monkeypatch.setattr(keep, "HEALTH_EVERY_S", 0.02)
    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", fake, raising=False)
    return fake


@pytest.fixture
def operator() -> SluiceKeepOperator:
    return SluiceKeepOperator(task_id=KEEP, lease_id="sluice-job", drop_task_id=DROP)


TIME_PASSED = [{"event": "defer again"}, {"error": TIMED_OUT}]


@pytest.mark.parametrize("found", TIME_PASSED)
def test_a_run_of_many_hours_is_deferred_again(
    airflow: Airflow, operator: SluiceKeepOperator, found: dict[str, Any]
) -> None:
    with pytest.raises(TaskDeferred) as deferred:
        operator.resume_execution("", found, airflow.context())
    trigger = deferred.value.trigger
    assert trigger.lease_id == "sluice-job"
    assert trigger.until > time.time() + 3600
    assert deferred.value.timeout.total_seconds() > trigger.until - time.time()


@pytest.mark.parametrize("found", TIME_PASSED)
def test_a_run_that_has_ended_is_not_deferred_again(
    airflow: Airflow, operator: SluiceKeepOperator, found: dict[str, Any]
) -> None:
    airflow.states[DROP] = "running"
    operator.resume_execution("", found, airflow.context())


def test_a_triggerer_that_is_missing_when_the_time_has_passed(
    airflow: Airflow, operator: SluiceKeepOperator, capfd: pytest.CaptureFixture[str]
) -> None:
    airflow.triggerer = "unhealthy"
    operator.resume_execution("", {"error": TIMED_OUT}, airflow.context())
    assert (
        capfd.readouterr().err.count(
            "no triggerer runs; the claims of this run are kept only while"
        )
        == 1
    )


NOT_YET = json.dumps({"triggerer": {"status": None}}).encode()
UNREADABLE: list[bytes | Exception] = [
    ConnectionRefusedError("refused"),
    IncompleteRead(b""),
    TimeoutError("timed out"),
    b"<html>Bad gateway</html>",
    b"[]",
    b"{}",
]


@pytest.mark.parametrize("first", [*UNREADABLE, NOT_YET], ids=repr)
def test_an_airflow_that_just_starts_keeps_the_claims(
    airflow: Airflow,
    operator: SluiceKeepOperator,
    first: bytes | Exception,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(keep, "HEALTH_WAIT_S", 60.0)
    airflow.health = [first] * 3
    with pytest.raises(TaskDeferred):
        operator.execute(airflow.context())
    assert not airflow.health, "it was asked until a triggerer was alive"


@pytest.mark.parametrize("answer", UNREADABLE, ids=repr)
def test_a_health_that_cannot_be_read_is_no_missing_triggerer(
    airflow: Airflow,
    operator: SluiceKeepOperator,
    answer: bytes | Exception,
    caplog: pytest.LogCaptureFixture,
) -> None:
    airflow.health = [answer] * 1000
    with pytest.raises(TaskDeferred):
        operator.execute(airflow.context())
    assert "whether a triggerer runs: " in caplog.text
    assert keep.missing_keeper(airflow, KEEP) == "", "a tier task waits for it"
    assert keep.missing_triggerer().startswith("cannot read from "), "the sensor does not defer"


def test_without_a_triggerer_the_task_succeeds(
    airflow: Airflow, operator: SluiceKeepOperator, monkeypatch: pytest.MonkeyPatch
) -> None:
    airflow.triggerer = "unhealthy"
    began = time.monotonic()
    operator.execute(airflow.context())
    monkeypatch.setattr(keep, "HEALTH_WAIT_S", 600.0)
    assert keep.missing_keeper(airflow, KEEP) == "no triggerer runs"
    assert 0.3 <= time.monotonic() - began < 60, "tables wait for the answer"


def test_a_trigger_that_fails_is_not_started_again(
    airflow: Airflow, operator: SluiceKeepOperator, capfd: pytest.CaptureFixture[str]
) -> None:
    """The triggerer may have no Sluice installed: it would fail at once, again and again."""
    found = {"error": "Trigger failure", "traceback": ["No module named 'sluice_airflow'"]}
    operator.resume_execution("", found, airflow.context())
    assert "No module named 'sluice_airflow'" in capfd.readouterr().err


def test_the_text_is_that_of_airflow() -> None:
    from airflow.models.trigger import TriggerFailureReason

    assert TriggerFailureReason.TRIGGER_TIMEOUT.value == TIMED_OUT


def test_the_end_of_a_run_skips_a_keeper_without_a_triggerer(airflow: Airflow) -> None:
    end_keeper(airflow, KEEP, 0.01)
    assert airflow.sent == [SkipDownstreamTasks(tasks=[KEEP])]


@pytest.mark.parametrize("state", ["success", "failed", "skipped", "scheduled", None])
def test_a_keeper_that_ends_by_itself_is_left_alone(airflow: Airflow, state: str | None) -> None:
    airflow.states[KEEP] = state
    end_keeper(airflow, KEEP)
    assert airflow.sent == []


def test_a_keeper_whose_state_cannot_be_read_does_not_fail_the_run(airflow: Airflow) -> None:
    del airflow.states[KEEP]
    end_keeper(airflow, KEEP)
    assert airflow.sent == []


class Triggerer:
    """Runs the trigger of a run; its heartbeats follow each other quickly."""

    def __init__(self, airflow: Airflow, pool: ThreadPoolExecutor) -> None:
        self._airflow, self._pool = airflow, pool
        self.cancel: Callable[[], object] = lambda: None
        self.ended = Event()

    def start(self, seconds: float = 60.0) -> Future[list[str]]:
        trigger = triggers.KeepClaimsTrigger(
            "fluss_default", JOB, self._airflow.dag_id, RUN_ID, DROP, 0.05, time.time() + seconds
        )

        async def events() -> list[str]:
            task = asyncio.current_task()
            assert task is not None
            self.cancel = partial(asyncio.get_running_loop().call_soon_threadsafe, task.cancel)
            try:
                return [type(event).__name__ async for event in trigger.run()]
            finally:
                self.ended.set()

        return self._pool.submit(lambda: asyncio.run(events()))


@pytest.fixture
def triggerer(airflow: Airflow, shop: Shop, monkeypatch: pytest.MonkeyPatch) -> Iterator[Triggerer]:
    monkeypatch.setattr(triggers, "POLL_S", 0.05)
    monkeypatch.setattr(
        task_runner.RuntimeTaskInstance, "get_task_states", staticmethod(airflow.get_task_states)
    )
    for name, value in shop.connection().items():
        monkeypatch.setenv(name, value)
    with ThreadPoolExecutor(1) as pool:
        yield Triggerer(airflow, pool)
        airflow.states[DROP] = "running"  # after a failed test, too
        airflow.is_available = lambda: True


@pytest.fixture
def keepers(monkeypatch: pytest.MonkeyPatch) -> list[ClaimKeeper]:
    """The keeper of the trigger, once that has begun."""
    found: list[ClaimKeeper] = []
    really_open = triggers._open

    def opened(*arguments: Any) -> tuple[Client, ClaimKeeper]:
        client, keeper = really_open(*arguments)
        found.append(keeper)
        return client, keeper

    monkeypatch.setattr(triggers, "_open", opened)
    return found


def test_the_trigger_claims_again_and_ends_with_the_run(
    shop: Shop, airflow: Airflow, triggerer: Triggerer
) -> None:
    [path] = shop.tables(1)
    [entry] = shop.acquire()
    running = triggerer.start()
    shop.client.tiering.release(claim_of(entry), Reason.from_text("another client"))
    wait_until(lambda: newest_claim(entry) != entry, 30, "the claim")
    assert shop.failures(path) == [("Tiering", 0)]
    airflow.states[DROP] = "running"
    assert running.result(30) == ["TaskSuccessEvent"]


def unknown_after_the_claim(shop: Shop, airflow: Airflow, triggerer: Triggerer) -> Any:
    """A trigger that has claimed a table again, and cannot read since whether its run has ended."""
    [path] = shop.tables(1)
    [entry] = shop.acquire()
    refused: list[int] = []

    def is_available() -> bool:
        if newest_claim(entry) != entry:
            refused.append(1)
        return not refused

    airflow.is_available = is_available
    running = triggerer.start()
    shop.client.tiering.release(claim_of(entry), Reason.from_text("another client"))
    wait_until(lambda: len(refused) > 5, 30, "the claim")
    assert shop.failures(path) == [("Tiering", 0)]
    return path, running


def test_a_claim_is_kept_while_it_is_unknown_whether_the_run_has_ended(
    shop: Shop, airflow: Airflow, triggerer: Triggerer, keepers: list[ClaimKeeper]
) -> None:
    """Airflow's API failed for a moment. A cancelled trigger then leaves the claim to the next."""
    path, running = unknown_after_the_claim(shop, airflow, triggerer)
    airflow.is_available = lambda: True
    wait_until(lambda: not keepers[0].is_unconfirmed, 30, "the state of the run")
    triggerer.cancel()
    wait_until(running.done, 30, "the end of the trigger")
    assert shop.failures(path) == [("Tiering", 0)]


@pytest.mark.parametrize("cancelled", [False, True])
def test_a_claim_is_released_if_the_run_has_ended_meanwhile(
    shop: Shop, airflow: Airflow, triggerer: Triggerer, cancelled: bool
) -> None:
    """drop_lease may have been over before the claim."""
    path, running = unknown_after_the_claim(shop, airflow, triggerer)
    if cancelled:
        triggerer.cancel()
    else:
        airflow.states[DROP] = "success"
        airflow.is_available = lambda: True
    wait_until(running.done, 30, "the end of the trigger")
    assert shop.failures(path) == [("Pending", 0)]


def test_the_trigger_claims_nothing_again_for_a_run_whose_state_is_unknown(
    shop: Shop, airflow: Airflow, triggerer: Triggerer
) -> None:
    [path] = shop.tables(1)
    [entry] = shop.acquire()
    asked: list[int] = []
    airflow.is_available = lambda: bool(asked.append(1))
    running = triggerer.start()
    shop.client.tiering.release(claim_of(entry), Reason.from_text("another client"))
    wait_until(lambda: shop.failures(path) == [("Pending", 0)], 30, "its release")
    before = len(asked)
    wait_until(lambda: len(asked) > before + 5, 30, "more requests")
    assert newest_claim(entry) == entry
    airflow.is_available = lambda: True
    airflow.states[DROP] = "success"
    assert running.result(30) == ["TaskSuccessEvent"]


@pytest.mark.parametrize("begun", [False, True])
def test_a_cancelled_trigger_leaves_no_claim_without_a_plan_behind(
    shop: Shop, triggerer: Triggerer, monkeypatch: pytest.MonkeyPatch, begun: bool
) -> None:
    """Airflow cancels it if the triggerer ends, or if drop_lease has skipped its task.

    A tier task that has begun keeps its new claim.
    """
    paths = shop.tables(2)
    entries = shop.acquire()
    leasing_began, go_on = Event(), Event()
    lease_snapshots = leasing.lease_snapshots
    calls: list[TablePath] = []

    def slow(client: Client, lease_id: str, claim: Claim) -> tuple[BucketSnapshot, ...]:
        calls.append(claim.path)
        if len(calls) == 2 or not begun:
            leasing_began.set()
            go_on.wait(30)
        return lease_snapshots(client, lease_id, claim)

    monkeypatch.setattr(leasing, "lease_snapshots", slow)
    running = triggerer.start()
    for entry in entries:
        shop.client.tiering.release(claim_of(entry), Reason.from_text("another client"))
    assert leasing_began.wait(30)
    kept = []
    if begun:
        [old] = [entry for entry in entries if entry["table"] == str(calls[0])]
        kept = [newest_claim(old)]
        mark_started(kept[0]["plan_uri"], "1")
    triggerer.cancel()
    time.sleep(0.2)
    assert not running.done(), "it waits for its thread"
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        running.result(30)
    assert shop.client.tiering.claims_of(JOB) == [claim_of(entry) for entry in kept]
    assert len(calls) == (2 if begun else 1), "it claimed another table"
    states = {str(path): state for path, state in zip(paths, shop.failures(*paths), strict=True)}
    expected = {str(path): ("Pending", 0) for path in paths}
    assert states == expected | {entry["table"]: ("Tiering", 0) for entry in kept}


def test_a_cancelled_trigger_does_not_wait_for_long(
    shop: Shop, triggerer: Triggerer, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.tables(1)
    [entry] = shop.acquire()
    leasing_began, go_on = Event(), Event()

    def hanging(*_: object) -> None:
        leasing_began.set()
        go_on.wait(60)

    monkeypatch.setattr(leasing, "lease_snapshots", hanging)
    monkeypatch.setattr(triggers, "CANCELLED_S", 0.2)
    running = triggerer.start()
    shop.client.tiering.release(claim_of(entry), Reason.from_text("another client"))
    assert leasing_began.wait(30)
    triggerer.cancel()
    wait_until(triggerer.ended.is_set, 10, "the end of the trigger")
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        running.result(30)


def test_the_trigger_defers_again_after_its_time(shop: Shop, triggerer: Triggerer) -> None:
    shop.tables(1)
    shop.acquire()
    assert triggerer.start(0.2).result(30) == ["TriggerEvent"]


def test_the_trigger_waits_for_a_cluster_and_a_connection(
    shop: Shop, airflow: Airflow, triggerer: Triggerer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error when it starts is not the end of the keeping."""
    [path] = shop.tables(1)
    [entry] = shop.acquire()
    [(name, value)] = shop.connection().items()
    monkeypatch.delenv(name)
    running = triggerer.start()
    time.sleep(0.3)
    monkeypatch.setenv(name, value)
    shop.client.tiering.release(claim_of(entry), Reason.from_text("another client"))
    wait_until(lambda: running.done() or newest_claim(entry) != entry, 30, "the claim")
    assert shop.failures(path) == [("Tiering", 0)]
    airflow.states[DROP] = "running"
    assert running.result(30) == ["TaskSuccessEvent"]
