"""Copies one split from the log to data files. Runs on executors."""

from __future__ import annotations

import contextlib
import logging
import time
import traceback
from collections.abc import Callable, Iterable
from dataclasses import replace

from sluice.clock import Clock, SystemClock
from sluice.errors import CorruptRecord, LakeNotWritable, SluiceError, SplitFailed
from sluice.masking import mask
from sluice.model import Reason
from sluice.rounds.copy.keyed import copy_keyed
from sluice.rounds.copy.log_ranges import read_log_range
from sluice.rounds.values.limits import Limiter, TimeLeft
from sluice.rounds.values.ports import LogSource, SplitWriter, SplitWriterFactory
from sluice.rounds.values.reasons import reason_of
from sluice.rounds.values.types import Split, SplitFailure, SplitResult

_LOG = logging.getLogger(__name__)


def copy_split(
    split: Split,
    source: LogSource,
    make_writer: SplitWriterFactory,
    *,
    task: int = 0,
    on_rows: Callable[[int], None] | None = None,
    clock: Clock | None = None,
    secrets: Iterable[str] = (),
    check: Callable[[], None] | None = None,
) -> SplitResult | SplitFailure:
    """Copies a split's log from start to stop, or until its limit is reached; never raises.

    Copies at least one batch, however late it starts, unless it is a later part of a window. A
    split that fails deletes its files.
    Memory: the buffers of source and writer, whatever the size of the bucket, plus
    ``keyed.memory_bytes`` for a table with a primary key.

    :param secrets: values to mask in the reason of a failure: ``Config.secrets()``.
    :param check: raises ClaimLost once the round was cancelled.
    """
    writer: SplitWriter | None = None
    try:
        writer = make_writer(split, task)
        limiter = Limiter(split.limit, clock or SystemClock())
        time_left = limiter.time_left(check)
        if not split.copies:
            return _rewrite(split, writer, time_left)
        if split.keyed is None:
            return _copy(split, source, writer, on_rows, limiter)
        return copy_keyed(split, source, writer, on_rows, limiter, time_left)
    except Exception as error:  # an exception would lose its type in transit to the driver
        if writer is not None:
            _abort(writer)
        reason = reason_of(error, secrets)
        if isinstance(error, LakeNotWritable):
            reason = replace(reason, retryable=True)
        if not isinstance(error, SluiceError):  # unexpected: the traceback helps
            trace = mask("".join(traceback.format_exception(error)), secrets)
            _LOG.error("bucket %s: an unexpected error:\n%s", split.bucket, trace)
        unreadable = None
        if isinstance(error, CorruptRecord) and "base_offset" in error.details:
            # The round's error names the bucket and the batch.
            unreadable, text = error.details["base_offset"], error.details["problem"]
            reason = Reason.from_text(text, secrets, kind=reason.kind, retryable=reason.retryable)
        return SplitFailure(
            split.bucket,
            reason,
            unreadable_offset=unreadable,
            part_number=split.part_number,
            is_rewrite=not split.copies,
        )


def _rewrite(split: Split, writer: SplitWriter, time_left: TimeLeft) -> SplitResult:
    """Rewrites the files of the split's compaction; copies nothing."""
    compacted = writer.compact((), time_left)
    stop = split.stop_offset
    return SplitResult(
        split.bucket, compacted.files, stop, 0, 0, -1, compacted=compacted, is_rewrite=True
    )


def _copy(
    split: Split,
    source: LogSource,
    writer: SplitWriter,
    on_rows: Callable[[int], None] | None,
    limiter: Limiter,
) -> SplitResult:
    started = time.perf_counter()
    seen = read_log_range(split, source, writer.write, on_rows, limiter)
    before = time.perf_counter()
    files = writer.close()
    ended = time.perf_counter()
    write_s = seen.write_s + ended - before
    written = sum(file.rows for file in files)
    if written != seen.rows:
        raise SplitFailed(
            f"bucket {split.bucket}: {seen.rows} rows were read, but the files have {written}"
        )
    return SplitResult(
        split.bucket,
        files,
        seen.end(split),
        seen.rows,
        seen.bytes_read,
        seen.max_timestamp_ms,
        {"read": ended - started - write_s, "write": write_s},
        seen.limit_reached,
        part_number=split.part_number,
        begin_offset=seen.begin_offset,
    )


def _abort(writer: SplitWriter) -> None:
    with contextlib.suppress(Exception):  # the first error is the one to report
        writer.abort()
