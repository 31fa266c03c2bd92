"""Rows one value at a time in plain Python: what the compiled codecs are held against.

Values are plain: DATE is days, TIME milliseconds of the day, both TIMESTAMPs nanoseconds since the
epoch, DECIMAL its unscaled number. MAP and ROW are not known here.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from sluice.errors import CorruptRecord, InvalidTable, UnsupportedType
from sluice.formats.log.batch import seal
from sluice.formats.log.row_log import RowLog
from sluice.formats.rows.plan import COMPACTED, INDEXED
from sluice.model import DataType, TypeRoot

_COUNT = struct.Struct("<i")
_SLOT = struct.Struct("<Q")
_I64 = struct.Struct("<q")
_I32 = struct.Struct("<i")
_COMPACT_DECIMAL = 18
_COMPACT_TIMESTAMP = 3
NANOS_PER_MILLI = 1_000_000

FIXED = {
    TypeRoot.BOOLEAN: struct.Struct("<?"),
    TypeRoot.TINYINT: struct.Struct("<b"),
    TypeRoot.SMALLINT: struct.Struct("<h"),
    TypeRoot.INT: struct.Struct("<i"),
    TypeRoot.DATE: struct.Struct("<i"),
    TypeRoot.TIME: struct.Struct("<i"),
    TypeRoot.BIGINT: struct.Struct("<q"),
    TypeRoot.FLOAT: struct.Struct("<f"),
    TypeRoot.DOUBLE: struct.Struct("<d"),
}
"""Numbers that have the same width whatever their value."""
TEXT = (TypeRoot.CHAR, TypeRoot.STRING)
STAMPS = (TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ)


class Reader:
    """Reads values one after another; each step checks what is left.

    :raises CorruptRecord: from every method, if the bytes end early or cannot be.
    """

    def __init__(self, view: memoryview) -> None:
        self.view = view
        self.position = 0

    def take(self, size: int) -> memoryview:
        end = self.position + size
        if size < 0 or end > len(self.view):
            raise CorruptRecord(
                f"row: {size} bytes wanted at {self.position} of {len(self.view)} bytes"
            )
        part = self.view[self.position : end]
        self.position = end
        return part

    def number(self, layout: struct.Struct) -> Any:
        return layout.unpack(self.take(layout.size))[0]

    def varint(self, bits: int) -> int:
        """A signed number that was written as the unsigned LEB128 of its pattern."""
        value = 0
        for shift in range(0, bits, 7):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                value &= (1 << bits) - 1
                return value - (1 << bits) if value >> (bits - 1) else value
        raise CorruptRecord(f"row: a varint of more than {bits} bits before {self.position}")

    def sized(self) -> memoryview:
        """Bytes behind their length as a varint."""
        return self.take(self.varint(32))

    def end(self) -> None:
        if self.position != len(self.view):
            raise CorruptRecord(f"row: {len(self.view) - self.position} bytes too many")


def varint(value: int, bits: int) -> bytes:
    """Unsigned LEB128 of the number's 32- or 64-bit pattern."""
    value &= (1 << bits) - 1
    result = bytearray()
    while value > 0x7F:
        result.append(value & 0x7F | 0x80)
        value >>= 7
    result.append(value)
    return bytes(result)


def sized(content: bytes) -> bytes:
    return varint(len(content), 32) + content


