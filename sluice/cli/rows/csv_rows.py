"""A CSV file as rows of a schema. Arrow reads it; Python only finds the line of a wrong row."""

from __future__ import annotations

import csv
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.csv

from sluice.cli.rows.readers import BLOCK_BYTES, RowFile, arrow_file
from sluice.cli.rows.values import TYPE, has_infinite, is_instant, shortened, type_text
from sluice.cli.terminal.errors import InvalidFile

_NULLS = ("", "NA", "NULL", "null")
"""Nulls without quotes. In quotes they are values."""
_END = "\0end of the file"
"""A last line; a quote that is never closed takes it in."""
_TOO_LONG = f"the row has more than {BLOCK_BYTES:,} bytes; close its quote, or use a Parquet file"


class CsvRows(RowFile):
    """A CSV file with a header. Memory: some dozen blocks, which Arrow reads ahead."""

    def __init__(self, path: Path) -> None:
        """:raises InvalidFile: its header cannot be read."""
        super().__init__(path)
        self._read_bytes = 0
        line, self.names = next(self._rows(), (1, []))
        self._start = self._read_bytes
        """The position of the first row in the file."""
        self.header_place = f"{path}: line {line}"
        if not self.names:
            raise InvalidFile(f"{path}: the file is empty; its first line must name the columns")
        try:
            "".join(self.names).encode()
        except UnicodeEncodeError as error:
            reason = "the header is not UTF-8; save the file as UTF-8"
            raise InvalidFile(f"{self.header_place}: {reason}") from error

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Arrow converts the values itself, from the first batch that it refuses on as texts.

        So ``inf`` and 1e400, which Arrow reads as infinite, are told apart, and values named.
        """
        if self._start == self.path.stat().st_size:  # Arrow's reader fails without a line end
            return
        row, count = 0, 0
        for is_text in (False, True):
            try:
                with self._open(self._types(is_text=is_text)) as reader:
                    for batch in itertools.islice(reader, count, None):  # the same ones each time
                        if not is_text and any(map(has_infinite, batch.columns)):
                            break
                        yield self.cast(batch, row)
                        row, count = row + batch.num_rows, count + 1
                    else:
                        return
            except InvalidFile:
                if is_text:
                    raise
            except (pa.ArrowException, OSError) as error:
                if is_text:
                    raise self._unread(row, error) from error

    def place(self, row: int) -> str:
        found = next(itertools.islice(self._rows(), row + 1, None), None)
        return f"line {found[0]}" if found else f"row {row + 1}"

    def inferred(self) -> pa.Schema:
        if self._start == self.path.stat().st_size:
            return pa.schema([(name, pa.null()) for name in self.names])
        with self._open({}) as reader:
            return reader.schema

    def check_end(self) -> None:
        quotes = 0
        with self.path.open("rb") as file:
            while piece := file.read(BLOCK_BYTES):
                quotes += piece.count(b'"')
        if quotes % 2:
            for _ in self._rows():
                pass

    @contextmanager
    def _open(self, types: dict[str, pa.DataType]) -> Iterator[pa.csv.CSVStreamingReader]:
        source = arrow_file(self.path)
        # Not closed here: a thread of Arrow may read ahead, by then from another file of its number
        source.seek(self._start)
        with pa.csv.open_csv(
            source,
            read_options=pa.csv.ReadOptions(block_size=BLOCK_BYTES, column_names=self.names),
            parse_options=pa.csv.ParseOptions(
                newlines_in_values=True, ignore_empty_lines=len(self.names) > 1
            ),
            convert_options=pa.csv.ConvertOptions(
                column_types=types,
                null_values=list(_NULLS),
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
                include_columns=list(types),
            ),
        ) as reader:
            yield reader

    def _types(self, *, is_text: bool) -> dict[str, pa.DataType]:
        """What Arrow's reader makes of each column; the cast does the rest."""
        if is_text:  # bytes, so that a text that is not UTF-8 has a place
            return dict.fromkeys(self.schema.names, pa.binary())
        return {f.name: pa.string() if is_instant(f) else f.type for f in self.schema}

    def cast(self, batch: pa.RecordBatch, row: int) -> pa.RecordBatch:
        """Also bytes as the texts that they are, where they are UTF-8."""
        columns, types = [], pa.types
        for field in self.schema:
            values, kind = batch.column(field.name), field.type
            is_bytes = types.is_binary(kind) or types.is_fixed_size_binary(kind)
            if types.is_binary(values.type) and not is_bytes:
                text = pa.field(field.name, pa.string(), metadata={TYPE: type_text(field)})
                values = self._cast_column(values, text, row)
            columns.append(values)
        return super().cast(pa.record_batch(columns, names=self.schema.names), row)

    def _rows(self) -> Iterator[tuple[int, list[str]]]:
        """The line of each row, from 1, and its values. The first is the header. Slow.

        :raises InvalidFile: a row is too long, or its quote is never closed.
        """
        csv.field_size_limit(BLOCK_BYTES)
        reader, header = csv.reader(itertools.chain(self._lines(), [_END])), list[str]()
        while True:
            line = reader.line_num + 1
            try:
                values = next(reader)
            except csv.Error as error:
                raise InvalidFile(f"{self.path}: line {line}: {_TOO_LONG}") from error
            if values == [_END]:
                return
            if values and values[-1].endswith(_END):
                column = f"column {header[len(values) - 1]}: " if header else ""
                text = shortened(values[-1].removesuffix(_END).partition("\n")[0])
                reason = f"{column}the quote before {text} is never closed"
                raise InvalidFile(f"{self.path}: line {line}: {reason}")
            if values or len(header) == 1:
                header = header or values
                yield line, values

    def _lines(self) -> Iterator[str]:
        self._read_bytes = 0
        with self.path.open(newline="", encoding="utf-8", errors="surrogateescape") as file:
            for line in file:
                text = line if self._read_bytes else line.removeprefix("\ufeff")
                self._read_bytes += len(line.encode(errors="surrogateescape"))
                yield text

    def _unread(self, row: int, error: Exception) -> InvalidFile:
        """:param row: all before it can be read."""
        for line, values in itertools.islice(self._rows(), row + 1, None):
            if values and len(values) != len(self.names):
                text = ",".join(values).encode(errors="surrogateescape").decode(errors="replace")
                reason = (
                    f"expected {len(self.names)} values ({', '.join(self.names)}),"
                    f" found {len(values)}: {shortened(text)}"
                )
                return InvalidFile(f"{self.path}: line {line}: {reason}")
            if sum(map(len, values)) > BLOCK_BYTES:
                return InvalidFile(f"{self.path}: line {line}: {_TOO_LONG}")
        return self.problem(row, f"this row, or one after it, cannot be read: {error}")
