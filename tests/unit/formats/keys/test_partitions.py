"""Partition values as text, and the rows of each partition.

See docs/fluss/messages.md#partition-names
"""

import datetime as dt
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.errors import InvalidTable, PartitionSpecInvalid, UnsupportedType
from sluice.formats.keys.partitions import java_text, partition_values, value_texts
from sluice.formats.types.types import arrow_schema, arrow_type
from sluice.model import Column, DataType, Schema, TableDescriptor, TableInfo, TablePath
from sluice.model import types as t


@pytest.mark.parametrize(
    ("data_type", "value", "text"),
    [
        (t.STRING, "2024-11", "2024-11"),
        (t.char(3), "abc", "abc"),
        (t.BOOLEAN, True, "true"),
        (t.BOOLEAN, False, "false"),
        (t.TINYINT, -7, "-7"),
        (t.BIGINT, 2**63 - 1, "9223372036854775807"),
        (t.BYTES, b"\x0a\xff", "0aff"),
        (t.binary(2), b"\x00\x01", "0001"),
        (t.DATE, dt.date(2024, 3, 9), "2024-03-09"),
        (t.DATE, dt.date(1, 1, 1), "0001-01-01"),
        (t.time(3), dt.time(9, 5, 7, 45000), "09-05-07_045"),
        (t.time(0), dt.time(23, 59, 59), "23-59-59_000"),
        (t.FLOAT, 13.2, "13_2"),
        (t.FLOAT, float("nan"), "NaN"),
        (t.DOUBLE, float("inf"), "Inf"),
        (t.DOUBLE, float("-inf"), "-Inf"),
        (t.DOUBLE, 1e10, "1_0E10"),
        (t.timestamp(3), dt.datetime(2024, 1, 2, 3, 4, 5, 120000), "2024-01-02-03-04-05_12"),
        (
            t.timestamp_ltz(6),
            dt.datetime(1969, 12, 31, 23, 59, 59, 1),
            "1969-12-31-23-59-59_000001",
        ),
        (t.timestamp(0), dt.datetime(2024, 1, 2), "2024-01-02-00-00-00_"),
    ],
)
def test_values_are_written_as_fluss_does(data_type: DataType, value: Any, text: str) -> None:
    assert value_texts(pa.array([value], arrow_type(data_type)), data_type, "p") == [text]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (1.0, "1.0"),
        (100.0, "100.0"),
        (0.001, "0.001"),
        (0.00099, "9.9E-4"),
        (9999999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (-12345678.9, "-1.23456789E7"),
        (123456.789, "123456.789"),
        (5e-324, "5.0E-324"),
    ],
)
def test_numbers_are_written_as_java_does(value: float, text: str) -> None:
    assert java_text(value, single=False) == text


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_java_text_is_the_same_number(value: float) -> None:
    assert float(java_text(value, single=False)) == value


def info(keys: tuple[str, ...], *types: DataType) -> TableInfo:
    columns = tuple(Column(f"p{i}", data_type, i) for i, data_type in enumerate(types))
    return TableInfo(TablePath("d", "t"), 1, 1, TableDescriptor(Schema(columns), keys), 0, 0)


def batch(table: TableInfo, *columns: list[Any]) -> pa.RecordBatch:
    schema = arrow_schema(table.schema)
    arrays = [pa.array(v, f.type) for v, f in zip(columns, schema, strict=True)]
    return pa.record_batch(arrays, schema=schema)


def groups(rows: pa.RecordBatch, table: TableInfo) -> list[tuple[tuple[str, ...], list[int]]]:
    return [(values, indices.tolist()) for values, indices in partition_values(rows, table)]


def test_rows_are_grouped_in_order_of_first_appearance() -> None:
    table = info(("p1", "p0"), t.STRING, t.INT)
    rows = batch(table, ["b", "a", "b", "b", "a"], [1, 1, 2, 1, 1])
    assert groups(rows, table) == [
        (("1", "b"), [0, 3]),
        (("1", "a"), [1, 4]),
        (("2", "b"), [2]),
    ]
    assert groups(rows[:0], table) == []
    assert groups(rows[1:3], table) == [(("1", "a"), [0]), (("2", "b"), [1])]


def test_without_partition_keys_there_is_one_group() -> None:
    table = info((), t.STRING)
    assert groups(batch(table, ["a", "b"]), table) == [((), [0, 1])]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3), st.booleans()), min_size=1))
def test_every_row_is_in_the_group_of_its_values(rows: list[tuple[str, int, bool]]) -> None:
    table = info(("p0", "p1", "p2"), t.STRING, t.INT, t.BOOLEAN)
    found = partition_values(batch(table, *map(list, zip(*rows, strict=True))), table)
    assert sorted(np.concatenate([g for _, g in found]).tolist()) == list(range(len(rows)))
    assert len({values for values, _ in found}) == len(found) == len(set(rows))
    for values, indices in found:
        for index in indices.tolist():
            text, number, flag = rows[index]
            assert values == (text, str(number), str(flag).lower())


def test_what_cannot_name_a_partition_is_refused() -> None:
    table = info(("p0",), t.STRING)
    for value in ("", "a/b", "..", "ü", "__x", "a" * 201, "a\n"):
        with pytest.raises(PartitionSpecInvalid, match="'p0'"):
            partition_values(batch(table, ["ok", value]), table)
    with pytest.raises(PartitionSpecInvalid, match="1 nulls"):
        partition_values(batch(table, ["ok", None]), table)
    with pytest.raises(InvalidTable, match="'p0'"):
        partition_values(pa.record_batch([pa.array([1])], ["x"]), table)
    odd = info(("p0",), t.decimal(5, 2))
    with pytest.raises(UnsupportedType, match="'p0'"):
        partition_values(batch(odd, [1]), odd)
