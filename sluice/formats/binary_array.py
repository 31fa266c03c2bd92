"""BinaryArray, the bytes of an ARRAY within a row (reference part 4.3), for scalar elements."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from sluice.errors import CorruptRecord, UnsupportedType
from sluice.formats import row_values as rv
from sluice.model import DataType, TypeRoot

_COUNT = struct.Struct("<i")
_SLOT = struct.Struct("<Q")
_I64 = struct.Struct("<q")
_MAX_INLINE = 7
_DECIMAL_SIZE = 16


def encode_array(values: Sequence[Any], element: DataType) -> bytes:
    """Count, null bits, slots, then what does not fit a slot, each part at a multiple of 8.

    :raises UnsupportedType: for ARRAY, MAP and ROW elements.
    """
    width = _width(element)
    null_bytes = _null_bytes(len(values))
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
    count = rv.Reader(view).number(_COUNT)
    start = 4 + _null_bytes(max(count, 0))
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
    if root in rv.FIXED:
        return rv.FIXED[root].pack(value), b""
    if root in rv.STAMPS:
        millis, nanos = divmod(value, rv.NANOS_PER_MILLI)
        if rv.is_compact(element):
            return _I64.pack(millis), b""
        return _SLOT.pack(end << 32 | nanos), _I64.pack(millis)
    if root is TypeRoot.DECIMAL:
        if rv.is_compact(element):
            return _I64.pack(value), b""
        content = rv.big_endian(value)
        return _SLOT.pack(end << 32 | len(content)), content.ljust(_DECIMAL_SIZE, b"\0")
    content = value.encode() if root in rv.TEXT else value
    if len(content) <= _MAX_INLINE:
        return content.ljust(7, b"\0") + bytes([0x80 | len(content)]), b""
    return _SLOT.pack(end << 32 | len(content)), content.ljust(_round_up(len(content)), b"\0")


def _read_element(view: memoryview, slot: memoryview, element: DataType) -> Any:
    root = element.root
    if root in rv.FIXED:
        return rv.FIXED[root].unpack(slot)[0]
    if root in (*rv.STAMPS, TypeRoot.DECIMAL) and rv.is_compact(element):
        number = _I64.unpack(slot)[0]
        return number if root is TypeRoot.DECIMAL else number * rv.NANOS_PER_MILLI
    mark = _SLOT.unpack(slot)[0]
    offset, low = mark >> 32, mark & 0xFFFFFFFF
    if root in rv.STAMPS:
        if low >= rv.NANOS_PER_MILLI:
            raise CorruptRecord(f"row: {low} nanoseconds within a millisecond")
        return _I64.unpack(_behind(view, offset, 8))[0] * rv.NANOS_PER_MILLI + low
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
    return rv.text(content) if root in rv.TEXT else bytes(content)


def _behind(view: memoryview, offset: int, size: int) -> memoryview:
    if offset + size > len(view):
        raise CorruptRecord(f"row: an array element at {offset} of {len(view)} bytes")
    return view[offset : offset + size]


def _width(element: DataType) -> int:
    if element.root in (TypeRoot.ARRAY, TypeRoot.MAP, TypeRoot.ROW):
        raise UnsupportedType(f"an array of {element}: rows carry arrays of scalar types only")
    layout = rv.FIXED.get(element.root)
    return layout.size if layout else 8


def _null_bytes(count: int) -> int:
    return (count + 31) // 32 * 4


def _round_up(size: int) -> int:
    return (size + 7) // 8 * 8
