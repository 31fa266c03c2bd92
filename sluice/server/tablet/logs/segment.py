"""One segment of a log: a file of batches, and the positions of all of them.

``<base offset, 20 digits>.log`` contains the batches one after the other. ``.index`` contains one
entry per batch: of those that are synced, and of all once the segment is closed, by a roll or when
the server stops cleanly. A start trusts the index, and reads only the batches behind those of the
index (``recovery``). The batches that it has not read are checked when they are read first.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from sluice.errors import CorruptRecord
from sluice.failpoints import failpoint
from sluice.formats.log.batch import LogBatchHeader, check_crc, read_header
from sluice.server.data_dir import sync_folder
from sluice.server.tablet.buckets.files import LogFiles
from sluice.server.tablet.logs.synced_batches import Columns, Entry, IndexContent, encode_record


@dataclass(frozen=True, slots=True)
class Damage:
    """A part of a log that nobody can read. The bucket refuses calls until it is given up."""

    start: int
    """Its first offset."""
    stop: int | None
    """The first offset after it, at which the log goes on; None: nobody knows it."""
    problem: str
    """File, bytes, and what is wrong with them."""


@dataclass(frozen=True, slots=True)
class Slice:
    """Complete batches in a file: ``length`` bytes from ``position``."""

    path: Path
    position: int
    length: int
    segment: Segment


class SyncedUpTo(NamedTuple):
    """How much of a segment is about to be synced: batches, bytes, and the next offset."""

    batches: int
    size: int
    next_offset: int


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
        self.is_closed = False
        """Whether the index file has all of its batches, and says that there are no more."""
        self._columns = Columns()
        self._unread = 0  # bytes whose batches a start has taken from the index
        self._unread_end = base_offset  # the offset after these batches
        self._checked = 0  # of them, from the first one on, those that were read since
        self._recorded = 0  # batches that the index file has
        self._index_length = 0  # bytes of the index file that are valid

    def add(self, entry: Entry, next_offset: int, size: int) -> None:
        """Adds a batch that was written at the end."""
        self._columns.append(entry)
        self.next_offset = next_offset
        self.size += size
        self.last_timestamp_ms = max(self.last_timestamp_ms, entry.timestamp_ms)
        self.is_closed = False

    def following(self, offset: int) -> Segment:
        """The segment after this one, which begins at the offset."""
        segment = Segment(self.path.parent, offset)
        segment.last_timestamp_ms = self.last_timestamp_ms
        return segment

    def continued_at(self, offset: int) -> Segment:
        """Begins a segment: its name keeps the offsets before it from reuse.

        :raises OSError: a file cannot be created.
        """
        following = self.following(offset)
        # One after the other: alone, the second would hide that offsets before it are lost.
        for segment in (self, following):
            segment.path.touch()
            sync_folder(segment.path.parent)
            failpoint("server.continue_at.after_name")
        return following

    def release(self) -> None:
        """Frees the fields that only a restart needs; the segment is closed for writing."""
        self._columns.writer_id, self._columns.batch_sequence = array("q"), array("i")

    def entries(self) -> Iterable[Entry]:
        return self._columns.entries()

    @property
    def is_recorded(self) -> bool:
        """Whether its index file has batches, and all of them are right."""
        return self._recorded > 0

    @property
    def is_empty(self) -> bool:
        """Whether it has no offset."""
        return not len(self._columns)

    def slice(
        self, offset: int, limit: int, *, min_one_batch: bool, before: int | None = None
    ) -> Slice | None:
        """Returns complete batches from the one with ``offset``, at most ``limit`` bytes.

        With ``min_one_batch`` the first batch may exceed the limit. None if no batch fits.

        :param before: batches from this offset on are left out.
        """
        offsets, positions = self._columns.base_offset, self._columns.position
        first = bisect_right(offsets, offset) - 1
        start = positions[first]
        stop = len(offsets) if before is None else bisect_left(offsets, before)
        if self._position(stop) > start + limit:
            stop = bisect_right(positions, start + limit, first, stop) - 1
            if stop == first:
                if not min_one_batch:
                    return None
                stop = first + 1
        return Slice(self.path, start, self._position(stop) - start, self)

    def _position(self, number: int) -> int:
        """Where the batch of that number begins, or the batches end."""
        positions = self._columns.position
        return positions[number] if number < len(positions) else self.size

    def must_check(self, piece: Slice) -> bool:
        """Whether nobody has read all batches of a slice since the start."""
        return piece.position < self._unread and piece.position + piece.length > self._checked

    def batches(self, piece: Slice) -> Iterator[tuple[int, int, int]]:
        """Number, position and size of the batches of a slice."""
        positions, end = self._columns.position, piece.position + piece.length
        number = bisect_left(positions, piece.position)
        while number < len(positions) and (start := positions[number]) < end:
            yield number, start, min(self._position(number + 1), end) - start
            number += 1

    def check(self, piece: Slice, content: memoryview) -> tuple[int, str] | None:
        """Compares the batches of a slice, of those that nobody has read, with the index.

        Needs no lock: appends change nothing of these batches. Returns the number of the first
        damaged one, and what is wrong with it.
        """
        for number, position, size in self.batches(piece):
            if position >= self._unread:
                break
            start = position - piece.position
            batch = content[start : start + size]
            try:
                header = read_header(batch)
                check_crc(batch, header)
                problem = self._difference(number, size, header)
            except CorruptRecord as error:
                problem = str(error)
            if problem:
                return number, problem
        if piece.position <= self._checked:
            self._checked = max(self._checked, piece.position + piece.length)
        return None

    def _difference(self, number: int, size: int, header: LogBatchHeader) -> str:
        """What no checksum covers, and is not as the index says."""
        stored = header.base_offset, header.size, header.timestamp_ms, header.next_offset
        offset = self._columns.base_offset[number]
        end = min(self.end_of(offset), self._unread_end)
        right = offset, size, self._columns.timestamp_ms[number], end
        if stored == right:
            return ""
        return f"offset, size, time and next offset of its header are {stored} instead of {right}"

    def damage(self, number: int, problem: str) -> Damage:
        """The damage of the batch of that number."""
        start, end = self._columns.position[number], self._position(number + 1)
        offset = self._columns.base_offset[number]
        text = f"{self.path}, bytes {start} to {end - 1}: {problem}"
        return Damage(offset, self.end_of(offset), text)

    def number_of(self, offset: int) -> int:
        """The number of the batch that has an offset."""
        return bisect_right(self._columns.base_offset, offset) - 1

    def first_beyond(self, size: int) -> int:
        """The number of the first batch that ends behind that many bytes."""
        return max(bisect_right(self._columns.position, size) - 1, 0)

    def end_of(self, base_offset: int) -> int:
        """Returns the offset after the batch that starts at ``base_offset``."""
        offsets = self._columns.base_offset
        following = bisect_right(offsets, base_offset)
        return offsets[following] if following < len(offsets) else self.next_offset

    def offset_at(self, timestamp_ms: int) -> int | None:
        """Returns the offset of the first batch that is not older; None if all are older."""
        at = bisect_left(self._columns.timestamp_ms, timestamp_ms)
        return self._columns.base_offset[at] if at < len(self._columns) else None

    def time_from(self, offset: int) -> int | None:
        """The write time in epoch milliseconds of the first batch from the one with ``offset`` on.

        None if no batch from there on has a time: damaged ones may have none.
        """
        first = max(bisect_right(self._columns.base_offset, offset) - 1, 0)
        times = self._columns.timestamp_ms
        known = bisect_right(times, 0, first)
        return times[known] if known < len(times) else None

    def delete(self) -> None:
        """Deletes its files, and what a crash left of its appends; may be repeated.

        :raises OSError: a file cannot be deleted.
        """
        # The index first: an index without its log would say that a log file is lost.
        self.index_path.unlink(missing_ok=True)
        for path in self.path.parent.glob(f"{self.path.stem}.*"):
            if path.suffix != ".aside":
                path.unlink(missing_ok=True)
        if self.path.parent.exists():
            sync_folder(self.path.parent)

    # -- the index file

    def load(self, index: IndexContent) -> None:
        """Takes the batches that its index file names, without reading them."""
        self._columns, self.is_closed = index.columns, index.is_closed
        self.size = self._unread = index.size
        self.next_offset = index.next_offset if len(index.columns) else self.base_offset
        self._unread_end = self.next_offset
        newest = max(index.columns.timestamp_ms, default=-1)
        self.last_timestamp_ms = max(self.last_timestamp_ms, newest)
        # What is added to the file follows the valid records.
        self._index_length = index.length
        self._recorded = len(index.columns)

    def synced_up_to(self) -> SyncedUpTo:
        """All that it contains now."""
        return SyncedUpTo(len(self._columns), self.size, self.next_offset)

    def record(
        self, files: LogFiles, synced: SyncedUpTo | None = None, *, close: bool = False
    ) -> bool:
        """Adds what was synced to the index file, without a sync; False if it has all of it.

        :param synced: by default all batches. :param close: no more batches follow.
        :raises OSError: it was not added; the next start reads more of the segment.
        """
        count, size, next_offset = synced or self.synced_up_to()
        if self.is_closed or (not close and count <= self._recorded):
            return False
        parts = encode_record(
            self._columns, self._recorded, count, size, next_offset, is_closed=close
        )
        if not self._recorded:
            self._index_length = 0
        if not self._recorded and self.index_path.exists():
            files.replace(self.index_path, parts)  # what it knows may be known nowhere else
        else:
            files.extend(self.index_path, self._index_length, parts)
        self._index_length += sum(map(len, parts))
        self._recorded, self.is_closed = count, close
        return True
