"""KV snapshots that a lease holds, and the description of a lease (docs/fluss/leases.md)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sluice.model.paths import TableBucket, TablePath


@dataclass(frozen=True, slots=True)
class BucketSnapshot:
    """A KV snapshot of one bucket, with all changes of its log below ``log_offset``."""

    bucket: TableBucket
    snapshot_id: int
    log_offset: int


@dataclass(frozen=True, slots=True)
class LeasedTable:
    """What a lease holds of one table. None: not known."""

    table_id: int
    path: TablePath | None
    """None if the table was dropped."""
    buckets: int | None = None
    oldest_snapshot_id: int | None = None
    """The lowest snapshot id that it holds of the table."""
    held_bytes: int | None = None
    """Stored bytes of the leased snapshots."""
    freed_bytes: int | None = None
    """Those that only this lease keeps: the server deletes them once it ends."""


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
    held_bytes: int | None = None
    """Stored bytes of its snapshots; None: not known, as on earlier servers."""
    freed_bytes: int | None = None
    """Those that only this lease keeps: the server deletes them once it ends. None: not known."""
    tables: tuple[LeasedTable, ...] = ()
    """The largest of its tables first; an answer has a limited number of them."""
    table_count: int | None = None
    """All tables that it holds; None: not known."""


def sum_if_known(numbers: Iterable[int | None]) -> int | None:
    """The sum of numbers of leases; None: at least one of them is not known."""
    total = 0
    for number in numbers:
        if number is None:
            return None
        total += number
    return total
