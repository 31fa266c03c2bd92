"""What maintenance leaves alone: files and tables of others, and what it cannot read."""

from __future__ import annotations

import json
import os
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sluice.config import Config
from sluice.driver import maintaining
from sluice.driver.local import tier_once
from sluice.driver.maintaining import maintain_tables
from sluice.driver.spark import maintenance as spark_maintaining
from sluice.driver.spark.maintenance import run_maintenance
from sluice.errors import LakeTableMismatch, NetworkError
from sluice.lake.iceberg.catalog.java import java_list
from sluice.lake.iceberg.commit.tagged_update import TaggedUpdate
from sluice.lake.iceberg.lake import IcebergLake
from sluice.model import Column, Schema, TableDescriptor, TablePath, types
from sluice.rounds.records.json_files import write_json
from sluice.rounds.records.maintenance import MaintenanceRequest, read_outcome, request_uri
from sluice.rounds.upkeep.maintenance import MaintenanceReport, done_words
from tests.spark.conftest import STOCK, LocalStock
from tests.spark.upkeep.test_maintain import doctor, lake_table, maintained, run

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def orphan(stock: LocalStock) -> Path:
    """An old manifest list that no snapshot of the table references."""
    path = stock.site.warehouse / "shop" / "stock" / "metadata" / "snap-1-1-x.avro"
    path.write_text("of a branch")
    os.utime(path, times=(time.time() - 4 * 86_400,) * 2)
    return path


def test_nothing_is_deleted_if_others_may_need_the_files(stock: LocalStock) -> None:
    """Nessie's branches share files, and Iceberg's procedure snapshot makes tables that do."""
    stock.create()
    for number in range(3):
        stock.put({number: number})
        stock.tier()
    stock.rows(
        "ALTER TABLE {lake} SET TBLPROPERTIES ('gc.enabled' = 'false',"
        " 'history.expire.max-snapshot-age-ms' = '1',"
        " 'history.expire.min-snapshots-to-keep' = '1')"
    )
    manifest = orphan(stock)
    report = maintained(stock)
    assert manifest.exists()
    assert (report.notes, report.snapshots_expired, report.orphans_removed) == ([], 0, 0)
    assert report.before.keeps_files
    assert any("gc.enabled is false" in line for line in done_words(report))
    stock.rows("ALTER TABLE {lake} SET TBLPROPERTIES ('gc.enabled' = 'true')")
    assert maintained(stock).orphans_removed == 1
    assert not manifest.exists()


def test_a_merge_is_tried_again_beside_rounds(
    stock: LocalStock, monkeypatch: pytest.MonkeyPatch
) -> None:
    stock.create()
    for number in range(22):
        stock.put({number: number})
        stock.tier()
    commit = TaggedUpdate.commit

    def act(update: TaggedUpdate) -> None:
        monkeypatch.setattr(TaggedUpdate, "commit", commit)
        stock.put({1: 77})
        stock.tier()
        commit(update)

    monkeypatch.setattr(TaggedUpdate, "commit", act)
    report = maintained(stock)
    assert (report.notes, report.after is not None) == ([], True)
    assert report.manifests_merged > 20
    stock.assert_equal()


def test_files_of_another_spec_stop_only_what_they_concern(stock: LocalStock) -> None:
    stock.create()
    stock.put({1: 1})
    stock.tier()
    bucket = stock.site.jvm.gateway.jvm.org.apache.iceberg.expressions.Expressions.bucket("id", 4)
    lake_table(stock)._loaded.java.updateSpec().addField("more", bucket).commit()
    manifest = orphan(stock)
    with pytest.raises(LakeTableMismatch, match="the partition fields"):
        lake_table(stock).check_layout(stock.client.admin.table_info(STOCK))
    report = maintained(stock)
    assert "has another partition spec" in report.before.unknown
    assert (report.notes, report.orphans_removed) == ([], 1)
    assert not manifest.exists()


SCHEMA = {
    "type": "struct",
    "schema-id": 0,
    "identifier-field-ids": [1],
    "fields": [
        {"id": 1, "name": "region", "required": True, "type": "int"},
        {"id": 2, "name": "__offset", "required": False, "type": "long"},
    ],
}


