"""Reads RocksDB's MANIFEST, which lists the files of a store.

The MANIFEST is a log of edits; a file is live if an edit adds it and no later edit deletes it. Only
the edits of a plain store of puts and deletes are supported. Everything else raises
``UnreadableStore``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from sluice.errors import SluiceError
from sluice.formats.log.batch import crc32c

KEY_TRAILER = 8
"""Bytes after the user's key in RocksDB's internal keys: type and sequence, little endian."""

_PAGE = 32 * 1024
_HEAD = struct.Struct("<IHB")
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_BYTEWISE = b"leveldb.BytewiseComparator"
_MASK_DELTA = 0xA282EAD8

_COMPARATOR, _LAST_SEQUENCE, _COMPACT_CURSOR, _DELETED_FILE, _NEW_FILE = 1, 4, 5, 6, 103
_FAMILY, _FAMILY_ADDED, _FAMILY_DROPPED, _FAMILIES_MAX, _GROUP_LEFT = 200, 201, 202, 203, 300
_NUMBERS = (2, 3, 9, 10)  # of logs and of the next file
# The store's id, and the state of its own log. The older log fields, 8196 and 8197, have no length:
# a reader that skips them as if they had one would read their bytes as other edits.
_SKIPPED = (8193, 8199, 8200)

_ENDS, _OLDEST_BLOB, _TIMESTAMPS_KEPT, _NOT_TO_BE_SKIPPED = 1, 4, 16, 64
_TIMES_OF_KEYS = (10, 11)
_TIMES_KEPT = 8201


class UnreadableStore(SluiceError):
    """The store is damaged, or has something that is not supported."""


@dataclass(frozen=True, slots=True)
class LiveFile:
    """A live SST file of a store, with its first and last user key; ``size`` is in bytes."""

    number: int
    level: int
    size: int
    smallest: bytes
    largest: bytes
    last_sequence: int

    @property
    def name(self) -> str:
        return f"{self.number:06}.sst"


class Cursor:
    """Reads RocksDB's packed values one after the other.

    Every method raises UnreadableStore if the bytes end early.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def __bool__(self) -> bool:
        return self._at < len(self._data)

    def number(self) -> int:
        """An unsigned varint of at most 64 bits."""
        value = 0
        for shift in range(0, 70, 7):
            [byte] = self.take(1)
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
        else:
            raise UnreadableStore("a varint is longer than 64 bits")
        return value

    def take(self, size: int) -> bytes:
        """The next ``size`` bytes."""
        found = self._data[self._at : self._at + size]
        if len(found) != size:
            raise UnreadableStore("its bytes end early")
        self._at += size
        return found

    def sized(self) -> bytes:
        """Reads bytes preceded by their length."""
        return self.take(self.number())


def masked_crc(data: bytes | memoryview) -> int:
    """Returns RocksDB's stored checksum of bytes: their CRC-32C, rotated and shifted."""
    crc = crc32c(data)
    return (((crc >> 15) | (crc << 17)) + _MASK_DELTA) & 0xFFFFFFFF


def live_files(manifest: bytes) -> list[LiveFile]:
    """Returns the live files of the default column family.

    :raises UnreadableStore: the MANIFEST is damaged, or has unsupported edits.
    """
    edits = _Edits()
    for record in _records(manifest):
        edits.apply(Cursor(record))
    return edits.finish()


