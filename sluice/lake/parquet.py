"""Writes the rows of one split as Parquet files that Iceberg takes as its own (part 6.3).

Memory of one writer: the gathered row group, at most ``row_group_bytes`` of Arrow data and one
batch more; while a group is written, casts of columns whose lake type differs (at most as much
again) and one encoded column. So about twice ``row_group_bytes`` and two batches, whatever the
size of the bucket. Rows are never touched one by one.
"""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sluice.errors import LakeNotWritable, LakeTableMismatch, UnsupportedType
from sluice.failpoints import failpoint
from sluice.lake import storage
from sluice.lake.arrow import arrow_schema, to_lake
from sluice.model import LAKE_COLUMNS, TableBucket
from sluice.rounds.types import DataFile, LogRecords, Split

_SAMPLE_ROWS = 20_000
_DICTIONARY_RATIO = 4  # a column gets a dictionary if its sample has a value 4 times on average
_COMPRESSIONS = {"uncompressed": "none", "lz4_raw": "lz4"}


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """How files are written: from the table's properties and the configuration."""

    target_file_bytes: int
    compression: str = "zstd"
    compression_level: str = ""
    row_group_rows: int = 512 * 1024
    row_group_bytes: int = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class ParquetWriterFactory:
    """Makes writers on executors; pickles. ``schema`` is the lake's schema JSON."""

    schema: str
    spec_names: tuple[str, ...]
    folders: Mapping[TableBucket, str]
    write_id: str
    options: WriteOptions
    storage_properties: Mapping[str, str]

    def __call__(self, split: Split, task: int = 0) -> ParquetSplitWriter:
        return ParquetSplitWriter(self, split, task)


def bucket_file_prefix(bucket: int, task: int, write_id: str) -> str:
    """File names without counter, as Iceberg's OutputFileFactory forms them."""
    return f"{bucket:05d}-{task}-{write_id}"


