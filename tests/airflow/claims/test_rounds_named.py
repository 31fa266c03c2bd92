"""Runs of the DAG: each round in the history names its task instance and Spark application."""

from __future__ import annotations

import pytest

from sluice.model import TablePath, TieringRound
from sluice_airflow.claims.task_runs import TaskRun
from tests.airflow.place import Place, claimed_in

pytestmark = [pytest.mark.airflow, pytest.mark.slow]
APPLICATION = "app-of-a-test"


def last_round(place: Place, path: TablePath) -> TieringRound:
    return place.client.statuses.history(path, 1)[0]


def test_each_round_names_its_task_whatever_became_of_it(place: Place) -> None:
    """One table is tiered, one at the second try, one fails, and one loses its driver twice."""
    ok, flaky, broken, poison = (place.table(name) for name in ("ok", "flaky", "broken", "poison"))
    place.wait(ok, flaky, broken, poison)
    run = place.run(AIRFLOW__SLUICE__TABLES_PER_APPLICATION="1")
    indexes = {entry["table"]: at for at, entry in enumerate(claimed_in(run))}
    expected = {ok: ("committed", 1), flaky: ("committed", 2), broken: ("failed", 1)}
    expected[poison] = ("failed", 2)
    for path, (outcome, tries) in expected.items():
        seen = last_round(place, path)
        task = TaskRun.parse(seen.airflow_task)
        assert task is not None, path
        assert (task.run_id, task.task_id) == (run["run_id"], "per_application.tier")
        assert (task.map_index, task.try_number) == (indexes[str(path)], tries), path
        assert task.dag_id == "sluice_lake_tiering"
        assert (seen.outcome, seen.spark_application) == (outcome, APPLICATION)
    place.nothing_is_held()
