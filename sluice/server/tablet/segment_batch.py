"""What the bytes of one log batch say, some of which may be damaged.

No checksum covers its base offset, length and time.
"""

from __future__ import annotations

import struct

from sluice.errors import CorruptRecord
from sluice.formats.log_batch import (
    LENGTH_OVERHEAD,
    V0_HEADER_SIZE,
    LogBatchHeader,
    check_crc,
    read_header,
    set_offset_and_timestamp,
)

START = struct.Struct("<qi")
"""Base offset and length, with which a batch begins."""
I64 = struct.Struct("<q")
LENGTH = struct.Struct("<i")
LENGTH_AT, TIMESTAMP_AT = 8, 13
HEADER_MAX = 64
"""More bytes than the header of any version."""


def checked(
    content: memoryview, base_offset: int, timestamp_ms: int
) -> tuple[LogBatchHeader | None, str]:
    """The header of a batch in exactly these bytes, if all that its checksum covers is right.

    The header gets the given offset and time, and the length of the bytes.
    """
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


def counts(content: memoryview, *, is_any_version: bool = False) -> tuple[int, ...]:
    """How many offsets a batch has, by fields that may be damaged; none without a header.

    :param is_any_version: the version may be damaged too, which says where the fields are.
    """
    if len(content) < V0_HEADER_SIZE + 4:
        return ()
    places = (28, 32) if is_any_version else (32,) if content[12] == 2 else (28,)
    fields = [LENGTH.unpack_from(content, at + more)[0] for at in places for more in (0, 16)]
    deltas, counts = fields[::2], fields[1::2]  # only version 2 has an epoch before
    return (*(delta + 1 for delta in deltas), *(count or 1 for count in counts))
