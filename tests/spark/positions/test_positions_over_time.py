"""Tables whose deletes change their form: equality deletes, positions, vectors, other writers'."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sluice.lake.iceberg.deletes import position_deletes
from tests.docs.blocks import claimed_blocks
from tests.spark.conftest import STOCK, LocalStock

pytestmark = [pytest.mark.spark, pytest.mark.slow]
UPGRADE = "ALTER TABLE {lake} SET TBLPROPERTIES ('format-version' = '3')"


def forms(stock: LocalStock) -> dict[str, int]:
    """The live delete files: vectors, position files, equality files."""
    rows = stock.rows("SELECT content, lower(file_format) AS form FROM {lake}.delete_files")
    found: dict[str, int] = {}
    for row in rows:
        name = "equality" if row.content == 2 else row.form
        found[name] = found.get(name, 0) + 1
    return found


def change(stock: LocalStock, start: int, day: str = "mon") -> None:
    """Updates five keys, and deletes two."""
    stock.put(dict.fromkeys(range(start, start + 5), 1000 + start), day)
    stock.delete(start + 5, start + 6, day=day)


def budget(stock: LocalStock, lookup_bytes: int, files: int = 200) -> None:
    config = stock.site.config
    tiering = replace(
        config.tiering, position_lookup_bytes=lookup_bytes, position_lookup_files=files
    )
    stock.site.config = replace(config, tiering=tiering)


@pytest.mark.parametrize("version", [2, pytest.param(3, marks=pytest.mark.long)])
def test_equality_deletes_of_earlier_rounds_and_positions_after_them(
    stock: LocalStock, version: int
) -> None:
    stock.create(version=version)
    stock.put({key: key for key in range(40)})
    stock.tier()
    budget(stock, 0)
    change(stock, 0)
    change(stock, 20)
    result = stock.tier()
    assert result.deletes_as.startswith("equality deletes")
    assert "tiering.position_lookup_bytes is 0" in result.deletes_as
    assert forms(stock) == {"equality": 2}
    stock.assert_equal()
    budget(stock, 1 << 30)
    change(stock, 3)  # finds rows that equality deletes have deleted too, and marks them once more
    assert stock.tier().deletes_as == "positions"
    stock.assert_equal()
    budget(stock, 0)
    change(stock, 4)
    stock.tier()
    stock.assert_equal()
    budget(stock, 1 << 30)
    stock.put({key: -key for key in range(40)})
    assert stock.tier().deletes_as == "positions"
    stock.assert_equal()


def test_a_compaction_ends_the_equality_deletes_of_a_table_with_many_files(
    stock: LocalStock,
) -> None:
    """What docs/lake.md says of 200 files, with four: each round adds one to each bucket."""
    budget(stock, 1 << 30, files=4)
    stock.create()
    told = []
    for number in range(7):
        stock.put(dict.fromkeys(range(40), number))
        told.append(stock.tier().deletes_as)
    assert told[:5] == ["", *["positions"] * 4]
    [shown] = claimed_blocks("docs/lake.md", __file__)
    text = shown.content.strip().replace("= 200:", "= 4:")
    assert told[5:] == [text.replace("201 ", f"{files} ") for files in (5, 6)]
    assert forms(stock)["equality"] == 4
    stock.rows(
        "CALL lake.system.rewrite_data_files(table => 'shop.stock',"
        " options => map('delete-file-threshold', '1', 'remove-dangling-deletes', 'true'))"
    )
    assert forms(stock) == {}
    stock.put({key: -key for key in range(40)})
    assert stock.tier().deletes_as == "positions"
    assert forms(stock) == {"parquet": 2}
    stock.assert_equal()


def test_a_table_that_is_upgraded_goes_on_with_vectors(stock: LocalStock) -> None:
    """It has position files of several data files, of one, and of Spark."""
    stock.create()
    stock.put({key: key for key in range(60)})
    stock.tier()
    change(stock, 0)
    stock.tier()
    change(stock, 3)  # of two data files in each bucket
    stock.tier()
    stock.rows("DELETE FROM {lake} WHERE id IN (50, 51, 52, 53)")
    for key in (50, 51, 52, 53):
        del stock.held["mon", key]
    assert forms(stock).keys() == {"parquet"}
    stock.rows(UPGRADE)
    stock.assert_equal()
    for start in (1, 30, 48):
        change(stock, start)
        assert stock.tier().deletes_as == "positions"
        stock.assert_equal()
    assert "puffin" in forms(stock)
    stock.rows("DELETE FROM {lake} WHERE id IN (40, 41)")
    del stock.held["mon", 40], stock.held["mon", 41]
    stock.put({key: -key for key in range(60)})
    assert stock.tier().deletes_as == "positions"
    stock.assert_equal()
    stock.rows(
        "CALL lake.system.rewrite_data_files(table => 'shop.stock',"
        " options => map('rewrite-all', 'true', 'remove-dangling-deletes', 'true'))"
    )
    stock.assert_equal()
    change(stock, 10)
    assert stock.tier().deletes_as == "positions"
    assert forms(stock).keys() == {"puffin"}
    stock.assert_equal()


@pytest.mark.long
def test_an_upgrade_between_look_up_and_commit_fails_one_round(stock: LocalStock) -> None:
    """Iceberg refuses position files there; the next round has vectors."""
    stock.create()
    stock.put({key: key for key in range(10)})
    stock.tier()
    change(stock, 0)
    stored = {*stock.site.warehouse.rglob("data/**/*.*")}

    class Upgrade:
        def phase(self, name: str) -> None:
            if name == "prepare":
                stock.rows(UPGRADE)

        def planned(self, splits: int, offsets: int) -> None: ...

        def copied(self, rows: int) -> None: ...

    with pytest.raises(Exception, match="Must use DVs for position deletes in V3"):
        stock.tier(Upgrade())
    assert {*stock.site.warehouse.rglob("data/**/*.*")} == stored
    assert stock.tier().deletes_as == "positions"
    assert forms(stock).keys() == {"puffin"}
    stock.assert_equal()


def test_vectors_in_partitions_that_come_and_go(stock: LocalStock) -> None:
    stock.create(partitioned=True, version=3)
    admin = stock.client.admin
    for day in ("mon", "tue", "a_b-2"):
        admin.create_partition(STOCK, {"day": day})
        stock.put({key: key for key in range(20)}, day)
    stock.tier()
    for start in (0, 3):
        for day in ("mon", "tue", "a_b-2"):
            change(stock, start, day)
        assert stock.tier().deletes_as == "positions"
        stock.assert_equal()
    places = stock.rows("SELECT DISTINCT partition.day, file_format FROM {lake}.delete_files")
    assert {tuple(row) for row in places} == {(day, "PUFFIN") for day in ("mon", "tue", "a_b-2")}
    admin.drop_partition(STOCK, {"day": "mon"})
    admin.create_partition(STOCK, {"day": "mon"})
    stock.forget("mon")
    stock.put({3: 33, 4: 4}, "mon")
    change(stock, 10, "tue")
    result = stock.tier()
    assert any("mon was dropped and created again" in note for note in result.notes)
    assert result.deletes_as == "positions"
    stock.assert_equal()
    change(stock, 0, "mon")
    stock.tier()
    stock.assert_equal()


@pytest.mark.long
@pytest.mark.parametrize("version", [2, 3])
def test_many_rounds_with_a_key_that_changes_in_each(
    stock: LocalStock, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files are merged again and again; Spark reads the table after each fourth round."""
    monkeypatch.setattr(position_deletes, "MERGED_FROM", 3)
    stock.create(version=version)
    stock.put({key: key for key in range(60)})
    stock.tier()
    for number in range(16):
        stock.put({0: number, 1: number, number: -number})
        stock.delete(20 + number)
        assert stock.tier().deletes_as == "positions"
        if number % 4 == 3:
            stock.assert_equal()
    files = forms(stock)
    assert files.keys() == {"parquet" if version == 2 else "puffin"}
    if version == 2:
        assert files["parquet"] <= 2 * 6
