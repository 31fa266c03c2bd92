"""Files as rows of a schema. They can be read again and again, in bounded memory."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import click
import google_crc32c
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet

from sluice.cli.rows.file_kinds import why_not_parquet
from sluice.cli.rows.file_values import cast, expected, unfit, value_at
from sluice.cli.terminal.errors import InvalidFile
from sluice.errors import (
    InvalidTable,
    PartitionNotExists,
    PartitionSpecInvalid,
    RecordTooLarge,
)

_FIRST_ROWS = 64
_BATCH_ROWS = 64 * 1024
_BATCH_BYTES = 16 * 1024 * 1024
_READ_BYTES = 1024 * 1024
ROW_ERRORS = (InvalidTable, PartitionNotExists, PartitionSpecInvalid, RecordTooLarge)
"""Errors about rows that do not fit a table. Other errors do not concern a row."""
_TOO_LARGE = (pa.ArrowMemoryError, pa.ArrowCapacityError)
"""Errors that no row causes."""
Trial = Callable[[int, int], object]
"""A check of rows: the first one and their number. Raises if one of them does not fit."""


class RowFile(ABC):
    """A file of rows. Every error names the place, the column, the value and what is expected."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        """:param schema: the columns that are read, and what they are cast to.

        :raises click.BadParameter: if it is no file that can be read twice.
        """
        if not path.is_file():
            raise click.BadParameter(f"{path} is not a regular file; a pipe cannot be read twice")
        self.path = path
        self.schema = schema
        self.names: Sequence[str] = ()
        """The columns of the file."""
        self.header_place = str(path)
        """Where the file names its columns."""
        self._state = self._state_now()
        self._checksum = 0

    @abstractmethod
    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows with exactly the columns of the schema, cast without loss; the same each time.

        :raises InvalidFile: the first row that does not fit.
        """

    @abstractmethod
    def place(self, row: int) -> str:
        """The line or number of a row that is counted from 0, for an error message."""

    @property
    def rows(self) -> int | None:
        """The number of rows, if the file's metadata has it."""
        return None

    def read_through(self) -> None:
        """Reads all bytes for the checksum, and checks that the last row is complete.

        :raises InvalidFile: the last row is not complete.
        """
        with self.path.open("rb") as file:
            while piece := file.read(_READ_BYTES):
                self._look_at(piece)

    @property
    def fingerprint(self) -> tuple[int, int]:
        """Size in bytes and CRC-32C of the content, once it was read through."""
        return self._state[0], self._checksum

    def change(self) -> InvalidFile | None:
        """An error if the file has changed since it was opened."""
        if self._state_now() == self._state:
            return None
        return InvalidFile(f"{self.path}: the file was changed while it was read")

    def check_unchanged(self) -> None:
        """:raises InvalidFile: if the file has changed since it was opened."""
        if error := self.change():
            raise error

    def problem(self, row: int, reason: str) -> InvalidFile:
        """An error about a row, with its place."""
        return InvalidFile(f"{self.path}: {self.place(row)}: {reason}")

    def _look_at(self, piece: bytes) -> None:
        self._checksum = google_crc32c.extend(self._checksum, piece)

    def _state_now(self) -> tuple[int, int, int, int]:
        try:
            found = self.path.stat()
        except FileNotFoundError:
            return -1, -1, -1, -1
        return found.st_size, found.st_mtime_ns, found.st_ino, found.st_dev

    def _cast(self, batch: pa.RecordBatch, row: int) -> pa.RecordBatch:
        """:param row: the batch's first one in the file."""
        arrays = []
        for field in self.schema:
            array = self._cast_column(batch.column(field.name), field, row)
            if array.null_count and not field.nullable:
                first = pc.index(array.is_null(), True).as_py()
                raise self.problem(row + first, expected(field, None))
            arrays.append(array)
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _cast_column(self, array: pa.Array, field: pa.Field, row: int) -> pa.Array:
        try:
            return cast(array, field)
        except pa.ArrowNotImplementedError as error:
            reason = unfit(array.type, field)
            raise InvalidFile(f"{self.path}: column {field.name}: {reason}") from error
        except _TOO_LARGE as error:
            reason = f"column {field.name}: not enough memory for {len(array):,} rows: {error}"
            raise self.problem(row, reason) from error
        except pa.ArrowException as error:
            at = first_that_fails(
                len(array), lambda start, count: cast(array.slice(start, count), field)
            )
            found = self._found(field.name, array, at, row + at)
            raise self.problem(row + at, expected(field, found)) from error

    def _found(self, name: str, values: pa.Array, at: int, row: int) -> object:  # noqa: ARG002
        """A value for an error message; text is shown as the file has it.

        :param at: its place in ``values``. :param row: the one in the file.
        """
        return value_at(values, at)


