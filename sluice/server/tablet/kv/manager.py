"""Opens, closes and deletes the server's KV tablets."""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path

import structlog

from sluice.errors import (
    CorruptRecord,
    KvStorageError,
    NonPrimaryKeyTable,
    UnknownTableOrBucket,
)
from sluice.model import TableBucket, TableInfo
from sluice.server.data_dir import bucket_folder, delete_orphans, delete_table
from sluice.server.tablet.buckets.ports import HostedTable, Tables
from sluice.server.tablet.buckets.replicas import Replicas
from sluice.server.tablet.kv.store import KvStoreCorrupt
from sluice.server.tablet.kv.tablet import Environment, KvTablet, require_hosted
from sluice.server.tablet.logs.manager import LogManager
from sluice.server.time_limit import TimeLimit

CLOSED_AT_ONCE = 4
"""Threads that close stores at a stop."""

_log = structlog.get_logger("sluice.kv")


class KvPin:
    """Keeps the store of a bucket open between operations; see :meth:`KvManager.pin`."""

    def __init__(self, release: Callable[[], None]) -> None:
        self._release: Callable[[], None] | None = release
        self._lock = threading.Lock()

    def release(self) -> None:
        """Allows the idle store to be closed. Never blocks; a second call does nothing."""
        with self._lock:
            release, self._release = self._release, None
        if release is not None:
            release()


