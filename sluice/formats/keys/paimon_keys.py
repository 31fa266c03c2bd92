"""Encodes keys as a Paimon BinaryRow of the key columns.

See docs/fluss/keys-and-buckets.md#paimon-keys

A header (one byte for the row kind, then the null bits), an 8-byte slot per column, then the values
that do not fit their slots, each at a multiple of 8.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sluice.errors import InvalidTable
from sluice.formats.rows import field_bytes
from sluice.formats.rows.field_bytes import refuse
from sluice.formats.rows.plan import is_compact
from sluice.model import DataType, TypeRoot

_HEADER_BITS = 8
_MAX_INLINE = 7
_TEXT = (TypeRoot.CHAR, TypeRoot.STRING, TypeRoot.BINARY, TypeRoot.BYTES)
_WIDTH_MASKS = {
    TypeRoot.TINYINT: 0xFF,
    TypeRoot.SMALLINT: 0xFFFF,
    TypeRoot.INT: 0xFFFFFFFF,
    TypeRoot.DATE: 0xFFFFFFFF,
    TypeRoot.BIGINT: -1,
}


def encode_paimon(
    arrays: Sequence[pa.Array], types: Sequence[DataType], names: Sequence[str]
) -> pa.Array:
    """Returns one BinaryRow per row; a null has its bit set and an empty slot.

    :raises InvalidTable: for a null in a NOT NULL column. :raises UnsupportedType: ARRAY, MAP, ROW.
    """
    rows = len(arrays[0])
    header_words = (len(arrays) + 63 + _HEADER_BITS) // 64
    fixed = np.zeros((rows, header_words + len(arrays)), np.uint64)
    cursor = np.full(rows, 8 * fixed.shape[1], np.int64)
    contents: list[pa.Array] = []
    for position, (array, data_type, name) in enumerate(zip(arrays, types, names, strict=True)):
        slot, moved = _slot(array, data_type, name, cursor)
        if array.null_count:
            if not data_type.nullable:
                raise InvalidTable(f"key column {name!r} is NOT NULL, but has nulls")
            null = array.is_null().to_numpy(zero_copy_only=False)
            slot = np.where(null, 0, slot)
            bit = position + _HEADER_BITS
            fixed[:, bit // 64] |= null.astype(np.uint64) << np.uint64(bit % 64)
            if moved is not None:
                moved = pc.if_else(pa.array(null), b"", moved)
        fixed[:, header_words + position] = slot.astype(np.int64).view(np.uint64)
        if moved is not None:
            cursor = cursor + field_bytes.binary_buffers(moved)[1]
            contents.append(moved)
    width = 8 * fixed.shape[1]
    head = field_bytes.from_matrix(
        fixed.view(np.uint8).reshape(rows, width), np.full(rows, width, np.int64)
    )
    return field_bytes.join([head, *contents])


def _slot(
    array: pa.Array, data_type: DataType, name: str, cursor: np.ndarray
) -> tuple[np.ndarray, pa.Array | None]:
    """A column's slots, and its bytes after the fixed part (padded), if any."""
    root = data_type.root
    if root is TypeRoot.BOOLEAN:
        return field_bytes.booleans(array).astype(np.int64), None
    if root in _WIDTH_MASKS:
        return field_bytes.integers(array) & _WIDTH_MASKS[root], None
    if root is TypeRoot.TIME:
        return field_bytes.millis_of_day(array), None
    if root is TypeRoot.FLOAT:
        return field_bytes.numbers(array).view(np.uint32).astype(np.int64), None
    if root is TypeRoot.DOUBLE:
        return field_bytes.numbers(array).view(np.int64), None
    if root in (TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ):
        millis, nanos = field_bytes.epoch_millis(array)
        if is_compact(data_type):
            return millis, None
        return cursor << 32 | nanos, field_bytes.fixed(millis)
    if root is TypeRoot.DECIMAL:
        if is_compact(data_type):
            return field_bytes.unscaled_low(array), None
        content = field_bytes.unscaled_big_endian(array)
        lengths = field_bytes.binary_buffers(content)[1]
        return cursor << 32 | lengths, _padded(content, 16 - lengths)
    if root in _TEXT:
        return _text_slot(field_bytes.as_binary(array), cursor)
    raise refuse(data_type, name, "Paimon")


def _text_slot(array: pa.Array, cursor: np.ndarray) -> tuple[np.ndarray, pa.Array]:
    array = pc.fill_null(array, b"")
    starts, lengths, data = field_bytes.binary_buffers(array)
    is_inline = lengths <= _MAX_INLINE
    inline = (lengths | 0x80).astype(np.uint64) << np.uint64(56)
    for index in range(_MAX_INLINE):
        rows = np.nonzero(is_inline & (lengths > index))[0]
        byte = data[starts[rows] + index].astype(np.uint64)
        inline[rows] |= byte << np.uint64(8 * index)
    slot = np.where(is_inline, inline.view(np.int64), cursor << 32 | lengths)
    moved = pc.if_else(pa.array(is_inline), b"", array) if is_inline.any() else array
    return slot, _padded(moved, np.where(is_inline, 0, -lengths % 8))


def _padded(array: pa.Array, zeros: np.ndarray) -> pa.Array:
    # Not made at import: pyarrow imports pandas with its first array, which takes half a second.
    pads = pa.array([bytes(n) for n in range(17)], pa.binary())
    return field_bytes.join([array, pads.take(pa.array(zeros))])
