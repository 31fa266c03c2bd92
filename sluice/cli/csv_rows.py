"""A CSV file as rows of a wanted schema."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import click
import numpy as np
import pyarrow as pa
import pyarrow.csv

from sluice.cli.csv_lines import BOM, Lines, lines_of
from sluice.cli.file_values import INSTANT, expected, is_infinite
from sluice.cli.row_files import RowFile, first_that_fails, succeeds

CSV_NULLS = ("", "NA", "NULL", "null")
"""Without quotes; what stands in quotes is a value."""
BLOCK_BYTES = 1024 * 1024
"""How much of a CSV file is read at once; no row of it may be longer."""


class CsvRows(RowFile):
    """A CSV file with a header. Memory: some dozen blocks, which Arrow reads ahead."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        """:raises click.ClickException: if its header cannot be read."""
        super().__init__(path, schema)
        self._quotes = 0
        for lines in lines_of(path, BLOCK_BYTES):
            if lines.is_open:
                raise self._not_ended(lines)
            header = pa.csv.read_csv(pa.py_buffer(lines.text(0, 1) + b"\n"))
            self.names = header.schema.names
            self._has_rows = lines.count > 1 or path.stat().st_size > len(lines.data) + len(BOM)
            break
        else:
            raise click.ClickException(f"{path}: the file is empty, it lacks even a header")

    def batches(self) -> Iterator[pa.RecordBatch]:
        row = 0
        if not self._has_rows:  # which the reader takes for an error without a line end
            return
        try:
            for batch in self._as_read():
                yield self._cast(batch, row)
                row += batch.num_rows
        except pa.ArrowException as error:
            raise self._explained(row, error) from error
        except OSError as error:
            raise click.ClickException(f"{self.path}: {error}") from error

    def _as_read(self) -> Iterator[pa.RecordBatch]:
        """The rows as Arrow's reader makes them; floats as text from the first infinite one on.

        Arrow reads 1e400 as infinite, so the text must tell what is meant.
        """
        types, count = self._types(), 0
        while True:
            with self._open(types) as reader:
                for batch in itertools.islice(reader, count, None):  # the same ones each time
                    if any(is_infinite(column) for column in batch.columns):
                        reals = [n for n, kind in types.items() if pa.types.is_floating(kind)]
                        types |= dict.fromkeys(reals, pa.string())
                        break
                    yield batch
                    count += 1
                else:
                    return

    def _open(self, types: dict[str, pa.DataType]) -> pa.csv.CSVStreamingReader:
        return pa.csv.open_csv(
            self.path,
            read_options=pa.csv.ReadOptions(block_size=BLOCK_BYTES),
            parse_options=pa.csv.ParseOptions(newlines_in_values=True),
            convert_options=csv_options(types, self.schema.names),
        )

    def place(self, row: int) -> str:
        for lines in lines_of(self.path, BLOCK_BYTES):
            if row < lines.first_row + lines.count:
                return f"line {lines.line(row)}"
        raise ValueError(f"{self.path} has no row {row}")

    def read_through(self) -> None:
        super().read_through()
        if self._quotes % 2:
            for lines in lines_of(self.path, BLOCK_BYTES):
                if lines.is_open:
                    raise self._not_ended(lines)

    def _found(self, name: str, values: pa.Array, at: int, row: int) -> object:
        for lines in lines_of(self.path, BLOCK_BYTES):
            if row < lines.first_row + lines.count:
                found = _Converter(lines, 0, self.names, {}, 0)
                return found.value(row - lines.first_row, name)
        return super()._found(name, values, at, row)

    def _look_at(self, piece: bytes) -> None:
        super()._look_at(piece)
        self._quotes += int(np.count_nonzero(np.frombuffer(piece, np.uint8) == ord('"')))

    def _types(self) -> dict[str, pa.DataType]:
        """What Arrow's reader makes of each column; the cast does the rest."""
        types = {field.name: field.type for field in self.schema}
        for field in self.schema:
            if field.metadata and INSTANT in field.metadata:
                types[field.name] = pa.string()
        return types

    def _explained(self, row: int, error: pa.ArrowException) -> click.ClickException:
        """:param row: all before it can be read."""
        row_bytes_max = BLOCK_BYTES if "straddling" in str(error) else 2 * BLOCK_BYTES
        for lines in lines_of(self.path, BLOCK_BYTES):
            if lines.is_open:
                return self._not_ended(lines)
            skipped = max(0, row - lines.first_row)
            found = _Converter(lines, skipped, self.names, self._types(), row_bytes_max)
            if skipped >= lines.count or succeeds(found, 0, lines.count - skipped):
                continue
            at = first_that_fails(lines.count - skipped, found)
            line = lines.line(lines.first_row + skipped + at)
            return click.ClickException(f"{self.path}: line {line}: {self._reason(found, at)}")
        return click.ClickException(f"{self.path}: {error}")

    def _reason(self, found: _Converter, at: int) -> str:
        if found.is_too_long(at, 1):
            return f"the row has more than {BLOCK_BYTES:,} bytes: use a Parquet file"
        fields = found.fields(at)
        if fields != len(self.names):
            return f"expected {len(self.names)} values by the header, found {fields}"
        for field in self.schema:
            try:
                found(at, 1, field.name)
            except pa.ArrowException:
                return expected(field, found.value(at, field.name))
        return "the row cannot be read"

    def _not_ended(self, lines: Lines) -> click.ClickException:
        reason = "a quote in the row that begins here is not closed"
        if len(lines.data) > BLOCK_BYTES:
            reason = (
                f"the row that begins here has more than {BLOCK_BYTES:,} bytes: close its quote,"
                " or use a Parquet file"
            )
        return click.ClickException(f"{self.path}: line {lines.first_line}: {reason}")


