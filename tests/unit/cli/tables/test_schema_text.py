"""Schemas as users write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.cli.tables.schema_text import parse_schema, with_primary_key
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
    "text",
    [
        "id BIGINT, `the n` INT, a STRING, PRIMARY KEY (id, `the n`)",
        "primary key(id,`the n`), id BIGINT NOT NULL, `the n` INT, a STRING",
    ],
)
def test_a_primary_key_makes_its_columns_not_null(text: str) -> None:
    columns = (
        Column("id", types.BIGINT.not_null(), 0),
        Column("the n", types.INT.not_null(), 1),
        Column("a", types.STRING, 2),
    )
    assert parse_schema(text) == Schema(columns, ("id", "the n"), 2)
    plain = parse_schema("id BIGINT, `the n` INT, a STRING")
    assert with_primary_key(plain, ("id", "the n")) == Schema(columns, ("id", "the n"), 2)


def test_a_key_names_columns_with_commas_and_parentheses_in_backticks() -> None:
    schema = parse_schema("`a,b` INT, c INT, `d (e)` INT, PRIMARY KEY (`a,b`, c , `d (e)`)")
    assert schema.primary_key == ("a,b", "c", "d (e)")


@pytest.mark.parametrize(
    "text", ["id BIGINT PRIMARY KEY, n INT", "id BIGINT not null primary key, n INT"]
)
def test_a_primary_key_may_follow_its_column(text: str) -> None:
    assert parse_schema(text) == parse_schema("id BIGINT, n INT, PRIMARY KEY (id)")


LIST = (
    "the types are BIGINT, BINARY, BOOLEAN, BYTES, CHAR, DATE, DECIMAL, DOUBLE, FLOAT, INT,"
    " SMALLINT, STRING, TIME, TIMESTAMP, TIMESTAMP_LTZ, TINYINT"
)
NESTED = "use --like FILE with a Parquet file that has the column"
WRONG = {
    "": "the schema has no columns; write for example 'id BIGINT NOT NULL, item STRING'",
    " , ": "a column is missing before the comma at the start",
    "PRIMARY KEY (a)": (
        "the schema has no columns; write for example 'id BIGINT NOT NULL, item STRING'"
    ),
    # commas and parentheses
    "id BIGINT price DOUBLE": "a comma is missing before 'price DOUBLE'",
    "id BIGINT NOT NULL price VARCHAR(3)": "a comma is missing before 'price VARCHAR(3)'",
    "id INT,, n INT": "a column is missing before the comma after 'id INT'",
    "id INT, price DECIMAL(10, 2, n INT": "')' is missing after 'price DECIMAL(10, 2'",
    "id INT, PRIMARY KEY (id": "')' is missing after 'PRIMARY KEY (id'",
    "price DECIMAL(10, 2)), n INT": "')' closes nothing after 'price DECIMAL(10, 2)'",
    "(id INT, n INT)": "write the columns without parentheses around all of them",
    "price DECIMAL((10, 2))": (
        "column price: DECIMAL takes a precision and a scale, as in DECIMAL(10, 2);"
        " found 'DECIMAL((10, 2))'"
    ),
    # names
    "id": "column id: the type is missing; write for example 'id BIGINT'",
    "id NOT NULL": "column id: the type is missing; write for example 'id BIGINT'",
    "id: BIGINT": "column id: write 'id BIGINT', without ':'",
    "order-id BIGINT": "column order-id: write the name in backticks: `order-id`",
    '"id" BIGINT': 'write `id` in place of "id": names have backticks',
    "`id BIGINT": "a backtick is missing in '`id BIGINT'",
    "a INT, a INT": "column a: the name is used twice",
    # types
    "name VARCHAR(20)": "column name: unknown type VARCHAR(20); use STRING",
    "name TEXT": "column name: unknown type TEXT; use STRING",
    "name character varying(20)": "column name: unknown type character varying(20); use STRING",
    "id LONG": "column id: unknown type LONG; use BIGINT",
    "at DATETIME": "column at: unknown type DATETIME; use TIMESTAMP",
    "at DATETIME(3)": "column at: unknown type DATETIME(3); use TIMESTAMP(3)",
    "at TIMESTAMP WITH TIME ZONE": (
        "column at: unknown type TIMESTAMP WITH TIME ZONE; use TIMESTAMP_LTZ"
    ),
    "price NUMERIC(10,2)": "column price: unknown type NUMERIC(10,2); use DECIMAL(10, 2)",
    "price NUMERIC": "column price: unknown type NUMERIC; use DECIMAL(10, 2)",
    "price DOUBLE PRECISION": "column price: unknown type DOUBLE PRECISION; use DOUBLE",
    "ok BOOL": "column ok: unknown type BOOL; use BOOLEAN",
    "ok BOLEAN": "column ok: unknown type BOLEAN; did you mean BOOLEAN?",
    "doc JSON": f"column doc: unknown type JSON; {LIST}",
    "id UUID": f"column id: unknown type UUID; {LIST}",
    "tags ARRAY<STRING>": (
        f"column tags: --schema does not support nested types such as 'ARRAY<STRING>'; {NESTED}"
    ),
    # numbers of types
    "a CHAR": "column a: CHAR takes a length, as in CHAR(10); found 'CHAR'",
    "a INT(3)": "column a: INT takes no length; write 'a INT'",
    "a DECIMAL(39, 2)": (
        "column a: the precision of DECIMAL is from 1 to 38; found 'DECIMAL(39, 2)'"
    ),
    "a DECIMAL(5, 6)": (
        "column a: the scale of DECIMAL is at most its precision; found 'DECIMAL(5, 6)'"
    ),
    "a DECIMAL(10.2)": (
        "column a: DECIMAL takes a precision and a scale, as in DECIMAL(10, 2);"
        " found 'DECIMAL(10.2)'"
    ),
    "a DECIMAL(1, 2, 3)": (
        "column a: DECIMAL takes a precision and a scale, as in DECIMAL(10, 2);"
        " found 'DECIMAL(1, 2, 3)'"
    ),
    "a TIMESTAMP(10)": (
        "column a: the precision of TIMESTAMP is from 0 to 9; found 'TIMESTAMP(10)'"
    ),
    # what follows a type
    "n INT DEFAULT 0": "column n: DEFAULT is not supported; leave out 'DEFAULT 0'",
    "n INT UNIQUE": "column n: UNIQUE is not supported; leave out 'UNIQUE'",
    "n INT NOTNULL": "column n: expected NOT NULL, PRIMARY KEY or a comma, found 'NOTNULL'",
    "n INT NULL PRIMARY KEY": "column n: NULL contradicts PRIMARY KEY",
    # primary keys
    "id INT, PRIMARY KEY (idd)": "primary key: no column 'idd'; did you mean 'id'?",
    "id INT, n INT, PRIMARY KEY (key)": "primary key: no column 'key'; the columns are id, n",
    "id INT, PRIMARY KEY ()": "write PRIMARY KEY (NAME, ...) in place of 'PRIMARY KEY ()'",
    "id INT, PRIMARY KEY (id,)": "write PRIMARY KEY (NAME, ...) in place of 'PRIMARY KEY (id,)'",
    "id INT, PRIMARY KEY id": "write PRIMARY KEY (NAME, ...) in place of 'PRIMARY KEY id'",
    "id INT, PRIMARY KEY (id, id)": "primary key: column 'id' is named twice",
    "a INT PRIMARY KEY, b INT PRIMARY KEY": (
        "the primary key is given twice; give it once: PRIMARY KEY (a, b)"
    ),
}


@pytest.mark.parametrize("text", WRONG)
def test_a_schema_that_cannot_be_read_is_explained(text: str) -> None:
    with pytest.raises(InvalidTable) as caught:
        parse_schema(text)
    assert str(caught.value) == WRONG[text]
