"""The live files of buckets as Iceberg plans them, and files that only other writers make."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sluice.errors import LakeCommitRefused, LakeNotWritable, LakeTableMismatch
from sluice.lake.iceberg.lake import IcebergLake
from sluice.lake.iceberg.snapshots import live_files
from sluice.lake.iceberg.table import IcebergTable
from sluice.model import TableBucket
from sluice.rounds.values.lake_files import BucketFiles, LiveFiles
from sluice.rounds.values.types import Split
from tests.spark.conftest import STOCK, LocalStock

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def lake_table(stock: LocalStock) -> IcebergTable:
    site = stock.site
    lake = IcebergLake(site.jvm.gateway, {"type": "hadoop", "warehouse": str(site.warehouse)})
    table = lake.load(STOCK)
    assert table is not None
    return table


def split(bucket: int, day: str | None = None) -> Split:
    partition_id = None if day is None else len(day)
    return Split(TableBucket(1, partition_id, bucket), () if day is None else (day,), 0, 9)


def buckets(found: LiveFiles) -> list[BucketFiles]:
    return [*found.buckets.values()]


def names(some: Any) -> list[str]:
    return [Path(one.path).name for one in some]


def test_live_files_are_those_of_the_metadata_tables(stock: LocalStock) -> None:
    stock.create(partitioned=True)
    for day in ("a_b-2", "tue"):
        stock.client.admin.create_partition(STOCK, {"day": day})
        stock.put({key: key for key in range(100, 120)}, day)
    stock.tier()
    table = lake_table(stock)
    stock.put({100: 1, 101: 1}, "a_b-2")
    stock.tier()
    stock.assert_equal()

    splits = [split(0, "a_b-2"), split(1, "a_b-2"), split(1, "tue"), split(1, "none")]
    found = table.live_files(splits)
    current = stock.rows(
        "SELECT snapshot_id FROM {lake}.snapshots ORDER BY committed_at DESC LIMIT 1"
    )
    assert (found.snapshot_id, found.as_vectors) == (current[0][0], False)
    assert [*found.buckets] == [one.bucket for one in splits]
    files = stock.rows(
        "SELECT content, file_path, record_count, file_size_in_bytes, partition,"
        " readable_metrics.day AS day, readable_metrics.id AS id FROM {lake}.all_files"
    )
    for one, of_bucket in zip(splits, buckets(found), strict=True):
        mine = [
            row
            for row in files
            if (row.partition.day, row.partition.id_bucket)
            == (one.partition_values[0], one.bucket.bucket)
        ]
        data = sorted((row for row in mine if not row.content), key=lambda row: row.file_path)
        assert [(f.path, f.rows, f.size_bytes, f.key_bytes) for f in of_bucket.files] == [
            (
                r.file_path,
                r.record_count,
                r.file_size_in_bytes,
                r.day.column_size + r.id.column_size,
            )
            for r in data
        ]
        for file, row in zip(of_bucket.files, data, strict=True):
            (low_day, high_day), (low, high) = file.bounds
            assert (low_day.decode(), high_day.decode()) == (one.partition_values[0],) * 2
            bounds = [int.from_bytes(bound, "little", signed=True) for bound in (low, high)]
            assert bounds == [row.id.lower_bound, row.id.upper_bound]
        marks = [row for row in mine if row.content == 1]
        assert [(m.path, m.rows, m.size_bytes, m.blob) for m in of_bucket.marks] == [
            (row.file_path, row.record_count, row.file_size_in_bytes, None) for row in marks
        ]
    assert found.descriptions.keys() == {m for b in buckets(found) for m in b.marks}
    assert len(found.descriptions) in (1, 2)
    assert buckets(found)[3] == BucketFiles()


def test_a_round_that_changes_ten_thousand_partitions(stock: LocalStock) -> None:
    """A filter that names each of them would be too deep for Java's stack."""
    stock.create(partitioned=True)
    stock.client.admin.create_partition(STOCK, {"day": "mon"})
    stock.put({1: 1})
    stock.tier()
    splits = [split(bucket, "mon") for bucket in (0, 1)]
    splits += [Split(TableBucket(1, n, 0), (f"day{n}",), 0, 9) for n in range(100, 10_100)]
    found = buckets(lake_table(stock).live_files(splits))
    assert sum(len(bucket.files) for bucket in found) == 1
    assert len(found) == 10_002


def test_a_table_without_a_snapshot_and_one_with_too_many_files(
    stock: LocalStock, monkeypatch: pytest.MonkeyPatch
) -> None:
    stock.create()
    stock.put({key: key for key in range(10)})
    stock.tier()
    table = lake_table(stock)
    [one, two] = buckets(table.live_files([split(0), split(1)]))
    assert (len(one.files), len(two.files)) == (1, 1)
    stock.put({key: -key for key in range(10)})
    monkeypatch.setattr(live_files, "FILES_MAX", 1)
    result = stock.tier()
    assert "its buckets have more than 1 data files together: compact" in result.deletes_as
    stock.assert_equal()
    monkeypatch.setattr(live_files, "FILES_MAX", 4)
    assert all(not of.unusable for of in buckets(table.live_files([split(0), split(1)])))

    stock.rows("CREATE TABLE lake.shop.bare (id BIGINT NOT NULL) USING iceberg")
    bare = IcebergLake(
        stock.site.jvm.gateway, {"type": "hadoop", "warehouse": str(stock.site.warehouse)}
    ).load(type(STOCK)("shop", "bare"))
    assert bare is not None
    assert bare.live_files([split(0)]) == LiveFiles(None, {split(0).bucket: BucketFiles()})


