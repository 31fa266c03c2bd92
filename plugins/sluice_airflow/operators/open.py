"""Names a run: the lease id under which it claims tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sluice_airflow.airflow_api.api_server import RetriedIfAway, fails_at_once
from sluice_airflow.config.deployment import lease_of_run
from sluice_airflow.config.settings import connection_id
from sluice_airflow.hooks.fluss import FlussHook

if TYPE_CHECKING:
    from airflow.sdk import Context


class SluiceOpenOperator(RetriedIfAway):
    """Computes the lease id of the run, and touches nothing.

    As a setup that always succeeds, it makes Airflow run the teardowns even if the task that
    claims the tables fails.

    Returns the lease id: a text that is the same in each task and try of the run.

    :param fluss_conn_id: connection of type fluss; None: as the section [sluice] says.
    """

    def __init__(self, *, fluss_conn_id: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.fluss_conn_id = connection_id(fluss_conn_id)

    @fails_at_once
    def execute(self, context: Context) -> str:
        """:raises ConfigurationError: the connection has a wrong field."""
        connection = FlussHook(self.fluss_conn_id).config()
        dag_id, run_id = context["dag"].dag_id, str(context["run_id"])
        return lease_of_run(connection, dag_id, run_id, self.task_id)
