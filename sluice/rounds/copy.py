"""Copies one split from the log to data files. Runs on executors."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace

from sluice.clock import Clock, SystemClock
from sluice.errors import LakeNotWritable, SluiceError, SplitFailed
from sluice.rounds.limits import Limiter
from sluice.rounds.ports import LogSource, SplitWriter, SplitWriterFactory
from sluice.rounds.reasons import failure_of
from sluice.rounds.types import LogRecords, Split, SplitFailure, SplitResult

_UNKNOWN_TIMESTAMP = -1


def copy_split(
    split: Split,
    source: LogSource,
    make_writer: SplitWriterFactory,
    *,
    task: int = 0,
    on_rows: Callable[[int], None] | None = None,
    clock: Clock | None = None,
) -> SplitResult | SplitFailure:
    """Copies the split's log from start to stop, or to where its limit is reached; never raises.

    However late it begins, it copies one batch at least. A split that fails leaves no file behind.
    Memory: what source and writer hold, whatever the size of the bucket.
    """
    writer: SplitWriter | None = None
    try:
        writer = make_writer(split, task)
        limiter = Limiter(split.limit, clock or SystemClock())
        return _copy(split, source, writer, on_rows, limiter)
    except Exception as error:  # executors answer, they do not raise: a raise would lose the type
        if writer is not None:
            _abort(writer)
        failure = failure_of(error)
        retryable = failure.retryable or isinstance(error, LakeNotWritable)
        kind = failure.kind if isinstance(error, SluiceError) else type(error).__name__
        return SplitFailure(split.bucket, kind, failure.reason, retryable)


@dataclass(slots=True)
class _Seen:
    """How far a copy has come."""

    next_offset: int | None
    rows: int = 0
    bytes_read: int = 0
    max_timestamp_ms: int = _UNKNOWN_TIMESTAMP
    write_s: float = 0.0
    cut: str = ""


def _copy(
    split: Split,
    source: LogSource,
    writer: SplitWriter,
    on_rows: Callable[[int], None] | None,
    limiter: Limiter,
) -> SplitResult:
    started = time.perf_counter()
    seen = _Seen(split.start_offset if split.start_offset >= 0 else None)
    _read(split, source, writer, on_rows, limiter, seen)
    end = seen.next_offset
    if end is None or (end < split.stop_offset and not seen.cut):
        raise SplitFailed(
            f"bucket {split.bucket}: its log was read to offset {end}, and the plan says"
            f" {split.stop_offset}"
        )
    before = time.perf_counter()
    files = writer.close()
    ended = time.perf_counter()
    write_s = seen.write_s + ended - before
    written = sum(file.rows for file in files)
    if written != seen.rows:
        raise SplitFailed(f"bucket {split.bucket}: {seen.rows} rows read, {written} in files")
    return SplitResult(
        split.bucket,
        files,
        end if seen.cut else split.stop_offset,
        seen.rows,
        seen.bytes_read,
        seen.max_timestamp_ms,
        {"read": ended - started - write_s, "write": write_s},
        seen.cut,
    )


def _read(
    split: Split,
    source: LogSource,
    writer: SplitWriter,
    on_rows: Callable[[int], None] | None,
    limiter: Limiter,
    seen: _Seen,
) -> None:
    """Copies batches until the split's stop, or the first one after which a limit is reached."""
    batches = source.read(split)
    try:
        for records in batches:
            window = _within(split, records, seen.next_offset)
            before = time.perf_counter()
            writer.write(window)
            seen.write_s += time.perf_counter() - before
            advanced = seen.next_offset is None or window.next_offset > seen.next_offset
            seen.next_offset = window.next_offset
            seen.rows += window.batch.num_rows
            seen.bytes_read += records.size_bytes
            seen.max_timestamp_ms = max(seen.max_timestamp_ms, records.timestamp_ms)
            if on_rows is not None:
                on_rows(window.batch.num_rows)
            if advanced and window.next_offset < split.stop_offset:
                seen.cut = limiter.reached(seen.bytes_read)
                if seen.cut:
                    return
    finally:
        if isinstance(batches, Generator):
            batches.close()  # what it has fetched ahead goes at once


def _within(split: Split, records: LogRecords, expected: int | None) -> LogRecords:
    """The batch's rows inside the window; a batch is cut only where another tool ended in one.

    :raises SplitFailed: if offsets are missing before the batch.
    """
    base, following = records.base_offset, records.next_offset
    if expected is not None and base > expected:
        raise SplitFailed(
            f"bucket {split.bucket}: the log jumps from offset {expected} to {base}:"
            " records are missing"
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


def _abort(writer: SplitWriter) -> None:
    with contextlib.suppress(Exception):  # the first error is the one to report
        writer.abort()
