"""All leases of a coordinator: each call answers what would change, and changes nothing.

Its owner stores the change and then applies it, which cannot fail: so what is stored and what is
known never part. Differences from Fluss, each on purpose: a snapshot that does not exist is not
held but answered as unavailable; renewing a lease that is not there is an error, whether by the
call for it or by Fluss's own way (acquire with nothing), so that a drop is final; a lease that
holds nothing does not exist.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from sluice.errors import LeaseNotExist
from sluice.leases.limits import (
    RESTART_GRACE_MS,
    check_buckets_per_call,
    check_duration,
    check_lease_id,
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
from sluice.model import TableBucket


@dataclass(frozen=True, slots=True)
class Acquired:
    """What an acquire would do, and the snapshots that it could not hold."""

    change: Change | None
    unavailable: SnapshotsByTable


class Leases:
    """The leases there are. Not thread-safe: its owner holds a lock while anything is changed.

    :meth:`is_leased` may be asked at any time by another thread: while a change is applied it never
    denies a snapshot that is held before and after it.
    """

    def __init__(self) -> None:
        self._leases: dict[str, Lease] = {}
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
        exists: Callable[[TableBucket, int], bool],
    ) -> Acquired:
        """Holds the snapshots that exist, until ``duration_ms`` from now.

        A bucket that the lease holds already gets the new snapshot in place of the old one; if the
        new one does not exist, the old one stays. Nothing wanted renews the lease.

        :raises InvalidLease: a wrong id or duration, or too much. :raises LeaseNotExist: nothing is
            wanted of a lease that is not there.
        """
        check_lease_id(lease_id)
        check_duration(lease_id, duration_ms)
        check_buckets_per_call(lease_id, sum(map(len, wanted.values())))
        before = self._leases.get(lease_id)
        if not any(wanted.values()):
            return Acquired(self._renewed(lease_id, duration_ms, now_ms), {})
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
        check_totals(lease_id, len(self._leases) + (before is None), self._held + added)
        created_ms = before.created_ms if before else now_ms
        after = Lease(lease_id, created_ms, now_ms, now_ms + duration_ms, held)
        return Acquired(Change(lease_id, before, after, frozenset(tables)), unavailable)

    def renew(self, lease_id: str, duration_ms: int, now_ms: int) -> Change:
        """Lets a lease last until ``duration_ms`` from now.

        :raises LeaseNotExist: it was dropped, has expired, or never was. :raises InvalidLease:
        """
        check_lease_id(lease_id)
        check_duration(lease_id, duration_ms)
        return self._renewed(lease_id, duration_ms, now_ms)

    def release(self, lease_id: str, buckets: Collection[TableBucket]) -> Change | None:
        """Lets go of some buckets; None if the lease holds none of them.

        :raises InvalidLease: a wrong id, or too many buckets.
        """
        check_lease_id(lease_id)
        check_buckets_per_call(lease_id, len(buckets))
        lease = self._leases.get(lease_id)
        if lease is None:
            return None
        going: dict[int, set[BucketKey]] = {}
        for bucket in buckets:
            going.setdefault(bucket.table_id, set()).add(key_of(bucket))
        return _without(lease, {table_id: keys.__contains__ for table_id, keys in going.items()})

    def drop(self, lease_id: str) -> Change | None:
        """Ends a lease; None if there is none. Any text may be given: nothing is made by it."""
        lease = self._leases.get(lease_id)
        return _ended(lease) if lease else None

    # -- what happens by itself

    def expired(self, now_ms: int, uptime_ms: int) -> list[Change]:
        """Ends the leases whose time has run out.

        :param uptime_ms: since the coordinator was started: it takes none away at first.
        """
        if uptime_ms < RESTART_GRACE_MS:
            return []
        return [_ended(lease) for lease in self._leases.values() if lease.expires_ms <= now_ms]

    def table_dropped(self, table_id: int, partition_id: int | None = None) -> list[Change]:
        """Lets go of everything of a table, or of one partition of it."""
        going: dict[int, Callable[[BucketKey], bool]] = {
            table_id: lambda key: partition_id in (None, key[0])
        }
        changes = (_without(lease, going) for lease in self._leases.values())
        return [change for change in changes if change]

    def partitions(self) -> set[tuple[int, int | None]]:
        """Tables, and partitions of them, of which anything is held."""
        return {
            (table_id, None if key[0] == PLAIN else key[0])
            for lease in self._leases.values()
            for table_id, holds in lease.held.items()
            for key in holds
        }

    # -- reading

    def is_leased(self, bucket: TableBucket, snapshot_id: int) -> bool:
        """Whether any lease holds that snapshot."""
        return (bucket.table_id, *key_of(bucket), snapshot_id) in self._references

    def get(self, lease_id: str) -> Lease | None:
        return self._leases.get(lease_id)

    def all(self) -> list[Lease]:
        """Every lease, by id."""
        return sorted(self._leases.values(), key=lambda lease: lease.lease_id)

    @property
    def held(self) -> int:
        """Buckets held by all leases together."""
        return self._held

    # -- changing

    def apply(self, changes: Iterable[Change]) -> None:
        """Makes changes come true."""
        for change in changes:
            # What is new first: nothing that stays is let go of even for a moment.
            self._count(change.after, change.tables, 1)
            self._count(self._leases.get(change.lease_id), change.tables, -1)
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
            for (partition, bucket), snapshot_id in holds.items():
                key = (table_id, partition, bucket, snapshot_id)
                count = references.get(key, 0) + step
                if count:
                    references[key] = count
                else:
                    del references[key]

    def _renewed(self, lease_id: str, duration_ms: int, now_ms: int) -> Change:
        lease = self._leases.get(lease_id)
        if lease is None:
            raise LeaseNotExist(
                f"lease {lease_id} does not exist: it was dropped or has expired, or never was."
                " Its snapshots may be gone: acquire them again"
            )
        after = replace(lease, renewed_ms=now_ms, expires_ms=now_ms + duration_ms)
        return Change(lease_id, lease, after, frozenset())


def _ended(lease: Lease) -> Change:
    return Change(lease.lease_id, lease, None, frozenset(lease.held))


def _without(lease: Lease, going: Mapping[int, Callable[[BucketKey], bool]]) -> Change | None:
    """The lease without what goes of each table; None if it holds nothing of that."""
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
