"""CompactedRow and IndexedRow (reference part 4.3) for all rows of a batch at once."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType

import numpy as np
import pyarrow as pa

from sluice.errors import CorruptRecord, InvalidTable, RecordTooLarge, UnsupportedType
from sluice.formats import row_plan as of
from sluice.formats.row_plan import COMPACTED, INDEXED, row_plan
from sluice.formats.types import arrow_type
from sluice.model import DataType, TypeRoot

__all__ = [
    "COMPACTED",
    "INDEXED",
    "PROBLEMS",
    "decode_rows",
    "encode_rows",
    "gather",
    "load_kernels",
]

_MAX_BYTES = 2**31 - 1
_NESTED = (TypeRoot.ARRAY, TypeRoot.MAP, TypeRoot.ROW)
PROBLEMS = {
    of.ENDS_EARLY: "it ends early",
    of.VARINT_TOO_LONG: "a varint is longer than its type",
    of.BAD_LENGTH: "a length is negative",
    of.BAD_NANOS: "there are fewer than 0 or more than 999999 nanoseconds within a millisecond",
    of.OUT_OF_RANGE: "the value is out of its type's range",
    of.TOO_LONG: "the value is longer than its type",
    of.BYTES_LEFT: "there are bytes behind the last column",
    of.BAD_SLOT: "an array's element lies outside of it",
}


def load_kernels() -> ModuleType:
    """Loads the compiled kernels, or compiles them, the first time."""
    from sluice.formats import kernels

    return kernels


def encode_rows(batch: pa.RecordBatch, types: Sequence[DataType], row_format: str) -> pa.Array:
    """The bytes of each row, a binary array without nulls; ``batch`` has the types' Arrow types.

    :param row_format: ``COMPACTED`` or ``INDEXED``.
    :raises InvalidTable: names the column: of another Arrow type, with a CHAR value longer than the
        column, or with a TIMESTAMP beyond what milliseconds can say.
    :raises UnsupportedType: for ARRAY, MAP and ROW. :raises RecordTooLarge: more than 2 GiB.
    """
    plan = row_plan(tuple(types), row_format)
    _check_columns(batch, types)
    rows = batch.num_rows
    words = plan.words.copy()
    room = rows * plan.most_bytes
    for column, array in zip(words, batch.columns, strict=True):
        room += _point_to(column, array)
    target = pa.allocate_buffer(room, resizable=True)
    bounds = np.empty(rows + 1, np.int64)
    where = np.zeros(2, np.int64)
    size = load_kernels().encode_rows(
        rows,
        words.ctypes.data,
        len(words),
        plan.null_bytes,
        plan.listed,
        target.address,
        bounds.ctypes.data,
        where.ctypes.data,
    )
    if size < 0:
        row, column = where.tolist()
        raise InvalidTable(
            f"row {row}: the value of column {batch.schema.names[column]!r} does not fit"
            f" {types[column]}: {PROBLEMS[size]}"
        )
    if size > _MAX_BYTES:
        raise RecordTooLarge(f"rows of {size} bytes: write fewer rows at once")
    target.resize(size, shrink_to_fit=True)
    buffers = [None, pa.py_buffer(bounds.astype(np.int32)), target]
    return pa.Array.from_buffers(pa.binary(), rows, buffers)


def decode_rows(
    rows: pa.Array, types: Sequence[DataType], row_format: str, *, skipped: int = 0
) -> list[pa.Array]:
    """The columns of rows (a binary array), in the Arrow types of ``arrow_type``.

    A null row is null in every column. The first ``skipped`` bytes of each row are left out.

    :raises CorruptRecord: names the row and the column where the bytes cannot be.
    :raises UnsupportedType: for ARRAY, MAP and ROW.
    """
    for data_type in types:
        _check_supported(data_type)
    plan = row_plan(tuple(types), row_format)
    count = len(rows)
    words = plan.words.copy()
    buffers = [_make_room(column, count) for column in words]
    valid, offsets, data = rows.buffers()
    where = np.zeros(2, np.int64)
    problem = 0
    if count:
        problem = load_kernels().decode_rows(
            data.address if data is not None else 0,
            offsets.address + 4 * rows.offset,
            valid.address if valid is not None and rows.null_count else 0,
            rows.offset,
            count,
            skipped,
            words.ctypes.data,
            len(words),
            plan.null_bytes,
            plan.listed,
            where.ctypes.data,
        )
    if problem < 0:
        raise _corrupt(problem, int(where[0]), int(where[1]), types)
    return [
        _finish(column, parts, count, data_type)
        for column, parts, data_type in zip(words, buffers, types, strict=True)
    ]


def _check_columns(batch: pa.RecordBatch, types: Sequence[DataType]) -> None:
    if batch.num_columns != len(types):
        raise InvalidTable(f"{batch.num_columns} columns of data for {len(types)} of the table")
    for field, data_type in zip(batch.schema, types, strict=True):
        _check_supported(data_type)
        wanted = arrow_type(data_type)
        if field.type != wanted:
            raise InvalidTable(
                f"column {field.name!r} is {data_type}: its data must be of Arrow type {wanted},"
                f" not {field.type}"
            )


def _check_supported(data_type: DataType) -> None:
    if data_type.root in _NESTED:
        raise UnsupportedType(f"{data_type}: rows do not carry it yet, only the Arrow log does")


def _point_to(words: np.ndarray, array: pa.Array) -> int:
    """Puts the addresses of a column's buffers into its plan; the bytes of varying length."""
    buffers = array.buffers()
    words[of.BIT] = array.offset
    words[of.VALID] = buffers[0].address if buffers[0] is not None and array.null_count else 0
    data = buffers[-1].address if buffers[-1] is not None else 0
    words[of.VALUES] = data + of.arrow_width(words) * array.offset
    if words[of.IN_ARROW] != of.ARROW_BYTES or not len(array):
        return 0
    bounds = np.frombuffer(buffers[1], np.int32, len(array) + 1, 4 * array.offset)
    words[of.OFFSETS] = bounds.ctypes.data
    return int(bounds[-1]) - int(bounds[0])


