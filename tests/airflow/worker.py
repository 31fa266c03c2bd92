"""Runs our DAG with ``dag.test()`` in a process of its own: a run per line of JSON on its input.

Airflow keeps to its own process: it owns a home folder, signal handlers and a metadata database.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from datetime import datetime
from pathlib import Path
from typing import Any


def shape(dag: Any) -> dict[str, Any]:
    """What a test wants to know of the DAG without importing Airflow."""
    return {
        task.task_id: {
            "setup": task.is_setup,
            "teardown": task.is_teardown,
            "fails_run": task.on_failure_fail_dagrun,
            "upstream": sorted(task.upstream_task_ids),
            "downstream": sorted(task.downstream_task_ids),
            "retries": task.retries,
            "execution_timeout": task.execution_timeout and task.execution_timeout.total_seconds(),
            "time_limit": getattr(task, "tier_timeout_seconds", None),
            "pool": task.pool,
            "fluss_conn_id": getattr(task, "fluss_conn_id", None),
            "pool_slots": getattr(getattr(task, "settings", None), "pool_slots", None),
        }
        for task in dag.tasks
    }


def load_all(path: str) -> dict[str, Any]:
    """The DAGs of a file or folder, built anew: their settings come from the environment."""
    try:
        from airflow.dag_processing.dagbag import DagBag
    except ImportError:  # Airflow 3.1
        from airflow.models.dagbag import DagBag

    bag = DagBag(dag_folder=path)
    assert not bag.import_errors, bag.import_errors
    is_ours = path.startswith(os.environ["AIRFLOW__CORE__DAGS_FOLDER"])
    if DagBag.__module__ == "airflow.models.dagbag" or not is_ours:
        write_to_database(bag)
    return dict(bag.dags)


def load(path: str) -> Any:
    """The DAG of a file that has one."""
    [dag] = load_all(path).values()
    return dag


def write_to_database(bag: Any) -> None:
    """What ``dag.test()`` does itself after Airflow 3.1, for a file of the DAG folder."""
    from airflow.dag_processing.bundles.manager import DagBundlesManager

    try:
        from airflow.dag_processing.dagbag import sync_bag_to_db
    except ImportError:  # Airflow 3.1
        from airflow.models.dagbag import sync_bag_to_db

    DagBundlesManager().sync_bundles_to_db()
    sync_bag_to_db(bag, "dags-folder", None)


def xcoms(dag_id: str, run_id: str) -> dict[str, Any]:
    """All XComs of a run: task[map index] -> key -> value."""
    from airflow.models.xcom import XComModel
    from airflow.utils.session import create_session
    from sqlalchemy import select

    found: dict[str, Any] = {}
    with create_session() as session:
        query = select(XComModel).where(XComModel.dag_id == dag_id, XComModel.run_id == run_id)
        for row in session.scalars(query):
            task = row.task_id if row.map_index < 0 else f"{row.task_id}[{row.map_index}]"
            found.setdefault(task, {})[row.key] = XComModel.deserialize_value(row)
    return found


def run(
    path: str, conf: dict[str, Any] | None, logical_date: str | None, run_type: str
) -> dict[str, Any]:
    """One run to its end. Airflow's ``dag.test`` makes manual ones only."""
    from airflow.models import DagRun
    from sqlalchemy import event

    def set_type(_mapper: Any, _connection: Any, row: Any) -> None:
        row.run_type = run_type

    dag = load(path)
    date = datetime.fromisoformat(logical_date) if logical_date else None
    dates = {"logical_date": date, "run_after": date} if date else {}
    event.listen(DagRun, "before_insert", set_type)
    try:
        dag_run = dag.test(run_conf=conf, **dates)
    finally:
        event.remove(DagRun, "before_insert", set_type)
    instances = dag_run.get_task_instances()
    return {
        "state": str(dag_run.state),
        "run_id": dag_run.run_id,
        "tasks": {
            t.task_id if t.map_index < 0 else f"{t.task_id}[{t.map_index}]": str(t.state)
            for t in instances
        },
        "tries": {t.task_id: t.try_number for t in instances},
        "urls": {
            t.task_id if t.map_index < 0 else f"{t.task_id}[{t.map_index}]": t.log_url
            for t in instances
        },
        "xcoms": xcoms(dag.dag_id, dag_run.run_id),
        "events": asset_events(dag_run.run_id),
        "labels": {
            f"{t.task_id}[{t.map_index}]": t.rendered_map_index
            for t in instances
            if t.map_index >= 0
        },
        "rendered": rendered_fields(dag.dag_id, dag_run.run_id),
    }


