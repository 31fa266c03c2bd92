"""Writes Parquet files of a target size one after the other; each appears once it is complete."""

from __future__ import annotations

import contextlib
import uuid
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from sluice.failpoints import failpoint
from sluice.lake.parquet.encodings import DELTA, delta_columns, dictionary_columns
from sluice.lake.storage import operations as storage
from sluice.lake.storage.file_systems import FileSystems
from sluice.lake.storage.small_files import storage_errors
from sluice.rounds.values.lake_files import DataFile, FileContent

_COMPRESSIONS = {"uncompressed": "none", "lz4_raw": "lz4"}
_SUFFIXES = {
    FileContent.ROWS: "",
    FileContent.EQUALITY_DELETES: "-deletes",  # as Iceberg's own writers name them
    FileContent.POSITION_DELETES: "-positions",
}


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Options for writing files, from the table's properties and the configuration."""

    target_file_bytes: int
    compression: str = "zstd"
    compression_level: str = ""
    delta_encoding: bool = False
    """Whether every reader of the table knows DELTA_BINARY_PACKED."""
    row_group_rows: int = 512 * 1024
    row_group_bytes: int = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class FileTarget:
    """The folder and the names of a writer's files."""

    files: FileSystems
    uri: str
    """The folder's URI, as in Iceberg's metadata."""
    prefix: str
    partition: tuple[str | None, ...]


class ParquetFiles:
    """Writes Arrow tables to data files or delete files. Used by one thread.

    Rows are gathered up to a row group: at most ``row_group_bytes`` plus one table.
    """

    def __init__(
        self, target: FileTarget, options: WriteOptions, content: FileContent = FileContent.ROWS
    ) -> None:
        self._target, self._options, self._content = target, options, content
        self._pending: list[pa.Table] = []
        self._pending_rows = 0
        self._pending_bytes = 0
        self._open: _OpenFile | None = None
        self._files: list[DataFile] = []

    def gather(self, table: pa.Table) -> None:
        """Adds rows; waits for more rows if the row group would be small.

        :raises LakeNotWritable: the storage refuses, or is full.
        """
        self._pending.append(table)
        self._pending_rows += table.num_rows
        self._pending_bytes += table.nbytes
        options = self._options
        if (
            self._pending_rows >= options.row_group_rows
            or self._pending_bytes >= options.row_group_bytes
        ):
            self._write_gathered()

    def write_group(self, table: pa.Table) -> None:
        """Writes rows as one row group.

        A file ends before the keys end with which it was opened: the rows go to the next one.

        :raises LakeNotWritable: the storage refuses, or is full.
        """
        if self._open is not None and not self._open.has_newest_keys():
            self._finish_file()
        if self._open is None:
            number, suffix = len(self._files) + 1, _SUFFIXES[self._content]
            name = f"{self._target.prefix}-{number:05d}{suffix}.parquet"
            self._open = _OpenFile(self._target, name, table, self._options)
        self._open.write(table)
        if self._open.size_bytes() >= self._options.target_file_bytes:
            self._finish_file()

    def close(self) -> tuple[DataFile, ...]:
        """Finishes the last file and returns all files.

        :raises LakeNotWritable: the storage refuses, or is full.
        """
        self._write_gathered()
        self._finish_file()
        return tuple(self._files)

    def abort(self) -> None:
        """Deletes all files that were written."""
        self._pending.clear()
        doomed = [file.path for file in self._files]
        if self._open is not None:
            doomed.append(self._open.abandon())
            self._open = None
        self._files.clear()
        self._target.files.try_to_delete(doomed)

    def _write_gathered(self) -> None:
        if not self._pending:
            return
        table = pa.concat_tables(self._pending)
        if table.num_rows < 1_000 * len(self._pending):
            table = table.combine_chunks()
        self._pending.clear()
        self._pending_rows = self._pending_bytes = 0
        self.write_group(table)

    def _finish_file(self) -> None:
        if self._open is None:
            return
        failpoint("round.copy.file.before")
        self._files.append(self._open.finish(self._target.partition, self._content))
        self._open = None  # only now, so that abort() deletes a file that cannot be finished
        failpoint("round.copy.file.after")


class _OpenFile:
    """A Parquet file that is being written."""

    def __init__(
        self, target: FileTarget, name: str, first: pa.Table, options: WriteOptions
    ) -> None:
        self._files, self._keys = target.files, target.files.newest()
        self._uri = f"{target.uri}/{name}"
        self._rows = 0
        self._writer: Any = None
        with storage_errors(f"write {self._uri}", self._files):
            self._fs, self._final = fs, final = self._files.open(self._uri)
            self._temporary = storage.needs_rename(fs)
            path = final.rpartition("/")[0]
            aside = f"{path}/.{name}.{uuid.uuid4().hex}.tmp"
            self._path = aside if self._temporary else final
            level = int(options.compression_level) if options.compression_level else None
            codec = _COMPRESSIONS.get(options.compression, options.compression)
            if self._temporary:
                fs.create_dir(path, recursive=True)
            self._sink = fs.open_output_stream(self._path)
            try:
                dictionaries = dictionary_columns(first)
                deltas: list[str] = []
                if options.delta_encoding:
                    deltas = delta_columns(first, dictionaries, codec, level)
                self._writer = pq.ParquetWriter(
                    self._sink,
                    first.schema,
                    compression=codec,
                    compression_level=level,
                    use_dictionary=dictionaries,
                    column_encoding=dict.fromkeys(deltas, DELTA) or None,
                    store_schema=False,
                    store_decimal_as_integer=True,
                    version="2.6",
                )
            except BaseException:
                self._files.try_to_delete([self.abandon()])
                raise

    def has_newest_keys(self) -> bool:
        """Whether the storage's keys are still those that the file was opened with."""
        return self._files.newest() is self._keys

    def write(self, table: pa.Table) -> None:
        with storage_errors(f"write {self._uri}", self._files):
            self._writer.write_table(table, row_group_size=table.num_rows)
        self._rows += table.num_rows

    def size_bytes(self) -> int:
        return int(self._sink.tell())

    def finish(self, partition: tuple[str | None, ...], content: FileContent) -> DataFile:
        with storage_errors(f"write {self._uri}", self._files):
            self._writer.close()
            size = self.size_bytes()
            self._sink.close()
            storage.sync(self._fs, self._path)
            if self._temporary:
                self._fs.move(self._path, self._final)
        return DataFile(self._uri, self._rows, size, partition, content)

    def abandon(self) -> str:
        """Closes the file and returns the URI of its remains."""
        if self._writer is not None:
            with contextlib.suppress(OSError, ValueError, pa.ArrowException):
                self._writer.close()
            self._writer.is_open = False  # prevents a second close when it is freed
        with contextlib.suppress(OSError, ValueError, pa.ArrowException):
            self._sink.close()
        return f"{self._uri.rpartition('/')[0]}/{self._path.rpartition('/')[2]}"
