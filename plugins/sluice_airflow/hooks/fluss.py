"""The connection type ``fluss``: from Airflow's connection to a client of the cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseHook
from airflow.sdk.log import mask_secret

from sluice_airflow.connection import FlussConnection

if TYPE_CHECKING:
    from sluice.client import Client


class FlussHook(BaseHook):
    """Gives a client of the Fluss cluster that a connection names."""

    conn_name_attr = "fluss_conn_id"
    default_conn_name = "fluss_default"
    conn_type = "fluss"
    hook_name = "Apache Fluss"

    def __init__(self, fluss_conn_id: str = default_conn_name, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.fluss_conn_id = fluss_conn_id

    def config(self) -> FlussConnection:
        """The connection, checked.

        :raises ConfigurationError: names the field, its value and what is allowed.
        """
        connection = self.get_connection(self.fluss_conn_id)
        checked = FlussConnection.parse(
            self.fluss_conn_id,
            connection.host,
            connection.port,
            connection.extra_dejson,
            connection.login,
            connection.password,
        )
        for secret in checked.secrets():  # Airflow itself knows those of some names only
            mask_secret(secret)
        return checked

    def get_client(self) -> Client:
        """A client of the cluster; close it, or use it as a context manager."""
        # Airflow imports this module when it lists connection types: keep that light.
        from sluice.client import connect

        return connect(self.config().client_config())

    def get_conn(self) -> Client:
        """The same as :meth:`get_client`, under the name that Airflow's hooks share."""
        return self.get_client()

    def test_connection(self) -> tuple[bool, str]:
        """Looks for all that a run needs, and says the one thing that is missing.

        It looks on the machine that it runs on, which is Airflow's API server for the button of the
        UI. Gives up soon, because a user waits.
        """
        from sluice.errors import SluiceError
        from sluice.masking import reason_text
        from sluice_airflow import preflight, submission
        from sluice_airflow.settings import load_settings

        try:
            connection, settings = self.config(), load_settings()
            if submission.tasks_run_here():
                submitted = submission.submission_of(settings, {})
            else:
                submitted = submission.submission_elsewhere(settings)
            return preflight.answer(connection, submitted)
        except SluiceError as error:
            return False, reason_text(f"{type(error).__name__}: {error}")
