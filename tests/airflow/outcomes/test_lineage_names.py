"""OpenLineage's names of tables, and what a tier task knows to report. Without Airflow."""

from __future__ import annotations

import logging
import socket
import sys
import time
from pathlib import Path
from types import ModuleType

import pyarrow as pa
import pytest

from sluice.client import Client, connect
from sluice.formats.types.types import schema_from_arrow
from sluice.model import Reason, TableDescriptor, TablePath
from sluice.rounds.records.json_files import write_json
from sluice.rounds.records.result import RoundFailure, RoundResult, failure_uri, result_uri
from sluice_airflow.claims.claims import ClaimedTable
from sluice_airflow.config.connection import FlussConnection
from sluice_airflow.outcomes import lineage
from sluice_airflow.outcomes.lineage import Lineage, Tiered
from sluice_airflow.outcomes.openlineage_names import fluss_name, lake_name
from sluice_airflow.tier.tried_table import TriedTable

HADOOP = {"iceberg.type": "hadoop"}
JDBC = {"iceberg.type": "jdbc", "iceberg.warehouse": "s3://lake/w"}


@pytest.mark.parametrize(
    ("options", "dataset", "symlink"),
    [
        (
            {**HADOOP, "iceberg.warehouse": "/srv/lake/"},
            ("file", "/srv/lake/shop/orders"),
            ("file:/srv/lake", "shop.orders"),
        ),
        (
            {**HADOOP, "iceberg.warehouse": "file:///srv/lake"},
            ("file", "/srv/lake/shop/orders"),
            ("file:/srv/lake", "shop.orders"),
        ),
        (
            {**HADOOP, "iceberg.warehouse": "s3a://lake/w"},
            ("s3://lake", "w/shop/orders"),
            ("s3://lake/w", "shop.orders"),
        ),
        (
            {**HADOOP, "iceberg.warehouse": "hdfs://name:8020/w"},
            ("hdfs://name:8020", "/w/shop/orders"),
            ("hdfs://name:8020/w", "shop.orders"),
        ),
        (
            {**HADOOP, "iceberg.warehouse": "abfss://lake@me.dfs.core.windows.net/w"},
            ("abfss://lake@me.dfs.core.windows.net", "/w/shop/orders"),
            ("abfss://lake@me.dfs.core.windows.net/w", "shop.orders"),
        ),
        (
            {
                "iceberg.type": "HIVE",
                "iceberg.uri": "thrift://meta:9083,thrift://other:9083",
                "iceberg.warehouse": "s3://lake",
            },
            ("s3://lake", "shop.db/orders"),
            ("hive://meta:9083", "shop.orders"),
        ),
        ({"iceberg.uri": "thrift://meta:9083"}, ("hive://meta:9083", "shop.orders"), None),
        (
            {"iceberg.type": "glue", "iceberg.warehouse": "s3://lake/w"},
            ("s3://lake", "w/shop.db/orders"),
            None,
        ),
        (
            {
                "iceberg.type": "glue",
                "iceberg.warehouse": "s3://lake/w",
                "iceberg.client.region": "eu-west-1",
                "iceberg.glue.account-id": "123456789012",
            },
            ("s3://lake", "w/shop.db/orders"),
            ("arn:aws:glue:eu-west-1:123456789012", "table/shop/orders"),
        ),
        (
            {"iceberg.type": "rest", "iceberg.uri": "http://rest:8181", "iceberg.warehouse": "w"},
            ("http://rest:8181", "shop.orders"),
            None,
        ),
        (
            {**JDBC, "iceberg.uri": "jdbc:postgresql://u:secret@pg/cat?password=secret"},
            ("s3://lake", "w/shop/orders"),
            ("postgres://pg:5432", "cat.shop.orders"),
        ),
        (
            {**JDBC, "iceberg.uri": "jdbc:sqlite:/srv/catalog.db"},
            ("s3://lake", "w/shop/orders"),
            None,
        ),
    ],
)
def test_a_lake_table_is_named_as_by_openlineage_in_spark(
    options: dict[str, str], dataset: tuple[str, str], symlink: tuple[str, str] | None
) -> None:
    assert lake_name(options, "shop.orders") == (dataset, symlink)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"format": "iceberg"},
        {"iceberg.catalog-impl": "com.example.Catalog", "iceberg.warehouse": "s3://lake"},
        {"iceberg.type": "rest", "iceberg.uri": "http://me:secret@rest:8181"},
        {**HADOOP, "iceberg.warehouse": "s3://key:sec/ret@lake/w"},
        {**JDBC, "iceberg.warehouse": "", "iceberg.uri": "jdbc:postgresql://u:p[1/2@pg/cat"},
    ],
)
def test_a_lake_table_without_a_name(options: dict[str, str]) -> None:
    """The connection says too little, or its addresses hold a secret."""
    assert lake_name(options, "shop.orders") is None


@pytest.mark.parametrize("transport", ["grpc", "fluss"])
def test_a_fluss_table_has_one_name_for_each_transport(transport: str) -> None:
    named = fluss_name(f"{transport}://fluss.example:9123", "shop.orders")
    assert named == ("fluss://fluss.example:9123", "shop.orders")


@pytest.fixture
def _with_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if Airflow's provider had a transport: then its listener is imported."""
    monkeypatch.setitem(sys.modules, lineage.LISTENER, ModuleType(lineage.LISTENER))


