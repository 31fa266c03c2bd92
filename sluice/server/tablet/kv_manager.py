"""All KV tablets of the server: made when first used, closed when too many are open, removed."""

from __future__ import annotations

import re
import shutil
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path

import structlog

from sluice.errors import KvStorageError, NonPrimaryKeyTable, UnknownTableOrBucket
from sluice.model import TableBucket, TableInfo
from sluice.server.tablet.kv_store import KvStoreCorrupt
from sluice.server.tablet.kv_tablet import Environment, KvTablet, require_hosted
from sluice.server.tablet.log_manager import LogManager
from sluice.server.tablet.ports import HostedTable, Tables
from sluice.server.tablet.replicas import Replicas

_TABLE_FOLDER = re.compile(r".+-(\d+)")
_PARTITION_FOLDER = re.compile(r".+-p(\d+)")

_log = structlog.get_logger("sluice.kv")


class KvPin:
    """Keeps the store of a bucket open though no operation runs; see :meth:`KvManager.pin`."""

    def __init__(self, release: Callable[[], None]) -> None:
        self._release: Callable[[], None] | None = release
        self._lock = threading.Lock()

    def release(self) -> None:
        """The store may be closed again when it is idle. A second call does nothing.

        It waits for nothing, so it may be called from anywhere.
        """
        with self._lock:
            release, self._release = self._release, None
        if release is not None:
            release()


class KvManager:
    """Bucket -> tablet, of those in use lately, in order of use, and how often each is pinned.

    ``_lock`` guards both.
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
        """Removes what is left of dropped tables and partitions.

        What was never known stays: the start has been stopped because of its log already.
        """
        for folder in sorted(self._root.glob("*/*-*")):
            found = _TABLE_FOLDER.fullmatch(folder.name)
            if found is None:
                continue
            table = self._tables.find(int(found[1]))
            if table is None:
                if self._tables.has_issued_table_id(int(found[1])):
                    shutil.rmtree(folder, ignore_errors=True)
                continue
            for inner in folder.glob("*-p*"):
                part = _PARTITION_FOLDER.fullmatch(inner.name)
                if part is None or int(part[1]) in table.partitions:
                    continue
                if self._tables.has_issued_partition_id(int(part[1])):
                    shutil.rmtree(inner, ignore_errors=True)

    @contextmanager
    def leading(self, bucket: TableBucket) -> Iterator[tuple[KvTablet, int]]:
        """The tablet of a bucket and the leader epoch, for one operation.

        A store that fails meanwhile is closed, so that the next operation opens it again; one in
        which damage is found is made anew then.

        :raises UnknownTableOrBucket, NonPrimaryKeyTable, NotLeaderOrFollower: as they say.
        """
        tablet: KvTablet | None = None
        try:
            with self._replicas.leading(bucket) as leader_epoch:
                tablet = self._tablet(bucket)
                yield tablet, leader_epoch
        except KvStorageError as error:
            self._close(bucket, tablet if isinstance(error, KvStoreCorrupt) else None)
            raise
        self._close_surplus()

    def pin(self, bucket: TableBucket) -> KvPin:
        """Lets a store stay open between operations, however idle; call it inside ``leading``.

        It is closed all the same when the bucket is led by somebody else, is dropped, or its store
        fails: ``on_closing`` tells. Pinned stores come on top of how many may be open, so whoever
        pins must have a bound of his own.
        """
        with self._lock:
            self._pins[bucket] += 1
        return KvPin(lambda: self._unpin(bucket))

    def on_closing(self, listener: Callable[[TableBucket], None]) -> None:
        """Calls the listener before a store is closed, while no operation of its bucket runs.

        It must let go of all that it holds of the store (iterators, snapshots of RocksDB), or the
        store cannot be opened again. It must not fail, nor wait for an operation.
        """
        self._on_closing.append(listener)

    def log_end(self, bucket: TableBucket) -> int:
        """The end of a bucket's log, whoever leads it; its store is left alone.

        :raises UnknownTableOrBucket, NonPrimaryKeyTable: as they say.
        """
        return self._logs.find(self._keyed(bucket), bucket).end_offset

    def drop_table(self, info: TableInfo, partition_id: int | None = None) -> None:
        """Removes the tablets of a table, or of one of its partitions, that the catalog dropped.

        Its replicas have ended already. What a crash leaves here the next start removes.
        """
        with self._lock:
            gone = [
                bucket
                for bucket in self._tablets
                if bucket.table_id == info.table_id
                and (partition_id is None or bucket.partition_id == partition_id)
            ]
            tablets = [self._tablets.pop(bucket) for bucket in gone]
        for tablet in tablets:
            self._tell_closing(tablet)
            tablet.delete()
        folder = self._table_folder(info)
        paths = [folder] if partition_id is None else list(folder.glob(f"*-p{partition_id}"))
        for path in paths:
            shutil.rmtree(path, ignore_errors=True)

    def stop(self) -> None:
        """Closes every store. No operation may run any more."""
        with self._lock:
            tablets = list(self._tablets.values())
            self._tablets.clear()
        for tablet in tablets:
            self._tell_closing(tablet)
            tablet.close()

    # -- parts

    def _keyed(self, bucket: TableBucket) -> HostedTable:
        hosted = require_hosted(self._tables.find(bucket.table_id), bucket)
        if not hosted.info.has_primary_key:
            raise NonPrimaryKeyTable(
                f"table {hosted.info.path} has no primary key: append to its log instead"
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
                # else somebody who met the same damage has made it anew already
                is_last = self._tablets.get(bucket) is damaged
                self._lost(bucket)
                if damaged is not None and is_last:
                    damaged.discard_damaged()
        except UnknownTableOrBucket:
            pass  # dropped meanwhile

    def _close_surplus(self) -> None:
        """Closes the stores that were idle longest, if more are open than may be."""
        surplus = len(self._tablets) - self._environment.resources.open_max
        if surplus <= 0:
            return
        with self._lock:
            surplus -= sum(bucket in self._tablets for bucket in self._pins)
            free = (bucket for bucket in self._tablets if bucket not in self._pins)
            idle = list(islice(free, max(surplus, 0)))
        for bucket in idle:
            with suppress(UnknownTableOrBucket), self._replicas.exclusive(bucket):
                if bucket not in self._pins:  # it may have been, until nobody else was in it
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
        """Closes a tablet, the bucket's lock held for writing; the next use makes it anew."""
        with self._lock:
            tablet = self._tablets.pop(bucket, None)
        if tablet is not None:
            self._tell_closing(tablet)
            tablet.close()

    def _table_folder(self, info: TableInfo) -> Path:
        return self._root / info.path.database / f"{info.path.table}-{info.table_id}"

    def _folder(self, table: HostedTable, bucket: TableBucket) -> Path:
        folder = self._table_folder(table.info)
        if bucket.partition_id is not None:
            partition = table.partitions[bucket.partition_id]
            folder = folder / f"{partition.name}-p{partition.partition_id}"
        return folder / f"kv-{bucket.bucket}"
