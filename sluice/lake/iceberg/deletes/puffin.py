"""Iceberg's Puffin files: blobs one after the other, then a footer that describes them.

This module makes and reads bytes. It opens no files. What is in a blob is the caller's affair.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sluice.errors import LakeFileUnreadable

TAIL_BYTES = 12
"""A file ends with the payload's size, flags and magic: enough to tell the footer's size."""

_MAGIC = b"PFA1"
_TAIL = struct.Struct("<i4s4s")
_NO_FLAGS = bytes(4)
_NOT_KNOWN = -1
"""Snapshot id and sequence number of blobs that belong to the snapshot that adds their file."""


@dataclass(frozen=True, slots=True)
class NewBlob:
    """A blob to write, uncompressed."""

    type: str
    fields: tuple[int, ...]
    """Ids of the columns that the blob is about."""
    content: bytes
    properties: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Blob:
    """What a footer says of a blob."""

    type: str
    fields: tuple[int, ...]
    offset: int
    """Its first byte, counted from the start of the file."""
    size_bytes: int
    properties: Mapping[str, str]
    snapshot_id: int = _NOT_KNOWN
    sequence_number: int = _NOT_KNOWN
    codec: str | None = None
    """How the blob is compressed; None: not at all."""


@dataclass(frozen=True, slots=True)
class Footer:
    """A file's blobs in the footer's order, and properties of the file such as ``created-by``."""

    blobs: tuple[Blob, ...]
    properties: Mapping[str, str]


def write_puffin(blobs: Sequence[NewBlob], created_by: str) -> tuple[bytes, tuple[Blob, ...]]:
    """The bytes of a Puffin file, and where its blobs are, in the given order.

    :param created_by: program and version, as Iceberg recommends: ``Sluice 0.1.0``.
    """
    parts, at, placed = [_MAGIC], len(_MAGIC), []
    for blob in blobs:
        placed.append(Blob(blob.type, blob.fields, at, len(blob.content), blob.properties))
        parts.append(blob.content)
        at += len(blob.content)
    described = {
        "blobs": [_described(blob) for blob in placed],
        "properties": {"created-by": created_by},
    }
    payload = json.dumps(described, ensure_ascii=False, separators=(",", ":")).encode()
    parts += [_MAGIC, payload, _TAIL.pack(len(payload), _NO_FLAGS, _MAGIC)]
    return b"".join(parts), tuple(placed)


def _described(blob: Blob) -> dict[str, Any]:
    return {
        "type": blob.type,
        "fields": list(blob.fields),
        "snapshot-id": blob.snapshot_id,
        "sequence-number": blob.sequence_number,
        "offset": blob.offset,
        "length": blob.size_bytes,
        "properties": dict(blob.properties),
    }


def footer_bytes(tail: bytes, file_size: int, where: str) -> int:
    """How many bytes at the end of a file are its footer.

    :param tail: the last bytes of the file, at least ``TAIL_BYTES`` if it has so many.
    :param where: names the file in errors.
    :raises LakeFileUnreadable: this is no Puffin file, or its footer is damaged or compressed.
    """
    if len(tail) < TAIL_BYTES:
        raise _unreadable(where, f"it has {file_size} bytes, too few for a footer")
    payload, flags, magic = _TAIL.unpack_from(tail, len(tail) - TAIL_BYTES)
    if magic != _MAGIC:
        raise _unreadable(where, f"it ends with 0x{magic.hex()} where 0x{_MAGIC.hex()} is expected")
    if flags != _NO_FLAGS:
        raise _unreadable(
            where, f"its flags are 0x{flags.hex()}: Sluice reads no compressed footer"
        )
    size = len(_MAGIC) + int(payload) + TAIL_BYTES
    if payload < 0 or size > file_size - len(_MAGIC):
        raise _unreadable(where, f"a footer of {payload} bytes is not within its {file_size} bytes")
    return size


def read_footer(tail: bytes, file_size: int, where: str) -> Footer:
    """Reads a footer.

    :param tail: the last bytes of the file, at least ``footer_bytes`` of them.
    :param file_size: the size of the complete file, in bytes.
    :param where: names the file in errors.
    :raises LakeFileUnreadable: this is no Puffin file, or its footer is damaged or compressed.
    :raises ValueError: ``tail`` does not have the complete footer.
    """
    size = footer_bytes(tail, file_size, where)
    if len(tail) < size:
        raise ValueError(f"the footer of {where} has {size} bytes, and {len(tail)} were read")
    start = len(tail) - size
    head = tail[start : start + len(_MAGIC)]
    if head != _MAGIC:
        raise _unreadable(where, f"its footer begins with 0x{head.hex()}, not 0x{_MAGIC.hex()}")
    payload = tail[start + len(_MAGIC) : len(tail) - TAIL_BYTES]
    try:
        stored = json.loads(payload)
        blobs = tuple(_blob(each, file_size - size) for each in _is(stored["blobs"], list))
        return Footer(blobs, _texts(stored.get("properties")))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        why = f"{type(error).__name__}: {error}"[:200]
        raise _unreadable(where, f"its footer is not as Puffin demands ({why})") from error


def _blob(stored: dict[str, Any], end: int) -> Blob:
    """:param end: where the footer begins. :raises ValueError, KeyError, TypeError: damaged."""
    offset, size = _is(stored["offset"], int), _is(stored["length"], int)
    if size < 0 or not len(_MAGIC) <= offset <= end - size:
        raise ValueError(f"a blob of {size} bytes at {offset} is not before the footer at {end}")
    codec = stored.get("compression-codec")
    return Blob(
        type=_is(stored["type"], str),
        fields=tuple(_is(each, int) for each in _is(stored["fields"], list)),
        offset=offset,
        size_bytes=size,
        properties=_texts(stored.get("properties")),
        snapshot_id=_is(stored["snapshot-id"], int),
        sequence_number=_is(stored["sequence-number"], int),
        codec=None if codec is None else _is(codec, str),
    )


def _is(value: Any, kind: type) -> Any:
    """:raises TypeError: the value is of another kind."""
    if type(value) is not kind:
        raise TypeError(f"{value!r} where {kind.__name__} is expected")
    return value


def _texts(stored: Any) -> dict[str, str]:
    if stored is None:
        return {}
    return {key: _is(value, str) for key, value in _is(stored, dict).items()}


def _unreadable(where: str, what: str) -> LakeFileUnreadable:
    return LakeFileUnreadable(
        f"{where} cannot be read as a Puffin file: {what}. Restore the file from a copy, "
        "or roll the lake table back to a snapshot that does not use it."
    )
