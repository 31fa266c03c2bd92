"""The release of a run whose teardowns were skipped, as the failure callback of its DAG does it."""

from __future__ import annotations

import socket
import threading
import time
from types import SimpleNamespace

import pytest
from airflow.sdk import DAG

from sluice.client import connect
from sluice.errors import NetworkError, RequestTimeOut
from sluice.model import Reason, TablePath
from sluice.rounds.records.result import RoundFailure
from sluice_airflow import release
from sluice_airflow.claims.claimed_again import mark_started
from sluice_airflow.claims.claims import ClaimedTable
from sluice_airflow.config.connection import FlussConnection
from sluice_airflow.outcomes.settle import NO_TIME, RUN_ENDED, drop
from sluice_airflow.outcomes.verdict import Verdict
from tests.airflow.claims.test_claims import JOB, Run, left_by, waiting
from tests.airflow.claims.test_claims import run as run

STOPPED = RoundFailure(Reason("StoppedByUser", "the dagrun_timeout of the run passed"))
FAILED = RoundFailure(Reason("NetworkError", "127.0.0.1:1 went away"))
SEEN_S = 5.0


def released(run: Run, stop_seen_s: float, limit_s: float = 60.0) -> list[Verdict]:
    work_uri = f"file://{run.work}"
    return drop(run.client, work_uri, JOB, stop_seen_s=stop_seen_s, limit_s=limit_s)


def begun(run: Run, *names: str) -> list[ClaimedTable]:
    """Claims on which the first try of the tier task works."""
    waiting(run, *names)
    entries = sorted(run.acquire(), key=lambda entry: entry["table"])
    for entry in entries:
        mark_started(entry["plan_uri"], "1")
    return entries


def test_a_tier_task_that_is_killed_meanwhile_leaves_the_reason(run: Run) -> None:
    """Airflow kills it at its next heartbeat, which may come after the callback."""
    [entry] = begun(run, "orders")
    soon = threading.Timer(0.5, left_by, (entry, STOPPED))
    soon.start()
    [verdict] = released(run, SEEN_S)
    soon.join()
    assert (verdict.reported, verdict.reason) == ("released", str(STOPPED.reason))
    status = run.status(TablePath("shop", "orders"))
    assert (status.status, status.failures, status.stopped) == ("Pending", 0, verdict.reason)


def test_a_tier_task_that_leaves_nothing_is_waited_for_once(run: Run) -> None:
    """However many tables it had."""
    begun(run, "orders", "customers", "items")
    start = time.monotonic()
    verdicts = released(run, stop_seen_s=1.0)
    assert 1.0 <= time.monotonic() - start < 2.9
    assert [verdict.reported for verdict in verdicts] == ["failed"] * 3
    assert {verdict.reason for verdict in verdicts} == {RUN_ENDED}


def test_a_table_that_has_failed_is_not_waited_for(run: Run) -> None:
    [entry] = begun(run, "orders")
    left_by(entry, FAILED)
    start = time.monotonic()
    [verdict] = released(run, SEEN_S)
    assert time.monotonic() - start < SEEN_S
    assert (verdict.reported, verdict.reason) == ("failed", str(FAILED.reason))


def test_the_claims_that_are_left_at_the_time_limit_are_released(run: Run) -> None:
    """So that the tables are due again at once."""
    entries = begun(run, "customers", "orders")
    left_by(entries[0], FAILED)
    verdicts = released(run, stop_seen_s=SEEN_S, limit_s=0.0)
    assert sorted(verdict.table for verdict in verdicts) == ["shop.customers", "shop.orders"]
    assert {(verdict.reported, verdict.reason) for verdict in verdicts} == {("released", NO_TIME)}
    run.nothing_is_held()
    assert run.client.leases.all() == []


@pytest.mark.parametrize(
    ("state", "left"),
    [("skipped", 0), ("upstream_failed", 0), (None, 1), ("scheduled", 1), ("success", 1)],
)
def test_a_run_that_was_cleared_before_the_callback_keeps_its_claims(
    run: Run, monkeypatch: pytest.MonkeyPatch, state: str | None, left: int
) -> None:
    """Airflow runs callbacks when it comes to them. The state is that of drop_lease."""
    entries = begun(run, "orders")
    xcoms = {"open_job": JOB, "acquire_lease": [{"tables": entries}]}
    states = {"manual__1": {"drop_lease": state}}
    for name, value in run.connection().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(
        "sluice_airflow.release.XCom.get_one", lambda *, task_id, **_: xcoms[task_id]
    )
    get_states = "sluice_airflow.release.RuntimeTaskInstance.get_task_states"
    monkeypatch.setattr(get_states, lambda **_: states)
    monkeypatch.setattr(release, "LIMIT_S", 0.5)
    context = {"dag": DAG("lake", schedule=None), "run_id": "manual__1", "reason": "timed_out"}
    monkeypatch.setattr(release, "_until", {})
    release.ReleaseOfFailedRun("fluss_default")(context)
    assert len(run.client.tiering.claims_of(JOB)) == left


def test_the_groups_of_a_dag_share_the_time_of_callbacks(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 1000.0
    monkeypatch.setattr(release, "time", SimpleNamespace(monotonic=lambda: now_s))
    monkeypatch.setattr(release, "_until", {})
    monkeypatch.setattr(release, "LIMIT_S", 60.0)
    first = release._left_s("lake", "manual__1")
    monkeypatch.setattr(release, "LIMIT_S", 600.0)
    assert first == 60.0
    now_s += 5.0
    assert release._left_s("lake", "manual__1") == 55.0
    assert release._left_s("lake", "manual__2") == 600.0


def test_a_coordinator_that_is_away_costs_one_time_limit(run: Run) -> None:
    """Not one for each of the claims, the rest of the run, and its lease."""
    begun(run, "orders")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"grpc://127.0.0.1:{silent.getsockname()[1]}"
        limit_s = 2.0
        connection = FlussConnection(address, work_uri=f"file://{run.work}")
        with connect(connection.client_config(int(limit_s * 1000))) as client:
            start = time.monotonic()
            with pytest.raises((NetworkError, RequestTimeOut)):
                drop(client, f"file://{run.work}", JOB)
            assert time.monotonic() - start < 2 * limit_s
