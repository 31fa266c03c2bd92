"""A column of every scalar type, and values for them."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pyarrow as pa

from sluice.formats.types.types import arrow_schema
from sluice.model import Column, DataType, Schema
from sluice.model import types as t

EVERY_TYPE: dict[str, DataType] = {
    "f_boolean": t.BOOLEAN,
    "f_tinyint": t.TINYINT,
    "f_smallint": t.SMALLINT,
    "f_int": t.INT,
    "f_bigint": t.BIGINT,
    "f_float": t.FLOAT,
    "f_double": t.DOUBLE,
    "f_char": t.char(3),
    "f_string": t.STRING,
    "f_binary": t.binary(2),
    "f_bytes": t.BYTES,
    "f_decimal": t.decimal(12, 2),
    "f_date": t.DATE,
    "f_time": t.time(3),
    "f_timestamp": t.timestamp(6),
    "f_timestamp_ltz": t.timestamp_ltz(6),
    "f_not_null": t.INT.not_null(),
}


_STAMP = dt.datetime(2024, 2, 29, 23, 59, 59, 123456)
_VALUES: dict[str, object] = {
    "f_boolean": True,
    "f_tinyint": -128,
    "f_smallint": -32768,
    "f_int": -(2**31),
    "f_bigint": 2**63 - 1,
    "f_float": 0.5,
    "f_double": -1e300,
    "f_char": "abc",
    "f_string": "größe",
    "f_binary": b"ab",
    "f_bytes": b"\x00\xff",
    "f_decimal": Decimal("-9999999999.99"),
    "f_date": _STAMP.date(),
    "f_time": dt.time(23, 59, 59, 123000),
    "f_timestamp": _STAMP,
    "f_timestamp_ltz": _STAMP,
    "f_not_null": 7,
}


def every_value() -> pa.Table:
    """Returns two rows: a value of every type, and nulls where allowed."""
    schema = Schema(tuple(Column(n, k, i) for i, (n, k) in enumerate(EVERY_TYPE.items())))
    second = dict.fromkeys(_VALUES) | {"f_not_null": 8}
    return pa.Table.from_pylist([_VALUES, second], schema=arrow_schema(schema))
