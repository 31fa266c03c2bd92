"""One table in a model cluster and a model lake, and rounds on them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pyarrow as pa
import pytest

from sluice.model import Claim, Partition, TableBucket, TableInfo
from sluice.model import types as t
from sluice.rounds.records.result import RoundResult
from sluice.rounds.round.round import run_round
from sluice.rounds.values.attempt import RoundPorts
from sluice.rounds.values.ports import SplitRunner, SplitWriterFactory
from tests.support.models.memory_cluster import MemoryCluster
from tests.support.models.memory_lake import MemoryLake, MemoryLakeTable
from tests.support.models.tables import table_info
from tests.unit.rounds.in_turn import in_turn


@dataclass
class World:
    """A table with two buckets, its cluster, its lake."""

    cluster: MemoryCluster
    lake: MemoryLake = field(default_factory=MemoryLake)
    attempts: int = 0

    def bucket(self, number: int, partition_id: int | None = None) -> TableBucket:
        assert self.cluster.info is not None
        return TableBucket(self.cluster.info.table_id, partition_id, number)

    def append(self, bucket: int, rows: int, partition_id: int | None = None) -> None:
        batch = pa.RecordBatch.from_pydict({"a": pa.array(range(rows), pa.int64())})
        self.cluster.append(self.bucket(bucket, partition_id), batch, timestamp_ms=1000 + rows)

    def round(self, claim: Claim | None = None) -> RoundResult:
        self.attempts += 1
        return run_round(
            claim or self.cluster.begin_round(),
            RoundPorts(self.cluster, self.lake, self.runner),
            str(self.attempts),
        )

    def runner(self, info: TableInfo, writers: SplitWriterFactory) -> SplitRunner:
        return in_turn(self.cluster, writers)

    @property
    def table(self) -> MemoryLakeTable:
        assert self.cluster.info is not None
        return self.lake.tables[self.cluster.info.path]

    def offsets_in_lake(self, bucket: int = 0) -> list[int]:
        return [row[2] for row in self.table.rows() if row[1] == bucket]

    def assert_exactly_once(self) -> None:
        """Every row of every log is in the lake once, and Fluss says so."""
        values: dict[int | None, tuple[str, ...]] = {None: ()}
        values |= {n: p.values for n, p in self.cluster.partitions_by_id.items()}
        expected = [
            (values.get(bucket.partition_id, ()), bucket.bucket, records.base_offset + i)
            for bucket, log in self.cluster.logs.items()
            for records in log
            for i in range(records.batch.num_rows)
        ]
        assert self.table.rows() == sorted(expected)
        assert self.cluster.info is not None
        registered = self.cluster.lake_snapshot(self.cluster.info.path)
        assert registered is not None
        ends = {bucket: log[-1].next_offset for bucket, log in self.cluster.logs.items() if log}
        assert registered.offsets == ends
        newest = self.table.newest_tiering_snapshot()
        assert newest is not None
        assert registered.snapshot_id == newest.snapshot_id == self.table.tagged


@pytest.fixture
def world() -> World:
    return World(MemoryCluster(table_info({"a": t.BIGINT}, buckets=2)))


@pytest.fixture
def rolled_back(world: World) -> World:
    """Three rounds, and the lake is back at the first one."""
    world.append(0, 3)
    first = world.round()
    world.append(0, 2)
    world.append(1, 4)
    world.round()
    world.append(1, 1)
    world.round()
    world.table.roll_back_to(first.lake_snapshot_id)
    return world


@pytest.fixture
def partitioned() -> World:
    info = table_info({"a": t.BIGINT, "day": t.STRING}, partition_keys=("day",))
    return World(MemoryCluster(info, [Partition(5, ("mon",)), Partition(6, ("tue",))]))


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Callable[[], None]], None]:
    """Runs something once at a step: ``at("copy.before", drop)``."""
    waiting: dict[str, Callable[[], None]] = {}

    def failpoint(name: str) -> None:
        waiting.pop(name.removeprefix("round."), lambda: None)()

    monkeypatch.setattr("sluice.rounds.values.phases.failpoint", failpoint)
    return waiting.__setitem__
