"""Deletes by keys of every type that a key may have: Spark matches them with the rows."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from sluice.formats.types.types import arrow_schema
from sluice.model import Column, DataType, Schema, TableDescriptor, TablePath
from sluice.model import types as t
from tests.conformance.every_type import EVERY_TYPE
from tests.spark.conftest import STOCK, LocalStock
from tests.support.tables.keyed_stock import DUE

pytestmark = [pytest.mark.spark, pytest.mark.slow]
NO_KEYS = ("f_float", "f_double", "f_not_null", "f_time")
"""Iceberg takes no floating point numbers for keys; Spark reads no table with a column of TIME."""
KINDS: dict[str, DataType] = {
    name: kind.not_null() for name, kind in EVERY_TYPE.items() if name not in NO_KEYS
} | {"f_large": t.decimal(38, 10).not_null(), "f_millis": t.timestamp(3).not_null()}
_STAMPS = [
    dt.datetime(1, 1, 1),
    dt.datetime(1969, 12, 31, 23, 59, 59, 999000),
    dt.datetime(2024, 2, 29, 12, 30, 0, 123000),
    dt.datetime(9999, 12, 31, 23, 59, 59, 999000),
]
VALUES: dict[str, list[Any]] = {
    "f_boolean": [False, True],
    "f_tinyint": [-128, -1, 0, 127],
    "f_smallint": [-(2**15), 0, 2**15 - 1],
    "f_int": [-(2**31), 0, 2**31 - 1],
    "f_bigint": [-(2**63), -1, 0, 2**63 - 1],
    "f_char": ["", "a", "abc", "größe"[:3]],
    "f_string": ["", "größe", "order-00000000000-1", "\U0001f600" * 20, "x" * 300],
    "f_binary": [b"\x00\x00", b"ab", b"\xff\xff"],
    "f_bytes": [b"", b"\x00\xff", b"\xff" * 20, b"order-00000000000-2"],
    "f_decimal": [Decimal("-9999999999.99"), Decimal("0.01"), Decimal("9999999999.99")],
    "f_large": [Decimal(f"{sign}1234567890123456789012345678.0123456789") for sign in "-+"],
    "f_date": [stamp.date() for stamp in _STAMPS],
    "f_timestamp": _STAMPS,
    "f_timestamp_ltz": _STAMPS,
    "f_millis": _STAMPS,
}


class Keyed:
    """A table whose key is ``id`` and some columns more."""

    def __init__(self, stock: LocalStock, path: TablePath, kinds: list[str], version: int) -> None:
        self.stock, self.path, self.key = stock, path, ("id", *kinds)
        columns = {"id": t.BIGINT.not_null(), **{name: KINDS[name] for name in kinds}, "n": t.INT}
        fields = tuple(Column(name, kind, i) for i, (name, kind) in enumerate(columns.items()))
        self.schema = Schema(fields, self.key, len(fields) - 1)
        stock.client.admin.create_database("shop", ignore_if_exists=True)
        described = TableDescriptor(
            self.schema,
            bucket_keys=("id",),
            bucket_count=2,
            properties=DUE,
            custom_properties={"iceberg.format-version": str(version)},
        )
        stock.client.admin.create_table(path, described)

    def rows(self, ids: list[int], values: list[dict[str, Any]], ns: list[int]) -> pa.Table:
        some = [{**row, "id": one, "n": n} for one, row, n in zip(ids, values, ns, strict=True)]
        return pa.Table.from_pylist(some, schema=arrow_schema(self.schema))

    def upsert(self, rows: pa.Table) -> None:
        with self.stock.client.kv_writer(self.path) as writer:
            writer.upsert(rows)

    def delete(self, rows: pa.Table) -> None:
        with self.stock.client.kv_writer(self.path) as writer:
            writer.delete(rows.select(self.key))

    def numbers(self) -> list[int]:
        rows = self.stock.rows(f"SELECT n FROM lake.{self.path} ORDER BY n")
        return [row[0] for row in rows]


@pytest.mark.parametrize("version", [2, 3])
def test_a_key_of_all_types_together(stock: LocalStock, version: int) -> None:
    """Rows differ in each column; then in ``id`` alone, and in all but ``id``."""
    kinds = [*KINDS]
    table = Keyed(stock, STOCK, kinds, version)
    count = 12
    values = [{name: VALUES[name][i % len(VALUES[name])] for name in kinds} for i in range(count)]
    several = table.rows([*range(count)], values, [*range(count)])
    same = table.rows([*range(20, 30)], values[:1] * 10, [*range(20, 30)])
    one_id = table.rows([50] * 5, values[:5], [*range(50, 55)])
    table.upsert(pa.concat_tables([several, same, one_id]))
    assert stock.tier().rows == 27
    for first in (0, 1):
        table.delete(several.slice(first * 6, 3))
        table.delete(same.slice(first * 5, 2))
        table.delete(one_id.slice(first, 1))
        gone = several.slice(first * 6 + 3, 1), one_id.slice(first + 3, 1)
        for rows in gone:
            numbers = pa.array([rows["n"][0].as_py() + 1000], pa.int32())
            table.upsert(rows.set_column(rows.num_columns - 1, "n", numbers))
        result = stock.tier()
        assert (result.rows, result.deletes, result.deletes_as) == (2, 8, "positions")
    left = [4, 5, 10, 11, *range(22, 25), *range(27, 30), 52, 1003, 1009, 1053, 1054]
    assert table.numbers() == left


@pytest.mark.long
@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_keys_that_differ_in_one_column(stock: LocalStock, kind: str, version: int) -> None:
    table = Keyed(stock, STOCK, [kind], version)
    values = [{kind: value} for value in VALUES[kind]]
    numbers = [*range(len(values))]
    rows = table.rows([7] * len(values), values, numbers)
    table.upsert(rows)
    stock.tier()
    for place in numbers:
        new = table.rows([7], values[place : place + 1], [100 + place])
        table.upsert(new)
        assert stock.tier().deletes_as == "positions"
        assert table.numbers() == sorted([*numbers[place + 1 :], *range(100, 101 + place)])
    table.delete(rows.slice(0, 1))
    assert stock.tier().deletes_as == "positions"
    assert table.numbers() == [*range(101, 100 + len(values))]
