"""Log tables that pyfluss wrote through the native ports, tiered over `fluss://`, read by Spark."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sluice.client import connect
from sluice.config import ClientConfig, Config, DatalakeConfig, ServerConfig, TieringConfig
from sluice.driver.lakes.jvm import Jvm
from sluice.driver.local import tier_once
from sluice.errors import TableNotDue
from sluice.model import TablePath
from sluice.rounds.records.result import RoundResult
from sluice.server.cluster import EmbeddedCluster
from tests.support.clients.official_client import OfficialClient
from tests.support.harness.needs import needs_pyfluss

pytestmark = pytest.mark.spark
PATH = TablePath("shop", "orders")
SCHEMA = pa.schema([("id", pa.int64()), ("note", pa.string()), ("price", pa.decimal128(12, 2))])


def orders(first: int, count: int) -> pa.Table:
    ids = range(first, first + count)
    notes = [None if i % 5 == 0 else f"n{i % 7}" for i in ids]
    return pa.table({"id": ids, "note": notes, "price": [Decimal(i) for i in ids]}, SCHEMA)


def tier(config: Config, jvm: Jvm) -> RoundResult:
    """One round, as soon as the table is due."""
    deadline = time.monotonic() + 120
    while True:
        try:
            return tier_once(config, PATH, jvm=jvm)
        except TableNotDue:
            assert time.monotonic() < deadline
            time.sleep(0.05)


@needs_pyfluss
def test_what_pyfluss_wrote_comes_into_the_lake(
    tmp_path: Path, jvm: Jvm, lake_sql: Callable[[Path, str], list[Any]]
) -> None:
    server = ServerConfig(
        data_dir=str(tmp_path / "server"),
        listen="fluss://127.0.0.1:0",
        tiering_check_interval_ms=100,
    )
    warehouse = tmp_path / "warehouse"
    with EmbeddedCluster(server) as cluster:
        config = Config(
            client=ClientConfig(bootstrap=cluster.address),
            datalake=DatalakeConfig("iceberg", {"type": "hadoop", "warehouse": str(warehouse)}),
            tiering=TieringConfig(jars=os.environ.get("SLUICE_TIERING_JARS", "")),
        )
        official = OfficialClient(cluster.address)
        official.create_table(
            str(PATH),
            SCHEMA,
            bucket_count=3,
            properties={"table.datalake.enabled": "true", "table.datalake.freshness": "0s"},
        )
        official.append(str(PATH), orders(0, 5000))
        first = tier(config, jvm)
        assert (first.outcome, first.rows) == ("committed", 5000)
        official.append(str(PATH), orders(5000, 300))
        second = tier(config, jvm)
        assert (second.outcome, second.rows) == ("committed", 300)
        with connect(config.client) as client:
            known = client.admin.lake_snapshot(PATH)
        assert known is not None
        assert known.snapshot_id == second.lake_snapshot_id
    query = "SELECT count(*), count(DISTINCT id), sum(id), sum(price), count(note)"
    [found] = lake_sql(warehouse, f"{query} FROM lake.shop.orders")
    total = sum(range(5300))
    assert tuple(map(int, found)) == (5300, 5300, total, total, 5300 - 5300 // 5)
