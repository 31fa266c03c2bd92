"""The id of this Airflow, and the lease ids that its runs make of it."""

from __future__ import annotations

import logging
import uuid

from airflow.sdk import Variable

from sluice.client.leases.ids import lease_id
from sluice_airflow.airflow_api.api_server import variable_of
from sluice_airflow.config.connection import FlussConnection

log = logging.getLogger(__name__)

OPEN = "open_job"
"""The usual id of the task that names the run."""
VARIABLE = "sluice_deployment_id"
"""Airflow Variable with the id of this Airflow. The first run makes it."""


def lease_of_run(
    connection: FlussConnection, dag_id: str, run_id: str, open_task_id: str = ""
) -> str:
    """Returns the lease id of a run. The same run always has the same id.

    :param open_task_id: the task that names the run. Each one of a DAG has a lease of its own.
    """
    group, _, task = open_task_id.rpartition(".")
    own = group if task in ("", OPEN) else open_task_id
    name = f"{dag_id}:{own}" if own else dag_id  # no DAG's id has a colon
    return lease_id(deployment_id(connection), name, run_id)


def deployment_id(connection: FlussConnection) -> str:
    """Returns the id of this Airflow: the connection's, or the stored one, which is made once.

    Two first runs may make an id at the same time. Each is unique, and the last one stays. A run
    uses the lease id that its task open_job has returned, so a change cannot divide the run.

    :raises ApiServerAway: nobody can tell whether there is one.
    """
    if connection.deployment_id:
        return connection.deployment_id
    stored = (variable_of(VARIABLE) or "").strip()
    if stored:
        return stored
    made = f"airflow-{uuid.uuid4().hex[:12]}"
    Variable.set(VARIABLE, made, description="Id of this Airflow in the lease ids of Sluice's runs")
    log.info("Variable %s: this Airflow now has the id %s", VARIABLE, made)
    return (variable_of(VARIABLE) or made).strip()
