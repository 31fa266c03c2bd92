"""Rewrites data files of one bucket into new ones: live rows only, sorted. Runs on executors.

Of a primary-key table, the new files also have the rows that the round writes. The rows are sorted
by key, so that bounds of files and row groups exclude some of them from look-ups and scans. Of a
log table, the rows are in the order of their offsets, if the lake stores these, and otherwise in
the order of the files.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence, Set
from dataclasses import replace
from itertools import chain
from pathlib import Path

import pyarrow as pa

from sluice.errors import ClaimLost, SluiceError, SplitFailed
from sluice.failpoints import failpoint
from sluice.iceberg_rules.layout import Role, system_roles
from sluice.lake.iceberg.deletes.earlier_marks import POSITION_BYTES
from sluice.lake.iceberg.deletes.live_rows import LINEAGE, LiveRows
from sluice.lake.parquet.reader import LakeReader
from sluice.lake.parquet.writer import FileTarget, ParquetFiles, WriteOptions
from sluice.quantities import byte_size, counted
from sluice.rounds.copy.key_runs import KeySet
from sluice.rounds.copy.sorted_rows import SortedRows
from sluice.rounds.upkeep.compaction import why_too_long
from sluice.rounds.values.lake_files import Compaction, DataFile, LiveFile, WrittenCompaction
from sluice.rounds.values.limits import TimeLeft
from sluice.rounds.values.reasons import reason_of

_KEY_COPIES = 4
"""The keys of equality deletes are hashed, sorted and compared."""
_KEY_BYTES = 48
"""A key needs at least so many bytes for that, however well its file is compressed."""
CANNOT_COMPACT = (OSError, pa.ArrowException, ValueError, ImportError, MemoryError, SluiceError)


class _TimeOver(Exception):
    """The round's deadline passed during the compaction."""


