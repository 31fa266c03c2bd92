"""The columns of a Parquet or CSV file, and those of them that a table has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import click
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from sluice.cli.rows.csv_rows import CsvRows, csv_options, header_of
from sluice.cli.rows.file_kinds import why_not_parquet
from sluice.cli.rows.file_values import INSTANT, KEY, LENGTH, TYPE
from sluice.cli.rows.row_files import ParquetRows, RowFile, arrow_file
from sluice.cli.terminal.errors import InvalidFile
from sluice.cli.terminal.output import say
from sluice.did_you_mean import closest
from sluice.formats.keys.bucketing import bucket_keys
from sluice.formats.types.types import arrow_schema
from sluice.model import DataType, Schema, TableInfo, TypeRoot

_SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "vertical bars"}
"""What other programs write in place of a comma, and its name."""


def schema_of(path: Path, not_null: Sequence[str] = ()) -> pa.Schema:
    """Column names and types of a file; for CSV as its first megabyte suggests.

    :raises click.BadParameter: if the file is neither .parquet nor .csv.
    :raises InvalidFile: if it cannot be read.
    """
    is_parquet = _suffix(path) == ".parquet"
    try:
        if is_parquet:
            with arrow_file(path) as source:
                schema = pa.parquet.read_schema(source).remove_metadata()
        else:
            header_of(path)  # its errors are more precise than Arrow's
            options = csv_options({})
            with (
                arrow_file(path) as source,
                pa.csv.open_csv(source, convert_options=options) as reader,
            ):
                schema = reader.schema
    except pa.ArrowException as error:
        reason = why_not_parquet(path) if is_parquet else ""
        raise InvalidFile(f"{path}: {reason or error}") from error
    if not is_parquet:
        _check_separator(f"{path}: line 1", schema.names, "NAME,NAME,...")
    _check_once(schema.names, sorted(set(schema.names)), path)
    return pa.schema(f.with_nullable(f.name not in not_null and f.nullable) for f in schema)


def columns_of(
    schema: Schema, names: Sequence[str], keys: Mapping[str, str] | None = None
) -> pa.Schema:
    """Returns the schema to read from a file for the named columns; ignores unknown names.

    :param keys: columns that must not be null even if their type is nullable, with the reason.
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
    """The field, with a mark on each TIMESTAMP_LTZ in it."""
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
    """Returns the key columns of a table, each with the reason why it must not be null."""
    keys = dict.fromkeys(bucket_keys(info), "it is in the bucket key")
    keys |= dict.fromkeys(info.descriptor.partition_keys, "it is a partition key")
    return keys | dict.fromkeys(info.schema.primary_key, "it is in the primary key")


def rows_of(
    path: Path,
    schema: pa.Schema,
    *,
    notes: bool = True,
    keys: Sequence[str] = (),
    numbered: Sequence[str] = (),
) -> RowFile:
    """Opens the rows of a file, to be read with a schema.

    :param keys: with these columns alone, a row may lack the others that can be null: --columns.
    :param notes: whether to name ignored columns on standard error.
    :param numbered: columns that the server numbers, and so a file cannot have.
    :raises click.BadParameter: if the file is neither .parquet nor .csv.
    :raises InvalidFile: a column is missing, or one is numbered by the server.
    """
    rows = ParquetRows(path, schema) if _suffix(path) == ".parquet" else CsvRows(path, schema)
    missing = [name for name in schema.names if name not in rows.names]
    if missing:
        if isinstance(rows, CsvRows):
            _check_separator(rows.header_place, rows.names, ",".join(schema.names))
        text = _missing(missing, rows, schema.names)
        if "; rename " not in text and _may_lack(missing, schema, keys):
            others = ",".join(name for name in schema.names if name in rows.names)
            text += f"; --columns {others} writes these columns alone"
        raise InvalidFile(f"{rows.header_place}: {text}")
    for name in numbered:
        if name in rows.names:
            raise InvalidFile(
                f"{rows.header_place}: the server numbers column {name}, so a file cannot have it:"
                f" leave it out, or write the others with --columns {','.join(schema.names)}"
            )
    _check_once(rows.names, schema.names, path)
    extra = [name for name in rows.names if name not in schema.names]
    if extra and notes:
        say(f"note: {path}: ignored columns: {', '.join(extra)}", err=True)
    return rows


def _may_lack(missing: Sequence[str], schema: pa.Schema, keys: Sequence[str]) -> bool:
    """Whether rows may be written without these columns, because the table has other keys."""
    may_be_null = all(schema.field(name).nullable for name in missing)
    return bool(keys) and may_be_null and not set(missing) & set(keys)


def _missing(missing: Sequence[str], rows: RowFile, expected: Sequence[str]) -> str:
    """The message about columns that a file does not have."""
    found = ", ".join(rows.names)
    if isinstance(rows, CsvRows) and len(missing) == len(expected):
        return f"expected a header with the columns {', '.join(expected)}; found {found}"
    others = [name for name in rows.names if name not in expected]
    meant = {name: other for name in missing if (other := closest(name, others))}
    hint = "".join(f"; rename {other!r} to {name!r}?" for name, other in meant.items())
    columns = (
        f"column {missing[0]} is" if len(missing) == 1 else f"columns {', '.join(missing)} are"
    )
    return f"{columns} missing{hint or '.'} The file has {found}"


def _check_separator(place: str, names: Sequence[str], header: str) -> None:
    """:raises InvalidFile: the values of the only column have another separator than commas."""
    for char, shown in _SEPARATORS.items():
        if len(names) == 1 and char in names[0]:
            raise InvalidFile(
                f"{place}: {shown} separate the values in {names[0]!r}; write commas, as in"
                f" {header!r}"
            )


def _check_once(names: Sequence[str], expected: Sequence[str], path: Path) -> None:
    doubled = [name for name in expected if names.count(name) > 1]
    if doubled:
        raise InvalidFile(f"{path}: more than one column is named {doubled[0]!r}; rename one")


def _suffix(path: Path) -> str:
    suffix = path.suffix.lower()
    if suffix not in (".parquet", ".csv"):
        raise click.BadParameter(f"{path}: expected a file with the suffix .parquet or .csv")
    return suffix
