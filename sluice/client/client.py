"""The client of a cluster: one connection, and everything that goes over it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from types import TracebackType

from sluice.client.admin import Admin
from sluice.client.connection import Connection
from sluice.client.leases import DAY_MS, LeaseClient
from sluice.client.log_reader import LogReader
from sluice.client.log_writer import LogWriter
from sluice.client.snapshot_lease import Leave, SnapshotLease
from sluice.client.tiering import TieringClient
from sluice.config import ClientConfig
from sluice.errors import LeaseLost
from sluice.model import TableBucket, TablePath


class Client:
    """A cluster's client. Connects at the first call. Safe for use by many threads."""

    def __init__(self, config: ClientConfig) -> None:
        """:raises ConfigurationError: if the bootstrap address is not one."""
        self.config = config
        self._connection = Connection(config)
        self.admin = Admin(self._connection)
        self.tiering = TieringClient(self._connection, self.admin)
        self.leases = LeaseClient(self._connection)

    def log_writer(self, path: TablePath, *, dynamic_partitions: bool = False) -> LogWriter:
        """A writer of one log table, to be closed by its user.

        :param dynamic_partitions: creates a partition when the first row for it comes.
        :raises TableNotExist: :raises InvalidTable: if it is not a log table.
        """
        return LogWriter(self._connection, self.admin, path, dynamic_partitions=dynamic_partitions)

    def log_reader(self, path: TablePath) -> LogReader:
        """A reader of one log table, in the schema that it has now.

        :raises TableNotExist: :raises InvalidTable: if it is not a log table.
        """
        return LogReader(self._connection, self.admin, path)

    def snapshot_lease(
        self,
        lease_id: str,
        *tables: TablePath,
        buckets: Collection[TableBucket] | None = None,
        duration_ms: int = DAY_MS,
        leave: Leave = "drop",
        on_lost: Callable[[LeaseLost], None] | None = None,
    ) -> SnapshotLease:
        """A lease on the newest KV snapshots of tables, held by a ``with`` block.

        :param buckets: only these buckets of the tables; all by default.
        :param duration_ms: how long it lasts if nobody renews it, which the block does.
        :param leave: at the end of the block ``drop`` the lease with all that it holds, ``release``
            what this block holds, or ``keep`` it for somebody else.
        :param on_lost: called once, on a thread of its own, if the lease is lost.
        """
        return SnapshotLease(
            self.leases,
            self.admin,
            lease_id,
            tables,
            buckets=buckets,
            duration_ms=duration_ms,
            leave=leave,
            on_lost=on_lost,
        )

    def close(self) -> None:
        """Ends the connections; writers should be closed before."""
        self._connection.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def connect(bootstrap: str | ClientConfig) -> Client:
    """A client of the cluster at an address, or as configured.

    ``grpc://HOST:PORT`` reaches Sluice's own server, ``fluss://HOST:PORT`` a real Fluss as well.

    Nothing is sent before the first call.

    :raises ConfigurationError: if the address is not one.
    """
    config = ClientConfig(bootstrap=bootstrap) if isinstance(bootstrap, str) else bootstrap
    return Client(config)
