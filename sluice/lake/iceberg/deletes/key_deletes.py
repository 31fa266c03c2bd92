"""Deletes the earlier rows of a split's keys: by position, or by equality deletes.

The keys are always written as equality deletes. If all rows were found, these are spare: the commit
has the positions, and takes the equality deletes only if others rewrite the data files too often.

Memory: the keys, and then the positions, each up to the memory for the changes of a bucket; and the
key columns of one row group. What would need more is deleted by equality.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Set
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq

from sluice.errors import CorruptRecord, LakeNotWritable, SluiceError
from sluice.lake.iceberg.deletes.earlier_marks import POSITION_BYTES, Positions
from sluice.lake.iceberg.deletes.position_deletes import (
    WrittenPositions,
    earlier_count,
    new_positions,
    write_position_files,
    write_vector_file,
)
from sluice.lake.iceberg.deletes.position_finder import PositionFinder
from sluice.lake.parquet.reader import LakeReader
from sluice.lake.parquet.writer import FileTarget, ParquetFiles, WriteOptions
from sluice.quantities import byte_size
from sluice.rounds.copy.key_runs import KeySet
from sluice.rounds.plan.position_lookups import OFF, why_too_much
from sluice.rounds.values.lake_files import (
    NO_DELETES,
    BucketFiles,
    Compaction,
    DataFile,
    FileContent,
    PositionLookup,
    WrittenDeletes,
)
from sluice.rounds.values.reasons import reason_of

_LOG = logging.getLogger(__name__)
_OF_POSITIONS = (FileContent.POSITION_DELETES, FileContent.DELETION_VECTORS)
_KEY_COPIES = 4
"""A look-up needs the keys, their hashes, and copies to sort them."""
_CANNOT_READ = (
    OSError,
    pa.ArrowException,
    ValueError,
    ImportError,
    MemoryError,
    SluiceError,
    CorruptRecord,
)


class KeyDeletes:
    """The deletes of one split. Used by one thread."""

    def __init__(
        self,
        schema: pa.Schema,
        target: FileTarget,
        options: WriteOptions,
        lookup: PositionLookup | None,
        memory_bytes: int,
        compaction: Compaction | None = None,
    ) -> None:
        """:param schema: of the key columns, with Iceberg's field ids.
        :param compaction: what the split rewrites.
        """
        self._schema, self._target, self._options = schema, target, options
        self._lookup, self._compaction = lookup, compaction
        self._equality = ParquetFiles(target, options, FileContent.EQUALITY_DELETES)
        self._memory_bytes = memory_bytes
        self._kept: list[pa.Table] = []
        self._kept_bytes = 0
        self._keys = 0
        self.too_many_keys = ""
        """Why the keys are not kept: there is no memory for them. Empty: they are."""
        self._reader = LakeReader(target.files)
        self._finder: PositionFinder | None = None
        self._positions: tuple[DataFile, ...] = ()

    def add(self, keys: pa.Table, *, gathered: bool) -> None:
        """Adds keys in the lake's types.

        :param gathered: whether the keys share a row group with others.
        :raises LakeNotWritable: the storage refuses, or is full.
        """
        if gathered:
            self._equality.gather(keys)
        else:
            self._equality.write_group(keys)
        self._keep(keys)

    def changed_keys(self) -> KeySet | None:
        """All keys that were added, for a compaction; None if there are none.

        Only complete if not :attr:`too_many_keys`.
        """
        return self._found_by().keys if self._kept else None

    def close(self, removed: Set[str] = frozenset()) -> WrittenDeletes:
        """Looks up the rows of the keys, and finishes the files that delete them.

        :param removed: the data files that a compaction has rewritten: nothing is looked up there,
            and earlier positions in them are removed.
        :raises LakeNotWritable: the storage refuses, or is full.
        """
        started_s = time.thread_time()
        spare = self._spare()
        if not spare and not removed:
            return NO_DELETES
        keys = sum(file.rows for file in spare)
        written = WrittenDeletes(keys, spare, why_equality=self.too_many_keys)
        if self._lookup is None:
            written = replace(written, why_equality=OFF)
        elif not self.too_many_keys and keys:
            written = self._by_position(self._lookup, keys, spare, removed)
        if removed and (not keys or written.why_equality):
            written = self._without_marks(written, removed)
        self._positions = tuple(f for f in written.files if f.content in _OF_POSITIONS)
        return replace(written, seconds=time.thread_time() - started_s)

    def abort(self) -> None:
        """Deletes all files of these deletes."""
        self._equality.abort()
        self._target.files.try_to_delete(file.path for file in self._positions)

    def _keep(self, keys: pa.Table) -> None:
        """Keeps keys for the look-up, as long as there is memory for them."""
        self._keys += keys.num_rows
        if self.too_many_keys or (self._lookup is None and self._compaction is None):
            return
        self._kept.append(keys)
        self._kept_bytes += keys.nbytes
        if self._kept_bytes * _KEY_COPIES > self._memory_bytes:
            self._kept.clear()
            self.too_many_keys = (
                f"{self._keys:,} changed keys need more memory than tiering.changes_memory_bytes,"
                f" {byte_size(self._memory_bytes)}"
            )

    def _found_by(self) -> PositionFinder:
        if self._finder is None:
            self._finder = PositionFinder(self._kept, self._schema, self._reader)
        return self._finder

    def _spare(self) -> tuple[DataFile, ...]:
        """The equality deletes; of a look-up that is repeated, those that it was made with."""
        if self._lookup is None or not self._lookup.keys_of:
            return self._equality.close()
        for file in self._lookup.keys_of:
            with pq.ParquetFile(self._reader.open(file.path, file.size_bytes)) as opened:
                self._keep(opened.read(use_threads=False).cast(self._schema))
        return self._lookup.keys_of

    def _by_position(
        self, lookup: PositionLookup, keys: int, spare: tuple[DataFile, ...], removed: Set[str]
    ) -> WrittenDeletes:
        """The deletes by position; by equality, with the reason, if the look-up is too dear."""
        try:
            written, files, size_bytes, why = self._look_up(lookup, keys, removed)
        except LakeNotWritable:
            raise
        except _CANNOT_READ as error:  # others may have deleted a file meanwhile
            why = f"the rows could not be looked up: {reason_of(error).text}"
            written, files, size_bytes = WrittenPositions(), 0, 0
        found = WrittenDeletes(keys, written.files, written.replaced, spare)
        if why:
            found = WrittenDeletes(keys, spare, why_equality=why)
        return replace(found, files_read=files, bytes_read=size_bytes)

    def _look_up(
        self, lookup: PositionLookup, keys: int, removed: Set[str]
    ) -> tuple[WrittenPositions, int, int, str]:
        """What was written, the files and bytes that were read; or why the look-up is too dear."""
        finder, bucket = self._found_by(), lookup.files
        left = tuple(file for file in bucket.files if file.path not in removed)
        files = [file for file in left if finder.may_have(file)]
        why = why_too_much(lookup, len(files), sum(file.key_bytes for file in files))
        if why:
            return WrittenPositions(), 0, 0, why
        count_max = self._memory_bytes // POSITION_BYTES
        found = finder.find(files, count_max)
        self._kept.clear()
        self._finder = None
        if why := self._too_many(found.count, count_max):
            return WrittenPositions(), found.files_read, found.bytes_read, why
        positions, earlier_bytes = new_positions(
            found.by_file, keys, bucket, self._reader, count_max
        )
        size_bytes = found.bytes_read + earlier_bytes
        if not positions and not removed:
            return WrittenPositions(), found.files_read, size_bytes, ""
        if lookup.as_vectors:
            count = sum(map(len, positions.values()))
            count += earlier_count(bucket.marks, positions.keys())
            if why := self._too_many(count, count_max):
                return WrittenPositions(), found.files_read, size_bytes, why
        written = self._write(positions, bucket, removed, as_vectors=lookup.as_vectors)
        return written, found.files_read, size_bytes + written.bytes_read, ""

    def _write(
        self, positions: Positions, bucket: BucketFiles, removed: Set[str], *, as_vectors: bool
    ) -> WrittenPositions:
        if as_vectors:
            return write_vector_file(positions, bucket, self._reader, self._target, removed)
        count_max = self._memory_bytes // POSITION_BYTES
        return write_position_files(
            positions, bucket, self._reader, self._target, self._options, count_max, removed
        )

    def _without_marks(self, written: WrittenDeletes, removed: Set[str]) -> WrittenDeletes:
        """Removes earlier positions in files that were rewritten. They cost scans time, no more.

        :raises LakeNotWritable: the storage refuses, or is full.
        """
        assert self._compaction is not None
        bucket, as_vectors = self._compaction.bucket, self._compaction.as_vectors
        try:
            tidied = self._write({}, bucket, removed, as_vectors=as_vectors)
        except LakeNotWritable:
            raise
        except _CANNOT_READ as error:
            _LOG.warning("earlier positions stay: %s", reason_of(error).text)
            return written
        return replace(written, files=(*written.files, *tidied.files), replaced=tidied.replaced)

    def _too_many(self, count: int, count_max: int) -> str:
        """Why these positions are not looked up; empty if there is memory for them."""
        if count <= count_max:
            return ""
        return (
            f"over {count_max:,} positions need more memory than tiering.changes_memory_bytes,"
            f" {byte_size(self._memory_bytes)}: compact the table"
        )
