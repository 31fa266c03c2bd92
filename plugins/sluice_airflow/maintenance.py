"""The DAG that maintains lake tables beside their rounds: one task, which runs Spark."""

from __future__ import annotations

from typing import Any, Unpack

from airflow.sdk import DAG

from sluice_airflow.config.arguments import (
    OF_DAG,
    OF_SETTINGS,
    MaintenanceArguments,
    OfAirflow,
    check_known,
    check_values,
    joined_params,
    settings_given,
    split,
)
from sluice_airflow.config.params import ALL_TABLES, maintenance_params
from sluice_airflow.operators.maintain import SluiceMaintainOperator

MAINTAIN = "maintain_tables"

DOC = """\
Maintains tables in the lake of the Apache Fluss cluster `{connection}`, each by its need.

| what | when |
| --- | --- |
| Equality deletes become positions | a table has some |
| Old snapshots expire | the table's properties `history.expire.*` say so, or after 5 days |
| Manifests are merged | a table has more than 20 |
| Files that nothing references are deleted | there are some |
| The next round compacts the table | a bucket has many files, many rows are deleted, or equality \
deletes could not be converted |

The log of `{task}` has a line for each table: what it needed, what was done and gained. The XCom
`report` has the same in numbers. A run with *Dry run* only says what tables need.

It holds no claim, so rounds run beside it. The task fails if a table could not be read or a step
did not work, and its error names each table and reason.
"""


class MaintenanceDagArguments(MaintenanceArguments, OfAirflow, total=False):
    """The arguments of :func:`lake_maintenance_dag`: its own and those of Airflow's DAG."""


def lake_maintenance_dag(
    dag_id: str = "sluice_lake_maintenance",
    *,
    schedule: Any = OF_SETTINGS,
    **arguments: Unpack[MaintenanceDagArguments],
) -> DAG:
    """Builds a DAG that maintains the lake tables of one Fluss cluster.

    What an argument does not give comes from the section [sluice] of Airflow's configuration.

    :param schedule: cron expression, timetable or assets; None: manual runs only.
    :param arguments: see :class:`MaintenanceDagArguments`. Any other argument goes to Airflow's
        DAG.
    :raises ConfigurationError: names the argument and its value.
    """
    where, known = "lake_maintenance_dag", MaintenanceArguments.__annotations__
    check_known(where, arguments, [*known, *OF_DAG])
    own, others = split(arguments, known)
    check_values(own)
    asked = {name: own.pop(name) for name in ("tables", "spark_conf", "datalake") if name in own}
    settings = settings_given(own)
    params = maintenance_params(asked.get("tables") or ALL_TABLES, asked.get("spark_conf"))
    all_params = joined_params(where, params, others.pop("params", None))
    of_dag: dict[str, Any] = {
        "schedule": settings.maintenance_cron if schedule is OF_SETTINGS else schedule,
        "catchup": False,
        "max_active_runs": 1,
        "description": "Maintains lake tables: deletes, snapshots, manifests, orphan files.",
        "doc_md": DOC.format(connection=settings.connection, task=MAINTAIN),
        "tags": ["sluice"],
        "params": all_params,
        **others,
    }
    with DAG(dag_id=dag_id, **of_dag) as dag:
        # With their defaults: Airflow 3.1 cannot store a reference without one.
        given = {name: dag.param(name, param.value) for name, param in params.items()}
        SluiceMaintainOperator(
            task_id=MAINTAIN,
            datalake=asked.get("datalake"),
            conf_keys=[*all_params],
            doc_md=DOC.format(connection=settings.connection, task=MAINTAIN),
            **given,
            **settings.arguments(),
            **settings.of_maintenance(),
        )
    return dag
