"""The runs of a DAG: the newest one, and one that tiers a table now."""

from __future__ import annotations

from datetime import datetime
from urllib.parse import quote

from airflow.api.common.trigger_dag import trigger_dag
from airflow.api_fastapi.app import API_ROOT_PATH
from airflow.models.dag import DagModel
from airflow.models.dagrun import DagRun
from airflow.utils.session import create_session
from airflow.utils.state import DagRunState
from airflow.utils.types import DagRunTriggeredByType, DagRunType
from fastapi import HTTPException
from sqlalchemy import select

from sluice.model import TablePath
from sluice.page.cluster.models import Answer, DagState
from sluice_airflow.airflow_api.airflow_names import AirflowException
from sluice_airflow.page.routes import TAB

_QUEUED_MAX = 200
"""So many queued runs are compared with the one that is asked for."""


def dag_url(dag_id: str, rest: str = "") -> str:
    """The address of a DAG's page in Airflow's UI."""
    return f"{API_ROOT_PATH}dags/{quote(dag_id, safe='')}{rest}"


def run_url(dag_id: str, run_id: str) -> str:
    """The address of a run's page."""
    return dag_url(dag_id, f"/runs/{quote(run_id, safe='')}")


def tab_url(dag_id: str) -> str:
    """The address of a DAG's tab, with Airflow's navigation around the page."""
    return dag_url(dag_id, f"/plugin/{TAB}")


def page_url(dag_id: str) -> str:
    """The address of this page for a DAG, with nothing around it."""
    return f"{API_ROOT_PATH}sluice/dags/{quote(dag_id, safe='')}/"


def dag_state(dag_id: str) -> DagState:
    """The state of a DAG, and of the run that was created last."""
    with create_session(scoped=False) as session:
        model = session.get(DagModel, dag_id)
        newest = select(DagRun).where(DagRun.dag_id == dag_id).order_by(DagRun.id.desc()).limit(1)
        run = session.scalar(newest)
        last = None if run is None else (str(run.state), _time_ms(run), run.run_id)
        is_paused = None if model is None else bool(model.is_paused)
        schedule = None if model is None else model.timetable_summary
    state, time_ms, run_id = last or (None, None, None)
    return DagState(
        dag_id=dag_id,
        url=dag_url(dag_id),
        is_paused=is_paused,
        schedule=schedule,
        last_run_state=state,
        last_run_ms=time_ms,
        last_run_url=None if run_id is None else run_url(dag_id, run_id),
    )


def _time_ms(run: DagRun) -> int | None:
    """When a run began; when it was queued, if it has not."""
    time: datetime | None = run.start_date or run.queued_at or run.run_after
    return None if time is None else int(time.timestamp() * 1000)


def start_run(dag_id: str, path: TablePath, user: str | None) -> Answer:
    """Triggers a run that tiers a table, in the name of a user; a queued one counts.

    :raises HTTPException: 404 or 409: Airflow refuses the run; says why.
    """
    conf = {"tables": [str(path)]}
    with create_session(scoped=False) as session:
        model = session.get(DagModel, dag_id)
        if model is None or model.is_stale:
            raise HTTPException(
                404, f"Airflow has no DAG {dag_id!r} now: look at its import errors"
            )
        if model.has_import_errors:
            raise HTTPException(409, f"the file of DAG {dag_id!r} has import errors: mend it first")
        is_paused = bool(model.is_paused)
        waiting = (
            select(DagRun)
            .where(
                DagRun.dag_id == dag_id,
                DagRun.state == DagRunState.QUEUED,
                DagRun.run_type == DagRunType.MANUAL,
            )
            .order_by(DagRun.id.desc())
            .limit(_QUEUED_MAX)
        )
        queued = next((run.run_id for run in session.scalars(waiting) if run.conf == conf), None)
    run_id = queued or _triggered(dag_id, conf, user)
    what = "is queued already" if queued else "is queued"
    paused = f"; DAG {dag_id} is paused, so it starts when somebody unpauses the DAG"
    message = f"table {path}: run {run_id} {what}{paused if is_paused else ''}"
    return Answer(message=message, url=run_url(dag_id, run_id))


def _triggered(dag_id: str, conf: dict[str, list[str]], user: str | None) -> str:
    try:
        run = trigger_dag(
            dag_id,
            triggered_by=DagRunTriggeredByType.UI,
            triggering_user_name=user,
            conf=conf,
        )
    except (AirflowException, ValueError) as error:
        raise HTTPException(409, f"Airflow refuses a run of DAG {dag_id!r}: {error}") from error
    assert run is not None
    return str(run.run_id)
