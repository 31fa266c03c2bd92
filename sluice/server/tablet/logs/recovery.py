"""Loads the segments of a bucket at a start, and decides what became of damaged ones.

A start concludes this, for each part of a log:

- An index file of a closed segment that fits the log file is trusted; nothing is read.
- Every other segment is read completely. A batch of which only the base offset, the length or the
  time is wrong is good: readers get the right value (``Heads``).
- Offsets that were stored and cannot be read are damaged: those before a good batch, those below
  the offset that a sync recorded, those before the next segment, and those at the end that are not
  the beginning of an append, if the machine ran on. Their bytes stay, their offsets are never given
  again, and readers get an error that names them.
- Other bytes at the end are what a crash left of an append. They are moved to a file of their own
  (``*.torn-at-<offset>``), and the log continues there.
"""

from __future__ import annotations

import errno
import mmap
import os
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from pathlib import Path

import structlog

from sluice.errors import LogStorageError
from sluice.formats.log.batch import LENGTH_OVERHEAD
from sluice.server.data_dir import sync_folder, write_durably
from sluice.server.tablet.buckets.files import LogFiles
from sluice.server.tablet.segments.index import IndexContent, read_index
from sluice.server.tablet.segments.scan import Contents, ends_at, scan
from sluice.server.tablet.segments.segment import DamagedRange, Segment, joined

_REPORTED_MAX = 100
"""Lines in the server's log about single batches of a segment; one more names all offsets."""
_BLOCK = 1 << 20
_PAGE = 4096  # what the system reads at least
_UNREADABLE_MAX = 1 << 18
"""Bytes of a segment that a disk may fail to read before the start ends. With more of them, it may
well read them later, and an index must not say for ever that they are damaged."""
_DAY_MS = 24 * 60 * 60 * 1000

_log = structlog.get_logger("sluice.log")


@dataclass(slots=True)
class Recovered:
    """The segments of a log in order, at least one, and its damaged ranges in order."""

    segments: list[Segment] = field(default_factory=list)
    damaged: list[DamagedRange] = field(default_factory=list)
    is_clean: bool = True
    """Whether everything was synced: the server had stopped cleanly, or there was no log."""


