"""The task keep_claims and its trigger; only Airflow's side is a fake."""

from __future__ import annotations

import io
import json
import time
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import TaskDeferred
from airflow.sdk.execution_time import task_runner
from airflow.sdk.execution_time.comms import SkipDownstreamTasks

from sluice_airflow.operators.keep import TIMED_OUT, KeepClaimsOperator, end_keeper

RUN_ID = "manual__1"
DROP = "drop_lease"
KEEP = "keep_claims"


class Airflow:
    """The states of a run's tasks, the health of the triggerer, what a task sends."""

    def __init__(self) -> None:
        self.states: dict[str, str | None] = {DROP: None, KEEP: "deferred"}
        self.triggerer = "healthy"
        self.sent: list[Any] = []
        self.run_id, self.dag_id = RUN_ID, "sluice_lake_tiering"

    def get_task_states(
        self, dag_id: str, task_ids: list[str], run_ids: list[str]
    ) -> dict[str, dict[str, str | None]]:
        assert (dag_id, run_ids) == (self.dag_id, [RUN_ID])
        return {RUN_ID: {name: self.states[name] for name in task_ids}}

    def urlopen(self, url: str, **_: Any) -> io.BytesIO:
        assert url.endswith("/api/v2/monitor/health")
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
    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", fake, raising=False)
    return fake


@pytest.fixture
def operator() -> KeepClaimsOperator:
    return KeepClaimsOperator(task_id=KEEP, lease_id="sluice-job", drop_task_id=DROP)


TIME_PASSED = [{"event": "defer again"}, {"error": TIMED_OUT}]


@pytest.mark.parametrize("found", TIME_PASSED)
def test_a_run_of_many_hours_is_deferred_again(
    airflow: Airflow, operator: KeepClaimsOperator, found: dict[str, Any]
) -> None:
    with pytest.raises(TaskDeferred) as deferred:
        operator.resume_execution("", found, airflow.context())
    trigger = deferred.value.trigger
    assert trigger.lease_id == "sluice-job"
    assert trigger.until > time.time() + 3600
    assert deferred.value.timeout.total_seconds() > trigger.until - time.time()


@pytest.mark.parametrize("found", TIME_PASSED)
def test_a_run_that_has_ended_is_not_deferred_again(
    airflow: Airflow, operator: KeepClaimsOperator, found: dict[str, Any]
) -> None:
    airflow.states[DROP] = "running"
    operator.resume_execution("", found, airflow.context())


def test_a_triggerer_that_is_missing_when_the_time_has_passed(
    airflow: Airflow, operator: KeepClaimsOperator, capfd: pytest.CaptureFixture[str]
) -> None:
    airflow.triggerer = "unhealthy"
    operator.resume_execution("", {"error": TIMED_OUT}, airflow.context())
    assert (
        capfd.readouterr().err.count(
            "no triggerer runs; the claims of this run are kept only while"
        )
        == 1
    )


def test_a_trigger_that_fails_is_not_started_again(
    airflow: Airflow, operator: KeepClaimsOperator, capfd: pytest.CaptureFixture[str]
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
