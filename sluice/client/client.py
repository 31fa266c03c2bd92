"""The client of a cluster: one connection, shared by all its writers, readers and calls."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence

import pyarrow as pa

from sluice.client.admin.admin import Admin
from sluice.client.admin.damage import DamageClient
from sluice.client.connection.connection import Connection
from sluice.client.kv.reader import KvReader
from sluice.client.kv.scanner import KvScanner
from sluice.client.kv.snapshot_reader import KvSnapshotReader
from sluice.client.kv.snapshot_sizes import WAIT_S as SIZES_WAIT_S
from sluice.client.kv.snapshot_sizes import kv_snapshot_sizes
from sluice.client.kv.writer import KvWriter
from sluice.client.leases.calls import DAY_MS, LeaseClient
from sluice.client.leases.snapshot_lease import LeaseExit, SnapshotLease
from sluice.client.log.reader import LogReader
from sluice.client.log.writer import LogWriter
from sluice.client.statuses.recorded import RecordedStatuses
from sluice.client.statuses.statuses import StatusClient
from sluice.client.statuses.watch import StatusWatch
from sluice.client.tiering.idle import IdleCheck
from sluice.client.tiering.tiering import TieringClient
from sluice.clock import Clock
from sluice.config import ClientConfig
from sluice.errors import LeaseLost, NetworkError
from sluice.model import BucketSnapshot, TableBucket, TablePath


class Client:
    """Client of one cluster. It connects at the first call and is safe for use by many threads."""

    def __init__(self, config: ClientConfig, clock: Clock | None = None) -> None:
        """Creates a client without connecting.

        :param clock: the clock for the tiering statuses that rounds record.
        :raises ConfigurationError: the bootstrap address is not valid.
        """
        self.config = config
        self._clock = clock
        self._connection = Connection(config)
        self._recorded = RecordedStatuses(config, clock)
        self.admin = Admin(self._connection)
        self.statuses = StatusClient(self._connection, self.admin, self._recorded)
        self.tiering = TieringClient(self._connection, self.admin, self._recorded)
        self.leases = LeaseClient(self._connection)
        self.damage = DamageClient(self._connection)
        self._lock = threading.Lock()  # guards the rest
        self._within: dict[int, Client] | None = {}  # None: closed

    def within(self, most_ms: int) -> Client:
        """Returns a client of the same cluster whose calls end after `most_ms` at the latest.

        A second call with the same time returns the same client. It has connections of its own,
        and ends with this one.
        """
        with self._lock:
            if self._within is None:
                raise NetworkError("the client is closed")
            if most_ms not in self._within:
                self._within[most_ms] = Client(self.config.within(most_ms), self._clock)
            return self._within[most_ms]

    def idle_check(self) -> IdleCheck:
        """Returns a check of which claimed tables are idle; use it in a ``with`` block."""
        return IdleCheck(self.config, self._recorded, self._clock)

    def status_watch(self) -> StatusWatch:
        """Returns a reader for the statuses of many tables, again and again; the caller closes it.

        It has connections of its own, with short time-outs.
        """
        return StatusWatch(self.config, self._clock)

    def log_writer(
        self,
        path: TablePath,
        *,
        dynamic_partitions: bool = False,
    ) -> LogWriter:
        """Returns a writer for one log table; the caller closes it.

        :param dynamic_partitions: create a partition when its first row arrives.
        :raises TableNotExist: the table does not exist.
        :raises InvalidTable: the table is not a log table.
        """
        return LogWriter(
            self._connection,
            self.admin,
            path,
            dynamic_partitions=dynamic_partitions,
        )

    def log_reader(self, path: TablePath) -> LogReader:
        """Returns a reader for the log of one table, in the current schema of the table.

        The log of a primary-key table is its changelog: see ``LogRecords.change_types``.

        :raises TableNotExist: the table does not exist.
        """
        return LogReader(self._connection, self.admin, path)

    def kv_writer(
        self,
        path: TablePath,
        target_columns: Sequence[str] | None = None,
        *,
        dynamic_partitions: bool = False,
    ) -> KvWriter:
        """Returns a writer for one primary-key table; the caller closes it.

        :param target_columns: the columns to write, which must include the primary key; all by
            default.
        :param dynamic_partitions: create a partition when its first row arrives.
        :raises TableNotExist: the table does not exist.
        :raises NonPrimaryKeyTable: the table is a log table.
        :raises InvalidTargetColumn: these columns cannot be written without the others.
        """
        return KvWriter(
            self._connection,
            self.admin,
            path,
            target_columns=target_columns,
            dynamic_partitions=dynamic_partitions,
        )

    def kv_reader(self, path: TablePath) -> KvReader:
        """Returns a reader for the rows of one primary-key table, in its current schema.

        :raises TableNotExist: the table does not exist.
        :raises NonPrimaryKeyTable: the table is a log table.
        """
        return KvReader(self._connection, self.admin, path)

    def lookup(self, path: TablePath, keys: pa.Table | pa.RecordBatch) -> pa.Table:
        """Looks up rows by primary key and returns one row per key, in the order of the keys.

        All columns of a key without a row are null. For repeated look-ups, create a ``kv_reader``
        once: each call of this method requests the table's metadata again.

        :param keys: the columns of the primary key.
        :raises FlussError: see :meth:`KvReader.lookup`.
        """
        return self.kv_reader(path).lookup(keys)

    def prefix_lookup(self, path: TablePath, prefixes: pa.Table | pa.RecordBatch) -> pa.Table:
        """Returns all rows whose key starts with a prefix: see :meth:`KvReader.prefix_lookup`."""
        return self.kv_reader(path).prefix_lookup(prefixes)

    def limit_scan(self, path: TablePath, limit: int, partition: str | None = None) -> pa.Table:
        """Returns at most ``limit`` rows of a table: see :meth:`KvReader.limit_scan`."""
        return self.kv_reader(path).limit_scan(limit, partition)

    def scan_kv(
        self, path: TablePath, bucket: TableBucket, *, limit: int | None = None
    ) -> KvScanner:
        """Returns a scanner for all rows of one bucket; use it in a ``with`` block.

        The scanner sees the rows as they are when the block begins.

        :param limit: maximum number of rows; all by default.
        :raises TableNotExist: the table does not exist.
        :raises NonPrimaryKeyTable: the table is a log table.
        """
        return KvScanner(self._connection, self.admin, path, bucket, limit=limit)

    def kv_snapshot(
        self, path: TablePath, bucket: TableBucket, snapshot_id: int, *, folder: str | None = None
    ) -> KvSnapshotReader:
        """Returns a reader for one KV snapshot of a bucket; use it in a ``with`` block.

        The block downloads the snapshot's files. ``leases.latest`` lists the newest snapshots; a
        lease protects a snapshot from deletion during the download.

        :param folder: the parent of the download folder; the system's temporary folder by default.
        :raises TableNotExist: the table does not exist.
        :raises NonPrimaryKeyTable: the table is a log table, which has no KV snapshots.
        """
        return KvSnapshotReader(
            self._connection, self.admin, path, bucket, snapshot_id, folder=folder
        )

    def kv_snapshot_sizes(
        self, snapshots: Sequence[BucketSnapshot], wait_s: float = SIZES_WAIT_S
    ) -> dict[TableBucket, int]:
        """Returns the stored bytes of KV snapshots, by bucket, without downloading them.

        A snapshot whose size cannot be read, or not within ``wait_s``, is left out.
        """
        return kv_snapshot_sizes(self._connection, snapshots, wait_s)

    def snapshot_lease(
        self,
        lease_id: str,
        *tables: TablePath,
        buckets: Collection[TableBucket] | None = None,
        duration_ms: int = DAY_MS,
        on_exit: LeaseExit = "drop",
        on_lost: Callable[[LeaseLost], None] | None = None,
    ) -> SnapshotLease:
        """Returns a lease on the newest KV snapshots of tables, held during a ``with`` block.

        :param buckets: only these buckets of the tables; all by default.
        :param duration_ms: how long the lease lasts after a renewal, in ms; the block renews it.
        :param on_exit: what the end of the block does. ``drop`` ends the lease, ``release`` frees
            the snapshots that this block holds, ``keep`` leaves the lease for another process.
        :param on_lost: called once, on another thread, if the lease is lost.
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
        """Closes the connections. Close the writers first."""
        with self._lock:
            others, self._within = list((self._within or {}).values()), None
        for other in others:
            other.close()
        self._recorded.close()
        self._connection.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def connect(bootstrap: str | ClientConfig) -> Client:
    """Returns a client of the cluster at a bootstrap address or with a configuration.

    ``grpc://HOST:PORT`` is for Sluice's own server. ``fluss://HOST:PORT`` is Fluss's own protocol,
    for Sluice's server and for an Apache Fluss cluster. The client connects at its first call.

    :raises ConfigurationError: the address is not valid.
    """
    config = ClientConfig(bootstrap=bootstrap) if isinstance(bootstrap, str) else bootstrap
    return Client(config)