class Recovery:
    """Loads the log of one bucket."""

    def __init__(
        self, name: str, folder: Path, files: LogFiles, now_ms: int, *, is_same_boot: bool
    ) -> None:
        """:param is_same_boot: the machine has run since the last server wrote to the folder."""
        self._name = name
        self._folder = folder
        self._files = files
        self._now_ms = now_ms
        self._is_same_boot = is_same_boot

    def run(self) -> Recovered:
        """Loads all segments, and cuts what a crash left at the end.

        :raises LogStorageError: the offsets of two files overlap.
        :raises OSError: a file cannot be read or written.
        """
        result = Recovered()
        files = [path for path in self._folder.glob("*") if path.suffix in (".log", ".index")]
        bases = sorted({int(path.stem) for path in files if path.stem.isdecimal()})
        for base, following in zip_longest(bases, bases[1:]):
            segment = Segment(self._folder, base)
            self._check_begin(result, segment)
            if result.segments:
                segment.last_timestamp_ms = result.segments[-1].last_timestamp_ms
            self._load(segment, following)
            result.damaged = joined([*result.damaged, *segment.damaged()])
            result.segments.append(segment)
        last = result.segments[-1] if result.segments else Segment(self._folder, 0)
        result.is_clean = not result.segments or last.is_closed
        if not result.segments:
            result.segments = [last]
        elif result.damaged and result.damaged[-1].stop == last.next_offset:
            self._begin_anew(result, last)
        for one in result.damaged:
            _log.error(
                "offsets of a log are damaged; reads of them fail, and the log keeps their numbers",
                bucket=self._name,
                offsets=f"{one.start} to {one.stop - 1}",
                place=one.place,
            )
        return result

    def _check_begin(self, result: Recovered, segment: Segment) -> None:
        """Compares the name of a segment with the end of the one before it."""
        if not result.segments:
            return
        end = result.segments[-1].next_offset
        if segment.base_offset < end:
            raise LogStorageError(
                f"bucket {self._name}: segment {segment.path.name} begins before the previous one"
                f" ends, at offset {end}: restore the files of one backup"
            )
        if segment.base_offset > end:
            place = f"a file before {segment.path.name}, which is missing"
            result.damaged.append(DamagedRange(end, segment.base_offset, place))

    def _load(self, segment: Segment, following: int | None) -> None:
        index, size = read_index(segment.index_path, self._files), 0
        if segment.path.exists():
            size = segment.path.stat().st_size
        if len(index.columns) and not index.length:
            index = self._with_its_end(segment, index, size)
        if index.is_closed and following is not None and index.next_offset > following:
            index = IndexContent(problem="it does not fit its segment")
        if index.problem:
            _log.warning(
                "an index file is damaged; the segment is read instead",
                bucket=self._name,
                index=segment.index_path.name,
                offsets=f"from {segment.base_offset} on",
                problem=index.problem,
            )
        before = segment.last_timestamp_ms
        if index.is_closed and not index.problem and index.size == size:
            segment.load(index)
            segment.last_timestamp_ms = max(segment.last_timestamp_ms, before)
            return
        self._read(segment, index, size, following)
        if following is not None or (segment.index_path.exists() and not segment.is_recorded):
            # An index file that is wrong must not fit by chance later.
            self._record(segment, close=following is not None)

    def _with_its_end(self, segment: Segment, index: IndexContent, size: int) -> IndexContent:
        """An index of an earlier version, whose checksum covers the entries but not their end.

        The last batch shows it, by the size in the index, of the file, or in its own header. If the
        batch is damaged in all of them, or cannot be read, the index is right.
        """
        columns, at = index.columns, index.columns.position[-1]
        if at >= size:
            return index
        content = memoryview(bytearray(size - at))
        try:
            self._files.read_into(segment.path, at, content)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            return index
        own = at + int.from_bytes(content[8:12], "little") + LENGTH_OVERHEAD
        for stop in (index.size, size, own):
            if not at < stop <= size:
                continue
            end = ends_at(content[: stop - at], columns.base_offset[-1], columns.timestamp_ms[-1])
            if (stop, end) == (index.size, index.next_offset):
                return index
            if end is not None:
                problem = f"its end is byte {index.size} and offset {index.next_offset}"
                return replace(index, size=stop, next_offset=end, problem=problem)
        return index

    def _read(
        self, segment: Segment, index: IndexContent, size: int, following: int | None
    ) -> None:
        view = memoryview(b"")
        newest_ms = self._now_ms
        if size:
            view = self._view(segment.path, size)
            newest_ms = max(newest_ms, int(segment.path.stat().st_mtime * 1000))
        found = scan(
            view,
            segment.base_offset,
            index,
            following=following,
            times=(segment.last_timestamp_ms, newest_ms + _DAY_MS),
            is_same_boot=self._is_same_boot,
        )
        self._take(segment, index, found)
        if found.torn:
            self._cut(segment, found.torn, view)

    def _view(self, path: Path, size: int) -> memoryview:
        """The bytes of a file, with zeros where the disk cannot read them.

        Reads it once first, as a bad sector under a memory map would end the process.

        :raises OSError: it cannot be read, also if that is true of too many bytes.
        """
        block = memoryview(bytearray(min(size, _BLOCK)))
        for position in range(0, size, _BLOCK):
            try:
                self._files.read_into(path, position, block[: size - position])
            except OSError as error:
                if error.errno != errno.EIO:
                    raise
                return self._readable(path, size)
        with path.open("rb") as file:
            return memoryview(mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ))

    def _readable(self, path: Path, size: int) -> memoryview:
        view, bad = memoryview(mmap.mmap(-1, size)), list[int]()
        for position in range(0, size, _PAGE):
            try:
                self._files.read_into(path, position, view[position : position + _PAGE])
            except OSError as error:
                if error.errno != errno.EIO:
                    raise
                bad.append(position)
                if len(bad) * _PAGE > _UNREADABLE_MAX:  # it may be the whole disk, for a time
                    raise OSError(
                        errno.EIO,
                        f"the disk cannot read more than {_UNREADABLE_MAX:,} bytes of it, the"
                        f" first at byte {bad[0]}: check the disk, then restore the file from a"
                        " backup, or replace it by a copy that `ddrescue` makes",
                        str(path),
                    ) from error
        if bad:
            _log.error(
                "the disk cannot read a part of a segment; its offsets are damaged, others served",
                bucket=self._name,
                file=str(path),
                at_bytes=bad,
                bytes_each=_PAGE,
            )
        return view

    def _take(self, segment: Segment, index: IndexContent, contents: Contents) -> None:
        """Adds what was found, and logs what is not as it was written."""
        segment.take(contents.columns, contents.size, contents.next_offset)
        for number in sorted(contents.problems)[:_REPORTED_MAX]:
            self._report(segment, contents, number)
        if not any(number < len(index.columns) for number in contents.problems):
            segment.continue_index(index)

    def _report(self, segment: Segment, contents: Contents, number: int) -> None:
        entry = contents.columns.entry(number)
        what = "a log batch is damaged"
        if not entry.is_damaged:
            what = "the header of a log batch is damaged; readers get the right one"
        _log.error(
            what,
            bucket=self._name,
            segment=segment.path.name,
            position=entry.position,
            offsets=f"{entry.base_offset} to {contents.stop(number) - 1}",
            problem=contents.problems[number],
        )

    def _cut(self, segment: Segment, problem: str, content: memoryview) -> None:
        """Moves what a crash left of an append to a file of its own."""
        aside = segment.path.with_suffix(f".torn-at-{segment.next_offset}")
        _log.warning(
            "truncated a torn log end",
            bucket=self._name,
            segment=segment.path.name,
            next_offset=segment.next_offset,
            bytes_cut=len(content) - segment.size,
            kept_in=aside.name,
            problem=problem,
        )
        write_durably(aside, bytes(content[segment.size :]))
        os.truncate(segment.path, segment.size)
        self._files.sync(segment.path)

    def _record(self, segment: Segment, *, close: bool) -> None:
        if segment.path.exists():
            self._files.sync(segment.path, [self._folder])
        segment.record(self._files, close=close)
        self._files.sync(segment.index_path, [self._folder])

    def _begin_anew(self, result: Recovered, last: Segment) -> None:
        """Begins a segment after damaged offsets at the end: its name keeps them from reuse."""
        if not last.is_empty:  # else an earlier start began it, and nothing was appended since
            self._record(last, close=True)
            segment = Segment(self._folder, last.next_offset)
            segment.last_timestamp_ms = last.last_timestamp_ms
            result.segments.append(segment)
        result.segments[-1].path.touch()
        sync_folder(self._folder)
        result.is_clean = False
