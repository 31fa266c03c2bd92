"""What leases are tested with: a model, a clock of one's own, a store that fails, snapshots."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from sluice.errors import StorageError
from sluice.leases import RESTART_GRACE_MS, Change, Lease
from sluice.model import TableBucket
from sluice.server.coordinator.leases.store import LeaseStore


class Model:
    """Who holds what until when."""

    def __init__(self) -> None:
        self.held: dict[str, dict[TableBucket, int]] = {}
        self.until: dict[str, int] = {}

    def hold(self, lease: str, got: dict[TableBucket, int], until: int) -> None:
        if holds := self.held.get(lease, {}) | got:
            self.held[lease], self.until[lease] = holds, until

    def free(self, lease: str, gone: Callable[[TableBucket], bool]) -> None:
        left = {b: s for b, s in self.held.pop(lease, {}).items() if not gone(b)}
        if left:
            self.held[lease] = left
        else:
            self.until.pop(lease, None)

    def expire(self, now: int, uptime: int) -> None:
        for lease in list(self.held) if uptime >= RESTART_GRACE_MS else ():
            if self.until[lease] <= now:
                self.free(lease, lambda b: True)

    def leased(self, bucket: TableBucket, snapshot: int) -> bool:
        return any(holds.get(bucket) == snapshot for holds in self.held.values())


class ManualClock:
    """Both kinds of time, moved by hand."""

    def __init__(self) -> None:
        self.ms = 1_000_000

    def now_ms(self) -> int:
        return self.ms

    def monotonic_s(self) -> float:
        return self.ms / 1000

    def sleep(self, seconds: float) -> None:
        self.ms += int(seconds * 1000)


class FaultyStore:
    """A real store before which a disk fails.

    ``fault`` of the next write: ``before`` stores nothing, ``after`` has stored it and fails all
    the same. ``unreadable``: nothing can be read either.
    """

    def __init__(self, store: LeaseStore) -> None:
        self.store = store
        self.fault = ""
        self.unreadable = False

    def load(self) -> list[Lease]:
        return self.store.load()

    def read(self, lease_id: str) -> Lease | None:
        if self.unreadable:
            raise StorageError("metadata: disk I/O error")
        return self.store.read(lease_id)

    def write(self, changes: Sequence[Change]) -> None:
        fault, self.fault = self.fault, ""
        if fault != "before":
            self.store.write(changes)
        if fault:
            raise StorageError("metadata: disk I/O error")


class MemorySnapshots:
    """KV snapshots of buckets, the newest of each retained, the others deleted unless leased."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.there: dict[TableBucket, list[int]] = {}
        self.is_leased: Callable[[TableBucket, int], bool] = lambda _bucket, _snapshot_id: False

    def exists(self, bucket: TableBucket, snapshot_id: int) -> bool:
        with self.lock:
            return snapshot_id in self.there.get(bucket, ())

    def complete(self, bucket: TableBucket) -> int:
        """A new snapshot of a bucket; its id."""
        with self.lock:
            known = self.there.setdefault(bucket, [])
            known.append(known[-1] + 1 if known else 0)
            return known[-1]

    def retain(self) -> int:
        """Deletes what may be deleted; how many."""
        deleted = 0
        with self.lock:
            for bucket, known in self.there.items():
                kept = [s for s in known[:-1] if self.is_leased(bucket, s)] + known[-1:]
                deleted += len(known) - len(kept)
                self.there[bucket] = kept
        return deleted

    def drop_table(self, table_id: int) -> None:
        with self.lock:
            for bucket in [b for b in self.there if b.table_id == table_id]:
                del self.there[bucket]
