"""All leases of a coordinator. Each call returns a change without applying it.

The owner stores the change and then applies it, which cannot fail, so memory and storage always
agree. Deliberate differences from Fluss: a snapshot that does not exist is returned as unavailable
and not leased; renewing a lease that does not exist is an error, also by Fluss's own renewal (an
acquire without buckets), so a drop is final; a lease without snapshots does not exist.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from sluice.errors import AuthorizationError, LeaseNotExist
from sluice.leases.limits import (
    RESTART_GRACE_MS,
    check_buckets_per_call,
    check_duration,
    check_lease_id,
    check_may_make,
    check_share,
    check_totals,
)
from sluice.leases.types import (
    PLAIN,
    BucketKey,
    Change,
    Lease,
    SnapshotsByBucket,
    SnapshotsByTable,
    bucket_of,
    key_of,
)
from sluice.model import NOBODY, Caller, TableBucket


@dataclass(frozen=True, slots=True)
class Acquired:
    """The change of an acquire, and the snapshots that it could not lease."""

    change: Change | None
    unavailable: SnapshotsByTable


class Leases:
    """All leases. Not thread-safe: the owner holds a lock during changes.

    Other threads may call :meth:`is_leased` at any time. While a change is applied, it returns True
    for every snapshot that is leased both before and after the change.
    """

    def __init__(self) -> None:
        self._leases: dict[str, Lease] = {}
        # Leases and held buckets of each owner.
        self._owned: Counter[str] = Counter()
        self._held_by: Counter[str] = Counter()
        # How many leases hold a snapshot, by (table id, partition id, bucket, snapshot id).
        self._references: dict[tuple[int, int, int, int], int] = {}
        self._held = 0

    # -- what a client asks for

    def acquire(
        self,
        lease_id: str,
        duration_ms: int,
        wanted: SnapshotsByTable,
        now_ms: int,
        monotonic_ms: int,
        exists: Callable[[TableBucket, int], bool],
        by: Caller = NOBODY,
    ) -> Acquired:
        """Leases the existing snapshots until ``duration_ms`` from now.

        If the lease already has a snapshot of a bucket, an existing new snapshot replaces it. An
        empty ``wanted`` renews the lease.

        :raises InvalidLease: the id or duration is wrong, or a limit is exceeded.
        :raises LeaseNotExist: ``wanted`` is empty, and the lease does not exist.
        :raises AuthorizationError: the lease belongs to another user, or the id is one of a round
            and the caller may not tier.
        """
        check_lease_id(lease_id)
        check_duration(lease_id, duration_ms)
        check_buckets_per_call(lease_id, sum(map(len, wanted.values())))
        before = self._found(lease_id, by)
        if not any(wanted.values()):
            return Acquired(_renewed(lease_id, before, duration_ms, now_ms, monotonic_ms), {})
        if before is None:
            check_may_make(lease_id, by)
        held: dict[int, SnapshotsByBucket] = dict(before.held) if before else {}
        unavailable: dict[int, dict[BucketKey, int]] = {}
        tables = set()
        added = 0
        for table_id, snapshots in wanted.items():
            known = held.get(table_id, {})
            mine = dict(known)
            for key, snapshot_id in snapshots.items():
                if exists(bucket_of(table_id, key), snapshot_id):
                    mine[key] = snapshot_id
                else:
                    unavailable.setdefault(table_id, {})[key] = snapshot_id
            if mine != known:
                held[table_id] = mine
                tables.add(table_id)
                added += len(mine) - len(known)
        if not held:
            return Acquired(None, unavailable)
        owner = before.owner if before else by.name
        check_totals(lease_id, len(self._leases) + (before is None), self._held + added)
        if owner:
            owned, buckets = self.places_of(owner)
            check_share(lease_id, owner, owned + (before is None), buckets + added)
        created_ms = before.created_ms if before else now_ms
        after = Lease(
            lease_id,
            created_ms,
            now_ms,
            now_ms + duration_ms,
            held,
            owner,
            monotonic_ms + duration_ms,
        )
        return Acquired(Change(lease_id, before, after, frozenset(tables)), unavailable)

    def renew(
        self,
        lease_id: str,
        duration_ms: int,
        now_ms: int,
        monotonic_ms: int,
        by: Caller = NOBODY,
    ) -> Change:
        """Extends a lease until ``duration_ms`` from now.

        :raises LeaseNotExist: it was dropped, has expired, or never existed.
        :raises InvalidLease: the id or duration is wrong.
        :raises AuthorizationError: it belongs to another user.
        """
        check_lease_id(lease_id)
        check_duration(lease_id, duration_ms)
        before = self._found(lease_id, by)
        return _renewed(lease_id, before, duration_ms, now_ms, monotonic_ms)

    def release(
        self, lease_id: str, buckets: Collection[TableBucket], by: Caller = NOBODY
    ) -> Change | None:
        """Releases some buckets; returns None if the lease has none of them.

        :raises InvalidLease: the id is wrong, or there are too many buckets.
        :raises AuthorizationError: it belongs to another user.
        """
        check_lease_id(lease_id)
        check_buckets_per_call(lease_id, len(buckets))
        lease = self._found(lease_id, by)
        if lease is None:
            return None
        going: dict[int, set[BucketKey]] = {}
        for bucket in buckets:
            going.setdefault(bucket.table_id, set()).add(key_of(bucket))
        return _without(lease, {table_id: keys.__contains__ for table_id, keys in going.items()})

    def drop(self, lease_id: str, by: Caller = NOBODY) -> Change | None:
        """Ends a lease; returns None if it does not exist. Accepts any text as id.

        :raises AuthorizationError: it belongs to another user.
        """
        lease = self._found(lease_id, by)
        return _ended(lease) if lease else None

    # -- what happens by itself

    def expired(self, monotonic_ms: int, uptime_ms: int) -> list[Change]:
        """Ends expired leases.

        :param monotonic_ms: time by the clock that :meth:`acquire` and :meth:`renew` are given.
        :param uptime_ms: time since the coordinator's start, after which none expires at first.
        """
        if uptime_ms < RESTART_GRACE_MS:
            return []
        return [_ended(lease) for lease in self._leases.values() if lease.until_ms <= monotonic_ms]

    def table_dropped(self, table_id: int, partition_id: int | None = None) -> list[Change]:
        """Releases all snapshots of a table, or of one partition."""
        going: dict[int, Callable[[BucketKey], bool]] = {
            table_id: lambda key: partition_id in (None, key[0])
        }
        changes = (_without(lease, going) for lease in self._leases.values())
        return [change for change in changes if change]

    def partitions(self) -> set[tuple[int, int | None]]:
        """The tables and partitions with leased snapshots."""
        return {
            (table_id, None if key[0] == PLAIN else key[0])
            for lease in self._leases.values()
            for table_id, holds in lease.held.items()
            for key in holds
        }

    # -- reading

    def is_leased(self, bucket: TableBucket, snapshot_id: int) -> bool:
        """Whether any lease holds the snapshot."""
        return (bucket.table_id, *key_of(bucket), snapshot_id) in self._references

    def holders(self, table_id: int, key: BucketKey, snapshot_id: int) -> int:
        """How many leases hold the snapshot."""
        return self._references.get((table_id, *key, snapshot_id), 0)

    def places_of(self, owner: str) -> tuple[int, int]:
        """The number of a user's leases, and of the buckets in them."""
        return self._owned[owner], self._held_by[owner]

    def get(self, lease_id: str) -> Lease | None:
        return self._leases.get(lease_id)

    def all(self) -> list[Lease]:
        """All leases, ordered by id."""
        return sorted(self._leases.values(), key=lambda lease: lease.lease_id)

    @property
    def held(self) -> int:
        """The number of buckets in all leases."""
        return self._held

    # -- changing

    def apply(self, changes: Iterable[Change]) -> None:
        """Applies changes."""
        for change in changes:
            before = self._leases.get(change.lease_id)
            # Additions first, so that a kept snapshot is never released in between.
            self._count(change.after, change.tables, 1)
            self._count(before, change.tables, -1)
            for lease, step in ((change.after, 1), (before, -1)):
                if lease is not None:
                    self._owned[lease.owner] += step
            self._owned, self._held_by = +self._owned, +self._held_by
            if change.after is None:
                self._leases.pop(change.lease_id, None)
            else:
                self._leases[change.lease_id] = change.after

    def _count(self, lease: Lease | None, tables: Collection[int], step: int) -> None:
        if lease is None:
            return
        references = self._references
        for table_id in tables:
            holds = lease.held.get(table_id, {})
            self._held += step * len(holds)
            self._held_by[lease.owner] += step * len(holds)
            for (partition, bucket), snapshot_id in holds.items():
                key = (table_id, partition, bucket, snapshot_id)
                count = references.get(key, 0) + step
                if count:
                    references[key] = count
                else:
                    del references[key]

    def _found(self, lease_id: str, by: Caller) -> Lease | None:
        """The lease, if it exists.

        :raises AuthorizationError: it belongs to another user.
        """
        lease = self._leases.get(lease_id)
        if lease is not None and not by.may_change(lease.owner):
            raise AuthorizationError(
                f"lease {lease_id} belongs to another user: only that user and users with the role"
                " admin may change it; `sluice leases` shows whose it is"
            )
        return lease