def test_a_table_of_others_with_the_same_name_is_left_alone(stock: LocalStock) -> None:
    """It may have equality deletes that apply to rows in partitions of another kind."""
    stock.create()
    stock.put({1: 1})
    stock.tier()
    gateway = stock.site.jvm.gateway
    iceberg, path = gateway.jvm.org.apache.iceberg, TablePath("shop", "afirst")
    columns = Schema((Column("region", types.INT, 0),), highest_field_id=0)
    stock.client.admin.create_table(path, TableDescriptor(columns))
    lake = IcebergLake(gateway, {"type": "hadoop", "warehouse": str(stock.site.warehouse)})
    schema = iceberg.SchemaParser.fromJson(json.dumps(SCHEMA))
    parts = [{"name": "r", "transform": "identity", "source-id": 1, "field-id": 1000}]
    parts += [{"name": "b", "transform": "bucket[4]", "source-id": 1, "field-id": 1001}]
    spec = {"spec-id": 0, "fields": parts}
    made = iceberg.PartitionSpecParser.fromJson(schema, json.dumps(spec))
    table = lake._catalog.createTable(lake._identifier(path), schema, made)
    files = iceberg.DataFiles.builder(table.spec()).withPath("/x/a.parquet").withFormat("parquet")
    values = java_list(gateway, ["5", "3"])
    data = files.withFileSizeInBytes(9).withRecordCount(9).withPartitionValues(values).build()
    table.newAppend().appendFile(data).commit()
    found = lake.load(path)
    assert found is not None
    with pytest.raises(LakeTableMismatch, match="none of Fluss's layout"):
        found.maintenance().live_files()
    shown = run(stock)
    assert shown.exit_code == 0, shown.output
    assert "afirst" not in shown.output
    assert "shop.stock: healthy" in shown.output
    assert doctor(stock)["ok"]
    named = run(stock, "shop.afirst")
    assert (named.exit_code, "or is not one of Fluss" in named.stderr) == (1, True)


def test_the_lake_table_of_another_fluss_table_is_left_alone(stock: LocalStock) -> None:
    """Of a dropped one, or one of another cluster: its rounds are not known here."""
    stock.create()
    stock.put({1: 1})
    stock.tier()
    stock.client.admin.drop_table(STOCK)
    stock.create()
    manifest = orphan(stock)
    done = run(stock, "--yes")
    assert done.exit_code == 1
    assert "LakeTableMismatch: lake table shop.stock holds the rows of Fluss table" in done.stdout
    assert "Check that this is the lake of this cluster" in done.stdout
    assert manifest.exists()


@pytest.fixture
def three(stock: LocalStock) -> Config:
    """Three tables in the lake. The client gives up soon."""
    for name in ("a", "b", "c"):
        path = TablePath("shop", name)
        stock.site.create(path, {"id": types.BIGINT})
        stock.site.append(path, pa.table({"id": [1]}))
        tier_once(stock.site.config, path, jvm=stock.site.jvm, now=True)
    client = replace(stock.site.config.client, retry_timeout_ms=300)
    return replace(stock.site.config, client=client)


def test_a_cluster_that_does_not_answer_ends_the_run(stock: LocalStock, three: Config) -> None:
    """Each other table would wait as long. What was done is reported."""
    reports = maintain_tables(three, None, apply=True, jvm=stock.site.jvm)
    assert next(reports).table == "shop.a"
    stock.cluster.stop()
    with pytest.raises(NetworkError, match="The command did not get to 2 of 3 tables"):
        next(reports)


def test_a_cluster_that_does_not_answer_ends_the_application(
    stock: LocalStock, three: Config, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark_maintaining, "failpoint", lambda _: stock.cluster.stop())
    uri = request_uri(stock.site.work_uri, "run", "try-1")
    write_json(uri, MaintenanceRequest(three.client.bootstrap, ("*",)).to_json())
    assert run_maintenance(spark.sparkContext, uri, three, lambda: 0) == 1
    outcome = read_outcome(uri)
    assert [report.table for report in outcome.reports] == ["shop.a"]
    assert outcome.error is not None
    assert (outcome.error.kind, outcome.error.retryable) == ("NetworkError", True)


@pytest.mark.parametrize("end", ["cluster", "SIGTERM"])
def test_a_command_that_ends_early_reports_what_it_did(
    stock: LocalStock, three: Config, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    maintain = maintaining.maintain_table
    seen = []

    def then_end(*arguments: Any, **options: Any) -> MaintenanceReport | None:
        seen.append(arguments)
        if end == "SIGTERM" and len(seen) == 2:
            signal.raise_signal(signal.SIGTERM)
        report = maintain(*arguments, **options)
        if end == "cluster":
            stock.cluster.stop()
        return report

    monkeypatch.setattr(maintaining, "maintain_table", then_end)
    monkeypatch.setenv("SLUICE_CLIENT_RETRY_TIMEOUT_MS", str(three.client.retry_timeout_ms))
    done = run(stock, "--yes", "--format", "json")
    shown = json.loads(done.stdout)
    assert (shown["applied"], shown["complete"]) == (True, False)
    assert [table["table"] for table in shown["tables"]] == ["shop.a"]
    if end == "cluster":
        assert done.exit_code == 1
        assert "The command did not get to 2 of 3 tables: call it again" in done.stderr
    else:
        assert done.exit_code == 143
        assert "stopped by SIGTERM: what was done stays; call the command again" in done.stderr
