"""A CSV file as rows of a schema."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv

from sluice.cli.rows.csv_lines import Lines, first_open_field, lines_of
from sluice.cli.rows.file_kinds import why_not_csv
from sluice.cli.rows.file_values import INSTANT, expected, is_infinite, shortened
from sluice.cli.rows.row_files import RowFile, arrow_file, first_that_fails, succeeds
from sluice.cli.terminal.errors import InvalidFile

CSV_NULLS = ("", "NA", "NULL", "null")
"""Nulls without quotes. In quotes they are values."""
BLOCK_BYTES = 1024 * 1024
"""How much of a CSV file is read at once; no row of it may be longer."""


class CsvRows(RowFile):
    """A CSV file with a header. Memory: some dozen blocks, which Arrow reads ahead."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        """:raises InvalidFile: if its header cannot be read."""
        super().__init__(path, schema)
        self._quotes = 0
        header = header_of(path)
        self.names = _names(header)
        self.header_place = f"{path}: line {header.line(-1)}"
        self._empty_rows = len(self.names) == 1
        if self._empty_rows:
            header = next(self._lines())
        self._start = header.first_byte + int(header.bounds[1])
        """The position of the first row in the file."""
        self._has_rows = self._start < path.stat().st_size

    def batches(self) -> Iterator[pa.RecordBatch]:
        row = 0
        if not self._has_rows:  # Arrow's reader fails without a line end
            return
        try:
            for batch in self._as_read():
                yield self._cast(batch, row)
                row += batch.num_rows
        except pa.ArrowException as error:
            raise self._explained(row, error) from error
        except OSError as error:
            raise InvalidFile(f"{self.path}: {error}") from error

    def _as_read(self) -> Iterator[pa.RecordBatch]:
        """The rows as Arrow's reader makes them; floats as text from the first infinite one on.

        Arrow reads 1e400 as infinite, so the text is needed to distinguish the two.
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

    @contextmanager
    def _open(self, types: dict[str, pa.DataType]) -> Iterator[pa.csv.CSVStreamingReader]:
        with arrow_file(self.path) as source:
            source.seek(self._start)
            with pa.csv.open_csv(
                source,
                read_options=pa.csv.ReadOptions(block_size=BLOCK_BYTES, column_names=self.names),
                parse_options=csv_rules(self.names),
                convert_options=csv_options(types, self.schema.names),
            ) as reader:
                yield reader

    def _lines(self) -> Iterator[Lines]:
        return lines_of(self.path, BLOCK_BYTES, empty_rows=self._empty_rows)

    def place(self, row: int) -> str:
        for lines in self._lines():
            if row < lines.first_row + lines.count:
                return f"line {lines.line(row)}"
        raise ValueError(f"{self.path} has no row {row}")

    def read_through(self) -> None:
        super().read_through()
        if self._quotes % 2:
            for lines in self._lines():
                if lines.is_open:
                    raise _not_ended(self.path, lines, self.names)

    def _found(self, name: str, values: pa.Array, at: int, row: int) -> object:
        for lines in self._lines():
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

    def _explained(self, row: int, error: pa.ArrowException) -> InvalidFile:
        """:param row: all before it can be read."""
        row_bytes_max = BLOCK_BYTES if "straddling" in str(error) else 2 * BLOCK_BYTES
        for lines in self._lines():
            if lines.is_open:
                return _not_ended(self.path, lines, self.names)
            skipped = max(0, row - lines.first_row)
            found = _Converter(lines, skipped, self.names, self._types(), row_bytes_max)
            if skipped >= lines.count or succeeds(found, 0, lines.count - skipped):
                continue
            at = first_that_fails(lines.count - skipped, found)
            line = lines.line(lines.first_row + skipped + at)
            return InvalidFile(f"{self.path}: line {line}: {self._reason(found, at)}")
        return InvalidFile(f"{self.path}: {error}")

    def _reason(self, found: _Converter, at: int) -> str:
        if found.is_too_long(at, 1):
            return f"the row has more than {BLOCK_BYTES:,} bytes; use a Parquet file"
        fields = found.fields(at)
        if fields != len(self.names):
            return (
                f"expected {len(self.names)} values ({', '.join(self.names)}),"
                f" found {fields}: {found.shown(at)}"
            )
        for field in self.schema:
            try:
                found(at, 1, field.name)
            except pa.ArrowException:
                return expected(field, found.value(at, field.name))
        return "the row cannot be read"


