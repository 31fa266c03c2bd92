"""Which buckets this tablet server leads, and the lock between that and what it does with them.

The coordinator elects; the tablet follows by leader epoch. An operation on a bucket holds the read
side of the bucket's lock for as long as it takes; a change of leadership takes the write side. So
no operation runs on while the bucket is already somebody else's, and who listens to ``on_lost`` is
told before anybody can lead again.
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
from sluice.server.tablet.ports import Tables

_log = structlog.get_logger("sluice.replicas")

Lost = Callable[[TableBucket], None]
"""Told that a bucket is not led here any more. Must not fail, and not wait for an operation."""


class ReadWriteLock:
    """Many readers or one writer. A writer that waits goes before readers that come later.

    A reader that holds it must not take it again: behind a waiting writer it would wait for itself.
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
    """One bucket's part of this server. ``lock`` guards the rest."""

    def __init__(self, leader: int | None, leader_epoch: int) -> None:
        self.lock = ReadWriteLock()
        self.leader = leader
        self.leader_epoch = leader_epoch


class Replicas:
    """All buckets of this server. ``_lock`` guards the mapping; each replica has its own lock.

    The coordinator elects this server for every bucket when it starts, since there is no other one:
    so a replica is the leader, under ``first_epoch``, until the coordinator says something else.
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
        """Calls the listener whenever a bucket stops to be led here, its lock held for writing."""
        self._on_lost.append(listener)

    @contextmanager
    def leading(self, bucket: TableBucket) -> Iterator[int]:
        """For an operation of the leader; gives the leader epoch, which stays until the end.

        :raises UnknownTableOrBucket: there is no such bucket.
        :raises NotLeaderOrFollower: this server does not lead it.
        """
        replica = self._replica(bucket)
        with replica.lock.reading():
            if replica.leader != self._server_id:
                led = "nobody leads it" if replica.leader is None else f"{replica.leader} does"
                raise NotLeaderOrFollower(
                    f"bucket {bucket} is not led by server {self._server_id}: {led}, under leader"
                    f" epoch {replica.leader_epoch}; ask for the metadata again"
                )
            yield replica.leader_epoch

    @contextmanager
    def exclusive(self, bucket: TableBucket) -> Iterator[None]:
        """No operation of the bucket runs meanwhile; leadership stays as it is."""
        with self._replica(bucket).lock.writing():
            yield

    def leader(self, bucket: TableBucket) -> tuple[int | None, int]:
        """Who leads the bucket, and the leader epoch. :raises UnknownTableOrBucket: no such one."""
        replica = self._replicas.get(bucket)
        if replica is not None:
            return replica.leader, replica.leader_epoch
        self._check_there(bucket)
        return self._server_id, self._first_epoch()

    def set_leader(
        self, coordinator_epoch: int, bucket: TableBucket, leader: int | None, leader_epoch: int
    ) -> None:
        """Takes over what the coordinator has decided; the same again changes nothing.

        :raises InvalidCoordinator: another coordinator than the one that this server follows.
        :raises FencedLeaderEpoch: a newer decision has been taken over already, or another one of
            the same epoch. :raises UnknownTableOrBucket: there is no such bucket.
        """
        self.check_coordinator(coordinator_epoch)
        replica = self._replica(bucket)
        with replica.lock.writing():
            if (leader, leader_epoch) == (replica.leader, replica.leader_epoch):
                return
            _check_epoch(bucket, replica, leader_epoch - 1)
            self._change(bucket, replica, leader, leader_epoch)

    def stop(self, coordinator_epoch: int, bucket: TableBucket, leader_epoch: int) -> None:
        """Leads no more, and follows nobody. Errors as :meth:`set_leader`."""
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
        _log.info("leader", bucket=str(bucket), leader=leader, leader_epoch=leader_epoch)
        if was_here and leader != self._server_id:
            self._notify_lost(bucket)

    def check_coordinator(self, coordinator_epoch: int) -> None:
        """:raises InvalidCoordinator: it is not the epoch of the coordinator that is followed."""
        current = self._first_epoch()
        if coordinator_epoch != current:
            raise InvalidCoordinator(
                f"coordinator epoch {coordinator_epoch}; this server follows {current}"
            )

    def drop_table(self, info: TableInfo, partition_id: int | None = None) -> None:
        """Ends the replicas of a table, or of one of its partitions, that the catalog dropped."""
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
            raise UnknownTableOrBucket(f"there is no bucket {bucket}: was its table dropped?")


def _check_epoch(bucket: TableBucket, replica: Replica, leader_epoch: int) -> None:
    if leader_epoch < replica.leader_epoch:
        raise FencedLeaderEpoch(
            f"bucket {bucket}: a decision of an older leader epoch than the newest known here,"
            f" {replica.leader_epoch}"
        )
