"""Plans of rows: numbers by which the compiled kernels read and write each column.

A plan is an int64 array of shape (columns, WORDS). The words from VALUES on are addresses and
counters of one call; the others depend on the column's type and the row format alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from sluice.formats.kernels import row_layout as layout
from sluice.formats.types.types import time_unit
from sluice.model import DataType, TypeRoot

COMPACTED = "COMPACTED"
INDEXED = "INDEXED"

_PER_SECOND = {"s": 1, "ms": 1000, "us": 1_000_000, "ns": 1_000_000_000}
_VARYING = (TypeRoot.STRING, TypeRoot.BYTES, TypeRoot.ARRAY, TypeRoot.MAP, TypeRoot.ROW)
_NUMBERS = {
    TypeRoot.BOOLEAN: (layout.ROW_8, layout.ARROW_BIT),
    TypeRoot.TINYINT: (layout.ROW_8, layout.ARROW_8),
    TypeRoot.SMALLINT: (layout.ROW_16, layout.ARROW_16),
    TypeRoot.FLOAT: (layout.ROW_32, layout.ARROW_32),
    TypeRoot.DOUBLE: (layout.ROW_64, layout.ARROW_64),
}
_COMPACTED_NUMBERS = _NUMBERS | {
    TypeRoot.INT: (layout.ROW_VARINT32, layout.ARROW_32),
    TypeRoot.DATE: (layout.ROW_VARINT32, layout.ARROW_32),
    TypeRoot.BIGINT: (layout.ROW_VARINT64, layout.ARROW_64),
}
_PLAIN_NUMBERS = _NUMBERS | {
    TypeRoot.INT: (layout.ROW_32, layout.ARROW_32),
    TypeRoot.DATE: (layout.ROW_32, layout.ARROW_32),
    TypeRoot.BIGINT: (layout.ROW_64, layout.ARROW_64),
}
_STAMPS = (TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ)
_ROW_WIDTHS = {
    layout.ROW_8: 1,
    layout.ROW_16: 2,
    layout.ROW_32: 4,
    layout.ROW_64: 8,
    layout.ROW_VARINT32: 5,
    layout.ROW_VARINT64: 10,
    layout.ROW_STAMP: 12,
    layout.ROW_STAMP_VARINT: 15,
    layout.ROW_SIZED: 5,
    layout.ROW_LISTED: 0,
}
_ARROW_WIDTHS = {
    layout.ARROW_8: 1,
    layout.ARROW_16: 2,
    layout.ARROW_32: 4,
    layout.ARROW_64: 8,
    layout.ARROW_TIME32: 4,
    layout.ARROW_TIME64: 8,
    layout.ARROW_STAMP: 8,
    layout.ARROW_DECIMAL64: 16,
    layout.ARROW_DECIMAL128: 16,
}
_MAX_DECIMAL_BYTES = 16
_COMPACT_DECIMAL = 18
_COMPACT_TIMESTAMP = 3
_SLOT_WIDTH = 8
_AFTER_SLOTS = {layout.SLOT_STAMP: 8, layout.SLOT_BYTES: 7, layout.SLOT_NESTED: 7}
"""Bytes that an element takes after the slots, without its content: mostly padding."""
NESTED = (TypeRoot.ARRAY, TypeRoot.MAP, TypeRoot.ROW)


@dataclass(frozen=True, slots=True)
class RowPlan:
    """The plan of a row's columns, without addresses."""

    words: np.ndarray
    null_bytes: int
    listed: int
    """Columns whose length an IndexedRow lists, null or not."""
    most_bytes: int
    """Maximum bytes of a row, without the content of columns of varying length."""


@lru_cache(maxsize=256)
def row_plan(types: tuple[DataType, ...], row_format: str) -> RowPlan:
    """:raises ValueError: the row format is not COMPACTED or INDEXED."""
    if row_format not in (COMPACTED, INDEXED):
        raise ValueError(
            f"row format {row_format!r} is not supported: use {COMPACTED} or {INDEXED}"
        )
    is_compacted = row_format == COMPACTED
    words = np.zeros((len(types), layout.WORDS), np.int64)
    for column, data_type in zip(words, types, strict=True):
        _fill(column, data_type, is_compacted)
    listed = 0 if is_compacted else sum(map(is_listed, types))
    null_bytes = (len(types) + 7) // 8
    most = null_bytes + 4 * listed + sum(map(most_bytes, words))
    words.flags.writeable = False
    return RowPlan(words, null_bytes, listed, most)


def is_compact(data_type: DataType) -> bool:
    """Whether a DECIMAL (18 digits) or TIMESTAMP (milliseconds) is one 64-bit number."""
    limit = _COMPACT_DECIMAL if data_type.root is TypeRoot.DECIMAL else _COMPACT_TIMESTAMP
    return (data_type.precision or 0) <= limit


def is_listed(data_type: DataType) -> bool:
    """Whether an IndexedRow lists the length of such a column."""
    root = data_type.root
    return root in _VARYING or (root is TypeRoot.DECIMAL and not is_compact(data_type))


