"""The connection type ``fluss``: from Airflow's connection to a client of the cluster."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseHook
from airflow.sdk.log import mask_secret

from sluice_airflow.connection import FlussConnection

if TYPE_CHECKING:
    from sluice.client import Client


TEST_TIMEOUT_MS = 5_000


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
        """Asks the coordinator for its databases; gives up soon, because a user waits."""
        from sluice.client import connect
        from sluice.errors import SluiceError
        from sluice.masking import reason_text

        try:
            config = replace(
                self.config().client_config(),
                request_timeout_ms=TEST_TIMEOUT_MS,
                retry_timeout_ms=TEST_TIMEOUT_MS,
            )
            with connect(config) as client:
                databases = client.admin.list_databases()
            return True, f"{config.bootstrap} answers: {len(databases)} databases"
        except SluiceError as error:
            return False, reason_text(f"{type(error).__name__}: {error}")
