"""The columns of a file, and those of them that a table has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import click
import pyarrow as pa

from sluice.cli.rows.csv_rows import CsvRows
from sluice.cli.rows.json_rows import JsonRows
from sluice.cli.rows.readers import ParquetRows, RowFile
from sluice.cli.rows.values import INSTANT, KEY, LENGTH, TYPE
from sluice.cli.terminal.errors import InvalidFile
from sluice.cli.terminal.output import say
from sluice.formats.keys.bucketing import bucket_keys
from sluice.formats.types.types import arrow_schema
from sluice.model import DataType, Schema, TableInfo, TypeRoot

_READERS: dict[str, type[RowFile]] = {
    ".parquet": ParquetRows,
    ".csv": CsvRows,
    ".jsonl": JsonRows,
    ".ndjson": JsonRows,
}
_SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "vertical bars"}
"""What other programs write in place of a comma, and its name."""


def schema_of(path: Path, not_null: Sequence[str] = ()) -> pa.Schema:
    """Column names and types of a file; for texts as its first megabyte suggests.

    :raises click.BadParameter: the suffix is not that of a file of rows.
    :raises InvalidFile: it cannot be read.
    """
    rows = _opened(path)
    try:
        schema = rows.inferred()
    except pa.ArrowException as error:
        raise InvalidFile(f"{path}: {error}") from error
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
        if keys and column.name in keys:
            field = field.with_metadata({**field.metadata, KEY: keys[column.name]})
            field = field.with_nullable(False)
        fields.append(field)
    return pa.schema(fields)


def _marked(field: pa.Field, data_type: DataType) -> pa.Field:
    """The field with what its Arrow type does not say, at any depth."""
    if data_type.root is TypeRoot.ARRAY and data_type.element is not None:
        field = field.with_type(pa.list_(_marked(field.type.value_field, data_type.element)))
    elif data_type.key is not None and data_type.value is not None:
        key = _marked(field.type.key_field, data_type.key)
        field = field.with_type(pa.map_(key, _marked(field.type.item_field, data_type.value)))
    elif data_type.root is TypeRoot.ROW:
        pairs = zip(field.type, data_type.fields, strict=True)
        field = field.with_type(pa.struct([_marked(own, f.data_type) for own, f in pairs]))
    marks = {**(field.metadata or {}), TYPE: str(data_type)}
    if data_type.root is TypeRoot.TIMESTAMP_LTZ:
        marks[INSTANT] = "UTC"
    if data_type.root is TypeRoot.CHAR:
        marks[LENGTH] = str(data_type.length)
    return field.with_metadata(marks)


def keys_of(info: TableInfo) -> dict[str, str]:
    """Returns the key columns of a table, each with the reason why it must not be null."""
    keys = dict.fromkeys(bucket_keys(info), "it is in the bucket key")
    keys |= dict.fromkeys(info.descriptor.partition_keys, "it is a partition key")
    return keys | dict.fromkeys(info.schema.primary_key, "it is in the primary key")


def rows_of(
    path: Path,
    schema: pa.Schema,
    *,
    is_part: bool = False,
    keys: Sequence[str] = (),
    numbered: Sequence[str] = (),
) -> RowFile:
    """Opens the rows of a file, to be read with a schema.

    :param is_part: all columns of the schema are needed, and others of the file are ignored.
        Otherwise a nullable column may be missing, and the file has no others.
    :param keys: the primary key of a table in which a missing column would replace values.
    :param numbered: columns that the server numbers, and so a file cannot have.
    :raises click.BadParameter: the suffix is not that of a file of rows.
    :raises InvalidFile: a column is missing, unknown, or numbered by the server.
    """
    rows = _opened(path)
    rows.schema, rows.numbered = schema, numbered
    if isinstance(rows, JsonRows):
        rows.ignores_others, rows.replaces = is_part, bool(keys)
        return rows
    place, given = rows.header_place, rows.names
    others = [name for name in given if name not in schema.names]
    missing = [name for name in schema.names if name not in given]
    if len(missing) == len(schema.names):
        wanted = f"expected the columns {', '.join(missing)}"
        raise InvalidFile(f"{place}: {wanted}; found {', '.join(given)}")
    if others and is_part:
        say(f"note: {path}: ignored columns: {', '.join(others)}", err=True)
    elif others:
        raise InvalidFile(f"{place}: {rows.unknown(others[0])}")
    if missing:
        may_lack = not is_part and all(schema.field(name).nullable for name in missing)
        verb = "is" if len(missing) == 1 else "are"
        columns = f"{'column' if len(missing) == 1 else 'columns'} {', '.join(missing)}"
        if keys or not may_lack:
            written = ",".join(name for name in schema.names if name in given)
            hint = f"; --columns {written} writes these columns alone" if keys and may_lack else ""
            found = f"{columns} {verb} missing. The file has {', '.join(given)}{hint}"
            raise InvalidFile(f"{place}: {found}")
        say(f"note: {path}: without {columns}: NULL in all rows", err=True)
        rows.schema = pa.schema([field for field in schema if field.name in given])
    return rows


def _opened(path: Path) -> RowFile:
    """:raises InvalidFile: two columns have one name, or another separator than commas."""
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        known = f"{', '.join([*_READERS][:-1])} or {[*_READERS][-1]}"
        raise click.BadParameter(f"{path}: expected a file with the suffix {known}")
    rows = reader(path)
    name, count = Counter(rows.names).most_common(1)[0] if rows.names else ("", 0)
    if count > 1:
        raise InvalidFile(f"{path}: more than one column is named {name!r}; rename one")
    for char, shown in _SEPARATORS.items():
        if len(rows.names) == 1 and char in rows.names[0]:
            reason = f"{shown} separate the values in {rows.names[0]!r}; write commas"
            raise InvalidFile(f"{rows.header_place}: {reason}")
    return rows
