"""Runs that wait for Airflow itself: for slots of small pools, and for its API server."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import create_engine, text

from demo.airflow import DAG_ID
from sluice.model import TablePath
from tests.airflow.live import DATABASES, SQL_ALCHEMY_CONN, Live, running_live
from tests.airflow.place import wait_until
from tests.airflow.row_dags import Row, RowDag, wait_for_dags, write_dags

pytestmark = [pytest.mark.airflow, pytest.mark.long, pytest.mark.timeout(1200)]

RUNS = 3
"""So many runs of one DAG at the same time, in a pool of as many slots."""
GROUPED = """
with DAG({dag_id!r}, schedule=None, default_args={{"pool": "one", "priority_weight": 7}}):
    lake_tiering_group(tables=["shop.*_grouped"], force=True, pool="one")
"""
LIMITED = (
    "pool='one', max_active_tasks=1, max_active_runs=2,"
    " default_args={'pool': 'one', 'max_active_tis_per_dag': 1}"
)
DAGS = [
    RowDag(DAG_ID),
    RowDag("many", f"pool='few', max_active_runs={RUNS}, default_args={{'pool': 'few'}}"),
    RowDag("grouped", source=GROUPED),
    RowDag("limited", LIMITED),
    RowDag("early"),
]
TASK = "SELECT state, try_number FROM task_instance WHERE run_id = :run_id AND task_id = :task_id"
UNPAUSE = "UPDATE dag SET is_paused = :paused WHERE dag_id = :dag_id"
FAILED = ("failed", "up_for_retry")
AWAY_S = 60.0
"""So long at most until a task that does not reach the API server has failed."""


@pytest.fixture(scope="module", params=DATABASES)
def live(
    airflow_environment: dict[str, str],
    tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
) -> Iterator[Live]:
    folder = tmp_path_factory.mktemp("live")
    with running_live(
        folder,
        airflow_environment,
        triggerer=True,
        database=request.param,
        **write_dags(folder / "dags", DAGS),
        AIRFLOW__CORE__PARALLELISM="12",
    ) as running:
        wait_for_dags(running, DAGS)
        for name, slots in {"one": 1, "few": RUNS}.items():
            pool = {"name": name, "slots": slots, "include_deferred": True}
            running.airflow._send("POST", "/api/v2/pools", pool)
        yield running


def is_kept_and_tiered(row: Row, run_id: str, *paths: TablePath, prefix: str = "") -> None:
    """keep_claims was deferred, and no task of the run waited for it."""
    assert row.ended(run_id) == "success"
    assert row.states(run_id, f"{prefix}keep_claims") == ["success"]
    assert "keeping the claims of the run" in row.log(run_id, f"{prefix}keep_claims")
    row.is_tiered(*paths)
    row.nothing_is_left(run_id, *paths, opened=f"{prefix}open_job")


def test_as_many_runs_as_the_pool_has_slots(live: Live) -> None:
    row = Row(live, "many")
    paths = row.tables(*(f"ok_many_{n}" for n in range(RUNS)))
    runs = [row.trigger(str(path)) for path in paths]
    for run_id, path in zip(runs, paths, strict=True):
        is_kept_and_tiered(row, run_id, path)


def test_a_group_in_the_small_pool_of_its_dag(live: Live) -> None:
    row = Row(live, "grouped")
    paths = row.tables("ok_grouped")
    run_id = row.airflow.trigger({})
    is_kept_and_tiered(row, run_id, *paths, prefix="lake_tiering.")


def test_one_task_at_a_time(live: Live) -> None:
    """Of a run, and of each task in all runs."""
    row = Row(live, "limited")
    paths = row.tables("ok_limited_1", "ok_limited_2")
    runs = [row.trigger(str(path)) for path in paths]
    for run_id, path in zip(runs, paths, strict=True):
        is_kept_and_tiered(row, run_id, path)


def test_the_api_server_starts_after_the_run(live: Live) -> None:
    """The first task cannot start, because nobody answers. It is tried again."""
    row = Row(live, "early")
    [path] = row.tables("ok_early")
    row.airflow.pause(True)
    run_id = row.trigger("shop.ok_early")
    row.end("airflow-api-server", signal.SIGTERM)
    execute(live, UNPAUSE, paused=False, dag_id="early")

    def has_failed() -> bool:
        found = execute(live, TASK, run_id=run_id, task_id="open_job")
        return [state for state, _ in found if state in FAILED] != []

    wait_until(has_failed, AWAY_S, "open_job to fail", 0.5)
    row.begin("airflow-api-server")
    is_kept_and_tiered(row, run_id, path)
    [(_, tries)] = execute(live, TASK, run_id=run_id, task_id="open_job")
    assert tries > 1


def execute(live: Live, statement: str, **values: object) -> list[Any]:
    """Reads or changes Airflow's database, while its API server is away."""
    engine = create_engine(live.airflow.environment[SQL_ALCHEMY_CONN])
    with engine.begin() as connection:
        found = connection.execute(text(statement), values)
        rows = list(found) if found.returns_rows else []
    engine.dispose()
    return rows
