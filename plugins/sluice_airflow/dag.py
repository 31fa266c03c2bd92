"""The DAG that tiers lake tables: the tasks of group.py, a schedule, and parameters of a run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Unpack

from airflow.sdk import DAG

from sluice_airflow.config.arguments import (
    OF_DAG,
    OF_SETTINGS,
    OfAirflow,
    Tiering,
    TieringArguments,
    check_known,
    joined_params,
    split,
)
from sluice_airflow.config.params import run_params
from sluice_airflow.group import add_failure_callback, add_tasks

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


class DagArguments(TieringArguments, OfAirflow, total=False):
    """The arguments of :func:`lake_tiering_dag`: its own and those of Airflow's DAG.

    A callback that releases the run's claims stands before ``on_failure_callback`` of the DAG.
    """


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
    own, others = split(arguments, TieringArguments.__annotations__)
    tiering = Tiering.of(own)
    params = run_params(tiering.tables, tiering.max_tables, tiering.spark_conf)
    all_params = joined_params("lake_tiering_dag", params, others.pop("params", None))
    of_dag: dict[str, Any] = {
        "schedule": tiering.settings.cron if schedule is OF_SETTINGS else schedule,
        "catchup": False,
        "max_active_runs": 1,
        "description": "Tiers Apache Fluss tables into the lake.",
        "doc_md": doc_of(tiering),
        "tags": ["sluice"],
        "params": all_params,
        **others,
    }
    with DAG(dag_id=dag_id, **of_dag) as dag:
        # With their defaults: Airflow 3.1 cannot store a reference without one.
        given = {name: dag.param(name, param.value) for name, param in params.items()}
        keys = [*all_params]
        add_failure_callback(dag, add_tasks(dag, replace(tiering, **given, conf_keys=keys)))
    return dag


def doc_of(tiering: Tiering) -> str:
    """Returns what Airflow shows about the DAG, in Markdown."""
    tables = ", ".join(f"`{table}`" for table in tiering.tables)
    named = "all of them" if list(tiering.tables) == ["*"] else tables
    return DOC.format(connection=tiering.settings.connection, tables=named)
