"""Converts Iceberg types to Arrow types with field ids, and casts log columns to them."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sluice.errors import UnsupportedType

_PRIMITIVES = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "time": pa.time64("us"),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", tz="UTC"),
    "string": pa.string(),
    "binary": pa.binary(),
}
_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)")


def arrow_schema(schema: dict[str, Any]) -> pa.Schema:
    """The Arrow schema of data files, with Iceberg's field ids, from Iceberg's schema JSON.

    :raises UnsupportedType: the schema has a type that Fluss does not have.
    """
    return pa.schema(
        [_field(f["name"], f["type"], f["id"], f["required"]) for f in schema["fields"]]
    )


def to_lake(column: pa.ChunkedArray | pa.Array, target: pa.DataType) -> Any:
    """Casts a column to the lake's type; returns it unchanged if it has that type.

    Nanoseconds are rounded down to microseconds, as in Iceberg's own conversion.

    :raises pyarrow.ArrowInvalid: a value does not fit the lake's type.
    """
    if column.type.equals(target):
        return column
    if pa.types.is_timestamp(column.type) and column.type.unit == "ns":
        column = pc.floor_temporal(column, unit="microsecond")
        return column.cast(target, safe=False)
    if pa.types.is_time64(column.type) and column.type.unit == "ns":
        return column.cast(target, safe=False)
    return column.cast(target)


def _field(name: str, type_json: Any, field_id: int, required: bool) -> pa.Field:
    return pa.field(
        name,
        _type(type_json),
        nullable=not required,
        metadata={"PARQUET:field_id": str(field_id)},
    )


def _type(type_json: Any) -> pa.DataType:
    if isinstance(type_json, str):
        if type_json in _PRIMITIVES:
            return _PRIMITIVES[type_json]
        if match := _DECIMAL.fullmatch(type_json):
            return pa.decimal128(int(match[1]), int(match[2]))
        raise UnsupportedType(f"Iceberg type {type_json!r} has no Fluss counterpart")
    if type_json["type"] == "list":
        required = type_json["element-required"]
        return pa.list_(_field("element", type_json["element"], type_json["element-id"], required))
    if type_json["type"] == "map":
        return pa.map_(
            _field("key", type_json["key"], type_json["key-id"], True),
            _field("value", type_json["value"], type_json["value-id"], type_json["value-required"]),
        )
    return pa.struct(
        [_field(f["name"], f["type"], f["id"], f["required"]) for f in type_json["fields"]]
    )
