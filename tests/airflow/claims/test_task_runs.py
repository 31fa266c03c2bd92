"""The history of a table names the task instance and the Spark application of each round."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.model import Claim, TablePath
from sluice.rounds.records.json_files import write_json
from sluice.rounds.records.packs import SparkApplication, mark_running
from sluice.rounds.records.plan_file import plan_uri
from sluice_airflow.claims.claimed_again import mark_started
from sluice_airflow.claims.task_runs import TaskRun, ran_by
from sluice_airflow.outcomes.settle import settle
from tests.airflow.claims.test_claims import Run, left_by, result_of, run, waiting

__all__ = ["run"]
TASK = "sluice/manual/tier/0/1"

names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)
runs = st.builds(TaskRun, names, names, names, st.integers(-1, 9_999), st.integers(0, 99))


@given(runs)
def test_a_task_run_survives_its_text(run: TaskRun) -> None:
    text = str(run)
    assert text.count("/") == 4
    assert text.isascii()
    assert text.isprintable()
    assert TaskRun.parse(text) == run


def test_a_usual_run_can_be_read() -> None:
    run = TaskRun("sluice", "scheduled__2026-11-27T10:00:00+00:00", "one.tier", 3, 2)
    assert str(run) == "sluice/scheduled__2026-11-27T10:00:00+00:00/one.tier/3/2"


@pytest.mark.parametrize(
    "text", [None, "", "a/b/c", "a/b/c/d/1", "a/b/c/1/d", "//c/1/1", "a/b/c/1/1/1"]
)
def test_another_text_names_no_task_run(text: str | None) -> None:
    assert TaskRun.parse(text) is None


def plan_of(folder: Path, claim: Claim) -> str:
    return plan_uri(f"file://{folder}", "job", claim)


CLAIM = Claim(7, TablePath("shop", "orders"), 3, 1)


def test_the_files_of_a_lost_driver_tell(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, CLAIM)
    assert ran_by(plan) == {"airflow_task": None, "spark_application": None}
    mark_started(plan, "a")  # of a version that named no task
    assert ran_by(plan) == {"airflow_task": None, "spark_application": None}
    mark_started(plan, "b", "dag/run/tier/0/2")
    mark_running(plan, "a", SparkApplication("app-of-an-earlier-try"))
    assert ran_by(plan) == {"airflow_task": "dag/run/tier/0/2", "spark_application": None}
    mark_running(plan, "b", SparkApplication("app-1"))
    assert ran_by(plan) == {"airflow_task": "dag/run/tier/0/2", "spark_application": "app-1"}


def test_a_damaged_file_keeps_no_report_back(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, CLAIM)
    write_json(plan, {})
    Path(plan.removeprefix("file://")).with_name("started.json").write_text("{")
    assert ran_by(plan) == {"airflow_task": None, "spark_application": None}


@pytest.mark.parametrize("end", ["result", "lost task", "end of the run"])
def test_a_task_that_is_gone_is_named_by_the_one_that_reports(run: Run, end: str) -> None:
    """The worker of a tier task was lost, so another task reports its round."""
    (path,) = waiting(run, "orders")
    (entry,) = run.acquire()
    mark_started(entry["plan_uri"], "1", TASK)
    mark_running(entry["plan_uri"], "1", SparkApplication("app-1"))
    if end == "end of the run":
        run.drop()
    elif end == "lost task":
        settle(run.client, entry, None, None, "failed", 0.0)
    else:
        settle(run.client, entry, left_by(entry, result_of(entry)), None)
    (seen,) = run.client.statuses.history(path)
    assert seen.outcome == ("committed" if end == "result" else "failed")
    assert (seen.airflow_task, seen.spark_application) == (TASK, "app-1")
