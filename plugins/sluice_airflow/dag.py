"""The DAG that tiers lake tables: the tasks of group.py, a schedule, and parameters of a run."""

from __future__ import annotations

import inspect
from dataclasses import replace
from typing import Any, Unpack

from airflow.sdk import DAG

from sluice.errors import ConfigurationError
from sluice_airflow.arguments import (
    Callbacks,
    Tiering,
    TieringArguments,
    check_known,
    split,
)
from sluice_airflow.group import add_failure_callback, add_tasks
from sluice_airflow.params import run_params

OF_DAG = frozenset(inspect.signature(DAG).parameters) - {"dag_id", "schedule"}
OF_SETTINGS: Any = object()
"""Stands for a schedule that the DAG file does not give. None is one: manual runs only."""

DOC = """\
Tiers tables of the Apache Fluss cluster `{connection}` into the lake: {tables}.

| question | where the answer is |
| --- | --- |
| What became of each table? | log and XCom `account` of the task `drop_lease` |
| Why did a table fail? | its line there; `sluice status DATABASE.TABLE` has the same reason |
| What was copied, and how fast? | log of the task `tier` whose label names the table |
| What would a run do? | trigger one with *Dry run* |

A run claims the tables that are due and have new rows. Small tables share a Spark application (a
*pack*), so one `tier` task has many tables. A table that fails does not stop the others; the run
fails at its end. A run that is killed leaves nothing behind: the next one continues.

To tier tables now, trigger a run that names them. `sluice pause DATABASE.TABLE` stops a table.
"""


class DagArguments(TieringArguments, total=False):
    """The arguments of :func:`lake_tiering_dag`: its own and those of Airflow's DAG."""

    on_failure_callback: Callbacks
    """Of the DAG. A callback that releases the run's claims is always there."""
    on_success_callback: Callbacks
    params: dict[str, Any]
    """Beside those of a run of Sluice."""
    tags: Any
    description: str
    doc_md: str
    default_args: dict[str, Any]
    start_date: Any
    end_date: Any
    max_active_runs: int
    catchup: bool
    owner_links: dict[str, str]
    access_control: Any
    is_paused_upon_creation: bool
    dag_display_name: str
    max_active_tasks: int
    max_consecutive_failed_dag_runs: int
    template_searchpath: Any
    user_defined_macros: dict[str, Any]
    user_defined_filters: dict[str, Any]
    render_template_as_native_obj: bool
    jinja_environment_kwargs: dict[str, Any]
    fail_fast: bool
    disable_bundle_versioning: bool


def lake_tiering_dag(
    dag_id: str = "sluice_lake_tiering",
    *,
    schedule: Any = OF_SETTINGS,
    **arguments: Unpack[DagArguments],
) -> DAG:
    """Builds a DAG that tiers tables of one Fluss cluster.

    What an argument does not give comes from the section [sluice] of Airflow's configuration. Each
    cluster, or group of tables with a pool of its own, has a DAG of its own.

    :param schedule: cron expression, timetable or assets; None: manual runs only.
    :param arguments: see :class:`DagArguments`. Any other argument goes to Airflow's DAG.
    :raises ConfigurationError: names the argument and its value.
    """
    check_known("lake_tiering_dag", arguments, [*TieringArguments.__annotations__, *OF_DAG])
    own, others = split(arguments)
    tiering = Tiering.of(own)
    params = run_params(tiering.tables, tiering.max_tables, tiering.spark_conf)
    more = others.pop("params", None) or {}
    if both := sorted({*params} & {*more}):
        raise ConfigurationError(
            f"lake_tiering_dag: params: {both[0]!r} is a parameter of its own; give its default by"
            " the argument of that name, or use another name"
        )
    of_dag: dict[str, Any] = {
        "schedule": tiering.settings.cron if schedule is OF_SETTINGS else schedule,
        "catchup": False,
        "max_active_runs": 1,
        "description": "Tiers Apache Fluss tables into the lake.",
        "doc_md": doc_of(tiering),
        "tags": ["sluice"],
        "params": {**params, **more},
        **others,
    }
    with DAG(dag_id=dag_id, **of_dag) as dag:
        # With their defaults: Airflow 3.1 cannot store a reference without one.
        given = {name: dag.param(name, param.value) for name, param in params.items()}
        keys = [*params, *more]
        add_failure_callback(dag, add_tasks(dag, replace(tiering, **given, conf_keys=keys)))
    return dag


def doc_of(tiering: Tiering) -> str:
    """Returns what Airflow shows about the DAG, in Markdown."""
    tables = ", ".join(f"`{table}`" for table in tiering.tables)
    named = "all of them" if list(tiering.tables) == ["*"] else tables
    return DOC.format(connection=tiering.settings.connection, tables=named)
