"""Tracks which buckets this tablet server leads, and guards operations against changes of that.

The coordinator elects leaders by leader epoch. An operation holds the read lock of its bucket, and
a change of leadership the write lock. So no operation runs on a bucket that has another leader, and
``on_lost`` listeners are called before the bucket can be led again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import structlog

from sluice.errors import (
    FencedLeaderEpoch,
    InvalidCoordinator,
    NotLeaderOrFollower,
    UnknownTableOrBucket,
)
from sluice.model import TableBucket, TableInfo
from sluice.server.tablet.buckets.ports import Tables

_log = structlog.get_logger("sluice.replicas")

Lost = Callable[[TableBucket], None]
"""Called when this server no longer leads a bucket. Must neither fail nor wait for operations."""


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


class Replica:
    """One bucket's replica on this server. ``lock`` guards the other fields."""

    def __init__(self, leader: int | None, leader_epoch: int) -> None:
        self.lock = ReadWriteLock()
        self.leader = leader
        self.leader_epoch = leader_epoch


class Replicas:
    """All replicas of this server. ``_lock`` guards the mapping; each replica has its own lock.

    At its start the coordinator elects this server, the only one, for every bucket. So a replica is
    the leader under ``first_epoch`` until the coordinator decides otherwise.
    """

    def __init__(self, server_id: int, tables: Tables, first_epoch: Callable[[], int]) -> None:
        """:param first_epoch: the coordinator epoch, which is the leader epoch of its election."""
        self._server_id = server_id
        self._tables = tables
        self._first_epoch = first_epoch
        self._lock = threading.Lock()
        self._replicas: dict[TableBucket, Replica] = {}
        self._on_lost: list[Lost] = []

    def on_lost(self, listener: Lost) -> None:
        """Registers a listener, called under the write lock when a bucket is no longer led here."""
        self._on_lost.append(listener)

    @contextmanager
    def leading(self, bucket: TableBucket) -> Iterator[int]:
        """Runs an operation of the leader; yields the leader epoch, which cannot change during it.

        :raises UnknownTableOrBucket: the bucket does not exist.
        :raises NotLeaderOrFollower: this server does not lead it.
        """
        replica = self._replica(bucket)
        with replica.lock.reading():
            if replica.leader != self._server_id:
                leader = "none" if replica.leader is None else f"server {replica.leader}"
                raise NotLeaderOrFollower(
                    f"server {self._server_id} does not lead bucket {bucket}: its leader is"
                    f" {leader}, leader epoch {replica.leader_epoch}; request the metadata again"
                )
            yield replica.leader_epoch

    @contextmanager
    def exclusive(self, bucket: TableBucket) -> Iterator[None]:
        """Runs the block without any operation of the bucket, and without a change of leader."""
        with self._replica(bucket).lock.writing():
            yield

    def leader(self, bucket: TableBucket) -> tuple[int | None, int]:
        """The bucket's leader and leader epoch. :raises UnknownTableOrBucket: no such bucket."""
        replica = self._replicas.get(bucket)
        if replica is not None:
            return replica.leader, replica.leader_epoch
        self._check_there(bucket)
        return self._server_id, self._first_epoch()

    def set_leader(
        self, coordinator_epoch: int, bucket: TableBucket, leader: int | None, leader_epoch: int
    ) -> None:
        """Applies a decision of the coordinator; a repeated call changes nothing.

        :raises InvalidCoordinator: it is not the coordinator that this server follows.
        :raises FencedLeaderEpoch: a newer decision, or another one of the same epoch, was applied.
        :raises UnknownTableOrBucket: the bucket does not exist.
        """
        self.check_coordinator(coordinator_epoch)
        replica = self._replica(bucket)
        with replica.lock.writing():
            if (leader, leader_epoch) == (replica.leader, replica.leader_epoch):
                return
            _check_epoch(bucket, replica, leader_epoch - 1)
            self._change(bucket, replica, leader, leader_epoch)

    def stop(self, coordinator_epoch: int, bucket: TableBucket, leader_epoch: int) -> None:
        """Ends leadership without a new leader. Raises as :meth:`set_leader`."""
        self.check_coordinator(coordinator_epoch)
        replica = self._replica(bucket)
        with replica.lock.writing():
            _check_epoch(bucket, replica, leader_epoch)
            self._change(bucket, replica, None, leader_epoch)

    def _change(
        self, bucket: TableBucket, replica: Replica, leader: int | None, leader_epoch: int
    ) -> None:
        was_here = replica.leader == self._server_id
        replica.leader, replica.leader_epoch = leader, leader_epoch
        _log.info(
            "bucket leader changed", bucket=str(bucket), leader=leader, leader_epoch=leader_epoch
        )
        if was_here and leader != self._server_id:
            self._notify_lost(bucket)

    def check_coordinator(self, coordinator_epoch: int) -> None:
        """Checks a coordinator epoch.

        :raises InvalidCoordinator: it is not that of the current coordinator.
        """
        current = self._first_epoch()
        if coordinator_epoch != current:
            raise InvalidCoordinator(
                f"coordinator epoch {coordinator_epoch} is not the current one, {current}"
            )

    def drop_table(self, info: TableInfo, partition_id: int | None = None) -> None:
        """Ends the replicas of a dropped table or partition."""
        with self._lock:
            gone = [
                bucket
                for bucket in self._replicas
                if bucket.table_id == info.table_id
                and (partition_id is None or bucket.partition_id == partition_id)
            ]
            replicas = [(bucket, self._replicas.pop(bucket)) for bucket in gone]
        for bucket, replica in replicas:
            with replica.lock.writing():
                replica.leader = None
                self._notify_lost(bucket)

    def _notify_lost(self, bucket: TableBucket) -> None:
        for listener in self._on_lost:
            listener(bucket)

    def _replica(self, bucket: TableBucket) -> Replica:
        replica = self._replicas.get(bucket)
        if replica is not None:
            return replica
        with self._lock:
            self._check_there(bucket)
            replica = self._replicas.get(bucket)
            if replica is None:
                replica = Replica(self._server_id, self._first_epoch())
                self._replicas[bucket] = replica
            return replica

    def _check_there(self, bucket: TableBucket) -> None:
        table = self._tables.find(bucket.table_id)
        if table is None or not table.has_bucket(bucket.partition_id, bucket.bucket):
            raise UnknownTableOrBucket(f"bucket {bucket} does not exist: was its table dropped?")


def _check_epoch(bucket: TableBucket, replica: Replica, leader_epoch: int) -> None:
    if leader_epoch < replica.leader_epoch:
        raise FencedLeaderEpoch(
            f"bucket {bucket}: the leader epoch of the decision is older than the current one,"
            f" {replica.leader_epoch}"
        )
