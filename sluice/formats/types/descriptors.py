"""Reads and writes Fluss's JSON of data types, schemas and table descriptors.

See docs/fluss/types-and-options.md#data-types, docs/fluss/types-and-options.md#schemas and
docs/fluss/types-and-options.md#table-descriptors
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from sluice.errors import CorruptMessage, InvalidTable
from sluice.json_text import json_of
from sluice.model import AggFunction, Column, DataType, RowField, Schema, TableDescriptor, TypeRoot

VERSION = 1
MAX_JSON_BYTES = 4 << 20
"""Maximum size of a schema or descriptor; parsed JSON may take thirty times its bytes."""
MAX_KEY_COLUMNS = 256
"""Maximum columns of any key; each is searched among the columns several times."""
_MAX_DEPTH = 32
_MAX_INT = 2**31 - 1
_LENGTH = (TypeRoot.CHAR, TypeRoot.BINARY)
_TIMES = (TypeRoot.TIME, TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ)


def schema_to_json(schema: Schema) -> bytes:
    """Returns a schema as Fluss writes it: no blanks, keys in Fluss's order."""
    return _dump(_schema_to_dict(schema))


def schema_from_json(content: bytes) -> Schema:
    """:raises CorruptMessage: not JSON of this form. :raises InvalidTable: a rule is broken."""
    return _schema_from_dict(_load(content, "schema"))


def descriptor_to_json(descriptor: TableDescriptor) -> bytes:
    """Returns a table descriptor as Fluss writes it."""
    result: dict[str, Any] = {"version": VERSION, "schema": _schema_to_dict(descriptor.schema)}
    if descriptor.comment is not None:
        result["comment"] = descriptor.comment
    result["partition_key"] = list(descriptor.partition_keys)
    if descriptor.bucket_keys or descriptor.bucket_count is not None:
        result["bucket_key"] = list(descriptor.bucket_keys)
    if descriptor.bucket_count is not None:
        result["bucket_count"] = descriptor.bucket_count
    result["properties"] = dict(descriptor.properties)
    result["custom_properties"] = dict(descriptor.custom_properties)
    return _dump(result)


def with_properties(content: bytes, properties: Mapping[str, str]) -> bytes:
    """Adds properties to the JSON of a table descriptor, without reading it.

    :param content: as :func:`descriptor_to_json` writes it, with at least one property.
    :param properties: at least one, and none that it has.
    """
    # No text of a user can look like this, because JSON escapes the quotes inside a text.
    head, custom, tail = content.rpartition(b'},"custom_properties":{')
    return b"".join((head, b",", _dump(properties)[1:-1], custom, tail))


def descriptor_from_json(content: bytes) -> TableDescriptor:
    """:raises CorruptMessage: not JSON of this form. :raises InvalidTable: a rule is broken."""
    node = _load(content, "table descriptor")
    schema = _schema_from_dict(_get(node, "schema", dict, "table descriptor"))
    bucket_count = _get(node, "bucket_count", int, "table descriptor", None)
    if bucket_count is not None and bucket_count < 1:
        raise InvalidTable(f"bucket_count {bucket_count} must be 1 or more")
    descriptor = TableDescriptor(
        schema,
        _names(node, "partition_key"),
        _names(node, "bucket_key"),
        bucket_count,
        _properties(node, "properties"),
        _properties(node, "custom_properties"),
        _get(node, "comment", str, "table descriptor", None),
    )
    _check_known(schema, descriptor.partition_keys, "partition key")
    _check_known(schema, descriptor.bucket_keys, "bucket key")
    return descriptor


def data_type_to_json(data_type: DataType) -> dict[str, Any]:
    """Returns the JSON value of a data type."""
    result: dict[str, Any] = {"type": data_type.root.value}
    if not data_type.nullable:
        result["nullable"] = False
    for key in ("length", "precision", "scale"):
        if (number := getattr(data_type, key)) is not None:
            result[key] = number
    if data_type.element is not None:
        result["element_type"] = data_type_to_json(data_type.element)
    if data_type.key is not None and data_type.value is not None:
        result["key_type"] = data_type_to_json(data_type.key)
        result["value_type"] = data_type_to_json(data_type.value)
    if data_type.root is TypeRoot.ROW:
        result["fields"] = [_field_to_json(field) for field in data_type.fields]
    return result


def data_type_from_json(node: Mapping[str, Any]) -> DataType:
    """:raises CorruptMessage: not of this form. :raises InvalidTable: unknown type, bad length."""
    return _data_type(node, _MAX_DEPTH)


