"""Tables with a primary key on Spark: the acquire task leases, executors read and reduce."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sluice.driver.spark.round import EXECUTORS, run
from sluice.lake.iceberg.deletes.position_finder import PositionFinder
from sluice.lake.iceberg.table import IcebergTable
from sluice.rounds.records.copy_size import CopySize, size_uri
from sluice.rounds.records.json_files import read_json, write_json
from sluice.rounds.records.plan_file import PlanFile, plan_uri
from sluice.rounds.records.result import RoundFailure, RoundResult, failure_uri, result_uri
from sluice_airflow.claims import leasing
from tests.spark.conftest import STOCK, LocalStock
from tests.support.harness.findings import finding

pytestmark = pytest.mark.spark
LEASE = "sluice-lease"


def planned(stock: LocalStock) -> str:
    """What the acquire task does: claims, leases, writes the plan."""
    claim = stock.site.claim(STOCK)
    snapshots = leasing.lease_snapshots(stock.client, LEASE, claim)
    uri = plan_uri(stock.site.work_uri, LEASE, claim)
    plan = PlanFile(claim, LEASE, stock.site.config.client.bootstrap, snapshots)
    write_json(uri, plan.to_json())
    return uri


def tier(stock: LocalStock, spark: Any, uri: str) -> RoundResult:
    assert run(spark.sparkContext, uri, "a1", stock.site.config) == 0, read_json(
        failure_uri(uri, "a1")
    )
    result = RoundResult.from_json(read_json(result_uri(uri, "a1")) or {})
    stock.client.tiering.finished(PlanFile.from_json(read_json(uri) or {}).claim)
    return result


@pytest.mark.slow
def test_executors_read_the_snapshots_of_the_plan(stock: LocalStock, spark: Any) -> None:
    stock.create()
    stock.put({key: key for key in range(100)})
    stock.snapshots()
    uri = planned(stock)
    assert len(PlanFile.from_json(read_json(uri) or {}).snapshots) == 2
    stock.put({key: -key for key in range(90, 110)})
    for _ in range(3):  # newer snapshots come; those of the lease stay
        stock.put({1: 1})
        stock.snapshots()
    first = tier(stock, spark, uri)
    assert (first.rows, first.deletes) == (110, 0)
    size = CopySize.from_json(read_json(size_uri(uri, "a1")) or {})
    assert size.snapshot_bytes > 1000
    assert size.scan_rows == 0
    stock.assert_equal()
    stock.delete(*range(50))
    stock.put({7: 7})
    uri = planned(stock)
    assert PlanFile.from_json(read_json(uri) or {}).snapshots == ()
    second = tier(stock, spark, uri)
    assert (second.rows, second.deletes) == (1, 50)
    assert read_json(size_uri(uri, "a1")) is None
    stock.assert_equal()


@pytest.mark.slow
@pytest.mark.parametrize("version", [2, pytest.param(3, marks=pytest.mark.long)])
def test_executors_look_up_positions_again_after_a_compaction(
    stock: LocalStock, spark: Any, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    def in_driver(*_: Any) -> None:
        raise AssertionError("the driver looks rows up")

    monkeypatch.setattr(PositionFinder, "find", in_driver)  # executors are other processes
    config = stock.site.config
    stock.site.config = replace(config, tiering=replace(config.tiering, driver_copy_rows=0))
    stock.create(version=version)
    stock.put({key: key for key in range(100)})
    tier(stock, spark, planned(stock))
    stock.put({key: -key for key in range(50)})
    result = tier(stock, spark, planned(stock))
    assert (result.deletes_as, result.copied_by) == ("positions", EXECUTORS)
    assert result.lookup_files == 2
    stock.assert_equal()

    commit = IcebergTable.commit
    compactions = [
        "CALL lake.system.rewrite_data_files(table => 'shop.stock', options =>"
        " map('rewrite-all', 'true'))"
    ]

    def after_a_compaction(table: IcebergTable, *arguments: Any) -> Any:
        while compactions:
            stock.rows(compactions.pop())
        return commit(table, *arguments)

    monkeypatch.setattr(IcebergTable, "commit", after_a_compaction)
    stock.put(dict.fromkeys(range(30, 60), 7))
    result = tier(stock, spark, planned(stock))
    assert any("looked up again" in note for note in result.notes)
    assert (result.deletes_as, result.copied_by) == ("positions", EXECUTORS)
    assert result.lookup_files == 4 + 2, "two files of each bucket, and then one"
    stock.assert_equal()
    stock.assert_no_litter()


@pytest.mark.slow
def test_a_snapshot_whose_lease_was_dropped_is_a_failure_with_its_name(
    stock: LocalStock, spark: Any, tmp_path: Path
) -> None:
    stock.create()
    stock.put({1: 1, 2: 2, 3: 3})
    stock.snapshots()
    uri = planned(stock)
    stock.client.leases.drop(LEASE)
    for n in range(4):
        stock.put({1: n, 2: n, 3: n})
        stock.snapshots()
    spilled = replace(stock.site.config.tiering, spill_dir=str(tmp_path / "spill"))
    (tmp_path / "spill").mkdir()
    config = replace(stock.site.config, tiering=spilled)
    assert run(spark.sparkContext, uri, "a1", config) == 1
    failure = RoundFailure.from_json(read_json(failure_uri(uri, "a1")) or {})
    assert "KvSnapshotNotExist" in failure.reason.text
    assert "KV snapshot" in failure.reason.text
    with finding():
        assert list((tmp_path / "spill").iterdir()) == []
        assert not list(stock.site.warehouse.rglob("*.parquet"))
