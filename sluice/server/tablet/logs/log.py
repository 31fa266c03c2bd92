"""The log of one bucket: segments, offsets, idempotent writers, and recovery after a crash."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import structlog

from sluice.clock import Clock
from sluice.errors import (
    CorruptRecord,
    LogOffsetOutOfRange,
    LogStorageError,
    UnknownTableOrBucket,
)
from sluice.failpoints import failpoint
from sluice.formats.log.batch import (
    V0_HEADER_SIZE,
    LogBatchHeader,
    set_offset_and_timestamp,
)
from sluice.model import EARLIEST
from sluice.server.data_dir import write_durably
from sluice.server.tablet.buckets.files import LogFiles, unreadable
from sluice.server.tablet.logs.recovery import Recovery, names_above
from sluice.server.tablet.logs.segment import Damage, Segment, Slice
from sluice.server.tablet.logs.synced_batches import Entry
from sluice.server.tablet.logs.writers import WRITERS_FILE

_FOUND = ".damaged"
"""Suffix of an empty file; its name is the first offset of a batch that a reader found damaged."""

_log = structlog.get_logger("sluice.log")


class BucketLog:
    """A bucket's log. ``_lock`` guards all fields; files are read without it.

    Bytes below ``end_offset`` never change, so readers need no lock for them. With one replica, the
    high watermark is the end of the log.
    """

    def __init__(
        self,
        name: str,
        folder: Path,
        files: LogFiles,
        segment_bytes: int,
        clock: Clock,
        *,
        lake_offset: int = 0,
        given: int = 0,
        behind: int | None = None,
        is_same_boot: bool = False,
        place: str = "",
    ) -> None:
        """:param lake_offset: offsets below it are in the lake, so they are never assigned again.

        :param given: offsets below it were given out, also if the log has lost them.
        :param behind: an offset that the log has not reached, or its exact end; None: unknown.
        :param is_same_boot: the machine has run since the folder was written to.
        :param place: table and bucket as a user names them.
        :raises OSError: a file cannot be read or written.
        """
        self.name = name
        self._folder = folder
        self._files = files
        self._segment_bytes = segment_bytes
        self._clock = clock
        self._lock = threading.Lock()
        self._sync_lock = threading.Lock()  # a sync ends before the next; taken before _lock
        self._waiters: set[threading.Event] = set()
        self._closed = False
        self._expired: list[Segment] = []  # no part of the log any more, files may be left
        found = Recovery(
            name,
            place or name,
            folder,
            files,
            clock.now_ms(),
            lake_offset=lake_offset,
            given=given,
            behind=behind,
            is_same_boot=is_same_boot,
        ).run()
        self._segments, self._damage, self._writers = found.segments, found.damage, found.writers
        self._unsynced = found.unsynced  # folders whose new names are not synced yet
        self._dirty = bool(found.unsynced)
        self._read_again()

    # -- offsets

    @property
    def start_offset(self) -> int:
        return self._segments[0].base_offset

    @property
    def end_offset(self) -> int:
        """The offset of the next batch; of a damaged log, where it goes on once it is given up."""
        return max(self._segments[-1].next_offset, self._damage.end)

    @property
    def is_end_exact(self) -> bool:
        """Whether the log itself says where it ends, not what storage kept of a damaged end."""
        known = self._damage.is_end_known
        return known and self._damage.end <= self._segments[-1].next_offset

    @property
    def lost_end(self) -> int:
        """The offset after all that was damaged and given up; 0 if nothing was."""
        return self._damage.lost_end

    def offset_at(self, timestamp_ms: int) -> int:
        """The offset of the first batch not older than the timestamp, or the end of the log."""
        with self._lock:
            for segment in self._segments:
                if segment.last_timestamp_ms >= timestamp_ms:
                    found = segment.offset_at(timestamp_ms)
                    if found is not None:
                        return found
            return self.end_offset

    def end_of(self, offset: int) -> int:
        """The offset after the batch that has this offset, which must be in the log."""
        with self._lock:
            segment = next(one for one in reversed(self._segments) if one.base_offset <= offset)
            return segment.end_of(offset)

    def beyond(self, offset: int) -> tuple[int, int | None]:
        """The number of offsets from ``offset`` on, and the time of the first one that has a time.

        Batches that the log has lost may have none.
        """
        with self._lock:
            first = max(offset, self.start_offset)
            if first >= self.end_offset:
                return 0, None
            rest = (one for one in self._segments if one.next_offset > first)
            times = (one.time_from(first) for one in rest)
            return self.end_offset - first, next((one for one in times if one is not None), None)

    def highest_writer_id(self) -> int:
        """The highest id of a writer that the log knows, or -1."""
        with self._lock:
            return self._writers.highest_id

    # -- writing

    def append(self, header: LogBatchHeader, records: bytes) -> int:
        """Stores a validated batch once, also if repeated; returns its base offset.

        :raises LogStorageError: the write failed, and nothing was stored.
        :raises OutOfOrderSequence, DuplicateSequence: see :class:`WriterStates`. The first also for
            a repeated batch whose stored copy was given up.
        :raises CorruptRecord: the log is damaged.
        :raises UnknownTableOrBucket: the table was dropped.
        """
        with self._lock:
            self._check_open()
            self._damage.check()
            if header.writer_id >= 0:
                stored = self._writers.check(header.writer_id, header.batch_sequence)
                if stored is not None:
                    self._damage.check_kept(header.writer_id, header.batch_sequence, stored)
                    return stored
            segment = self._segment_for(len(records))
            base = segment.next_offset
            now = max(self._clock.now_ms(), segment.last_timestamp_ms)
            head = bytearray(memoryview(records)[:V0_HEADER_SIZE])
            set_offset_and_timestamp(head, base, now)
            failpoint("server.append.before_write")
            try:
                self._files.append(
                    segment.path, segment.size, (head, memoryview(records)[V0_HEADER_SIZE:])
                )
            except OSError as error:
                raise LogStorageError(
                    f"bucket {self.name}: cannot write {len(records)} bytes at offset {base}"
                    f" ({segment.path.name}): {error.strerror or error}"
                ) from error
            failpoint("server.append.after_write")
            self._dirty = True
            entry = Entry(base, segment.size, now, header.writer_id, header.batch_sequence)
            segment.add(entry, base + header.last_offset_delta + 1, len(records))
            if header.writer_id >= 0:
                self._writers.record(header.writer_id, header.batch_sequence, base, now)
            waiters, self._waiters = self._waiters, set()
        for waiter in waiters:
            waiter.set()
        return base

    def stored(self, writer_id: int, sequence: int) -> tuple[int, int] | None:
        """The base offset of a writer's batch that is already stored, and the offset after it.

        None if it is the next one.

        :raises OutOfOrderSequence, DuplicateSequence: see :meth:`append`.
        :raises UnknownTableOrBucket: the table was dropped in the meantime.
        """
        with self._lock:
            self._check_open()
            base = self._writers.check(writer_id, sequence)
            if base is None:
                return None
            self._damage.check_kept(writer_id, sequence, base)
            for segment in reversed(self._segments):
                if segment.base_offset <= base:
                    return base, segment.end_of(base)
            return base, self.end_offset  # its segment was deleted or set aside

    def _segment_for(self, size: int) -> Segment:
        """Returns the segment for the next batch, and creates it if necessary."""
        segment = self._segments[-1]
        try:
            if segment.is_empty:
                self._unsynced += [*self._files.make_folder(self._folder), self._folder]
            if segment.size and segment.size + size > self._segment_bytes:
                self._close_segment(segment)
                segment.release()
                self._writers.expire(self._clock.now_ms())
                failpoint("server.roll.after_index")
                following = segment.following(segment.next_offset)
                self._segments.append(following)
                self._unsynced.append(self._folder)
                return following
        except OSError as error:
            raise LogStorageError(
                f"bucket {self.name}: segment {segment.path.name}: {error.strerror or error}"
            ) from error
        return segment

    def _close_segment(self, segment: Segment) -> None:
        self._files.sync(segment.path, self._unsynced)
        self._unsynced = []
        self._close_index(segment)

    def _close_index(self, segment: Segment) -> None:
        names = [] if segment.is_recorded else [self._folder]
        segment.record(self._files, close=True)
        self._files.sync(segment.index_path, names)

    # -- reading

    def slice(self, offset: int, limit: int, *, min_one_batch: bool) -> Slice | None:
        """Locates the batches from ``offset`` on, at most ``limit`` bytes of one segment.

        None at the end of the log, or if the first batch exceeds a strict limit.

        :raises CorruptRecord: the log is damaged, or the offset was given up; then the details have
            the range, as ``base_offset`` and ``next_offset``.
        :raises LogOffsetOutOfRange: below the start or above the end of the log.
        :raises UnknownTableOrBucket: the table was dropped in the meantime.
        """
        with self._lock:
            self._check_open()
            self._damage.check()
            if offset == EARLIEST:
                offset = self.start_offset
            if not self.start_offset <= offset <= self.end_offset:
                raise LogOffsetOutOfRange(
                    f"bucket {self.name}: offset {offset} is outside the log, which has the offsets"
                    f" {self.start_offset} to {self.end_offset}"
                )
            if offset == self.end_offset:
                return None
            before = self._damage.check_offset(offset)
            for segment in reversed(self._segments):
                if segment.base_offset <= offset and not segment.is_empty:
                    return segment.slice(offset, limit, min_one_batch=min_one_batch, before=before)
            raise AssertionError(f"bucket {self.name}: no segment holds offset {offset}")

    def read(self, piece: Slice, target: memoryview) -> None:
        """Fills ``target`` with a slice's bytes. Those of an earlier server are checked once.

        :raises CorruptRecord: a batch is damaged, or the disk cannot read it, so the log refuses
            calls from now on.
        :raises UnknownTableOrBucket: the table or the segment was deleted in the meantime.
        :raises LogStorageError: the file cannot be read.
        """
        try:
            self._files.read_into(piece.path, piece.position, target)
        except FileNotFoundError:
            raise UnknownTableOrBucket(
                f"{piece.path} no longer exists: was the table dropped?"
            ) from None
        except (OSError, EOFError) as error:
            found = self._unreadable(piece)
            if found is None:
                raise LogStorageError(f"{piece.path}: cannot be read: {error}") from error
        else:
            found = piece.segment.check(piece, target) if piece.segment.must_check(piece) else None
        if found is not None:
            with self._lock:
                damage = piece.segment.damage(*found)
                with suppress(OSError):  # for the next start
                    (self._folder / f"{damage.start:020d}{_FOUND}").touch()
                self._damage.add(damage)
                raise CorruptRecord(self._damage.text(damage))

    def _unreadable(self, piece: Slice) -> tuple[int, str] | None:
        """The first batch of a slice that the disk cannot read, by its number, and why.

        None if it can read them now, or if the error is not of the disk.
        """
        for number, position, size in piece.segment.batches(piece):
            try:
                self._files.read_into(piece.path, position, memoryview(bytearray(size)))
            except EOFError:
                return number, "the file ends before"
            except OSError as error:
                problem = unreadable(error)
                return (number, problem) if problem else None
        return None

    # -- damage

    def damage(self) -> list[tuple[Damage, str]]:
        """Why the log refuses calls, in order, each with an error; empty if it does not."""
        with self._lock:
            return [(one, self._damage.text(one)) for one in self._damage.found]

    def check_intact(self) -> None:
        """:raises CorruptRecord: the log is damaged and refuses calls."""
        with self._lock:
            self._damage.check()

    def refuse(self, offset: int, problem: str) -> CorruptRecord:
        """Refuses calls from now on, as the batch at an offset cannot be used; the error."""
        with self._lock:
            segment = next(one for one in reversed(self._segments) if one.base_offset <= offset)
            damage = segment.damage(segment.number_of(offset), problem)
            self._damage.add(damage)
            return CorruptRecord(self._damage.text(damage))

    def give_up(self, start: int, stop: int) -> None:
        """Lets the log go on without damaged offsets, which stay lost for ever.

        :raises LogOffsetOutOfRange: exactly these offsets are not damaged.
        :raises LogStorageError: it cannot be stored.
        :raises UnknownTableOrBucket: the table was dropped.
        """
        with self._lock:
            self._check_open()
            self._damage.check_found(start, stop)
            try:
                last = self._segments[-1]
                if stop >= last.next_offset and stop > last.base_offset:
                    self._files.make_folder(self._folder)
                    self._segments.append(last.continued_at(stop))
                    self._dirty, self._unsynced = True, names_above(self._folder)
                self._damage.give_up(start, stop)
            except OSError as error:
                raise LogStorageError(
                    f"bucket {self.name}: {self._folder}: {error.strerror or error}"
                ) from error

    def wait_beyond(self, offset: int, waiter: threading.Event) -> bool:
        """Sets the event at the next append; returns False if the log is already longer."""
        with self._lock:
            if self._closed or self.end_offset > offset:
                return False
            self._waiters.add(waiter)
            return True

    def forget_waiter(self, waiter: threading.Event) -> None:
        with self._lock:
            self._waiters.discard(waiter)

    # -- life

    def sync(self, *, record: bool = True) -> None:
        """Syncs all appends before this call to disk.

        :param record: add them to the index file; False if the log is closed soon, which does it.
        :raises OSError: the sync failed; the next call retries.
        """
        with self._sync_lock:
            with self._lock:
                if not self._dirty or self._closed:
                    return
                segment, self._dirty = self._segments[-1], False
                synced = segment.synced_up_to()
                folders, self._unsynced = self._unsynced, []
            try:
                self._files.sync(segment.path, folders)
                with self._lock:
                    if record and not self._closed:
                        # Not synced: a power loss may take the record, and the next start then
                        # reads more of the segment.
                        segment.record(self._files, synced)
            except FileNotFoundError:
                return  # the table was dropped
            except OSError:
                with self._lock:
                    self._dirty = True
                    self._unsynced += folders
                raise

    def close(self) -> None:
        """Syncs and closes the last segment, so that the next start need not scan it."""
        with self._sync_lock, self._lock:
            if self._closed:
                return
            self._closed = True
            segment = self._segments[-1]
            if not segment.is_empty and not segment.is_closed:
                try:
                    if self._dirty or self._unsynced:
                        self._files.sync(segment.path, self._unsynced)
                    self._close_index(segment)
                except OSError as error:  # the next start scans the segment instead
                    _log.warning(
                        "cannot close a log segment; the next start scans it",
                        bucket=self.name,
                        error=str(error),
                    )
            self._wake()

    # -- retention

    def expired_end(self, before_ms: int) -> int:
        """The end of the oldest segments whose batches all are older; never the last segment."""
        end = self.start_offset
        with self._lock:
            for segment in self._segments[:-1]:
                if segment.last_timestamp_ms >= before_ms:
                    break
                end = segment.next_offset
        return end

    def delete_before(self, offset: int) -> int:
        """Deletes the segments that end at the offset or below, but never the last one.

        Returns how many were deleted. Writers that only these segments remember are stored before.

        :raises OSError: as :meth:`delete_expired`.
        """
        with self._lock:
            if self._closed:
                return 0
            count = 0
            while count < len(self._segments) - 1:
                if self._segments[count].next_offset > offset:
                    break
                count += 1
            if count:
                start = self._segments[count].base_offset
                write_durably(self._folder / WRITERS_FILE, self._writers.encode(before=start))
                self._expired += self._segments[:count]
                self._segments = self._segments[count:]
                self._damage.forget_before(self._segments[0].base_offset)
        return self.delete_expired()

    def delete_expired(self) -> int:
        """Deletes the files of segments that are no part of the log any more; returns how many.

        The oldest is deleted first, so that a crash leaves a log without a hole.

        :raises OSError: a file cannot be deleted; the next call tries it again.
        """
        with self._lock:
            expired = [] if self._closed else list(self._expired)
        for segment in expired:
            failpoint("server.retention.before_segment")
            segment.delete()
            self._expired.remove(segment)
        if expired:
            _log.info(
                "deleted old log segments",
                bucket=self.name,
                segments=len(expired),
                log_start_offset=self.start_offset,
            )
        return len(expired)

    @contextmanager
    def held(self) -> Iterator[Callable[[], None]]:
        """Lets appends and reads wait during a ``with`` block; yields what closes the log.

        A log that was closed appends nothing afterwards; :meth:`delete` deletes its files.
        """

        def close() -> None:
            self._closed = True
            self._wake()

        with self._lock:
            yield close

    def delete(self) -> None:
        """Deletes the log."""
        with self._lock:
            self._closed = True
            shutil.rmtree(self._folder, ignore_errors=True)
            self._wake()

    def _wake(self) -> None:
        for waiter in self._waiters:
            waiter.set()
        self._waiters = set()

    def _check_open(self) -> None:
        if self._closed:
            raise UnknownTableOrBucket(
                f"bucket {self.name} no longer exists: its table was dropped"
            )

    # -- start

    def _read_again(self) -> None:
        """Reads the batches that readers of an earlier server have found to be damaged."""
        for path in self._folder.glob(f"*{_FOUND}"):
            with suppress(LogOffsetOutOfRange):
                try:
                    piece = self.slice(int(path.stem), 0, min_one_batch=True)
                    if piece is not None:
                        self.read(piece, memoryview(bytearray(piece.length)))
                except CorruptRecord:
                    continue
            path.unlink()  # a backup has replaced it, or it was deleted
