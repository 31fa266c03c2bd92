"""Rows of an older schema as rows of a newer one."""

import pyarrow as pa
import pytest

from sluice.errors import InvalidTable
from sluice.formats.types.evolution import align
from sluice.formats.types.types import arrow_schema
from sluice.model import Column, Schema
from sluice.model.types import BIGINT, INT, STRING

OLD = Schema((Column("id", BIGINT.not_null(), 0), Column("name", STRING, 1)))
ROWS = pa.record_batch([pa.array([1, 2]), pa.array(["a", "b"])], schema=arrow_schema(OLD))


def test_the_same_columns_are_the_same_batch() -> None:
    assert align(ROWS, OLD, Schema(OLD.columns, highest_field_id=9)) is ROWS


def test_columns_are_found_by_id_and_new_ones_are_null() -> None:
    new = Schema((Column("title", STRING, 1), Column("n", INT, 2), Column("id", BIGINT, 0)))
    aligned = align(ROWS, OLD, new)
    assert aligned.schema == arrow_schema(new)
    assert aligned.to_pydict() == {"title": ["a", "b"], "n": [None, None], "id": [1, 2]}
    title = aligned.column(0).buffers()[2]
    assert title.address == ROWS.column(1).buffers()[2].address


def test_newer_rows_lose_the_columns_that_are_not_asked_for() -> None:
    assert align(ROWS, OLD, Schema(OLD.columns[1:])).to_pydict() == {"name": ["a", "b"]}


def test_another_type_and_a_new_not_null_column_are_refused() -> None:
    with pytest.raises(InvalidTable, match="'id' is int32, but older rows have int64"):
        align(ROWS, OLD, Schema((Column("id", INT, 0),)))
    with pytest.raises(InvalidTable, match="'n' is NOT NULL"):
        align(ROWS, OLD, Schema((Column("n", INT.not_null(), 5),)))