class KvManager:
    """The recently used tablets in order of use, and the number of pins of each.

    Opens a store at its first use, and closes idle ones if too many are open. ``_lock`` guards both
    mappings.
    """

    def __init__(
        self,
        root: Path,
        tables: Tables,
        logs: LogManager,
        replicas: Replicas,
        environment: Environment,
    ) -> None:
        self._root = root
        self._tables = tables
        self._logs = logs
        self._replicas = replicas
        self._environment = environment
        self._lock = threading.Lock()
        self._tablets: OrderedDict[TableBucket, KvTablet] = OrderedDict()
        self._pins: Counter[TableBucket] = Counter()
        self._on_closing: list[Callable[[TableBucket], None]] = []
        replicas.on_lost(self._lost)

    def start(self) -> None:
        """Deletes the stores of dropped tables and partitions.

        Folders with unknown ids are kept; their logs have already stopped the start.
        """
        delete_orphans(self._root, self._tables)

    @contextmanager
    def leading(self, bucket: TableBucket) -> Iterator[KvTablet]:
        """Yields a bucket's tablet for one operation.

        A store that fails is closed, and the next operation opens it again, or rebuilds it if it is
        damaged.

        :raises UnknownTableOrBucket, NonPrimaryKeyTable: the bucket does not exist, or has no
            key-value store.
        """
        tablet: KvTablet | None = None
        try:
            with self._replicas.leading(bucket):
                tablet = self._tablet(bucket)
                yield tablet
        except KvStorageError as error:
            self._close(bucket, tablet if isinstance(error, KvStoreCorrupt) else None)
            raise
        self._close_surplus()

    def pin(self, bucket: TableBucket) -> KvPin:
        """Keeps a store open between operations, even if idle; call it inside ``leading``.

        The store is still closed when its bucket is dropped, or when it fails; ``on_closing``
        listeners are called then. Pinned stores do not count towards the limit of open stores, so
        callers need their own limit.
        """
        with self._lock:
            self._pins[bucket] += 1
        return KvPin(lambda: self._unpin(bucket))

    def on_closing(self, listener: Callable[[TableBucket], None]) -> None:
        """Registers a listener to call before a store is closed, while its bucket is idle.

        The listener must release its iterators and RocksDB snapshots of the store, or the store
        cannot be opened again. It must neither fail nor wait for an operation.
        """
        self._on_closing.append(listener)

    def refusal(self, bucket: TableBucket) -> CorruptRecord | None:
        """Why a bucket's store was last found to be lost; None if that is not known."""
        tablet = self._tablets.get(bucket)
        return None if tablet is None else tablet.refusal

    def log_end(self, bucket: TableBucket) -> int:
        """The end of a bucket's log. Does not open the store.

        :raises UnknownTableOrBucket, NonPrimaryKeyTable: the bucket does not exist, or has no
            key-value store.
        """
        return self._logs.find(self._keyed(bucket), bucket).end_offset

    def drop_table(self, info: TableInfo, partition_id: int | None = None) -> None:
        """Deletes the stores of a dropped table or partition, which were closed by ``_lost``.

        After a crash, the next start deletes the rest.
        """
        self._environment.auto_increment.drop_table(info, partition_id)
        delete_table(self._root, info, partition_id)

    def stop(self, limit: TimeLimit) -> int:
        """Closes every store within the limit; returns how many were not. No operation may run."""
        with self._lock:
            tablets = list(self._tablets.values())
            self._tablets.clear()
        return limit.each(tablets, self._close_at_stop, CLOSED_AT_ONCE)

    def _close_at_stop(self, tablet: KvTablet) -> None:
        self._tell_closing(tablet)
        tablet.close()

    # -- parts

    def _keyed(self, bucket: TableBucket) -> HostedTable:
        hosted = require_hosted(self._tables.find(bucket.table_id), bucket)
        if not hosted.info.has_primary_key:
            raise NonPrimaryKeyTable(
                f"table {hosted.info.path} is a log table: append to it instead"
            )
        return hosted

    def _tablet(self, bucket: TableBucket) -> KvTablet:
        hosted = self._keyed(bucket)
        log = self._logs.find(hosted, bucket)
        with self._lock:
            tablet = self._tablets.get(bucket)
            if tablet is None:
                tablet = KvTablet(
                    bucket,
                    lambda: require_hosted(self._tables.find(bucket.table_id), bucket),
                    log,
                    self._folder(hosted, bucket),
                    self._environment,
                )
                self._tablets[bucket] = tablet
            self._tablets.move_to_end(bucket)
            return tablet

    def _close(self, bucket: TableBucket, damaged: KvTablet | None) -> None:
        try:
            with self._replicas.exclusive(bucket):
                # else another operation found the same damage and has already rebuilt it
                is_last = self._tablets.get(bucket) is damaged
                self._lost(bucket)
                if damaged is not None and is_last:
                    damaged.discard_damaged()
        except UnknownTableOrBucket:
            pass  # dropped since

    def _close_surplus(self) -> None:
        """Closes the least recently used idle stores, if too many are open."""
        surplus = len(self._tablets) - self._environment.resources.open_max
        if surplus <= 0:
            return
        with self._lock:
            surplus -= sum(bucket in self._tablets for bucket in self._pins)
            free = (bucket for bucket in self._tablets if bucket not in self._pins)
            idle = list(islice(free, max(surplus, 0)))
        for bucket in idle:
            with suppress(UnknownTableOrBucket), self._replicas.exclusive(bucket):
                if bucket not in self._pins:  # may have been pinned before the lock
                    self._lost(bucket)

    def _unpin(self, bucket: TableBucket) -> None:
        with self._lock:
            self._pins[bucket] -= 1
            if not self._pins[bucket]:
                del self._pins[bucket]

    def _tell_closing(self, tablet: KvTablet) -> None:
        for listener in self._on_closing:
            listener(tablet.bucket)

    def _lost(self, bucket: TableBucket) -> None:
        """Closes a tablet under the bucket's write lock; the next use creates it again."""
        with self._lock:
            tablet = self._tablets.pop(bucket, None)
        if tablet is not None:
            self._tell_closing(tablet)
            tablet.close()

    def _folder(self, table: HostedTable, bucket: TableBucket) -> Path:
        name = f"kv-{bucket.bucket}"
        return bucket_folder(self._root, table.info, table.partitions, bucket, name)
