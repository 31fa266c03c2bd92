"""Columns in the lake's types: casts at any depth, and nanoseconds rounded down."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from sluice.lake.iceberg.write.arrow import to_lake
from sluice.model import DataType
from sluice.model import types as t
from tests.unit.formats.nested_strategies import array_of, make_column, map_of, row_of

US = pa.timestamp("us", tz="UTC")
STAMPS = [1_763_719_200_123_456_789, -1, None, 0, 999]
ROUNDED = [1_763_719_200_123_456, -1, None, 0, 0]
TIMES = [86_399_999_999_999, 1_999, None, 0, 1]
TIMES_ROUNDED = [86_399_999_999, 1, None, 0, 0]


def micros(array: pa.Array) -> list[Any]:
    return array.view(pa.int64()).to_pylist()


@pytest.mark.parametrize("start", [0, 1])
def test_nanoseconds_inside_of_columns_are_rounded_down(start: int) -> None:
    """Also in a slice, and below rows that are null."""
    for of, target, values, rounded in (
        (t.timestamp_ltz(9), US, STAMPS, ROUNDED),
        (t.time(9), pa.time64("us"), TIMES, TIMES_ROUNDED),
    ):
        rows = [values[:2], None, values[2:], []]
        kept = [rounded[:2], None, rounded[2:], []]
        column = make_column(array_of(of), rows).slice(start)
        found = to_lake(column, pa.list_(target))
        assert [micros(row.values) if row.is_valid else None for row in found] == kept[start:]
        chunks = to_lake(pa.chunked_array([column, column]), pa.list_(target))
        assert chunks.type == pa.list_(target)
        assert chunks.chunk(1).equals(found)

        pairs = [[(number, value)] for number, value in enumerate(values)]
        found = to_lake(
            make_column(map_of(t.INT, of), [*pairs, None]).slice(start),
            pa.map_(pa.int32(), target),
        )
        assert (
            micros(pa.concat_arrays([row.values.field(1) for row in found if row.is_valid]))
            == (rounded[start:])
        )
        assert not found[-1].is_valid

        nested: DataType = row_of(t.INT, row_of(of))
        structs = [(number, (value,)) for number, value in enumerate(values)]
        wanted = pa.struct(
            [pa.field("f0", pa.int32()), pa.field("f1", pa.struct([pa.field("f0", target)]))]
        )
        found = to_lake(make_column(nested, [*structs, None]).slice(start), wanted)
        assert found.type == wanted
        assert micros(found.field(1).field(0))[:-1] == rounded[start:]
        assert found.is_valid().to_pylist() == [True] * (5 - start) + [False]
        found.validate(full=True)


def test_the_first_and_last_nanoseconds_are_rounded_down() -> None:
    """pandas' smallest timestamp, which many use for "never", stays in the year 1677."""
    least, most = -(2**63), 2**63 - 1
    values = [least, least + 1, least + 807, least + 808, None, -1000, -999, most]
    nanos = pa.array(values, pa.int64()).view(pa.timestamp("ns", tz="UTC"))
    found = to_lake(nanos, US)
    assert found.type == US
    assert micros(found) == [None if value is None else value // 1000 for value in values]
    assert micros(to_lake(nanos.slice(1), US))[0] == least // 1000


@pytest.mark.parametrize("keys", [array_of(t.time(0)), row_of(t.time(0))], ids=["array", "row"])
def test_a_map_with_nested_keys_is_cast_after_take(keys: DataType) -> None:
    """pyarrow before 26 ended the process."""
    time = pa.time64("us")
    key_type = pa.list_(time) if keys.element else pa.struct([("f0", time)])
    of, target = map_of(keys, t.INT), pa.map_(key_type, pa.int32())
    maps = [[([5] if keys.element else (5,), 7)], None, []]
    for column, wanted in (
        (make_column(of, maps), target),
        (make_column(array_of(of), [maps, None]), pa.list_(target)),
    ):
        found = to_lake(column.take(pa.array(range(len(column)))), wanted)
        found.validate(full=True)
        assert found.type == wanted
        assert found.equals(column.cast(wanted))