def test_a_manifest_that_is_gone_is_an_error(stock: LocalStock) -> None:
    stock.create()
    stock.put({1: 1})
    stock.tier()
    for path in stock.site.warehouse.rglob("metadata/*-m*.avro"):
        path.unlink()
    with pytest.raises(LakeNotWritable, match=r"read the data files of lake table shop\.stock"):
        lake_table(stock).live_files([split(0)])


@pytest.mark.parametrize("name", ["orc", pytest.param("avro", marks=pytest.mark.long)])
def test_data_files_of_other_formats_are_not_looked_up(stock: LocalStock, name: str) -> None:
    stock.create()
    stock.put({key: key for key in range(10)})
    stock.tier()
    stock.rows(f"ALTER TABLE {{lake}} SET TBLPROPERTIES ('write.format.default' = '{name}')")
    stock.rows("DELETE FROM {lake} WHERE id = 5")
    stock.rows("INSERT INTO {lake} VALUES ('mon', 5, 'pen', 5)")
    stock.rows("ALTER TABLE {lake} SET TBLPROPERTIES ('write.format.default' = 'parquet')")
    stock.assert_equal()
    stock.put({key: -key for key in range(10)})
    said = stock.tier().deletes_as
    assert "positions in 1 of 2 buckets" in said
    assert f".{name} is not a Parquet file" in said
    stock.assert_equal()


@pytest.mark.parametrize("upgraded", [True, pytest.param(False, marks=pytest.mark.long)])
def test_position_deletes_of_other_formats_are_not_lost(stock: LocalStock, upgraded: bool) -> None:
    """A reader ignores them beside a vector, and Sluice cannot put them into one."""
    stock.create()
    stock.put({key: key for key in range(20)})
    stock.tier()
    stock.rows("ALTER TABLE {lake} SET TBLPROPERTIES ('write.delete.format.default' = 'avro')")
    stock.rows("DELETE FROM {lake} WHERE id IN (3, 4, 5, 6)")
    for key in (3, 4, 5, 6):
        del stock.held["mon", key]
    if upgraded:
        stock.rows("ALTER TABLE {lake} SET TBLPROPERTIES ('format-version' = '3')")
    stock.assert_equal()
    stock.put({key: -key for key in (3, 7, 8, 9, 10, 11, 12)})
    said = stock.tier().deletes_as
    assert ("is not a Parquet file" in said) == upgraded
    stock.assert_equal()


def test_a_key_column_that_had_another_name_for_a_while(stock: LocalStock) -> None:
    """The newest snapshot has the schema of that time."""
    stock.create()
    stock.put({key: key for key in range(10)})
    stock.tier()
    stock.rows("ALTER TABLE {lake} RENAME COLUMN id TO number")
    stock.rows("DELETE FROM {lake} WHERE number = 5")
    stock.rows("INSERT INTO {lake} VALUES ('mon', 5, 'pen', 5)")
    stock.rows("ALTER TABLE {lake} RENAME COLUMN number TO id")
    stock.assert_equal()
    stock.put({key: -key for key in range(10)})
    assert stock.tier().deletes_as == "positions"
    stock.assert_equal()


@pytest.mark.parametrize("lookup_bytes", [1 << 30, 0])
def test_rows_in_files_of_another_partition_spec_cannot_be_deleted(
    stock: LocalStock, lookup_bytes: int
) -> None:
    """Deletes of one spec do not reach files of another: the key would be there twice."""
    config = stock.site.config
    tiering = replace(config.tiering, position_lookup_bytes=lookup_bytes)
    stock.site.config = replace(config, tiering=tiering)
    stock.create()
    stock.put({key: key for key in range(20)})
    stock.tier()
    lake_table(stock)._loaded.java.updateSpec().addField("day").commit()
    rewrite = (
        "CALL lake.system.rewrite_data_files(table => 'shop.stock',"
        " options => map('rewrite-all', 'true'))"
    )
    stock.rows(rewrite)
    lake_table(stock)._loaded.java.updateSpec().removeField("day").commit()
    stock.assert_equal()
    stock.put({key: -key for key in range(5)})
    with pytest.raises((LakeTableMismatch, LakeCommitRefused), match="another partition spec") as e:
        stock.tier()
    assert "CALL CATALOG.system.rewrite_data_files(table => 'shop.stock'" in str(e.value)
    stock.rows(rewrite)
    stock.tier()
    stock.assert_equal()
