"""Idle tables of a real Fluss: found without the lake, finished together by acquire_lease."""

from __future__ import annotations

import shutil
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sluice.client import Client, connect
from sluice.client.statuses.status_table import PATH
from sluice.client.statuses.system_table import SystemTable
from sluice.config import ClientConfig
from sluice.formats.types.types import schema_from_arrow
from sluice.model import Claim, Column, TableBucket, TableDescriptor, TablePath, TieringRound
from sluice.rounds.records.plan_file import claim_of
from sluice.statuses import full_rounds
from sluice_airflow.acquire.acquire import acquire
from sluice_airflow.claims.claims import ClaimedTable
from sluice_airflow.config.connection import FlussConnection
from tests.real_fluss.place import DUE_S, LAKE, PATIENCE_MS, make_status_tables
from tests.support.fluss.real_fluss import RealFluss
from tests.support.fluss.table_creation import create_table

pytestmark = [pytest.mark.real_fluss, pytest.mark.timeout(600)]

ROWS = pa.table({"id": pa.array(range(3), pa.int64()), "day": ["a"] * 3})


@dataclass
class Run:
    """Tables of one database, and the task acquire_lease of runs that tier them."""

    fluss: RealFluss
    client: Client
    database: str
    work: Path
    idle: list[Claim] = field(default_factory=list)
    rounds: int = 0

    def create(self, name: str, **descriptor: Any) -> TablePath:
        path = TablePath(self.database, name)
        schema = schema_from_arrow(ROWS.schema)
        if keys := descriptor.pop("keys", ()):
            columns = tuple(
                Column(c.name, c.data_type.not_null() if c.name in keys else c.data_type, at)
                for at, c in enumerate(schema.columns)
            )
            schema = type(schema)(columns, keys, len(columns) - 1)
        described = TableDescriptor(schema, bucket_count=2, properties=LAKE, **descriptor)
        create_table(self.client, path, described, self.fluss.warehouse)
        return path

    def write(self, path: TablePath, day: str = "a") -> None:
        rows = ROWS.set_column(1, "day", pa.array([day] * 3))
        info = self.client.admin.table_info(path)
        writing: Any = self.client.kv_writer if info.has_primary_key else self.client.log_writer
        with writing(path) as writer:
            (writer.upsert if info.has_primary_key else writer.write)(rows)

    def tier(self, claim: Claim) -> None:
        """Both commits of a round, of which Fluss sees the second, and its report."""
        info, admin = self.client.admin.table_info(claim.path), self.client.admin
        ids: list[int | None] = [None]
        if info.is_partitioned:
            ids = [partition.partition_id for partition in admin.partitions_of(info)]
        offsets = {
            TableBucket(info.table_id, one, bucket): end
            for one in ids
            for bucket, end in admin.list_offsets(claim.path, None, one).items()
        }
        self.rounds += 1
        tiering = self.client.tiering
        file = tiering.prepare_lake_snapshot(claim.table_id, claim.path, offsets)
        tiering.commit_lake_snapshot(claim, self.rounds, file, offsets, {}, -1)
        tiering.finished(claim)

    def acquire(self, *paths: TablePath) -> tuple[dict[str, int | None], set[str]]:
        """Until each table was handed out once: the rows that wait, and the idle tables."""
        seen: dict[str, int | None] = {}
        idle: set[str] = set()
        deadline = time.monotonic() + DUE_S
        while len(seen) + len(idle) < len(paths):
            assert time.monotonic() < deadline, f"only {sorted([*seen, *idle])} were handed out"
            left = [str(p) for p in paths if p.table not in {*seen, *idle}]
            for entry in self._acquire(left, lambda claim: idle.add(claim.path.table)):
                seen[entry["table"].partition(".")[2]] = entry.get("rows")
                self.tier(claim_of(entry))
            time.sleep(0.1)
        return seen, idle

    def _acquire(self, tables: list[str], on_idle: Callable[[Claim], None]) -> list[ClaimedTable]:
        connection = FlussConnection(self.fluss.bootstrap, work_uri=self.work.as_uri())
        job = f"sluice-{uuid.uuid4()}"
        with connect(self.client.config) as client:
            return acquire(client, connection, job, tables, 100, on_idle=on_idle)


