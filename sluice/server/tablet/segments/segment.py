"""One segment of a log: a file of batches, and the positions of all of them.

``<base offset, 20 digits>.log`` contains the batches one after the other. ``.index`` contains one
entry per batch: of those that are synced, and of all once the segment is closed, by a roll or when
the server stops cleanly. A start trusts the index of a closed segment, and reads any other segment
completely (``segment_scan``).
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from sluice.server.data_dir import sync_folder
from sluice.server.tablet.buckets.files import LogFiles
from sluice.server.tablet.segments.index import Columns, Entry, IndexContent, encode_record

_HEAD = np.dtype([("base_offset", "<i8"), ("length", "<i4"), ("magic", "u1"), ("time", "<i8")])
"""The fields at the start of a batch that the server sets, and that no checksum covers."""
_NOT_COUNTED = 12  # bytes of a batch that its length does not count


class DamagedRange(NamedTuple):
    """Offsets that were stored and that nobody can read any more."""

    start: int
    stop: int
    place: str
    """Where their bytes are, or were."""


def joined(ranges: Iterable[DamagedRange]) -> list[DamagedRange]:
    """The same offsets, each range as long as possible."""
    found: list[DamagedRange] = []
    for one in ranges:
        if found and found[-1].stop == one.start:
            places = dict.fromkeys((*found[-1].place.split(", "), *one.place.split(", ")))
            found[-1] = DamagedRange(found[-1].start, one.stop, ", ".join(places))
        else:
            found.append(one)
    return found


@dataclass(frozen=True, slots=True)
class Heads:
    """What the headers of a slice's batches must be: their positions, offsets and times."""

    positions: array[int]
    base_offsets: array[int]
    timestamps: array[int]
    known: set[int]
    """Base offsets of the damaged batches that were returned before."""

    def restore(self, content: memoryview) -> list[int]:
        """Corrects base offset, length and time of each batch in its own bytes.

        Returns the base offsets of the batches that were damaged there, each only once.
        """
        starts = np.frombuffer(self.positions, np.int64)
        starts = starts - starts[0]
        data = np.frombuffer(content, np.uint8)
        rows = starts[:, None] + np.arange(_HEAD.itemsize)
        stored = np.ascontiguousarray(data[rows]).view(_HEAD).reshape(-1)
        right = stored.copy()
        right["base_offset"] = self.base_offsets
        right["length"] = np.diff(starts, append=len(content)) - _NOT_COUNTED
        right["time"] = self.timestamps
        damaged = stored != right
        if damaged.any():
            bytes_of_rows = right.view(np.uint8).reshape(len(starts), -1)
            data[rows[damaged]] = bytes_of_rows[damaged]
        found = {self.base_offsets[at] for at in np.flatnonzero(damaged)} - self.known
        self.known.update(found)
        return sorted(found)


@dataclass(frozen=True, slots=True)
class Slice:
    """Complete batches in a file: ``length`` bytes from ``position``."""

    path: Path
    position: int
    length: int
    heads: Heads


class SyncedUpTo(NamedTuple):
    """How much of a segment is about to be synced: batches, bytes, and the next offset."""

    batches: int
    size: int
    next_offset: int


class Segment:
    """A segment and its dense index in memory: 24 bytes per batch, 41 in the last segment.

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
        self._restored: set[int] = set()
        self._recorded = 0  # batches that the index file has
        self._index_length = 0  # bytes of the index file that are valid

    def add(self, entry: Entry, next_offset: int, size: int) -> None:
        """Adds a batch that was written at the end."""
        self._columns.append(entry)
        self.next_offset = next_offset
        self.size += size
        self.last_timestamp_ms = max(self.last_timestamp_ms, entry.timestamp_ms)
        self.is_closed = False

    def release(self) -> None:
        """Frees the fields that only a restart needs; the segment is closed for writing."""
        self._columns.writer_id, self._columns.batch_sequence = array("q"), array("i")

    def entries(self) -> Iterable[Entry]:
        return self._columns.entries()

    def damaged(self) -> list[DamagedRange]:
        """The damaged ranges of the segment, in order."""
        offsets, found = self._columns.base_offset, list[DamagedRange]()
        flags = np.frombuffer(self._columns.is_damaged, np.int8)
        for at in np.flatnonzero(flags):
            stop = self.end_of(offsets[at])
            start, end = self._columns.position[at], self._position(int(at) + 1)
            place = f"bytes {start} to {end} of {self.path.name}"
            if start == end:
                place = f"{self.path.name} lacks them"
            found.append(DamagedRange(offsets[at], stop, place))
        return found

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
        times = self._columns.timestamp_ms[first:stop]
        heads = Heads(positions[first:stop], offsets[first:stop], times, self._restored)
        return Slice(self.path, start, self._position(stop) - start, heads)

    def _position(self, number: int) -> int:
        """Where the batch of that number begins, or the batches end."""
        positions = self._columns.position
        return positions[number] if number < len(positions) else self.size

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

    def take(self, columns: Columns, size: int, next_offset: int) -> None:
        """Takes all batches that its file was found to have."""
        self._columns, self.size, self.next_offset = columns, size, next_offset
        newest = max(columns.timestamp_ms, default=-1)
        self.last_timestamp_ms = max(self.last_timestamp_ms, newest)

    def load(self, index: IndexContent) -> None:
        """Takes all batches from a valid index of the complete file."""
        self._columns = index.columns
        self.size, self.next_offset = index.size, index.next_offset
        self.last_timestamp_ms = max(index.columns.timestamp_ms, default=-1)
        self.is_closed = index.is_closed
        self.continue_index(index)

    def continue_index(self, index: IndexContent) -> None:
        """Adds to the index file what it lacks; a file of an earlier version is written anew."""
        self._index_length = index.length
        self._recorded = len(index.columns) if index.length else 0

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
