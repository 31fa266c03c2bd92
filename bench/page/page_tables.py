"""How fluid the page is before an embedded server with 5,000 lake tables, and its memory.

A table in a hundred fails, and 300 have rows that the lake lacks.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import pyarrow as pa

from bench.cluster import server
from bench.page.page_process import measure_page
from sluice.client import Client, connect
from sluice.formats.types.types import schema_from_arrow
from sluice.model import Reason, TableDescriptor, TablePath, TieringRound

TABLES, DATABASES, WITH_ROWS, FAILING = 5_000, 10, 300, 100
TOGETHER = 500
ROWS = pa.table({"id": pa.array([1], pa.int64())})
OPTIONS = {"table.datalake.enabled": "true", "table.datalake.freshness": "1 d"}
DESCRIPTOR = TableDescriptor(schema_from_arrow(ROWS.schema), bucket_count=1, properties=OPTIONS)
BROKEN = "create lake table: ParentNotDirectoryException: Parent path is not a directory: /lake"


def run(rows: int) -> None:
    """Ignores ``rows``: what counts is the number of tables."""
    del rows
    with (
        tempfile.TemporaryDirectory(prefix="sluice-bench-") as tmp,
        server(Path(tmp) / "fluss") as (address, _),
        connect(address) as client,
    ):
        for number in range(DATABASES):
            client.admin.create_database(f"db{number}")
        for path in paths(TABLES):
            client.admin.create_table(path, DESCRIPTOR)
        _rounds(client)
        for path in paths(WITH_ROWS):
            with client.log_writer(path) as writer:
                writer.write(ROWS)
        measure_page(address, "", TABLES)


def paths(tables: int) -> list[TablePath]:
    """The tables that a benchmark of the page makes."""
    return [TablePath(f"db{n % DATABASES}", f"t{n:05}") for n in range(tables)]


def _rounds(client: Client) -> None:
    """One round of each table."""
    done = TieringRound(outcome="committed", rows_written=7, lag_rows_after=0)
    with client.tiering.claim_session(by="bench") as session:
        while claims := session.take(TOGETHER):
            good = [claim for claim in claims if claim.table_id % FAILING]
            client.tiering.finished_many([(claim, done) for claim in good])
            for claim in set(claims) - set(good):
                client.tiering.failed(claim, Reason.from_text(BROKEN))
