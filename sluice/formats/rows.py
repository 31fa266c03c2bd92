"""CompactedRow and IndexedRow (reference part 4.3), one row at a time.

MAP and ROW columns are refused, and ARRAYs of anything but scalars: only the Arrow log has them.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from sluice.errors import InvalidTable, UnsupportedType
from sluice.formats import row_values as rv
from sluice.formats.binary_array import decode_array, encode_array
from sluice.formats.row_values import Reader
from sluice.model import DataType, TypeRoot

COMPACTED = "COMPACTED"
INDEXED = "INDEXED"

_I64 = struct.Struct("<q")
_I32 = struct.Struct("<i")
_PADDED = (TypeRoot.CHAR, TypeRoot.BINARY)


def encode_row(values: Sequence[Any], types: Sequence[DataType], row_format: str) -> bytes:
    """One row's bytes; see ``row_values`` for the form of values, None is null.

    :raises UnsupportedType: for a type that rows do not carry here. :raises InvalidTable: for CHAR
        or BINARY values longer than their column.
    """
    nulls = bytearray(_null_bytes(len(types)))
    for index, value in enumerate(values):
        if value is None:
            nulls[index // 8] |= 1 << index % 8
    there = [(v, of) for v, of in zip(values, types, strict=True) if v is not None]
    if _is_compacted(row_format):
        return b"".join((nulls, *(encode_compacted(v, of) for v, of in there)))
    contents = [_encode_indexed(v, of) for v, of in there]
    lengths = [len(c) for c, (_, of) in zip(contents, there, strict=True) if _varies(of)]
    reserved = 4 * sum(map(_varies, types))
    listed = struct.pack(f"<{len(lengths)}i", *lengths).ljust(reserved, b"\0")
    return b"".join((nulls, listed, *contents))


def decode_row(view: bytes | memoryview, types: Sequence[DataType], row_format: str) -> list[Any]:
    """The values of one row.

    :raises CorruptRecord: if the bytes are no such row. :raises UnsupportedType: as ``encode_row``.
    """
    for data_type in types:
        _check_supported(data_type)
    reader = Reader(memoryview(view))
    nulls = reader.take(_null_bytes(len(types)))
    is_null = [nulls[i // 8] >> i % 8 & 1 for i in range(len(types))]
    values: list[Any] = []
    if _is_compacted(row_format):
        for data_type, null in zip(types, is_null, strict=True):
            values.append(None if null else decode_compacted(reader, data_type))
    else:
        lengths = Reader(reader.take(4 * sum(map(_varies, types))))
        for data_type, null in zip(types, is_null, strict=True):
            values.append(None if null else _decode_indexed(reader, lengths, data_type))
    reader.end()
    return values


def encode_compacted(value: Any, data_type: DataType) -> bytes:
    """A field of a CompactedRow, and so of a Compacted key."""
    root = data_type.root
    if root in (TypeRoot.INT, TypeRoot.DATE, TypeRoot.TIME):
        return rv.varint(value, 32)
    if root is TypeRoot.BIGINT:
        return rv.varint(value, 64)
    if root in rv.FIXED:
        return rv.FIXED[root].pack(value)
    if root in rv.STAMPS:
        millis, nanos = divmod(value, rv.NANOS_PER_MILLI)
        return rv.varint(millis, 64) + (b"" if rv.is_compact(data_type) else rv.varint(nanos, 32))
    if root is TypeRoot.DECIMAL and rv.is_compact(data_type):
        return rv.varint(value, 64)
    return rv.sized(_content(value, data_type))


def decode_compacted(reader: Reader, data_type: DataType) -> Any:
    """:raises CorruptRecord: if the bytes are no such field."""
    root = data_type.root
    if root in (TypeRoot.INT, TypeRoot.DATE, TypeRoot.TIME):
        return reader.varint(32)
    if root is TypeRoot.BIGINT:
        return reader.varint(64)
    if root in rv.FIXED:
        return reader.number(rv.FIXED[root])
    if root in rv.STAMPS:
        millis = reader.varint(64)
        nanos = 0 if rv.is_compact(data_type) else reader.varint(32)
        return millis * rv.NANOS_PER_MILLI + nanos
    if root is TypeRoot.DECIMAL and rv.is_compact(data_type):
        return reader.varint(64)
    return _value(reader.sized(), data_type)


def _encode_indexed(value: Any, data_type: DataType) -> bytes:
    root = data_type.root
    if root in rv.FIXED:
        return rv.FIXED[root].pack(value)
    if root in rv.STAMPS:
        millis, nanos = divmod(value, rv.NANOS_PER_MILLI)
        return _I64.pack(millis) + (b"" if rv.is_compact(data_type) else _I32.pack(nanos))
    if root is TypeRoot.DECIMAL and rv.is_compact(data_type):
        return _I64.pack(value)
    content = _content(value, data_type)
    if root in _PADDED:
        length = data_type.length or 0
        if len(content) > length:
            raise InvalidTable(f"a value of {len(content)} bytes does not fit {data_type}")
        return content.ljust(length, b"\0")
    return content


def _decode_indexed(reader: Reader, lengths: Reader, data_type: DataType) -> Any:
    root = data_type.root
    if root in rv.FIXED:
        return reader.number(rv.FIXED[root])
    if root in rv.STAMPS:
        millis = reader.number(_I64)
        nanos = 0 if rv.is_compact(data_type) else reader.number(_I32)
        return millis * rv.NANOS_PER_MILLI + nanos
    if root is TypeRoot.DECIMAL and rv.is_compact(data_type):
        return reader.number(_I64)
    if root in _PADDED:
        content = bytes(reader.take(data_type.length or 0)).rstrip(b"\0")
        return _value(memoryview(content), data_type)
    return _value(reader.take(lengths.number(_I32)), data_type)


def _content(value: Any, data_type: DataType) -> bytes:
    root = data_type.root
    if root in rv.TEXT:
        return bytes(value.encode())
    if root in (TypeRoot.BINARY, TypeRoot.BYTES):
        return bytes(value)
    if root is TypeRoot.DECIMAL:
        return rv.big_endian(value)
    _check_supported(data_type)
    assert data_type.element is not None
    return encode_array(value, data_type.element)


def _value(content: memoryview, data_type: DataType) -> Any:
    root = data_type.root
    if root in rv.TEXT:
        return rv.text(content)
    if root in (TypeRoot.BINARY, TypeRoot.BYTES):
        return bytes(content)
    if root is TypeRoot.DECIMAL:
        return int.from_bytes(content, "big", signed=True)
    _check_supported(data_type)
    assert data_type.element is not None
    return decode_array(content, data_type.element)


def _check_supported(data_type: DataType) -> None:
    if data_type.root in (TypeRoot.MAP, TypeRoot.ROW):
        raise UnsupportedType(f"{data_type}: rows do not carry it yet, only the Arrow log does")


def _varies(data_type: DataType) -> bool:
    """Whether an IndexedRow lists the length of such a column."""
    root = data_type.root
    if root is TypeRoot.DECIMAL:
        return not rv.is_compact(data_type)
    return root in (TypeRoot.STRING, TypeRoot.BYTES, TypeRoot.ARRAY, TypeRoot.MAP, TypeRoot.ROW)


def _null_bytes(arity: int) -> int:
    return (arity + 7) // 8


def _is_compacted(row_format: str) -> bool:
    if row_format not in (COMPACTED, INDEXED):
        raise ValueError(f"row format {row_format!r}: there are {COMPACTED} and {INDEXED}")
    return row_format == COMPACTED
