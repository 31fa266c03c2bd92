"""Appends rows to a log table of an embedded server in another process.

The cost includes client and server. The reference is one pyarrow ParquetWriter that writes the same
columns as rows of a log (``bench.reference``).
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

from bench import data
from bench.cluster import server
from bench.measure import Line, cost, report
from bench.reference import reference_rate
from sluice.client import connect
from sluice.model import TablePath
from tests.support.fluss.table_creation import create_table

BUCKETS = 4
PATH = TablePath("bench", "appended")


def run(rows: int) -> None:
    m = rows / 1e6
    gathered = list(data.batches(rows))
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as tmp:
        home = Path(tmp)
        limit = reference_rate(rows, home)
        with server(home / "fluss") as (address, pid), connect(address) as client:
            client.admin.create_database(PATH.database)
            for compression in ("ZSTD", "LZ4_FRAME", "NONE"):
                path = TablePath(PATH.database, f"{PATH.table}_{compression.lower()}")
                table = data.descriptor(BUCKETS)
                properties = {"table.log.arrow.compression.type": compression, **table.properties}
                create_table(client, path, replace(table, properties=properties))
                with cost(server=pid) as found, client.log_writer(path) as writer:
                    for batch in gathered:
                        writer.write(batch)
                server_s = found.others_s["server"]
                both_s = found.cpu_s + server_s
                parts = f"pyarrow's zstd Parquet; {rows:,} rows; client {found.cpu_s / m:.3f} and"
                parts += f" server {server_s / m:.3f} core-s per M rows, {found.wall_s:.1f} s wall"
                name = f"log_append_{compression.lower()}"
                report(Line(name, m / both_s, "M rows/core-s", m / both_s / limit, parts))
