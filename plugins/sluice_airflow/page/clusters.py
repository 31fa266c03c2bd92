"""The clusters of Airflow's connections: one client and one reader for each connection."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass

from airflow.models.connection import Connection
from airflow.models.dag import DagModel
from airflow.models.variable import Variable

from sluice.client import Client, connect
from sluice.client.leases.ids import holder_of, lease_id
from sluice.clock import Clock, SystemClock
from sluice.errors import ConfigurationError
from sluice.masking import mask
from sluice.page.cluster.cluster_reader import ClusterReader
from sluice_airflow.airflow_api.airflow_names import AirflowNotFoundException
from sluice_airflow.config.connection import FlussConnection
from sluice_airflow.config.deployment import VARIABLE
from sluice_airflow.hooks.fluss import checked
from sluice_airflow.page.access import has_teams

_log = logging.getLogger(__name__)

TIMEOUT_MS = 10_000
"""How long a call waits for a cluster that does not answer: a person waits, too."""
KEPT_S = 10.0
"""After so long, a connection that has changed is noticed."""


GONE_S = 60.0
"""So long a connection that is not found keeps its cluster: Airflow says the same of a secrets
backend that does not answer."""
IDLE_S = 3600.0
"""A cluster whose page nobody has opened for so long is closed."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster that the page reads."""

    connection: FlussConnection
    client: Client
    reader: ClusterReader

    def close(self) -> None:
        self.reader.stop()
        self.client.close()


class _Entry:
    """What is known of one connection."""

    def __init__(self) -> None:
        self.reading = threading.Lock()  # held by the one thread that reads the connection
        self.cluster: Cluster | None = None
        self.read_s = -KEPT_S
        """When the connection was read: monotonic seconds."""
        self.found_s = 0.0
        """When it was there."""
        self.asked_s = 0.0


class Clusters:
    """Opens clusters by the names of connections. Safe for use by many threads.

    A cluster is closed when its connection has changed or is gone, when nobody has asked for it in
    an hour, and when the process ends.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()  # protects the rest
        self._entries: dict[tuple[str, str | None], _Entry] = {}
        self._watches_exit = False

    def of(self, connection_id: str, dag_id: str) -> Cluster:
        """The cluster of a connection, as the tasks of that DAG would reach it.

        While one thread reads a connection again, the others use what is open. So they do if it
        cannot be read, for instance because a secrets backend does not answer.

        :raises ConfigurationError: the connection is missing or wrong; names it.
        """
        team = _team_of(dag_id)
        entry = self._entry(connection_id, team)
        known = entry.cluster
        if known is not None and self._clock.monotonic_s() - entry.read_s < KEPT_S:
            return known
        if not entry.reading.acquire(blocking=known is None):
            assert known is not None
            return known
        try:
            return self._read_again(entry, connection_id, team)
        finally:
            entry.reading.release()

    def close(self) -> None:
        """Closes all clusters."""
        with self._lock:
            entries, self._entries = list(self._entries.values()), {}
        for entry in entries:
            if entry.cluster is not None:
                entry.cluster.close()

    def _entry(self, connection_id: str, team: str | None) -> _Entry:
        now_s = self._clock.monotonic_s()
        with self._lock:
            entry = self._entries.setdefault((connection_id, team), _Entry())
            entry.asked_s = now_s
            idle = [key for key, one in self._entries.items() if now_s - one.asked_s > IDLE_S]
            left = [self._entries.pop(key) for key in idle]
        for each in left:
            _close_soon(each.cluster)
        return entry

    def _read_again(self, entry: _Entry, connection_id: str, team: str | None) -> Cluster:
        """Only for the thread that holds ``entry.reading``."""
        known, now_s = entry.cluster, self._clock.monotonic_s()
        if known is not None and now_s - entry.read_s < KEPT_S:  # by the thread before this one
            return known
        try:
            connection = _read(connection_id, team)
            if connection is not None:
                entry.found_s = now_s
        except ConfigurationError:
            entry.cluster = None
            _close_soon(known)
            raise
        except Exception as error:
            if known is None:
                raise
            _log.warning("cannot read connection %r: %s", connection_id, mask(str(error)))
            connection = known.connection
        if connection is None:
            if known is None or now_s - entry.found_s > GONE_S:
                entry.cluster = None
                _close_soon(known)
                raise _missing(connection_id)
            connection = known.connection
        entry.read_s = self._clock.monotonic_s()
        if known is not None and known.connection == connection:
            return known
        entry.cluster = cluster = self._opened(connection)
        _close_soon(known)
        return cluster

    def _close_at_exit(self) -> None:
        """Ends what is under way, so that the end of the process does not wait for it.

        Python joins the threads of pools before it calls what `atexit` knows.
        """
        threading.main_thread().join()
        self.close()

    def _opened(self, connection: FlussConnection) -> Cluster:
        with self._lock:  # not earlier: a server may fork before its first request
            starts, self._watches_exit = not self._watches_exit, True
        if starts:
            exits = threading.Thread(target=self._close_at_exit, name="sluice-page-exit")
            exits.daemon = True
            exits.start()
        client = connect(connection.client_config(TIMEOUT_MS))
        reader = ClusterReader(client, self._clock)
        reader.start()
        return Cluster(connection, client, reader)


def _close_soon(cluster: Cluster | None) -> None:
    """Without waiting for a call that runs."""
    if cluster is not None:
        threading.Thread(target=cluster.close, name="sluice-page-close", daemon=True).start()


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


def _missing(connection_id: str) -> ConfigurationError:
    return ConfigurationError(
        f"Airflow has no connection {connection_id!r}: add it, type Apache Fluss, by Admin >"
        f" Connections or as AIRFLOW_CONN_{connection_id.upper()}. The API server needs it, too"
    )


def _read(connection_id: str, team: str | None) -> FlussConnection | None:
    """Reads a connection as the API server does: secrets backends, environment, database.

    :returns: None: there is none.
    :raises ConfigurationError: it is wrong; names it, and what to do.
    """
    more = {} if team is None else {"team_name": team}
    try:
        found = Connection.get_connection_from_secrets(connection_id, **more)
    except AirflowNotFoundException:
        return None
    return checked(connection_id, found)
