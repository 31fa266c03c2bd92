"""How fluid the page is before an Apache Fluss 0.9.1 with 5,000 lake tables, and its memory.

Fluss reports no statuses and no lags. So rounds' statuses and histories are written as rounds write
them, and 1,000 tables get a lake snapshot. ZooKeeper, coordinator and tablet server get more
memory than in tests. The tables take about 5 minutes to create.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from bench.page.page_process import measure_page
from bench.page.page_tables import (
    BROKEN,
    DATABASES,
    DESCRIPTOR,
    FAILING,
    ROWS,
    TABLES,
    WITH_ROWS,
    paths,
)
from sluice.client import Client, connect
from sluice.client.statuses.ends import by_columns
from sluice.client.statuses.round_table import LAYOUT as ROUND_LAYOUT
from sluice.client.statuses.status_table import LAYOUT, PATH, StatusTable
from sluice.client.statuses.watch import DESCRIBED_MAX, WatchedTable
from sluice.config import ClientConfig
from sluice.model import Claim, TableBucket, TablePath, TieringRound
from sluice.statuses import RecordedStatus, recorded
from tests.support.fluss.real_fluss import COORDINATOR, TABLET, ZOOKEEPER, RealFluss
from tests.support.fluss.table_creation import create_table

HEAPS_MB = {ZOOKEEPER: 256, COORDINATOR: 1_024, TABLET: 1_536}
SNAPSHOTS = 1_000
ROUNDS = 30
"""Recorded rounds of each table; the page shows the newest 20."""
BEGAN_MS = 1_790_000_000_000


def run(rows: int) -> None:
    """Ignores ``rows``: what counts is the number of tables."""
    del rows
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as tmp:
        home = Path(tmp) / "fluss"
        with RealFluss(home, heaps_mb=HEAPS_MB) as fluss, connect(fluss.bootstrap) as client:
            _create(client)
            tables = list(_described(client))
            _record(fluss.bootstrap, tables)
            _snapshots(client, tables[:SNAPSHOTS])
            for table in tables[:WITH_ROWS]:
                with client.log_writer(table.path) as writer:
                    writer.write(ROWS)
            measure_page(fluss.bootstrap, "real_", len(tables))


def _create(client: Client) -> None:
    client.admin.create_database(PATH.database)
    for layout in (LAYOUT, ROUND_LAYOUT):
        create_table(client, layout.path, layout.descriptor)
    for number in range(DATABASES):
        client.admin.create_database(f"db{number}")

    def create(path: TablePath) -> None:
        client.admin.create_table(path, DESCRIPTOR)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(create, paths(TABLES)))


def _described(client: Client) -> Iterator[WatchedTable]:
    with closing(client.status_watch()) as watch:
        wanted = paths(TABLES)
        for at in range(0, TABLES, DESCRIBED_MAX):
            yield from watch.described(wanted[at : at + DESCRIBED_MAX]).values()


def _record(address: str, tables: Sequence[WatchedTable]) -> None:
    """Statuses and rounds, as rounds of Sluice record them."""
    with closing(StatusTable(ClientConfig(address, tiering_status_timeout_ms=60_000))) as table:
        for at in range(0, len(tables), DESCRIBED_MAX):
            some = tables[at : at + DESCRIBED_MAX]
            for alike in by_columns(_status(each) for each in some):
                table.upsert(alike, lambda: False)
            table.rounds.write([one for each in some for one in _rounds(each)], lambda: False)


def _status(table: WatchedTable) -> recorded.Columns:
    claim = Claim(table.table_id, table.path, ROUNDS, 0)
    before = replace(RecordedStatus(table.table_id), rounds=ROUNDS - 1)
    if table.table_id % FAILING == 0:
        return recorded.failed(
            claim, before, BEGAN_MS, BROKEN, freshness_ms=table.freshness_ms, backoff_ms=10_000
        )
    return recorded.finished(claim, before, BEGAN_MS, forced=False)


def _rounds(table: WatchedTable) -> Iterator[TieringRound]:
    for number in range(1, ROUNDS + 1):
        is_broken = table.table_id % FAILING == 0 and number > ROUNDS - 3
        ended_ms = BEGAN_MS - (ROUNDS - number) * 60_000
        yield TieringRound(
            table_id=table.table_id,
            round_number=number,
            started_ms=ended_ms - 5_000,
            ended_ms=ended_ms,
            outcome="failed" if is_broken else "committed",
            reason=BROKEN if is_broken else None,
            rows_written=number,
            lag_rows_after=0,
        )


def _snapshots(client: Client, tables: Sequence[WatchedTable]) -> None:
    for number, table in enumerate(tables, 1):
        ends = {TableBucket(table.table_id, None, 0): 0}
        claim = Claim(table.table_id, table.path, ROUNDS, 0)
        file = client.tiering.prepare_lake_snapshot(table.table_id, table.path, ends)
        client.tiering.commit_lake_snapshot(claim, number, file, ends, {}, -1)
