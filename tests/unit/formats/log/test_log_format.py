"""The log formats of a table: rows of every type in, the same rows out."""

from __future__ import annotations

import contextlib

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice.errors import CorruptRecord, InvalidTable
from sluice.formats.log.batch import check_crc, read_header
from sluice.formats.log.log_format import LogFormat
from sluice.formats.rows.arrays import encode_rows
from sluice.formats.types.types import arrow_schema
from sluice.model import Column, DataType, Schema
from sluice.model import types as t
from tests.unit.formats.nested_strategies import row_of, typed_batches
from tests.unit.formats.rows.test_row_arrays import Typed, is_exact

FORMATS = ["ARROW", "INDEXED", "COMPACTED"]
ROW_FORMATS = FORMATS[1:]


def schema_of(types: list[DataType]) -> Schema:
    return Schema(tuple(Column(f"c{i}", kind, i) for i, kind in enumerate(types)))


def log_format(name: str) -> LogFormat:
    return LogFormat.of({"table.log.format": name.lower()})


def test_the_format_is_that_of_the_properties() -> None:
    assert LogFormat.of({}) == LogFormat("ARROW", "ZSTD", 3)
    lz4 = {
        "table.log.arrow.compression.type": "lz4_frame",
        "table.log.arrow.compression.zstd.level": "9",
    }
    assert LogFormat.of(lz4) == LogFormat("ARROW", "LZ4_FRAME", 9)
    assert [log_format(name).is_arrow for name in FORMATS] == [True, False, False]


@settings(max_examples=30)
@given(typed_batches(), st.sampled_from(FORMATS), st.none() | st.integers(1, 4))
def test_every_type_survives_in_every_format(typed: Typed, name: str, change: int | None) -> None:
    types, batch = typed
    schema, of = schema_of(types), log_format(name)
    batch = pa.RecordBatch.from_arrays(batch.columns, schema=arrow_schema(schema))
    changes = None if change is None else bytes([change]) * batch.num_rows
    try:
        rows = of.rows(batch, schema)
    except InvalidTable as error:
        assert "does not fit" in str(error)
        return
    content = of.encode(rows, 7, writer_id=3, batch_sequence=4, change_types=changes)
    header = read_header(content)
    check_crc(content, header)
    assert (header.schema_id, header.writer_id, header.batch_sequence) == (7, 3, 4)
    found, kinds = of.decode(content, header, schema)
    assert kinds == changes
    found.validate(full=True)
    assert found.schema == batch.schema
    for column, kind in enumerate(types):
        if name == "ARROW" or is_exact(kind, name):
            assert found.column(column).equals(batch.column(column))
    if not of.is_arrow:
        again = pa.RecordBatch.from_arrays(found.columns, names=found.schema.names)
        assert encode_rows(again, types, name).equals(rows.column(0))


@settings(max_examples=30)
@given(
    typed_batches(),
    st.sampled_from(ROW_FORMATS),
    st.lists(st.tuples(st.integers(0, 500), st.integers(0, 255)), max_size=4),
)
def test_broken_batches_are_corrupt_records_and_nothing_else(
    typed: Typed, name: str, changes: list[tuple[int, int]]
) -> None:
    types, batch = typed
    schema, of = schema_of(types), log_format(name)
    with contextlib.suppress(InvalidTable, CorruptRecord):
        rows = of.rows(batch.rename_columns(schema.names), schema)
        content = bytearray(of.encode(rows, 1))
        for at, value in changes:
            content[at % len(content)] = value
        found, _ = of.decode(bytes(content), read_header(content), schema)
        found.validate(full=True)


@pytest.mark.parametrize("name", ROW_FORMATS)
def test_a_null_in_a_column_that_has_none(name: str) -> None:
    nullable, strict = schema_of([t.INT]), schema_of([t.INT.not_null()])
    of = log_format(name)
    batch = pa.record_batch([pa.array([1, None], pa.int32())], names=["c0"])
    content = of.encode(of.rows(batch, nullable), 1)
    assert of.decode(content, read_header(content), nullable)[0].num_rows == 2
    with pytest.raises(CorruptRecord, match="'c0' is NOT NULL but has 1 nulls"):
        of.decode(content, read_header(content), strict)


def test_rows_that_would_take_too_much_memory() -> None:
    """A row of nulls takes a few bytes in the log, and 16 for each column in Arrow."""
    wide = schema_of([row_of(*[t.BIGINT] * 99)] * 10)
    of = log_format("COMPACTED")
    rows = pa.record_batch([pa.array([b"\xff\x03"] * 70_000)], names=["row"])
    content = of.encode(rows, 1)
    with pytest.raises(CorruptRecord, match="70000 rows take up to 1120000000 bytes, more than"):
        of.decode(content, read_header(content), wide)
    few = of.encode(rows.slice(0, 100), 1)
    assert of.decode(few, read_header(few), wide)[0].num_rows == 100
