"""The lake table that a Fluss table needs, as Iceberg's own JSON.

See docs/fluss/iceberg.md#types and docs/fluss/iceberg.md#tables

Pure functions: they return JSON, which Iceberg's parsers read in the driver's JVM. Field ids count
from 1. Iceberg assigns its own ids when it creates a table, so ids are never compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

from sluice.errors import LakeTableMismatch
from sluice.iceberg_rules import (
    check_bucket_key,
    check_lake_properties,
    check_partition_keys,
    check_primary_key,
)
from sluice.model import Column, DataType, TableInfo, TypeRoot

SYSTEM_COLUMNS = (("__bucket", "int"), ("__offset", "long"), ("__timestamp", "timestamptz"))
"""Name and Iceberg type of the three required columns after the user's columns."""

_LAKE_OPTIONS = "table.datalake.iceberg."
_PRIMITIVES = {
    TypeRoot.BOOLEAN: "boolean",
    TypeRoot.TINYINT: "int",
    TypeRoot.SMALLINT: "int",
    TypeRoot.INT: "int",
    TypeRoot.BIGINT: "long",
    TypeRoot.FLOAT: "float",
    TypeRoot.DOUBLE: "double",
    TypeRoot.CHAR: "string",
    TypeRoot.STRING: "string",
    TypeRoot.BINARY: "binary",
    TypeRoot.BYTES: "binary",
    TypeRoot.DATE: "date",
    TypeRoot.TIME: "time",
    TypeRoot.TIMESTAMP: "timestamp",
    TypeRoot.TIMESTAMP_LTZ: "timestamptz",
}

JsonType = str | dict[str, Any]


def iceberg_type(data_type: DataType, ids: Iterator[int]) -> JsonType:
    """The Iceberg type of a Fluss type, as in schema JSON; ``ids`` are for nested fields."""
    if data_type.root is TypeRoot.DECIMAL:
        return f"decimal({data_type.precision}, {data_type.scale})"
    if data_type.root in _PRIMITIVES:
        return _PRIMITIVES[data_type.root]
    if data_type.root is TypeRoot.ARRAY:
        assert data_type.element is not None
        return {
            "type": "list",
            "element-id": next(ids),
            "element": iceberg_type(data_type.element, ids),
            "element-required": not data_type.element.nullable,
        }
    if data_type.root is TypeRoot.MAP:
        assert data_type.key is not None
        assert data_type.value is not None
        return {
            "type": "map",
            "key-id": next(ids),
            "key": iceberg_type(data_type.key, ids),
            "value-id": next(ids),
            "value": iceberg_type(data_type.value, ids),
            "value-required": not data_type.value.nullable,
        }
    fields = [_field(next(ids), f.name, f.data_type, f.description, ids) for f in data_type.fields]
    return {"type": "struct", "fields": fields}


def schema_json(info: TableInfo) -> dict[str, Any]:
    """The schema: user columns, then system columns; the primary key as identifier fields.

    :raises UnsupportedLakeOption: as ``check_primary_key``.
    """
    check_primary_key(info)
    columns = info.schema.columns
    top = {column.name: i for i, column in enumerate(columns, start=1)}
    ids = count(len(columns) + len(SYSTEM_COLUMNS) + 1)
    fields = [_field(top[c.name], c.name, c.data_type, c.comment, ids) for c in columns]
    for i, (name, type_text) in enumerate(SYSTEM_COLUMNS, start=len(columns) + 1):
        fields.append({"id": i, "name": name, "required": True, "type": type_text})
    schema: dict[str, Any] = {"type": "struct", "schema-id": 0, "fields": fields}
    if info.has_primary_key:
        schema["identifier-field-ids"] = [top[name] for name in info.schema.primary_key]
    return schema


def column_type_json(column: Column) -> JsonType:
    """The type of one column that is added to an existing table; Iceberg assigns the ids."""
    return iceberg_type(column.data_type, count(1_000_000))


def spec_fields(info: TableInfo) -> list[tuple[str, str, str]]:
    """The partition fields as (field name, source column, transform), in order.

    :raises UnsupportedLakeOption: as ``check_bucket_key`` and ``check_partition_keys``.
    """
    check_bucket_key(info)
    check_partition_keys(info)
    found = [(name, name, "identity") for name in info.descriptor.partition_keys]
    keys = info.descriptor.bucket_keys
    if keys:
        found.append((f"{keys[0]}_bucket", keys[0], f"bucket[{info.bucket_count}]"))
    else:
        found.append(("__bucket", "__bucket", "identity"))
    return found


def spec_json(info: TableInfo, schema: dict[str, Any]) -> dict[str, Any]:
    ids = {field["name"]: field["id"] for field in schema["fields"]}
    return {
        "spec-id": 0,
        "fields": [
            {"name": n, "transform": t, "source-id": ids[source], "field-id": 1000 + i}
            for i, (n, source, t) in enumerate(spec_fields(info))
        ],
    }


