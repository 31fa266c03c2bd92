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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from sluice.errors import LakeTableMismatch, UnsupportedType
from sluice.lake.arrow import arrow_schema, to_lake
from sluice.lake.compactor import Compactor
from sluice.lake.file_systems import FileSystems
from sluice.lake.key_deletes import KeyDeletes
from sluice.lake.lake_reader import LakeReader
from sluice.lake.parquet_files import FileTarget, ParquetFiles, WriteOptions
from sluice.lake.small_files import storage_errors
from sluice.model import LAKE_COLUMNS, TableBucket
from sluice.rounds.lake_files import (
    NO_COMPACTION,
    DataFile,
    WrittenCompaction,
    WrittenDeletes,
)
from sluice.rounds.limits import TimeLeft
from sluice.rounds.types import CHANGES_MEMORY_BYTES, LogRecords, Split

_BUCKET = LAKE_COLUMNS[0]


@dataclass(frozen=True, slots=True)
class ParquetWriterFactory:
    """Makes writers on executors; picklable. ``schema`` is the lake's schema JSON."""

    schema: str
    folders: Mapping[TableBucket, str]
    write_id: str
    options: WriteOptions
    files: FileSystems = dataclasses.field(default_factory=FileSystems)
    """Opens the storage of the folders."""

    def __call__(self, split: Split, task: int = 0) -> ParquetSplitWriter:
        return ParquetSplitWriter(self, split, task)


def bucket_file_prefix(bucket: int, task: int, write_id: str) -> str:
    """The prefix of file names, as in Iceberg's OutputFileFactory."""
    return f"{bucket:05d}-{task}-{write_id}"


def target_of(factory: ParquetWriterFactory, split: Split, task: int = 0) -> FileTarget:
    """The folder and the names of a split's files.

    :raises LakeNotWritable: no installed library supports the storage.
    """
    folder, bucket = factory.folders[split.bucket], split.bucket.bucket
    prefix = bucket_file_prefix(bucket, task, factory.write_id) + split.file_suffix
    with storage_errors(f"write {folder}", factory.files):
        factory.files.open(f"{folder}/{prefix}")
    return FileTarget(factory.files, folder, prefix, (*split.partition_values, str(bucket)))


def key_schema_of(factory: ParquetWriterFactory) -> pa.Schema:
    """The key columns of a table, with Iceberg's field ids."""
    schema = json.loads(factory.schema)
    return _key_schema(schema, arrow_schema(schema))


class ParquetSplitWriter:
    """Writes one split to files of rows and of deletes. Used by one thread."""

    def __init__(self, factory: ParquetWriterFactory, split: Split, task: int = 0) -> None:
        self._options = factory.options
        self._bucket = split.bucket.bucket
        schema = json.loads(factory.schema)
        self._schema = arrow_schema(schema)
        self._key_schema = _key_schema(schema, self._schema)
        target = target_of(factory, split, task)
        self._data = ParquetFiles(target, factory.options)
        keyed, compaction = split.keyed, split.compaction
        self._deletes = KeyDeletes(
            self._key_schema,
            target,
            factory.options,
            None if keyed is None else keyed.lookup,
            CHANGES_MEMORY_BYTES if keyed is None else keyed.memory_bytes,
            compaction,
        )
        self._compactor: Compactor | None = None
        if compaction is not None:
            self._compactor = Compactor(
                compaction,
                self._schema,
                self._key_schema.names,
                target,
                factory.options,
                LakeReader(factory.files),
                {field["id"] for field in schema["fields"] if "initial-default" in field},
            )
        self._removed: frozenset[str] = frozenset()
        self._pending: list[LogRecords] = []
        self._pending_rows = 0
        self._pending_bytes = 0

    def write(self, records: LogRecords) -> None:
        """Writes the rows of one log batch.

        :raises LakeNotWritable: the storage refuses, or is full.
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
        """Writes rows of a table with a primary key, with ``__offset`` and ``__timestamp``.

        :raises LakeNotWritable: the storage refuses, or is full.
        :raises UnsupportedType: a value does not fit the lake's type.
        """
        _check_columns(rows, self._schema)
        for group, gathered in self._in_groups(rows, self._schema):
            if gathered:
                self._data.gather(group)
            else:  # a gathered slice would keep the complete table in memory
                self._data.write_group(group)

    def delete(self, keys: pa.Table) -> None:
        """Deletes the rows of earlier commits with these keys.

        :raises LakeNotWritable: the storage refuses, or is full.
        """
        for group, gathered in self._in_groups(keys, self._key_schema):
            self._deletes.add(group, gathered=gathered)

    def compact(self, own: Sequence[DataFile], time_left: TimeLeft) -> WrittenCompaction:
        """Rewrites the files of the split's compaction, with its own rows; call after ``close``.

        :param own: the files with its own rows.
        :raises ClaimLost: the round was cancelled.
        """
        if self._compactor is None:
            return NO_COMPACTION
        if self._deletes.too_many_keys:
            return WrittenCompaction(why_not=self._deletes.too_many_keys)
        written = self._compactor.run(own, self._deletes.changed_keys, time_left)
        self._removed = frozenset(written.removed)
        return written

    def close_deletes(self) -> WrittenDeletes:
        """Looks up the rows of the deleted keys, and finishes the files that delete them.

        :raises LakeNotWritable: the storage refuses, or is full.
        """
        return self._deletes.close(self._removed)

    def close(self) -> tuple[DataFile, ...]:
        """Finishes the last files and returns all files.

        :raises LakeNotWritable: the storage refuses, or is full.
        """
        self._write_pending()
        return self._data.close()

    def abort(self) -> None:
        """Deletes all files of this writer."""
        self._pending.clear()
        self._data.abort()
        self._deletes.abort()
        if self._compactor is not None:
            self._compactor.abort()

    def _in_groups(self, rows: pa.Table, schema: pa.Schema) -> Iterator[tuple[pa.Table, bool]]:
        """The rows in the lake's types, by row group; and whether a group may be gathered."""
        groups = list(_groups(rows, self._options))
        for group in groups:
            yield _in_lake_types(group, self._system(group), schema), len(groups) == 1

    def _system(self, rows: pa.Table) -> dict[str, Any]:
        return {_BUCKET: pa.array(np.full(rows.num_rows, self._bucket, dtype=np.int32))}

    def _write_pending(self) -> None:
        if not self._pending:
            return
        table = _with_system_columns(self._pending, self._bucket, self._schema)
        self._pending.clear()
        self._pending_rows = self._pending_bytes = 0
        self._data.write_group(table)


