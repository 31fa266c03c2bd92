"""Loads the segments of a bucket at a start, cuts a torn end, and finds damage.

- What the index file of a segment names is not read: it was synced. It is checked when it is read
  first (``Segment.check``).
- Batches behind that are read and checked, each by its checksum and by the end of the one before.
- What a crash left of an append at the end of the log is moved to a file of its own
  (``*.torn-at-<offset>``), and the log continues there.
- Anything else is damage: it stays, and the bucket refuses calls. The log goes on where storage
  says so: at the next batch of the index, at the next segment, or behind the stored end.
- A log that ends too early has lost files: see ``_skip_to_lake`` and ``_miss``.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path

import structlog

from sluice.errors import CorruptRecord
from sluice.formats.log.batch import LENGTH_OVERHEAD, V0_HEADER_SIZE, check_crc, read_header
from sluice.server.data_dir import write_durably
from sluice.server.tablet.buckets.files import LogFiles, unreadable
from sluice.server.tablet.logs.damage import LogDamage
from sluice.server.tablet.logs.segment import Damage, Segment
from sluice.server.tablet.logs.synced_batches import Entry, IndexContent, read_index
from sluice.server.tablet.logs.writers import WRITERS_FILE, WriterStates

_START = struct.Struct("<qi")
"""Base offset and length, with which a batch begins."""
_DAY_MS = 24 * 60 * 60 * 1000

_log = structlog.get_logger("sluice.log")


@dataclass(slots=True)
class Recovered:
    """What a start has found of a log."""

    damage: LogDamage
    segments: list[Segment] = field(default_factory=list)
    """In order, at least one."""
    writers: WriterStates = field(default_factory=WriterStates)
    unsynced: list[Path] = field(default_factory=list)
    """Folders whose names may not be synced; empty: the server had stopped cleanly, or there was no
    log."""


class Recovery:
    """Loads the log of one bucket."""

    def __init__(
        self,
        name: str,
        place: str,
        folder: Path,
        files: LogFiles,
        now_ms: int,
        *,
        lake_offset: int,
        given: int,
        behind: int | None,
        is_same_boot: bool,
    ) -> None:
        """See ``BucketLog``."""
        self._name = name
        self._folder = folder
        self._files = files
        self._now_ms = now_ms
        self._lake_offset = lake_offset
        self._given = given
        self._behind = behind
        self._is_same_boot = is_same_boot
        self._damage = LogDamage(name, place, folder)
        self._found = Recovered(self._damage)

    def run(self) -> Recovered:
        """Loads all segments, and cuts what a crash left at the end.

        :raises OSError: a file cannot be read or written, for a reason that is no damage.
        """
        found = self._found
        self._load_all()
        self._recall_writers()
        self._damage.forget_before(found.segments[0].base_offset)
        if self._damage.is_end_known and self._end < self._lake_offset:
            self._skip_to_lake()
        if self._damage.is_end_known and self._end < self._given:
            self._miss()
        return found

    @property
    def _end(self) -> int:
        return max(self._found.segments[-1].next_offset, self._damage.end)

    def _load_all(self) -> None:
        found = self._found
        files = [path for path in self._folder.glob("*") if path.suffix in (".log", ".index")]
        bases = sorted({int(path.stem) for path in files if path.stem.isdecimal()})
        for base, following in zip_longest(bases, bases[1:]):
            segment = Segment(self._folder, base)
            if found.segments:
                segment.last_timestamp_ms = found.segments[-1].last_timestamp_ms
            self._load(segment, following)
            found.segments.append(segment)
        if bases and not found.segments[-1].is_closed:
            # The process died, so it is unknown which content and names were synced.
            found.unsynced = names_above(self._folder)
        found.segments = found.segments or [Segment(self._folder, 0)]

    def _recall_writers(self) -> None:
        """Recalls the writers from the batches, and those whose batches were deleted."""
        found = self._found
        found.writers.recall(self._folder / WRITERS_FILE)
        for segment in found.segments:
            for entry in segment.entries():
                if entry.writer_id >= 0:
                    found.writers.record(
                        entry.writer_id, entry.batch_sequence, entry.base_offset, entry.timestamp_ms
                    )
            if segment is not found.segments[-1]:
                segment.release()
        found.writers.expire(self._now_ms)

    def _skip_to_lake(self) -> None:
        """Continues at the lake offset, which the log does not reach, to assign no offset twice.

        The rest of the log is set aside, because the lake contains all of it. The oldest segment is
        moved first, so that after a crash the next start does the same.
        """
        found = self._found
        _log.warning(
            "the log ends before its lake offset: its files were removed or replaced, or the disk"
            " lost rows. Only the lake has these rows, and reads of the log begin after them",
            bucket=self._name,
            log_start_offset=found.segments[0].base_offset,
            log_end_offset=self._end,
            lake_offset=self._lake_offset,
        )
        for segment in found.segments:
            segment.index_path.unlink(missing_ok=True)
            if segment.path.exists():
                segment.path.rename(segment.path.with_suffix(".log.aside"))
        following = found.segments[-1].following(self._lake_offset)
        found.unsynced += [*self._files.make_folder(self._folder), self._folder]
        following.path.touch()
        found.segments = [following]
        self._damage.forget_before(self._lake_offset)

    def _miss(self) -> None:
        """Makes damage of offsets that were given out, and that the log has lost."""
        found, end = self._found, self._end
        problem = f"{self._folder}: files were removed or replaced, and it ends at offset {end}"
        self._files.make_folder(self._folder)
        # Else the next start would not know of them.
        found.segments.append(found.segments[-1].continued_at(self._given))
        found.unsynced = names_above(self._folder)
        self._damage.add(Damage(end, self._given, problem))

    def _load(self, segment: Segment, following: int | None) -> None:
        index = read_index(segment.index_path, self._files)
        first, end = index.columns.base_offset[:1], index.next_offset
        if first and (first[0] != segment.base_offset or end > (following or end)):
            index = IndexContent(problem="it is the index of another file")
        if index.problem:
            _log.warning(
                "an index file is damaged; the segment is read instead",
                bucket=self._name,
                index=segment.index_path.name,
                problem=index.problem,
            )
        segment.load(index)
        size, newest_ms = 0, self._now_ms
        if segment.path.exists():
            stat = segment.path.stat()
            size, newest_ms = stat.st_size, max(newest_ms, stat.st_mtime_ns // 1_000_000)
        if size < index.size:
            damage = segment.damage(segment.first_beyond(size), f"the file ends at byte {size}")
            self._add(damage.start, following, damage.problem)
        elif following is None or segment.next_offset < following:
            self._read_on(segment, size, following)
        # No checksum covers the times. A wrong one must not become that of all batches to come.
        segment.last_timestamp_ms = min(segment.last_timestamp_ms, newest_ms + _DAY_MS)

    def _read_on(self, segment: Segment, size: int, following: int | None) -> None:
        """Reads the batches behind those of the index."""
        problem, is_torn = self._problem(segment, size, following)
        if is_torn:
            self._cut(segment, size, problem)
        elif problem:
            place = f"{segment.path}, byte {size}"
            if segment.size < size:
                place = f"{segment.path}, bytes {segment.size} to {size - 1}"
            self._add(segment.next_offset, following, f"{place}: {problem}")
        elif size and (following or (segment.index_path.exists() and not segment.is_recorded)):
            self._files.sync(segment.path, [self._folder])
            segment.record(self._files, close=following is not None)
            self._files.sync(segment.index_path, [self._folder])

    def _problem(self, segment: Segment, size: int, following: int | None) -> tuple[str, bool]:
        """Takes good batches; what is wrong with the next one, and whether a crash left it."""
        try:
            try:
                while segment.size < size and segment.next_offset != following:
                    self._take_batch(segment, size)
            except CorruptRecord as error:
                return str(error), following is None and self._is_torn(segment, size)
        except OSError as error:
            if problem := unreadable(error):
                return problem, False
            raise
        if following is not None and segment.next_offset != following:
            ends = f"the file ends at offset {segment.next_offset}"
            return f"{ends}, and the next one begins at offset {following}", False
        return "", False

    def _add(self, start: int, following: int | None, problem: str) -> None:
        """Adds damage up to the next segment, or to the stored end of the log."""
        stop = self._behind if following is None else following
        self._damage.add(Damage(start, stop if (stop or 0) > start else None, problem))

    def _is_torn(self, segment: Segment, size: int) -> bool:
        """Whether a crash left what is behind the good batches, so nobody was told it is stored.

        A power loss may leave anything. A kill leaves the beginning of an append: the header says
        that it is longer, and no other length, by one bit, makes a batch of it.
        """
        rest = self._bytes(segment, size - segment.size)
        if not self._is_same_boot or len(rest) < _START.size:
            return True
        offset, length = _START.unpack_from(rest)
        if offset != segment.next_offset or length + LENGTH_OVERHEAD <= len(rest):
            return False
        sizes = ((length ^ 1 << bit) + LENGTH_OVERHEAD for bit in range(31))
        return not any(_is_batch(rest, one) for one in sizes)

    def _cut(self, segment: Segment, size: int, problem: str) -> None:
        """Moves what a crash left of an append to a file of its own."""
        aside = segment.path.with_suffix(f".torn-at-{segment.next_offset}")
        _log.warning(
            "truncated a torn log end",
            bucket=self._name,
            segment=segment.path.name,
            next_offset=segment.next_offset,
            bytes_cut=size - segment.size,
            kept_in=aside.name,
            problem=problem,
        )
        write_durably(aside, bytes(self._bytes(segment, size - segment.size)))
        os.truncate(segment.path, segment.size)
        self._files.sync(segment.path)

    def _take_batch(self, segment: Segment, size: int) -> None:
        """Adds the next batch. :raises CorruptRecord: it is none, or not the next one."""
        rest = size - segment.size
        head = self._bytes(segment, min(_START.size, rest)).tobytes().ljust(_START.size, b"\0")
        content = self._bytes(segment, min(max(_START.unpack(head)[1], 0) + LENGTH_OVERHEAD, rest))
        header = read_header(content)
        check_crc(content, header)
        if header.base_offset != segment.next_offset:
            raise CorruptRecord(
                f"a batch begins at offset {header.base_offset} instead of {segment.next_offset}"
            )
        position, time_ms = segment.size, header.timestamp_ms
        writer = header.writer_id, header.batch_sequence
        entry = Entry(header.base_offset, position, time_ms, *writer)
        segment.add(entry, header.next_offset, header.size)

    def _bytes(self, segment: Segment, count: int) -> memoryview:
        """So many bytes behind the good batches."""
        content = memoryview(bytearray(count))
        self._files.read_into(segment.path, segment.size, content)
        return content


def names_above(folder: Path) -> list[Path]:
    """The folders to sync for the names of a log: its own and those down to the data directory."""
    return [*list(folder.parents)[:4], folder]


def _is_batch(content: memoryview, size: int) -> bool:
    """Whether exactly so many bytes are a batch, whatever its length says."""
    if not V0_HEADER_SIZE <= size <= len(content):
        return False
    batch = bytearray(content[:size])
    _START.pack_into(batch, 0, 0, size - LENGTH_OVERHEAD)
    try:
        check_crc(batch, read_header(batch))
    except CorruptRecord:
        return False
    return True
