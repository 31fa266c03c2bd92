"""Single values of rows as bytes: varints and the fixed-width numbers (reference part 4.3).

Values are plain: DATE is days, TIME milliseconds of the day, both TIMESTAMPs nanoseconds since the
epoch, DECIMAL its unscaled number. All whole numbers, so that nothing is rounded on the way.
"""

from __future__ import annotations

import struct
from typing import Any

from sluice.errors import CorruptRecord
from sluice.model import DataType, TypeRoot

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
