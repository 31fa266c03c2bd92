"""Scans a primary-key table of an embedded server in another process, as Arrow.

The cost includes client and server. The reference is one pyarrow ParquetWriter that writes the same
columns as rows of a log (``bench.reference``).
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from bench import data
from bench.cluster import server
from bench.measure import Line, cost, report
from bench.reference import reference_rate
from bench.server.kv_put import PATH, ROWS_MAX, load
from sluice.client import Client, connect
from sluice.model import TableBucket


def run(rows: int) -> None:
    rows = min(rows, ROWS_MAX)
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as tmp:
        home = Path(tmp)
        limit = reference_rate(rows, home)
        with server(home / "fluss") as (address, _), connect(address) as client:
            load(client, rows)
        # A new server: the compactions that follow the upserts do not count.
        with server(home / "fluss") as (address, pid), connect(address) as client:
            _scan(client, limit=data.BATCH_ROWS)  # loads the compiled code, opens the stores
            with cost(server=pid) as found:
                count = _scan(client)
    assert count == rows, f"scanned {count} rows, expected {rows}"
    m, server_s = rows / 1e6, found.others_s["server"]
    value = m / (found.cpu_s + server_s)
    text = (
        f"pyarrow's zstd Parquet; {rows:,} rows; client {found.cpu_s / m:.2f} and server"
        f" {server_s / m:.2f} core-s per M rows, {found.wall_s:.1f} s wall"
    )
    report(Line("kv_scan", value, "M rows/core-s", value / limit, text))


def _scan(client: Client, limit: int | None = None) -> int:
    """Scans one bucket after the other and returns the number of rows."""
    info = client.admin.table_info(PATH)
    count = 0
    for number in range(info.bucket_count):
        bucket = TableBucket(info.table_id, None, number)
        with client.scan_kv(PATH, bucket, limit=limit) as scan:
            count += sum(batch.num_rows for batch in scan.batches())
    return count
