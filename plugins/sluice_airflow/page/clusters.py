"""The clusters of Airflow's connections: one client and one reader for each connection."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from airflow.models.connection import Connection
from airflow.models.dag import DagModel
from airflow.models.variable import Variable
from airflow.sdk.log import mask_secret

from sluice.client import Client, connect
from sluice.client.lease_ids import holder_of, lease_id
from sluice.clock import Clock, SystemClock
from sluice.errors import ConfigurationError
from sluice.page.cluster_reader import ClusterReader
from sluice_airflow.airflow_names import AirflowNotFoundException
from sluice_airflow.connection import FlussConnection
from sluice_airflow.deployment import VARIABLE
from sluice_airflow.page.access import has_teams

TIMEOUT_MS = 10_000
"""How long a call waits for a cluster that does not answer: a person waits, too."""
KEPT_S = 10.0
"""After so long, a connection that has changed is noticed."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster that the page reads."""

    connection: FlussConnection
    client: Client
    reader: ClusterReader
    read_s: float
    """When the connection was read: monotonic seconds."""

    def close(self) -> None:
        self.reader.stop()
        self.client.close()


class Clusters:
    """Opens clusters by the names of connections. Safe for use by many threads."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()  # protects _open
        self._open: dict[tuple[str, str | None], Cluster] = {}

    def of(self, connection_id: str, dag_id: str) -> Cluster:
        """The cluster of a connection, as the tasks of that DAG would reach it.

        :raises ConfigurationError: the connection is missing or wrong; names it.
        """
        key = connection_id, _team_of(dag_id)
        now_s = self._clock.monotonic_s()
        with self._lock:
            known = self._open.get(key)
        if known is not None and now_s - known.read_s < KEPT_S:
            return known
        connection = _read(connection_id, key[1])  # a secrets backend may take its time
        with self._lock:
            known = self._open.get(key)
            if known is not None and known.connection == connection:
                cluster = Cluster(connection, known.client, known.reader, now_s)
                self._open[key] = cluster
                return cluster
            cluster = self._opened(connection, now_s)
            self._open[key] = cluster
        if known is not None:  # it may wait for a call that runs
            threading.Thread(target=known.close, name="sluice-page-close", daemon=True).start()
        return cluster

    def close(self) -> None:
        with self._lock:
            found, self._open = list(self._open.values()), {}
        for cluster in found:
            cluster.close()

    def _opened(self, connection: FlussConnection, now_s: float) -> Cluster:
        client = connect(connection.client_config(TIMEOUT_MS))
        reader = ClusterReader(client, self._clock)
        reader.start()
        return Cluster(connection, client, reader, now_s)


def own_deployment(connection: FlussConnection) -> str | None:
    """The id of this Airflow as its runs' lease ids have it; None: no run has made one yet."""
    own = connection.deployment_id or Variable.get(VARIABLE, default_var=None)
    return holder_of(lease_id(str(own).strip(), "", "")).deployment_id if own else None


def _team_of(dag_id: str) -> str | None:
    """The team whose connections the DAG's tasks see, if Airflow has teams."""
    if not has_teams():
        return None
    team: str | None = DagModel.get_team_name(dag_id)
    return team


def _read(connection_id: str, team: str | None) -> FlussConnection:
    """Reads a connection as the API server does: secrets backends, environment, database.

    :raises ConfigurationError: names the connection, and what to do.
    """
    more = {} if team is None else {"team_name": team}
    try:
        found = Connection.get_connection_from_secrets(connection_id, **more)
    except AirflowNotFoundException:
        raise ConfigurationError(
            f"Airflow has no connection {connection_id!r}: add it, type Apache Fluss, by Admin >"
            f" Connections or as AIRFLOW_CONN_{connection_id.upper()}. The API server needs it, too"
        ) from None
    checked = FlussConnection.parse(
        connection_id,
        found.host,
        found.port,
        found.extra_dejson,
        found.login,
        found.password,
    )
    for secret in checked.secrets():
        mask_secret(secret)
    return checked
