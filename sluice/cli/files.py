"""What a Parquet or CSV file holds, and which of it a table wants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import click
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from sluice.cli.csv_rows import CsvRows, csv_options, header_of
from sluice.cli.file_values import INSTANT, KEY, LENGTH, TYPE
from sluice.cli.row_files import ParquetRows, RowFile, arrow_file
from sluice.formats.bucketing import bucket_keys
from sluice.formats.types import arrow_schema
from sluice.model import DataType, Schema, TableInfo, TypeRoot


def schema_of(path: Path, not_null: Sequence[str] = ()) -> pa.Schema:
    """Column names and types of a file; for CSV as its first megabyte suggests.

    :raises click.BadParameter: if the file is neither .parquet nor .csv.
    :raises click.ClickException: if it cannot be read.
    """
    try:
        if _suffix(path) == ".parquet":
            with arrow_file(path) as source:
                schema = pa.parquet.read_schema(source).remove_metadata()
        else:
            header_of(path)  # says more of a bad one than Arrow
            options = csv_options({})
            with (
                arrow_file(path) as source,
                pa.csv.open_csv(source, convert_options=options) as reader,
            ):
                schema = reader.schema
    except pa.ArrowException as error:
        raise click.ClickException(f"{path}: {error}") from error
    _check_once(schema.names, sorted(set(schema.names)), path)
    return pa.schema(f.with_nullable(f.name not in not_null and f.nullable) for f in schema)


def columns_of(
    schema: Schema, names: Sequence[str], keys: Mapping[str, str] | None = None
) -> pa.Schema:
    """Some columns of a table as they are looked for in a file; unknown names find nothing.

    :param keys: columns that hold no nulls, whatever their type says, and why.
    """
    fields = []
    for column, field in zip(schema.columns, arrow_schema(schema), strict=True):
        if column.name not in names:
            continue
        field = _marked(field, column.data_type)
        metadata = {TYPE: str(column.data_type), **(field.metadata or {})}
        if column.data_type.root is TypeRoot.CHAR:
            metadata[LENGTH] = str(column.data_type.length)
        if keys and column.name in keys:
            metadata[KEY] = keys[column.name]
            field = field.with_nullable(False)
        fields.append(field.with_metadata(metadata))
    return pa.schema(fields)


def _marked(field: pa.Field, data_type: DataType) -> pa.Field:
    """The field, with a mark on each TIMESTAMP_LTZ that it is or holds."""
    if data_type.root is TypeRoot.TIMESTAMP_LTZ:
        return field.with_metadata({INSTANT: "UTC"})
    if data_type.root is TypeRoot.ARRAY and data_type.element is not None:
        return field.with_type(pa.list_(_marked(field.type.value_field, data_type.element)))
    if data_type.key is not None and data_type.value is not None:
        key = _marked(field.type.key_field, data_type.key)
        value = _marked(field.type.item_field, data_type.value)
        return field.with_type(pa.map_(key, value))
    if data_type.root is TypeRoot.ROW:
        pairs = zip(field.type, data_type.fields, strict=True)
        return field.with_type(pa.struct([_marked(own, f.data_type) for own, f in pairs]))
    return field


def keys_of(info: TableInfo) -> dict[str, str]:
    """The columns of a table that its rows are laid out by, and what they are."""
    keys = dict.fromkeys(bucket_keys(info), "it is in the bucket key")
    keys |= dict.fromkeys(info.descriptor.partition_keys, "it is a partition key")
    return keys | dict.fromkeys(info.schema.primary_key, "it is in the primary key")


def rows_of(path: Path, schema: pa.Schema, *, tell: bool = True) -> RowFile:
    """The rows of a file as those of a schema.

    :param tell: of columns that are left out, on standard error.
    :raises click.BadParameter: if the file is neither .parquet nor .csv.
    :raises click.ClickException: a column is missing.
    """
    rows = ParquetRows(path, schema) if _suffix(path) == ".parquet" else CsvRows(path, schema)
    missing = [name for name in schema.names if name not in rows.names]
    if missing:
        raise click.ClickException(
            f"{path}: no column {', '.join(missing)}; it has {', '.join(rows.names)}"
        )
    _check_once(rows.names, schema.names, path)
    extra = [name for name in rows.names if name not in schema.names]
    if extra and tell:
        click.echo(f"note: {path}: left out, not to be written: {', '.join(extra)}", err=True)
    return rows


def _check_once(names: Sequence[str], wanted: Sequence[str], path: Path) -> None:
    twice = [name for name in wanted if names.count(name) > 1]
    if twice:
        raise click.ClickException(f"{path}: more than one column {', '.join(twice)}")


def _suffix(path: Path) -> str:
    suffix = path.suffix.lower()
    if suffix not in (".parquet", ".csv"):
        raise click.BadParameter(f"{path}: only .parquet and .csv files are read")
    return suffix
