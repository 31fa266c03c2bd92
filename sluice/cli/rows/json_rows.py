"""A file of JSON lines as rows of a schema: on each line an object with the row's columns."""

from __future__ import annotations

import functools
import itertools
import json
import math
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from sluice.cli.rows.readers import BLOCK_BYTES, RowFile, first_that_fails
from sluice.cli.rows.values import cast, expected, has_infinite, shortened
from sluice.cli.terminal.errors import InvalidFile

_TOO_LONG = f"a line has more than {BLOCK_BYTES:,} bytes; use a Parquet file"


class JsonRows(RowFile):
    """JSON lines. A column that a line lacks is null. Memory: a block, and its rows."""

    ignores_others = False
    """Whether other columns than those of the schema are no error."""
    replaces = False
    """Whether the rows replace others: then NULL for a missing column would replace a value."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        row = 0
        for piece in self._pieces():
            try:
                batch = self._read(piece)
            except pa.ArrowException as error:
                raise self._unread(row, piece, error) from error
            fitting = self.cast(batch, row)
            if self.replaces:
                self._check_complete(piece, batch, row)
            yield fitting
            row += batch.num_rows

    def place(self, row: int) -> str:
        with self.path.open("rb") as file:
            numbers = (number for number, line in enumerate(file, 1) if line.strip())
            return f"line {next(itertools.islice(numbers, row, None))}"

    def inferred(self) -> pa.Schema:
        options = pa.json.ReadOptions(block_size=2 * BLOCK_BYTES)
        return pa.json.read_json(_source(next(self._pieces(), b"{}")), options).schema

    def _pieces(self) -> Iterator[bytes]:
        """Complete lines of the file, about a block at a time.

        :raises InvalidFile: a line is too long.
        """
        with self.path.open("rb") as file:
            rest = file.read(3).removeprefix(b"\xef\xbb\xbf")
            while more := file.read(BLOCK_BYTES):
                piece, end, rest = (rest + more).rpartition(b"\n")
                if len(rest) > BLOCK_BYTES:
                    raise InvalidFile(f"{self.path}: {_TOO_LONG}: {_shown(rest)}")
                if piece.strip():
                    yield piece + end
        if rest.strip():
            yield rest

    def _read(self, text: bytes, names: list[str] | None = None) -> pa.RecordBatch:
        """:param names: read these columns alone.

        :raises pa.ArrowException: the rows are not JSON, or do not fit the schema.
        """
        wanted = [f for f in self.schema if names is None or f.name in names]
        fields = [pa.field(f.name, _json_type(f.type)) for f in wanted]
        others = "error"
        if self.ignores_others or names is not None:
            # "ignore" would leave fields of a ROW out, too; the cast refuses them
            is_nested = any(pa.types.is_nested(field.type) for field in wanted)
            others = "infer" if is_nested else "ignore"
        try:
            text.decode()  # Arrow does not check it
        except UnicodeDecodeError as error:
            raise pa.ArrowInvalid(str(error)) from error
        table = pa.json.read_json(
            _source(text),
            pa.json.ReadOptions(use_threads=False, block_size=len(text) + 1),
            pa.json.ParseOptions(
                explicit_schema=pa.schema(fields), unexpected_field_behavior=others
            ),
        ).select([f.name for f in wanted])
        if table.num_rows != len(_lines(text)):
            raise pa.ArrowInvalid("write one object on each line")
        if any(has_infinite(part) for column in table.columns for part in column.chunks):
            raise pa.ArrowInvalid("a number is out of range")
        (batch,) = table.combine_chunks().to_batches()
        return batch

    def _check_complete(self, piece: bytes, batch: pa.RecordBatch, row: int) -> None:
        """:raises InvalidFile: the first line that lacks a column."""
        nulls = [column.is_null() for column in batch.columns if column.null_count]
        if not nulls:
            return
        lines = _lines(piece)
        for at in pc.indices_nonzero(functools.reduce(pc.or_, nulls)).to_pylist():
            values = json.loads(lines[at])
            given = [name for name in self.schema.names if name in values]
            if len(given) < len(self.schema.names):
                missing = next(name for name in self.schema.names if name not in values)
                raise self.problem(
                    row + at,
                    f"column {missing} is missing, and NULL would replace its value. Write null if"
                    f" it should; --columns {','.join(given)} writes these columns alone",
                )

    def _unread(self, row: int, piece: bytes, error: Exception) -> InvalidFile:
        """:param row: the piece's first one in the file."""
        lines = _lines(piece)
        at = first_that_fails(len(lines), lambda i, n: self._read(b"\n".join(lines[i : i + n])))
        return self.problem(row + at, self._reason(lines[at], error))

    def _reason(self, line: bytes, error: Exception) -> str:
        try:
            values = json.loads(line, parse_float=Decimal, object_pairs_hook=_once)
        except ValueError as why:
            return f"expected a JSON object, found {_shown(line)}: {why}"
        if not isinstance(values, dict):
            return f"expected a JSON object, found {_shown(line)}"
        for name in values:
            if name not in self.schema.names and not self.ignores_others:
                return self.unknown(name)
        given = {field: values.get(field.name) for field in self.schema}
        for field, value in given.items():
            if _is_too_big(value):
                return expected(field, value)
        for field, value in given.items():
            try:
                cast(self._read(line, [field.name]).column(0), field)
            except pa.ArrowException:
                return expected(field, value)
        return str(error)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object. :raises ValueError: a key is in it twice."""
    values: dict[str, Any] = {}
    for name, value in pairs:
        if name in values:
            raise ValueError(f"it has the key {name!r} twice")
        values[name] = value
    return values


def _is_too_big(value: Any) -> bool:
    """Whether a number is, which Arrow refuses with the complete line."""
    if isinstance(value, dict | list):
        return any(map(_is_too_big, value.values() if isinstance(value, dict) else value))
    return isinstance(value, Decimal) and math.isinf(float(value))


def _source(text: bytes) -> pa.BufferReader:
    """A copy in Arrow's memory: a thread that lets go of a Python object at exit would abort."""
    buffer = pa.allocate_buffer(len(text))
    pa.FixedSizeBufferWriter(buffer).write(text)
    return pa.BufferReader(buffer)


def _shown(line: bytes) -> str:
    return shortened(line.decode(errors="replace"))


def _lines(text: bytes) -> list[bytes]:
    """The lines that are not empty: one for each row."""
    return [line for line in text.split(b"\n") if line.strip()]


def _json_type(kind: pa.DataType) -> pa.DataType:
    """The type by which Arrow's reader takes a column's JSON; the cast does the rest."""
    types = pa.types
    if types.is_list(kind):
        return pa.list_(_json_type(kind.value_type))
    if types.is_map(kind):
        key, value = _json_type(kind.key_type), _json_type(kind.item_type)
        return pa.list_(pa.struct([("key", key), ("value", value)]))
    if types.is_struct(kind):
        return pa.struct([(field.name, _json_type(field.type)) for field in kind])
    is_text = types.is_temporal(kind) or types.is_fixed_size_binary(kind)
    return pa.string() if is_text else kind
