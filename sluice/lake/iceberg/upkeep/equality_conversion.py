"""Finds the rows that equality deletes delete, and writes their positions instead.

Readers that know no equality deletes can read the table then, and scans no longer compare each row
with each delete. Memory of one bucket: the keys of some delete files, the positions, and one batch
of keys. Several buckets may be converted at once, on threads or executors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sluice.errors import LakeNotWritable, LakeTableMismatch, SluiceError
from sluice.lake.iceberg.deletes.earlier_marks import POSITION_BYTES, Positions, united
from sluice.lake.iceberg.deletes.live_rows import EqualityDeletes, names_by_id
from sluice.lake.iceberg.deletes.position_deletes import (
    earlier_count,
    write_position_files,
    write_vector_file,
)
from sluice.lake.iceberg.write.split_writer import ParquetWriterFactory, key_schema_of, target_of
from sluice.lake.parquet.reader import LakeReader
from sluice.quantities import byte_size, counted
from sluice.rounds.upkeep.conversion import Converted, ConvertedBucket, NotConverted
from sluice.rounds.values.lake_files import BucketFiles, LiveFile, StoredKeys
from sluice.rounds.values.reasons import reason_of
from sluice.rounds.values.types import Split

_BATCH_ROWS = 128 * 1024
_KEY_COPIES, _KEY_BYTES = 8, 56
"""Keys in memory have several times the bytes of their file, and are hashed and sorted: that takes
so many bytes each, however well the file is compressed."""


_CANNOT_CONVERT = (OSError, ValueError, ImportError, MemoryError, SluiceError)


@dataclass(frozen=True, slots=True)
class BucketConversion:
    """The conversion of one bucket's equality deletes: a work item, which can be pickled."""

    bucket: BucketFiles
    split: Split
    """Which bucket it is."""
    factory: ParquetWriterFactory
    """Knows the bucket's folder, the table's schema, and how its storage is reached."""
    as_vectors: bool
    memory_bytes: int
    """For the keys of this bucket, and for its positions."""

    def convert(self, task: int = 0) -> Converted:
        """Converts the oldest equality deletes: as many as memory may hold.

        :param task: a number in the names of the files, unique to this execution.
        """
        try:
            return _Conversion(self, task).run()
        except _CANNOT_CONVERT as error:
            return NotConverted(reason_of(error), isinstance(error, LakeNotWritable))


def oldest_keys(keys: Sequence[StoredKeys], memory_bytes: int) -> tuple[StoredKeys, ...]:
    """The first of these equality deletes, as many as memory may hold.

    :raises LakeTableMismatch: not even the oldest file fits.
    """
    found: list[StoredKeys] = []
    needed = 0
    for one in keys:
        needed += max(one.size_bytes * _KEY_COPIES, one.rows * _KEY_BYTES)
        if needed > memory_bytes:
            break
        found.append(one)
    if not found:
        raise LakeTableMismatch(
            f"equality deletes {keys[0].path} need more memory than tiering.changes_memory_bytes,"
            f" {byte_size(memory_bytes)}"
        )
    return tuple(found)


class _Conversion:
    """One conversion while it runs. Used by one thread."""

    def __init__(self, work: BucketConversion, task: int) -> None:
        self.bucket, self.as_vectors = work.bucket, work.as_vectors
        self.memory_bytes = work.memory_bytes
        self._options = work.factory.options
        self._schema = key_schema_of(work.factory)
        self._target = target_of(work.factory, work.split, task)
        self._reader = LakeReader(work.factory.files)
        self._bytes_read = 0

    def run(self) -> ConvertedBucket:
        """:raises OSError, ValueError, ImportError: a file cannot be opened.
        :raises LakeFileUnreadable: a file is damaged.
        :raises LakeTableMismatch: why the bucket cannot be converted.
        :raises LakeNotWritable: the storage refuses, or is full.
        """
        if why := self.bucket.unusable or self.bucket.not_rewritable:
            raise LakeTableMismatch(why)
        keys = oldest_keys(self.bucket.keys, self.memory_bytes)
        positions = self._find(keys)
        rows = sum(map(len, positions.values()))
        if not positions:
            return ConvertedBucket(keys, bytes_read=self._bytes_read)
        if self.as_vectors:
            written = write_vector_file(positions, self.bucket, self._reader, self._target)
        else:
            count_max = self.memory_bytes // POSITION_BYTES
            written = write_position_files(
                positions, self.bucket, self._reader, self._target, self._options, count_max
            )
        size_bytes = self._bytes_read + written.bytes_read
        return ConvertedBucket(keys, written.files, written.replaced, rows, size_bytes)

    def _find(self, keys: Sequence[StoredKeys]) -> Positions:
        deletes = EqualityDeletes(keys, self._schema, self._reader)
        self._bytes_read += sum(one.size_bytes for one in keys)
        newest = max(one.sequence for one in keys)
        older = [file for file in self.bucket.files if file.sequence < newest]
        left = self.memory_bytes // POSITION_BYTES
        if self.as_vectors:
            left -= earlier_count(self.bucket.marks, {file.path for file in older})
        found: Positions = {}
        for file, source in self._reader.open_all(older):
            with self._reader.reading("data file", file.path), pq.ParquetFile(source) as opened:
                positions = self._positions(file, opened, deletes)
            self._bytes_read += file.key_bytes
            if positions:
                found[file.path] = united(positions)
                left -= len(found[file.path])
            if left < 0:
                limit = counted(self.memory_bytes // POSITION_BYTES, "position")
                raise LakeTableMismatch(
                    f"more than {limit} need more memory than tiering.changes_memory_bytes,"
                    f" {byte_size(self.memory_bytes)}"
                )
        return found

    def _positions(
        self, file: LiveFile, opened: pq.ParquetFile, deletes: EqualityDeletes
    ) -> list[np.ndarray]:
        names = names_by_id(self._schema, opened.schema_arrow, file.path)
        found, start = [], 0
        for batch in opened.iter_batches(_BATCH_ROWS, columns=names, use_threads=False):
            columns = [
                batch.column(name).cast(one.type)
                for name, one in zip(names, self._schema, strict=True)
            ]
            rows = pa.RecordBatch.from_arrays(columns, schema=self._schema)
            hits = np.flatnonzero(deletes.has(file, rows))
            if len(hits):
                found.append(hits + start)
            start += rows.num_rows
        return found
