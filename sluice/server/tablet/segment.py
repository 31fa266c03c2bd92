"""One segment of a log: a file of batches, and the positions of all of them.

``<base offset, 20 digits>.log`` contains the batches one after the other. ``.index`` contains one
entry per batch. It is written when the segment is closed: by a roll, or when the server stops
cleanly. When the server starts, it reads a segment without a valid index completely and checks its
CRCs.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple

from sluice.errors import CorruptRecord
from sluice.formats.log_batch import V0_HEADER_SIZE, LogBatchHeader, check_crc, crc32c, read_header
from sluice.server.data_dir import write_durably

_MAGIC = b"SLIX\x01"
_ENTRY = struct.Struct("<qqqqi")
_FOOTER = struct.Struct("<qqqI")
_START = struct.Struct("<qi")


class Entry(NamedTuple):
    """One batch: its position, and the fields that a restart needs."""

    base_offset: int
    position: int
    timestamp_ms: int
    writer_id: int
    batch_sequence: int


@dataclass(frozen=True, slots=True)
class Slice:
    """Complete batches in a file: ``length`` bytes from ``position``."""

    path: Path
    position: int
    length: int


class Segment:
    """A segment and its dense index in memory: 24 bytes per batch, 36 in the last segment.

    The lock of its log guards it.
    """

    def __init__(self, folder: Path, base_offset: int) -> None:
        self.path = folder / f"{base_offset:020d}.log"
        self.index_path = folder / f"{base_offset:020d}.index"
        self.base_offset = base_offset
        self.next_offset = base_offset
        self.size = 0
        self.last_timestamp_ms = -1
        self.damaged_offsets: list[int] = []
        """Base offsets of damaged batches that a scan has found before valid ones."""
        self._offsets = array("q")
        self._positions = array("q")
        self._timestamps = array("q")
        self._writers = array("q")
        self._sequences = array("i")

    def add(self, entry: Entry, next_offset: int, size: int) -> None:
        """Adds a batch that was written at the end."""
        self._offsets.append(entry.base_offset)
        self._positions.append(entry.position)
        self._timestamps.append(entry.timestamp_ms)
        self._writers.append(entry.writer_id)
        self._sequences.append(entry.batch_sequence)
        self.next_offset = next_offset
        self.size += size
        self.last_timestamp_ms = max(self.last_timestamp_ms, entry.timestamp_ms)

    def release(self) -> None:
        """Frees the fields that only a restart needs; the segment is closed for writing."""
        self._writers, self._sequences = array("q"), array("i")

    def entries(self) -> Iterable[Entry]:
        return map(
            Entry,
            self._offsets,
            self._positions,
            self._timestamps,
            self._writers,
            self._sequences,
        )

    def slice(self, offset: int, limit: int, *, min_one_batch: bool) -> Slice | None:
        """Returns complete batches from the one with ``offset``, at most ``limit`` bytes.

        With ``min_one_batch`` the first batch may exceed the limit. None if no batch fits.
        """
        first = bisect_right(self._offsets, offset) - 1
        start = self._positions[first]
        end = start + limit
        if end >= self.size:
            return Slice(self.path, start, self.size - start)
        last = bisect_right(self._positions, end) - 1
        if last > first:
            return Slice(self.path, start, self._positions[last] - start)
        if not min_one_batch:
            return None
        following = first + 1
        stop = self._positions[following] if following < len(self._positions) else self.size
        return Slice(self.path, start, stop - start)

    def end_of(self, base_offset: int) -> int:
        """Returns the offset after the batch that starts at ``base_offset``."""
        following = bisect_right(self._offsets, base_offset)
        return self._offsets[following] if following < len(self._offsets) else self.next_offset

    def offset_at(self, timestamp_ms: int) -> int | None:
        """Returns the offset of the first batch that is not older; None if all are older."""
        at = bisect_left(self._timestamps, timestamp_ms)
        return self._offsets[at] if at < len(self._offsets) else None

    def timestamp_at(self, offset: int) -> int:
        """Returns the write time of the batch with ``offset``, in epoch milliseconds."""
        return self._timestamps[bisect_right(self._offsets, offset) - 1]

    # -- the index file

    def write_index(self) -> None:
        """Closes the segment on disk.

        :raises OSError: it cannot be written; the next start reads the complete segment instead.
        """
        body = b"".join(_ENTRY.pack(*entry) for entry in self.entries())
        crc = crc32c(body)
        footer = _FOOTER.pack(self.size, self.next_offset, len(self._offsets), crc)
        write_durably(self.index_path, _MAGIC + body + footer)

    def load_index(self) -> bool:
        """Loads the batches from the index file; False if it is missing, damaged or outdated."""
        try:
            content = self.index_path.read_bytes()
            size = self.path.stat().st_size
        except FileNotFoundError:
            return False
        body = content[len(_MAGIC) : -_FOOTER.size]
        if content[: len(_MAGIC)] != _MAGIC or len(content) < len(_MAGIC) + _FOOTER.size:
            return False
        log_size, next_offset, count, crc = _FOOTER.unpack(content[-_FOOTER.size :])
        if log_size != size or len(body) != count * _ENTRY.size:
            return False
        if crc32c(body) != crc:
            return False
        for values in _ENTRY.iter_unpack(body):
            self.add(Entry(*values), next_offset, 0)
        self.size, self.next_offset = size, next_offset
        return True

    def scan(self) -> str | None:
        """Loads the batches of the file; returns the problem after them, or None.

        A damaged batch is loaded if a valid one follows: a crash damages only the end.
        """
        with self.path.open("rb") as file:
            while True:
                head = file.read(V0_HEADER_SIZE)
                if not head:
                    return None
                if len(head) < V0_HEADER_SIZE:
                    return f"{len(head)} bytes of a batch header"
                offset, length = _START.unpack_from(head)
                if offset != self.next_offset or length < V0_HEADER_SIZE - 12:
                    return f"a batch of offset {offset} and length {length}"
                batch = head + file.read(length + 12 - len(head))
                if len(batch) < length + 12:
                    return f"{len(batch)} of the {length + 12} bytes of a batch"
                try:
                    header = read_header(batch)
                    check_crc(memoryview(batch), header)
                except CorruptRecord as error:
                    if not self._add_damaged(file):
                        return str(error)
                    file.seek(self.size)
                    continue
                entry = Entry(
                    offset, self.size, header.timestamp_ms, header.writer_id, header.batch_sequence
                )
                self.add(entry, header.next_offset, len(batch))

    def _add_damaged(self, file: BinaryIO) -> bool:
        """Adds the damaged batches from ``size`` on, if a valid batch follows them.

        Only their lengths and base offsets are read, which no checksum covers.
        """
        found: list[tuple[int, int]] = []  # base offset and position
        position = self.size
        while True:
            file.seek(position)
            head = file.read(V0_HEADER_SIZE)
            if len(head) < V0_HEADER_SIZE:
                return False
            offset, length = _START.unpack_from(head)
            if length < V0_HEADER_SIZE - 12 or (found and offset <= found[-1][0]):
                return False
            batch = head + file.read(length + 12 - len(head))
            if len(batch) < length + 12:
                return False
            if (following := _valid(batch)) is not None:
                break
            found.append((offset, position))
            position += len(batch)
        ends = [*found[1:], (offset, position)]
        for (base, start), (next_offset, end) in zip(found, ends, strict=True):
            # Its writer and its time may be damaged too.
            entry = Entry(base, start, following.timestamp_ms, -1, -1)
            self.add(entry, next_offset, end - start)
            self.damaged_offsets.append(base)
        return True


def _valid(batch: bytes) -> LogBatchHeader | None:
    try:
        header = read_header(batch)
        check_crc(memoryview(batch), header)
    except CorruptRecord:
        return None
    return header