class Compactor:
    """Rewrites the files of one compaction. Used by one thread.

    Memory: ``memory_bytes`` for rows, as much for the positions and keys that delete rows, and a
    row group.
    """

    def __init__(
        self,
        compaction: Compaction,
        schema: pa.Schema,
        key_names: Sequence[str],
        target: FileTarget,
        options: WriteOptions,
        reader: LakeReader,
        with_default: Set[int] = frozenset(),
    ) -> None:
        """:param schema: the lake's columns, with Iceberg's field ids.
        :param key_names: the key columns; none for a log table.
        :param with_default: as of :class:`LiveRows`.
        """
        self._compaction, self._memory_bytes = compaction, compaction.memory_bytes
        if compaction.as_vectors:  # rows have ids
            schema = pa.schema([*schema, *LINEAGE])
        self._schema, self._keys = schema, tuple(key_names)
        roles = system_roles(schema.names)
        self._order = tuple(name for name, role in roles.items() if role is Role.OFFSET)
        self._rows = LiveRows(schema, key_names, reader, with_default)
        options = replace(options, target_file_bytes=compaction.file_bytes)
        self._out = ParquetFiles(replace(target, prefix=f"{target.prefix}-compacted"), options)
        self._spilled_bytes = self._peak_bytes = 0

    def run(
        self,
        own: Sequence[DataFile],
        changed: Callable[[], KeySet | None],
        time_left: TimeLeft,
    ) -> WrittenCompaction:
        """Rewrites the files, or says why not. Then nothing is left of it.

        :param own: files with the rows that the split has written.
        :param changed: returns the keys that the round changes: their earlier rows are left out.
        :raises ClaimLost: the round was cancelled.
        """
        started_s, started_cpu_s = time.perf_counter(), time.thread_time()
        why = self._compaction.bucket.unusable or self._compaction.bucket.not_rewritable
        files: tuple[DataFile, ...] = ()
        try:
            why = why or self._too_many() or why_too_long(self._compaction, time_left.left_s())
            if not why:
                failpoint("round.compaction.before")
                files = self._rewrite(own, changed(), time_left)
                failpoint("round.compaction.after")
        except ClaimLost:
            self.abort()
            raise
        except _TimeOver:
            why = "the round's time limit was reached"
        except CANNOT_COMPACT as error:  # others may have deleted a file meanwhile
            why = reason_of(error).text
        if why:
            self.abort()
        counts = self._rows.counts
        size_bytes = self._compaction.size_bytes + sum(file.size_bytes for file in own)
        return WrittenCompaction(
            () if why else tuple(file.path for file in self._compaction.files),
            files,
            () if why else tuple(own),
            why,
            bytes_read=size_bytes if counts.rows else 0,
            dead_rows=counts.dead_rows,
            spilled_bytes=self._spilled_bytes,
            memory_bytes=self._peak_bytes,
            seconds=time.perf_counter() - started_s,
            cpu_seconds=time.thread_time() - started_cpu_s,
        )

    def abort(self) -> None:
        """Deletes all files that were written."""
        self._out.abort()

    def _too_many(self) -> str:
        """Why the bucket's deletes do not fit into memory; empty if they do."""
        bucket = self._compaction.bucket
        paths, rows = {file.path for file in self._compaction.files}, self._compaction.rows
        marks = sum(one.rows for one in bucket.marks if one.data_file in (None, *paths))
        marks = min(marks, rows)  # only positions in the chosen files are kept
        positions_max = self._memory_bytes // POSITION_BYTES
        keys = sum(max(one.size_bytes * _KEY_COPIES, one.rows * _KEY_BYTES) for one in bucket.keys)
        if marks <= positions_max and keys <= self._memory_bytes:
            return ""
        what = counted(marks, "deleted row") if marks > positions_max else "equality deletes"
        return (
            f"{what} of its files need more memory than tiering.changes_memory_bytes,"
            f" {byte_size(self._memory_bytes)}"
        )

    def _rewrite(
        self, own: Sequence[DataFile], changed: KeySet | None, time_left: TimeLeft
    ) -> tuple[DataFile, ...]:
        files = self._compaction.files
        dead = self._rows.dead_rows(files, self._compaction.bucket, changed)
        new = [LiveFile(one.path, one.rows, one.size_bytes, 0) for one in own]
        names = self._keys or (() if _in_order(files) else self._order)
        with SortedRows(
            self._schema,
            names,
            memory_limit_bytes=self._memory_bytes,
            spill_dir=Path(self._compaction.spill_dir or tempfile.gettempdir()),
        ) as ordered:
            try:
                for rows in chain(self._rows.read(files, dead), self._rows.read(new, None)):
                    if time_left.is_over():
                        raise _TimeOver
                    if names:
                        ordered.add(rows)
                    else:
                        self._out.gather(pa.Table.from_batches([rows]))
                for table in ordered.sorted() if names else ():
                    if time_left.is_over():
                        raise _TimeOver
                    self._out.gather(table)
            finally:
                self._spilled_bytes = ordered.spilled_bytes
                self._peak_bytes = ordered.memory_bytes
        written = self._out.close()
        self._check(written, files, own)
        return written

    def _check(
        self,
        written: Sequence[DataFile],
        files: Sequence[LiveFile],
        own: Sequence[DataFile],
    ) -> None:
        """Checks that no row was lost on the way: a file has as many as the lake says.

        :raises SplitFailed: the counts differ.
        """
        counts = self._rows.counts
        expected = sum(file.rows for file in files) + sum(file.rows for file in own)
        found = sum(file.rows for file in written)
        if counts.rows != expected or found != counts.rows - counts.dead_rows:
            raise SplitFailed(
                f"a compaction read {counts.rows:,} rows and wrote {found:,}, but its files have"
                f" {expected:,} rows, and {counts.dead_rows:,} of them were deleted"
            )


def _in_order(files: Sequence[LiveFile]) -> bool:
    """Whether each file of a log table begins behind the end of the one before."""
    ends = [_offset(file, 1) for file in files]
    starts = [_offset(file, 0) for file in files]
    return all(
        end is not None and start is not None and end < start
        for end, start in zip(ends, starts[1:], strict=False)
    )


def _offset(file: LiveFile, side: int) -> int | None:
    [bounds] = file.bounds or ((None, None),)
    found = bounds[side]
    return None if found is None else int.from_bytes(found, "little", signed=True)
