"""Encodes and decodes all CompactedRows or IndexedRows of a batch at once.

See docs/fluss/rows.md#compacted-rows and docs/fluss/rows.md#indexed-rows

The row of a nested column stores bytes. They are encoded before the row and decoded after it: a ROW
is again a row, an ARRAY is a BinaryArray, a MAP is two of them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sluice.errors import CorruptRecord, InvalidTable, RecordTooLarge
from sluice.formats.rows.column_memory import (
    PROBLEMS,
    InvalidValue,
    NewColumn,
    addresses,
    binary_array,
    bounds_of,
    gather,
    load_kernels,
    point_to,
)
from sluice.formats.rows.field_bytes import fixed
from sluice.formats.rows.plan import COMPACTED, INDEXED, NESTED, element_plan, row_plan
from sluice.formats.types.types import arrow_type
from sluice.model import DataType, TypeRoot

__all__ = ["COMPACTED", "INDEXED", "decode_rows", "encode_rows"]

_MAX_BYTES = 2**31 - 1
_LENGTH = 4


def encode_rows(batch: pa.RecordBatch, types: Sequence[DataType], row_format: str) -> pa.Array:
    """Encodes each row to bytes, as a binary array without nulls.

    ``batch`` has the Arrow types of ``types``. TIME is truncated to milliseconds, as rows store it.

    :param row_format: ``COMPACTED`` or ``INDEXED``.
    :raises InvalidTable: names the column with another Arrow type, a CHAR value that is too long,
        or a TIMESTAMP out of range.
    :raises RecordTooLarge: the rows have more than 2 GiB.
    """
    if batch.num_columns != len(types):
        raise InvalidTable(f"the data have {batch.num_columns} columns, the table has {len(types)}")
    for field, data_type in zip(batch.schema, types, strict=True):
        wanted = arrow_type(data_type)
        if not field.type.equals(wanted):
            raise InvalidTable(
                f"column {field.name!r} is {data_type}: its data have Arrow type {field.type}, but"
                f" must have {wanted}"
            )
    return _rows(batch.columns, batch.schema.names, types, row_format, batch.num_rows)


def decode_rows(
    rows: pa.Array, types: Sequence[DataType], row_format: str, *, skipped: int = 0
) -> list[pa.Array]:
    """Decodes rows (a binary array) to columns with the types of ``arrow_type``.

    A null row is null in every column. The first ``skipped`` bytes of each row are ignored.

    :raises CorruptRecord: names the row and the column whose bytes are not valid.
    """
    if rows.type != pa.binary():
        raise ValueError(f"rows must have the type binary, not {rows.type}")
    try:
        return _columns(rows, types, row_format, skipped)
    except InvalidValue as error:
        raise CorruptRecord(str(error)) from error


def _rows(
    columns: Sequence[pa.Array],
    names: Sequence[str],
    types: Sequence[DataType],
    row_format: str,
    rows: int,
) -> pa.Array:
    plan = row_plan(tuple(types), row_format)
    words = plan.words.copy()
    capacity = rows * plan.most_bytes
    kept = []  # keeps alive the memory that the kernel reads
    for column, array, name, data_type in zip(words, columns, names, types, strict=True):
        content = _content(array, name, data_type, row_format)
        capacity += point_to(column, content, array)
        kept.append(content)
    target = pa.allocate_buffer(capacity, resizable=True)
    bounds, where = np.empty(rows + 1, np.int64), np.zeros(2, np.int64)
    size = load_kernels().encode_rows(
        rows, words, len(words), plan.null_bytes, plan.listed, target, bounds, where
    )
    if size < 0:
        row, column = where.tolist()
        raise _does_not_fit(row, names[column], types[column], size)
    return _encoded(target, bounds, size)


def _columns(
    rows: pa.Array, types: Sequence[DataType], row_format: str, skipped: int = 0
) -> list[pa.Array]:
    """:raises InvalidValue: instead of ``CorruptRecord``."""
    plan = row_plan(tuple(types), row_format)
    words = plan.words.copy()
    columns = [NewColumn(column, len(rows)) for column in words]
    valid = rows.buffers()[0] if rows.null_count else None
    where = np.zeros(2, np.int64)
    problem = 0
    if len(rows):
        problem = load_kernels().decode_rows(
            *addresses(rows),
            valid,
            rows.offset,
            len(rows),
            skipped,
            words,
            len(words),
            plan.null_bytes,
            plan.listed,
            where,
        )
    if problem < 0:
        row, column = where.tolist()
        name = f"column {column} ({types[column]}): " if column < len(types) else ""
        raise InvalidValue(row, f"{name}{PROBLEMS[problem]}")
    found = []
    for number, (made, data_type) in enumerate(zip(columns, types, strict=True)):
        try:
            found.append(_value(made.finish(data_type), data_type, row_format))
        except InvalidValue as error:
            name = f"column {number} ({data_type})"
            raise InvalidValue(error.row, f"{name}: {error.reason}") from error
    return found


def _content(array: pa.Array, name: str, data_type: DataType, row_format: str) -> pa.Array:
    """Returns a column in the form for its rows: nested values as bytes; null values undefined."""
    root = data_type.root
    if root is TypeRoot.ROW:
        names = [f"{name}.{field.name}" for field in data_type.fields]
        types = [field.data_type for field in data_type.fields]
        return _rows(array.flatten(), names, types, row_format, len(array))
    if root is TypeRoot.ARRAY:
        assert data_type.element is not None
        return _arrays(array, array.values, f"{name}.element", data_type.element, row_format)
    if root is TypeRoot.MAP:
        assert data_type.key is not None
        assert data_type.value is not None
        entries = array.values
        keys = _arrays(array, entries.field(0), f"{name}.key", data_type.key, row_format)
        values = _arrays(array, entries.field(1), f"{name}.value", data_type.value, row_format)
        sizes = fixed(np.diff(bounds_of(keys)))
        if keys.nbytes + values.nbytes > _MAX_BYTES:
            raise RecordTooLarge(f"column {name!r} has more than 2 GiB: write fewer rows at once")
        return pc.binary_join_element_wise(sizes, keys, values, b"")
    return array


def _value(array: pa.Array, data_type: DataType, row_format: str) -> pa.Array:
    """The inverse of ``_content``; ``array`` has no offset. :raises InvalidValue: by the row."""
    root = data_type.root
    if root not in NESTED:
        return array
    arrow, rows, bits = arrow_type(data_type), len(array), array.buffers()[0]
    nulls = array.null_count  # without it, Arrow before 26 crashes the process for a map's keys
    if root is TypeRoot.ROW:
        children = _columns(array, [field.data_type for field in data_type.fields], row_format)
        return pa.Array.from_buffers(arrow, rows, [bits], nulls, children=children)
    if root is TypeRoot.ARRAY:
        assert data_type.element is not None
        counts, elements = _lists(array, data_type.element, row_format)
        buffers = [bits, pa.py_buffer(counts)]
        return pa.Array.from_buffers(arrow, rows, buffers, nulls, children=[elements])
    assert data_type.key is not None
    assert data_type.value is not None
    key_bytes, value_bytes = _halves(array)
    counts, keys = _lists(key_bytes, data_type.key, row_format)
    value_counts, values = _lists(value_bytes, data_type.value, row_format)
    _check_map(counts, value_counts, keys)
    entries = pa.StructArray.from_arrays([keys, values], fields=[arrow.key_field, arrow.item_field])
    buffers = [bits, pa.py_buffer(counts)]
    return pa.Array.from_buffers(arrow, rows, buffers, nulls, children=[entries])


def _arrays(
    lists: pa.Array, elements: pa.Array, name: str, data_type: DataType, row_format: str
) -> pa.Array:
    """Encodes each list or map as a BinaryArray; its offsets point into ``elements``."""
    rows, counts = len(lists), bounds_of(lists)
    first = int(counts[0])
    elements = elements.slice(first, int(counts[-1]) - first)
    content = _content(elements, name, data_type, row_format)
    plan = element_plan(data_type)
    words = plan.words.copy()
    capacity = point_to(words, content, elements) + len(elements) * (
        plan.width + plan.most_after_slots + 1
    )
    target = pa.allocate_buffer(capacity + 16 * rows, resizable=True)
    bounds, where = np.empty(rows + 1, np.int64), np.zeros(1, np.int64)
    valid = lists.buffers()[0] if lists.null_count else None
    size = load_kernels().encode_arrays(
        rows, counts, first, valid, lists.offset, plan.width, words, target, bounds, where
    )
    if size < 0:
        raise _does_not_fit(int(where[0]), name, data_type, size)
    return _encoded(target, bounds, size)


def _lists(array: pa.Array, data_type: DataType, row_format: str) -> tuple[np.ndarray, pa.Array]:
    """Decodes BinaryArrays to offsets (int32) and elements; null where ``array`` is."""
    rows = len(array)
    plan = element_plan(data_type)
    words = plan.words.copy()
    counts, where = np.zeros(rows + 1, np.int32), np.zeros(1, np.int64)
    data, offsets = addresses(array)
    bits = array.buffers()[0]
    kernels = load_kernels()
    problem = kernels.count_elements(data, offsets, bits, rows, plan.width, counts, where)
    column = NewColumn(words, int(counts[-1]) if problem == 0 else 0)
    if problem == 0:
        problem = kernels.decode_arrays(data, offsets, rows, plan.width, counts, words, where)
    if problem < 0:
        raise InvalidValue(int(where[0]), f"an array of {data_type}: {PROBLEMS[problem]}")
    try:
        return counts, _value(column.finish(data_type), data_type, row_format)
    except InvalidValue as error:
        row = int(np.searchsorted(counts, error.row, "right")) - 1
        raise InvalidValue(row, f"an element of {data_type}: {error.reason}") from error


def _halves(maps: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Splits each map into key array and value array; null where ``maps`` is."""
    _, _, data = maps.buffers()
    bounds = bounds_of(maps).astype(np.int64)
    there = maps.is_valid().to_numpy(zero_copy_only=False)
    rooms = np.diff(bounds) - _LENGTH
    _refuse(there & (rooms < 0), "a map ends early")
    content = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
    starts = bounds[:-1][there]
    sizes = np.zeros(len(maps), np.int64)
    for index in range(_LENGTH):
        sizes[there] |= content[starts + index].astype(np.int64) << 8 * index
    _refuse(there & (sizes > rooms), "the keys of a map end after the map")
    address = addresses(maps)[0] + bounds[:-1] + _LENGTH
    halves = []
    for sources, lengths in ((address, sizes), (address + sizes, rooms - sizes)):
        offsets = np.zeros(len(maps) + 1, np.int32)
        np.cumsum(np.where(there, lengths, 0), out=offsets[1:])
        sources = np.ascontiguousarray(sources)
        halves.append(binary_array(offsets, gather(sources, offsets), maps.buffers()[0]))
    return halves[0], halves[1]