class ParquetSplitWriter:
    """Writes one split to one or more Parquet files. Used by one thread."""

    def __init__(self, factory: ParquetWriterFactory, split: Split, task: int = 0) -> None:
        self._options = factory.options
        self._bucket = split.bucket.bucket
        self._schema = arrow_schema(json.loads(factory.schema))
        self._folder = factory.folders[split.bucket]
        self._prefix = bucket_file_prefix(self._bucket, task, factory.write_id)
        self._partition = (*split.partition_values, str(self._bucket))
        with _storage_errors(self._folder):
            self._fs, self._path = storage.resolve(self._folder, factory.storage_properties)
        self._pending: list[LogRecords] = []
        self._pending_rows = 0
        self._pending_bytes = 0
        self._open: _OpenFile | None = None
        self._files: list[DataFile] = []

    def write(self, records: LogRecords) -> None:
        """Takes the rows of one log batch.

        :raises LakeNotWritable: the storage refuses, or is full.
        :raises UnsupportedType: a value that the lake's type cannot hold.
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
            self._write_group()

    def close(self) -> tuple[DataFile, ...]:
        """Finishes the last file and answers all of them.

        :raises LakeNotWritable: the storage refuses, or is full.
        """
        self._write_group()
        self._finish_file()
        return tuple(self._files)

    def abort(self) -> None:
        """Deletes what this writer has written."""
        self._pending.clear()
        doomed = [f"{self._path}/{file.path.rpartition('/')[2]}" for file in self._files]
        if self._open is not None:
            doomed.append(self._open.abandon())
            self._open = None
        self._files.clear()
        for path in doomed:
            with contextlib.suppress(OSError):
                self._fs.delete_file(path)

    def _write_group(self) -> None:
        if not self._pending:
            return
        table = _with_system_columns(self._pending, self._bucket, self._schema)
        self._pending.clear()
        self._pending_rows = self._pending_bytes = 0
        if self._open is None:
            name = f"{self._prefix}-{len(self._files) + 1:05d}.parquet"
            self._open = _OpenFile(self._fs, self._path, self._folder, name, table, self._options)
        self._open.write(table)
        if self._open.size_bytes() >= self._options.target_file_bytes:
            self._finish_file()

    def _finish_file(self) -> None:
        if self._open is None:
            return
        failpoint("round.copy.file.before")
        self._files.append(self._open.finish(self._partition))
        self._open = None  # only now: what cannot be finished is abandoned
        failpoint("round.copy.file.after")


class _OpenFile:
    """A Parquet file that is being written."""

    def __init__(
        self, fs: Any, path: str, folder: str, name: str, first: pa.Table, options: WriteOptions
    ) -> None:
        self._fs = fs
        self._uri = f"{folder}/{name}"
        self._final = f"{path}/{name}"
        self._aside = storage.renames(fs)
        self._path = f"{path}/.{name}.{uuid.uuid4().hex}.tmp" if self._aside else self._final
        self._rows = 0
        self._writer: Any = None
        with _storage_errors(self._uri):
            level = int(options.compression_level) if options.compression_level else None
            if self._aside:
                fs.create_dir(path, recursive=True)
            self._sink = fs.open_output_stream(self._path)
            try:
                self._writer = pq.ParquetWriter(
                    self._sink,
                    first.schema,
                    compression=_COMPRESSIONS.get(options.compression, options.compression),
                    compression_level=level,
                    use_dictionary=dictionary_columns(first),
                    store_schema=False,
                    store_decimal_as_integer=True,
                    version="2.6",
                )
            except BaseException:
                path = self.abandon()
                with contextlib.suppress(OSError):
                    fs.delete_file(path)
                raise

    def write(self, table: pa.Table) -> None:
        with _storage_errors(self._uri):
            self._writer.write_table(table, row_group_size=table.num_rows)
        self._rows += table.num_rows

    def size_bytes(self) -> int:
        return int(self._sink.tell())

    def finish(self, partition: tuple[str, ...]) -> DataFile:
        with _storage_errors(self._uri):
            self._writer.close()
            size = self.size_bytes()
            self._sink.close()
            storage.sync(self._fs, self._path)
            if self._aside:
                self._fs.move(self._path, self._final)
        return DataFile(self._uri, self._rows, size, partition)

    def abandon(self) -> str:
        """Closes what is open and answers the path of what is left."""
        if self._writer is not None:
            with contextlib.suppress(OSError, ValueError, pa.ArrowException):
                self._writer.close()
            self._writer.is_open = False  # it has had its chance: no second one when it is freed
        with contextlib.suppress(OSError, ValueError, pa.ArrowException):
            self._sink.close()
        return self._path


def dictionary_columns(table: pa.Table) -> list[str]:
    """Columns worth a dictionary: those whose values repeat in the first rows.

    A dictionary costs a hash per value and pays only where values repeat; Parquet itself gives one
    up only after a megabyte of distinct values.
    """
    sample = table.slice(0, _SAMPLE_ROWS)
    limit = max(1, sample.num_rows // _DICTIONARY_RATIO)
    found = []
    for field, column in zip(sample.schema, sample.columns, strict=True):
        if pa.types.is_nested(field.type) or pa.types.is_boolean(field.type):
            continue
        if field.name == "__offset" or pc.count_distinct(column).as_py() > limit:
            continue
        found.append(field.name)
    return found


def _with_system_columns(pending: list[LogRecords], bucket: int, schema: pa.Schema) -> pa.Table:
    """One table of all gathered batches in the lake's types, system columns included."""
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
    columns = []
    for field in schema:
        column = system[field.name] if field.name in system else rows.column(field.name)
        try:
            columns.append(to_lake(column, field.type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
            raise UnsupportedType(
                f"column {field.name}: {column.type} does not fit the lake's {field.type}: {error}"
            ) from error
    return pa.Table.from_arrays(columns, schema=schema)


def _check_columns(rows: pa.Table, schema: pa.Schema) -> None:
    """No value may be left behind: a column that the lake lacks must be empty.

    That is so when a column was added after the plan: rows below its stop offsets have none.

    :raises LakeTableMismatch: names the column.
    """
    wanted = set(schema.names) - set(LAKE_COLUMNS)
    for name in rows.schema.names:
        if name not in wanted and rows.column(name).null_count < rows.num_rows:
            raise LakeTableMismatch(
                f"the log has values in column {name}, which the lake table lacks: the next round"
                " adds it"
            )
    if missing := wanted - set(rows.schema.names):
        raise LakeTableMismatch(f"the log lacks columns {sorted(missing)} of the lake table")


@contextlib.contextmanager
def _storage_errors(uri: str) -> Iterator[None]:
    try:
        yield
    except (OSError, pa.ArrowException, ValueError, ImportError) as error:
        raise LakeNotWritable(f"write {uri}: {type(error).__name__}: {error}") from error
