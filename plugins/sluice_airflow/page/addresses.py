"""Links of tables and rounds: to task instances, Spark, catalog and dashboards."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from urllib.parse import quote

from airflow.api_fastapi.app import API_ROOT_PATH

from sluice.model import TablePath, TieringRound
from sluice.page.cluster.models import Link
from sluice_airflow.claims.task_runs import TaskRun
from sluice_airflow.page.runs import dag_url, run_url
from sluice_airflow.page.tiering_dags import TieringDag


def links_of_table(dag: TieringDag, path: TablePath) -> list[Link]:
    """Pages about a table."""
    values = {"database": path.database, "table": path.table, "snapshot_id": ""}
    found = [
        Link(name="Lake table", url=_filled(dag.lake_table_url, values)),
        Link(name="Table health", url=_filled(dag.health_url, values)),
        Link(name="Assets", url=f"{API_ROOT_PATH}assets?name_pattern={quote(str(path))}"),
        Link(name=f"DAG {dag.dag_id}", url=dag_url(dag.dag_id)),
    ]
    return [link for link in found if link.url]


def links_of_round(
    dag: TieringDag, path: TablePath, ended: TieringRound, shows_dag: Callable[[str], bool]
) -> list[Link]:
    """Pages about one round of a table.

    :param shows_dag: whether the viewer may read of a DAG.
    """
    values = {"database": path.database, "table": path.table}
    found = []
    task = TaskRun.parse(ended.airflow_task)
    if task is not None and shows_dag(task.dag_id):
        found += _links_of_task(task)
    if ended.spark_application and _is_page(dag.spark_history_url):
        history = dag.spark_history_url.rstrip("/")
        url = f"{history}/history/{quote(ended.spark_application, safe='')}/jobs/"
        found.append(Link(name="Spark application", url=url))
    if ended.lake_snapshot_id is not None:
        values["snapshot_id"] = str(ended.lake_snapshot_id)
        if url := _filled(dag.lake_table_url, values):
            found.append(Link(name="Lake table", url=url))
    return found


def _links_of_task(task: TaskRun) -> list[Link]:
    """The task instance, and its run."""
    mapped = f"/mapped/{task.map_index}" if task.map_index >= 0 else ""
    run = run_url(task.dag_id, task.run_id)
    url = f"{run}/tasks/{quote(task.task_id, safe='')}{mapped}?try_number={task.try_number}"
    return [Link(name="Task instance", url=url), Link(name="Run", url=run)]


def _filled(address: str, values: Mapping[str, str]) -> str:
    """An address of a DAG file with these values; empty: a browser should not follow it."""
    if not _is_page(address):
        return ""
    for name, value in values.items():
        address = address.replace(f"{{{name}}}", quote(value, safe=""))
    return address


def _is_page(address: str) -> bool:
    """Whether an address is one of the web: any other may run a script or start a program."""
    return address.lower().startswith(("http://", "https://"))
