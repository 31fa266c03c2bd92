"""LZ4 frames with independent blocks, which Fluss's Java reader requires.

pyarrow writes frames with linked blocks. This module puts pyarrow's blocks into its own frame.
"""

from __future__ import annotations

import struct

import numpy as np
import pyarrow as pa

from sluice.formats.log.arrow_message import read_layout, write_head

ARROW_LZ4_FRAME = 0
"""Arrow's number of this compression."""

_BLOCK_BYTES = 4 << 20
# magic; version 1 with independent blocks and no checksums; blocks of 4 MiB; checksum of these two
_HEAD = bytes.fromhex("04224d18 60 70 73")
_END = bytes(4)
_STORED = 1 << 31
_SIZE = struct.Struct("<I")
_LENGTH = struct.Struct("<q")
_STORED_RAW = _LENGTH.pack(-1)
_ALIGNMENT = 8


def compress(data: memoryview | bytes) -> bytes:
    """Compresses data into one frame; blocks that do not shrink are stored uncompressed."""
    codec = pa.Codec("lz4_raw")
    parts = [_HEAD]
    view = memoryview(data)
    for start in range(0, len(view), _BLOCK_BYTES):
        block = view[start : start + _BLOCK_BYTES]
        shrunk = codec.compress(block)
        if len(shrunk) < len(block):
            parts += (_SIZE.pack(len(shrunk)), shrunk)
        else:
            parts += (_SIZE.pack(len(block) | _STORED), block.tobytes())
    parts.append(_END)
    return b"".join(parts)


def compress_message(message: memoryview) -> list[bytes | pa.Buffer]:
    """Compresses a record-batch message and returns its parts."""
    layout = read_layout(message)
    body = message[layout.body_start :]
    buffers = np.zeros_like(layout.buffers)
    parts: list[bytes | pa.Buffer] = []
    position = 0
    for index, (offset, length) in enumerate(layout.buffers.tolist()):
        buffers[index, 0] = position
        if not length:
            continue
        content = body[offset : offset + length]
        frame = compress(content)
        if len(frame) < length:
            stored = _LENGTH.pack(length) + frame
        else:
            stored = _STORED_RAW + content.tobytes()
        buffers[index, 1] = len(stored)
        padding = -len(stored) % _ALIGNMENT
        parts += (stored, bytes(padding))
        position += len(stored) + padding
    head = write_head(layout.version, layout.rows, ARROW_LZ4_FRAME, layout.nodes, buffers, position)
    return [head, *parts]
