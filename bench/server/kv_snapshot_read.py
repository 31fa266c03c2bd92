"""Reads KV snapshots of an embedded server as Arrow, relative to pyarrow that writes Parquet.

The server runs in this process and only lists the files. The files are on a disk, and the cost
includes copying them.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from bench.measure import Line, cost, report
from bench.reference import reported_rate
from bench.server.kv_put import PATH, ROWS_MAX, load
from sluice.client import Client, KvSnapshotReader, connect
from sluice.client.kv.sst_values import read_values
from sluice.config import ServerConfig
from sluice.model import BucketSnapshot
from sluice.server.cluster import EmbeddedCluster


def run(rows: int) -> None:
    rows = min(rows, ROWS_MAX)
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as tmp:
        home = Path(tmp)
        limit = reported_rate(rows, home)
        config = ServerConfig(
            data_dir=str(home / "fluss"), listen="grpc://127.0.0.1:0", kv_snapshot_interval_ms=0
        )
        with EmbeddedCluster(config) as cluster, connect(cluster.address) as client:
            load(client, rows)
            cluster.take_kv_snapshots(PATH)
        # A new server has opened no store, so nothing is compacted during the measurement.
        with EmbeddedCluster(config) as cluster, connect(cluster.address) as client:
            snapshots = list(client.leases.latest(PATH).snapshots.values())
            with _reader(client, snapshots[0], home) as reader:
                next(reader.batches())  # loads the compiled code
            _measure(client, snapshots, home, rows, limit)


def _measure(
    client: Client, snapshots: list[BucketSnapshot], home: Path, rows: int, limit: float
) -> None:
    m, found, size_bytes = rows / 1e6, 0, 0
    with cost() as whole:
        for snapshot in snapshots:
            with _reader(client, snapshot, home) as reader:
                found += sum(batch.num_rows for batch in reader.batches())
                size_bytes += reader.size_bytes
    assert found == rows, f"read {found} rows, expected {rows}"
    with cost() as bringing:
        for snapshot in snapshots:
            with _reader(client, snapshot, home):
                pass
    with cost() as raw:
        for snapshot in snapshots:
            with _reader(client, snapshot, home) as reader:
                assert reader._folder is not None
                for _ in read_values(reader._folder, "snapshot", 8 << 20):
                    pass
    value = m / whole.cpu_s
    text = (
        f"pyarrow's zstd Parquet; {rows:,} rows; {size_bytes / rows:.0f} bytes of SST files a row"
    )
    report(Line("kv_snapshot_read", value, "M rows/core-s", value / limit, text))
    parts = {
        "bring files": bringing.cpu_s,
        "values of SST files": raw.cpu_s - bringing.cpu_s,
        "decode": whole.cpu_s - raw.cpu_s,
    }
    for name, cpu_s in parts.items():
        share = f"{100 * cpu_s / whole.cpu_s:.0f} %"
        report(Line(f"  where: {name}", cpu_s / m, "core-s per M rows", None, share))


def _reader(client: Client, snapshot: BucketSnapshot, home: Path) -> KvSnapshotReader:
    return client.kv_snapshot(PATH, snapshot.bucket, snapshot.snapshot_id, folder=str(home))