def _check_map(counts: np.ndarray, value_counts: np.ndarray, keys: pa.Array) -> None:
    _refuse(
        np.diff(counts) != np.diff(value_counts), "a map has different numbers of keys and values"
    )
    if keys.null_count:
        element = int(np.argmax(keys.is_null().to_numpy(zero_copy_only=False)))
        row = int(np.searchsorted(counts, element, "right")) - 1
        raise InvalidValue(row, "a map has a null key")


def _refuse(bad: np.ndarray, reason: str) -> None:
    if bad.any():
        raise InvalidValue(int(np.argmax(bad)), reason)


def _encoded(target: pa.Buffer, bounds: np.ndarray, size: int) -> pa.Array:
    """Returns the bytes that a kernel wrote as an array, without unused memory."""
    assert size <= target.size, "a kernel wrote past its memory"
    if size > _MAX_BYTES:
        raise RecordTooLarge(
            f"the rows have {size:,} bytes, more than 2 GiB: write fewer rows at once"
        )
    target.resize(size, shrink_to_fit=True)
    return binary_array(bounds.astype(np.int32), target)


def _does_not_fit(row: int, name: str, data_type: DataType, problem: int) -> InvalidTable:
    return InvalidTable(
        f"row {row}: the value of column {name!r} does not fit {data_type}: {PROBLEMS[problem]}"
    )
