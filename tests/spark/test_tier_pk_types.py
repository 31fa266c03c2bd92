"""Deletes by keys of every type that a key may have: Spark matches them with the rows."""

from __future__ import annotations

import pyarrow as pa
import pytest

from sluice.model import Column, DataType, Schema, TableDescriptor
from sluice.model import types as t
from sluice.testing.conformance.every_type import EVERY_TYPE, every_value
from tests.support.keyed_stock import DUE

from .conftest import STOCK, LocalStock

pytestmark = [pytest.mark.spark, pytest.mark.slow]
NO_KEYS = ("f_float", "f_double", "f_not_null", "f_time")
"""Iceberg takes no floating point numbers for keys; Spark reads no table with a column of TIME."""
KINDS: dict[str, DataType] = {
    name: kind.not_null() for name, kind in EVERY_TYPE.items() if name not in NO_KEYS
} | {"f_large": t.decimal(38, 10).not_null(), "f_millis": t.timestamp(3).not_null()}


def test_a_key_of_all_types_together(stock: LocalStock) -> None:
    columns = {"id": t.BIGINT.not_null(), **KINDS, "n": t.INT}
    fields = tuple(Column(name, kind, i) for i, (name, kind) in enumerate(columns.items()))
    key = ("id", *KINDS)
    stock.client.admin.create_database("shop")
    stock.client.admin.create_table(
        STOCK,
        TableDescriptor(
            Schema(fields, key, len(fields) - 1),
            bucket_keys=("id",),
            bucket_count=2,
            properties=DUE,
        ),
    )
    values = every_value().slice(0, 1)
    values = values.select([name for name in KINDS if name in values.column_names])
    values = values.append_column("f_large", pa.array([1], pa.decimal128(38, 10)))
    stamp = values.column("f_timestamp").cast(pa.timestamp("ms"), safe=False)
    values = values.append_column("f_millis", stamp)
    ids = pa.array(range(10), pa.int64())
    rows = pa.concat_tables([values] * 10).add_column(0, "id", ids)
    with stock.client.kv_writer(STOCK) as writer:
        writer.upsert(rows.append_column("n", pa.array(range(10), pa.int32())))
    assert stock.tier().rows == 10
    with stock.client.kv_writer(STOCK) as writer:
        writer.delete(rows.select(key).slice(0, 3))
        writer.upsert(rows.slice(3, 2).append_column("n", pa.array([33, 44], pa.int32())))
    result = stock.tier()
    assert (result.rows, result.deletes) == (2, 5)
    found = stock.rows("SELECT id, n FROM {lake} ORDER BY id")
    assert [tuple(row) for row in found] == [(3, 33), (4, 44), *((i, i) for i in range(5, 10))]
