"""Links of tables and rounds: to task instances, Spark, catalog and dashboards."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import quote

from airflow.api_fastapi.app import API_ROOT_PATH

from sluice.model import TablePath, TieringRound
from sluice.page.cluster.models import Link
from sluice_airflow.claims.task_runs import TaskRun
from sluice_airflow.outcomes.links import filled, history_page
from sluice_airflow.page.runs import dag_url, run_url
from sluice_airflow.page.tiering_dags import TieringDag


def links_of_table(dag: TieringDag, path: TablePath) -> list[Link]:
    """Pages about a table."""
    found = [
        Link(name="Lake table", url=_filled(dag.lake_table_url, path)),
        Link(name="Table health", url=_filled(dag.health_url, path)),
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
    found = []
    task = TaskRun.parse(ended.airflow_task)
    if task is not None and shows_dag(task.dag_id):
        found += _links_of_task(task)
    if ended.spark_application and _is_page(dag.spark_history_url):
        url = history_page(dag.spark_history_url, ended.spark_application)
        found.append(Link(name="Spark application", url=url))
    snapshot_id = ended.lake_snapshot_id
    if snapshot_id is not None and (url := _filled(dag.lake_table_url, path, str(snapshot_id))):
        found.append(Link(name="Lake table", url=url))
    return found


def _links_of_task(task: TaskRun) -> list[Link]:
    """The task instance, and its run."""
    mapped = f"/mapped/{task.map_index}" if task.map_index >= 0 else ""
    run = run_url(task.dag_id, task.run_id)
    url = f"{run}/tasks/{quote(task.task_id, safe='')}{mapped}?try_number={task.try_number}"
    return [Link(name="Task instance", url=url), Link(name="Run", url=run)]


def _filled(address: str, path: TablePath, snapshot_id: str = "") -> str:
    """An address of a DAG file with these values; empty: a browser should not follow it."""
    return filled(address, path, snapshot_id) if _is_page(address) else ""


def _is_page(address: str) -> bool:
    """Whether an address is one of the web: any other may run a script or start a program."""
    return address.lower().startswith(("http://", "https://"))
