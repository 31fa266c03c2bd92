"""Schemas as users write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.cli.schema_text import parse_schema
from sluice.errors import InvalidTable
from sluice.model import Column, DataType, Schema, types

TYPES = [
    types.BOOLEAN,
    types.TINYINT,
    types.SMALLINT,
    types.INT,
    types.BIGINT,
    types.FLOAT,
    types.DOUBLE,
    types.STRING,
    types.BYTES,
    types.DATE,
    types.char(3),
    types.binary(16),
    types.decimal(38, 10),
    types.time(3),
    types.timestamp(6),
    types.timestamp_ltz(0),
]


@pytest.mark.parametrize("data_type", TYPES, ids=str)
def test_every_scalar_type_reads_back_from_its_own_text(data_type: DataType) -> None:
    schema = parse_schema(f"a {data_type}, b {data_type.not_null()}")
    assert [column.data_type for column in schema.columns] == [data_type, data_type.not_null()]


@given(st.lists(st.sampled_from(TYPES), min_size=1, max_size=20), st.booleans())
def test_columns_keep_order_and_get_ids(kinds: list[DataType], lower: bool) -> None:
    text = ", ".join(f"c{index} {kind}" for index, kind in enumerate(kinds))
    schema = parse_schema(text.lower() if lower else text)
    assert schema.columns == tuple(Column(f"c{i}", kind, i) for i, kind in enumerate(kinds))
    assert schema.highest_field_id == len(kinds) - 1


def test_spaces_line_breaks_and_quoted_names_are_read() -> None:
    schema = parse_schema("\n  `order id`   bigint  NOT   null ,\n price decimal( 10 , 2 ),\n")
    assert schema.names == ("order id", "price")
    assert schema.column("order id").data_type == types.BIGINT.not_null()
    assert schema.column("price").data_type == types.decimal(10, 2)


@pytest.mark.parametrize(
    ("text", "apart"),
    [
        ("id BIGINT, `the n` INT, a STRING, PRIMARY KEY (id, `the n`)", ()),
        ("primary key(id,`the n`), id BIGINT NOT NULL, `the n` INT, a STRING", ()),
        ("id BIGINT, `the n` INT, a STRING", ("id", "the n")),
    ],
)
def test_a_primary_key_makes_its_columns_not_null(text: str, apart: tuple[str, ...]) -> None:
    schema = parse_schema(text, apart)
    assert schema == Schema(
        (
            Column("id", types.BIGINT.not_null(), 0),
            Column("the n", types.INT.not_null(), 1),
            Column("a", types.STRING, 2),
        ),
        ("id", "the n"),
        2,
    )


@pytest.mark.parametrize(
    ("text", "apart", "told"),
    [
        ("a INT, PRIMARY KEY (b)", (), "column 'b' is not one of a"),
        ("a INT, PRIMARY KEY ()", (), "column '' is not one of a"),
        ("a INT, PRIMARY KEY (a, a)", (), "column 'a' is there twice"),
        ("a INT, PRIMARY KEY (a), PRIMARY KEY (a)", (), "give it once"),
        ("a INT, PRIMARY KEY (a)", ("a",), "give it once"),
        ("PRIMARY KEY (a)", (), "no columns"),
    ],
)
def test_a_primary_key_that_cannot_be(text: str, apart: tuple[str, ...], told: str) -> None:
    with pytest.raises(InvalidTable, match=told):
        parse_schema(text, apart)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "no columns"),
        ("a", "write NAME TYPE"),
        ("a LONG", "no type 'LONG'"),
        ("a INT UNIQUE", "'UNIQUE' is not NOT NULL"),
        ("a INT, a INT", "there twice"),
        ("a CHAR", "needs a length"),
        ("a INT(3)", "takes no length"),
        ("a DECIMAL(39, 2)", "39 is not between 1 and 38"),
        ("a TIMESTAMP(10)", "10 is not between 0 and 9"),
        ("a DECIMAL(1, 2, 3)", "takes 2 numbers"),
    ],
)
def test_what_cannot_be_read_is_named(text: str, told: str) -> None:
    with pytest.raises(InvalidTable, match=told.replace("(", r"\(")):
        parse_schema(text)
