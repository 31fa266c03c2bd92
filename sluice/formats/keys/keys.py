"""Encodes the keys of all rows of a batch, with Fluss's three key encoders.

See docs/fluss/keys-and-buckets.md#key-encoders
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from sluice.errors import InvalidTable, UnsupportedLakeOption
from sluice.formats.keys.paimon_keys import encode_paimon
from sluice.formats.rows import field_bytes
from sluice.formats.rows.field_bytes import refuse
from sluice.formats.rows.plan import is_compact
from sluice.model import DataType, Schema, TypeRoot


def encode_key(
    batch: pa.RecordBatch, columns: Sequence[str], schema: Schema, lake_format: str | None
) -> pa.Array:
    """Returns the key of each row as a binary array; ``batch`` has the types of ``arrow_schema``.

    ``lake_format`` selects the encoder: Iceberg's, Paimon's, or Compacted without one or for Lance.

    :raises InvalidTable: a key is null, a column is unknown, or Iceberg gets several columns.
    :raises UnsupportedType: the encoder does not support the type of a column.
    :raises UnsupportedLakeOption: Sluice does not support the key encoding of the lake format.
    """
    arrays, types = _key_columns(batch, columns, schema)
    lake = (lake_format or "").lower()
    if lake == "paimon":
        return encode_paimon(arrays, types, columns)
    for name, array in zip(columns, arrays, strict=True):
        if array.null_count:
            raise InvalidTable(f"key column {name!r} has {array.null_count} nulls")
    if lake in ("", "lance"):
        fields = zip(arrays, types, columns, strict=True)
        return field_bytes.join(
            [_compacted(array, data_type, name) for array, data_type, name in fields]
        )
    if lake == "iceberg":
        if len(columns) != 1:
            one = columns[0] if columns else "COLUMN"
            raise InvalidTable(
                f"an Iceberg table has one key column, not {len(columns)}: {list(columns)}; set"
                f" bucket.key to one of them (`sluice create-table --bucket-key {one}`), or"
                " use a server without a lake (datalake.format=none)"
            )
        return _iceberg(arrays[0], types[0], columns[0])
    raise UnsupportedLakeOption(
        f"table.datalake.format {lake_format!r}: Sluice does not support its key encoding;"
        " use iceberg, paimon or lance"
    )


def _key_columns(
    batch: pa.RecordBatch, columns: Sequence[str], schema: Schema
) -> tuple[list[pa.Array], list[DataType]]:
    if not columns:
        raise InvalidTable("a key needs at least one column")
    arrays, types = [], []
    for name in columns:
        position = batch.schema.get_field_index(name)
        if position < 0 or name not in schema.names:
            raise InvalidTable(
                f"key column {name!r} is missing from the data, which have {batch.schema.names}"
            )
        arrays.append(batch.column(position))
        types.append(schema.column(name).data_type)
    return arrays, types


def _compacted(array: pa.Array, data_type: DataType, name: str) -> pa.Array:
    writer = _COMPACTED.get(data_type.root)
    if writer is None:
        raise refuse(data_type, name, "Compacted")
    return writer(array, data_type)


def _compacted_decimal(array: pa.Array, data_type: DataType) -> pa.Array:
    if is_compact(data_type):
        return field_bytes.varint(field_bytes.unscaled_low(array))
    return field_bytes.with_length(field_bytes.unscaled_big_endian(array))


def _compacted_timestamp(array: pa.Array, data_type: DataType) -> pa.Array:
    millis, nanos = field_bytes.epoch_millis(array)
    if is_compact(data_type):
        return field_bytes.varint(millis)
    return field_bytes.join([field_bytes.varint(millis), field_bytes.varint(nanos)])


def _compacted_bytes(array: pa.Array, _: DataType) -> pa.Array:
    return field_bytes.with_length(field_bytes.as_binary(array))


def _plain(array: pa.Array, _: DataType) -> pa.Array:
    return field_bytes.fixed(field_bytes.numbers(array))


_COMPACTED: dict[TypeRoot, Callable[[pa.Array, DataType], pa.Array]] = {
    TypeRoot.BOOLEAN: lambda array, _: field_bytes.fixed(field_bytes.booleans(array)),
    TypeRoot.TINYINT: _plain,
    TypeRoot.SMALLINT: _plain,
    TypeRoot.INT: lambda array, _: field_bytes.varint32(field_bytes.integers(array)),
    TypeRoot.DATE: lambda array, _: field_bytes.varint32(field_bytes.integers(array)),
    TypeRoot.TIME: lambda array, _: field_bytes.varint32(field_bytes.millis_of_day(array)),
    TypeRoot.BIGINT: lambda array, _: field_bytes.varint(field_bytes.integers(array)),
    TypeRoot.FLOAT: _plain,
    TypeRoot.DOUBLE: _plain,
    TypeRoot.CHAR: _compacted_bytes,
    TypeRoot.STRING: _compacted_bytes,
    TypeRoot.BINARY: _compacted_bytes,
    TypeRoot.BYTES: _compacted_bytes,
    TypeRoot.DECIMAL: _compacted_decimal,
    TypeRoot.TIMESTAMP: _compacted_timestamp,
    TypeRoot.TIMESTAMP_LTZ: _compacted_timestamp,
}


def _iceberg(array: pa.Array, data_type: DataType, name: str) -> pa.Array:
    root = data_type.root
    if root in (TypeRoot.INT, TypeRoot.DATE, TypeRoot.BIGINT):
        return field_bytes.fixed(field_bytes.integers(array))
    if root is TypeRoot.TIME:
        return field_bytes.fixed(field_bytes.millis_of_day(array) * np.int64(1000))
    if root is TypeRoot.TIMESTAMP:
        millis, nanos = field_bytes.epoch_millis(array)
        return field_bytes.fixed(millis * 1000 + nanos // 1000)
    if root in (TypeRoot.FLOAT, TypeRoot.DOUBLE):
        return field_bytes.fixed(field_bytes.numbers(array))
    if root is TypeRoot.DECIMAL:
        return field_bytes.unscaled_big_endian(array)
    if root in (TypeRoot.CHAR, TypeRoot.STRING, TypeRoot.BINARY, TypeRoot.BYTES):
        return field_bytes.as_binary(array)
    raise refuse(data_type, name, "Iceberg")
