"""Fluss's own tiering job on Flink, and rounds of ours, on tables of the embedded server.

The job is the one of Fluss 0.9.1, unchanged. What a lake holds is compared with a replay of the
server's log files, which shares no code with the project.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bench.flink.flink_job import FlinkJob
from sluice.client import Client, connect
from sluice.config import ClientConfig, Config, DatalakeConfig, ServerConfig, TieringConfig
from sluice.driver.lake_tables import create_lake_tables
from sluice.driver.lakes.jvm import Jvm
from sluice.driver.local import tier_once
from sluice.model import Column, Schema, TableDescriptor, TablePath
from sluice.model import types as t
from sluice.server.cluster import EmbeddedCluster
from tests.spark.conftest import JARS
from tests.support.clients.flink_rounds import FLINK_ROUND_S, fetched_flink_jars
from tests.support.lake.lake_checker import LakeChecker, Report
from tests.support.programs.processes import wait_for
from tests.support.tables.changelogs import compare_keyed
from tests.support.tables.keyed_stock import Stock, stock_table
from tests.support.tables.server_files import (
    Bucket,
    Registered,
    read_logs,
    read_registered,
    table_folder,
)

pytestmark = [pytest.mark.spark, pytest.mark.long]

ORDERS, STOCK = TablePath("shop", "orders"), TablePath("shop", "stock")
ORDERS_SCHEMA = pa.schema([("id", pa.int64()), ("note", pa.string())])
STOCK_SCHEMA = pa.schema(
    [("day", pa.string()), ("id", pa.int64()), ("item", pa.string()), ("n", pa.int32())]
)
NOTHING_IS_DUE = {"table.datalake.enabled": "true", "table.datalake.freshness": "1d"}
"""A round begins only where the test requests one."""
ROWS = 2_000
BY_FLINK = "Apache Iceberg 1.10.1 "


@dataclass
class Site:
    """An embedded server with a log table and a primary-key table, whose lake tables are empty."""

    cluster: EmbeddedCluster
    client: Client
    config: Config
    jvm: Jvm
    data_dir: Path
    warehouse: Path
    rows: Callable[[str], list[Any]]
    """Asks Spark; tables are named ``lake.DB.TABLE``."""
    log: Path
    written: int = 0
    stock: Stock = field(init=False)

    def __post_init__(self) -> None:
        admin = self.client.admin
        admin.create_database("shop")
        columns = (Column("id", t.BIGINT, 0), Column("note", t.STRING, 1))
        orders = TableDescriptor(Schema(columns, highest_field_id=1), bucket_count=3)
        admin.create_table(ORDERS, orders)
        admin.create_table(STOCK, stock_table({"table.datalake.enabled": "false"}))
        self.stock = Stock(self.client, STOCK, self.rows)

    @property
    def bootstrap(self) -> str:
        return self.cluster.address

    def create_lake_tables(self) -> None:
        """As the command's page says: before the job may see a tiered table."""
        for path in (ORDERS, STOCK):
            [report] = create_lake_tables(self.config, path, self.jvm)
            assert report.outcome == "created"

    def begin(self) -> None:
        for path in (ORDERS, STOCK):
            self.client.admin.set_options(path, NOTHING_IS_DUE)

    def change(self, turn: int) -> None:
        """Appended rows; new, changed and deleted keys, some of them several times.

        The last batch of each bucket has rows: the job waits for the last row before the end of a
        log, and an empty batch, as a delete of a missing key makes it, has none.
        """
        ids = range(self.written, self.written + ROWS)
        notes = [None if i % 5 == 0 else f"n{i % 7}" for i in ids]
        with self.client.log_writer(ORDERS) as writer:
            writer.write(pa.table({"id": ids, "note": notes}, ORDERS_SCHEMA))
        self.written += ROWS
        self.stock.put(dict.fromkeys(range(turn, 60, turn + 1), turn))
        self.stock.delete(*range(0, 60, 7))
        self.stock.put(dict.fromkeys(range(10), -turn))
        self.stock.delete(*range(2, 8, 2))
        self.stock.put(dict.fromkeys(range(100, 110), turn))

    def by_us(self) -> None:
        for path in (ORDERS, STOCK):
            result = tier_once(self.config, path, now=True, jvm=self.jvm)
            assert result.outcome == "committed"
        self.check()

    def by_flink(self, jars: list[Path], changes: Callable[[], None]) -> None:
        """One start of the job, with a round of each table before the changes and one after."""
        with FlinkJob(self, jars, self.log, heap="768m") as job:
            for act in (lambda: None, changes):
                act()
                for path in (ORDERS, STOCK):
                    self.client.statuses.request_round(path)
                for path in (ORDERS, STOCK):
                    wait_for(
                        f"Flink's round of {path}",
                        lambda p=path: self._is_done(p, job),
                        FLINK_ROUND_S,
                    )
        for path in (ORDERS, STOCK):
            query = f"SELECT summary FROM lake.{path}.snapshots ORDER BY committed_at DESC LIMIT 1"
            [[summary]] = self.rows(query)
            assert summary["iceberg-version"].startswith(BY_FLINK)
        self.check()

    def check(self) -> None:
        """The lake is the server's log files, replayed up to the registered offsets: their ends."""
        logs, registered = self._stored(ORDERS, ORDERS_SCHEMA)
        checker = LakeChecker(self.rows, f"lake.{ORDERS}", self.warehouse / "shop" / "orders")
        report = checker.report(logs, registered)
        assert (report.damage, report.rows) == ({}, self.written)

        logs, registered = self._stored(STOCK, STOCK_SCHEMA, keyed=True)
        lake: dict[Bucket, list[dict[str, Any]]] = {}  # as Spark reads it, with Flink's deletes
        for row in self.rows(f"SELECT * FROM lake.{STOCK}"):
            lake.setdefault(("", row["__bucket"]), []).append(row.asDict())
        report = Report()
        compare_keyed(report, lake, registered.offsets, logs, ("day", "id"))
        assert report.damage == {}
        self.stock.assert_equal()

    def _stored(
        self, path: TablePath, schema: pa.Schema, *, keyed: bool = False
    ) -> tuple[dict[Bucket, pa.Table], Registered]:
        """The rows of the server's log files, and what it has registered: all of them."""
        registered = read_registered(self.data_dir, path.database, path.table)
        assert registered is not None
        assert {n: end for (_, n), end in registered.offsets.items() if end} == self._ends(path)
        folder = table_folder(self.data_dir / "log", path.database, path.table)
        return read_logs(folder, schema, keyed=keyed), registered

    def _ends(self, path: TablePath) -> dict[int, int]:
        """Of buckets with rows: the job registers no others."""
        return {n: end for n, end in self.client.admin.list_offsets(path).items() if end}

    def _is_done(self, path: TablePath, job: FlinkJob) -> bool:
        assert not job.has_ended(), job.said()[-3000:]
        registered = self.client.admin.lake_snapshot(path)
        if registered is None or self.client.statuses.list(path)[0].status != "Scheduled":
            return False
        found = {bucket.bucket: end for bucket, end in registered.offsets.items() if end}
        return found == self._ends(path)


