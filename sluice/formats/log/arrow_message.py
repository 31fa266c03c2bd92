"""Arrow IPC record-batch messages without pyarrow (Arrow's Message.fbs).

pyarrow allocates whatever length a compressed buffer claims. Bytes from a network must not decide
that, so this module reads the message's own tables and checks every length against a limit. It also
writes these tables, for a message with only some of the columns of another.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np

from sluice.errors import CorruptRecord

_CONTINUATION = 0xFFFFFFFF
_PREFIX = struct.Struct("<II")
_U16 = struct.Struct("<H")
_I32 = struct.Struct("<i")
_U32 = struct.Struct("<I")
_I64 = struct.Struct("<q")
_RECORD_BATCH = 3
_STORED_RAW = -1


@dataclass(frozen=True, slots=True)
class MessageInfo:
    """Row count and sizes that a record-batch message declares; lengths in bytes."""

    rows: int
    body_start: int
    compressed: bool
    uncompressed_length: int


@dataclass(frozen=True, slots=True)
class Layout:
    """Positions of a message's parts, each checked to be within the message."""

    version: int
    rows: int
    codec: int | None
    """Arrow's number of the compression codec; None if uncompressed."""
    nodes: np.ndarray
    """(length, null count) of each field, children after their parent."""
    buffers: np.ndarray
    """(offset, length) of each buffer in the body."""
    body_start: int
    body_length: int


def inspect_message(message: memoryview, max_uncompressed: int) -> MessageInfo:
    """Reads the message's metadata; checks that its buffers are within it and within the limit.

    :raises CorruptRecord: it is not a record-batch message, or a length in it is not valid.
    """
    try:
        return _inspect(message, max_uncompressed)
    except (struct.error, IndexError, ValueError, OverflowError) as error:
        raise CorruptRecord(
            f"the Arrow message of {len(message)} bytes is damaged: {error}"
        ) from error


def read_layout(message: memoryview) -> Layout:
    """Reads the positions of a message's parts.

    :raises CorruptRecord: it is not a record-batch message, or a part is outside of it.
    """
    try:
        return _layout(message)
    except (struct.error, IndexError, ValueError, OverflowError) as error:
        raise CorruptRecord(
            f"the Arrow message of {len(message)} bytes is damaged: {error}"
        ) from error


def _inspect(message: memoryview, max_uncompressed: int) -> MessageInfo:
    layout = _layout(message)
    total = layout.body_length
    compressed = layout.codec is not None
    if compressed:
        offsets, lengths = layout.buffers[:, 0], layout.buffers[:, 1]
        total = _uncompressed_length(message[layout.body_start :], offsets, lengths)
    if total > max_uncompressed:
        raise ValueError(f"it has {total} bytes uncompressed, allowed are {max_uncompressed}")
    return MessageInfo(layout.rows, layout.body_start, compressed, total)


def _layout(message: memoryview) -> Layout:
    continuation, metadata_length = _PREFIX.unpack_from(message)
    if continuation != _CONTINUATION:
        raise ValueError(f"it starts with {continuation:08X} instead of FFFFFFFF")
    body_start = _PREFIX.size + metadata_length
    if body_start > len(message):
        raise ValueError(f"metadata length {metadata_length} is not valid")
    metadata = message[_PREFIX.size : body_start]
    root = _U32.unpack_from(metadata)[0]
    # Message: 0 version, 1 type of header, 2 header, 3 length of the body
    header_type = _slot(metadata, root, 1)
    header = _slot(metadata, root, 2)
    body_slot = _slot(metadata, root, 3)
    if not header_type or metadata[header_type] != _RECORD_BATCH or not header:
        raise ValueError("it is not a record batch")
    body_length = _I64.unpack_from(metadata, body_slot)[0] if body_slot else 0
    if not 0 <= body_length <= len(message) - body_start:
        raise ValueError(f"body length {body_length} is not valid")
    batch = header + _U32.unpack_from(metadata, header)[0]
    # RecordBatch: 0 length, 1 nodes, 2 buffers, 3 compression
    length_slot = _slot(metadata, batch, 0)
    rows = _I64.unpack_from(metadata, length_slot)[0] if length_slot else 0
    buffers = _vector_of_pairs(metadata, _slot(metadata, batch, 2))
    nodes = _vector_of_pairs(metadata, _slot(metadata, batch, 1))
    _check_nodes(nodes)
    offsets, lengths = buffers[:, 0], buffers[:, 1]
    if len(buffers) and (
        int(buffers.min()) < 0
        or int(buffers.max()) > body_length
        # both are below 2^31 now, so the sum cannot wrap
        or int((offsets + lengths).max()) > body_length
    ):
        raise ValueError("a buffer reaches beyond its body")
    version_slot = _slot(metadata, root, 0)
    version = _U16.unpack_from(metadata, version_slot)[0] if version_slot else 0
    codec = _codec(metadata, _slot(metadata, batch, 3))
    return Layout(version, rows, codec, nodes, buffers, body_start, body_length)