class _Converter:
    """Arrow's conversion of single rows of a CSV file."""

    def __init__(
        self,
        lines: Lines,
        skipped: int,
        names: Sequence[str],
        types: dict[str, pa.DataType],
        row_bytes_max: int,
    ) -> None:
        self._lines = lines
        self._skipped = skipped
        self._names = names
        self._types = types
        self._row_bytes_max = row_bytes_max

    def __call__(self, start: int, count: int, column: str | None = None) -> None:
        """:raises pa.ArrowException: if one of the rows does not fit."""
        if self.is_too_long(start, count):
            raise pa.ArrowInvalid("too long a row")
        start += self._skipped
        self._read(start, count, self._types, [column] if column else list(self._types))

    def is_too_long(self, start: int, count: int) -> bool:
        """Whether one of the rows is."""
        start += self._skipped
        lengths = np.diff(self._lines.bounds[start : start + count + 1])
        return int(lengths.max()) > self._row_bytes_max

    def fields(self, row: int) -> int:
        """How many values a row has."""
        found = [len(self._names)]

        def handler(bad: pa.csv.InvalidRow) -> str:
            found.append(bad.actual_columns)
            return "skip"

        self._read(self._skipped + row, 1, {}, [], handler)
        return found[-1]

    def value(self, row: int, column: str) -> str | bytes:
        """What stands in a column; bytes, if it is no UTF-8."""
        table = self._read(self._skipped + row, 1, {column: pa.binary()}, [column])
        found: bytes = table.column(0)[0].as_py()
        try:
            return found.decode()
        except UnicodeDecodeError:
            return found

    def _read(
        self,
        start: int,
        count: int,
        types: dict[str, pa.DataType],
        columns: Sequence[str],
        handler: Callable[[pa.csv.InvalidRow], str] | None = None,
    ) -> pa.Table:
        data = self._lines.text(start, count) + b"\n"
        return pa.csv.read_csv(
            pa.py_buffer(data),
            read_options=pa.csv.ReadOptions(
                column_names=self._names, block_size=len(data) + 1, use_threads=False
            ),
            parse_options=pa.csv.ParseOptions(newlines_in_values=True, invalid_row_handler=handler),
            convert_options=csv_options(types, columns),
        )


def csv_options(types: dict[str, pa.DataType], names: Sequence[str] = ()) -> pa.csv.ConvertOptions:
    """How the values of a CSV file are read.

    :param names: only these columns; all by default.
    """
    return pa.csv.ConvertOptions(
        column_types=types,
        null_values=list(CSV_NULLS),
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
        include_columns=list(names),
    )
