"""Reads the log range of a split batch by batch, and checks that no offset is missing."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, replace

from sluice.errors import LogOffsetOutOfRange, SplitFailed
from sluice.model import EARLIEST
from sluice.rounds.values.limits import Limiter
from sluice.rounds.values.ports import LogSource
from sluice.rounds.values.types import LogRecords, OffsetRange, Split, SplitPart

_UNKNOWN_TIMESTAMP = -1


@dataclass(slots=True)
class ReadProgress:
    """How far a log range has been read."""

    next_offset: int | None
    """None: nothing was read yet, and the range starts at the earliest offset of the log."""
    rows: int = 0
    bytes_read: int = 0
    max_timestamp_ms: int = _UNKNOWN_TIMESTAMP
    write_s: float = 0.0
    """Seconds spent in the sink."""
    limit_reached: str = ""
    begin_offset: int | None = None
    """The first offset of the batches that were read. None: nothing was read."""

    def end(self, split: Split) -> int:
        """The next offset to read.

        :raises SplitFailed: the log ended before the split's stop.
        """
        end = self.next_offset
        if end is None or (end < split.stop_offset and not self.limit_reached):
            raise SplitFailed(
                f"bucket {split.bucket}: its log ended at offset {end}, but the round planned to"
                f" read up to offset {split.stop_offset}"
            )
        return split.stop_offset if split.part is None and not self.limit_reached else end


def read_log_range(
    split: Split,
    source: LogSource,
    sink: Callable[[LogRecords], None],
    on_rows: Callable[[int], None] | None,
    limiter: Limiter,
) -> ReadProgress:
    """Passes batches to the sink until the split's stop offset, or until a limit is reached.

    Leaves out the batches that a user told a round to skip.

    A part reads as ``SplitPart`` says. A later part that begins after its deadline reads nothing:
    the parts before it have probably been cut.

    :raises SplitFailed: offsets are missing.
    """
    start = split.start_offset if split.start_offset >= 0 else None
    seen = ReadProgress(start, begin_offset=start)
    if split.part_number and (reached := limiter.reached(0)):
        return ReadProgress(start, limit_reached=reached)

    def read(window: Split, reads_as: Split) -> None:
        _read(reads_as, source.read(window), sink, on_rows, limiter, seen)

    for skipped in split.skipped:
        split = _before_skipped(split, skipped, read, seen)
        if seen.limit_reached:
            return seen
    if split.part is not None and split.part.from_earliest:
        _read_from_earliest(split, split.part, read, seen)
    elif split.start_offset < split.stop_offset:
        read(split, split)
    seen.end(split)
    return seen


def _before_skipped(
    split: Split, skipped: OffsetRange, read: Callable[[Split, Split], None], seen: ReadProgress
) -> Split:
    """Reads up to the batch to skip; returns the split from its end on."""
    before = replace(split, stop_offset=skipped.start)
    if before.start_offset < before.stop_offset:
        read(before, before)
    if seen.next_offset is not None:  # None: the log begins with the batch to skip
        seen.end(before)
    if not seen.limit_reached:
        seen.next_offset = skipped.stop
    return replace(split, start_offset=skipped.stop)


def _read_from_earliest(
    split: Split, part: SplitPart, read: Callable[[Split, Split], None], seen: ReadProgress
) -> None:
    """Reads a part of a window that starts at the earliest offset.

    If retention has deleted the range of the part since the plan, the window starts later.
    """
    try:
        read(split, split)
    except LogOffsetOutOfRange:
        if not _begins_later(split, seen):
            raise
    if _begins_later(split, seen):
        seen.next_offset = seen.begin_offset = None
        read(replace(split, start_offset=EARLIEST, stop_offset=part.window_stop), split)


def _begins_later(split: Split, seen: ReadProgress) -> bool:
    """Whether nothing was read, because retention has deleted the range since the plan."""
    if seen.max_timestamp_ms >= 0:
        return False
    return seen.begin_offset is None or seen.begin_offset == split.start_offset


def _read(
    split: Split,
    batches: Iterator[LogRecords],
    sink: Callable[[LogRecords], None],
    on_rows: Callable[[int], None] | None,
    limiter: Limiter,
    seen: ReadProgress,
) -> None:
    stop = split.stop_offset if split.part is None else split.part.window_stop
    try:
        for records in batches:
            base = records.base_offset
            if split.part_number and base < split.start_offset:
                seen.begin_offset = seen.next_offset = min(records.next_offset, stop)
                continue  # it is in the part before
            if seen.begin_offset is None:
                seen.begin_offset = base
            if split.part is not None and base >= split.stop_offset:
                seen.next_offset = base if seen.next_offset is None else seen.next_offset
                break  # it is in a later part
            window = _within(split, records, seen.next_offset, stop)
            before = time.perf_counter()
            sink(window)
            seen.write_s += time.perf_counter() - before
            advanced = seen.next_offset is None or window.next_offset > seen.next_offset
            seen.next_offset = window.next_offset
            seen.rows += window.batch.num_rows
            seen.bytes_read += records.size_bytes
            seen.max_timestamp_ms = max(seen.max_timestamp_ms, records.timestamp_ms)
            if on_rows is not None:
                on_rows(window.batch.num_rows)
            if advanced and window.next_offset < split.stop_offset:
                seen.limit_reached = limiter.reached(seen.bytes_read)
                if seen.limit_reached:
                    break
    finally:
        if isinstance(batches, Generator):
            batches.close()  # frees prefetched data


def _within(split: Split, records: LogRecords, expected: int | None, stop: int) -> LogRecords:
    """The batch's rows inside the range; a batch is cut only if another tool ended inside it.

    :raises SplitFailed: if offsets are missing before the batch.
    """
    base, following = records.base_offset, records.next_offset
    if expected is not None and base > expected:
        raise SplitFailed(
            f"bucket {split.bucket}: records are missing in its log: offset {base} follows where"
            f" {expected} was expected"
        )
    first = base if expected is None else max(expected, base)
    stop = min(following, stop)
    if (first, stop) == (base, following):
        return records
    window = first - base, max(0, stop - first)
    batch, kinds = records.batch.slice(*window), records.change_types
    return replace(
        records,
        batch=batch,
        base_offset=first,
        next_offset=max(stop, first),
        change_types=None if kinds is None else kinds.slice(*window),
    )
