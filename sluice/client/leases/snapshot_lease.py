"""A lease on the newest KV snapshots of tables as a ``with`` block."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Literal

from sluice.client.admin.admin import Admin
from sluice.client.leases.calls import AcquiredSnapshots, BucketSelection, LeaseClient
from sluice.client.leases.keeper import LeaseKeeper
from sluice.clock import Clock, SystemClock
from sluice.errors import FlussError, LeaseLost
from sluice.model import (
    BucketSnapshot,
    Partition,
    TableBucket,
    TableInfo,
    TablePath,
    bucket_count_in,
)

_LOG = logging.getLogger(__name__)

LeaseExit = Literal["drop", "release", "keep"]


def bucket_selections(
    admin: Admin, info: TableInfo, buckets: Collection[TableBucket] | None = None
) -> list[BucketSelection]:
    """Selects all buckets of a table, or those in ``buckets``, by partition."""
    partitions: Sequence[Partition | None] = (None,)
    if info.is_partitioned:
        partitions = admin.partitions_of(info)
    parts = []
    for partition in partitions:
        count = bucket_count_in(info, partition)
        whole = BucketSelection(info, partition, frozenset(range(count)))
        numbers = (n for n in whole.buckets if buckets is None or whole.bucket(n) in buckets)
        part = BucketSelection(info, partition, frozenset(numbers))
        if part.buckets:
            parts.append(part)
    return parts


def never_tiered_buckets(admin: Admin, info: TableInfo) -> list[BucketSelection]:
    """Selects the buckets without an offset in the registered lake snapshot, by partition."""
    registered = admin.lake_snapshot(info.path)
    tiered = registered.offsets if registered else {}
    parts = []
    for part in bucket_selections(admin, info):
        never = frozenset(n for n in part.buckets if part.bucket(n) not in tiered)
        if never:
            parts.append(replace(part, buckets=never))
    return parts


class SnapshotLease:
    """Holds the newest KV snapshots of tables during a ``with`` block.

    A background thread renews the lease. When the lease is lost, ``on_lost`` is called, and later
    calls raise LeaseLost.
    """

    def __init__(
        self,
        leases: LeaseClient,
        admin: Admin,
        lease_id: str,
        tables: Iterable[TablePath],
        *,
        buckets: Collection[TableBucket] | None,
        duration_ms: int,
        on_exit: LeaseExit,
        on_lost: Callable[[LeaseLost], None] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._leases, self._admin = leases, admin
        self.lease_id = lease_id
        self._tables = tuple(tables)
        self._wanted = buckets
        self._duration_ms = duration_ms
        self._on_exit: LeaseExit = on_exit
        self._on_lost = on_lost
        self._clock = clock or SystemClock()
        self._found = AcquiredSnapshots()
        self._unreleased: list[TableBucket] = []  # their release failed
        self._keeper: LeaseKeeper | None = None

    def __enter__(self) -> SnapshotLease:
        self.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def acquire(self) -> None:
        """Leases the newest snapshot of every bucket that has one, and starts the renewals.

        :raises LeaseNotObtained: not all snapshots could be leased.
        :raises TableNotExist: a table does not exist.
        :raises NonPrimaryKeyTable: a table is a log table, which has no snapshots.
        :raises InvalidLease: the lease id or the duration is not valid.
        :raises AuthorizationError: another user has a lease of this id.
        """
        assert self._keeper is None, "the lease is already acquired"
        parts = []
        for path in self._tables:
            parts += bucket_selections(self._admin, self._admin.table_info(path), self._wanted)
        self._found = self._leases.acquire_latest(self.lease_id, parts, self._duration_ms)
        if not self._found.snapshots or not self._found.leased:
            return
        try:
            self._keeper = self._kept()
        except BaseException:
            self._leases.try_release(self.lease_id, self._found.snapshots)
            self._found = AcquiredSnapshots()
            raise

    def _kept(self) -> LeaseKeeper:
        # Renewed at once: acquiring may have taken long, and the renewals count from this one.
        asked_at = self._clock.monotonic_s()
        self._leases.renew(self.lease_id, self._duration_ms)
        keeper = LeaseKeeper(
            self.lease_id,
            self._duration_ms,
            lambda: self._leases.renew(self.lease_id, self._duration_ms, retry=False),
            on_lost=self._on_lost,
            acquired_at=asked_at,
            now=self._clock.monotonic_s,
        )
        keeper.start()
        return keeper

    @property
    def snapshots(self) -> Mapping[TableBucket, BucketSnapshot]:
        """The leased snapshots by bucket.

        :raises LeaseLost: the lease was lost.
        """
        self.check()
        return MappingProxyType(self._found.snapshots)

    @property
    def without_snapshot(self) -> frozenset[TableBucket]:
        """The buckets without a snapshot: their log has all their rows."""
        return frozenset(self._found.without)

    @property
    def is_held(self) -> bool:
        """False if the cluster does not support leases, or the lease was lost or released."""
        return self._keeper is not None and self._keeper.lost is None

    def check(self) -> None:
        """Raises an error if the lease was lost.

        :raises LeaseLost: the lease was lost.
        """
        if self._keeper is not None:
            self._keeper.check()

    def wait_lost(self, timeout_s: float) -> bool:
        """Waits at most ``timeout_s`` for the loss of the lease; returns whether it is lost."""
        return self._keeper is not None and self._keeper.wait_lost(timeout_s)

    def release(self, buckets: Iterable[TableBucket]) -> None:
        """Releases the snapshots of some buckets, after they have been read.

        If the release of the last buckets fails, the error is logged, and ``close`` tries again.

        :raises LeaseLost: the lease was lost.
        :raises FlussError: the release failed, and other buckets are still leased.
        """
        self.check()
        going = [bucket for bucket in buckets if bucket in self._found.snapshots]
        if not going:
            return
        keeper = self._keeper
        if keeper is not None and len(going) == len(self._found.snapshots):
            self._keeper = None
            keeper.stop()  # an empty lease is deleted, which is no loss
            if not self._leases.try_release(self.lease_id, going):
                self._unreleased = going
        elif keeper is not None:
            self._leases.release(self.lease_id, going)
        for bucket in going:
            del self._found.snapshots[bucket]

    def close(self) -> None:
        """Ends the block by ``on_exit``: drop the lease, release its buckets, or keep it.

        An error is logged: the lease then stays until it expires.
        """
        unreleased, self._unreleased = self._unreleased, []
        if unreleased:
            self._leases.try_release(self.lease_id, unreleased)
        keeper, self._keeper = self._keeper, None
        if keeper is None:
            return
        keeper.stop()
        try:
            if self._on_exit == "drop":
                self._leases.drop(self.lease_id)
            elif self._on_exit == "release":
                self._leases.release(self.lease_id, self._found.snapshots)
        except FlussError as error:
            _LOG.warning("lease %s stays until it expires: %s", self.lease_id, error)
