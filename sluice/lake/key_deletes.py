"""Deletes the earlier rows of a split's keys: by position, or by equality deletes.

The keys are always written as equality deletes. If all rows were found, these are spare: the commit
has the positions, and takes the equality deletes only if others rewrite the data files too often.

Memory: the keys, and then the positions, each up to the memory for the changes of a bucket; and the
key columns of one row group. What would need more is deleted by equality.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

import pyarrow as pa
import pyarrow.parquet as pq

from sluice.errors import CorruptRecord, LakeNotWritable, SluiceError
from sluice.lake.lake_reader import LakeReader
from sluice.lake.parquet_files import FileTarget, ParquetFiles, WriteOptions
from sluice.lake.position_deletes import (
    WrittenPositions,
    earlier_count,
    new_positions,
    write_position_file,
    write_vector_file,
)
from sluice.lake.position_finder import PositionFinder
from sluice.lake.storage import delete
from sluice.quantities import byte_size
from sluice.rounds.lake_files import (
    NO_DELETES,
    DataFile,
    FileContent,
    PositionLookup,
    WrittenDeletes,
)
from sluice.rounds.position_lookups import OFF, why_too_much
from sluice.rounds.reasons import reason_of

_KEY_COPIES = 4
"""A look-up needs the keys, their hashes, and copies to sort them."""
_POSITION_BYTES = 32
"""A position has 8 bytes, and is copied to be sorted and merged."""
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
        properties: Mapping[str, str],
    ) -> None:
        """:param schema: of the key columns, with Iceberg's field ids.
        :param properties: the catalog's properties, which configure access to its storage.
        """
        self._schema, self._target, self._options = schema, target, options
        self._lookup, self._properties = lookup, properties
        self._equality = ParquetFiles(target, options, FileContent.EQUALITY_DELETES)
        self._memory_bytes = memory_bytes
        self._kept: list[pa.Table] = []
        self._kept_bytes = 0
        self._keys = 0
        self._why_equality = "" if lookup is not None else OFF
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

    def close(self) -> WrittenDeletes:
        """Looks up the rows of the keys, and finishes the files that delete them.

        :raises LakeNotWritable: the storage refuses, or is full.
        """
        started_s = time.thread_time()
        spare = self._spare()
        if not spare:
            return NO_DELETES
        keys = sum(file.rows for file in spare)
        lookup = self._lookup
        if self._why_equality or lookup is None:
            return WrittenDeletes(keys, spare, why_equality=self._why_equality)
        try:
            written, files, size_bytes, why = self._by_position(lookup)
        except LakeNotWritable:
            raise
        except _CANNOT_READ as error:  # others may have deleted a file meanwhile
            why = f"the rows could not be looked up: {reason_of(error).text}"
            written, files, size_bytes = WrittenPositions(), 0, 0
        seconds = time.thread_time() - started_s
        if why:
            return WrittenDeletes(
                keys, spare, (), (), why, files_read=files, bytes_read=size_bytes, seconds=seconds
            )
        self._positions = written.files
        return WrittenDeletes(
            keys, written.files, written.replaced, spare, "", files, size_bytes, seconds
        )

    def abort(self) -> None:
        """Deletes all files of these deletes."""
        self._equality.abort()
        for file in self._positions:
            delete(file.path, self._properties)

    def _keep(self, keys: pa.Table) -> None:
        """Keeps keys for the look-up, as long as there is memory for them."""
        self._keys += keys.num_rows
        if self._why_equality:
            return
        self._kept.append(keys)
        self._kept_bytes += keys.nbytes
        if self._kept_bytes * _KEY_COPIES > self._memory_bytes:
            self._kept.clear()
            self._why_equality = (
                f"{self._keys:,} changed keys need more memory than tiering.changes_memory_bytes,"
                f" {byte_size(self._memory_bytes)}"
            )

    def _spare(self) -> tuple[DataFile, ...]:
        """The equality deletes; of a look-up that is repeated, those that it was made with."""
        if self._lookup is None or not self._lookup.keys_of:
            return self._equality.close()
        reader = LakeReader(self._properties)
        for file in self._lookup.keys_of:
            with pq.ParquetFile(reader.open(file.path, file.size_bytes)) as opened:
                self._keep(opened.read(use_threads=False).cast(self._schema))
        return self._lookup.keys_of

    def _by_position(self, lookup: PositionLookup) -> tuple[WrittenPositions, int, int, str]:
        """What was written, the files and bytes that were read; or why the look-up is too dear."""
        reader = LakeReader(self._properties)
        finder = PositionFinder(self._kept, self._schema, reader)
        files = [file for file in lookup.files.files if finder.may_have(file)]
        why = why_too_much(lookup, len(files), sum(file.key_bytes for file in files))
        if why:
            return WrittenPositions(), 0, 0, why
        keys = sum(table.num_rows for table in self._kept)
        count_max = self._memory_bytes // _POSITION_BYTES
        found = finder.find(files, count_max)
        self._kept.clear()
        bucket = lookup.files
        if why := self._too_many(found.count, count_max):
            return WrittenPositions(), found.files_read, found.bytes_read, why
        positions, earlier_bytes = new_positions(found.by_file, keys, bucket, reader, count_max)
        size_bytes = found.bytes_read + earlier_bytes
        if not positions:
            return WrittenPositions(), found.files_read, size_bytes, ""
        if lookup.as_vectors:
            count = sum(map(len, positions.values()))
            count += earlier_count(bucket.marks, positions.keys())
            if why := self._too_many(count, count_max):
                return WrittenPositions(), found.files_read, size_bytes, why
            written = write_vector_file(positions, bucket, reader, self._target, self._properties)
        else:
            written = write_position_file(
                positions, bucket, reader, self._target, self._options, count_max
            )
        return written, found.files_read, size_bytes + written.bytes_read, ""

    def _too_many(self, count: int, count_max: int) -> str:
        """Why these positions are not looked up; empty if there is memory for them."""
        if count <= count_max:
            return ""
        return (
            f"over {count_max:,} positions need more memory than tiering.changes_memory_bytes,"
            f" {byte_size(self._memory_bytes)}: compact the table"
        )
