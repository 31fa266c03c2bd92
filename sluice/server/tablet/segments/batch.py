"""What the bytes of one log batch say, some of which may be damaged.

No checksum covers its base offset, length and time.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import numpy as np

from sluice.errors import CorruptRecord
from sluice.formats.log.arrow_message import declared_size
from sluice.formats.log.batch import (
    LENGTH_OVERHEAD,
    MAX_CHANGE_TYPE,
    MAX_SIZE,
    V0_HEADER_SIZE,
    LogBatchHeader,
    check_crc,
    read_header,
    set_offset_and_timestamp,
)

START = struct.Struct("<qi")
"""Base offset and length, with which a batch begins."""
_UNCHECKED = struct.Struct("<qibq")
I64 = struct.Struct("<q")
LENGTH = struct.Struct("<i")
LENGTH_AT, TIMESTAMP_AT = 8, 13
HEADER_MAX = 64
"""More bytes than the header of any version."""
_PREFIX = struct.Struct("<II")  # of an Arrow message: FFFFFFFF, bytes of its metadata
_MARKER_BITS = 32
_FEW_TYPES = 1 << 10
_TYPES_MAX = 1 << 20  # change types behind which an Arrow message is looked for


def checked(
    content: memoryview, base_offset: int, timestamp_ms: int
) -> tuple[LogBatchHeader | None, str]:
    """The header of a batch in exactly these bytes, if all that its checksum covers is right.

    The header gets the given offset and time, and the length of the bytes.
    """
    try:
        header = read_header(content)
        right = (base_offset, len(content), timestamp_ms)
        if (header.base_offset, header.size, header.timestamp_ms) == right:
            check_crc(content, header)
            return header, ""
    except CorruptRecord:
        pass  # the other values may be valid
    head = bytearray(content[:HEADER_MAX])
    if len(head) < V0_HEADER_SIZE:
        return None, f"{len(head)} bytes of a batch header"
    set_offset_and_timestamp(head, base_offset, timestamp_ms)
    LENGTH.pack_into(head, LENGTH_AT, len(content) - LENGTH_OVERHEAD)
    try:
        header = read_header(head)
        check_crc(content, header)
    except CorruptRecord as error:
        return None, str(error)
    return header, ""


def is_as_written(content: memoryview, header: LogBatchHeader) -> bool:
    """Whether nothing that no checksum covers differs from what the header should have."""
    stored = _UNCHECKED.unpack_from(content)
    length = header.size - LENGTH_OVERHEAD
    return stored == (header.base_offset, length, header.magic, header.timestamp_ms)


def differences(content: memoryview, header: LogBatchHeader) -> list[str]:
    """The fields that no checksum covers and that differ from what the header should have."""
    offset, length = START.unpack_from(content)
    time_ms = I64.unpack_from(content, TIMESTAMP_AT)[0]
    return [
        f"its {name} is {stored} instead of {right}"
        for name, stored, right in (
            ("base offset", offset, header.base_offset),
            ("length", length, header.size - LENGTH_OVERHEAD),
            ("time", time_ms, header.timestamp_ms),
        )
        if stored != right
    ]


class Claims(NamedTuple):
    """What a batch that may be damaged says of itself."""

    sizes: tuple[int, ...]
    """Its bytes, first by its records and then by its header."""
    lost: tuple[int, ...]
    """How many offsets it has."""
    certain: int | None
    """The same, if two fields agree on it."""


def claims(content: memoryview) -> Claims:
    """Sizes and counts in the bytes that begin with a damaged batch, whose base offset is known."""
    claimed = counts(content, is_any_version=True)
    if not claimed:
        return Claims((), (), None)
    length = START.unpack_from(content)[1] + LENGTH_OVERHEAD
    header = _repaired(content, max(length, min(len(content), MAX_SIZE)))
    count = None
    if header is not None and (header.record_count or length == header.records_at):
        count = header.next_offset
    for start in (_message_at(header), _message_behind_types(content)):
        if start is not None and (message := _message(content, start)):
            rows, size = message
            return Claims((start + size, length), (rows, *claimed), count or rows)
    if header is not None and not header.record_count:
        return Claims((header.records_at, length), claimed, count)
    return Claims((length,), claimed, count)


def is_cut(content: memoryview, header: LogBatchHeader, rows_max: int) -> tuple[bool | None, int]:
    """Whether a batch has more bytes than these, which its header says; None: it cannot be known.

    Its records say it too, except for the rest of rows, and if even their beginning is missing.

    :param rows_max: the rows that may be looked at: it is complete, as far as they tell.
    Returns also how many were.
    """
    if not header.record_count:
        return header.size == header.records_at, 0
    start = _message_at(header) or 0
    if len(content) - start < _PREFIX.size:
        return None, 0
    marker, metadata_size = _PREFIX.unpack_from(content, start)
    if marker.bit_count() < _MARKER_BITS - 1:
        is_at_end, rows = _ends_in_rows(content, header, rows_max)
        return None if is_at_end else False, rows
    if metadata_size > len(content) - start - _PREFIX.size:
        return None, 0
    message = _message(content, start)
    return message is not None and start + message[1] == header.size, 0


def _message_at(header: LogBatchHeader | None) -> int | None:
    """Where the Arrow message begins by the header."""
    if header is None or not header.record_count:
        return None
    return header.records_at + (0 if header.append_only else header.record_count)


def _message_behind_types(content: memoryview) -> int | None:
    """Where the Arrow message may begin by the bytes: behind what may be change types."""
    for most in (_FEW_TYPES, _TYPES_MAX):
        behind = np.frombuffer(content[V0_HEADER_SIZE:][:most], np.uint8)
        others = np.flatnonzero(behind > MAX_CHANGE_TYPE)
        if len(others):
            return V0_HEADER_SIZE + int(others[0])
    return None


def _message(content: memoryview, start: int) -> tuple[int, int] | None:
    """Rows and bytes of the Arrow message there; None without one."""
    try:
        rows, size = declared_size(content[start:])
    except CorruptRecord:
        return None
    return (rows, size) if rows > 0 else None


def _ends_in_rows(content: memoryview, header: LogBatchHeader, rows_max: int) -> tuple[bool, int]:
    """Whether records that are single rows go beyond these bytes, and how many were looked at."""
    end = header.records_at
    for number in range(min(header.record_count, rows_max)):
        if len(content) - end < LENGTH.size:
            return True, number
        size = LENGTH.unpack_from(content, end)[0]
        if size <= 0:
            return False, number  # damaged
        end += LENGTH.size + size
    return end > len(content), min(header.record_count, rows_max)


def _repaired(content: memoryview, size: int) -> LogBatchHeader | None:
    """The header with base offset 0 and another size; None if it is not valid."""
    head = bytearray(content[:HEADER_MAX])
    set_offset_and_timestamp(head, 0, 0)
    LENGTH.pack_into(head, LENGTH_AT, size - LENGTH_OVERHEAD)
    try:
        return read_header(head)
    except CorruptRecord:
        return None


def counts(content: memoryview, *, is_any_version: bool = False) -> tuple[int, ...]:
    """How many offsets a batch has, by fields that may be damaged; none without a header.

    :param is_any_version: the version may be damaged too, which says where the fields are.
    """
    if len(content) < V0_HEADER_SIZE:
        return ()
    places = (28, 32) if is_any_version else (32,) if content[12] == 2 else (28,)
    places = places if len(content) >= HEADER_MAX else (28,)  # version 2 has more bytes
    fields = [LENGTH.unpack_from(content, at + more)[0] for at in places for more in (0, 16)]
    deltas, counts = fields[::2], fields[1::2]  # only version 2 has an epoch before
    return (*(delta + 1 for delta in deltas), *(count or 1 for count in counts))
