"""Decodes the primary keys of a KV store (docs/fluss/keys-and-buckets.md#key-encoders).

Only a look-up that inserts missing rows needs this: it has keys, and no rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from sluice.errors import CorruptRecord, UnsupportedLakeOption
from sluice.formats.keys.primary_keys import key_format, physical_primary_key
from sluice.formats.rows import field_bytes
from sluice.formats.rows.arrays import decode_rows
from sluice.formats.types.types import arrow_type
from sluice.model import DataType, TableInfo, TypeRoot

_WIDTH = 8
_NUMBERS = frozenset(
    {TypeRoot.INT, TypeRoot.DATE, TypeRoot.BIGINT, TypeRoot.TIME, TypeRoot.TIMESTAMP}
)
"""What Iceberg's encoder writes as a number of eight bytes."""
_UNITS = {
    TypeRoot.DATE: pa.int32(),
    TypeRoot.TIME: pa.time64("us"),
    TypeRoot.TIMESTAMP: pa.timestamp("us"),
}
"""What such a number counts, where the type does not say it."""
_DECIMAL_PRECISION_MAX = 38


def decode_keys(keys: pa.Array, info: TableInfo) -> dict[str, pa.Array]:
    """The columns of the primary key, with the types of ``arrow_schema``.

    It is the inverse of ``primary_keys``, but bytes that no encoder writes may be decoded too.
    So encode the columns again and compare.

    :param keys: a binary array without nulls.
    :raises CorruptRecord: a key is not valid.
    :raises UnsupportedLakeOption: keys of that lake format cannot be decoded.
    :raises InvalidConfig: see ``key_format``.
    """
    names = physical_primary_key(info)
    types = [info.schema.column(name).data_type.not_null() for name in names]
    lake = (key_format(info) or "").lower()
    if lake in ("", "lance"):
        return dict(zip(names, _compacted(keys, types), strict=True))
    if lake == "iceberg" and len(names) == 1:
        return {names[0]: _iceberg(keys, types[0])}
    raise UnsupportedLakeOption(
        f"table {info.path}: keys of table.datalake.format {lake!r} cannot be decoded; write the"
        " rows with PutKv"
    )


def _compacted(keys: pa.Array, types: Sequence[DataType]) -> list[pa.Array]:
    """Such a key is a row of its columns in the format COMPACTED, without the bits for nulls."""
    no_nulls = pa.array([bytes((len(types) + 7) // 8)], pa.binary()).take(
        pa.array(np.zeros(len(keys), np.int64))
    )
    return decode_rows(field_bytes.join([no_nulls, keys]), types, "COMPACTED")


def _iceberg(keys: pa.Array, data_type: DataType) -> pa.Array:
    if data_type.root in (TypeRoot.FLOAT, TypeRoot.DOUBLE):
        return _compacted(keys, [data_type])[0]
    if data_type.root not in _NUMBERS:
        # A compacted key has the same bytes after their length; decimals only if they are large.
        stored = data_type
        if data_type.root is TypeRoot.DECIMAL:
            stored = replace(data_type, precision=_DECIMAL_PRECISION_MAX)
        (column,) = _compacted(field_bytes.with_length(keys), [stored])
        return _cast(column, data_type)
    numbers = pa.array(_numbers(keys, data_type))
    if data_type.root in _UNITS:
        numbers = _cast_to(numbers, _UNITS[data_type.root])
    return _cast(numbers, data_type)


def _numbers(keys: pa.Array, data_type: DataType) -> np.ndarray:
    starts, lengths, content = field_bytes.binary_buffers(keys)
    wrong = np.flatnonzero(lengths != _WIDTH)
    if len(wrong):
        row = int(wrong[0])
        raise CorruptRecord(
            f"key {row} has {lengths[row]} bytes, but a key of {data_type} has {_WIDTH}"
        )
    if not len(keys):
        return np.empty(0, np.int64)
    return content[starts[0] : starts[0] + _WIDTH * len(keys)].view("<i8")


def _cast(column: pa.Array, data_type: DataType) -> pa.Array:
    return _cast_to(column, arrow_type(data_type))


def _cast_to(column: pa.Array, kind: pa.DataType) -> pa.Array:
    try:
        return column.cast(kind)
    except pa.ArrowInvalid as error:
        raise CorruptRecord(f"a key cannot be decoded: {error}") from error
