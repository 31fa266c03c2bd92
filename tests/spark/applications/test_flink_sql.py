"""Flink SQL of Fluss 0.9.1 on the embedded server: an address is its only setting."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pytest

from sluice.client import Client, connect
from sluice.config import ClientConfig, Config, DatalakeConfig, ServerConfig, TieringConfig
from sluice.driver.lakes.jvm import Jvm
from sluice.driver.local import tier_once
from sluice.model import TablePath
from sluice.server.cluster import EmbeddedCluster
from tests.docs.blocks import claimed_blocks
from tests.spark.conftest import JARS
from tests.support.clients.flink_sql import ALL, flink_sql

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(600)]

BUCKETS, ROWS = 24, 120_000
TIERED = "'table.datalake.enabled' = 'true', 'table.datalake.freshness' = '1d'"


@dataclass
class Site:
    client: Client
    config: Config
    jvm: Jvm
    folder: Path

    def sql(self, mode: str, *statements: tuple[int, str]) -> list[list[str]]:
        """The rows of each statement, in the catalog of the server."""
        address = self.config.client.bootstrap.removeprefix("fluss://")
        [block] = claimed_blocks("docs/flink.md", __file__)
        catalog = block.content.strip().rstrip(";").replace("server:9124", address)
        return flink_sql(self.folder, mode, [(0, catalog), (0, "USE CATALOG fluss"), *statements])[
            2:
        ]

    def append(self, table: str, **columns: pa.Array) -> None:
        with self.client.log_writer(TablePath("fluss", table)) as writer:
            writer.write(pa.table(columns))

    def tier(self, table: str) -> None:
        path = TablePath("fluss", table)
        assert tier_once(self.config, path, now=True, jvm=self.jvm).outcome == "committed"


@pytest.fixture
def site(tmp_path: Path, jvm: Jvm) -> Iterator[Site]:
    server = ServerConfig(
        data_dir=str(tmp_path / "server"),
        listen="fluss://127.0.0.1:0",
        kv_snapshot_interval_ms=500,
    )
    lake = DatalakeConfig("iceberg", {"type": "hadoop", "warehouse": str(tmp_path / "lake")})
    of_server = replace(lake, iceberg={**lake.iceberg, "layout": "legacy"})  # of Fluss 0.9
    with EmbeddedCluster(server, datalake=of_server) as cluster:
        config = Config(
            ClientConfig(cluster.address), datalake=lake, tiering=TieringConfig(jars=JARS)
        )
        with connect(config.client) as client:
            yield Site(client, config, jvm, tmp_path)


def test_a_streaming_read_gets_all_rows_of_skewed_buckets(site: Site) -> None:
    """Most rows are in one bucket, some buckets have a few, and some stay empty."""
    site.sql(
        "batch",
        (
            0,
            "CREATE TABLE skewed (id BIGINT, k STRING)"
            f" WITH ('bucket.num' = '{BUCKETS}', 'bucket.key' = 'k')",
        ),
    )
    keys = ["much" if i % 10 else f"k{i % 9}" for i in range(ROWS)]
    site.append("skewed", id=pa.array(range(ROWS), pa.int64()), k=pa.array(keys))
    ends = sorted(site.client.admin.list_offsets(TablePath("fluss", "skewed")).values())
    assert ends[0] == 0
    assert ends[-1] > ROWS * 0.8

    [rows] = site.sql("streaming", (ROWS, "SELECT id FROM skewed"))
    assert sorted(int(row.removeprefix("+I[").rstrip("]")) for row in rows) == list(range(ROWS))


def test_the_lake_and_union_reads(site: Site) -> None:
    """Of a log table and of one with a primary key; the lake is found without any setting.

    Each bucket has rows: at one without, Fluss's union read of a log table waits (docs/flink.md).
    """
    first = ", ".join(f"({i}, 'n{i}')" for i in range(1, 13))
    site.sql(
        "batch",
        (
            0,
            "CREATE TABLE orders (id BIGINT, note STRING)"
            f" WITH ('bucket.num' = '3', 'bucket.key' = 'id', {TIERED})",
        ),
        (
            0,
            "CREATE TABLE stock (id BIGINT, n INT, PRIMARY KEY (id) NOT ENFORCED)"
            f" WITH ('bucket.num' = '2', {TIERED})",
        ),
        (0, f"INSERT INTO orders VALUES {first}"),
        (0, "INSERT INTO stock VALUES (1, 10), (2, 20), (3, 30)"),
    )
    assert all(site.client.admin.list_offsets(TablePath("fluss", "orders")).values())
    site.tier("orders")
    site.tier("stock")
    answers = site.sql(
        "batch",
        (0, "INSERT INTO orders VALUES (13, CAST(NULL AS STRING))"),
        (0, "INSERT INTO stock VALUES (2, 21), (4, 40)"),
        (0, "DELETE FROM stock WHERE id = 1"),
        (ALL, "SELECT * FROM orders"),
        (ALL, "SELECT id, note FROM `orders$lake`"),
        (ALL, "SELECT id, n FROM `stock$lake`"),
        (ALL, "SELECT count(*) FROM `orders$lake$snapshots`"),
    )
    tiered = [f"+I[{i}, n{i}]" for i in range(1, 13)]
    assert [sorted(rows) for rows in answers[3:]] == [
        sorted([*tiered, "+I[13, null]"]),
        sorted(tiered),
        ["+I[1, 10]", "+I[2, 20]", "+I[3, 30]"],
        ["+I[1]"],
    ]
    # Fluss 0.9.1 refuses this read in batch mode: Iceberg's rows are not sorted by key.
    lake = ["+I[1, 10]", "+I[2, 20]", "+I[3, 30]"]
    changes = ["-U[2, 20]", "+U[2, 21]", "+I[4, 40]", "-D[1, 10]"]
    [rows] = site.sql("streaming", (len(lake + changes), "SELECT * FROM stock"))
    assert sorted(rows) == sorted(lake + changes)
