"""Iceberg's deletion vectors: the positions of one data file's deleted rows, as a Roaring bitmap.

Tables of format v3 keep them as blobs in Puffin files, one vector for a data file: blobs one after
the other, then a footer that describes them. A vector is read by the place that the table's
metadata names, without the footer. This module makes and reads bytes. It opens no files. Only code
that handles vectors imports it, because it loads pyroaring.
"""

from __future__ import annotations

import array
import json
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap64

from sluice import __version__
from sluice.errors import LakeFileUnreadable

POSITION_MAX = ((2**31 - 2) << 32) | 2**31
"""The largest position that Iceberg's own vectors can have."""

_PUFFIN = b"PFA1"
_PUFFIN_TAIL = struct.Struct("<i4x4s")
"""Size of the footer's text, flags of an uncompressed one, magic."""
_BLOB = {
    "type": "deletion-vector-v1",
    "fields": [2147483645],  # Iceberg's reserved id of the column _pos
    "snapshot-id": -1,  # as the sequence number: that of the snapshot that adds the file
    "sequence-number": -1,
}
_MAGIC = bytes.fromhex("d1d33964")
_U32 = struct.Struct(">I")
_BITMAP_BYTES_MIN = 8
"""Of a bitmap without positions: its number of keys."""
_BLOB_BYTES_MIN = _U32.size + len(_MAGIC) + _BITMAP_BYTES_MIN + _U32.size


@dataclass(frozen=True, slots=True)
class DeletionVector:
    """Positions in a data file, counted from 0. Immutable."""

    _bitmap: BitMap64 = field(repr=False)

    @classmethod
    def of(cls, positions: npt.NDArray[np.integer]) -> DeletionVector:
        """A vector of positions in any order, repeated ones included.

        :param positions: integers, shape (n,).
        :raises ValueError: another shape or type, or a position that Iceberg does not allow.
        """
        if positions.ndim != 1 or positions.dtype.kind not in "iu":
            raise ValueError(
                f"positions of shape {positions.shape} and type {positions.dtype}: "
                "pass integers of shape (n,)"
            )
        ordered = np.ascontiguousarray(positions, np.int64)
        if (ordered[1:] < ordered[:-1]).any():
            ordered = np.sort(ordered)  # the bitmap takes three times as long for unsorted ones
        if ordered.size and not (ordered[0] >= 0 and ordered[-1] <= POSITION_MAX):
            raise ValueError(
                f"positions from {ordered[0]} to {ordered[-1]}: Iceberg allows 0 to {POSITION_MAX}"
            )
        # pyroaring takes an array.array as a block of memory, and anything else item by item
        raw = array.array("Q")
        raw.frombytes(ordered.tobytes())
        return cls(BitMap64(raw))

    @classmethod
    def from_blob(
        cls, blob: bytes | memoryview, where: str, cardinality: int | None = None
    ) -> DeletionVector:
        """Reads a blob: length, magic, bitmap and checksum.

        A few bytes can stand for billions of positions. Compare ``cardinality`` and ``last`` with
        the data file's number of rows before you ask for ``positions``.

        :param where: names the blob in errors: the Puffin file and the offset in it.
        :param cardinality: the number of positions that the manifest states; None: not compared.
        :raises LakeFileUnreadable: the blob is cut, changed, or no deletion vector.
        """
        view = memoryview(blob)
        if len(view) < _BLOB_BYTES_MIN:
            raise _unreadable(where, f"{len(view)} bytes are too few")
        length, body = _U32.unpack_from(view)[0], view[_U32.size : -_U32.size]
        if length != len(body):
            raise _unreadable(where, f"it states {length} bytes and has {len(body)}")
        if body[: len(_MAGIC)] != _MAGIC:
            found = body[: len(_MAGIC)].hex()
            raise _unreadable(where, f"it begins with 0x{found}, not 0x{_MAGIC.hex()}")
        stated, found_crc = _U32.unpack(view[-_U32.size :])[0], zlib.crc32(body)
        if stated != found_crc:
            raise _unreadable(where, f"its CRC-32 is 0x{found_crc:08x}, it states 0x{stated:08x}")
        try:
            bitmap = BitMap64.deserialize(bytes(body[len(_MAGIC) :]))  # 1.0.1 takes only bytes
        except ValueError as error:
            raise _unreadable(where, f"its bitmap is invalid ({error})") from error
        vector = cls(bitmap)
        if (last := vector.last) is not None and last > POSITION_MAX:
            raise _unreadable(where, f"position {last} is above {POSITION_MAX}")
        if cardinality is not None and vector.cardinality != cardinality:
            count = vector.cardinality
            raise _unreadable(where, f"it has {count} positions, the manifest says {cardinality}")
        return vector

    @property
    def cardinality(self) -> int:
        """The number of positions."""
        return len(self._bitmap)

    @property
    def last(self) -> int | None:
        """The largest position; None without any."""
        return int(self._bitmap.max()) if self._bitmap else None

    def positions(self) -> npt.NDArray[np.int64]:
        """All positions in ascending order, shape (cardinality,), 8 bytes each."""
        return np.frombuffer(self._bitmap.to_array(), np.int64)

    def to_blob(self) -> bytes:
        """The vector as Iceberg stores it: length, magic, bitmap and checksum."""
        body = _MAGIC + self._bitmap.serialize()
        return b"".join((_U32.pack(len(body)), body, _U32.pack(zlib.crc32(body))))


@dataclass(frozen=True, slots=True)
class StoredVector:
    """Where a vector is in its Puffin file: what Iceberg's ``DeleteFile`` says of it."""

    data_file: str
    """Location of the data file, spelled as in the manifest."""
    offset: int
    """First byte of the blob: Iceberg's content offset."""
    size_bytes: int
    """Length of the complete blob: Iceberg's content size."""
    cardinality: int
    """The number of deleted rows: Iceberg's record count."""


@dataclass(frozen=True, slots=True)
class VectorFile:
    """A Puffin file of deletion vectors."""

    content: bytes
    vectors: tuple[StoredVector, ...]


def write_vectors(vectors: Mapping[str, DeletionVector]) -> VectorFile:
    """Makes a Puffin file of deletion vectors, in the mapping's order.

    :param vectors: by the location of the data file, spelled as in the manifest.
    :raises ValueError: there is no vector, or one of them has no position.
    """
    if not vectors:
        raise ValueError("there is no deletion vector to write: write no file")
    parts, at, described, stored = [_PUFFIN], len(_PUFFIN), [], []
    for data_file, vector in vectors.items():
        count, blob = vector.cardinality, vector.to_blob()
        if not count:
            raise ValueError(f"the deletion vector of {data_file} has no position: leave it out")
        properties = {"referenced-data-file": data_file, "cardinality": str(count)}
        described.append({**_BLOB, "offset": at, "length": len(blob), "properties": properties})
        stored.append(StoredVector(data_file, at, len(blob), count))
        parts.append(blob)
        at += len(blob)
    footer = {"blobs": described, "properties": {"created-by": f"Sluice {__version__}"}}
    text = json.dumps(footer, ensure_ascii=False, separators=(",", ":")).encode()
    parts += [_PUFFIN, text, _PUFFIN_TAIL.pack(len(text), _PUFFIN)]
    return VectorFile(b"".join(parts), tuple(stored))


def _unreadable(where: str, what: str) -> LakeFileUnreadable:
    return LakeFileUnreadable(
        f"{where} cannot be read as a deletion vector: {what}. Restore the file from a copy, "
        "or roll the lake table back to a snapshot that does not use it."
    )