class _Edits:
    """The state of the default column family after the edits read so far."""

    def __init__(self) -> None:
        self._files: dict[tuple[int, int], LiveFile] = {}
        self._comparator = b""
        self._last_sequence = 0
        self._group_left = 0

    def finish(self) -> list[LiveFile]:
        if self._group_left:
            raise UnreadableStore("the last group of edits in the MANIFEST is incomplete")
        if self._comparator != _BYTEWISE:
            raise UnreadableStore(f"the comparator {self._comparator!r} is not supported")
        files = list(self._files.values())
        if any(file.last_sequence > self._last_sequence for file in files):
            raise UnreadableStore("a file is newer than the last sequence number of the MANIFEST")
        return files

    def apply(self, edit: Cursor) -> None:
        added: list[LiveFile] = []
        deleted: list[tuple[int, int]] = []
        family = left = 0
        comparator = None
        while edit:
            tag = edit.number()
            if tag == _FAMILY:
                family = edit.number()
            elif tag == _DELETED_FILE:
                deleted.append((edit.number(), edit.number()))
            elif tag == _NEW_FILE:
                added.append(_new_file(edit))
            elif tag == _COMPARATOR:
                comparator = edit.sized()
            elif tag == _LAST_SEQUENCE:
                self._last_sequence = edit.number()
            elif tag == _GROUP_LEFT:
                left = edit.number()
            else:
                _skip(tag, edit)
        self._group_left = left
        if family == 0:
            self._comparator = self._comparator if comparator is None else comparator
            for key in deleted:
                if self._files.pop(key, None) is None:
                    raise UnreadableStore(
                        f"the MANIFEST deletes file {key[1]}, which was never added"
                    )
            self._files |= {(file.level, file.number): file for file in added}


def _skip(tag: int, edit: Cursor) -> None:
    """Skips edits that do not concern files."""
    if tag in _NUMBERS or tag == _FAMILIES_MAX:
        edit.number()
    elif tag == _COMPACT_CURSOR:
        edit.number()
        edit.sized()
    elif tag in _SKIPPED or tag == _FAMILY_ADDED:
        edit.sized()
    elif tag == _TIMES_KEPT and edit.sized() == b"\1":
        pass
    elif tag != _FAMILY_DROPPED:
        raise UnreadableStore(f"the MANIFEST has an edit with unsupported tag {tag}")


def _new_file(edit: Cursor) -> LiveFile:
    level, number, size = edit.number(), edit.number(), edit.number()
    smallest, largest = edit.sized(), edit.sized()
    _, last_sequence = edit.number(), edit.number()
    if min(len(smallest), len(largest)) < KEY_TRAILER:
        raise UnreadableStore(f"file {number} has a key that is not valid")
    while (tag := edit.number()) != _ENDS:
        field = edit.sized()
        blob = tag == _OLDEST_BLOB and Cursor(field).number() != 0
        times = tag in _TIMES_OF_KEYS and field != b""
        times = times or (tag == _TIMESTAMPS_KEPT and field == b"\0")
        if blob or times or tag >= _NOT_TO_BE_SKIPPED:
            raise UnreadableStore(f"file {number} has a field with unsupported tag {tag}")
    return LiveFile(
        number, level, size, smallest[:-KEY_TRAILER], largest[:-KEY_TRAILER], last_sequence
    )


def _records(log: bytes) -> Iterator[bytes]:
    """Yields the complete records of a log, which are split at page ends."""
    at = 0
    parts: list[bytes] = []
    while at < len(log):
        left = _PAGE - at % _PAGE
        if left < _HEAD.size:
            at += left
            continue
        if len(log) - at < _HEAD.size:
            raise UnreadableStore("the MANIFEST is truncated")
        crc, size, kind = _HEAD.unpack_from(log, at)
        body = log[at + _HEAD.size : at + _HEAD.size + size]
        if (
            len(body) != size
            or size > left - _HEAD.size
            or masked_crc(log[at + 6 : at + 7] + body) != crc
        ):
            raise UnreadableStore("the MANIFEST is damaged")
        at += _HEAD.size + size
        if kind not in (_FULL, _FIRST, _MIDDLE, _LAST) or (kind in (_FULL, _FIRST)) == bool(parts):
            raise UnreadableStore(f"the MANIFEST has a misplaced record of kind {kind}")
        parts.append(body)
        if kind in (_FULL, _LAST):
            yield b"".join(parts)
            parts = []
    if parts:
        raise UnreadableStore("the last record of the MANIFEST is incomplete")
