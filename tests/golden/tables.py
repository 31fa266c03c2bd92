"""The tables whose bytes are kept: every type, with and without nulls, values at their edges."""

from __future__ import annotations

from decimal import Context, Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sluice.formats.types.types import arrow_schema
from sluice.model import types as t
from sluice.model.table import Column, Schema

_EXACT = Context(prec=60)
_LONG = "Ein Bach, der früher ein Strom war, läuft durch die Schleuse. " * 4


def _stamp(unit_per_s: int) -> list[Any]:
    """Integers of the column's unit: a day of ours, zero, before 1970, years 9999 and 1."""
    seconds = [1_763_719_200, 0, -1, 253_370_764_800, -62_135_596_800]
    return [s * unit_per_s + (unit_per_s - 1 if s > 0 else 0) for s in seconds]


_US, _NS = 10**6, 10**9
_NS_STAMPS = [1_763_719_200_123_456_789, 0, -1, 4_102_444_799_999_999_999, -2_208_988_800 * _NS]

VALUES: dict[str, tuple[t.DataType, list[Any]]] = {
    "boolean": (t.BOOLEAN, [True, False, True, False, True]),
    "tinyint": (t.TINYINT, [1, 0, -1, 127, -128]),
    "smallint": (t.SMALLINT, [1, 0, -1, 32767, -32768]),
    "int": (t.INT, [1, 0, -1, 2**31 - 1, -(2**31)]),
    "bigint": (t.BIGINT, [1, 0, -1, 2**63 - 1, -(2**63)]),
    "float": (t.FLOAT, [1.5, 0.0, -0.0, float("inf"), 3.4028234663852886e38]),
    "double": (t.DOUBLE, [1.5, 0.0, -0.0, float("-inf"), 1.7976931348623157e308]),
    "char_5": (t.char(5), ["abcde", "", "ä", "x", "grün"]),
    "string": (t.STRING, ["plain", "", "日本語 🜄", _LONG, "\0nul\0"]),
    "binary_4": (
        t.binary(4),
        [b"abcd", b"\0\0\0\0", b"\xff\xff\xff\xff", b"\x80\0\x7f\1", b"1234"],
    ),
    "bytes": (t.BYTES, [b"plain", b"", b"\0", bytes(range(256)), b"\xff" * 7]),
    "decimal_9_2": (
        t.decimal(9, 2),
        [
            Decimal("1.50"),
            Decimal("0.00"),
            Decimal("-0.01"),
            Decimal("9999999.99"),
            Decimal("-9999999.99"),
        ],
    ),
    "decimal_18_0": (
        t.decimal(18, 0),
        [Decimal(1), Decimal(0), Decimal(-1), Decimal(10**18 - 1), Decimal(-(10**18) + 1)],
    ),
    "decimal_38_10": (
        t.decimal(38, 10),
        [Decimal(f"{n}E-10") for n in (15 * 10**9, 0, -1, 10**38 - 1, -(10**38) + 1)],
    ),
    "date": (t.DATE, [20_413, 0, -1, 2_932_896, -719_162]),
    "time_0": (t.time(0), [45_000, 0, 1, 86_399, 60]),
    "time_3": (t.time(3), [45_000_123, 0, 1, 86_399_999, 60]),
    "timestamp_0": (t.timestamp(0), _stamp(1)),
    "timestamp_3": (t.timestamp(3), _stamp(1000)),
    "timestamp_6": (t.timestamp(6), _stamp(_US)),
    "timestamp_9": (t.timestamp(9), _NS_STAMPS),
    "ltz_0": (t.timestamp_ltz(0), _stamp(1)),
    "ltz_3": (t.timestamp_ltz(3), _stamp(1000)),
    "ltz_6": (t.timestamp_ltz(6), _stamp(_US)),
    "ltz_9": (t.timestamp_ltz(9), _NS_STAMPS),
}
"""Column -> its type and five values; times, dates and timestamps as integers of their unit."""


def _schema(kinds: dict[str, t.DataType], primary_key: tuple[str, ...] = ()) -> Schema:
    columns = (Column(name, kind, i) for i, (name, kind) in enumerate(kinds.items()))
    return Schema(tuple(columns), primary_key)


NULLABLE = _schema({"id": t.INT} | {name: kind for name, (kind, _) in VALUES.items()})
NOT_NULL = _schema(
    {"id": t.INT.not_null()} | {name: kind.not_null() for name, (kind, _) in VALUES.items()}
)
KEYED = _schema(
    {"id": t.INT.not_null(), "name": t.STRING.not_null()}
    | {name: kind for name, (kind, _) in VALUES.items()},
    primary_key=("id", "name"),
)


def column(name: str, kind: t.DataType, values: list[Any]) -> pa.Array:
    """Values of ``VALUES``' form as the log's Arrow type."""
    to = arrow_schema(_schema({name: kind})).field(0).type
    plain = values
    if pa.types.is_temporal(to):
        whole = pa.int32() if to.bit_width == 32 else pa.int64()
        return pa.array(plain, whole).view(to)
    return pa.array(plain, to)


