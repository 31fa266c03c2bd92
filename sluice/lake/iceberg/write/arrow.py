"""Converts Iceberg types to Arrow types with field ids, and casts log columns to them."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
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
    if not _needs_parts(column.type):
        return column.cast(target)
    if isinstance(column, pa.ChunkedArray):
        return pa.chunked_array([_by_parts(chunk, target) for chunk in column.chunks], target)
    return _by_parts(column, target)


def _needs_parts(data_type: pa.DataType) -> bool:
    """Whether Arrow's own cast fails: of nanoseconds, and of a map with nested keys.

    Before 26, pyarrow ends the process that casts such a map after `take`.
    """
    if pa.types.is_timestamp(data_type) or pa.types.is_time64(data_type):
        return bool(data_type.unit == "ns")
    if pa.types.is_map(data_type) and pa.types.is_nested(data_type.key_type):
        return True
    children = (data_type.field(index).type for index in range(data_type.num_fields))
    return any(_needs_parts(child) for child in children)


def _by_parts(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Casts a column to the lake's type, each part of a nested one by itself."""
    if not _needs_parts(array.type):
        return array.cast(target)
    if pa.types.is_timestamp(array.type):
        return _microseconds(array).view(target)
    if pa.types.is_time64(array.type):
        return array.cast(target, safe=False)
    array = array.take(pa.array(np.arange(len(array))))  # gives its buffers no offset
    if pa.types.is_struct(target):
        fields = [target.field(index) for index in range(target.num_fields)]
        children = [_by_parts(array.field(at), field.type) for at, field in enumerate(fields)]
        buffers = array.buffers()[:1]
    elif pa.types.is_map(target):
        fields = [target.key_field, target.item_field]
        pairs = [_by_parts(array.keys, fields[0].type), _by_parts(array.items, fields[1].type)]
        _ = pairs[0].null_count  # counted now: with an unknown one, making the map aborts
        children = [pa.StructArray.from_arrays(pairs, fields=fields)]
        buffers = array.buffers()[:2]
    else:
        children = [_by_parts(array.values, target.value_type)]
        buffers = array.buffers()[:2]
    return pa.Array.from_buffers(target, len(array), buffers, array.null_count, children=children)


def _microseconds(array: pa.Array) -> pa.Array:
    """Nanoseconds as whole microseconds, rounded down.

    Arrow's floor_temporal is wrong for the first microsecond of the range: its result would be
    below the smallest number of nanoseconds, and becomes one of the year 2262.
    """
    nanos = array.view(pa.int64())
    micros = pc.divide(nanos, 1000)  # rounded towards zero
    is_above = pc.greater(pc.multiply(micros, 1000), nanos)
    return pc.subtract(micros, is_above.cast(pa.int64()))


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