def _renewed(
    lease_id: str, lease: Lease | None, duration_ms: int, now_ms: int, monotonic_ms: int
) -> Change:
    if lease is None:
        raise LeaseNotExist(
            f"lease {lease_id} does not exist: it was dropped, has expired, or never existed."
            " Its snapshots may have been deleted: acquire snapshots again"
        )
    after = replace(
        lease,
        renewed_ms=now_ms,
        expires_ms=now_ms + duration_ms,
        until_ms=monotonic_ms + duration_ms,
    )
    return Change(lease_id, lease, after, frozenset())


def counted_on(lease: Lease, now_ms: int, monotonic_ms: int) -> Lease:
    """A stored lease whose remaining time runs by the monotonic clock from now on.

    It is at most the time of the last renewal, because the wall clock may have gone back meanwhile.
    """
    left_ms = min(lease.expires_ms - now_ms, lease.expires_ms - lease.renewed_ms)
    return replace(lease, until_ms=monotonic_ms + left_ms)


def _ended(lease: Lease) -> Change:
    return Change(lease.lease_id, lease, None, frozenset(lease.held))


def _without(lease: Lease, going: Mapping[int, Callable[[BucketKey], bool]]) -> Change | None:
    """The lease without the given buckets; None if it has none of them."""
    held = dict(lease.held)
    tables = set()
    for table_id, goes in going.items():
        holds = held.get(table_id, {})
        kept = {key: snapshot_id for key, snapshot_id in holds.items() if not goes(key)}
        if len(kept) == len(holds):
            continue
        tables.add(table_id)
        if kept:
            held[table_id] = kept
        else:
            del held[table_id]
    if not tables:
        return None
    after = replace(lease, held=held) if held else None
    return Change(lease.lease_id, lease, after, frozenset(tables))
