"""Tables with a primary key, tiered end to end and read by Spark, which applies the deletes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sluice.client import connect
from sluice.config import ClientConfig, Config, DatalakeConfig, ServerConfig, TieringConfig
from sluice.driver.jvm import Jvm
from sluice.driver.local import tier_once
from sluice.errors import TableNotDue, UnsupportedLakeOption
from sluice.model import Column, Schema, TableDescriptor, TablePath
from sluice.model import types as t
from sluice.rounds.files import RoundResult
from sluice.server.cluster import EmbeddedCluster

from .conftest import Site

pytestmark = pytest.mark.spark
PATH = TablePath("shop", "stock")
KEYS = (
    Column("day", t.STRING.not_null(), 0),
    Column("id", t.BIGINT.not_null(), 1),
)
ITEMS = (Column("item", t.STRING, 2), Column("n", t.INT, 3))
DUE = {"table.datalake.enabled": "true", "table.datalake.freshness": "0s"}


@dataclass
class Stock:
    """A site whose server takes KV snapshots when asked to, one table, and what it holds."""

    site: Site
    cluster: EmbeddedCluster
    held: dict[tuple[str, int], tuple[str | None, int | None]] = field(default_factory=dict)

    def create(
        self,
        *,
        partitioned: bool = False,
        properties: dict[str, str] | None = None,
        columns: tuple[Column, ...] = (*KEYS, *ITEMS),
    ) -> None:
        self.site.client.admin.create_database("shop", ignore_if_exists=True)
        self.site.client.admin.create_table(
            PATH,
            TableDescriptor(
                Schema(columns, ("day", "id"), len(columns) - 1),
                partition_keys=("day",) if partitioned else (),
                bucket_keys=("id",),
                bucket_count=2,
                properties={**DUE, **(properties or {})},
            ),
        )

    def put(self, rows: dict[int, int | None], day: str = "mon", item: str | None = "pen") -> None:
        keys = list(rows)
        table = pa.table(
            {
                "day": pa.array([day] * len(keys)),
                "id": pa.array(keys, pa.int64()),
                "item": pa.array([item] * len(keys), pa.string()),
                "n": pa.array([rows[key] for key in keys], pa.int32()),
            }
        )
        with self.site.client.kv_writer(PATH) as writer:
            writer.upsert(table)
        self.held |= {(day, key): (item, rows[key]) for key in keys}

    def delete(self, *keys: int, day: str = "mon") -> None:
        columns = {"day": pa.array([day] * len(keys)), "id": pa.array(keys, pa.int64())}
        with self.site.client.kv_writer(PATH) as writer:
            writer.delete(pa.table(columns))
        for key in keys:
            self.held.pop((day, key), None)

    def snapshots(self) -> None:
        """The server takes a KV snapshot of every bucket that has changed."""
        assert self.cluster.take_kv_snapshots(PATH)

    def tier(self) -> RoundResult:
        """One round, as soon as the table is due."""
        deadline = time.monotonic() + 60
        while True:
            try:
                return tier_once(self.site.config, PATH, jvm=self.site.jvm)
            except TableNotDue:
                assert time.monotonic() < deadline
                time.sleep(0.05)

    def in_lake(self) -> dict[tuple[str, int], tuple[str | None, int | None]]:
        rows = self.site.rows("SELECT day, id, item, n FROM lake.shop.stock")
        found = {(row.day, row.id): (row.item, row.n) for row in rows}
        assert len(found) == len(rows), "a key is there twice"
        return found

    def assert_equal(self) -> None:
        assert self.in_lake() == self.held


@pytest.fixture
def stock(tmp_path: Path, lake_sql: Callable[[Path, str], list[Any]], jvm: Jvm) -> Iterator[Stock]:
    server = ServerConfig(
        data_dir=str(tmp_path / "server"),
        listen="grpc://127.0.0.1:0",
        tiering_check_interval_ms=100,
        kv_snapshot_interval_ms=0,
    )
    warehouse = tmp_path / "warehouse"
    with EmbeddedCluster(server) as cluster:
        config = Config(
            client=ClientConfig(bootstrap=cluster.address),
            datalake=DatalakeConfig("iceberg", {"type": "hadoop", "warehouse": str(warehouse)}),
            tiering=TieringConfig(spill_dir=str(tmp_path)),
        )
        with connect(config.client) as client:
            site = Site(client, config, warehouse, str(tmp_path / "work"), lake_sql, jvm)
            yield Stock(site, cluster)


@pytest.mark.parametrize("image", ["FULL", "WAL"])
def test_a_snapshot_its_log_and_changes_make_the_lake_the_table(stock: Stock, image: str) -> None:
    stock.create(properties={"table.changelog.image": image})
    stock.put({key: key for key in range(100)})
    stock.snapshots()
    stock.put({key: -key for key in range(50, 120)})
    stock.delete(0, 1, 99, 500)
    first = stock.tier()
    assert (first.outcome, first.rows, first.deletes) == ("committed", 117, 0)
    stock.assert_equal()
    from_snapshot = stock.site.rows("SELECT count(*) FROM lake.shop.stock WHERE __offset = -1")
    assert from_snapshot[0][0] == 48
    snapshots = stock.site.rows("SELECT count(*) FROM lake.shop.stock.snapshots")
    assert snapshots[0][0] == 1
    assert stock.site.client.leases.all() == []

    stock.put({5: None, 7: 70, 200: 200})
    stock.delete(8)
    stock.delete(200)
    stock.put({8: 88}, item=None)
    second = stock.tier()
    assert second.deletes == (3 if image == "FULL" else 4)
    stock.assert_equal()

    stock.delete(*range(60))
    third = stock.tier()
    assert (third.rows, third.files) == (0, 2)  # one of deletes in each bucket
    stock.assert_equal()
    stock.delete(12345)
    assert stock.tier().outcome == ("committed")
    assert stock.tier().outcome == "nothing_new"
    stock.assert_equal()


def test_the_lake_table_is_laid_out_as_fluss_lays_it_out(stock: Stock) -> None:
    stock.create(partitioned=True)
    stock.site.client.admin.create_partition(PATH, {"day": "mon"})
    stock.put({1: 1})
    stock.tier()
    stock.put({1: 2})
    stock.tier()
    text = stock.site.rows("SHOW CREATE TABLE lake.shop.stock")[0][0]
    assert "PARTITIONED BY (day, bucket(2, id))" in text
    for mode in ("delete", "update", "merge"):
        assert f"'write.{mode}.mode' = 'merge-on-read'" in text
    assert "'identifier-fields' = '[day,id]'" in text or "'identifier-fields' = '[id,day]'" in text
    assert "'sort-order' = '__offset ASC NULLS FIRST'" in text
    assert "'format-version' = '2'" in text
    files = stock.site.rows(
        "SELECT content, file_path, record_count, equality_ids, partition"
        " FROM lake.shop.stock.all_files ORDER BY content"
    )
    assert [(f.content, f.record_count) for f in files if f.content] == [(2, 1)]
    deletes = files[-1]
    assert sorted(deletes.equality_ids) == [1, 2]
    assert deletes.file_path.endswith("-00001-deletes.parquet")
    assert deletes.partition[0] == "mon"


def test_partitions_dropped_and_created_again_while_others_change(stock: Stock) -> None:
    stock.create(partitioned=True)
    admin = stock.site.client.admin
    for day in ("mon", "tue"):
        admin.create_partition(PATH, {"day": day})
        stock.put({1: 1, 2: 2, 3: 3}, day)
    stock.tier()
    stock.delete(1, day="mon")
    stock.tier()
    admin.drop_partition(PATH, {"day": "mon"})
    admin.create_partition(PATH, {"day": "mon"})
    stock.held = {key: row for key, row in stock.held.items() if key[0] != "mon"}
    stock.put({3: 33, 4: 4}, "mon")
    stock.delete(2, day="tue")
    result = stock.tier()
    assert any("mon was dropped and created again" in note for note in result.notes)
    assert result.deletes == 1
    stock.assert_equal()
    ours = stock.site.rows("SELECT count(*) FROM lake.shop.stock.snapshots")
    assert ours[0][0] == 3
    admin.drop_partition(PATH, {"day": "tue"})
    stock.put({5: 5}, "mon")
    notes = stock.tier().notes
    assert any("partitions no longer there" in note for note in notes)
    stock.assert_equal()  # what was tiered of a partition that is gone stays


@pytest.mark.slow
def test_a_foreign_compaction_and_a_column_in_between(stock: Stock) -> None:
    stock.create()
    stock.put({key: key for key in range(20)})
    stock.tier()
    stock.put({1: 11})
    stock.delete(2)
    stock.tier()
    stock.site.rows(
        "CALL lake.system.rewrite_data_files(table => 'shop.stock', options => "
        "map('rewrite-all', 'true'))"
    )
    stock.assert_equal()
    stock.site.client.admin.add_columns(PATH, [Column("note", t.STRING, 4)])
    stock.put({3: 33})
    stock.delete(4)
    stock.tier()
    stock.assert_equal()
    row = stock.site.rows("SELECT * FROM lake.shop.stock WHERE id = 3")[0]
    assert list(row.asDict())[-4:] == ["note", "__bucket", "__offset", "__timestamp"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("properties", "steps"),
    [
        (
            {"table.merge-engine": "first_row"},
            [({1: 1, 2: 2}, {1: 1, 2: 2}), ({1: 9, 3: 3}, {1: 1, 2: 2, 3: 3})],
        ),
        (
            {"table.merge-engine": "versioned", "table.merge-engine.versioned.ver-column": "n"},
            [({1: 5, 2: 2}, {1: 5, 2: 2}), ({1: 4, 2: 3}, {1: 5, 2: 3})],
        ),
    ],
)
def test_merge_engines(
    stock: Stock,
    properties: dict[str, str],
    steps: list[tuple[dict[int, int | None], dict[int, int]]],
) -> None:
    stock.create(properties=properties)
    for put, expected in steps:
        stock.put(put)
        stock.tier()
        assert {key[1]: row[1] for key, row in stock.in_lake().items()} == expected


@pytest.mark.slow
def test_partial_updates_bring_whole_rows(stock: Stock) -> None:
    stock.create()
    stock.put({1: 1, 2: 2})
    stock.tier()
    part = {"day": ["mon"], "id": pa.array([1], pa.int64()), "n": pa.array([10], pa.int32())}
    with stock.site.client.kv_writer(PATH, ["day", "id", "n"]) as writer:
        writer.upsert(pa.table(part))
    stock.held["mon", 1] = ("pen", 10)
    stock.tier()
    stock.assert_equal()


def test_a_key_that_iceberg_would_cut_is_refused_with_the_reason(stock: Stock) -> None:
    at = Column("at", t.timestamp(9).not_null(), 1)
    schema = Schema((Column("id", t.BIGINT.not_null(), 0), at), ("id", "at"), 1)
    stock.site.client.admin.create_database("shop")
    stock.site.client.admin.create_table(
        PATH, TableDescriptor(schema, bucket_keys=("id",), bucket_count=1, properties=DUE)
    )
    with pytest.raises(UnsupportedLakeOption, match=r"two keys could become one; use TIMESTAMP"):
        stock.tier()
