"""The coordinator's KV snapshot leases: adds clock, lock and store to :mod:`sluice.leases`.

A change is stored before it takes effect. If a write fails, the stored state is read back before
the next change; until then, the snapshots of both possible outcomes are kept.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from typing import Protocol

import structlog

from sluice.clock import Clock, monotonic_ms
from sluice.errors import FlussError, StorageError
from sluice.leases import BucketKey, Change, Lease, Leases, SnapshotsByTable, counted_on, key_of
from sluice.model import NOBODY, Caller, TableBucket, TableInfo
from sluice.server.coordinator.leases.store import LeaseStore
from sluice.server.ticker import Ticker

_log = structlog.get_logger("sluice.leases")


class Snapshots(Protocol):
    """The existing KV snapshots.

    To delete one, hold ``lock`` from the check for leases until it no longer exists.
    """

    @property
    def lock(self) -> AbstractContextManager[object]: ...

    def exists(self, bucket: TableBucket, snapshot_id: int) -> bool: ...


class KvSnapshotLeases:
    """All leases. ``_lock`` guards every change; ``is_leased`` needs no lock.

    ``acquire`` locks the snapshots first and then ``_lock``, so that no confirmed snapshot is
    deleted before the lease takes effect.
    """

    def __init__(
        self,
        store: LeaseStore,
        clock: Clock,
        has_partition: Callable[[int, int | None], bool],
        on_freed: Callable[[], None] = lambda: None,
    ) -> None:
        """:param has_partition: whether the table with that id, and its partition, exists.
        :param on_freed: called in the background after leases have released snapshots.
        """
        self._store = store
        self._clock = clock
        self._has_partition = has_partition
        self._on_freed = on_freed
        self._lock = threading.Lock()
        self._leases = Leases()
        self._unconfirmed: tuple[Change, ...] = ()
        self._started_s: float | None = None  # None: not loaded yet
        self._freed = False
        self._ticker = Ticker("lease-check", self.check)

    def start(self, check_interval_ms: int) -> None:
        """Loads the stored leases and starts to check for expired ones.

        :raises StorageError: a lease cannot be read; the message names it and the repair.
        """
        with self._lock:
            self._leases.apply(
                Change(
                    lease.lease_id, None, counted_on(lease, *self._times()), frozenset(lease.held)
                )
                for lease in self._store.load()
            )
            self._started_s = self._clock.monotonic_s()
        self._ticker.start(check_interval_ms)

    def stop(self) -> None:
        self._ticker.stop()

    # -- what clients ask for

    def acquire(
        self,
        lease_id: str,
        duration_ms: int,
        wanted: SnapshotsByTable,
        snapshots: Snapshots,
        by: Caller = NOBODY,
    ) -> SnapshotsByTable:
        """Leases the existing snapshots; returns those that do not exist.

        Raises as :meth:`Leases.acquire`.

        :raises StorageError: the write failed. The lease is unchanged unless the write took effect
            despite the error.
        """
        with snapshots.lock, self._update():
            times = self._times()
            found = self._leases.acquire(
                lease_id, duration_ms, wanted, *times, snapshots.exists, by
            )
            self._commit([found.change] if found.change else [])
        if found.change and found.change.before is None:
            _log.info("lease acquired", lease_id=lease_id, duration_ms=duration_ms, by=by.name)
        return found.unavailable

    def renew(self, lease_id: str, duration_ms: int, by: Caller = NOBODY) -> None:
        """Renews a lease. Raises as :meth:`Leases.renew`.

        :raises StorageError: the write failed.
        """
        with self._update():
            self._commit([self._leases.renew(lease_id, duration_ms, *self._times(), by)])

    def release(self, lease_id: str, buckets: Collection[TableBucket], by: Caller = NOBODY) -> None:
        """Releases some buckets; ignores buckets that are not leased.

        Raises as :meth:`Leases.release`. :raises StorageError: the write failed.
        """
        with self._update():
            change = self._leases.release(lease_id, buckets, by)
            self._commit([change] if change else [])

    def drop(self, lease_id: str, by: Caller = NOBODY) -> None:
        """Ends a lease, if it exists. Raises as :meth:`Leases.drop`.

        :raises StorageError: the write failed.
        """
        with self._update():
            change = self._leases.drop(lease_id, by)
            self._commit([change] if change else [])
        if change:
            _log.info("lease dropped", lease_id=lease_id, by=by.name)

    def all(self) -> tuple[int, list[Lease]]:
        """The current time in epoch milliseconds, and all leases ordered by id.

        A lease's time of expiry is the present one: the stored one is wrong if the wall clock was
        changed since.
        """
        with self._update():
            now_ms, now = self._times()
            leases = self._leases.all()
        return now_ms, [replace(one, expires_ms=now_ms + one.until_ms - now) for one in leases]

    def holders(self, table_id: int, key: BucketKey, snapshot_id: int) -> int:
        """How many leases hold a snapshot. Needs no lock."""
        return self._leases.holders(table_id, key, snapshot_id)

    # -- what happens by itself

    def is_leased(self, bucket: TableBucket, snapshot_id: int) -> bool:
        """Whether a lease holds the snapshot. Takes constant time."""
        unconfirmed = self._unconfirmed  # read first: a change leaves it once in effect
        if self._started_s is None or self._leases.is_leased(bucket, snapshot_id):
            return True
        key = key_of(bucket)
        return any(
            change.after is not None and change.after.holds(bucket.table_id, key, snapshot_id)
            for change in unconfirmed
        )

    def drop_table(self, info: TableInfo, partition_id: int | None = None) -> None:
        """Releases the snapshots of a table or partition that the catalog has dropped.

        If the write fails, the next check retries it.
        """
        try:
            with self._update():
                self._commit(self._leases.table_dropped(info.table_id, partition_id))
        except StorageError as error:
            _log.error(
                "cannot release the leases of a dropped table; will be retried",
                table=str(info.path),
                why=str(error),
            )

    def check(self) -> None:
        """Ends expired leases, and releases snapshots of dropped tables and partitions.

        :raises StorageError: a write failed, and that lease is unchanged.
        """
        with self._update():
            assert self._started_s is not None, "not started"
            uptime_ms = round((self._clock.monotonic_s() - self._started_s) * 1000)
            expired = self._leases.expired(monotonic_ms(self._clock), uptime_ms)
            self._commit(expired)
            for table_id, partition_id in self._leases.partitions():
                if not self._has_partition(table_id, partition_id):
                    self._commit(self._leases.table_dropped(table_id, partition_id))
            freed, self._freed = self._freed, False
        for change in expired:
            _log.warning("lease expired", lease_id=change.lease_id)
        if freed:
            try:
                self._on_freed()
            except BaseException:
                self._freed = True  # retried by the next check
                raise

    # -- inside

    def _times(self) -> tuple[int, int]:
        """The wall time and the monotonic time, both in milliseconds."""
        return self._clock.now_ms(), monotonic_ms(self._clock)

    @contextmanager
    def _update(self) -> Iterator[None]:
        """Holds the lock, and first reads back leases whose earlier write failed."""
        with self._lock:
            self._reload_unconfirmed()
            yield

    def _commit(self, changes: Sequence[Change]) -> None:
        if not changes:
            return
        try:
            self._store.write(changes)
        except BaseException:
            self._unconfirmed = tuple(changes)
            with suppress(FlussError):
                self._reload_unconfirmed()
            raise
        self._leases.apply(changes)
        self._freed = self._freed or any(change.before and change.tables for change in changes)

    def _reload_unconfirmed(self) -> None:
        """Reads back the leases whose write failed.

        :raises StorageError: they cannot be read.
        """
        if not self._unconfirmed:
            return
        stored = [
            replace(change, after=self._known(change, self._store.read(change.lease_id)))
            for change in self._unconfirmed
        ]
        self._leases.apply(stored)
        self._unconfirmed = ()
        self._freed = True

    def _known(self, change: Change, stored: Lease | None) -> Lease | None:
        """The lease that was stored, with the time that it has by the monotonic clock."""
        if stored is None:
            return None
        same = (one for one in (change.after, change.before) if one == stored)
        return next(same, None) or counted_on(stored, *self._times())
