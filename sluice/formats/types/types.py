"""Fluss data types as Arrow types and back (docs/fluss/log-batches.md#arrow-types)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import count

import pyarrow as pa

from sluice.errors import InvalidTable, UnsupportedType
from sluice.model import Column, DataType, RowField, Schema, TypeRoot

_PLAIN: dict[TypeRoot, pa.DataType] = {
    TypeRoot.BOOLEAN: pa.bool_(),
    TypeRoot.TINYINT: pa.int8(),
    TypeRoot.SMALLINT: pa.int16(),
    TypeRoot.INT: pa.int32(),
    TypeRoot.BIGINT: pa.int64(),
    TypeRoot.FLOAT: pa.float32(),
    TypeRoot.DOUBLE: pa.float64(),
    TypeRoot.CHAR: pa.string(),
    TypeRoot.STRING: pa.string(),
    TypeRoot.BYTES: pa.binary(),
    TypeRoot.DATE: pa.date32(),
}
_FROM_ARROW: dict[pa.DataType, TypeRoot] = {
    **{arrow: root for root, arrow in _PLAIN.items() if root is not TypeRoot.CHAR},
    pa.large_string(): TypeRoot.STRING,
    pa.string_view(): TypeRoot.STRING,
    pa.large_binary(): TypeRoot.BYTES,
    pa.binary_view(): TypeRoot.BYTES,
    pa.date64(): TypeRoot.DATE,
    pa.uint8(): TypeRoot.SMALLINT,
    pa.uint16(): TypeRoot.INT,
    pa.uint32(): TypeRoot.BIGINT,
    pa.float16(): TypeRoot.FLOAT,
}
_PRECISION = {"s": 0, "ms": 3, "us": 6, "ns": 9}


def arrow_type(data_type: DataType) -> pa.DataType:
    """Returns the Arrow type of a Fluss type in the log.

    Both timestamps have no zone there; LTZ counts from the epoch in UTC.

    :raises UnsupportedType: an attribute is missing or out of range.
    """
    root = data_type.root
    plain = _PLAIN.get(root)
    if plain is not None:
        return plain
    try:
        return _TYPE_MAKERS[root](data_type)
    except (TypeError, ValueError) as error:
        raise UnsupportedType(f"data type {data_type!r}: {error}") from error


def _binary(data_type: DataType) -> pa.DataType:
    if data_type.length is None or data_type.length < 1:
        raise ValueError("length must be 1 or more")
    return pa.binary(data_type.length)


def _decimal(data_type: DataType) -> pa.DataType:
    return pa.decimal128(data_type.precision, data_type.scale)


def time_unit(precision: int | None) -> str:
    """Returns the Arrow unit by precision: s (0), ms (1-3), us (4-6) or ns (7-9)."""
    if precision is None or not 0 <= precision <= 9:
        raise ValueError("precision must be 0 to 9")
    return ("s", "ms", "us", "ns")[(precision + 2) // 3]


def _time(data_type: DataType) -> pa.DataType:
    unit = time_unit(data_type.precision)
    return pa.time32(unit) if unit in ("s", "ms") else pa.time64(unit)


def _timestamp(data_type: DataType) -> pa.DataType:
    return pa.timestamp(time_unit(data_type.precision))


def _array(data_type: DataType) -> pa.DataType:
    if data_type.element is None:
        raise ValueError("the element type is missing")
    return pa.list_(_field("element", data_type.element))


def _map(data_type: DataType) -> pa.DataType:
    if data_type.key is None or data_type.value is None:
        raise ValueError("the key or value type is missing")
    return pa.map_(_field("key", data_type.key.not_null()), _field("value", data_type.value))


def _row(data_type: DataType) -> pa.DataType:
    return pa.struct([_field(f.name, f.data_type) for f in data_type.fields])


_TYPE_MAKERS = {
    TypeRoot.BINARY: _binary,
    TypeRoot.DECIMAL: _decimal,
    TypeRoot.TIME: _time,
    TypeRoot.TIMESTAMP: _timestamp,
    TypeRoot.TIMESTAMP_LTZ: _timestamp,
    TypeRoot.ARRAY: _array,
    TypeRoot.MAP: _map,
    TypeRoot.ROW: _row,
}


def _field(name: str, data_type: DataType) -> pa.Field:
    return pa.field(name, arrow_type(data_type), nullable=data_type.nullable)


@lru_cache(maxsize=1024)
def arrow_schema(schema: Schema) -> pa.Schema:
    """Returns the Arrow schema of a Fluss schema in the log: names, types, nullability."""
    return pa.schema([_field(column.name, column.data_type) for column in schema.columns])


def schema_from_arrow(schema: pa.Schema, primary_key: Sequence[str] = ()) -> Schema:
    """Returns a Fluss schema for a user's Arrow data; ids of columns and nested fields start at 0.

    A dictionary column gets the type of its values, key columns become NOT NULL, a timestamp with a
    zone becomes TIMESTAMP_LTZ, and an unsigned integer gets the next wider signed type.

    :raises UnsupportedType: Fluss has no type for an Arrow type; names the column.
    :raises InvalidTable: a key column does not exist, or a name is repeated.
    """
    names = schema.names
    if len(set(names)) != len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        raise InvalidTable(f"column names must be unique; repeated: {', '.join(twice)}")
    missing = [name for name in primary_key if name not in names]
    if missing:
        raise InvalidTable(
            f"primary key column {missing[0]!r} is missing from the data, which have {names}"
        )
    ids = count()
    columns = []
    for field in schema:
        column_id = next(ids)
        nullable = field.nullable and field.name not in primary_key
        data_type = _from_arrow(field.type, nullable, field.name, ids)
        columns.append(Column(field.name, data_type, column_id))
    return Schema(tuple(columns), tuple(primary_key), next(ids) - 1)


def _from_arrow(arrow: pa.DataType, nullable: bool, where: str, ids: Iterator[int]) -> DataType:
    if pa.types.is_dictionary(arrow):
        arrow = arrow.value_type
    root = _FROM_ARROW.get(arrow)
    if root is not None:
        return DataType(root, nullable)
    types = pa.types
    if types.is_fixed_size_binary(arrow):
        return DataType(TypeRoot.BINARY, nullable, length=arrow.byte_width)
    if types.is_decimal(arrow) and arrow.precision <= 38 and 0 <= arrow.scale <= arrow.precision:
        return DataType(TypeRoot.DECIMAL, nullable, precision=arrow.precision, scale=arrow.scale)
    if types.is_time(arrow):
        return DataType(TypeRoot.TIME, nullable, precision=_PRECISION[arrow.unit])
    if types.is_timestamp(arrow):
        stamp = TypeRoot.TIMESTAMP if arrow.tz is None else TypeRoot.TIMESTAMP_LTZ
        return DataType(stamp, nullable, precision=_PRECISION[arrow.unit])
    return _nested_from_arrow(arrow, nullable, where, ids)


def _nested_from_arrow(
    arrow: pa.DataType, nullable: bool, where: str, ids: Iterator[int]
) -> DataType:
    types = pa.types
    if types.is_map(arrow):
        key = _from_arrow(arrow.key_type, False, f"{where}.key", ids)
        item = arrow.item_field
        value = _from_arrow(item.type, item.nullable, f"{where}.value", ids)
        return DataType(TypeRoot.MAP, nullable, key=key, value=value)
    if types.is_list(arrow) or types.is_large_list(arrow) or types.is_fixed_size_list(arrow):
        item = arrow.value_field
        element = _from_arrow(item.type, item.nullable, f"{where}.element", ids)
        return DataType(TypeRoot.ARRAY, nullable, element=element)
    if types.is_struct(arrow):
        fields = []
        for field in arrow:
            field_id = next(ids)
            data_type = _from_arrow(field.type, field.nullable, f"{where}.{field.name}", ids)
            fields.append(RowField(field.name, data_type, None, field_id))
        return DataType(TypeRoot.ROW, nullable, fields=tuple(fields))
    raise UnsupportedType(
        f"column {where!r}: Fluss has no type for Arrow type {arrow}; cast the column"
    )
