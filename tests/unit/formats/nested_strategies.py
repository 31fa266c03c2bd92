"""Types of any depth and Arrow columns of them, for property tests of rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from sluice.formats.types.types import arrow_type
from sluice.model import DataType, RowField, TypeRoot
from tests.unit.formats.strategies import SCALARS, make_array, values_of


def array_of(element: DataType) -> DataType:
    return DataType(TypeRoot.ARRAY, element=element)


def map_of(key: DataType, value: DataType) -> DataType:
    return DataType(TypeRoot.MAP, key=key.not_null(), value=value)


def row_of(*types: DataType) -> DataType:
    return DataType(TypeRoot.ROW, fields=tuple(RowField(f"f{i}", of) for i, of in enumerate(types)))


def _nested(inner: st.SearchStrategy[DataType]) -> st.SearchStrategy[DataType]:
    rows = st.lists(inner, min_size=1, max_size=3).map(lambda types: row_of(*types))
    return inner.map(array_of) | st.builds(map_of, inner, inner) | rows


ANY_TYPE = st.recursive(st.sampled_from(SCALARS), _nested, max_leaves=4)


def value_of(data_type: DataType) -> st.SearchStrategy[Any]:
    """A value that is not null: lists of elements, of (key, value), tuples of fields."""
    if data_type.element is not None:
        return st.lists(st.none() | value_of(data_type.element), max_size=5)
    if data_type.key is not None and data_type.value is not None:
        pair = st.tuples(value_of(data_type.key), st.none() | value_of(data_type.value))
        return st.lists(pair, max_size=4)
    if data_type.fields:
        return st.tuples(*(st.none() | value_of(field.data_type) for field in data_type.fields))
    return values_of(data_type)


def make_column(data_type: DataType, values: list[Any]) -> pa.Array:
    """Values of ``value_of``, or None, as the type's Arrow column."""
    arrow = arrow_type(data_type)
    there = np.array([value is not None for value in values], bool)
    bits = pa.py_buffer(np.packbits(there, bitorder="little"))
    nulls = len(values) - int(there.sum())  # not said, it is -1: no key of a map for old Arrows
    if data_type.fields:
        children = [
            make_column(field.data_type, [None if v is None else v[index] for v in values])
            for index, field in enumerate(data_type.fields)
        ]
        return pa.Array.from_buffers(arrow, len(values), [bits], nulls, children=children)
    if data_type.element is None and data_type.key is None:
        return make_array(data_type, values)
    offsets = np.cumsum([0, *(len(value or []) for value in values)], dtype=np.int32)
    flat = [element for value in values for element in value or []]
    if data_type.element is not None:
        child = make_column(data_type.element, flat)
    else:
        assert data_type.key is not None
        assert data_type.value is not None
        pairs = [
            make_column(data_type.key, [key for key, _ in flat]),
            make_column(data_type.value, [value for _, value in flat]),
        ]
        fields = [arrow.key_field, arrow.item_field]
        child = pa.StructArray.from_arrays(pairs, fields=fields)
    return pa.Array.from_buffers(
        arrow, len(values), [bits, pa.py_buffer(offsets)], nulls, children=[child]
    )


@st.composite
def typed_batches(
    draw: st.DrawFn, one_type: st.SearchStrategy[DataType] = ANY_TYPE, most_rows: int = 8
) -> tuple[list[DataType], pa.RecordBatch]:
    """Types, and a batch of them with nulls; often a slice of a larger one."""
    types = draw(st.lists(one_type, min_size=1, max_size=9))
    rows = draw(st.integers(0, most_rows))
    columns = [
        make_column(of, draw(st.lists(st.none() | value_of(of), min_size=rows, max_size=rows)))
        for of in types
    ]
    batch = pa.RecordBatch.from_arrays(columns, names=[f"c{i}" for i in range(len(types))])
    return types, batch.slice(draw(st.integers(0, 2)))
