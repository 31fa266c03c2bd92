"""The index file of a segment: what a sync or the end of the segment recorded of its batches.

Records follow each other: a header, then one entry per batch that the record adds. A record is
written after the log file was synced, so all that it names is on disk. It has its own checksum. So
an index says what the log file must contain, where no checksum of a batch does: base offset,
length and time of each batch, and the offset at which the synced log ends.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sluice.formats.log.batch import crc32c
from sluice.server.tablet.buckets.files import LogFiles, unreadable

_MAGIC = b"SLIX\x02"
_RECORD = struct.Struct("<IIqqI")
"""Number of entries, 1 if the segment ends here, bytes and next offset of the log, checksum."""
_CHECKED = struct.Struct("<IIqq")
_ENTRY = np.dtype(
    [
        ("base_offset", "<i8"),
        ("position", "<i8"),
        ("timestamp_ms", "<i8"),
        ("writer_id", "<i8"),
        ("batch_sequence", "<i4"),
        ("unused", "<i4"),
    ]
)


class Entry(NamedTuple):
    """One batch: its position, and the fields that a restart needs."""

    base_offset: int
    position: int
    timestamp_ms: int
    writer_id: int
    batch_sequence: int


class Columns:
    """The entries of many batches, 36 bytes each, by field."""

    def __init__(self) -> None:
        self.base_offset = array("q")
        self.position = array("q")
        self.timestamp_ms = array("q")
        self.writer_id = array("q")
        self.batch_sequence = array("i")

    def __len__(self) -> int:
        return len(self.base_offset)

    def append(self, entry: Entry) -> None:
        self.base_offset.append(entry.base_offset)
        self.position.append(entry.position)
        self.timestamp_ms.append(entry.timestamp_ms)
        self.writer_id.append(entry.writer_id)
        self.batch_sequence.append(entry.batch_sequence)

    def entries(self) -> Iterator[Entry]:
        fields = (getattr(self, name) for name in Entry._fields)
        return map(Entry, *fields)

    def extend(self, entries: npt.NDArray[np.void]) -> None:
        for name in Entry._fields:
            column = getattr(self, name)
            column.frombytes(entries[name].astype(column.typecode).tobytes())

    def packed(self, start: int, stop: int) -> bytes:
        packed = np.zeros(stop - start, _ENTRY)
        for name in Entry._fields:
            packed[name] = getattr(self, name)[start:stop]
        return packed.tobytes()


@dataclass(slots=True)
class IndexContent:
    """What the valid records of an index file say."""

    columns: Columns = field(default_factory=Columns)
    size: int = 0
    """Bytes of the log file that the entries describe."""
    next_offset: int = 0
    """The offset at which the synced log ends."""
    is_closed: bool = False
    """The segment had ended, or the server had stopped."""
    length: int = 0
    """Bytes of the valid records; 0 if no record can be added, only a new file written."""
    problem: str = ""
    """What follows the valid records, if it is not the end of the file."""


def encode_record(
    columns: Columns, start: int, stop: int, size: int, next_offset: int, *, is_closed: bool
) -> Sequence[bytes]:
    """The bytes that add the entries from ``start`` to ``stop`` to the file."""
    body = columns.packed(start, stop)
    head = (stop - start, int(is_closed), size, next_offset)
    crc = crc32c(_CHECKED.pack(*head) + body)
    return [b"" if start else _MAGIC, _RECORD.pack(*head, crc), body]


def read_index(path: Path, files: LogFiles) -> IndexContent:
    """Reads the records of an index file up to the first that is damaged.

    :raises OSError: the file exists but cannot be read.
    """
    try:
        content = files.read(path)
    except FileNotFoundError:
        return IndexContent()
    except OSError as error:
        if problem := unreadable(error):
            return IndexContent(problem=problem)
        raise
    if content[: len(_MAGIC)] != _MAGIC:
        return IndexContent(problem="it does not begin as an index of this version")
    found = IndexContent(length=len(_MAGIC))
    while found.length < len(content):
        record = _record_at(content, found.length)
        if record is None:
            found.problem = f"the record at byte {found.length} is damaged or incomplete"
            break
        count, closed, found.size, found.next_offset = record
        start = found.length + _RECORD.size
        found.columns.extend(np.frombuffer(content, _ENTRY, count, start))
        found.is_closed = bool(closed)
        found.length = start + count * _ENTRY.itemsize
    return found


def _record_at(content: bytes, position: int) -> tuple[int, int, int, int] | None:
    if len(content) - position < _RECORD.size:
        return None
    *head, crc = _RECORD.unpack_from(content, position)
    start = position + _RECORD.size
    stop = start + head[0] * _ENTRY.itemsize
    if stop > len(content) or crc32c(_CHECKED.pack(*head) + content[start:stop]) != crc:
        return None
    return head[0], head[1], head[2], head[3]
