"""Writes the rows of one split as Parquet files that Iceberg accepts as its own.

See docs/fluss/iceberg.md#data-files

Memory of one writer: the gathered row group, at most ``row_group_bytes`` of Arrow data plus one
batch. While a group is written: casts of columns whose lake type differs (at most the same size
again) and one encoded column. In total about twice ``row_group_bytes`` and two batches, whatever
the size of the bucket. No code handles single rows.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from sluice.errors import UnsupportedType
from sluice.iceberg_rules.layout import PartField
from sluice.iceberg_rules.matched_schema import WrittenColumn
from sluice.lake.iceberg.deletes.key_deletes import KeyDeletes
from sluice.lake.iceberg.write.compactor import Compactor
from sluice.lake.iceberg.write.partitioned_files import PartitionedFiles
from sluice.lake.iceberg.write.written_columns import WrittenColumns
from sluice.lake.parquet.reader import LakeReader
from sluice.lake.parquet.writer import FileTarget, ParquetFiles, WriteOptions
from sluice.lake.storage.file_systems import FileSystems
from sluice.lake.storage.small_files import storage_errors
from sluice.model import TableBucket
from sluice.rounds.values.lake_files import (
    NO_COMPACTION,
    DataFile,
    WrittenCompaction,
    WrittenDeletes,
)
from sluice.rounds.values.limits import TimeLeft
from sluice.rounds.values.types import CHANGES_MEMORY_BYTES, LogRecords, Split


@dataclass(frozen=True, slots=True)
class BucketPlace:
    """Where the files of a bucket are."""

    folder: str
    """Its URI."""
    partition: tuple[str, ...]
    """One text for each field of the lake's partition spec."""


@dataclass(frozen=True, slots=True)
class ParquetWriterFactory:
    """Makes writers on executors; picklable."""

    schema: str
    """The lake's, as Iceberg's JSON."""
    columns: Sequence[WrittenColumn]
    """Those that writers write, besides the system columns; none if only deletes are written."""
    places: Mapping[TableBucket, BucketPlace]
    write_id: str
    options: WriteOptions
    files: FileSystems = dataclasses.field(default_factory=FileSystems)
    """Opens the storage of the places."""
    own: Sequence[PartField] = ()
    """All partition fields, if a user has chosen some of them."""

    def __call__(self, split: Split, task: int = 0) -> ParquetSplitWriter:
        return ParquetSplitWriter(self, split, task)


def bucket_file_prefix(bucket: int, task: int, write_id: str) -> str:
    """The prefix of file names, as in Iceberg's OutputFileFactory."""
    return f"{bucket:05d}-{task}-{write_id}"


def target_of(factory: ParquetWriterFactory, split: Split, task: int = 0) -> FileTarget:
    """The folder and the names of a split's files.

    :raises LakeNotWritable: no installed library supports the storage.
    """
    place = factory.places[split.bucket]
    prefix = bucket_file_prefix(split.bucket.bucket, task, factory.write_id) + split.file_suffix
    with storage_errors(f"write {place.folder}", factory.files):
        factory.files.open(f"{place.folder}/{prefix}")
    return FileTarget(factory.files, place.folder, prefix, place.partition)


def key_schema_of(factory: ParquetWriterFactory) -> pa.Schema:
    """The key columns of a table, with Iceberg's field ids."""
    return WrittenColumns(json.loads(factory.schema), factory.columns).keys


