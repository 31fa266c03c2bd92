"""Rows that can be read and not be written to the lake: the same ones that its types refuse."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sluice.formats.log.lake_values import lake_problem
from sluice.formats.types.types import arrow_schema
from sluice.iceberg_rules.layout import Layout
from sluice.lake.iceberg.schema import schema_json
from sluice.lake.iceberg.write.arrow import arrow_schema as lake_arrow_schema
from sluice.lake.iceberg.write.arrow import to_lake
from sluice.model import Column, DataType, Schema, TableDescriptor, TableInfo, TablePath
from sluice.model import types as t
from tests.unit.formats.nested_strategies import (
    ANY_TYPE,
    array_of,
    make_column,
    map_of,
    row_of,
    typed_batches,
)

STAMPS = (t.timestamp(0), t.timestamp(3), t.timestamp_ltz(0), t.timestamp_ltz(2))


def fits(types: list[DataType], batch: pa.RecordBatch) -> bool:
    """Whether a round could write the rows, by what it does then."""
    columns = tuple(Column(f"c{i}", of, i) for i, of in enumerate(types))
    info = TableInfo(TablePath("db", "t"), 1, 1, TableDescriptor(Schema(columns)), 0, 0)
    target = lake_arrow_schema(schema_json(info, Layout.LEGACY))
    try:
        for field, column in zip(target, batch.columns, strict=False):
            to_lake(column, field.type)
    except pa.ArrowInvalid:
        return False
    return True


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(typed_batches(st.sampled_from(STAMPS) | ANY_TYPE, most_rows=4))
def test_what_does_not_fit_is_what_the_lake_refuses(
    typed: tuple[list[DataType], pa.RecordBatch],
) -> None:
    types, batch = typed
    batch = batch.take(
        pa.array(range(len(batch)), pa.int64())
    )  # a cast also sees what a slice hides
    assert (lake_problem(batch) == "") == fits(types, batch)


@pytest.mark.parametrize("of", STAMPS)
def test_the_last_values_that_fit(of: DataType) -> None:
    limit = (2**63 - 1) // (1_000_000 if of.precision == 0 else 1_000)
    for value, ok in ((limit, True), (-limit, True), (limit + 1, False), (-limit - 1, False)):
        for nested in (of, array_of(of), map_of(t.INT, of), row_of(t.INT, of)):
            values = {
                of: value,
                array_of(of): [None, value],
                map_of(t.INT, of): [(1, value)],
                row_of(t.INT, of): (1, value),
            }[nested]
            batch = pa.record_batch([make_column(nested, [None, values])], names=["c0"])
            problem = lake_problem(batch)
            assert (problem == "") is ok is fits([nested], batch)
            assert ok or f"column 'c0' has the timestamp {value} " in problem


def test_rows_outside_of_a_slice_do_not_count() -> None:
    for of, value in (
        (array_of(STAMPS[0]), [2**60]),
        (map_of(STAMPS[0], STAMPS[0]), [(2**60, 2**60)]),
        (row_of(STAMPS[0]), (2**60,)),
    ):
        column = make_column(of, [value, value[:0] if isinstance(value, list) else None, value])
        batch = pa.record_batch([column], names=["c0"])
        assert lake_problem(batch) != ""
        assert lake_problem(batch[1:2]) == lake_problem(batch[1:1]) == ""


def test_a_null_in_a_not_null_column_is_named() -> None:
    schema = arrow_schema(Schema((Column("id", t.BIGINT.not_null(), 0),)))
    batch = pa.RecordBatch.from_arrays([pa.array([1, None])], schema=schema)
    assert lake_problem(batch) == "column 'id' is NOT NULL but contains nulls"
    assert lake_problem(batch[:1]) == ""