def _make_room(words: np.ndarray, rows: int) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Memory for a column: validity bits, values (or where content lies), offsets of content."""
    valid = np.full((rows + 7) // 8, 0xFF, np.uint8)
    kind = words[of.IN_ARROW]
    offsets = None
    if kind == of.ARROW_BYTES:
        offsets = np.zeros(rows + 1, np.int32)
        words[of.OFFSETS] = offsets.ctypes.data
        values = np.empty(8 * rows, np.uint8)
    elif kind == of.ARROW_BIT:
        values = np.zeros((rows + 7) // 8, np.uint8)
    else:
        values = np.zeros(of.arrow_width(words) * rows, np.uint8)
    words[of.VALID], words[of.VALUES] = valid.ctypes.data, values.ctypes.data
    return valid, values, offsets


def _finish(
    words: np.ndarray,
    parts: tuple[np.ndarray, np.ndarray, np.ndarray | None],
    rows: int,
    data_type: DataType,
) -> pa.Array:
    """The column as Arrow; copies content of varying length to one place."""
    valid, values, offsets = parts
    nulls = int(words[of.NULLS])
    bits = pa.py_buffer(valid) if nulls else None
    kind = arrow_type(data_type)
    if offsets is None:
        array = pa.Array.from_buffers(kind, rows, [bits, pa.py_buffer(values)], nulls)
    else:
        content = gather(values, offsets)
        array = pa.Array.from_buffers(kind, rows, [bits, pa.py_buffer(offsets), content], nulls)
    if pa.types.is_string(kind) or words[of.IN_ARROW] == of.ARROW_DECIMAL128:
        _check_values(array, data_type)
    return array


def gather(sources: np.ndarray, offsets: np.ndarray) -> pa.Buffer:
    """Content joined: entry i lies at address ``sources[i]``, as long as ``offsets`` say."""
    content = pa.allocate_buffer(int(offsets[-1]))
    load_kernels().gather(
        sources.ctypes.data, offsets.ctypes.data, len(offsets) - 1, content.address
    )
    return content


def _check_values(array: pa.Array, data_type: DataType) -> None:
    """Text is UTF-8, and a DECIMAL has no more digits than its type."""
    try:
        array.validate(full=True)
    except pa.ArrowInvalid as error:
        row = _first_invalid(array)
        raise CorruptRecord(f"row {row}: a value of {data_type} cannot be: {error}") from error


def _first_invalid(array: pa.Array) -> int:
    """By halves: the smallest count of rows that Arrow refuses, less one."""
    good, bad = 0, len(array)
    while bad - good > 1:
        middle = (good + bad) // 2
        try:
            array.slice(0, middle).validate(full=True)
            good = middle
        except pa.ArrowInvalid:
            bad = middle
    return good


def _corrupt(problem: int, row: int, column: int, types: Sequence[DataType]) -> CorruptRecord:
    if column == len(types):
        return CorruptRecord(f"row {row}: {PROBLEMS[problem]}")
    return CorruptRecord(f"row {row}: column {column} ({types[column]}): {PROBLEMS[problem]}")