class ParquetSplitWriter:
    """The ``KeyedWriter`` of one split: files of rows and of deletes. Used by one thread."""

    def __init__(self, factory: ParquetWriterFactory, split: Split, task: int = 0) -> None:
        self._options = factory.options
        self._bucket = split.bucket.bucket
        schema = json.loads(factory.schema)
        self._columns = columns = WrittenColumns(schema, factory.columns)
        target = target_of(factory, split, task)
        self._data: ParquetFiles | PartitionedFiles = (
            PartitionedFiles(target, factory.options, factory.own)
            if factory.own
            else ParquetFiles(target, factory.options)
        )
        keyed, compaction = split.keyed, split.compaction
        self._deletes = KeyDeletes(
            columns.keys,
            target,
            factory.options,
            None if keyed is None else keyed.lookup,
            CHANGES_MEMORY_BYTES if keyed is None else keyed.memory_bytes,
            compaction,
        )
        self._compactor: Compactor | None = None
        self._why_not_compacted = ""
        if compaction is not None:
            try:
                columns.check_lineage(as_vectors=compaction.as_vectors)
                self._compactor = Compactor(
                    compaction,
                    columns.all_columns(),
                    columns.keys.names,
                    target,
                    factory.options,
                    LakeReader(factory.files),
                    {field["id"] for field in schema["fields"] if "initial-default" in field},
                )
            except UnsupportedType as error:
                self._why_not_compacted = error.message
        self._removed: frozenset[str] = frozenset()
        self._pending: list[LogRecords] = []
        self._pending_rows = 0
        self._pending_bytes = 0

    def write(self, records: LogRecords) -> None:
        """See ``SplitWriter``.

        :raises UnsupportedType: a value does not fit the lake's type.
        """
        rows = records.batch.num_rows
        if rows == 0:
            return
        self._pending.append(records)
        self._pending_rows += rows
        self._pending_bytes += records.batch.nbytes
        options = self._options
        if (
            self._pending_rows >= options.row_group_rows
            or self._pending_bytes >= options.row_group_bytes
        ):
            self._write_pending()

    def upsert(self, rows: pa.Table) -> None:
        """See ``KeyedWriter``.

        :raises UnsupportedType: a value does not fit the lake's type.
        """
        self._columns.check(rows)
        for group, gathered in self._in_groups(
            rows, lambda group: self._columns.of_rows(group, self._bucket)
        ):
            if gathered and isinstance(self._data, ParquetFiles):
                self._data.gather(group)
            else:  # a gathered slice would keep the complete table in memory
                self._data.write_group(group)

    def delete(self, keys: pa.Table) -> None:
        for group, gathered in self._in_groups(keys, self._columns.of_keys):
            self._deletes.add(group, gathered=gathered)

    def compact(self, own: Sequence[DataFile], time_left: TimeLeft) -> WrittenCompaction:
        if self._why_not_compacted:
            return WrittenCompaction(why_not=self._why_not_compacted)
        if self._compactor is None:
            return NO_COMPACTION
        if self._deletes.too_many_keys:
            return WrittenCompaction(why_not=self._deletes.too_many_keys)
        written = self._compactor.run(own, self._deletes.changed_keys, time_left)
        self._removed = frozenset(written.removed)
        return written

    def close_deletes(self) -> WrittenDeletes:
        return self._deletes.close(self._removed)

    def close(self) -> tuple[DataFile, ...]:
        self._write_pending()
        return self._data.close()

    def abort(self) -> None:
        self._pending.clear()
        self._data.abort()
        self._deletes.abort()
        if self._compactor is not None:
            self._compactor.abort()

    def _in_groups(
        self, rows: pa.Table, in_lake_types: Callable[[pa.Table], pa.Table]
    ) -> Iterator[tuple[pa.Table, bool]]:
        """The rows in the lake's types, by row group; and whether a group may be gathered."""
        groups = list(_groups(rows, self._options))
        for group in groups:
            yield in_lake_types(group), len(groups) == 1

    def _write_pending(self) -> None:
        if not self._pending:
            return
        table = self._columns.of_log(self._pending, self._bucket)
        self._pending.clear()
        self._pending_rows = self._pending_bytes = 0
        self._data.write_group(table)


def _groups(rows: pa.Table, options: WriteOptions) -> Iterator[pa.Table]:
    """Splits rows into slices of at most one row group."""
    if rows.num_rows == 0:
        return
    row_bytes = max(1, rows.nbytes // rows.num_rows)
    step = max(1, min(options.row_group_rows, options.row_group_bytes // row_bytes))
    for start in range(0, rows.num_rows, step):
        yield rows.slice(start, step)