def _codec(metadata: memoryview, slot: int) -> int | None:
    """BodyCompression: 0 codec, 1 method; a default is left out."""
    if not slot:
        return None
    codec_slot = _slot(metadata, slot + _U32.unpack_from(metadata, slot)[0], 0)
    return metadata[codec_slot] if codec_slot else 0


def write_head(
    version: int, rows: int, codec: int | None, nodes: np.ndarray, buffers: np.ndarray, body: int
) -> bytes:
    """Returns the prefix and metadata that precede the body of a record-batch message.

    The flatbuffer is laid out by hand: three vtables, three tables, two vectors, each at its
    alignment. ``body`` is the body's length in bytes.
    """
    nodes_at = 100
    buffers_at = 108 + nodes.size * 8
    compression = 0 if codec is None else 20
    head = struct.pack(
        "<I 6H 6H 4H 4x iIqhBx 4x iIqII iBBxx 4x",
        40,  # root: the Message, after the vtables of Message, RecordBatch and BodyCompression
        *(12, 20, 16, 18, 4, 8),
        *(12, 24, 8, 4, 16, compression),
        *(8, 8, 4, 5),
        *(40 - 4, 64 - 44, body, version, _RECORD_BATCH),
        *(64 - 16, nodes_at - 68, rows, buffers_at - 80, 88 - 84 if codec is not None else 0),
        *(88 - 28, codec or 0, 0),
    )
    metadata = b"".join(
        (
            head,
            _U32.pack(len(nodes)),
            nodes.astype("<i8").tobytes(),
            bytes(4),
            _U32.pack(len(buffers)),
            buffers.astype("<i8").tobytes(),
        )
    )
    return _PREFIX.pack(_CONTINUATION, len(metadata)) + metadata


def _slot(table: memoryview, position: int, field: int) -> int:
    """Position of a field of the flatbuffer table at ``position``; 0 if the table lacks it."""
    vtable = position - _I32.unpack_from(table, position)[0]
    if vtable < 0:
        raise ValueError("a table is outside the metadata")
    size = _U16.unpack_from(table, vtable)[0]
    entry = 4 + 2 * field
    if entry + 2 > size:
        return 0
    offset: int = _U16.unpack_from(table, vtable + entry)[0]
    return position + offset if offset else 0


def _vector_of_pairs(metadata: memoryview, slot: int) -> np.ndarray:
    """A vector of structs of two i64, shape (n, 2)."""
    if not slot:
        return np.empty((0, 2), np.int64)
    start = slot + _U32.unpack_from(metadata, slot)[0]
    count = _U32.unpack_from(metadata, start)[0]
    if count > len(metadata) // 16:
        raise ValueError(f"{count} entries do not fit into {len(metadata)} bytes of metadata")
    return np.frombuffer(metadata, "<i8", 2 * count, start + 4).reshape(-1, 2)


def _check_nodes(nodes: np.ndarray) -> None:
    """Field nodes are (length, null count)."""
    if len(nodes) and (int(nodes.min()) < 0 or bool((nodes[:, 1] > nodes[:, 0]).any())):
        raise ValueError("a column's null count is negative or above its row count")


def _uncompressed_length(body: memoryview, offsets: np.ndarray, lengths: np.ndarray) -> int:
    total = 0
    for offset, length in zip(offsets.tolist(), lengths.tolist(), strict=True):
        if length == 0:
            continue
        claimed = _I64.unpack_from(body[offset : offset + length])[0]
        if claimed < _STORED_RAW:
            raise ValueError(f"uncompressed buffer length {claimed} is not valid")
        total += length if claimed == _STORED_RAW else claimed
    return total