@pytest.fixture(scope="module")
def flink_jars() -> list[Path]:
    return fetched_flink_jars()


@pytest.fixture
def site(tmp_path: Path, lake_sql: Callable[[Path, str], list[Any]], jvm: Jvm) -> Iterator[Site]:
    data_dir, warehouse = tmp_path / "server", tmp_path / "warehouse"
    server = ServerConfig(
        data_dir=str(data_dir),
        listen="fluss://127.0.0.1:0",
        tiering_check_interval_ms=100,
        tiering_backoff_ms=0,
        kv_snapshot_interval_ms=500,
    )
    lake = DatalakeConfig("iceberg", {"type": "hadoop", "warehouse": str(warehouse)})
    of_server = replace(lake, iceberg={**lake.iceberg, "layout": "legacy"})  # of Fluss 0.9
    with EmbeddedCluster(server, datalake=of_server) as cluster:
        config = Config(
            ClientConfig(cluster.address), datalake=lake, tiering=TieringConfig(jars=JARS)
        )
        with connect(config.client) as client:
            yield Site(
                cluster, client, config, jvm, data_dir, warehouse,
                lambda query: lake_sql(warehouse, query), tmp_path / "flink.log",
            )  # fmt: skip


def test_flink_begins_and_we_go_on(site: Site, flink_jars: list[Path]) -> None:
    site.create_lake_tables()
    site.change(1)
    site.begin()
    site.by_flink(flink_jars, lambda: site.change(2))
    for turn in (3, 4):
        site.change(turn)
        site.by_us()
    site.change(5)
    site.by_flink(flink_jars, lambda: site.change(6))


def test_we_begin_and_flink_goes_on(site: Site, flink_jars: list[Path]) -> None:
    site.change(1)
    site.begin()
    site.by_us()
    for turn in (2, 3):
        site.change(turn)
        site.by_us()
    site.change(4)
    site.by_flink(flink_jars, lambda: site.change(5))
    site.change(6)
    site.by_us()
