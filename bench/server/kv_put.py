"""Upserts rows into a primary-key table of an embedded server in another process.

First new keys, then up to a million of the same keys: the server must look these up, and each gives
two changes. The cost includes client and server. The reference is one pyarrow ParquetWriter that
writes the same columns as rows of a log (``bench.reference``).
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa

from bench import data
from bench.cluster import server
from bench.measure import Cost, Line, cost, report
from bench.reference import reference_rate
from sluice.client import Client, connect
from sluice.model import TablePath
from tests.support.fluss.table_creation import create_table

BUCKETS = 4
ROWS_MAX = 2_000_000
ROWS_AGAIN_MAX = 1_000_000
"""Maximum number of keys that are upserted a second time. More would not change the rate."""
PATH = TablePath("bench", "keyed")


def load(client: Client, rows: int) -> None:
    """Makes the table with its rows."""
    client.admin.create_database(PATH.database)
    create_table(client, PATH, data.keyed_descriptor(BUCKETS))
    put(client, PATH, data.batches(rows))


def put(client: Client, path: TablePath, batches: Iterable[pa.RecordBatch]) -> None:
    with client.kv_writer(path) as writer:
        for batch in batches:
            writer.upsert(batch)


def run(rows: int) -> None:
    rows = min(rows, ROWS_MAX)
    gathered = list(data.batches(rows))
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as tmp:
        home = Path(tmp)
        limit = reference_rate(rows, home)
        with server(home / "fluss") as (address, pid), connect(address) as client:
            client.admin.create_database(PATH.database)
            create_table(client, PATH, data.keyed_descriptor(BUCKETS))
            warm = TablePath(PATH.database, "warm")
            create_table(client, warm, data.keyed_descriptor(1))
            put(client, warm, data.batches(data.BATCH_ROWS))  # loads the compiled code
            again = gathered[: max(ROWS_AGAIN_MAX // data.BATCH_ROWS, 1)]
            for name, batches in (("kv_put", gathered), ("kv_put_again", again)):
                with cost(server=pid) as found:
                    put(client, PATH, batches)
                _report(name, sum(batch.num_rows for batch in batches), found, limit)


def _report(name: str, rows: int, found: Cost, limit: float) -> None:
    m = rows / 1e6
    both_s = found.cpu_s + found.others_s["server"]
    parts = f"pyarrow's zstd Parquet; {rows:,} rows; client {found.cpu_s / m:.2f} and server"
    parts += f" {found.others_s['server'] / m:.2f} core-s per M rows, {found.wall_s:.1f} s wall"
    report(Line(name, m / both_s, "M rows/core-s", m / both_s / limit, parts))