def sort_order_json(schema: dict[str, Any]) -> dict[str, Any]:
    ids = {field["name"]: field["id"] for field in schema["fields"]}
    field = {
        "transform": "identity",
        "source-id": ids["__offset"],
        "direction": "asc",
        "null-order": "nulls-first",
    }
    return {"order-id": 1, "fields": [field]}


def table_properties(info: TableInfo) -> dict[str, str]:
    """The lake table's properties: ``iceberg.x`` becomes ``x``, other keys become ``fluss.KEY``.

    Without the options of the lake itself, which a cluster adds to what it tells of a table.

    :raises UnsupportedLakeOption: as ``check_lake_properties``.
    """
    check_lake_properties(info)
    properties = {}
    if info.has_primary_key:
        for mode in ("write.delete.mode", "write.update.mode", "write.merge.mode"):
            properties[mode] = "merge-on-read"
    for options in (info.descriptor.properties, info.descriptor.custom_properties):
        for key, value in options.items():
            if key.startswith(_LAKE_OPTIONS):
                continue
            if key.startswith("iceberg."):
                properties[key.removeprefix("iceberg.")] = value
            else:
                properties[f"fluss.{key}"] = value
    return properties


def missing_columns(info: TableInfo, found: dict[str, Any]) -> list[Column]:
    """Compares the lake's schema with the expected one; returns columns that Fluss has added.

    :raises LakeTableMismatch: names the first column that differs, and how.
    """
    expected = schema_json(info)["fields"]
    actual = found["fields"]
    _check_identifiers(info, found)
    users, system = actual[: -len(SYSTEM_COLUMNS)], actual[-len(SYSTEM_COLUMNS) :]
    known = expected[: -len(SYSTEM_COLUMNS)]
    for expected_field, field in zip(expected[-len(SYSTEM_COLUMNS) :], system, strict=False):
        _compare(info, expected_field, field)
    if len(system) < len(SYSTEM_COLUMNS) or len(users) > len(known):
        extra = [f["name"] for f in users[len(known) :]] or [n for n, _ in SYSTEM_COLUMNS]
        raise _mismatch(
            info,
            f"the columns {[f['name'] for f in actual]}, which are not as expected: check {extra}",
        )
    for expected_field, field in zip(known, users, strict=False):
        _compare(info, expected_field, field)
    added = list(info.schema.columns[len(users) :])
    for column in added:
        if not column.data_type.nullable:
            raise _mismatch(info, f"no column {column.name}, which is NOT NULL and cannot be added")
    return added


def check_spec(info: TableInfo, schema: dict[str, Any], spec: dict[str, Any]) -> None:
    """Compares the lake table's partition spec with the expected one.

    :raises LakeTableMismatch: they differ.
    """
    names = {field["id"]: field["name"] for field in schema["fields"]}
    found = [(names.get(f["source-id"], "?"), f["transform"]) for f in spec["fields"]]
    expected = [(source, transform) for _, source, transform in spec_fields(info)]
    if found != expected:
        raise _mismatch(
            info, f"partition spec {_spec_text(found)}, but {_spec_text(expected)} is expected"
        )


def _field(
    field_id: int, name: str, data_type: DataType, doc: str | None, ids: Iterator[int]
) -> dict[str, Any]:
    field = {
        "id": field_id,
        "name": name,
        "required": not data_type.nullable,
        "type": iceberg_type(data_type, ids),
    }
    if doc:
        field["doc"] = doc
    return field


def _check_identifiers(info: TableInfo, found: dict[str, Any]) -> None:
    ids = set(found.get("identifier-field-ids", ()))
    names = {field["name"] for field in found["fields"] if field["id"] in ids}
    if names != set(info.schema.primary_key):
        expected = sorted(info.schema.primary_key)
        raise _mismatch(info, f"identifier fields {sorted(names)}, but {expected} are expected")


def _compare(info: TableInfo, expected: dict[str, Any], actual: dict[str, Any]) -> None:
    one, other = _text(expected), _text(actual)
    if one != other:
        raise _mismatch(info, f"column '{other}', but '{one}' is expected")


def _text(field: dict[str, Any]) -> str:
    return f"{field['name']} {_type_text(field['type'])}{' required' * field['required']}"


def _type_text(type_json: JsonType) -> str:
    """A type as text, without ids."""
    if isinstance(type_json, str):
        return type_json.replace(" ", "")
    if type_json["type"] == "list":
        required = " required" * type_json["element-required"]
        return f"list<{_type_text(type_json['element'])}{required}>"
    if type_json["type"] == "map":
        required = " required" * type_json["value-required"]
        return f"map<{_type_text(type_json['key'])},{_type_text(type_json['value'])}{required}>"
    return f"struct<{','.join(_text(f) for f in type_json['fields'])}>"


def _spec_text(fields: list[tuple[str, str]]) -> str:
    return "[" + ", ".join(f"{transform}({source})" for source, transform in fields) + "]"


def _mismatch(info: TableInfo, what: str) -> LakeTableMismatch:
    return LakeTableMismatch(
        f"lake table {info.path} has {what}. Check that this is the lake of this cluster. If it is,"
        " drop or rename the lake table, or tier another one",
        table=str(info.path),
    )
