"""Arrow data of every type that Fluss has, for property tests."""

from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from sluice.formats.types.types import arrow_type
from sluice.model import DataType, RowField, TypeRoot
from sluice.model import types as t

SCALARS = (
    t.BOOLEAN,
    t.TINYINT,
    t.SMALLINT,
    t.INT,
    t.BIGINT,
    t.FLOAT,
    t.DOUBLE,
    t.char(5),
    t.STRING,
    t.binary(4),
    t.BYTES,
    t.decimal(9, 2),
    t.decimal(38, 10),
    t.DATE,
    t.time(0),
    t.time(3),
    t.time(6),
    t.time(9),
    t.timestamp(0),
    t.timestamp(3),
    t.timestamp(6),
    t.timestamp(9),
    t.timestamp_ltz(3),
    t.timestamp_ltz(6),
    t.timestamp_ltz(9),
)
NESTED = (
    DataType(TypeRoot.ARRAY, element=t.STRING),
    DataType(TypeRoot.MAP, key=t.STRING.not_null(), value=t.INT),
    DataType(TypeRoot.ROW, fields=(RowField("x", t.BIGINT), RowField("y", t.STRING))),
)
_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
_SECONDS_A_DAY = 86_400
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def whole(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def storage(data_type: DataType) -> tuple[st.SearchStrategy[Any], pa.DataType]:
    """Values, and the Arrow type to make them with before a cast to the real one."""
    arrow = arrow_type(data_type)
    types = pa.types
    if types.is_integer(arrow):
        return whole(arrow.bit_width), arrow
    if types.is_boolean(arrow):
        return st.booleans(), arrow
    if types.is_floating(arrow):
        return st.floats(width=arrow.bit_width, allow_nan=False), arrow
    if types.is_string(arrow):
        return _TEXT, arrow
    if types.is_fixed_size_binary(arrow) and not types.is_decimal(arrow):
        return st.binary(min_size=arrow.byte_width, max_size=arrow.byte_width), arrow
    if types.is_binary(arrow):
        return st.binary(max_size=12), arrow
    if types.is_decimal(arrow):
        limit = 10**arrow.precision - 1
        unscaled = st.integers(-limit, limit)
        return unscaled.map(lambda n: _decimal(n, arrow.scale)), arrow
    if types.is_date(arrow):
        return whole(32), pa.int32()
    if types.is_time(arrow):
        return st.integers(0, _SECONDS_A_DAY * _PER_SECOND[arrow.unit] - 1), pa.int64()
    assert types.is_timestamp(arrow)
    return whole(64), pa.int64()


def _decimal(unscaled: int, scale: int) -> Any:
    from decimal import Context, Decimal

    return Decimal(unscaled).scaleb(-scale, Context(prec=60))


def make_array(data_type: DataType, values: list[Any]) -> pa.Array:
    arrow = arrow_type(data_type)
    if data_type in NESTED:
        return pa.array(values, arrow)
    _, first = storage(data_type)
    array = pa.array(values, first)
    if array.type == arrow:
        return array
    if pa.types.is_time32(arrow):
        array = array.cast(pa.int32())
    return array.view(arrow)


def values_of(data_type: DataType) -> st.SearchStrategy[Any]:
    if data_type is NESTED[0]:
        return st.lists(st.none() | _TEXT, max_size=3)
    if data_type is NESTED[1]:
        return st.dictionaries(_TEXT, st.none() | whole(32), max_size=3).map(
            lambda entries: list(entries.items())
        )
    if data_type is NESTED[2]:
        return st.fixed_dictionaries({"x": st.none() | whole(64), "y": st.none() | _TEXT})
    return storage(data_type)[0]


@st.composite
def arrow_batches(draw: st.DrawFn) -> pa.RecordBatch:
    """0 to 20 rows of one to five columns of any type, with nulls in nullable ones."""
    types = draw(st.lists(st.sampled_from(SCALARS + NESTED), min_size=1, max_size=5))
    rows = draw(st.integers(0, 20))
    arrays, fields = [], []
    for index, data_type in enumerate(types):
        nullable = draw(st.booleans())
        value = values_of(data_type)
        values = draw(
            st.lists(st.none() | value if nullable else value, min_size=rows, max_size=rows)
        )
        arrays.append(make_array(data_type, values))
        fields.append(pa.field(f"c{index}", arrow_type(data_type), nullable=nullable))
    return pa.record_batch(arrays, schema=pa.schema(fields))