def highest_field_id(schema: Schema) -> int:
    """Returns the schema's highest field id, computed from its columns if it is not set (-1)."""
    return max([schema.highest_field_id, *field_ids(schema.columns)], default=-1)


def _field_to_json(field: RowField) -> dict[str, Any]:
    result = {"name": field.name, "field_type": data_type_to_json(field.data_type)}
    if field.description is not None:
        result["description"] = field.description
    return {**result, "field_id": field.field_id}


def _data_type(node: Any, depth: int) -> DataType:
    if not isinstance(node, Mapping):
        raise CorruptMessage(f"data type {_short(node)} must be a JSON object")
    if depth == 0:
        raise InvalidTable(f"a data type has more than {_MAX_DEPTH} nested levels")
    name = _get(node, "type", str, "data type")
    try:
        root = TypeRoot(name)
    except ValueError:
        known = ", ".join(root.value for root in TypeRoot)
        raise InvalidTable(f"data type {_short(name)} is unknown; use one of {known}") from None
    nullable = _get(node, "nullable", bool, name, True)
    if root in _LENGTH:
        return DataType(root, nullable, length=_number(node, "length", name, 1, _MAX_INT))
    if root in _TIMES:
        return DataType(root, nullable, precision=_number(node, "precision", name, 0, 9))
    if root is TypeRoot.DECIMAL:
        precision = _number(node, "precision", name, 1, 38)
        scale = _number(node, "scale", name, 0, precision)
        return DataType(root, nullable, precision=precision, scale=scale)
    if root is TypeRoot.ARRAY:
        return DataType(root, nullable, element=_child(node, "element_type", name, depth))
    if root is TypeRoot.MAP:
        key = _child(node, "key_type", name, depth)
        return DataType(root, nullable, key=key, value=_child(node, "value_type", name, depth))
    if root is TypeRoot.ROW:
        fields = _get(node, "fields", list, name)
        return DataType(root, nullable, fields=tuple(_row_field(f, depth) for f in fields))
    return DataType(root, nullable)


def _child(node: Mapping[str, Any], key: str, where: str, depth: int) -> DataType:
    return _data_type(_get(node, key, dict, where), depth - 1)


def _row_field(node: Any, depth: int) -> RowField:
    if not isinstance(node, Mapping):
        raise CorruptMessage(f"ROW field {_short(node)} must be a JSON object")
    return RowField(
        _get(node, "name", str, "field of a ROW"),
        _child(node, "field_type", "field of a ROW", depth),
        _get(node, "description", str, "field of a ROW", None),
        _get(node, "field_id", int, "field of a ROW", -1),
    )


def _schema_to_dict(schema: Schema) -> dict[str, Any]:
    columns = [_column_to_dict(column) for column in schema.columns]
    result: dict[str, Any] = {"version": VERSION, "columns": columns}
    if schema.primary_key:
        result["primary_key"] = list(schema.primary_key)
    if schema.auto_increment:
        result["auto_increment_column"] = list(schema.auto_increment)
    return {**result, "highest_field_id": highest_field_id(schema)}


def _column_to_dict(column: Column) -> dict[str, Any]:
    result: dict[str, Any] = {
        "name": column.name,
        "data_type": data_type_to_json(column.data_type),
    }
    if column.comment is not None:
        result["comment"] = column.comment
    if column.agg_function is not None:
        function: dict[str, Any] = {"type": column.agg_function.name}
        if column.agg_function.parameters:
            function["parameters"] = dict(column.agg_function.parameters)
        result["agg_function"] = function
    return {**result, "id": column.column_id}


def _schema_from_dict(node: Mapping[str, Any]) -> Schema:
    columns = [_column(item, i) for i, item in enumerate(_get(node, "columns", list, "schema"))]
    without_id = [column.name for column in columns if column.column_id < 0]
    if 0 < len(without_id) < len(columns):
        raise InvalidTable(f"column {without_id[0]!r} has no id, but other columns have one")
    if without_id:  # written before Fluss had column ids: positions are the ids
        columns = [replace(column, column_id=i) for i, column in enumerate(columns)]
    key = _names(node, "primary_key")
    in_key = set(key)
    schema = Schema(
        tuple(_not_null(c) if c.name in in_key else c for c in columns),
        key,
        _get(node, "highest_field_id", int, "schema", -1),
        _names(node, "auto_increment_column"),
    )
    _check_schema(schema)
    return replace(schema, highest_field_id=highest_field_id(schema))


