"""A user's data in a table's form: cast where nothing changes, refused where something would."""

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given

from sluice.errors import InvalidTable
from sluice.formats.types.conform import conform
from sluice.formats.types.types import arrow_schema, schema_from_arrow
from sluice.model import Column, DataType, RowField, Schema, TypeRoot
from sluice.model import types as t
from tests.unit.formats.strategies import arrow_batches

NOON = dt.datetime(2024, 1, 1, 12)


def one(data_type: DataType) -> Schema:
    return Schema((Column("a", data_type, 0),))


def convert(array: pa.Array, data_type: DataType) -> list[Any]:
    batch = conform(pa.record_batch([array], ["a"]), one(data_type))
    assert batch.schema == arrow_schema(one(data_type))
    return batch.column(0).to_pylist()


@given(arrow_batches())
def test_data_in_form_are_passed_on_as_they_are(batch: pa.RecordBatch) -> None:
    assert conform(batch, schema_from_arrow(batch.schema)) is batch


@pytest.mark.parametrize(
    ("array", "data_type", "values"),
    [
        (pa.array([1, None]), t.INT, [1, None]),
        (pa.array([1], pa.uint64()), t.TINYINT, [1]),
        (pa.array([3]), t.DOUBLE, [3.0]),
        (pa.array([0.5, float("nan"), None]).cast(pa.float64())[:1], t.FLOAT, [0.5]),
        (pa.array([7]), t.decimal(5, 2), [Decimal("7.00")]),
        (pa.array([7]), t.decimal(38, 30), [Decimal(7)]),
        (pa.array([Decimal("1.5")]), t.decimal(10, 3), [Decimal("1.500")]),
        (pa.array(["x"], pa.large_string()), t.STRING, ["x"]),
        (pa.array(["x"], pa.string_view()), t.char(1), ["x"]),
        (pa.array(["x", None]).dictionary_encode(), t.STRING, ["x", None]),
        (pa.array([b"ab"]), t.binary(2), [b"ab"]),
        (pa.array([b"ab"], pa.binary(2)), t.BYTES, [b"ab"]),
        (pa.array([NOON.date()], pa.date64()), t.DATE, [NOON.date()]),
        (pa.array([NOON.time()]), t.time(0), [NOON.time()]),
        (pa.array([NOON], pa.timestamp("ns")), t.timestamp(3), [NOON]),
        (pa.array([NOON], pa.timestamp("us", "Asia/Tokyo")), t.timestamp_ltz(6), [NOON]),
        (pa.array([NOON], pa.timestamp("us")), t.timestamp_ltz(3), [NOON]),
        (pa.nulls(2), t.STRING, [None, None]),
        (pa.array([[1]]), DataType(TypeRoot.ARRAY, element=t.INT), [[1]]),
        (
            pa.array([[("k", 1)]], pa.map_(pa.large_string(), pa.int64())),
            DataType(TypeRoot.MAP, key=t.STRING, value=t.INT),
            [[("k", 1)]],
        ),
        (
            pa.array([{"x": 1}]),
            DataType(TypeRoot.ROW, fields=(RowField("x", t.SMALLINT),)),
            [{"x": 1}],
        ),
    ],
)
def test_values_that_do_not_change_are_cast(
    array: pa.Array, data_type: DataType, values: list[Any]
) -> None:
    assert convert(array, data_type) == values


@pytest.mark.parametrize(
    ("array", "data_type"),
    [
        (pa.array([128]), t.TINYINT),
        (pa.array([-1]), t.decimal(2, 2)),
        (pa.array([2**60 + 1]), t.DOUBLE),
        (pa.array([2**24 + 1]), t.FLOAT),
        (pa.array([0.1]), t.FLOAT),
        (pa.array([1e300]), t.FLOAT),
        (pa.array([1.0]), t.INT),
        (pa.array([1.0]), t.decimal(5, 2)),
        (pa.array(["1"]), t.INT),
        (pa.array([1]), t.STRING),
        (pa.array([b"a"]), t.STRING),
        (pa.array([1]), t.BOOLEAN),
        (pa.array([1]), t.DATE),
        (pa.array([NOON]), t.DATE),
        (pa.array([b"abc"]), t.binary(2)),
        (pa.array([Decimal("1.55")]), t.decimal(5, 1)),
        (pa.array([Decimal(123456)]), t.decimal(5, 0)),
        (pa.array([1500], pa.timestamp("ms")), t.timestamp(0)),
        (pa.array([NOON], pa.timestamp("us", "UTC")), t.timestamp(6)),
        (pa.array([1500], pa.time32("ms")), t.time(0)),
        (pa.array([[0.1]]), DataType(TypeRoot.ARRAY, element=t.FLOAT)),
        (pa.array([1]), DataType(TypeRoot.ARRAY, element=t.INT)),
        (pa.array([{"y": 1}]), DataType(TypeRoot.ROW, fields=(RowField("x", t.BIGINT),))),
    ],
)
def test_values_that_would_change_are_refused(array: pa.Array, data_type: DataType) -> None:
    with pytest.raises(InvalidTable, match=r"'a' is .*Arrow type"):
        convert(array, data_type)


def test_columns_are_found_by_name_and_missing_ones_are_null() -> None:
    schema = Schema((Column("a", t.INT.not_null(), 0), Column("b", t.STRING, 1)))
    table = pa.table({"b": pa.chunked_array([["x"], ["y"]]), "a": [1, 2]})
    assert conform(table, schema).to_pydict() == {"a": [1, 2], "b": ["x", "y"]}
    assert conform(table.drop_columns("b"), schema).to_pydict() == {"a": [1, 2], "b": [None, None]}
    assert conform(table[:0], schema).schema == arrow_schema(schema)
    assert conform(table[:0], schema).num_rows == 0


def test_wrong_columns_are_named() -> None:
    schema = Schema((Column("a", t.BIGINT.not_null(), 0), Column("b", t.STRING, 1)))
    with pytest.raises(InvalidTable, match="'c' is not in the table, which has a, b"):
        conform(pa.table({"a": [1], "c": [1]}), schema)
    with pytest.raises(InvalidTable, match="'a' is NOT NULL, but is missing"):
        conform(pa.table({"b": ["x"]}), schema)
    with pytest.raises(InvalidTable, match="'a' is NOT NULL, but has 1 nulls"):
        conform(pa.table({"a": [1, None]}), schema)
    twice = pa.record_batch([pa.array([1]), pa.array([1])], ["a", "a"])
    with pytest.raises(InvalidTable, match="must be unique"):
        conform(twice, schema)


def test_nulls_within_nested_columns_are_named_too() -> None:
    row = DataType(TypeRoot.ROW, fields=(RowField("x", t.BIGINT.not_null()),))
    for data_type, value, good, where in (
        (DataType(TypeRoot.ARRAY, element=t.BIGINT.not_null()), [1, None], [1], "a.element"),
        (row, {"x": None}, {"x": 1}, "a.x"),
        (
            DataType(TypeRoot.MAP, key=t.STRING, value=t.BIGINT.not_null()),
            [("k", None)],
            [("k", 1)],
            "a.value",
        ),
    ):
        arrow = arrow_schema(one(data_type)).field(0).type
        bad = pa.array([value, good, None], arrow)
        with pytest.raises(InvalidTable, match=f"'{where}' is NOT NULL, but has 1 nulls"):
            convert(bad, data_type)
        assert len(convert(bad[1:], data_type)) == 2
