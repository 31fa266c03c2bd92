"""Releases what a failed run still holds, if its teardowns did not run."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from airflow.sdk.execution_time.xcom import XCom

from sluice_airflow import settle as settling
from sluice_airflow.deployment import lease_of_run
from sluice_airflow.hooks.fluss import FlussHook
from sluice_airflow.packs import tables_of
from sluice_airflow.settings import connection_id

if TYPE_CHECKING:
    from airflow.sdk import Context

log = logging.getLogger(__name__)

TIMEOUT_MS = 10_000
"""Airflow ends the process that runs callbacks after 50 seconds
(dag_processor.dag_file_processor_timeout), and then takes the DAGs of the file for gone."""
LIMIT_S = 30.0
"""The reports of claims end then: two calls may follow."""


class ReleaseOfFailedRun:
    """Failure callback of a DAG with the tiering tasks.

    Airflow skips all teardowns of a run that reaches its ``dagrun_timeout``, and then runs only
    this callback.
    """

    def __init__(
        self,
        fluss_conn_id: str | None = None,
        open_task_id: str = "open_job",
        acquire_task_id: str = "acquire_lease",
    ) -> None:
        """:param fluss_conn_id: connection of type fluss; None: as the section [sluice] says.
        :param open_task_id: id of the task that names the run.
        :param acquire_task_id: id of the task that claims.
        """
        self.fluss_conn_id = connection_id(fluss_conn_id)
        self.open_task_id = open_task_id
        self.acquire_task_id = acquire_task_id

    def __call__(self, context: Context) -> None:
        dag_id, run_id = context["dag"].dag_id, str(context["run_id"])
        log.info("run %s failed: %s", run_id, context.get("reason"))
        hook = FlussHook(self.fluss_conn_id)
        connection = hook.config()
        try:
            job, packs = (
                XCom.get_one(key="return_value", dag_id=dag_id, task_id=task, run_id=run_id)
                for task in (self.open_task_id, self.acquire_task_id)
            )
        except ImportError:  # `airflow dags test` has no XComs and Variables for callbacks
            log.info("run %s is a test run: only its own tasks release claims", run_id)
            return
        job = job or lease_of_run(connection, dag_id, run_id, self.open_task_id)
        log.info("run %s: releasing the claims and the lease of %s", run_id, job)
        with hook.get_client(TIMEOUT_MS) as client:
            work_uri, entries = connection.require_work_uri(), tables_of(packs)
            # Without packs, acquire_lease may work on: it is told to end.
            settling.drop(
                client,
                work_uri,
                job,
                entries,
                acquired=packs is not None,
                stop_seen_s=settling.STOP_SEEN_S,
                limit_s=LIMIT_S,
            )