def asset_events(run_id: str) -> list[dict[str, Any]]:
    """The asset events that a run has sent: URI, name and extra of each."""
    from airflow.models.asset import AssetEvent
    from airflow.utils.session import create_session
    from sqlalchemy import select

    with create_session() as session:
        query = select(AssetEvent).where(AssetEvent.source_run_id == run_id)
        return [
            {"uri": event.asset.uri, "name": event.asset.name, "extra": event.extra}
            for event in session.scalars(query)
        ]


def rendered_fields(dag_id: str, run_id: str) -> dict[str, Any]:
    """What the page "Rendered Templates" shows: task[map index] -> field -> value."""
    from airflow.models.renderedtifields import RenderedTaskInstanceFields as Fields
    from airflow.utils.session import create_session
    from sqlalchemy import select

    with create_session() as session:
        query = select(Fields).where(Fields.dag_id == dag_id, Fields.run_id == run_id)
        return {
            row.task_id if row.map_index < 0 else f"{row.task_id}[{row.map_index}]": dict(
                row.rendered_fields
            )
            for row in session.scalars(query)
        }


def variables() -> list[str]:
    """The names of all variables in the database."""
    from airflow.models.variable import Variable
    from airflow.utils.session import create_session
    from sqlalchemy import select

    with create_session() as session:
        return list(session.scalars(select(Variable.key)))


def describe(dag: Any) -> dict[str, Any]:
    """The DAG's own settings, its tasks and its parameters."""
    params = {}
    for name in dag.params:
        param = dag.params.get_param(name)
        params[name] = {**param.schema, "default": param.value, "description": param.description}
    return {
        "tasks": shape(dag),
        "params": params,
        "dag": {
            "schedule": dag.schedule if dag.schedule is None else str(dag.schedule),
            "catchup": dag.catchup,
            "max_active_runs": dag.max_active_runs,
            "dagrun_timeout": dag.dagrun_timeout,
            "doc_md": dag.doc_md,
            "callback": dag.on_failure_callback is not None,
        },
    }


def validate(dag: Any, conf: dict[str, Any]) -> dict[str, Any]:
    """The parameters of a run with that conf, or the error that Airflow has for it."""
    from airflow.sdk.definitions.param import process_params

    return dict(process_params(dag, dag.tasks[0], conf, suppress_exception=False))


def round_links(ended: dict[str, Any], **addresses: str) -> dict[str, str]:
    """The links that the page has for a round, by name."""
    from sluice.model import TablePath, TieringRound
    from sluice_airflow.page.addresses import links_of_round
    from sluice_airflow.page.tiering_dags import TieringDag

    dag = TieringDag("sluice_lake_tiering", "fluss_default", (), True, **addresses)
    found = links_of_round(dag, TablePath("shop", "events"), TieringRound(**ended), lambda _: True)
    return {link.name: link.url for link in found}


def answer_to(path: str, request: dict[str, Any]) -> dict[str, Any]:
    if request["ask"] == "shape":
        return describe(load(path))
    if request["ask"] == "shapes":
        return {name: describe(dag) for name, dag in load_all(request["folder"]).items()}
    if request["ask"] == "connection":
        from sluice_airflow.hooks.fluss import FlussHook

        return dict(zip(("ok", "said"), FlussHook().test_connection(), strict=True))
    if request["ask"] == "validate":
        return validate(load(path), request["conf"])
    if request["ask"] == "round_links":
        return round_links(request["ended"], **request["addresses"])
    if request["ask"] == "variables":
        return {"keys": variables()}
    dates = request.get("logical_date"), request.get("run_type", "manual")
    return run(request.get("file") or path, request.get("conf"), *dates)


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what Airflow prints goes to the log, not between the answers
    path = str(Path(os.environ["AIRFLOW__CORE__DAGS_FOLDER"]) / "sluice_lake_tiering.py")
    for line in sys.stdin:
        request = json.loads(line)
        usual = dict(os.environ)
        os.environ.update(request.get("environment", {}))
        try:
            answer = answer_to(path, request)
        except Exception as error:
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"}
        finally:
            os.environ.clear()
            os.environ.update(usual)
        answers.write(json.dumps(answer, default=str) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
