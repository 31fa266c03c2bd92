"""Copies one split of a table with a primary key: the last change of each key.

Rows and deletes of one commit have the same sequence number, so a delete does not affect rows of
its own commit. Therefore the log range is first reduced to the last change of each key. A row of
the initial snapshot or scan is written only if the log range does not change its key.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from sluice.errors import CorruptRecord, SplitFailed
from sluice.model import COMMIT_TIMESTAMP, LOG_OFFSET
from sluice.rounds.copy.last_changes import LastChanges
from sluice.rounds.copy.log_ranges import ReadProgress, read_log_range
from sluice.rounds.values.limits import Limiter, TimeLeft
from sluice.rounds.values.ports import BucketRows, KeyedSource, KeyedWriter, LogSource, SplitWriter
from sluice.rounds.values.types import KeyedSplitOptions, LogRecords, Split, SplitResult, StartMode

UNKNOWN_OFFSET = -1
"""Offset, and timestamp in milliseconds, of rows that do not come from the log."""


def copy_keyed(
    split: Split,
    source: LogSource,
    writer: SplitWriter,
    on_rows: Callable[[int], None] | None,
    limiter: Limiter,
    time_left: TimeLeft,
) -> SplitResult:
    """Copies the rows of a snapshot or scan, if the split starts with one, and the log after them.

    The rows are opened first, because they determine the start offset of the log range. A limit
    never cuts them; it cuts the log range, as in any split. The files of the split's compaction are
    rewritten at the end, with its own rows.

    :param time_left: for the compaction.
    :raises SluiceError: why the split could not be copied; files that were written remain.
    """
    assert split.keyed is not None
    if not (isinstance(source, KeyedSource) and isinstance(writer, KeyedWriter)):
        raise TypeError(f"{source!r} or {writer!r} does not support primary keys")
    if split.keyed.lookup is not None and split.keyed.lookup.keys_of:
        return _only_deletes(split, writer)
    with ExitStack() as stack:
        begins = split.keyed.start_mode in (StartMode.KV_SNAPSHOT, StartMode.SCAN)
        opened: AbstractContextManager[BucketRows | None] = nullcontext()
        if begins:
            opened = source.rows(split)
        copying = _Copy(split, stack.enter_context(opened), writer, on_rows)
        stack.callback(copying.close)
        return copying.run(source, limiter, time_left)


def _only_deletes(split: Split, writer: KeyedWriter) -> SplitResult:
    """Looks up the keys of equality deletes again; copies nothing."""
    deleted = writer.close_deletes()
    return SplitResult(split.bucket, deleted.files, split.stop_offset, 0, 0, -1, deleted=deleted)


class _Copy:
    """The state of one ``copy_keyed`` call."""

    def __init__(
        self,
        split: Split,
        first: BucketRows | None,
        writer: KeyedWriter,
        on_rows: Callable[[int], None] | None,
    ) -> None:
        assert split.keyed is not None
        self._keyed: KeyedSplitOptions = split.keyed
        self._first, self._writer, self._on_rows = first, writer, on_rows
        start = split.start_offset if first is None else first.log_offset
        self._window = replace(split, start_offset=start, stop_offset=max(start, split.stop_offset))
        self._changes: LastChanges | None = None
        self._rows = self._deletes = 0
        self._first_bytes = 0
        self._write_s = 0.0

    def run(self, source: LogSource, limiter: Limiter, time_left: TimeLeft) -> SplitResult:
        started = time.perf_counter()
        window = self._window
        seen = ReadProgress(window.start_offset)
        if window.start_offset < window.stop_offset:
            seen = read_log_range(window, source, self._add, self._on_rows, limiter)
        self._write_changes()
        if self._first is not None:
            self._write_first(self._first)
        before = time.perf_counter()
        own = self._writer.close()
        compacted = self._writer.compact(own, time_left)
        deleted = self._writer.close_deletes()
        ended = time.perf_counter()
        self._write_s += ended - before
        rows = sum(file.rows for file in own)
        if (rows, deleted.keys) != (self._rows, self._deletes):
            raise SplitFailed(
                f"bucket {window.bucket}: {self._rows} rows and {self._deletes} deletes were"
                f" written, but the files have {rows} and {deleted.keys}"
            )
        note = self._first.note if self._first is not None else ""
        files = compacted.files if compacted.removed else own
        return SplitResult(
            window.bucket,
            (*files, *deleted.files),
            seen.end(window),
            rows,
            seen.bytes_read + self._first_bytes,
            seen.max_timestamp_ms,
            {"read": ended - started - self._write_s, "write": self._write_s},
            seen.limit_reached,
            deleted,
            (note,) if note else (),
            compacted=compacted,
        )

    def close(self) -> None:
        if self._changes is not None:
            self._changes.close()

    def _add(self, records: LogRecords) -> None:
        if records.change_types is None:
            raise CorruptRecord.of_batch(
                f"bucket {self._window.bucket.name}",
                records.base_offset,
                "it has no change types, but the table has a primary key",
                bucket=self._window.bucket,
            )
        if records.batch.num_rows == 0:
            return
        if self._changes is None:
            self._changes = LastChanges(
                records.batch.schema,
                self._keyed.columns,
                memory_limit_bytes=self._keyed.memory_bytes,
                spill_dir=Path(self._keyed.spill_dir or tempfile.gettempdir()),
                known_empty=self._keyed.start_mode is not StartMode.INCREMENTAL,
            )
        self._changes.add(records)

    def _write_changes(self) -> None:
        if self._changes is None:
            return
        for part in self._changes.parts():
            before = time.perf_counter()
            self._writer.upsert(part.upserts)
            self._writer.delete(part.delete_keys)
            self._rows += part.upserts.num_rows
            self._deletes += part.delete_keys.num_rows
            self._write_s += time.perf_counter() - before
            del part  # frees its memory before the next one is made

    def _write_first(self, first: BucketRows) -> None:
        """Writes the initial rows, except those whose keys the log range changes."""
        batches = self._counted(first)
        for batch in batches if self._changes is None else self._changes.unchanged_rows(batches):
            if batch.num_rows == 0:
                continue
            before = time.perf_counter()
            self._writer.upsert(_of_no_log(batch))
            self._rows += batch.num_rows
            self._write_s += time.perf_counter() - before

    def _counted(self, first: BucketRows) -> Iterator[pa.RecordBatch]:
        for batch in first.batches():
            self._first_bytes += batch.nbytes
            if self._on_rows is not None:
                self._on_rows(batch.num_rows)
            yield batch


def _of_no_log(batch: pa.RecordBatch) -> pa.Table:
    """Rows with the offset and the timestamp that Fluss gives to snapshot rows."""
    unknown = np.full(batch.num_rows, UNKNOWN_OFFSET, dtype=np.int64)
    stamps = pa.array(unknown * 1000).view(pa.timestamp("us", tz="UTC"))
    rows = pa.Table.from_batches([batch])
    rows = rows.append_column(LOG_OFFSET, pa.array(unknown))
    return rows.append_column(COMMIT_TIMESTAMP, stamps)
