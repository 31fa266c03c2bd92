"""Converts a user's Arrow data to the columns and types of a table."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sluice.errors import InvalidTable
from sluice.formats.types.nested import children, leaves
from sluice.formats.types.types import arrow_schema
from sluice.model import Column, DataType, Schema, TypeRoot

_WHOLE = (TypeRoot.TINYINT, TypeRoot.SMALLINT, TypeRoot.INT, TypeRoot.BIGINT)
_PER_MS = {"us": 1_000, "ns": 1_000_000}
_REAL = (TypeRoot.FLOAT, TypeRoot.DOUBLE)


def conform(data: pa.RecordBatch | pa.Table, schema: Schema) -> pa.RecordBatch:
    """Returns the data as one batch with exactly the columns of ``arrow_schema``, found by name.

    A column is cast if its type differs, and only if no value changes. A missing nullable column is
    null. A timestamp without a time zone is read as UTC for TIMESTAMP_LTZ. Data with the right
    types are not copied, except a table of several chunks.

    :raises InvalidTable: names the column that is unknown, missing, has nulls but is NOT NULL, has
        another type, or has a value that the cast would change.
    """
    target = arrow_schema(schema)
    batch = _as_batch(data)
    if not batch.schema.equals(target):
        batch = pa.RecordBatch.from_arrays(_columns(batch, schema, target), schema=target)
    for field, array in zip(target, batch.columns, strict=True):
        _check_nulls(array, field, field.name)
    return batch


def check_whole_milliseconds(batch: pa.RecordBatch) -> None:
    """Checks that Fluss's row formats keep each TIME as it is: they have milliseconds.

    Otherwise two keys could become one, without a word (docs/fluss/rows.md#compacted-rows).

    :raises InvalidTable: names the column and the first value that would be cut.
    """
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        for times in leaves(column):
            if not pa.types.is_time64(times.type):
                continue
            per_ms = _PER_MS[times.type.unit]
            values = times.drop_null().view(pa.int64()).to_numpy()
            found = np.flatnonzero(values % per_ms)
            if len(found):
                value = times.drop_null()[int(found[0])]
                raise InvalidTable(
                    f"column {name!r} has the time {value}, and this table keeps milliseconds:"
                    " round it, or use a TIMESTAMP(6) column"
                )


def _as_batch(data: pa.RecordBatch | pa.Table) -> pa.RecordBatch:
    if isinstance(data, pa.RecordBatch):
        return data
    batches = data.combine_chunks().to_batches()
    if len(batches) > 1:
        raise InvalidTable(
            f"a table of {data.nbytes:,} bytes does not fit into one batch: write smaller parts"
        )
    if batches:
        return batches[0]
    return pa.record_batch([pa.array([], f.type) for f in data.schema], schema=data.schema)


def _columns(batch: pa.RecordBatch, schema: Schema, target: pa.Schema) -> list[pa.Array]:
    names = batch.schema.names
    for name in names:
        if name not in schema.names:
            raise InvalidTable(
                f"column {name!r} is not in the table, which has {', '.join(target.names)}"
            )
    if len(set(names)) != len(names):
        raise InvalidTable(f"column names must be unique: {', '.join(names)}")
    arrays = []
    for column, field in zip(schema.columns, target, strict=True):
        position = batch.schema.get_field_index(column.name)
        if position >= 0:
            arrays.append(_convert(batch.column(position), column, field.type))
        elif field.nullable:
            arrays.append(pa.nulls(batch.num_rows, field.type))
        else:
            raise InvalidTable(f"column {column.name!r} is NOT NULL, but is missing from the data")
    return arrays


def _convert(array: pa.Array, column: Column, target: pa.DataType) -> pa.Array:
    if array.type == target:
        return array
    if pa.types.is_dictionary(array.type):
        return _convert(array.dictionary_decode(), column, target)
    if not _fits(array.type, column.data_type):
        raise InvalidTable(
            f"column {column.name!r} is {column.data_type}: its data have Arrow type {array.type},"
            f" cast them to {target}"
        )
    try:
        if pa.types.is_integer(array.type) and pa.types.is_decimal(target):
            # widen first: Arrow checks the type here, not the values
            array = array.cast(pa.decimal256(20 + target.scale, target.scale))
        converted = array.cast(target)
    except pa.ArrowException as error:
        raise InvalidTable(
            f"column {column.name!r} is {column.data_type}: a value of Arrow type {array.type}"
            f" would change: {error}"
        ) from error
    if pa.types.is_float64(array.type) and not _same_numbers(array, converted):
        raise InvalidTable(
            f"column {column.name!r} is {column.data_type}: a value of Arrow type {array.type}"
            " would lose digits; cast the data if that is intended"
        )
    return converted


def _same_numbers(array: pa.Array, converted: pa.Array) -> bool:
    """Checks for rounding, because pyarrow casts float64 to float32 silently."""
    back = converted.cast(array.type)
    differs = pc.and_(pc.not_equal(array, back), pc.invert(pc.is_nan(array)))
    return not pc.any(differs).as_py()


def _fits(arrow: pa.DataType, data_type: DataType) -> bool:
    """Returns whether the kinds of types match; the cast checks the values."""
    if pa.types.is_null(arrow):
        return True
    check = _FITS.get(data_type.root)
    if check is None:
        return _nested_fits(arrow, data_type)
    if data_type.root is TypeRoot.TIMESTAMP:
        return _is_stamp(arrow) and arrow.tz is None
    return check(arrow)


def _child_fits(arrow: pa.DataType, data_type: DataType) -> bool:
    """Like :func:`_fits` without rounding, since nested values are not compared."""
    return _fits(arrow, data_type) and not (
        data_type.root is TypeRoot.FLOAT and pa.types.is_float64(arrow)
    )


def _nested_fits(arrow: pa.DataType, data_type: DataType) -> bool:
    types = pa.types
    if data_type.root is TypeRoot.ARRAY and data_type.element is not None:
        is_list = types.is_list(arrow) or types.is_large_list(arrow)
        return is_list and _child_fits(arrow.value_type, data_type.element)
    if data_type.root is TypeRoot.MAP and data_type.key is not None and data_type.value is not None:
        return (
            types.is_map(arrow)
            and _child_fits(arrow.key_type, data_type.key)
            and _child_fits(arrow.item_type, data_type.value)
        )
    fields = data_type.fields
    return (
        types.is_struct(arrow)
        and [field.name for field in arrow] == [field.name for field in fields]
        and all(_child_fits(a.type, f.data_type) for a, f in zip(arrow, fields, strict=True))
    )


def _is_stamp(arrow: pa.DataType) -> bool:
    return pa.types.is_timestamp(arrow)


def _is_text(arrow: pa.DataType) -> bool:
    types = pa.types
    return types.is_string(arrow) or types.is_large_string(arrow) or types.is_string_view(arrow)


def _is_bytes(arrow: pa.DataType) -> bool:
    types = pa.types
    return (
        types.is_binary(arrow)
        or types.is_large_binary(arrow)
        or types.is_binary_view(arrow)
        or types.is_fixed_size_binary(arrow)
    )


def _is_number(arrow: pa.DataType) -> bool:
    return pa.types.is_integer(arrow) or pa.types.is_floating(arrow)


def _is_exact(arrow: pa.DataType) -> bool:
    return pa.types.is_integer(arrow) or pa.types.is_decimal(arrow)


_FITS: dict[TypeRoot, Callable[[pa.DataType], bool]] = {
    TypeRoot.BOOLEAN: pa.types.is_boolean,
    **dict.fromkeys(_WHOLE, pa.types.is_integer),
    **dict.fromkeys(_REAL, _is_number),
    TypeRoot.DECIMAL: _is_exact,
    TypeRoot.CHAR: _is_text,
    TypeRoot.STRING: _is_text,
    TypeRoot.BINARY: _is_bytes,
    TypeRoot.BYTES: _is_bytes,
    TypeRoot.DATE: pa.types.is_date,
    TypeRoot.TIME: pa.types.is_time,
    TypeRoot.TIMESTAMP: _is_stamp,
    TypeRoot.TIMESTAMP_LTZ: _is_stamp,
}


def _check_nulls(array: pa.Array, field: pa.Field, where: str) -> None:
    if array.null_count and not field.nullable:
        raise InvalidTable(f"column {where!r} is NOT NULL, but has {array.null_count} nulls")
    for child, values in children(field.type, array):
        _check_nulls(values, child, f"{where}.{child.name}")
