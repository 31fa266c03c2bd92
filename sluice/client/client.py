"""The client of a cluster: one connection, and everything that goes over it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from types import TracebackType

import pyarrow as pa

from sluice.client.admin import Admin
from sluice.client.connection import Connection
from sluice.client.kv_reader import KvReader
from sluice.client.kv_scan import KvScanner
from sluice.client.kv_snapshots import KvSnapshotReader
from sluice.client.kv_writer import KvWriter
from sluice.client.leases import DAY_MS, LeaseClient
from sluice.client.log_reader import LogReader
from sluice.client.log_writer import LogWriter
from sluice.client.recorded_statuses import RecordedStatuses
from sluice.client.sent_batches import WriterJournal
from sluice.client.snapshot_lease import LeaseExit, SnapshotLease
from sluice.client.tiering import TieringClient
from sluice.clock import Clock
from sluice.config import ClientConfig
from sluice.errors import LeaseLost
from sluice.model import TableBucket, TablePath


class Client:
    """A cluster's client. Connects at the first call. Safe for use by many threads."""

    def __init__(self, config: ClientConfig, clock: Clock | None = None) -> None:
        """:param clock: for the tiering statuses that rounds write down.

        :raises ConfigurationError: if the bootstrap address is not one.
        """
        self.config = config
        self._connection = Connection(config)
        self._statuses = RecordedStatuses(config, clock)
        self.admin = Admin(self._connection, self._statuses)
        self.tiering = TieringClient(self._connection, self.admin, self._statuses)
        self.leases = LeaseClient(self._connection)

    def log_writer(
        self,
        path: TablePath,
        *,
        dynamic_partitions: bool = False,
        journal: WriterJournal | None = None,
    ) -> LogWriter:
        """A writer of one log table, to be closed by its user.

        :param dynamic_partitions: creates a partition when the first row for it comes.
        :param journal: remembers what is sent, so that another process can go on exactly there.
        :raises TableNotExist: :raises InvalidTable: if it is not a log table.
        """
        return LogWriter(
            self._connection,
            self.admin,
            path,
            dynamic_partitions=dynamic_partitions,
            journal=journal,
        )

    def log_reader(self, path: TablePath) -> LogReader:
        """A reader of one table's log, in the schema that the table has now.

        That of a table with a primary key is its changelog: see ``LogRecords.change_types``.

        :raises TableNotExist:
        """
        return LogReader(self._connection, self.admin, path)

    def kv_writer(
        self,
        path: TablePath,
        target_columns: Sequence[str] | None = None,
        *,
        dynamic_partitions: bool = False,
        journal: WriterJournal | None = None,
    ) -> KvWriter:
        """A writer of one table with a primary key, to be closed by its user.

        :param target_columns: only these are written, the primary key among them; all by default.
        :param dynamic_partitions: creates a partition when the first row for it comes.
        :param journal: remembers what is sent, so that another process can go on exactly there.
        :raises TableNotExist: :raises NonPrimaryKeyTable: for a log table.
        :raises InvalidTargetColumn: for columns that cannot be written alone.
        """
        return KvWriter(
            self._connection,
            self.admin,
            path,
            target_columns=target_columns,
            dynamic_partitions=dynamic_partitions,
            journal=journal,
        )

    def kv_reader(self, path: TablePath) -> KvReader:
        """Reads rows of one table with a primary key, in the schema that the table has now.

        :raises TableNotExist: :raises NonPrimaryKeyTable: for a log table.
        """
        return KvReader(self._connection, self.admin, path)

    def lookup(self, path: TablePath, keys: pa.Table | pa.RecordBatch) -> pa.Table:
        """The row of each key, in the order of the keys; null in every column where there is none.

        Who looks up often asks the cluster less with a ``kv_reader`` of its own.

        :param keys: the columns of the primary key.
        :raises FlussError: as ``KvReader.lookup``.
        """
        return self.kv_reader(path).lookup(keys)

    def prefix_lookup(self, path: TablePath, prefixes: pa.Table | pa.RecordBatch) -> pa.Table:
        """All rows whose key begins with one of the prefixes: see ``KvReader.prefix_lookup``."""
        return self.kv_reader(path).prefix_lookup(prefixes)

    def limit_scan(self, path: TablePath, limit: int, partition: str | None = None) -> pa.Table:
        """Some rows of a table, at most ``limit``: see ``KvReader.limit_scan``."""
        return self.kv_reader(path).limit_scan(limit, partition)

    def scan_kv(
        self, path: TablePath, bucket: TableBucket, *, limit: int | None = None
    ) -> KvScanner:
        """Reads all rows of one bucket, as they are when a ``with`` block begins, inside of it.

        :param limit: most rows; all by default.
        :raises TableNotExist: :raises NonPrimaryKeyTable: for a log table.
        """
        return KvScanner(self._connection, self.admin, path, bucket, limit=limit)

    def kv_snapshot(
        self, path: TablePath, bucket: TableBucket, snapshot_id: int, *, folder: str | None = None
    ) -> KvSnapshotReader:
        """Reads a KV snapshot of one bucket inside a ``with`` block, which brings its files.

        ``leases.latest`` tells which there are; a lease keeps one from being deleted meanwhile.

        :param folder: where the files are put; by default the system's place for such.
        :raises TableNotExist: :raises NonPrimaryKeyTable: it has no snapshots.
        """
        return KvSnapshotReader(
            self._connection, self.admin, path, bucket, snapshot_id, folder=folder
        )

    def snapshot_lease(
        self,
        lease_id: str,
        *tables: TablePath,
        buckets: Collection[TableBucket] | None = None,
        duration_ms: int = DAY_MS,
        on_exit: LeaseExit = "drop",
        on_lost: Callable[[LeaseLost], None] | None = None,
    ) -> SnapshotLease:
        """A lease on the newest KV snapshots of tables, held by a ``with`` block.

        :param buckets: only these buckets of the tables; all by default.
        :param duration_ms: how long it lasts if nobody renews it, which the block does.
        :param on_exit: what the end of the block does. ``drop`` ends the lease, ``release`` frees
            the snapshots that this block holds, ``keep`` leaves the lease for another process.
        :param on_lost: called once, on a thread of its own, if the lease is lost.
        """
        return SnapshotLease(
            self.leases,
            self.admin,
            lease_id,
            tables,
            buckets=buckets,
            duration_ms=duration_ms,
            on_exit=on_exit,
            on_lost=on_lost,
        )

    def close(self) -> None:
        """Ends the connections; writers should be closed before."""
        self._statuses.close()
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
