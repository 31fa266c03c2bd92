"""Measures a lease on 100,000 buckets: acquired over gRPC, listed, stored, loaded at a start.

The start is measured from opening the data directory to the listeners: with two registered KV
snapshots of each bucket, and again when each has a third one that only the lease keeps. The files
of snapshots are not there: a server looks at them after its start, in the background.
"""

from __future__ import annotations

import gc
import random
import sqlite3
import tempfile
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from bench.measure import Cost, Line, report
from sluice.client import Client, connect
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

TABLES, BUCKETS = 25, 4_000
LEASE = "sluice-c6ef648e-97e3-5f2e-95d1-8912a7000d46"
DAY_MS = 24 * 3_600_000
GOAL_S = 1.0
GOAL_BYTES = 1_000_000
TRIES = 3
LEASED_MAX = 100_000
"""Leased snapshots have lower ids, the newest two snapshots of a bucket higher ones."""


def run(rows: int) -> None:
    """Ignores ``rows``: the goal is 100,000 buckets in a second and a megabyte."""
    del rows
    with tempfile.TemporaryDirectory() as folder:
        buckets = _prepare(Path(folder))
        plain = _start(folder)
        leased = _old_snapshots(Path(folder), buckets)
        before = _size(Path(folder))
        acquire_s = _acquire_s(folder, leased)
        stored = _size(Path(folder)) - before
        held = _start(folder)
        list_s = _list_s(folder)
    goal = "the goal of 1 s"
    report(Line("lease_acquire_100k", acquire_s, "s", acquire_s / GOAL_S, goal))
    report(Line("lease_list_100k", list_s, "s", list_s / GOAL_S, goal))
    report(Line("lease_bytes_100k", stored, "bytes", stored / GOAL_BYTES, "the goal of 1 MB"))
    added_s = held.cpu_s - plain.cpu_s
    what = f"{goal} for what the lease adds to a start"
    report(Line("lease_restart_100k", added_s, "core-s", added_s / GOAL_S, what))
    report(
        Line("server_restart_100k", held.wall_s, "s", held.wall_s / plain.wall_s, "one without it")
    )


def _server(folder: str | Path, retained: int = 2) -> EmbeddedCluster:
    config = ServerConfig(
        data_dir=str(folder),
        listen="grpc://127.0.0.1:0",
        kv_snapshot_interval_ms=0,
        kv_snapshot_num_retained=retained,
    )
    return EmbeddedCluster(config)


def _prepare(folder: Path) -> list[TableBucket]:
    """Creates tables, and registers the newest two snapshots of each bucket."""
    with _server(folder) as cluster, connect(cluster.address) as client:
        ids = _tables(client)
    buckets = [TableBucket(table_id, None, number) for table_id in ids for number in range(BUCKETS)]
    newest = (LEASED_MAX, LEASED_MAX + 1)
    _register(folder, [BucketSnapshot(b, number, 0) for b in buckets for number in newest])
    return buckets


def _old_snapshots(folder: Path, buckets: list[TableBucket]) -> list[BucketSnapshot]:
    """Registers an older snapshot of each bucket, with any id."""
    rng = random.Random(7)
    snapshots = [BucketSnapshot(bucket, rng.randrange(LEASED_MAX), 0) for bucket in buckets]
    _register(folder, snapshots)
    return snapshots


def _register(folder: Path, snapshots: list[BucketSnapshot]) -> None:
    rows = [(s.bucket.table_id, -1, s.bucket.bucket, s.snapshot_id, 0) for s in snapshots]
    with closing(sqlite3.connect(folder / "metadata.sqlite")) as connection, connection:
        connection.executemany("INSERT INTO kv_snapshots VALUES (?, ?, ?, ?, ?)", rows)


def _tables(client: Client) -> list[int]:
    key = Column("id", replace(BIGINT, nullable=False), 0)
    descriptor = TableDescriptor(Schema((key,), ("id",), 0), bucket_count=BUCKETS)
    client.admin.create_database("bench")
    paths = [TablePath("bench", f"t{n}") for n in range(TABLES)]
    for path in paths:
        client.admin.create_table(path, descriptor)
    return [client.admin.table_info(path).table_id for path in paths]


def _acquire_s(folder: str, snapshots: list[BucketSnapshot]) -> float:
    """Returns the least seconds to acquire a new lease, client included. The last lease stays."""
    found = []
    # Snapshots that are not leased yet must not be deleted.
    with _server(folder, retained=3) as cluster, connect(cluster.address) as client:
        for _ in range(TRIES):
            client.leases.drop(LEASE)
            started = time.perf_counter()
            unavailable = client.leases.acquire(LEASE, DAY_MS, snapshots)
            found.append(time.perf_counter() - started)
            assert not unavailable
    return min(found)


def _start(folder: str) -> Cost:
    """Returns the cost of the fastest start, until the first answer."""
    walls, cpus = [], []
    for _ in range(TRIES):
        gc.collect()
        cluster, started, cpu = _server(folder), time.perf_counter(), time.thread_time()
        cluster.start()
        cpus.append(time.thread_time() - cpu)
        try:
            with connect(cluster.address) as client:
                leases = client.leases.all()
                walls.append(time.perf_counter() - started)
        finally:
            cluster.stop()
        assert sum(lease.buckets for lease in leases) in (0, TABLES * BUCKETS)
    return Cost(cpu_s=min(cpus), wall_s=min(walls))


def _list_s(folder: str) -> float:
    """Returns the least seconds to list the lease with its tables, client included."""
    found = []
    with _server(folder) as cluster, connect(cluster.address) as client:
        for _ in range(TRIES):
            started = time.perf_counter()
            [lease] = client.leases.all()
            found.append(time.perf_counter() - started)
            assert (lease.table_count, lease.buckets) == (TABLES, TABLES * BUCKETS)
    return min(found)


def _size(folder: Path) -> int:
    """Returns the bytes of the metadata of a stopped server."""
    with closing(sqlite3.connect(folder / "metadata.sqlite")) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return sum(file.stat().st_size for file in folder.glob("metadata.sqlite*"))
