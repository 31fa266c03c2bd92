"""Rows of users as texts, numbers and lists, with every digit of each value.

Arrow's own conversion to Python fails or rounds where Python's types hold less: nanoseconds, and
years from 10000 on.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sluice.cli.terminal.output import as_json

_EMPTY_DIGITS = r"\.?(000)+$"
"""The end of a fraction whose last digits, in threes, are zeros."""


def shown_rows(rows: pa.Table) -> list[list[Any]]:
    """The rows as values of JSON, to be printed as a table too.

    Dates and times become texts such as ``2024-05-01 10:00:00.120``, with 0, 3, 6 or 9 digits
    after the point; those with a zone are UTC and end in ``Z``. Bytes become hexadecimal digits.
    """
    columns = [_values(array) for array in map(_whole, rows.columns)]
    return [list(row) for row in zip(*columns, strict=True)]


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.nulls(0, column.type)


def _values(array: pa.Array) -> list[Any]:
    types, kind = pa.types, array.type
    if types.is_dictionary(kind):
        return _values(array.dictionary_decode())
    if is_time(kind):
        return list(times(array).to_pylist())
    if types.is_map(kind):
        pair = pa.struct([kind.key_field, kind.item_field])
        entries = _values(array.cast(pa.list_(pair)))
        return [found and [list(entry.values()) for entry in found] for found in entries]
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        elements = iter(_values(array.flatten()))
        lengths = pc.list_value_length(array).to_pylist()
        return [None if n is None else [next(elements) for _ in range(n)] for n in lengths]
    if types.is_struct(kind):
        names = [field.name for field in kind]
        parts = zip(*map(_values, array.flatten()), strict=True) if names else [()] * len(array)
        valid = array.is_valid().to_pylist()
        return [
            dict(zip(names, part, strict=True)) if is_valid else None
            for part, is_valid in zip(parts, valid, strict=True)
        ]
    return [as_json(value) for value in array.to_pylist()]


def is_time(kind: pa.DataType) -> bool:
    """Whether ``times`` takes values of this type."""
    return bool(pa.types.is_date(kind) or pa.types.is_time(kind) or pa.types.is_timestamp(kind))


def times(array: pa.Array) -> pa.Array:
    """Dates, times of the day and timestamps as texts with all digits; nulls stay nulls."""
    kind, types = array.type, pa.types
    if types.is_time(kind):  # never more than a day, so Arrow writes all of them
        return pc.replace_substring_regex(array.cast(pa.string()), _EMPTY_DIGITS, "")
    unit = "D" if types.is_date(kind) else kind.unit
    counts = array.cast(pa.date32()).cast(pa.int32()) if unit == "D" else array.cast(pa.int64())
    numbers = counts.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    texts = pa.array(np.datetime_as_string(numbers.view(f"datetime64[{unit}]")), pa.string())
    if unit != "D":
        texts = pc.replace_substring(texts, "T", " ")
        texts = pc.replace_substring_regex(texts, _EMPTY_DIGITS, "")
        if kind.tz is not None:
            texts = pc.binary_join_element_wise(texts, "Z", "")
    return pc.if_else(array.is_valid(), texts, pa.scalar(None, pa.string()))
