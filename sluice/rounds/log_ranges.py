"""Reads the log range of a split batch by batch, and checks that no offset is missing."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace

from sluice.errors import SplitFailed
from sluice.rounds.limits import Limiter
from sluice.rounds.ports import LogSource
from sluice.rounds.types import LogRecords, Split

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
        return end if self.limit_reached else split.stop_offset


def read_log_range(
    split: Split,
    source: LogSource,
    sink: Callable[[LogRecords], None],
    on_rows: Callable[[int], None] | None,
    limiter: Limiter,
) -> ReadProgress:
    """Passes batches to the sink until the split's stop offset, or until a limit is reached.

    Leaves out the batch that a user told the round to skip.

    :raises SplitFailed: offsets are missing.
    """
    seen = ReadProgress(split.start_offset if split.start_offset >= 0 else None)
    if split.skipped is not None:
        before = replace(split, stop_offset=split.skipped.start)
        _read(before, source, sink, on_rows, limiter, seen)
        if seen.next_offset is not None:  # None: the log begins with the batch to skip
            seen.end(before)
        if seen.limit_reached:
            return seen
        split = replace(split, start_offset=split.skipped.stop)
        seen.next_offset = split.start_offset
    _read(split, source, sink, on_rows, limiter, seen)
    seen.end(split)
    return seen


def _read(
    split: Split,
    source: LogSource,
    sink: Callable[[LogRecords], None],
    on_rows: Callable[[int], None] | None,
    limiter: Limiter,
    seen: ReadProgress,
) -> None:
    if split.stop_offset <= split.start_offset:
        return
    batches = source.read(split)
    try:
        for records in batches:
            window = _within(split, records, seen.next_offset)
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


def _within(split: Split, records: LogRecords, expected: int | None) -> LogRecords:
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
    stop = min(following, split.stop_offset)
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
