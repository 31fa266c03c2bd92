"""The hook of the connection type ``fluss``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseHook
from airflow.sdk.log import mask_secret

from sluice.masking import encodings
from sluice_airflow.airflow_api.api_server import connection_of
from sluice_airflow.config.connection import FlussConnection

if TYPE_CHECKING:
    from sluice.client import Client


def checked(
    connection_id: str, connection: Any, datalake: Mapping[str, Any] | None = None
) -> FlussConnection:
    """Checks the fields of a connection of Airflow, and hides its secrets in Airflow's logs.

    :param datalake: options of the lake that override those of the connection.
    :raises ConfigurationError: names the field, its value and the allowed values.
    """
    found = FlussConnection.parse(
        connection_id,
        connection.host,
        connection.port,
        connection.extra_dejson,
        connection.login,
        connection.password,
    ).with_datalake(datalake)
    for secret in found.secrets():  # Airflow masks only fields of certain names
        for encoded in encodings(secret):
            mask_secret(encoded)
    return found


class FlussHook(BaseHook):
    """Opens clients of the Fluss cluster that an Airflow connection names.

    :param fluss_conn_id: connection of type fluss.
    :param datalake: options of the lake that override those of the connection.
    """

    conn_name_attr = "fluss_conn_id"
    default_conn_name = "fluss_default"
    conn_type = "fluss"
    hook_name = "Apache Fluss"

    def __init__(
        self,
        fluss_conn_id: str = default_conn_name,
        datalake: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.fluss_conn_id = fluss_conn_id
        self.datalake = datalake

    def config(self) -> FlussConnection:
        """Reads and checks the connection.

        :raises ConfigurationError: names the field, its value and the allowed values.
        :raises AirflowNotFoundException: the connection is not defined.
        :raises ApiServerAway: Airflow's API server does not answer.
        """
        return checked(self.fluss_conn_id, connection_of(self.fluss_conn_id), self.datalake)

    def get_client(self, timeout_ms: int | None = None) -> Client:
        """Opens a client of the cluster. Close it, or use it as a context manager.

        :param timeout_ms: how long a call waits for a cluster that does not answer, in
            milliseconds. None: two minutes.
        :raises ConfigurationError: names the field of the connection.
        """
        # Not at the top: Airflow imports this module whenever it lists connection types.
        from sluice.client import connect

        return connect(self.config().client_config(timeout_ms))

    def get_conn(self) -> Client:
        """Same as :meth:`get_client`, under the common name of Airflow's hooks."""
        return self.get_client()

    def test_connection(self) -> tuple[bool, str]:
        """Checks what a run needs and returns the first problem.

        The checks run on this machine: for the UI's button, the host of Airflow's API server.
        They time out within seconds, because a user waits.
        """
        from sluice.errors import SluiceError
        from sluice.masking import reason_text
        from sluice_airflow.config import preflight
        from sluice_airflow.config.settings import load_settings
        from sluice_airflow.submit import submission

        try:
            connection, settings = self.config(), load_settings()
            if submission.tasks_run_locally():
                submitted = submission.submission_of(settings, {})
            else:
                submitted = submission.remote_submission(settings)
            return preflight.check_connection(connection, submitted)
        except SluiceError as error:
            return False, reason_text(f"{type(error).__name__}: {error}")
