"""Guards the operations on a bucket against its end.

This server leads every bucket that exists: each start is an election, under the coordinator epoch.
An operation holds the read lock of its bucket, and who closes its store or drops it the write lock.
So no operation runs on a bucket that is dropped.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sluice.errors import UnknownTableOrBucket
from sluice.model import TableBucket, TableInfo
from sluice.server.tablet.buckets.ports import Tables

Lost = Callable[[TableBucket], None]
"""Called when a bucket is dropped. Must neither fail nor wait for operations."""


class ReadWriteLock:
    """A lock for many readers or one writer. A waiting writer has precedence over new readers.

    A reader must not acquire it again: after a waiting writer it would wait for itself.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()  # guards the three below
        self._readers = 0
        self._writing = False
        self._writers_waiting = 0

    @contextmanager
    def reading(self) -> Iterator[None]:
        with self._changed:
            while self._writing or self._writers_waiting:
                self._changed.wait()
            self._readers += 1
        try:
            yield
        finally:
            with self._changed:
                self._readers -= 1
                if not self._readers:
                    self._changed.notify_all()

    @contextmanager
    def writing(self) -> Iterator[None]:
        with self._changed:
            self._writers_waiting += 1
            try:
                while self._writing or self._readers:
                    self._changed.wait()
                self._writing = True
            finally:
                self._writers_waiting -= 1
        try:
            yield
        finally:
            with self._changed:
                self._writing = False
                self._changed.notify_all()


class Replicas:
    """The locks of all buckets that were used. ``_lock`` guards the mapping."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._lock = threading.Lock()
        self._locks: dict[TableBucket, ReadWriteLock] = {}
        self._on_lost: list[Lost] = []

    def on_lost(self, listener: Lost) -> None:
        """Registers a listener, called under the write lock when a bucket is dropped."""
        self._on_lost.append(listener)

    @contextmanager
    def leading(self, bucket: TableBucket) -> Iterator[None]:
        """Runs an operation, during which the bucket stays.

        :raises UnknownTableOrBucket: the bucket does not exist.
        """
        with self._lock_of(bucket).reading():
            self._check_there(bucket)  # it may have been dropped while this waited
            yield

    @contextmanager
    def exclusive(self, bucket: TableBucket) -> Iterator[None]:
        """Runs the block without any operation of the bucket, which may be dropped by then.

        :raises UnknownTableOrBucket: the bucket never existed.
        """
        with self._lock_of(bucket).writing():
            yield

    def drop_table(self, info: TableInfo, partition_id: int | None = None) -> None:
        """Waits for operations on a table or partition that the catalog has dropped."""
        with self._lock:
            gone = [
                bucket
                for bucket in self._locks
                if bucket.table_id == info.table_id
                and (partition_id is None or bucket.partition_id == partition_id)
            ]
            locks = [(bucket, self._locks.pop(bucket)) for bucket in gone]
        for bucket, lock in locks:
            with lock.writing():
                for listener in self._on_lost:
                    listener(bucket)

    def _lock_of(self, bucket: TableBucket) -> ReadWriteLock:
        lock = self._locks.get(bucket)
        if lock is not None:
            return lock
        with self._lock:
            self._check_there(bucket)
            return self._locks.setdefault(bucket, ReadWriteLock())

    def _check_there(self, bucket: TableBucket) -> None:
        table = self._tables.find(bucket.table_id)
        if table is None or not table.has_bucket(bucket.partition_id, bucket.bucket):
            raise UnknownTableOrBucket(f"bucket {bucket} does not exist: was its table dropped?")