class ParquetRows(RowFile):
    """A Parquet file. Memory: a batch, and of each column a read buffer and a page.

    A batch takes about 16 MiB, estimated from the rows before it. The footer is no help, because a
    dictionary stores a repeated value only once.
    """

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        """:raises InvalidFile: it is not a Parquet file."""
        super().__init__(path, schema)
        try:
            with arrow_file(path) as source:
                self._footer = pa.parquet.read_metadata(source)
            self.names = self._footer.schema.to_arrow_schema().names
        except pa.ArrowException as error:
            raise InvalidFile(f"{path}: {why_not_parquet(path) or error}") from error
        groups = [self._footer.row_group(i) for i in range(self._footer.num_row_groups)]
        self._group_rows = [group.num_rows for group in groups]
        row_bytes = max((g.total_byte_size // max(g.num_rows, 1) for g in groups), default=0)
        self._most_rows = max(1, min(_BATCH_ROWS, _BATCH_BYTES // max(row_bytes, 1)))

    @property
    def rows(self) -> int:
        return int(self._footer.num_rows)

    def batches(self) -> Iterator[pa.RecordBatch]:
        row, count = 0, min(_FIRST_ROWS, self._most_rows)
        buffer_bytes = min(_READ_BYTES, max(_READ_BYTES // 16, _BATCH_BYTES // len(self.names)))
        with (
            arrow_file(self.path) as source,
            pa.parquet.ParquetFile(source, pre_buffer=False, buffer_size=buffer_bytes) as file,
        ):
            batches = file.iter_batches(count, columns=self.schema.names)
            while True:
                try:
                    batch = next(batches, None)
                except (pa.ArrowException, OSError) as error:
                    reason = f"this row, or one soon after it, cannot be read: {error}"
                    raise self.problem(row, reason) from error
                if batch is None:
                    return
                for part in _parts(batch):
                    yield self._cast(part, row)
                    row += part.num_rows
                fitting = _BATCH_BYTES * batch.num_rows // max(_full_bytes(batch), 1)
                count = max(1, min(4 * count, fitting, self._most_rows))
                file.reader.set_batch_size(count)  # of the batches that follow

    def place(self, row: int) -> str:
        group, before = 0, 0
        while group < len(self._group_rows) - 1 and row >= before + self._group_rows[group]:
            before += self._group_rows[group]
            group += 1
        return f"row {row + 1} (row group {group + 1} of {len(self._group_rows)})"


def arrow_file(path: Path) -> pa.OSFile:
    """A file for Arrow to read. Arrow needs bytes for a name that is not UTF-8."""
    return pa.OSFile(os.fsencode(path))


def _parts(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The rows in batches that are not too large, unless a single row is."""
    if batch.num_rows < 2 or _full_bytes(batch) <= 2 * _BATCH_BYTES:
        yield batch
        return
    half = batch.num_rows // 2
    yield from _parts(batch.slice(0, half))
    yield from _parts(batch.slice(half))


def _full_bytes(batch: pa.RecordBatch) -> int:
    """The memory that the rows take if dictionary indices are replaced by their values."""
    return sum(map(_column_bytes, batch.columns))


def _column_bytes(array: pa.Array) -> int:
    if not pa.types.is_dictionary(array.type):
        return int(array.nbytes)
    values, types = array.dictionary, pa.types
    is_text = types.is_string(values.type) or types.is_large_string(values.type)
    if is_text or types.is_binary(values.type) or types.is_large_binary(values.type):
        lengths = pc.binary_length(values).take(array.indices)
        return 8 * len(array) + (pc.sum(lengths).as_py() or 0)
    return len(array) * int(values.nbytes) // max(len(values), 1)


def first_that_fails(rows: int, trial: Trial) -> int:
    """The first of ``rows`` rows that does not fit on its own; at least one does not."""
    start = 0
    while rows > 1:
        half = rows // 2
        if succeeds(trial, start, half):
            start += half
            rows -= half
        else:
            rows = half
    return start


def succeeds(trial: Trial, start: int, count: int) -> bool:
    """Whether all of these rows fit.

    :raises pa.ArrowException: memory is too small to check them.
    """
    try:
        trial(start, count)
    except _TOO_LARGE:
        raise
    except (pa.ArrowException, *ROW_ERRORS):
        return False
    return True