def tried(folder: Path, name: str = "orders") -> TriedTable:
    return TriedTable(
        ClaimedTable(
            table=f"shop.{name}",
            table_id=1,
            tiering_epoch=1,
            coordinator_epoch=1,
            lease_id="job",
            plan_uri=f"file://{folder}/{name}/plan.json",
        ),
        "1",
    )


def ended(table: TriedTable, outcome: str, **facts: object) -> TriedTable:
    """The table after a driver that has left this result of the try."""
    result = RoundResult.of(table.claim, outcome, **facts)
    write_json(result_uri(table.plan_uri, table.attempt), result.to_json())
    table.read_outcome()
    return table


def new_lineage(*tables: TriedTable, bootstrap: str = "grpc://127.0.0.1:1") -> Lineage:
    return Lineage(FlussConnection(bootstrap, datalake=HADOOP), tables)


def test_what_a_round_has_written(tmp_path: Path) -> None:
    table = tried(tmp_path)
    found = new_lineage(table)
    ended(table, "committed", rows=5, bytes_written=70, files=2, lake_snapshot_id=9)
    assert found.tiered([table]) == [Tiered("shop.orders", 9, 5, 70, 2)]


def test_a_table_without_new_rows_in_the_lake_is_not_reported(tmp_path: Path) -> None:
    idle = ended(tried(tmp_path, "idle"), "nothing_new", lake_snapshot_id=9)
    lost = ended(tried(tmp_path, "lost"), "claim_lost")
    running, failed = tried(tmp_path, "running"), tried(tmp_path, "failed")
    failed.fail(RoundFailure(Reason.from_text("no")))
    assert new_lineage().tiered([idle, lost, running, failed]) == []


def test_a_claim_that_was_lost_after_the_lake_commit(tmp_path: Path) -> None:
    lost = ended(tried(tmp_path), "claim_lost", lake_snapshot_id=9, rows=5)
    assert [one.snapshot_id for one in new_lineage().tiered([lost])] == [9]


def test_the_buckets_that_a_failed_round_has_committed(tmp_path: Path) -> None:
    table = tried(tmp_path)
    part = RoundResult.of(table.claim, "committed", rows=5, lake_snapshot_id=9)
    failure = RoundFailure(Reason.from_text("no"), committed=part)
    write_json(failure_uri(table.plan_uri, "1"), failure.to_json())
    table.read_outcome()
    assert new_lineage().tiered([table]) == [Tiered("shop.orders", 9, 5, 0, 0)]


def test_a_retry_does_not_count_rows_again(tmp_path: Path) -> None:
    """Its first round is an earlier try's, the second one its own."""
    table = ended(tried(tmp_path), "committed", rows=5, bytes_written=70, lake_snapshot_id=8)
    again = new_lineage(table)
    assert again.tiered([table]) == [Tiered("shop.orders", 8, None, None, None)]
    table.next_round({**table.entry, "tiering_epoch": 2}, "2")
    ended(table, "committed", rows=2, bytes_written=30, lake_snapshot_id=9)
    assert again.tiered([table]) == [Tiered("shop.orders", 9, 2, None, None)]


def test_all_rounds_of_one_try(tmp_path: Path) -> None:
    table = tried(tmp_path)
    found = new_lineage(table)
    ended(table, "committed", rows=5, lake_snapshot_id=8)
    table.next_round({**table.entry, "tiering_epoch": 2}, "2")
    ended(table, "nothing_new", lake_snapshot_id=8)
    assert found.tiered([table]) == [Tiered("shop.orders", 8, 5, None, None)]


def test_columns_are_read_only_for_the_provider(
    embedded: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, lineage.LISTENER, raising=False)  # of another test
    with connect(embedded) as client:
        table = described(client, tmp_path)
        found = new_lineage(table)
        found.read_schemas(client, [table])
        assert found.schemas == {}, "no provider is loaded"


@pytest.mark.usefixtures("_with_provider")
def test_columns_of_the_tables_that_were_tiered(embedded: str, tmp_path: Path) -> None:
    with connect(embedded) as client:
        table, waits = described(client, tmp_path), tried(tmp_path, "waits")
        found = new_lineage()
        found.read_schemas(client, [table, waits])
    assert list(found.schemas) == ["shop.orders"]
    assert [column.name for column in found.schemas["shop.orders"].columns] == ["id"]


@pytest.mark.usefixtures("_with_provider")
def test_a_coordinator_that_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It holds the task up once, and for a short time."""
    monkeypatch.setattr(lineage, "SCHEMAS_S", 0.3)
    table = ended(tried(tmp_path), "committed", rows=5, lake_snapshot_id=9)
    found = new_lineage()
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        connect(f"grpc://127.0.0.1:{silent.getsockname()[1]}") as client,
        caplog.at_level(logging.WARNING, lineage.__name__),
    ):
        begun = time.monotonic()
        for _ in range(10):
            found.read_schemas(client, [table])
        assert time.monotonic() - begun < 2
    [told] = [one.message for one in caplog.records if one.name == lineage.__name__]
    assert "the event has no columns, because the coordinator did not describe" in told
    assert [one.rows for one in found.tiered([table])] == [5]


def described(client: Client, folder: Path) -> TriedTable:
    """A table that the cluster has, and whose round has ended."""
    client.admin.create_database("shop")
    schema = schema_from_arrow(pa.schema([("id", pa.int64())]))
    client.admin.create_table(
        TablePath("shop", "orders"), TableDescriptor(schema=schema, bucket_count=1)
    )
    return ended(tried(folder), "committed", rows=5, lake_snapshot_id=9)
