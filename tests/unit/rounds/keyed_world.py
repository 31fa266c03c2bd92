"""A table with a primary key in a model cluster and a model lake, its changes, rounds on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from sluice.model import (
    BucketSnapshot,
    ChangeType,
    Claim,
    Partition,
    TableBucket,
    TableInfo,
    TablePath,
)
from sluice.model import types as t
from sluice.rounds.commit.options import RoundOptions
from sluice.rounds.plan.keyed_options import KeyedRoundOptions
from sluice.rounds.records.result import RoundResult
from sluice.rounds.repair.diagnose import diagnose, read_table_state
from sluice.rounds.repair.request import RepairRequest
from sluice.rounds.upkeep.compaction import DEFAULT_COMPACTIONS, CompactionOptions
from sluice.rounds.values.attempt import RoundPorts
from sluice.rounds.values.limits import LookupBudget, RoundLimits
from sluice.rounds.values.ports import SplitRunner, SplitWriterFactory
from sluice.rounds.values.types import OffsetRange, RepairMode
from tests.support.models.any_round import any_round
from tests.support.models.memory_cluster import MemoryCluster
from tests.support.models.memory_lake import MemoryLake, MemoryLakeTable
from tests.support.models.tables import table_info
from tests.unit.rounds.in_turn import in_turn

FULL, WAL = "FULL", "WAL"
PATH = TablePath("db", "t")
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("n", pa.int64())])

Change = tuple[ChangeType, int, int | None]
Values = tuple[str, ...]


def keyed_info(*, partitioned: bool = False) -> TableInfo:
    columns = {"id": t.BIGINT.not_null(), "n": t.BIGINT}
    if not partitioned:
        return table_info(columns, path=PATH, primary_key=("id",), bucket_keys=("id",), buckets=2)
    return table_info(
        {**columns, "day": t.STRING.not_null()},
        path=PATH,
        primary_key=("day", "id"),
        partition_keys=("day",),
        bucket_keys=("id",),
    )


@dataclass
class KeyedWorld:
    """What the table holds by bucket, beside its changelog, and the lake that rounds make of it."""

    cluster: MemoryCluster = field(default_factory=lambda: MemoryCluster(keyed_info()))
    image: str = FULL
    lake: MemoryLake = field(default_factory=MemoryLake)
    held: dict[TableBucket, dict[int, int | None]] = field(default_factory=dict)
    leased: dict[TableBucket, BucketSnapshot] = field(default_factory=dict)
    limits: RoundLimits | None = None
    memory_bytes: int = 1 << 20
    spill_dir: str = ""
    compaction: CompactionOptions = DEFAULT_COMPACTIONS
    lookups: LookupBudget = field(default_factory=LookupBudget)
    attempts: int = 0

    def bucket(self, number: int = 0, partition_id: int | None = None) -> TableBucket:
        assert self.cluster.info is not None
        return TableBucket(self.cluster.info.table_id, partition_id, number)

    def put(self, bucket: TableBucket, **values: int | None) -> None:
        """One batch of upserts, as ``k7=1``: key 7 becomes 1."""
        self.change(bucket, [(int(name[1:]), n) for name, n in values.items()])

    def delete(self, bucket: TableBucket, *keys: int) -> None:
        """One batch of deletes; of a key that is not there the changelog says nothing."""
        rows = self.held.setdefault(bucket, {})
        self._append(
            bucket, [(ChangeType.DELETE, key, rows.pop(key)) for key in keys if key in rows]
        )

    def change(self, bucket: TableBucket, puts: Sequence[tuple[int, int | None]]) -> None:
        rows, changes = self.held.setdefault(bucket, {}), list[Change]()
        for key, n in puts:
            if self.image == WAL:
                changes.append((ChangeType.UPDATE_AFTER, key, n))
            elif key in rows:
                changes.append((ChangeType.UPDATE_BEFORE, key, rows[key]))
                changes.append((ChangeType.UPDATE_AFTER, key, n))
            else:
                changes.append((ChangeType.INSERT, key, n))
            rows[key] = n
        self._append(bucket, changes)

    def _append(self, bucket: TableBucket, changes: Sequence[Change]) -> None:
        kinds = pa.array([int(kind) for kind, _, _ in changes], pa.uint8())
        batch = self._batch(bucket, [(key, n) for _, key, n in changes])
        self.cluster.append(bucket, batch, timestamp_ms=5000, change_types=kinds)

    def _batch(self, bucket: TableBucket, rows: Sequence[tuple[int, int | None]]) -> pa.RecordBatch:
        columns = {
            "id": pa.array([key for key, _ in rows], pa.int64()),
            "n": pa.array([n for _, n in rows], pa.int64()),
        }
        if bucket.partition_id is not None:
            columns["day"] = pa.array([self.values(bucket)[0]] * len(rows), pa.string())
        return pa.RecordBatch.from_pydict(columns)

    def values(self, bucket: TableBucket) -> Values:
        found = self.cluster.partitions_by_id.get(bucket.partition_id or -1)
        return found.values if found else ()

    def snapshot(self, bucket: TableBucket) -> BucketSnapshot:
        """The server takes a KV snapshot, and the next rounds hold it."""
        rows = sorted(self.held.get(bucket, {}).items())
        self.leased[bucket] = self.cluster.put_snapshot(bucket, self._batch(bucket, rows))
        return self.leased[bucket]

    def drop(self, partition: Partition) -> None:
        self.cluster.drop_partition(partition.partition_id)
        for bucket in [b for b in self.held if b.partition_id == partition.partition_id]:
            del self.held[bucket]
            self.cluster.logs.pop(bucket, None)
            self.leased.pop(bucket, None)

    def round(
        self,
        claim: Claim | None = None,
        repair_mode: RepairMode | None = None,
        unreadable: OffsetRange | None = None,
    ) -> RoundResult:
        self.attempts += 1
        accepted = None
        if repair_mode is not None:
            assert self.cluster.info is not None
            seen = read_table_state(self.cluster.info.path, self.cluster, self.lake)
            actions = diagnose(seen, self.cluster).actions
            accepted = next((one for one in actions if one.name == repair_mode.value), None)
        lookups, leased = self.lookups, dict(self.leased)
        keyed = KeyedRoundOptions(leased, self.memory_bytes, self.spill_dir, lookups)
        return any_round(
            claim or self.cluster.begin_round(),
            RoundPorts(self.cluster, self.lake, self.runner),
            str(self.attempts),
            RepairRequest(repair_mode, unreadable, accepted) if repair_mode else None,
            RoundOptions(self.limits, keyed, compaction=self.compaction),
        )

    def runner(self, info: TableInfo, writers: SplitWriterFactory) -> SplitRunner:
        return in_turn(self.cluster, writers)

    @property
    def table(self) -> MemoryLakeTable:
        assert self.cluster.info is not None
        return self.lake.tables[self.cluster.info.path]

    def in_lake(self) -> dict[tuple[Values, int], int | None]:
        """Value by partition and key, as a reader of the lake sees it."""
        rows = self.table.keyed_rows()
        return {(values, row["id"]): row["n"] for (values, _), row in rows.items()}

    def expected(self) -> dict[tuple[Values, int], int | None]:
        return {
            (self.values(bucket), key): n
            for bucket, rows in self.held.items()
            for key, n in rows.items()
        }

    def assert_equal(self) -> None:
        """The lake is what the table is, and Fluss knows the lake's snapshot."""
        assert self.in_lake() == self.expected()
        assert self.cluster.info is not None
        registered = self.cluster.lake_snapshot(self.cluster.info.path)
        newest = self.table.newest_tiering_snapshot()
        assert registered is not None
        assert newest is not None
        assert registered.snapshot_id == newest.snapshot_id == self.table.tagged
        ends = {bucket: log[-1].next_offset for bucket, log in self.cluster.logs.items() if log}
        assert {b: registered.offsets[b] for b in ends} == ends
