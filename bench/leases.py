"""A lease on 100,000 buckets of a server: acquired over gRPC, stored, read again at a start."""

from __future__ import annotations

import random
import sqlite3
import tempfile
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from bench.measure import Line, report
from sluice.client import Client, connect
from sluice.clock import SystemClock
from sluice.config import ServerConfig
from sluice.model import (
    BucketSnapshot,
    Column,
    Schema,
    TableBucket,
    TableDescriptor,
    TablePath,
)
from sluice.model.types import BIGINT
from sluice.server.cluster import EmbeddedCluster
from sluice.server.coordinator.leases import KvSnapshotLeases
from sluice.server.coordinator.leases_store import SqliteLeaseStore
from sluice.server.storage.database import Database

TABLES, BUCKETS = 25, 4_000
LEASE = "sluice-c6ef648e-97e3-5f2e-95d1-8912a7000d46"
HOUR_MS = 3_600_000
GOAL_S = 1.0
GOAL_BYTES = 1_000_000
TRIES = 3


def run(rows: int) -> None:
    """``rows`` has no say here: the goal is 100,000 buckets in a second and a megabyte."""
    del rows
    with tempfile.TemporaryDirectory() as folder:
        snapshots = _prepare(Path(folder))
        before = _size(Path(folder))
        acquire_s = _acquire_s(folder, snapshots)
        stored = _size(Path(folder)) - before
        restart_s = min(_restart_s(Path(folder)) for _ in range(TRIES))
    goal = "the goal of 1 s"
    report(Line("lease_acquire_100k", acquire_s, "s", acquire_s / GOAL_S, goal))
    report(Line("lease_bytes_100k", stored, "bytes", stored / GOAL_BYTES, "the goal of 1 MB"))
    report(Line("lease_restart_100k", restart_s, "s", restart_s / GOAL_S, goal))


def _server(folder: str | Path) -> EmbeddedCluster:
    config = ServerConfig(
        data_dir=str(folder), listen="grpc://127.0.0.1:0", kv_snapshot_interval_ms=0
    )
    return EmbeddedCluster(config)


def _prepare(folder: Path) -> list[BucketSnapshot]:
    """Tables of a server, and the records of a snapshot of each bucket, of whatever id."""
    with _server(folder) as cluster, connect(cluster.address) as client:
        ids = _tables(client)
    rng = random.Random(7)
    snapshots = [
        BucketSnapshot(TableBucket(table_id, None, number), rng.randrange(100_000), 0)
        for table_id in ids
        for number in range(BUCKETS)
    ]
    rows = [(s.bucket.table_id, -1, s.bucket.bucket, s.snapshot_id, 0) for s in snapshots]
    with closing(sqlite3.connect(folder / "metadata.sqlite")) as connection, connection:
        connection.executemany("INSERT INTO kv_snapshots VALUES (?, ?, ?, ?, ?)", rows)
    return snapshots


def _tables(client: Client) -> list[int]:
    key = Column("id", replace(BIGINT, nullable=False), 0)
    descriptor = TableDescriptor(Schema((key,), ("id",), 0), bucket_count=BUCKETS)
    client.admin.create_database("bench")
    paths = [TablePath("bench", f"t{n}") for n in range(TABLES)]
    for path in paths:
        client.admin.create_table(path, descriptor)
    return [client.admin.table_info(path).table_id for path in paths]


def _acquire_s(folder: str, snapshots: list[BucketSnapshot]) -> float:
    """The best of some acquires of a new lease, the client's part included. The last one stays."""
    found = []
    with _server(folder) as cluster, connect(cluster.address) as client:
        for _ in range(TRIES):
            client.leases.drop(LEASE)
            started = time.perf_counter()
            unavailable = client.leases.acquire(LEASE, HOUR_MS, snapshots)
            found.append(time.perf_counter() - started)
            assert not unavailable
    return min(found)


def _restart_s(folder: Path) -> float:
    """What a start spends on the lease: the file read, and every snapshot known to be held."""
    with closing(Database(folder / "metadata.sqlite")) as database:
        leases = KvSnapshotLeases(SqliteLeaseStore(database), SystemClock(), lambda *_: True)
        started = time.perf_counter()
        leases.start(HOUR_MS)
        spent_s = time.perf_counter() - started
        leases.stop()
    [lease] = leases.all()[1]
    assert lease.buckets == TABLES * BUCKETS
    return spent_s


def _size(folder: Path) -> int:
    """Bytes of the metadata; the server is stopped."""
    with closing(sqlite3.connect(folder / "metadata.sqlite")) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return sum(file.stat().st_size for file in folder.glob("metadata.sqlite*"))
