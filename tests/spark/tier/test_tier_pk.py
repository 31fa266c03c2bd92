"""Tables with a primary key, tiered end to end and read by Spark, which applies the deletes."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from sluice import failpoints
from sluice.driver.cleaning import clean_tables
from sluice.lake.iceberg.catalog.java import iterate
from sluice.lake.iceberg.lake import IcebergLake
from sluice.model import Column
from sluice.model import types as t
from sluice.rounds.values.progress import NoProgress
from tests.spark.conftest import STOCK, LocalStock

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(("image", "layout"), [("FULL", "legacy"), ("WAL", "clean")])
def test_a_snapshot_its_log_and_changes_make_the_lake_the_table(
    stock: LocalStock, image: str, layout: str
) -> None:
    stock.create({"table.changelog.image": image})
    stock.put({key: key for key in range(100)})
    stock.snapshots()
    stock.put({key: -key for key in range(50, 120)})
    stock.delete(0, 1, 99, 500)
    first = stock.tier()
    assert (first.outcome, first.rows, first.deletes) == ("committed", 117, 0)
    stock.assert_equal()
    if layout == "legacy":
        from_snapshot = stock.rows("SELECT count(*) FROM {lake} WHERE __offset = -1")
        assert from_snapshot[0][0] == 48
    snapshots = stock.rows("SELECT count(*) FROM {lake}.snapshots")
    assert snapshots[0][0] == 1
    assert stock.client.leases.all() == []

    stock.put({5: None, 7: 70, 200: 200})
    stock.delete(8)
    stock.delete(200)
    stock.put({8: 88}, item=None)
    second = stock.tier()
    assert second.deletes == (3 if image == "FULL" else 4)
    stock.assert_equal()

    stock.delete(*range(60))
    third = stock.tier()
    assert (third.rows, third.files) == (0, 3)  # one for each data file that loses rows
    stock.assert_equal()
    stock.delete(12345)
    assert stock.tier().outcome == ("committed")
    assert stock.tier().outcome == "nothing_new"
    stock.assert_equal()


@pytest.mark.parametrize("layout", ["legacy", "clean"])
def test_the_lake_table_is_laid_out_as_fluss_lays_it_out(stock: LocalStock, layout: str) -> None:
    stock.create(partitioned=True)
    stock.client.admin.create_partition(STOCK, {"day": "mon"})
    stock.put({1: 1})
    stock.tier()
    stock.put({1: 2})
    stock.tier()
    text = stock.rows("SHOW CREATE TABLE {lake}")[0][0]
    made = " ".join(text.split())
    assert (
        "PARTITIONED BY (day, bucket(2, id))" in made
        or "PARTITIONED BY (day) CLUSTERED BY (id) INTO 2 BUCKETS" in made  # Spark 4.0's words
    )
    for mode in ("delete", "update", "merge"):
        assert f"'write.{mode}.mode' = 'merge-on-read'" in text
    assert "'identifier-fields' = '[day,id]'" in text or "'identifier-fields' = '[id,day]'" in text
    is_ordered = "'sort-order' = '__offset ASC NULLS FIRST'" in text
    assert is_ordered == ("sort-order" in text) == ("__" in text) == (layout == "legacy")
    assert "'format-version' = '2'" in text
    files = stock.rows(
        "SELECT content, file_path, record_count, equality_ids, partition"
        " FROM {lake}.all_files ORDER BY content"
    )
    assert [(f.content, f.record_count) for f in files if f.content] == [(1, 1)]
    deletes = files[-1]
    assert deletes.file_path.endswith("-00001-positions.parquet")
    assert deletes.partition[0] == "mon"


def test_partitions_dropped_and_created_again_while_others_change(stock: LocalStock) -> None:
    stock.create(partitioned=True)
    admin = stock.client.admin
    for day in ("mon", "tue"):
        admin.create_partition(STOCK, {"day": day})
        stock.put({1: 1, 2: 2, 3: 3}, day)
    stock.tier()
    stock.delete(1, day="mon")
    stock.tier()
    admin.drop_partition(STOCK, {"day": "mon"})
    admin.create_partition(STOCK, {"day": "mon"})
    stock.forget("mon")
    stock.put({3: 33, 4: 4}, "mon")
    stock.delete(2, day="tue")
    result = stock.tier()
    assert any("mon was dropped and created again" in note for note in result.notes)
    assert result.deletes == 1
    stock.assert_equal()
    ours = stock.rows("SELECT count(*) FROM {lake}.snapshots")
    assert ours[0][0] == 3
    admin.drop_partition(STOCK, {"day": "tue"})
    stock.put({5: 5}, "mon")
    notes = stock.tier().notes
    assert any("dropped since the last commit" in note for note in notes)
    stock.assert_equal()  # what was tiered of a partition that is gone stays


@pytest.mark.slow
def test_a_foreign_compaction_and_a_column_in_between(stock: LocalStock) -> None:
    stock.create()
    stock.put({key: key for key in range(20)})
    stock.tier()
    stock.put({1: 11})
    stock.delete(2)
    stock.tier()
    stock.rows(
        "CALL lake.system.rewrite_data_files(table => 'shop.stock', options => "
        "map('rewrite-all', 'true'))"
    )
    stock.assert_equal()
    stock.client.admin.add_columns(STOCK, [Column("note", t.STRING, 4)])
    stock.put({3: 33})
    stock.delete(4)
    stock.tier()
    stock.assert_equal()
    row = stock.rows("SELECT * FROM {lake} WHERE id = 3")[0]
    assert [*row.asDict()] == ["day", "id", "item", "n", "note"]


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
    stock: LocalStock,
    properties: dict[str, str],
    steps: list[tuple[dict[int, int | None], dict[int, int]]],
) -> None:
    stock.create(properties)
    for put, expected in steps:
        stock.put(put)
        stock.tier()
        assert {key[1]: row[1] for key, row in stock.in_lake().items()} == expected


@pytest.mark.slow
def test_partial_updates_bring_whole_rows(stock: LocalStock) -> None:
    stock.create()
    stock.put({1: 1, 2: 2})
    stock.tier()
    part = {"day": ["mon"], "id": pa.array([1], pa.int64()), "n": pa.array([10], pa.int32())}
    with stock.client.kv_writer(STOCK, ["day", "id", "n"]) as writer:
        writer.upsert(pa.table(part))
    stock.held["mon", 1] = ("pen", 10)
    stock.tier()
    stock.assert_equal()


@pytest.mark.parametrize("version", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_clean_up_knows_files_of_deletes(
    stock: LocalStock, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    stock.create(version=version)
    positions = "-positions.parquet" if version == 2 else "-deletes.puffin"
    stock.put({key: key for key in range(20)})
    stock.tier()
    stock.delete(1, 2, 3)
    stock.put({4: 44})
    before = data_files(stock)
    monkeypatch.setattr(failpoints, "_armed", failpoints.parse("round.lake_commit.ready=raise"))
    monkeypatch.setattr(failpoints, "_passages", {})
    with pytest.raises(RuntimeError, match="failpoint"):
        stock.tier()
    monkeypatch.setattr(failpoints, "_armed", failpoints.parse(""))
    dead = data_files(stock) - before
    for of_deletes in ("-deletes.parquet", positions):
        assert sum(path.endswith(of_deletes) for path in dead) == 2
    half = half_written(next(path for path in dead if path.endswith(positions)))
    dead.add(str(half))
    [report] = clean_tables(stock.site.config, STOCK, apply=True, jvm=stock.site.jvm)
    assert {left.path for left in report.kept} == dead  # its commit could still come
    stock.tier()
    stock.assert_equal()
    living = data_files(stock) - dead
    assert any(path.endswith(positions) for path in living)
    assert not any(path.endswith("-deletes.parquet") for path in living)  # the spare ones
    [report] = clean_tables(stock.site.config, STOCK, apply=True, jvm=stock.site.jvm)
    assert set(report.removed) == dead
    assert not half.exists()
    assert data_files(stock) == living
    stock.assert_equal()
    assert_paths_are_read_alike(stock)


def assert_paths_are_read_alike(stock: LocalStock) -> None:
    """Of delete files: all at once, and one by one as from Iceberg 1.11, which cannot otherwise."""
    options = {"type": "hadoop", "warehouse": str(stock.site.warehouse)}
    lake = IcebergLake(stock.site.jvm.gateway, options)
    table = lake.load(STOCK)
    assert table is not None
    references = table.references(set())
    manifests = table._loaded.java.currentSnapshot().deleteManifests(table._loaded.java.io())
    read = 0
    for manifest in iterate(manifests):
        paths = references._all_paths(manifest)
        assert sorted(references._paths_of_deletes(manifest)) == sorted(paths)
        read += len(paths)
    assert read == 2
    lake.close()


@pytest.mark.slow
def test_a_compaction_between_plan_and_commit(stock: LocalStock) -> None:
    stock.create()
    stock.put({key: key for key in range(20)})
    stock.tier()
    stock.put({1: 11})
    stock.tier()
    stock.delete(2, 3)
    stock.put({4: 44})

    class Compaction(NoProgress):
        def phase(self, name: str) -> None:
            if name == "prepare":
                stock.rows(
                    "CALL lake.system.rewrite_data_files(table => 'shop.stock',"
                    " options => map('rewrite-all', 'true'))"
                )

    stock.tier(Compaction())
    stock.assert_equal()
    operations = stock.rows("SELECT operation FROM {lake}.snapshots ORDER BY committed_at")
    assert [row[0] for row in operations] == ["append", "overwrite", "replace", "overwrite"]


def half_written(path: str) -> Path:
    """The file that a round which died while it wrote another such file has left."""
    name = Path(path).name.replace("-00001-", "-00002-")
    half = Path(path).with_name(f".{name}.{'0' * 32}.tmp")
    half.write_bytes(Path(path).read_bytes()[:4])
    return half


def data_files(stock: LocalStock) -> set[str]:
    return {
        str(path)
        for path in stock.site.warehouse.rglob("data/**/*")
        if path.suffix in (".parquet", ".puffin")
    }