def big_endian(value: int) -> bytes:
    """Shortest big-endian two's complement."""
    magnitude = value + 1 if value < 0 else value
    return value.to_bytes(magnitude.bit_length() // 8 + 1, "big", signed=True)


def text(content: memoryview) -> str:
    """:raises CorruptRecord: if it is not UTF-8."""
    try:
        return str(content, "utf-8")
    except UnicodeDecodeError as error:
        raise CorruptRecord(f"row: text is not UTF-8: {error}") from error


def is_compact(data_type: DataType) -> bool:
    """Whether a DECIMAL (18 digits) or TIMESTAMP (milliseconds) is one 64-bit number."""
    limit = _COMPACT_DECIMAL if data_type.root is TypeRoot.DECIMAL else _COMPACT_TIMESTAMP
    return (data_type.precision or 0) <= limit


_MAX_INLINE = 7
_DECIMAL_SIZE = 16


def encode_array(values: Sequence[Any], element: DataType) -> bytes:
    """Count, null bits, slots, then what does not fit a slot, each part at a multiple of 8.

    :raises UnsupportedType: for ARRAY, MAP and ROW elements.
    """
    width = _width(element)
    null_bytes = _array_null_bytes(len(values))
    slots = bytearray(_round_up(4 + null_bytes + len(values) * width))
    _COUNT.pack_into(slots, 0, len(values))
    behind = bytearray()
    for index, value in enumerate(values):
        if value is None:
            slots[4 + index // 8] |= 1 << index % 8
            continue
        slot, more = _element(value, element, len(slots) + len(behind))
        at = 4 + null_bytes + index * width
        slots[at : at + width] = slot
        behind += more
    return bytes(slots + behind)


def decode_array(view: memoryview, element: DataType) -> list[Any]:
    """:raises CorruptRecord: if a slot points outside. :raises UnsupportedType: nested elements."""
    width = _width(element)
    count = Reader(view).number(_COUNT)
    start = 4 + _array_null_bytes(max(count, 0))
    if count < 0 or start + count * width > len(view):
        raise CorruptRecord(f"row: an array of {count} elements in {len(view)} bytes")
    values: list[Any] = []
    for index in range(count):
        if view[4 + index // 8] >> index % 8 & 1:
            values.append(None)
        else:
            at = start + index * width
            values.append(_read_element(view, view[at : at + width], element))
    return values


def _element(value: Any, element: DataType, end: int) -> tuple[bytes, bytes]:
    """An element's slot, and what goes to position ``end`` if it needs more room."""
    root = element.root
    if root in FIXED:
        return FIXED[root].pack(value), b""
    if root in STAMPS:
        millis, nanos = divmod(value, NANOS_PER_MILLI)
        if is_compact(element):
            return _I64.pack(millis), b""
        return _SLOT.pack(end << 32 | nanos), _I64.pack(millis)
    if root is TypeRoot.DECIMAL:
        if is_compact(element):
            return _I64.pack(value), b""
        content = big_endian(value)
        return _SLOT.pack(end << 32 | len(content)), content.ljust(_DECIMAL_SIZE, b"\0")
    content = value.encode() if root in TEXT else value
    if len(content) <= _MAX_INLINE:
        return content.ljust(7, b"\0") + bytes([0x80 | len(content)]), b""
    return _SLOT.pack(end << 32 | len(content)), content.ljust(_round_up(len(content)), b"\0")


def _read_element(view: memoryview, slot: memoryview, element: DataType) -> Any:
    root = element.root
    if root in FIXED:
        return FIXED[root].unpack(slot)[0]
    if root in (*STAMPS, TypeRoot.DECIMAL) and is_compact(element):
        number = _I64.unpack(slot)[0]
        return number if root is TypeRoot.DECIMAL else number * NANOS_PER_MILLI
    mark = _SLOT.unpack(slot)[0]
    offset, low = mark >> 32, mark & 0xFFFFFFFF
    if root in STAMPS:
        if low >= NANOS_PER_MILLI:
            raise CorruptRecord(f"row: {low} nanoseconds within a millisecond")
        return _I64.unpack(_behind(view, offset, 8))[0] * NANOS_PER_MILLI + low
    if root is TypeRoot.DECIMAL:
        if low > _DECIMAL_SIZE:
            raise CorruptRecord(f"row: a DECIMAL of {low} bytes")
        return int.from_bytes(_behind(view, offset, low), "big", signed=True)
    if slot[7] & 0x80:
        length = slot[7] & 0x7F
        if length > _MAX_INLINE:
            raise CorruptRecord(f"row: {length} bytes in a slot of 7")
        content = slot[:length]
    else:
        content = _behind(view, offset, low)
    return text(content) if root in TEXT else bytes(content)


def _behind(view: memoryview, offset: int, size: int) -> memoryview:
    if offset + size > len(view):
        raise CorruptRecord(f"row: an array element at {offset} of {len(view)} bytes")
    return view[offset : offset + size]


def _width(element: DataType) -> int:
    if element.root in (TypeRoot.ARRAY, TypeRoot.MAP, TypeRoot.ROW):
        raise UnsupportedType(f"an array of {element}: rows carry arrays of scalar types only")
    layout = FIXED.get(element.root)
    return layout.size if layout else 8


def _array_null_bytes(count: int) -> int:
    return (count + 31) // 32 * 4


def _round_up(size: int) -> int:
    return (size + 7) // 8 * 8


_PADDED = (TypeRoot.CHAR, TypeRoot.BINARY)


def encode_row(values: Sequence[Any], types: Sequence[DataType], row_format: str) -> bytes:
    """One row's bytes; None is null.

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
        return varint(value, 32)
    if root is TypeRoot.BIGINT:
        return varint(value, 64)
    if root in FIXED:
        return FIXED[root].pack(value)
    if root in STAMPS:
        millis, nanos = divmod(value, NANOS_PER_MILLI)
        return varint(millis, 64) + (b"" if is_compact(data_type) else varint(nanos, 32))
    if root is TypeRoot.DECIMAL and is_compact(data_type):
        return varint(value, 64)
    return sized(_content(value, data_type))


def decode_compacted(reader: Reader, data_type: DataType) -> Any:
    """:raises CorruptRecord: if the bytes are no such field."""
    root = data_type.root
    if root in (TypeRoot.INT, TypeRoot.DATE, TypeRoot.TIME):
        return reader.varint(32)
    if root is TypeRoot.BIGINT:
        return reader.varint(64)
    if root in FIXED:
        return reader.number(FIXED[root])
    if root in STAMPS:
        millis = reader.varint(64)
        nanos = 0 if is_compact(data_type) else reader.varint(32)
        return millis * NANOS_PER_MILLI + nanos
    if root is TypeRoot.DECIMAL and is_compact(data_type):
        return reader.varint(64)
    return _value(reader.sized(), data_type)


def _encode_indexed(value: Any, data_type: DataType) -> bytes:
    root = data_type.root
    if root in FIXED:
        return FIXED[root].pack(value)
    if root in STAMPS:
        millis, nanos = divmod(value, NANOS_PER_MILLI)
        return _I64.pack(millis) + (b"" if is_compact(data_type) else _I32.pack(nanos))
    if root is TypeRoot.DECIMAL and is_compact(data_type):
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
    if root in FIXED:
        return reader.number(FIXED[root])
    if root in STAMPS:
        millis = reader.number(_I64)
        nanos = 0 if is_compact(data_type) else reader.number(_I32)
        return millis * NANOS_PER_MILLI + nanos
    if root is TypeRoot.DECIMAL and is_compact(data_type):
        return reader.number(_I64)
    if root in _PADDED:
        content = bytes(reader.take(data_type.length or 0)).rstrip(b"\0")
        return _value(memoryview(content), data_type)
    return _value(reader.take(lengths.number(_I32)), data_type)


def _content(value: Any, data_type: DataType) -> bytes:
    root = data_type.root
    if root in TEXT:
        return bytes(value.encode())
    if root in (TypeRoot.BINARY, TypeRoot.BYTES):
        return bytes(value)
    if root is TypeRoot.DECIMAL:
        return big_endian(value)
    _check_supported(data_type)
    assert data_type.element is not None
    return encode_array(value, data_type.element)


def _value(content: memoryview, data_type: DataType) -> Any:
    root = data_type.root
    if root in TEXT:
        return text(content)
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
        return not is_compact(data_type)
    return root in (TypeRoot.STRING, TypeRoot.BYTES, TypeRoot.ARRAY, TypeRoot.MAP, TypeRoot.ROW)


def _null_bytes(arity: int) -> int:
    return (arity + 7) // 8


def _is_compacted(row_format: str) -> bool:
    if row_format not in (COMPACTED, INDEXED):
        raise ValueError(f"row format {row_format!r}: there are {COMPACTED} and {INDEXED}")
    return row_format == COMPACTED


def row_log_batch(
    log: RowLog,
    schema_id: int,
    *,
    append_only: bool = False,
    writer_id: int = -1,
    batch_sequence: int = -1,
) -> bytes:
    """Records with their change types as one log batch at offset 0."""
    records = []
    for change, row in zip(log.change_types.tolist(), log.rows.to_pylist(), strict=True):
        records += [_I32.pack(len(row) + 1), bytes([change]), row]
    attributes, count = int(append_only), len(log.rows)
    return seal(records, schema_id, attributes, writer_id, batch_sequence, count)
