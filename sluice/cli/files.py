"""Reads Parquet and CSV files as Arrow batches of a wanted schema, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import click
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from sluice.formats.types import arrow_schema
from sluice.model import Schema, TypeRoot

BATCH_ROWS = 64 * 1024
CSV_NULLS = ("", "NA", "NULL", "null")
"""Without quotes; what stands in quotes is a value."""
_INSTANT = {"instant": "UTC"}
"""Marks a column of TIMESTAMP_LTZ, which has Arrow's type of a TIMESTAMP."""
_WITH_ZONE = r"[T ]\d\d.*(Z|[+-]\d\d(:?\d\d)?)$"
_TIME_OF_DAY = r"[T ]\d\d"


def schema_of(path: Path, not_null: Sequence[str] = ()) -> pa.Schema:
    """Column names and types of a file; for CSV as its first megabyte suggests.

    :raises click.BadParameter: if the file is neither .parquet nor .csv.
    :raises click.ClickException: if it cannot be read.
    """
    try:
        if _suffix(path) == ".parquet":
            schema = pa.parquet.read_schema(path).remove_metadata()
        else:
            with pa.csv.open_csv(path, convert_options=_csv_options({})) as reader:
                schema = reader.schema
    except pa.ArrowException as error:
        raise click.ClickException(f"{path}: {error}") from error
    _check_once(schema.names, sorted(set(schema.names)), path)
    return pa.schema(f.with_nullable(f.name not in not_null and f.nullable) for f in schema)


def row_count(path: Path) -> int | None:
    """Rows of a Parquet file by its footer; None for a CSV file, which does not say.

    :raises click.BadParameter: if the file is neither .parquet nor .csv.
    :raises click.ClickException: if it cannot be read.
    """
    if _suffix(path) != ".parquet":
        return None
    try:
        return int(pa.parquet.read_metadata(path).num_rows)
    except pa.ArrowException as error:
        raise click.ClickException(f"{path}: {error}") from error


def columns_of(schema: Schema, names: Sequence[str]) -> pa.Schema:
    """Some columns of a table as they are looked for in a file; unknown names find nothing."""
    instants = {c.name for c in schema.columns if c.data_type.root is TypeRoot.TIMESTAMP_LTZ}
    return pa.schema(
        field.with_metadata(_INSTANT) if field.name in instants else field
        for field in arrow_schema(schema)
        if field.name in names
    )


def from_text(texts: pa.Array, field: pa.Field) -> pa.Array:
    """Texts as values of a column.

    A time of TIMESTAMP_LTZ may have a zone (``Z``, ``+02:00``); without one it is UTC.

    :raises pa.ArrowInvalid: for a text that is no such value.
    """
    if not field.metadata or b"instant" not in field.metadata:
        return texts.cast(field.type)
    zoned = pc.match_substring_regex(texts, _WITH_ZONE)
    at_midnight = pc.if_else(pc.match_substring_regex(texts, _TIME_OF_DAY), "Z", "T00:00Z")
    texts = pc.if_else(zoned, texts, pc.binary_join_element_wise(texts, at_midnight, ""))
    return texts.cast(pa.timestamp(field.type.unit, "UTC")).cast(field.type)


def batches(path: Path, schema: pa.Schema, *, tell: bool = True) -> Iterator[pa.RecordBatch]:
    """The file's rows with exactly the columns of ``schema``, cast without loss.

    :param tell: of columns that are left out, on standard error.
    :raises click.BadParameter: if the file is neither .parquet nor .csv.
    :raises click.ClickException: a column is missing, or a value does not fit; names both.
    """
    try:
        for batch in _raw_batches(path, schema, tell):
            yield _cast(batch, schema, path)
    except pa.ArrowException as error:
        raise click.ClickException(f"{path}: {error}") from error


def _raw_batches(path: Path, schema: pa.Schema, tell: bool) -> Iterator[pa.RecordBatch]:
    if _suffix(path) == ".parquet":
        with pa.parquet.ParquetFile(path) as file:
            _check_columns(file.schema_arrow.names, schema, path, tell)
            yield from file.iter_batches(BATCH_ROWS, columns=schema.names)
        return
    types = {f.name: pa.string() if f.metadata else f.type for f in schema}
    with pa.csv.open_csv(path, convert_options=_csv_options(types)) as r:
        _check_columns(r.schema.names, schema, path, tell)
        yield from r


def _csv_options(column_types: dict[str, pa.DataType]) -> pa.csv.ConvertOptions:
    return pa.csv.ConvertOptions(
        column_types=column_types,
        null_values=list(CSV_NULLS),
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )


def _check_columns(names: Sequence[str], schema: pa.Schema, path: Path, tell: bool) -> None:
    missing = [name for name in schema.names if name not in names]
    if missing:
        raise click.ClickException(
            f"{path}: no column {', '.join(missing)}; it has {', '.join(names)}"
        )
    _check_once(names, schema.names, path)
    extra = [name for name in names if name not in schema.names]
    if extra and tell:
        click.echo(f"note: {path}: left out, not in the table: {', '.join(extra)}", err=True)


def _check_once(names: Sequence[str], wanted: Sequence[str], path: Path) -> None:
    twice = [name for name in wanted if names.count(name) > 1]
    if twice:
        raise click.ClickException(f"{path}: more than one column {', '.join(twice)}")


def _cast(batch: pa.RecordBatch, schema: pa.Schema, path: Path) -> pa.RecordBatch:
    arrays = []
    for field in schema:
        column = batch.column(field.name)
        try:
            if pa.types.is_string(column.type):
                array = from_text(column, field)
            else:
                array = column if column.type == field.type else column.cast(field.type)
        except pa.ArrowException as error:
            raise click.ClickException(f"{path}: column {field.name!r}: {error}") from error
        if not field.nullable and array.null_count:
            raise click.ClickException(f"{path}: column {field.name!r} is NOT NULL and has nulls")
        arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _suffix(path: Path) -> str:
    suffix = path.suffix.lower()
    if suffix not in (".parquet", ".csv"):
        raise click.BadParameter(f"{path}: only .parquet and .csv files are read")
    return suffix