@dataclass(frozen=True)
class _Converter:
    """Arrow's conversion of single rows of a CSV file."""

    _lines: Lines
    _skipped: int
    _names: Sequence[str]
    _types: dict[str, pa.DataType]
    _row_bytes_max: int

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

    def shown(self, row: int) -> str:
        """The start of a row, for an error message."""
        text = self._lines.text(self._skipped + row, 1).rstrip(b"\r\n").decode(errors="replace")
        return shortened(text)

    def value(self, row: int, column: str) -> str | bytes:
        """The text of a column; bytes if it is not UTF-8."""
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
        data = self._lines.text(start, count)
        if not data.endswith((b"\r", b"\n")):  # the last row of the file
            data += b"\n"
        return pa.csv.read_csv(
            _arrow_buffer(data),
            read_options=pa.csv.ReadOptions(
                column_names=self._names, block_size=len(data) + 1, use_threads=False
            ),
            parse_options=csv_rules(self._names, handler),
            convert_options=csv_options(types, columns),
        )


def header_of(path: Path) -> Lines:
    """The first rows of a CSV file, or more; the header is the first of them.

    :raises InvalidFile: the file is empty, or its header cannot be read.
    """
    if reason := why_not_csv(path):
        raise InvalidFile(f"{path}: {reason}")
    for lines in lines_of(path, BLOCK_BYTES):
        if lines.is_open:
            raise _not_ended(path, lines)
        place, text = f"{path}: line {lines.line(-1)}", lines.text(0, 1).rstrip(b"\r\n")
        if len(text) > BLOCK_BYTES:
            reason = f"the header has more than {BLOCK_BYTES:,} bytes; use a Parquet file"
            raise InvalidFile(f"{place}: {reason}")
        try:
            text.decode()
        except UnicodeDecodeError as error:
            shown = repr(text[error.start : error.start + 8])
            reason = f"the header is not UTF-8 at {shown}; save the file as UTF-8"
            raise InvalidFile(f"{place}: {reason}") from error
        return lines
    raise InvalidFile(f"{path}: the file is empty; its first line must name the columns")


def _names(header: Lines) -> list[str]:
    data = header.text(0, 1) + b"\n"
    options = pa.csv.ReadOptions(block_size=len(data) + 1, use_threads=False)
    names: list[str] = pa.csv.read_csv(_arrow_buffer(data), read_options=options).schema.names
    return names


def _not_ended(path: Path, lines: Lines, names: Sequence[str] = ()) -> InvalidFile:
    """:param names: the columns; none if the row is the header."""
    place = f"{path}: line {lines.first_line}"
    field, text = first_open_field(lines.data)
    text = text.splitlines()[0] if text else text
    column = f"column {names[field]}: " if field < len(names) else ""
    quote = f"the quote before {shortened(text.decode(errors='replace'))} is never closed"
    if len(lines.data) <= BLOCK_BYTES:
        return InvalidFile(f"{place}: {column}{quote}")
    reason = f"the row has more than {BLOCK_BYTES:,} bytes; close its quote, or use a Parquet file"
    return InvalidFile(f"{place}: {reason}")


def csv_rules(
    names: Sequence[str], handler: Callable[[pa.csv.InvalidRow], str] | None = None
) -> pa.csv.ParseOptions:
    """How rows are separated. An empty line is a row if there is a single column.

    :param handler: called for rows that have too many or too few values.
    """
    return pa.csv.ParseOptions(
        newlines_in_values=True,
        ignore_empty_lines=len(names) != 1,
        invalid_row_handler=handler,
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


def _arrow_buffer(data: bytes) -> pa.Buffer:
    """A copy in Arrow's own memory.

    A thread of Arrow may let go of a reader's input when Python has begun to end. If that is a
    Python object, the process aborts.
    """
    buffer = pa.allocate_buffer(len(data))
    with pa.FixedSizeBufferWriter(buffer) as writer:
        writer.write(data)
    return buffer
