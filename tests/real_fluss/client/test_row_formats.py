"""Logs of a real Fluss that store rows, INDEXED or COMPACTED, tiered by our rounds."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal

import pyarrow as pa
import pytest

from sluice.errors import InvalidColumnProjection
from sluice.model import TablePath
from tests.real_fluss.conftest import RealSite
from tests.real_fluss.raw import RawCluster
from tests.support.fluss.real_fluss import RealFluss
from tests.support.fluss.table_creation import create_table
from tests.support.tables.keyed_stock import Stock, stock_table
from tests.support.tables.row_log_replay import Record, replayed

pytestmark = [pytest.mark.real_fluss, pytest.mark.spark, pytest.mark.slow]

FORMATS = [pytest.param("INDEXED", marks=pytest.mark.long), "COMPACTED"]
EPOCH = dt.datetime(1970, 1, 1)


@pytest.fixture
def raw(real_fluss: RealFluss, site: RealSite) -> Iterator[RawCluster]:
    cluster = RawCluster(real_fluss, site.database)
    yield cluster
    cluster.close()


def orders(first: int, count: int) -> pa.Table:
    """Rows of several types, with nulls in each column but the first."""
    numbers = list(range(first, first + count))

    def column(values: list[object], of: pa.DataType, every: int) -> pa.Array:
        holes = [None if n % every == 0 else v for n, v in zip(numbers, values, strict=True)]
        return pa.array(holes, of)

    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "note": column([f"n{n % 7}ü" for n in numbers], pa.string(), 5),
            "price": column([Decimal(-n) for n in numbers], pa.decimal128(38, 2), 3),
            "day": column([dt.date(2024, 2, 29)] * count, pa.date32(), 4),
            "at": column([EPOCH + dt.timedelta(seconds=n) for n in numbers], pa.timestamp("us"), 6),
        }
    )


def lake_rows(site: RealSite, table: str) -> list[Record]:
    """The lake's rows in the form of the replay."""
    micros = "unix_micros(timestamp(at || 'Z'))"
    query = (
        "SELECT __offset, id, note, cast(price * 100 as decimal(38, 0)) price,"
        f" unix_date(day) day, {micros} at FROM lake.{{db}}.{table} ORDER BY __offset"
    )
    return [
        (
            row[0],
            0,
            (
                row.id,
                row.note,
                None if row.price is None else int(row.price),
                row.day,
                None if row.at is None else row.at * 1000,
            ),
        )
        for row in site.rows(query)
    ]


@pytest.mark.parametrize("log_format", FORMATS)
def test_a_log_of_rows_is_tiered_as_an_independent_replay_has_it(
    site: RealSite, raw: RawCluster, log_format: str
) -> None:
    of = {"table.log.format": log_format}
    path = site.create("orders", orders(0, 1), bucket_count=1, properties=of)
    info = site.client.admin.table_info(path)
    types = [column.data_type for column in info.schema.columns]
    for first, count in ((0, 700), (700, 50)):
        site.append(path, orders(first, count))
        result = site.tier(path)
        assert (result.outcome, result.rows) == ("committed", count)
        expected = replayed(raw.fetch(info.table_id), types, log_format)
        assert len(expected) == first + count
        assert lake_rows(site, "orders") == expected
    with pytest.raises(AssertionError, match="Column projection is only supported for ARROW"):
        raw.fetch(info.table_id, [0])
    assert InvalidColumnProjection.code == 34


@pytest.mark.parametrize(
    ("kv_format", "image"),
    [
        ("COMPACTED", "FULL"),
        pytest.param("INDEXED", "FULL", marks=pytest.mark.long),
        pytest.param("COMPACTED", "WAL", marks=pytest.mark.long),
    ],
)
def test_a_changelog_of_rows_is_tiered(site: RealSite, kv_format: str, image: str) -> None:
    """Its log is COMPACTED: with INDEXED, Fluss 0.9.1 refuses every put."""
    path = TablePath(site.database, "stock")
    properties = {
        "table.datalake.freshness": "1s",
        "table.log.format": "COMPACTED",
        "table.kv.format": kv_format,
        "table.changelog.image": image,
    }
    create_table(site.client, path, stock_table(properties), site.fluss.warehouse)
    stock = Stock(site.client, path, site.rows)
    stock.put({key: key for key in range(100)})
    stock.delete(0, 1, 99, 500)
    first = site.tier(path)
    assert (first.outcome, first.rows) == ("committed", 97)
    stock.assert_equal()
    stock.put({5: None, 7: 70, 200: 200}, item=None)
    stock.delete(*range(50, 60))
    site.tier(path)
    stock.assert_equal()
