"""KV snapshots that a lease holds, and the description of a lease (docs/fluss/leases.md)."""

from __future__ import annotations

from dataclasses import dataclass

from sluice.model.paths import TableBucket, TablePath


@dataclass(frozen=True, slots=True)
class BucketSnapshot:
    """A KV snapshot of one bucket, with all changes of its log below ``log_offset``."""

    bucket: TableBucket
    snapshot_id: int
    log_offset: int


@dataclass(frozen=True, slots=True)
class LeaseInfo:
    """One lease as the coordinator lists it. Times are epoch milliseconds of its own clock."""

    lease_id: str
    buckets: int
    created_ms: int
    renewed_ms: int
    expires_ms: int
    now_ms: int
    """When the coordinator created the list."""
    oldest: TableBucket
    """The bucket with the lowest snapshot id of the lease."""
    oldest_snapshot_id: int
    oldest_path: TablePath | None
    """None if the table was dropped."""
    owner: str = ""
    """The user who made it; empty if the server does not know one."""