def rows(schema: Schema, *, nulls: bool) -> pa.Table:
    """Five rows of values; with ``nulls`` three more: all null, and each second column null."""
    arrays: list[pa.Array] = []
    count = 8 if nulls else 5
    for position, each in enumerate(schema.columns):
        if each.name == "id":
            arrays.append(pa.array(range(count), pa.int32()))
            continue
        if each.name == "name":
            arrays.append(pa.array([f"n{i}" for i in range(count)]))
            continue
        kind, values = VALUES[each.name]
        if nulls:
            half = [values[0] if position % 2 == row else None for row in range(2)]
            values = [*values, None, *half]
        arrays.append(column(each.name, kind, values))
    return pa.Table.from_arrays(arrays, schema=arrow_schema(schema))


def zoned(table: pa.Table, schema: Schema) -> pa.Table:
    """The same with zones on LTZ columns, as pyfluss wants them; the log's Arrow has none."""
    fields = []
    for each, field in zip(schema.columns, table.schema, strict=True):
        ltz = each.data_type.root is t.TypeRoot.TIMESTAMP_LTZ
        fields.append(field.with_type(pa.timestamp(field.type.unit, "UTC")) if ltz else field)
    return table.cast(pa.schema(fields))


def for_python(table: pa.Table) -> pa.Table:
    """What pyfluss takes as Python values: it refuses timestamps before 1970, and cuts them to us.

    Those become null, or zero where null is not allowed.
    """
    plain = table
    for position, field in enumerate(table.schema):
        if not pa.types.is_timestamp(field.type):
            continue
        numbers = table[position].combine_chunks().view(pa.int64())
        zero = pa.scalar(None if field.nullable else 0, pa.int64())
        numbers = pc.if_else(pc.less(numbers, 0), zero, numbers)
        if field.type.unit == "ns":
            numbers = pc.multiply(pc.divide(numbers, 1000), 1000)
        plain = plain.set_column(position, field, numbers.view(field.type))
    return plain


COMPRESSIONS = ("ZSTD", "LZ4_FRAME", "NONE")
LAKE_FORMATS = (None, "iceberg", "paimon")
BUCKETS = 7
"""Of the tables that show where keys go."""

_ICEBERG_CANNOT = {"boolean", "tinyint", "smallint", "ltz_0", "ltz_3", "ltz_6", "ltz_9"}


def key_kinds(lake_format: str | None) -> list[tuple[str, ...]]:
    """Columns of ``VALUES`` that are a key together, for all that the lake format can."""
    if lake_format == "iceberg":
        return [(name,) for name in VALUES if name not in _ICEBERG_CANNOT]
    several = [("int", "string"), ("string", "bigint", "date"), ("bytes", "boolean", "double")]
    return [*((name,) for name in VALUES), *several]


def key_rows(columns: tuple[str, ...]) -> tuple[Schema, pa.Table]:
    """A table of ``row`` INT and the key columns, all not null: the edges, then a spread.

    Without empty values: pyfluss refuses an empty bucket key.
    """
    kinds = {name: VALUES[name][0].not_null() for name in columns}
    schema = _schema({"row": t.INT.not_null()} | kinds, primary_key=columns)
    arrays = []
    for name in columns:
        kind, edges = VALUES[name]
        values = [value for value in edges if value not in ("", b"")] + spread(name)
        arrays.append(column(name, kind, values[:19]))
    number = pa.array(range(len(arrays[0])), pa.int32())
    return schema, pa.Table.from_arrays([number, *arrays], schema=arrow_schema(schema))


def spread(name: str) -> list[Any]:
    """Fifteen more values, all different, for every column but the booleans."""
    first = VALUES[name][1][0]
    numbers = [7 + 9973 * n for n in range(15)]
    if name == "boolean":
        return [n % 2 == 0 for n in range(15)]
    if name == "tinyint":
        return [n % 97 for n in numbers]
    if name in ("smallint", "time_0"):
        return [n % 32749 for n in numbers]
    if name == "binary_4":
        return [n.to_bytes(4, "little") for n in numbers]
    if name == "char_5":
        return [f"{n % 99991:05d}" for n in numbers]
    if isinstance(first, str):
        return [f"key {n} of ä" for n in numbers]
    if isinstance(first, bytes):
        return [str(n).encode() * (n % 4) + b"." for n in numbers]
    return [type(first)(n) for n in numbers]


def plain_rows(table: pa.Table, schema: Schema) -> list[list[Any]]:
    """Rows as ``tests.support.tables.row_by_row`` takes and gives them."""
    columns = [
        _plain_values(table[each.name].combine_chunks(), each.data_type) for each in schema.columns
    ]
    return [list(row) for row in zip(*columns, strict=True)]


_NANOS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}


def _plain_values(array: pa.Array, kind: t.DataType) -> list[Any]:
    to = array.type
    if pa.types.is_temporal(to):
        numbers = array.view(pa.int32() if to.bit_width == 32 else pa.int64())
        whole: list[Any] = numbers.to_pylist()
        if pa.types.is_date(to):
            return whole
        nanos = [None if value is None else value * _NANOS[to.unit] for value in whole]
        if pa.types.is_timestamp(to):
            return nanos
        return [None if value is None else value // 10**6 for value in nanos]
    if pa.types.is_decimal(to):
        scale = kind.scale or 0
        values = array.to_pylist()
        return [None if v is None else int(v.scaleb(scale, _EXACT)) for v in values]
    plain: list[Any] = array.to_pylist()
    return plain
