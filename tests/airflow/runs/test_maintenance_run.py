"""The whole way of the maintenance: the DAG, spark-submit, executors; Spark reads the lake."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sluice.config import ClientConfig, Config, DatalakeConfig, TieringConfig
from sluice.driver.lakes.jvm import Jvm
from sluice.driver.local import tier_once
from sluice.model import TablePath
from tests.airflow.place import ROOT, Place
from tests.airflow.runs.test_spark_run import CONF, SPARK, lake_at
from tests.support.tables.keyed_stock import Stock, stock_table

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.slow]

BROKEN, STOCK = TablePath("shop", "broken"), TablePath("shop", "stock")
DAG_FILE = str(ROOT / "dags/sluice_lake_maintenance.py")
KILL = {"SLUICE_FAILPOINTS": "maintain.convert.ready=kill"}


@pytest.fixture
def stock(
    place: Place, tmp_path: Path, lake_sql: Callable[[Path, str], list[Any]]
) -> Iterator[Stock]:
    """shop.stock has equality deletes, shop.broken has metadata that cannot be read."""
    lake, client = tmp_path / "lake", place.client
    config = Config(
        client=ClientConfig(bootstrap=place.address),
        datalake=DatalakeConfig("iceberg", {"type": "hadoop", "warehouse": str(lake)}),
        tiering=TieringConfig(position_lookup_bytes=0, spill_dir=str(tmp_path)),
    )
    for path in (BROKEN, STOCK):
        client.admin.create_table(path, stock_table())
    stock = Stock(client, STOCK, lambda query: lake_sql(lake, query))
    other = Stock(client, BROKEN, stock.sql)
    with Jvm(SPARK["AIRFLOW__SLUICE__JARS"].rpartition("/")[0]) as jvm:

        def tier(path: TablePath) -> None:
            tier_once(config, path, jvm=jvm, now=True)

        stock.put({key: key for key in range(40)})
        tier(STOCK)
        for number in range(2):
            stock.put(dict.fromkeys(range(number, 40, 5), 100 + number))
            stock.delete(30 + number)
            tier(STOCK)
        other.put({1: 1})
        tier(BROKEN)
    for file in (lake / "shop/broken/metadata").glob("*.metadata.json"):
        file.write_text("no metadata")
    yield stock


def test_a_daily_maintenance_on_spark(place: Place, stock: Stock) -> None:
    lake = place.lake
    usual = {
        **place.connection(datalake=lake_at(lake)),
        **SPARK,
        "AIRFLOW__SLUICE__MAINTENANCE_RETRIES": "0",
    }

    def run(conf: dict[str, Any], **more: str) -> tuple[dict[str, Any], str]:
        """A run, and what its task has logged."""
        seen = len(place.airflow.log.read_text())
        conf = {"spark_conf": CONF, **conf}
        done = place.run(conf, file=DAG_FILE, **usual, **more)
        return done, place.airflow.log.read_text()[seen:]

    def equality_files() -> int:
        return len(stock.rows("SELECT 1 FROM {lake}.delete_files WHERE content = 2"))

    stored = {path: path.stat().st_mtime_ns for path in lake.rglob("*")}
    shown, log = run({"tables": ["shop.st*", "nope.*"], "dry_run": True})
    assert shown["state"] == "failed", "a pattern matches nothing"
    assert "nope.*: no table of the cluster matches this pattern: correct the parameter" in log
    report = shown["xcoms"]["maintain_tables"]["report"]
    assert (report["applied"], report["tables"], report["needed"]) == (False, 2, 1)
    assert report["lines"][1].startswith("shop.stock: 4 equality delete files: PyIceberg")
    assert report["lines"][1] in log
    assert {path: path.stat().st_mtime_ns for path in lake.rglob("*")} == stored

    killed, log = run({}, **KILL)
    assert killed["state"] == "failed"
    assert "the maintenance ended early at table shop.stock: the Spark driver ended" in log
    assert killed["xcoms"]["maintain_tables"]["report"]["tables"] == 1, "the one before is known"
    assert equality_files() == 4

    done, log = run({})
    assert done["state"] == "failed"
    assert "1 of 2 tables could not be maintained completely" in log
    report = done["xcoms"]["maintain_tables"]["report"]
    assert (report["tables"], report["problems"]) == (2, 1)
    assert report["numbers"]["equality_files_removed"] == 4
    assert report["numbers"]["positions"] == 16
    assert report["lines"][0].startswith("shop.broken: cannot be read: ")
    assert "done: 4 equality delete files became" in report["lines"][1]
    assert "gained: 4 -> 0 files of equality deletes" in report["lines"][1]
    assert equality_files() == 0
    stock.assert_equal()
    names = [path.name for path in lake.rglob("*-maintenance-*-positions.parquet")]
    assert {name.split("-")[1] for name in names} == {"0", "1"}, "each bucket in a task of its own"
