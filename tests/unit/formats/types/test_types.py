"""Fluss types as Arrow types: the table of docs/fluss/log-batches.md#arrow-types"""

import pyarrow as pa
import pytest

from sluice.errors import InvalidTable, UnsupportedType
from sluice.formats.types.types import arrow_schema, arrow_type, schema_from_arrow
from sluice.model import Column, DataType, RowField, Schema, TypeRoot
from sluice.model import types as t

ROW = DataType(
    TypeRoot.ROW,
    fields=(RowField("x", t.INT.not_null(), None, 2), RowField("y", t.STRING, None, 3)),
)


@pytest.mark.parametrize(
    ("data_type", "arrow"),
    [
        (t.BOOLEAN, pa.bool_()),
        (t.TINYINT, pa.int8()),
        (t.SMALLINT, pa.int16()),
        (t.INT, pa.int32()),
        (t.BIGINT, pa.int64()),
        (t.FLOAT, pa.float32()),
        (t.DOUBLE, pa.float64()),
        (t.char(3), pa.string()),
        (t.STRING, pa.string()),
        (t.binary(3), pa.binary(3)),
        (t.BYTES, pa.binary()),
        (t.decimal(38, 5), pa.decimal128(38, 5)),
        (t.DATE, pa.date32()),
        (t.time(0), pa.time32("s")),
        (t.time(1), pa.time32("ms")),
        (t.time(3), pa.time32("ms")),
        (t.time(4), pa.time64("us")),
        (t.time(6), pa.time64("us")),
        (t.time(7), pa.time64("ns")),
        (t.timestamp(0), pa.timestamp("s")),
        (t.timestamp(3), pa.timestamp("ms")),
        (t.timestamp_ltz(4), pa.timestamp("us")),
        (t.timestamp_ltz(9), pa.timestamp("ns")),
        (
            DataType(TypeRoot.ARRAY, element=t.INT.not_null()),
            pa.list_(pa.field("element", pa.int32(), nullable=False)),
        ),
        (DataType(TypeRoot.MAP, key=t.STRING, value=t.INT), pa.map_(pa.string(), pa.int32())),
        (
            ROW,
            pa.struct([pa.field("x", pa.int32(), nullable=False), pa.field("y", pa.string())]),
        ),
    ],
)
def test_every_type_has_the_arrow_type_of_the_docs(data_type: DataType, arrow: pa.DataType) -> None:
    assert arrow_type(data_type) == arrow


def test_child_names_are_those_of_fluss() -> None:
    array = arrow_type(DataType(TypeRoot.ARRAY, element=t.INT))
    assert array.value_field.name == "element"
    mapping = arrow_type(DataType(TypeRoot.MAP, key=t.STRING, value=t.INT))
    assert (mapping.key_field.name, mapping.item_field.name) == ("key", "value")
    assert not mapping.keys_sorted


def test_nullability_is_that_of_the_column() -> None:
    schema = Schema((Column("a", t.INT.not_null(), 0), Column("b", t.INT, 1)))
    assert [field.nullable for field in arrow_schema(schema)] == [False, True]


@pytest.mark.parametrize(
    "data_type",
    [
        DataType(TypeRoot.DECIMAL, precision=39, scale=0),
        DataType(TypeRoot.DECIMAL),
        DataType(TypeRoot.TIMESTAMP),
        DataType(TypeRoot.TIME, precision=10),
        DataType(TypeRoot.BINARY),
        DataType(TypeRoot.ARRAY),
        DataType(TypeRoot.MAP, key=t.INT),
    ],
)
def test_an_incomplete_type_is_refused(data_type: DataType) -> None:
    with pytest.raises(UnsupportedType, match=data_type.root.name):
        arrow_type(data_type)


def test_a_schema_from_arrow_counts_nested_ids_like_fluss() -> None:
    arrow = pa.schema(
        [
            pa.field("k", pa.int64()),
            pa.field("r", arrow_type(ROW)),
            pa.field("z", pa.timestamp("us", "UTC"), nullable=False),
        ]
    )
    schema = schema_from_arrow(arrow, ["k"])
    assert [column.column_id for column in schema.columns] == [0, 1, 4]
    assert schema.column("r").data_type == ROW
    assert schema.column("k").data_type == t.BIGINT.not_null()
    assert schema.column("z").data_type == t.timestamp_ltz(6).not_null()
    assert schema.highest_field_id == 4


@pytest.mark.parametrize(
    ("arrow", "data_type"),
    [
        (pa.dictionary(pa.int8(), pa.string()), t.STRING),
        (pa.large_string(), t.STRING),
        (pa.large_binary(), t.BYTES),
        (pa.binary(4), t.binary(4)),
        (pa.uint32(), t.BIGINT),
        (pa.decimal128(12, 2), t.decimal(12, 2)),
        (pa.time64("us"), t.time(6)),
        (pa.timestamp("ns"), t.timestamp(9)),
        (pa.large_list(pa.int32()), DataType(TypeRoot.ARRAY, element=t.INT)),
        (
            pa.map_(pa.string(), pa.int32()),
            DataType(TypeRoot.MAP, key=t.STRING.not_null(), value=t.INT),
        ),
    ],
)
def test_users_types_find_their_fluss_type(arrow: pa.DataType, data_type: DataType) -> None:
    schema = schema_from_arrow(pa.schema([pa.field("a", arrow)]))
    assert schema.columns[0].data_type == data_type


@pytest.mark.parametrize("arrow", [pa.uint64(), pa.null(), pa.duration("s"), pa.decimal256(50, 1)])
def test_types_without_a_fluss_type_name_their_column(arrow: pa.DataType) -> None:
    with pytest.raises(UnsupportedType, match="'odd'"):
        schema_from_arrow(pa.schema([pa.field("odd", arrow)]))


def test_bad_names_and_keys_are_refused() -> None:
    field = pa.field("a", pa.int32())
    with pytest.raises(InvalidTable, match="must be unique"):
        schema_from_arrow(pa.schema([field, field]))
    with pytest.raises(InvalidTable, match="'b'"):
        schema_from_arrow(pa.schema([field]), ["b"])
