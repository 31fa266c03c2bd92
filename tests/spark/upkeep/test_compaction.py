"""Rounds that compact their tables, on Iceberg, beside other writers, and what Spark reads then."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sluice.driver.local import tier_once
from sluice.model import TablePath
from sluice.model import types as t
from sluice.rounds.records.result import RoundResult
from sluice.rounds.upkeep.compaction import AUTO_COMPACTION
from tests.spark.conftest import STOCK, At, LocalStock, Site
from tests.spark.positions.test_positions_over_time import budget, forms

pytestmark = [pytest.mark.spark, pytest.mark.slow]
COMPACTED = {AUTO_COMPACTION: "true"}
EVENTS = TablePath("shop", "events")
FILES = "SELECT file_path FROM {lake}.files WHERE content = 0"


def rounds(stock: LocalStock, count: int, start: int = 0) -> list[RoundResult]:
    found = []
    for number in range(start, start + count):
        stock.put(dict.fromkeys(range(number, 40, 3), number))
        stock.put({1000 + number: number, 2000 + number: number})
        if number:
            stock.delete(999 + number, 50)
        found.append(stock.tier())
    return found


@pytest.mark.parametrize("version", [2, pytest.param(3, marks=pytest.mark.long)])
def test_a_table_stays_small_and_right(stock: LocalStock, version: int) -> None:
    stock.create(COMPACTED, version=version)
    stock.put({key: key for key in range(200)})
    stock.tier()
    told = rounds(stock, 9)
    stock.assert_equal()
    assert sum(one.files_compacted for one in told) > 10
    assert len(stock.rows(FILES)) <= 10
    assert all(one.deletes_as == "positions" for one in told)
    budget(stock, 0)
    assert rounds(stock, 2, start=9)[-1].deletes_as.startswith("equality deletes")
    budget(stock, 1 << 30)
    rounds(stock, 4, start=11)
    stock.assert_equal()
    config = stock.site.config
    small = replace(config.tiering, compaction_bytes=9_000)
    stock.site.config = replace(config, tiering=small)
    rounds(stock, 4, start=15)
    stock.assert_equal()
    assert len(stock.rows(FILES)) <= 14
    assert "equality" not in forms(stock)
    stock.assert_no_litter()


def test_equality_deletes_go_with_the_files_that_they_apply_to(stock: LocalStock) -> None:
    """Iceberg drops older ones than all data files itself, but one partition has an old file."""
    stock.create(COMPACTED, partitioned=True)
    for day in ("mon", "tue"):
        stock.client.admin.create_partition(STOCK, {"day": day})
        stock.put({key: key for key in range(20)}, day)
    stock.tier()
    budget(stock, 0)
    stock.put({1: 7, 2: 7})
    stock.delete(3, 4)
    assert stock.tier().deletes_as.startswith("equality deletes")
    assert "equality" in forms(stock)
    budget(stock, 1 << 30)
    for number in range(4):
        stock.put(dict.fromkeys(range(9), number))
        stock.tier()
    assert "equality" not in forms(stock)
    stock.assert_equal()


def test_sorted_files_have_the_bounds_of_their_keys(stock: LocalStock) -> None:
    stock.create(COMPACTED)
    rounds(stock, 6)
    [*files] = stock.rows(
        "SELECT readable_metrics.id.lower_bound AS low, file_path FROM {lake}.files"
        " WHERE file_path LIKE '%-compacted-%'"
    )
    assert len(files) == 2
    for file in files:
        ids = pq.read_table(str(file.file_path).removeprefix("file:"))["id"].to_pylist()
        assert ids == sorted(ids)
        assert ids[0] == file.low


def _rewrite(stock: LocalStock) -> None:
    stock.rows(
        "CALL lake.system.rewrite_data_files(table => 'shop.stock',"
        " options => map('rewrite-all', 'true'))"
    )


def _delete(stock: LocalStock) -> None:
    stock.rows("DELETE FROM {lake} WHERE id = 39")
    stock.held.pop(("mon", 39))


@pytest.mark.parametrize("version", [2, pytest.param(3, marks=pytest.mark.long)])
@pytest.mark.parametrize("act", [_rewrite, _delete])
def test_others_who_change_files_meanwhile_win(
    stock: LocalStock, act: Callable[[LocalStock], None], version: int
) -> None:
    stock.create(COMPACTED, version=version)
    rounds(stock, 3)
    stock.rows("ALTER TABLE {lake} SET TBLPROPERTIES ('write.delete.mode' = 'merge-on-read')")
    stock.put(dict.fromkeys(range(9), 77))
    result = stock.tier(At("prepare", lambda: act(stock)))
    stock.assert_equal()
    assert result.files_compacted == 0
    assert "others have changed files meanwhile" in result.compacted
    assert result.deletes_as == "positions"
    stock.assert_no_litter()
    rounds(stock, 5, start=5)
    stock.assert_equal()


def log_round(site: Site, number: int) -> RoundResult:
    ids = [4 * number + i for i in range(4)]
    site.append(EVENTS, pa.table({"a": pa.array(ids, pa.int64())}))
    return tier_once(site.config, EVENTS, now=True, jvm=site.jvm)


@pytest.mark.parametrize("layout", ["legacy", "clean"])
def test_small_files_of_a_log_table_are_joined(site: Site, layout: str) -> None:
    site.create(EVENTS, {"a": t.BIGINT}, properties=COMPACTED, bucket_count=1)
    told = [log_round(site, number) for number in range(11)]
    assert [one.files_compacted for one in told].count(0) < 11
    rows = site.rows("SELECT a FROM lake.shop.events ORDER BY a")
    assert [row.a for row in rows] == [*range(44)]
    files = site.rows("SELECT * FROM lake.shop.events.files")
    assert len(files) <= 6
    operations = site.rows("SELECT operation FROM lake.shop.events.snapshots ORDER BY committed_at")
    names = [row.operation for row in operations]
    assert names.count("append") == 11
    assert set(names) == {"append", "replace"}
    assert_in_order(site)
    site.rows("DELETE FROM lake.shop.events WHERE a IN (3, 42)")
    for number in range(11, 16):
        log_round(site, number)
    rows = site.rows("SELECT a FROM lake.shop.events ORDER BY a")
    assert [row.a for row in rows] == [i for i in range(64) if i not in (3, 42)]
    if layout == "legacy":  # a clean table's order is in the names, which Spark's own lack
        assert_in_order(site)


def assert_in_order(site: Site) -> None:
    """In each file, the rows are in the order of the log."""
    for file in site.rows("SELECT file_path FROM lake.shop.events.files"):
        inside = pq.read_table(file.file_path.removeprefix("file:"))["a"].to_pylist()
        assert inside == sorted(inside)


def test_rows_keep_their_ids(stock: LocalStock) -> None:
    """In a table of version 3; those that a round changes get new ones."""
    ids = "SELECT id, n, _row_id AS row, _last_updated_sequence_number AS last FROM {lake}"
    stock.create(COMPACTED, version=3)
    rounds(stock, 3)
    before = {(row.id, row.n): (row.row, row.last) for row in stock.rows(ids)}
    assert None not in {row for row, _ in before.values()}
    compacted = 0
    for start in (3, 4, 5):
        compacted += rounds(stock, 1, start=start)[0].files_compacted
        after = {(row.id, row.n): (row.row, row.last) for row in stock.rows(ids)}
        kept = before.keys() & after.keys()
        assert len(kept) > 10
        assert {key: after[key] for key in kept} == {key: before[key] for key in kept}
        assert len({row for row, _ in after.values()}) == len(after)
        before = after
    assert compacted > 0
    stock.assert_equal()