def _column(node: Any, position: int) -> Column:
    if not isinstance(node, Mapping):
        raise CorruptMessage(f"column {position} is {_short(node)}, but must be a JSON object")
    where = f"column {position}"
    name = _get(node, "name", str, where)
    where = f"column {name!r}"
    return Column(
        name,
        _child(node, "data_type", where, _MAX_DEPTH),
        _get(node, "id", int, where, -1),
        _get(node, "comment", str, where, None),
        _agg_function(_get(node, "agg_function", dict, where, None), where),
    )


def _not_null(column: Column) -> Column:
    return replace(column, data_type=column.data_type.not_null())


def _agg_function(node: Mapping[str, Any] | None, where: str) -> AggFunction | None:
    if node is None:
        return None
    parameters = tuple(_properties(node, "parameters").items())
    return AggFunction(_get(node, "type", str, where), parameters)


def _check_schema(schema: Schema) -> None:
    names = schema.names
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    if twice:
        raise InvalidTable(f"column names must be unique; repeated: {', '.join(twice)}")
    ids = [column.column_id for column in schema.columns]
    if len(set(ids)) != len(ids):
        raise InvalidTable(f"column ids must be unique: {_short(ids)}")
    _check_known(schema, schema.primary_key, "primary key")
    _check_known(schema, schema.auto_increment, "auto-increment")


def _check_known(schema: Schema, names: tuple[str, ...], what: str) -> None:
    known = set(schema.names)
    for name in names:
        if name not in known:
            raise InvalidTable(
                f"{what} column {name!r} is not a column of the table: {_short(list(schema.names))}"
            )


def field_ids(columns: tuple[Column, ...]) -> Iterator[int]:
    """Yields the ids of columns and of the fields in them; -1: not set."""
    for column in columns:
        yield column.column_id
        yield from _nested_ids(column.data_type)


def _nested_ids(data_type: DataType) -> Iterator[int]:
    for field in data_type.fields:
        yield field.field_id
        yield from _nested_ids(field.data_type)
    for child in (data_type.element, data_type.key, data_type.value):
        if child is not None:
            yield from _nested_ids(child)


_NEEDED: Any = object()


def _get(node: Mapping[str, Any], key: str, kind: type, where: str, default: Any = _NEEDED) -> Any:
    value = node.get(key)
    if value is None:
        if default is _NEEDED:
            raise CorruptMessage(f"{where}: {key!r} is missing")
        return default
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise CorruptMessage(f"{where}: {key!r} is {_short(value)}, but must be {kind.__name__}")
    if isinstance(value, int) and not -_MAX_INT <= value <= _MAX_INT:
        raise CorruptMessage(f"{where}: {key!r} is {_short(value)}, but must fit 32 bits")
    return value


def _number(node: Mapping[str, Any], key: str, where: str, low: int, high: int) -> int:
    value: int = _get(node, key, int, where)
    if not low <= value <= high:
        raise InvalidTable(f"{where}: {key} is {value}, but must be {low} to {high}")
    return value


def _names(node: Mapping[str, Any], key: str) -> tuple[str, ...]:
    values = _get(node, key, list, "table", [])
    if len(values) > MAX_KEY_COLUMNS:
        raise InvalidTable(
            f"{key!r} has {len(values)} names, but may have at most {MAX_KEY_COLUMNS}"
        )
    for value in values:
        if not isinstance(value, str):
            raise CorruptMessage(f"{key!r} holds {_short(value)}, but must be a list of names")
    return tuple(values)


def _properties(node: Mapping[str, Any], key: str) -> dict[str, str]:
    values = _get(node, key, dict, "table", {})
    for name, value in values.items():
        if not isinstance(value, str):
            raise CorruptMessage(f"{key}.{name} is {_short(value)}, but must be a string")
    return dict(values)


def _load(content: bytes, what: str) -> Mapping[str, Any]:
    if len(content) > MAX_JSON_BYTES:
        raise CorruptMessage(
            f"{what} has {len(content):,} bytes, but may have at most {MAX_JSON_BYTES:,}"
        )
    try:
        node = json_of(content)
        if b"\\u" in content:
            _dump(node)  # half of a surrogate pair is no text
    except (ValueError, RecursionError) as error:
        raise CorruptMessage(f"{what} is not JSON: {error}") from error
    if not isinstance(node, dict):
        raise CorruptMessage(f"{what} is {_short(node)}, but must be a JSON object")
    version = _get(node, "version", int, what)
    if version != VERSION:
        raise CorruptMessage(f"{what} has version {version}; Sluice supports version {VERSION}")
    return node


def _dump(node: Mapping[str, Any]) -> bytes:
    return json.dumps(node, separators=(",", ":"), ensure_ascii=False).encode()


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