def most_bytes(words: np.ndarray) -> int:
    """Maximum bytes of a field in a row, without content of varying length."""
    kind = int(words[layout.IN_ROW])
    if kind == layout.ROW_PADDED:
        return int(words[layout.SIZE])
    return _ROW_WIDTHS[kind] + _most_content(words)


def _most_content(words: np.ndarray) -> int:
    """Maximum size of content that the column's type bounds; other content is counted itself."""
    if words[layout.IN_ARROW] == layout.ARROW_FIXED:
        return int(words[layout.SIZE])
    return _MAX_DECIMAL_BYTES if words[layout.IN_ARROW] == layout.ARROW_DECIMAL128 else 0


def arrow_width(words: np.ndarray) -> int:
    """Bytes of a value in Arrow's buffer; 0 for bits and for content of varying length."""
    if words[layout.IN_ARROW] == layout.ARROW_FIXED:
        return int(words[layout.SIZE])
    return _ARROW_WIDTHS.get(int(words[layout.IN_ARROW]), 0)


def _fill(words: np.ndarray, data_type: DataType, is_compacted: bool) -> None:
    root = data_type.root
    numbers = _COMPACTED_NUMBERS if is_compacted else _PLAIN_NUMBERS
    if root in numbers:
        words[layout.IN_ROW], words[layout.IN_ARROW] = numbers[root]
    elif root is TypeRoot.TIME:
        _fill_time(words, data_type)
        words[layout.IN_ROW] = layout.ROW_VARINT32 if is_compacted else layout.ROW_32
    elif root in _STAMPS:
        _fill_stamp(words, data_type)
        if is_compact(data_type):
            words[layout.IN_ROW] = layout.ROW_VARINT64 if is_compacted else layout.ROW_64
        else:
            words[layout.IN_ROW] = layout.ROW_STAMP_VARINT if is_compacted else layout.ROW_STAMP
    elif root is TypeRoot.DECIMAL and is_compact(data_type):
        words[layout.IN_ROW] = layout.ROW_VARINT64 if is_compacted else layout.ROW_64
        words[layout.IN_ARROW] = layout.ARROW_DECIMAL64
        words[layout.LIMIT] = 10 ** (data_type.precision or 0)
    else:
        _fill_bytes(words, data_type, is_compacted)


def _fill_time(words: np.ndarray, data_type: DataType) -> None:
    """Milliseconds times TIMES divided by BY are the unit of Arrow's column."""
    per_second = _PER_SECOND[time_unit(data_type.precision)]
    words[layout.IN_ARROW] = layout.ARROW_TIME32 if per_second <= 1000 else layout.ARROW_TIME64
    words[layout.TIMES], words[layout.BY] = max(per_second // 1000, 1), max(1000 // per_second, 1)


def _fill_stamp(words: np.ndarray, data_type: DataType) -> None:
    per_second = _PER_SECOND[time_unit(data_type.precision)]
    words[layout.IN_ARROW] = layout.ARROW_STAMP
    words[layout.TIMES], words[layout.BY] = max(per_second // 1000, 1), max(1000 // per_second, 1)


def _fill_bytes(words: np.ndarray, data_type: DataType, is_compacted: bool) -> None:
    root = data_type.root
    words[layout.SIZE] = data_type.length or 0
    words[layout.IN_ARROW] = layout.ARROW_BYTES
    if root is TypeRoot.BINARY:
        words[layout.IN_ARROW] = layout.ARROW_FIXED
    elif root is TypeRoot.DECIMAL:
        words[layout.IN_ARROW] = layout.ARROW_DECIMAL128
    if is_compacted:
        words[layout.IN_ROW] = layout.ROW_SIZED
    elif root in (TypeRoot.CHAR, TypeRoot.BINARY):
        words[layout.IN_ROW] = layout.ROW_PADDED
    else:
        words[layout.IN_ROW] = layout.ROW_LISTED


@dataclass(frozen=True, slots=True)
class ElementPlan:
    """The plan of an array's elements, without addresses."""

    words: np.ndarray
    width: int
    """Bytes of an element, or of its slot if it is after the slots."""
    most_after_slots: int
    """Maximum bytes of an element after the slots, without content of varying length."""


@lru_cache(maxsize=256)
def element_plan(data_type: DataType) -> ElementPlan:
    """As in an IndexedRow, but with 8-byte slots; content of varying length is after the slots."""
    words = np.zeros(layout.WORDS, np.int64)
    _fill(words, data_type, is_compacted=False)
    if data_type.root in NESTED:
        words[layout.IN_ROW] = layout.SLOT_NESTED
    elif words[layout.IN_ROW] == layout.ROW_STAMP:
        words[layout.IN_ROW] = layout.SLOT_STAMP
    elif words[layout.IN_ARROW] == layout.ARROW_DECIMAL128:
        words[layout.IN_ROW] = layout.SLOT_DECIMAL
    elif words[layout.IN_ROW] in (layout.ROW_LISTED, layout.ROW_PADDED):
        words[layout.IN_ROW] = layout.SLOT_BYTES
    words.flags.writeable = False
    kind = int(words[layout.IN_ROW])
    after_slots = _AFTER_SLOTS.get(kind, 0) + _most_content(words)
    return ElementPlan(words, _ROW_WIDTHS.get(kind, _SLOT_WIDTH), after_slots)
