"""Files as rows of a schema. They can be read again and again, in bounded memory."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import click
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet

from sluice.cli.rows.values import cast, expected, unfit, value_at
from sluice.cli.terminal.errors import InvalidFile
from sluice.did_you_mean import did_you_mean
from sluice.errors import InvalidTable, PartitionNotExists, PartitionSpecInvalid, RecordTooLarge

BLOCK_BYTES = 1024 * 1024
"""How much of a text file is read at once; no row of it may be longer."""
ROW_ERRORS = (InvalidTable, PartitionNotExists, PartitionSpecInvalid, RecordTooLarge)
"""Errors about rows that do not fit a table. Other errors do not concern a row."""
_FIRST_ROWS = 64
_BATCH_ROWS = 64 * 1024
_BATCH_BYTES = 16 * 1024 * 1024
_TOO_LARGE = (pa.ArrowMemoryError, pa.ArrowCapacityError)
"""Errors that no row causes."""


class RowFile(ABC):
    """A file of rows. Every error names the place, the column, the value and what is expected."""

    def __init__(self, path: Path) -> None:
        """:raises click.BadParameter: it is no file that can be read twice.
        :raises InvalidFile: it is empty.
        """
        if not path.is_file():
            raise click.BadParameter(f"{path} is not a regular file; a pipe cannot be read twice")
        self.path = path
        self.names: list[str] = []
        """The columns of the file; empty if each row names its own."""
        self.header_place = str(path)
        """Where the file names its columns."""
        self.rows: int | None = None
        """The number of rows, if the file's metadata has it."""
        self.schema = pa.schema([])
        """The columns that are read, and what they are cast to."""
        self.numbered: Sequence[str] = ()
        """Columns that the server numbers, and so a file cannot have."""
        self._state = self._state_now()
        if not path.stat().st_size:
            raise InvalidFile(f"{path}: the file is empty")

    @abstractmethod
    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows with exactly the columns of the schema, cast without loss; the same each time.

        :raises InvalidFile: the first row that does not fit.
        """

    @abstractmethod
    def place(self, row: int) -> str:
        """The line or number of a row that is counted from 0, for an error message."""

    @abstractmethod
    def inferred(self) -> pa.Schema:
        """The names and types of all columns; those of text as the first megabyte suggests.

        :raises pa.ArrowException: :raises InvalidFile: they cannot be read.
        """

    def check_end(self) -> None:  # noqa: B027
        """:raises InvalidFile: the last row, which was read, is not complete."""

    def check_unchanged(self) -> None:
        """:raises InvalidFile: the file has changed since it was opened."""
        if self._state_now() != self._state:
            raise InvalidFile(f"{self.path}: the file was changed while it was read")

    def problem(self, row: int, reason: str) -> InvalidFile:
        """An error about a row, with its place."""
        return InvalidFile(f"{self.path}: {self.place(row)}: {reason}")

    def unknown(self, name: str) -> str:
        """Why a file cannot have a column that is not in the schema."""
        names = self.schema.names
        if name in self.numbered:
            return (
                f"the server numbers column {name}, so a file cannot have it: leave it out, or"
                f" write the others with --columns {','.join(names)}"
            )
        hint = did_you_mean(name, names) or f"; the columns are {', '.join(names)}"
        return f"the table has no column {name!r}{hint}"

    def cast(self, batch: pa.RecordBatch, row: int) -> pa.RecordBatch:
        """The columns of the schema. Only if one fails, single values are looked at.

        :param row: the batch's first one in the file.
        :raises InvalidFile: the first value that does not fit its column.
        """
        arrays = []
        for field in self.schema:
            given = batch.column(field.name)
            array = self._cast_column(given, field, row)
            if array.null_count and not field.nullable:
                at = pc.index(array.is_null(), True).as_py()
                raise self.problem(row + at, expected(field, None))
            arrays.append(array)
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _cast_column(self, given: pa.Array, field: pa.Field, row: int) -> pa.Array:
        try:
            return cast(given, field)
        except pa.ArrowNotImplementedError as error:
            reason = unfit(given.type, field)
            raise InvalidFile(f"{self.path}: column {field.name}: {reason}") from error
        except _TOO_LARGE as error:
            reason = f"column {field.name}: not enough memory for {len(given):,} rows: {error}"
            raise self.problem(row, reason) from error
        except pa.ArrowException as error:
            at = first_that_fails(len(given), lambda i, n: cast(given.slice(i, n), field))
            raise self.problem(row + at, expected(field, value_at(given, at))) from error

    def _state_now(self) -> tuple[int, ...]:
        try:
            found = self.path.stat()
        except FileNotFoundError:
            return ()
        return found.st_size, found.st_mtime_ns, found.st_ino, found.st_dev


class ParquetRows(RowFile):
    """A Parquet file. Memory: a batch of about 16 MiB, and of each column a buffer and a page."""

    def __init__(self, path: Path) -> None:
        """:raises InvalidFile: it is not a Parquet file."""
        super().__init__(path)
        try:
            with arrow_file(path) as source:
                self._footer = pa.parquet.read_metadata(source)
            self.names = self._footer.schema.to_arrow_schema().names
        except pa.ArrowException as error:
            reason = "the file is not Parquet, or it is cut off or damaged; copy it again"
            raise InvalidFile(f"{path}: {reason}: {error}") from error
        self.rows = int(self._footer.num_rows)

    def batches(self) -> Iterator[pa.RecordBatch]:
        row = 0
        buffer_bytes = min(BLOCK_BYTES, max(BLOCK_BYTES // 16, _BATCH_BYTES // len(self.names)))
        with (
            arrow_file(self.path) as source,
            pa.parquet.ParquetFile(source, pre_buffer=False, buffer_size=buffer_bytes) as file,
        ):
            for group in range(self._footer.num_row_groups):
                for batch in self._batches(file, group, row):
                    batch = self.cast(batch, row)
                    yield batch
                    row += batch.num_rows

    def _batches(
        self, file: pa.parquet.ParquetFile, group: int, row: int
    ) -> Iterator[pa.RecordBatch]:
        """Few rows at first: the footer does not say how large repeated values are."""
        count, names = _FIRST_ROWS, self.schema.names
        batches = file.iter_batches(count, row_groups=[group], columns=names)
        while True:
            try:
                batch = next(batches, None)
            except (pa.ArrowException, OSError) as error:
                reason = f"this row, or one soon after it, cannot be read: {error}"
                raise self.problem(row, reason) from error
            if batch is None:
                return
            yield batch
            row += batch.num_rows
            fitting = _BATCH_BYTES * batch.num_rows // max(_full_bytes(batch), 1)
            count = max(1, min(4 * count, fitting, _BATCH_ROWS))
            file.reader.set_batch_size(count)  # of the batches that follow

    def place(self, row: int) -> str:
        groups, end, group = self._footer.num_row_groups, 0, 0
        for group in range(groups):
            end += self._footer.row_group(group).num_rows
            if row < end:
                break
        return f"row {row + 1} (row group {group + 1} of {groups})"

    def inferred(self) -> pa.Schema:
        return self._footer.schema.to_arrow_schema().remove_metadata()


def _full_bytes(batch: pa.RecordBatch) -> int:
    """The memory of the rows, with the values of a dictionary as often as they are repeated."""
    columns = batch.columns
    return sum(c.dictionary_decode().nbytes if hasattr(c, "indices") else c.nbytes for c in columns)


def arrow_file(path: Path) -> pa.OSFile:
    """A file for Arrow to read. Arrow needs bytes for a name that is not UTF-8."""
    return pa.OSFile(os.fsencode(path))


def first_that_fails(rows: int, trial: Callable[[int, int], object]) -> int:
    """The first of ``rows`` rows that does not fit on its own; at least one does not.

    :param trial: a check of rows, the first one and their number; raises if one does not fit.
    :raises pa.ArrowException: memory is too small to check them.
    """
    start = 0
    while rows > 1:
        half = rows // 2
        try:
            trial(start, half)
        except _TOO_LARGE:
            raise
        except (pa.ArrowException, *ROW_ERRORS):
            rows = half
        else:
            start += half
            rows -= half
    return start