@pytest.fixture
def run(real_fluss: RealFluss, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    # A period of complete rounds may else begin within the test.
    monkeypatch.setattr(full_rounds, "FULL_ROUND_MS", 1 << 62)
    database = f"idle_{uuid.uuid4().hex[:8]}"
    config = ClientConfig(real_fluss.bootstrap, tiering_status_timeout_ms=PATIENCE_MS)
    with connect(config) as client:
        make_status_tables(client)
        client.admin.create_database(database)
        yield Run(real_fluss, client, database, tmp_path / "work")
        client.admin.drop_database(database, cascade=True)


def test_tables_are_idle_from_their_round_to_their_next_row(run: Run) -> None:
    log, empty = run.create("log"), run.create("empty")
    keyed = run.create("keyed", keys=("id",))
    days = run.create("days", partition_keys=("day",))
    paths = (log, empty, keyed, days)
    for path in (log, keyed):
        run.write(path)
    run.client.admin.create_partition(days, {"day": "a"})
    run.write(days)
    assert run.acquire(*paths) == ({"log": 3, "empty": 0, "keyed": 3, "days": 3}, set())
    before = {path: run.client.statuses.list(path)[0] for path in paths}
    assert run.acquire(*paths) == ({}, {"log", "empty", "keyed", "days"})
    for path in paths:
        [status] = run.client.statuses.list(path)
        assert status.failures == 0
        assert (status.rounds or 0) > (before[path].rounds or 0)
        assert (status.last_tiered_ms or 0) > (before[path].last_tiered_ms or 0)
        [last, *_] = run.client.statuses.history(path)
        assert (last.outcome, last.rows_written) == ("nothing_new", 0)
        assert last.lake_snapshot_id == status.lake_snapshot_id
        assert (last.worker or "").startswith("sluice-")

    run.client.admin.create_partition(days, {"day": "b"})
    assert run.acquire(days) == ({}, {"days"}), "the new partition has no row"
    run.write(days, "b")
    run.write(keyed)
    assert run.acquire(*paths) == ({"days": 3, "keyed": 6}, {"log", "empty"})
    run.client.admin.drop_partition(days, {"day": "a"})
    assert run.acquire(days) == ({}, {"days"})


def test_a_table_that_was_dropped_or_is_no_longer_tiered_is_not_idle(run: Run) -> None:
    paths = kept, gone, again, off = [run.create(name) for name in ("a", "b", "c", "d")]
    run.acquire(*paths)
    claims: list[Claim] = []
    deadline = time.monotonic() + DUE_S
    with run.client.tiering.claim_session(paths) as session:
        while len(claims) < len(paths):
            assert time.monotonic() < deadline
            claims += session.take(len(paths) - len(claims))
    for path in (gone, again):
        run.client.admin.drop_table(path)
    shutil.rmtree(run.fluss.warehouse / run.database / "c")
    run.create("c")
    run.client.admin.set_options(off, {"table.datalake.enabled": "false"})
    with run.client.idle_check() as check:
        found = {claim.path: waiting.is_idle for claim, waiting in check.check(claims).items()}
    assert found == {kept: True, gone: False, again: False, off: False}
    errors = run.client.tiering.finished_many([(claim, TieringRound()) for claim in claims])
    assert [claim.path for claim, error in errors.items() if error is None] == [kept]


@pytest.mark.slow
def test_statuses_of_many_idle_tables_are_few_writes(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [run.create(f"t{number}") for number in range(12)]
    run.acquire(*paths)
    writes = []
    upsert = SystemTable.upsert

    def counted(table: SystemTable[Any], rows: list[Any], *more: Any) -> None:
        if table.layout.path == PATH:
            writes.append(len(rows))
        upsert(table, rows, *more)

    monkeypatch.setattr(SystemTable, "upsert", counted)
    time.sleep(3)  # Fluss's timers make all of them due
    assert run.acquire(*paths) == ({}, {path.table for path in paths})
    assert sum(writes) == 2 * len(paths), "a claim and an end of each"
    assert len(writes) <= 8
