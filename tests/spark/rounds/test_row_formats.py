"""Logs of the embedded server that store rows, INDEXED or COMPACTED, tiered into the lake."""

from __future__ import annotations

import time
from pathlib import Path

import pyarrow as pa
import pytest

from sluice.driver.local import tier_once
from sluice.errors import TableNotDue
from sluice.model import TablePath
from sluice.model import types as t
from sluice.rounds.records.result import RoundResult
from tests.spark.conftest import LocalStock, Site
from tests.support.tables.row_log_replay import replayed

pytestmark = [pytest.mark.spark, pytest.mark.slow]
PATH = TablePath("shop", "orders")


def tier(site: Site) -> RoundResult:
    deadline = time.monotonic() + 120
    while True:
        try:
            return tier_once(site.config, PATH, jvm=site.jvm)
        except TableNotDue:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def orders(first: int, count: int) -> pa.Table:
    ids = pa.array(range(first, first + count), pa.int64())
    notes = [None if i % 5 == 0 else f"n{i % 7}ü" for i in range(count)]
    return pa.table({"id": ids, "note": pa.array(notes, pa.string())})


@pytest.mark.parametrize("layout", ["legacy"])
@pytest.mark.parametrize(
    "log_format", ["INDEXED", pytest.param("COMPACTED", marks=pytest.mark.long)]
)
def test_a_log_of_rows_is_tiered_as_an_independent_replay_has_it(
    site: Site, tmp_path: Path, log_format: str, layout: str
) -> None:
    assert layout == "legacy", "its rows have offsets"
    columns = {"id": t.BIGINT, "note": t.STRING}
    site.create(PATH, columns, bucket_count=1, properties={"table.log.format": log_format})
    for first, count in ((0, 700), (700, 50)):
        site.append(PATH, orders(first, count))
        result = tier(site)
        assert (result.outcome, result.rows) == ("committed", count)
        (segment,) = (tmp_path / "server" / "log").rglob("*.log")
        expected = replayed(segment.read_bytes(), list(columns.values()), log_format)
        query = "SELECT __offset, id, note FROM lake.shop.orders ORDER BY __offset"
        seen = [(row[0], 0, (row.id, row.note)) for row in site.rows(query)]
        assert seen == expected
        assert len(seen) == first + count


@pytest.mark.parametrize(
    ("kv_format", "log_format"),
    [
        ("INDEXED", "INDEXED"),
        pytest.param("COMPACTED", "COMPACTED", marks=pytest.mark.long),
        pytest.param("INDEXED", "COMPACTED", marks=pytest.mark.long),
    ],
)
def test_a_changelog_of_rows_is_tiered(stock: LocalStock, kv_format: str, log_format: str) -> None:
    stock.create({"table.kv.format": kv_format, "table.log.format": log_format})
    stock.put({key: key for key in range(60)})
    stock.snapshots()
    stock.delete(0, 1, 59, 500)
    assert stock.tier().outcome == "committed"
    stock.assert_equal()
    stock.put({5: None, 7: 70, 200: 200}, item=None)
    stock.delete(*range(30, 40))
    stock.tier()
    stock.assert_equal()
