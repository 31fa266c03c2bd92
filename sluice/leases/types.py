"""The value types of leases. A lease is immutable: each change makes a new one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sluice.model import TableBucket

PLAIN = -1
"""Stands for the partition id in a table without partitions."""

BucketKey = tuple[int, int]
"""Partition id (or PLAIN) and bucket."""

SnapshotsByBucket = Mapping[BucketKey, int]
"""The snapshot id of each bucket of one table."""

SnapshotsByTable = Mapping[int, SnapshotsByBucket]
"""The snapshots of each table, by table id."""


def key_of(bucket: TableBucket) -> BucketKey:
    return (PLAIN if bucket.partition_id is None else bucket.partition_id), bucket.bucket


def bucket_of(table_id: int, key: BucketKey) -> TableBucket:
    return TableBucket(table_id, None if key[0] == PLAIN else key[0], key[1])


@dataclass(frozen=True, slots=True)
class Lease:
    """A lease with its snapshots. Times are epoch milliseconds, with one exception.

    ``until_ms`` counts by the coordinator's monotonic clock. It decides when the lease expires, so
    that a changed wall clock ends no lease and keeps none. It is not stored.
    """

    lease_id: str
    created_ms: int
    renewed_ms: int
    """When it was last acquired or renewed."""
    expires_ms: int
    """When it expires, if the wall clock is not changed until then."""
    held: SnapshotsByTable
    """Every table has at least one bucket."""
    owner: str = ""
    """The user who made it; empty: nobody in particular."""
    until_ms: int = field(default=0, compare=False)

    @property
    def buckets(self) -> int:
        return sum(map(len, self.held.values()))

    def holds(self, table_id: int, key: BucketKey, snapshot_id: int) -> bool:
        return self.held.get(table_id, _NOTHING).get(key) == snapshot_id

    def oldest(self) -> tuple[int, int, BucketKey]:
        """The lowest snapshot id, with its table id and bucket."""
        return min(
            (snapshot_id, table_id, key)
            for table_id, holds in self.held.items()
            for key, snapshot_id in holds.items()
        )


_NOTHING: SnapshotsByBucket = {}


@dataclass(frozen=True, slots=True)
class Change:
    """A change of one lease, to be stored and then applied."""

    lease_id: str
    before: Lease | None
    after: Lease | None
    """The lease after the change; None ends it."""
    tables: frozenset[int]
    """The ids of tables whose leased snapshots change."""