def _key_schema(schema: dict[str, Any], columns: pa.Schema) -> pa.Schema:
    """The schema of equality deletes: the identifier fields of the lake's schema."""
    ids = set(schema.get("identifier-field-ids", ()))
    names = [field["name"] for field in schema["fields"] if field["id"] in ids]
    return pa.schema([columns.field(name) for name in names])


def _groups(rows: pa.Table, options: WriteOptions) -> Iterator[pa.Table]:
    """Splits rows into slices of at most one row group."""
    if rows.num_rows == 0:
        return
    row_bytes = max(1, rows.nbytes // rows.num_rows)
    step = max(1, min(options.row_group_rows, options.row_group_bytes // row_bytes))
    for start in range(0, rows.num_rows, step):
        yield rows.slice(start, step)


def _with_system_columns(pending: list[LogRecords], bucket: int, schema: pa.Schema) -> pa.Table:
    """One table of all gathered batches in the lake's types, with system columns."""
    rows = pa.Table.from_batches([records.batch for records in pending])
    if rows.num_rows < 1_000 * len(pending):
        rows = rows.combine_chunks()
    counts = [records.batch.num_rows for records in pending]
    offsets = [
        np.arange(r.base_offset, r.base_offset + n, dtype=np.int64)
        for r, n in zip(pending, counts, strict=True)
    ]
    stamps = np.array([r.timestamp_ms for r in pending], dtype=np.int64) * 1000
    system = {
        "__bucket": pa.array(np.full(rows.num_rows, bucket, dtype=np.int32)),
        "__offset": pa.chunked_array(offsets),
        "__timestamp": pa.array(np.repeat(stamps, counts)).view(pa.timestamp("us", tz="UTC")),
    }
    _check_columns(rows, schema)
    return _in_lake_types(rows, system, schema)


def _in_lake_types(rows: pa.Table, system: Mapping[str, Any], schema: pa.Schema) -> pa.Table:
    """Casts rows and separate system columns to the lake's schema.

    :raises UnsupportedType: names the column.
    """
    columns = []
    for field in schema:
        column = system[field.name] if field.name in system else rows.column(field.name)
        try:
            columns.append(to_lake(column, field.type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
            raise UnsupportedType(
                f"column {field.name}: a {column.type} value does not fit the lake's type"
                f" {field.type}: {error}"
            ) from error
    return pa.Table.from_arrays(columns, schema=schema)


def _check_columns(rows: pa.Table, schema: pa.Schema) -> None:
    """Checks that no value is dropped: a column that the lake lacks must contain only nulls.

    This holds for a column that was added after the round was planned, because rows below the stop
    offsets have no value in it.

    :raises LakeTableMismatch: names the column.
    """
    expected = set(schema.names) - set(LAKE_COLUMNS)
    for name in rows.schema.names:
        known = name in expected or name in LAKE_COLUMNS
        if not known and rows.column(name).null_count < rows.num_rows:
            raise LakeTableMismatch(
                f"the log has values in column {name}, which the lake table lacks. The next round"
                " adds the column"
            )
    if missing := expected - set(rows.schema.names):
        raise LakeTableMismatch(f"the log lacks columns {sorted(missing)} of the lake table")
