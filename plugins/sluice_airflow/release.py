"""Releases what a failed run still holds, if its teardowns did not run."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance
from airflow.sdk.execution_time.xcom import XCom

from sluice_airflow.airflow_api.task_states import ENDED
from sluice_airflow.claims.packs import tables_of
from sluice_airflow.config.deployment import lease_of_run
from sluice_airflow.config.settings import connection_id
from sluice_airflow.hooks.fluss import FlussHook
from sluice_airflow.outcomes import settle as settling

if TYPE_CHECKING:
    from airflow.sdk import Context

log = logging.getLogger(__name__)

UNKNOWN = object()
TIMEOUT_MS = 5_000
"""Of each call. Airflow ends the process that reads a DAG file and runs its callbacks after 50
seconds (dag_processor.dag_file_processor_timeout), and then takes the DAGs of the file for gone."""
LIMIT_S = 25.0
"""For the reports of all callbacks of a run: each group of tiering tasks has one."""
NOT_CLEARED = ENDED - {"success"}
"""States of the task that releases claims, if it may not have done so and will not. It has others
if a user has cleared the run before Airflow came to the callback."""
_until: dict[tuple[str, str], float] = {}
"""When the reports of a run's callbacks end, by DAG and run. Airflow's process is short-lived."""


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
        drop_task_id: str = "drop_lease",
    ) -> None:
        """:param fluss_conn_id: connection of type fluss; None: as the section [sluice] says.
        :param open_task_id: id of the task that names the run.
        :param acquire_task_id: id of the task that claims.
        :param drop_task_id: id of the task that releases claims.
        """
        self.fluss_conn_id = connection_id(fluss_conn_id)
        self.open_task_id = open_task_id
        self.acquire_task_id = acquire_task_id
        self.drop_task_id = drop_task_id

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
        state = _state_of(dag_id, run_id, self.drop_task_id)
        if state is not UNKNOWN and state not in NOT_CLEARED:
            log.info("run %s needs no release: %s is %s", run_id, self.drop_task_id, state)
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
                limit_s=_left_s(dag_id, run_id),
            )


def _state_of(dag_id: str, run_id: str, task_id: str) -> Any:
    """The state of a task; UNKNOWN if the run has no such task."""
    states = RuntimeTaskInstance.get_task_states(
        dag_id=dag_id, task_ids=[task_id], run_ids=[run_id]
    )
    return states.get(run_id, {}).get(task_id, UNKNOWN)


def _left_s(dag_id: str, run_id: str) -> float:
    now = time.monotonic()
    return max(0.0, _until.setdefault((dag_id, run_id), now + LIMIT_S) - now)
