"""A simulated table with a primary key: random changes, and its rows at each log offset."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

from sluice.model import BucketSnapshot, ChangeType, TableBucket, TableInfo
from sluice.rounds.upkeep.compaction import NO_COMPACTIONS, CompactionOptions
from sluice.rounds.values.limits import LookupBudget
from sluice.rounds.values.types import Split, StartMode
from tests.simulation.fluss.cluster import FlussTable
from tests.support.models.memory_cluster import MemorySnapshot

_KEYS = 4
"""Keys per bucket; few, so that changes often hit the same key."""
_DELETES = 0.3

Change = tuple[int, ChangeType, int, int]
"""Log offset, change type, key, value."""
Rows = dict[int, int]
"""Value by key."""


def draw_budget(seed: int) -> LookupBudget:
    """Draws how much the rounds of a seed may read to find positions. A row has 8 bytes."""
    rng = random.Random(f"look-ups {seed}")
    kind = rng.random()
    if kind < 0.15:
        return LookupBudget(bytes_max=rng.choice((16, 64, 160)))
    if kind < 0.3:
        return LookupBudget(files_max=rng.randint(1, 3))
    return LookupBudget(bytes_max=0) if kind < 0.4 else LookupBudget()


def draw_rounds_without(seed: int) -> float:
    """Draws how many rounds of a seed look up nothing, as if others had made them."""
    rng = random.Random(f"no look-ups {seed}")
    return rng.choice((0.3, 0.6)) if rng.random() < 0.4 else 0.0


def draw_compactions(seed: int) -> CompactionOptions:
    """Draws how the rounds of a seed compact their tables."""
    rng = random.Random(f"compaction {seed}")
    if rng.random() < 0.3:
        return NO_COMPACTIONS
    bytes_max = rng.choice((48, 160, 1 << 20, 1 << 20))
    return CompactionOptions(True, bytes_max, files_min=rng.randint(2, 5))


def replayed(changes: list[Change], end: int) -> Rows:
    """The rows after all changes below that offset."""
    found: Rows = {}
    for offset, kind, key, value in changes:
        if offset >= end:
            break
        if kind in (ChangeType.INSERT, ChangeType.UPDATE_AFTER):
            found[key] = value
        elif kind is ChangeType.DELETE:
            del found[key]
    return found


class KeyedFlussTable(FlussTable):
    """One table id. Whether its changelog contains old rows depends on the id."""

    def __init__(self, info: TableInfo) -> None:
        super().__init__(info)
        self._rng = random.Random(info.table_id)
        self._is_full = info.table_id % 2 == 0
        self._values = 0
        self.history: dict[TableBucket, list[Change]] = {}
        """Every change ever made, including those whose log was deleted."""

    def add(self, bucket: TableBucket, rows: int, now_ms: int) -> None:
        """Appends one batch of changes to that number of keys; an empty one uses one offset."""
        base, history = self.end(bucket), self.history.setdefault(bucket, [])
        held = self.rows_at(bucket, base)
        changes: list[tuple[ChangeType, int, int]] = []
        for _ in range(rows):
            key = self._rng.randrange(_KEYS) * self.described.bucket_count + bucket.bucket
            if self._rng.random() < _DELETES:
                if key in held:
                    changes.append((ChangeType.DELETE, key, held.pop(key)))
                continue
            self._values += 1
            if not self._is_full:
                changes.append((ChangeType.UPDATE_AFTER, key, self._values))
            elif key in held:
                changes.append((ChangeType.UPDATE_BEFORE, key, held[key]))
                changes.append((ChangeType.UPDATE_AFTER, key, self._values))
            else:
                changes.append((ChangeType.INSERT, key, self._values))
            held[key] = self._values
        kinds = pa.array([int(kind) for kind, _, _ in changes], pa.uint8())
        batch = self._batch(bucket, [(key, value) for _, key, value in changes])
        self.append(bucket, batch, now_ms, kinds)
        history += [(base + i, *change) for i, change in enumerate(changes)]
        self.acknowledged.setdefault(bucket, []).extend(range(base, base + len(changes)))

    def rows_at(self, bucket: TableBucket, end: int) -> Rows:
        """The bucket's rows at that log offset."""
        return replayed(self.history.get(bucket, []), end)

    def lease(self) -> dict[TableBucket, BucketSnapshot]:
        """Takes KV snapshots of some buckets and leases them to the caller."""
        chosen = [b for b in self.buckets() if self.end(b) and self._rng.random() < 0.6]
        return {bucket: self.put_snapshot(bucket, self._rows_now(bucket)) for bucket in chosen}

    @contextmanager
    def rows(self, split: Split) -> Iterator[MemorySnapshot]:
        """The rows of the split's snapshot, or the current rows.

        :raises PartitionNotExists: it was dropped.
        """
        self.check_exists(split.bucket)
        assert split.keyed is not None
        if split.keyed.start_mode is StartMode.SCAN:
            yield MemorySnapshot(self.end(split.bucket), self._rows_now(split.bucket), "scanned")
            return
        with super().rows(split) as found:
            yield found

    def _rows_now(self, bucket: TableBucket) -> pa.RecordBatch:
        return self._batch(bucket, sorted(self.rows_at(bucket, self.end(bucket)).items()))

    def _batch(self, bucket: TableBucket, rows: list[tuple[int, int]]) -> pa.RecordBatch:
        columns = {
            "a": pa.array([key for key, _ in rows], pa.int64()),
            "n": pa.array([value for _, value in rows], pa.int64()),
        }
        if bucket.partition_id is not None:
            [day] = self.partitions_by_id[bucket.partition_id].values
            columns["day"] = pa.array([day] * len(rows), pa.string())
        return pa.RecordBatch.from_pydict(columns)
