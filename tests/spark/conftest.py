"""A server, its client, a lake, and a JVM started on demand, for rounds on the real thing."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sluice.cli.terminal.progress import RoundBar
from sluice.client import connect
from sluice.client.client import Client
from sluice.config import ClientConfig, Config, DatalakeConfig, ServerConfig, TieringConfig
from sluice.driver.lakes.jvm import Jvm
from sluice.driver.local import tier_once
from sluice.errors import TableNotDue
from sluice.model import Claim, Column, DataType, Schema, TableDescriptor, TablePath
from sluice.rounds.records.result import RoundResult
from sluice.rounds.values.progress import NoProgress, Progress
from sluice.server.cluster import EmbeddedCluster
from tests.support.tables.keyed_stock import Stock, stock_table

STOCK = TablePath("shop", "stock")
JARS = os.environ.get("SLUICE_TIERING_JARS", "")
LONG_MS = 3_600_000
"""Before it a claim is not taken back, however slow the test that holds it without heartbeats."""


@pytest.fixture(scope="session")
def jvm() -> Iterator[Jvm]:
    with Jvm(os.environ.get("SLUICE_TIERING_JARS", "")) as running:
        yield running


@pytest.fixture
def act_at(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Callable[[], object]], None]:
    """Does something once when a phase of a command's next round begins."""
    shown = RoundBar.phase

    def at(phase: str, act: Callable[[], object]) -> None:
        left = [phase]

        def reached(bar: RoundBar, name: str) -> None:
            shown(bar, name)
            if name in left:
                left.remove(name)
                act()

        monkeypatch.setattr(RoundBar, "phase", reached)

    return at


class At(NoProgress):
    """Does something once, on the round's thread, when a phase begins."""

    def __init__(self, phase: str, act: Callable[[], object]) -> None:
        self._phase, self._act = phase, act
        self.phases: list[str] = []

    def phase(self, name: str) -> None:
        self.phases.append(name)
        if name == self._phase and self.phases.count(name) == 1:
            self._act()


@dataclass
class Site:
    """An embedded server, its client, a warehouse, and a folder for the files of rounds."""

    client: Client
    config: Config
    warehouse: Path
    work_uri: str
    sql: Callable[[Path, str], list[Any]]
    jvm: Jvm

    def create(self, path: TablePath, columns: dict[str, DataType], **descriptor: Any) -> None:
        """A table that is due at once, whenever one asks."""
        fields = tuple(Column(n, t, i) for i, (n, t) in enumerate(columns.items()))
        properties = {"table.datalake.enabled": "true", "table.datalake.freshness": "0s"}
        self.client.admin.create_database(path.database, ignore_if_exists=True)
        self.client.admin.create_table(
            path,
            TableDescriptor(
                Schema(fields, highest_field_id=len(fields) - 1),
                properties={**properties, **descriptor.pop("properties", {})},
                **descriptor,
            ),
        )

    def append(self, path: TablePath, table: pa.Table) -> None:
        with self.client.log_writer(path) as writer:
            writer.write(table)

    def claim(self, path: TablePath) -> Claim:
        """Waits until the coordinator hands the table out: its timers have a resolution."""
        deadline = time.monotonic() + 120
        while (claim := self.client.tiering.claim([path])) is None:
            assert time.monotonic() < deadline, self.client.statuses.list(path)
            time.sleep(0.05)
        return claim

    def rows(self, query: str) -> list[Any]:
        """Spark's answer; tables are named ``lake.DB.TABLE``."""
        return self.sql(self.warehouse, query)


@pytest.fixture
def layout() -> str:
    """The layout of new lake tables; a test may have it as a parameter."""
    return "clean"


@pytest.fixture
def site(
    tmp_path: Path, lake_sql: Callable[[Path, str], list[Any]], jvm: Jvm, layout: str
) -> Iterator[Site]:
    server = ServerConfig(
        data_dir=str(tmp_path / "server"),
        listen="grpc://127.0.0.1:0",
        tiering_check_interval_ms=100,
        tiering_timeout_ms=LONG_MS,
        tiering_backoff_ms=0,
    )
    warehouse = tmp_path / "warehouse"
    catalog = {"type": "hadoop", "warehouse": str(warehouse), "layout": layout}
    with EmbeddedCluster(server) as cluster:
        config = Config(
            client=ClientConfig(bootstrap=cluster.address),
            datalake=DatalakeConfig("iceberg", catalog),
            tiering=TieringConfig(jars=JARS, driver_copy_rows=0),  # executors copy
        )
        with connect(config.client) as client:
            yield Site(client, config, warehouse, str(tmp_path / "work"), lake_sql, jvm)


@dataclass(kw_only=True)
class LocalStock(Stock):
    """Its server takes KV snapshots when asked to, and it is tiered in this process."""

    site: Site
    cluster: EmbeddedCluster
    data_dir: Path

    def create(
        self,
        properties: dict[str, str] | None = None,
        *,
        partitioned: bool = False,
        version: int | None = None,
    ) -> None:
        self.client.admin.create_database("shop", ignore_if_exists=True)
        described = stock_table(properties, partitioned=partitioned, version=version)
        self.client.admin.create_table(STOCK, described)

    def snapshots(self) -> None:
        """A KV snapshot of every bucket that has changed."""
        assert self.cluster.take_kv_snapshots(STOCK)

    def tier(self, progress: Progress | None = None) -> RoundResult:
        """One round, as soon as the table is due."""
        deadline = time.monotonic() + 120
        while True:
            try:
                return tier_once(self.site.config, STOCK, jvm=self.site.jvm, progress=progress)
            except TableNotDue:
                assert time.monotonic() < deadline
                time.sleep(0.05)

    def assert_no_litter(self) -> None:
        """Refused positions and spare keys are gone; each file is in some snapshot."""
        known = self.site.rows("SELECT file_path FROM lake.shop.stock.all_files")
        known = {str(row[0]).removeprefix("file:") for row in known}
        stored = {str(p) for p in self.site.warehouse.rglob("data/**/*") if p.is_file()}
        assert {p for p in stored if p.endswith((".parquet", ".puffin", ".tmp"))} <= known


@pytest.fixture
def stock(
    tmp_path: Path, lake_sql: Callable[[Path, str], list[Any]], jvm: Jvm, layout: str
) -> Iterator[LocalStock]:
    server = ServerConfig(
        data_dir=str(tmp_path / "server"),
        listen="grpc://127.0.0.1:0",
        tiering_check_interval_ms=100,
        tiering_timeout_ms=LONG_MS,
        kv_snapshot_interval_ms=0,
        tiering_backoff_ms=0,
    )
    warehouse = tmp_path / "warehouse"
    catalog = {"type": "hadoop", "warehouse": str(warehouse), "layout": layout}
    with EmbeddedCluster(server) as cluster:
        config = Config(
            client=ClientConfig(bootstrap=cluster.address),
            datalake=DatalakeConfig("iceberg", catalog),
            tiering=TieringConfig(spill_dir=str(tmp_path)),
        )
        with connect(config.client) as client:
            site = Site(client, config, warehouse, str(tmp_path / "work"), lake_sql, jvm)
            yield LocalStock(
                client, STOCK, site.rows, site=site, cluster=cluster, data_dir=Path(server.data_dir)
            )
