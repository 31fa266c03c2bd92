"""Batches with some of their columns: the same values, read by pyarrow; broken bytes refused."""

from __future__ import annotations

import struct

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sluice.errors import CorruptRecord, InvalidColumnProjection
from sluice.formats.log.batch import (
    change_types,
    check_crc,
    decode_log_batch,
    encode_log_batch,
    iter_batches,
    read_header,
    set_offset_and_timestamp,
)
from sluice.formats.log.projection import project, project_evolved, projection
from sluice.formats.types.types import arrow_schema, schema_from_arrow
from sluice.model import Column, Schema
from sluice.model.types import BIGINT, INT, STRING
from tests.unit.formats.strategies import arrow_batches

SCHEMA = Schema((Column("id", BIGINT, 0), Column("name", STRING, 1), Column("n", INT, 2)))
ROWS = pa.record_batch(
    [pa.array(range(1000)), pa.array(["row"] * 1000), pa.array([None, 7] * 500, pa.int32())],
    schema=arrow_schema(SCHEMA),
)
ENCODED = encode_log_batch(ROWS, 1, writer_id=9, batch_sequence=4)


def cut(encoded: bytes, schema: Schema, positions: tuple[int, ...]) -> bytes:
    view = memoryview(encoded)
    return b"".join(project(view, read_header(view), projection(schema, positions)))


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(arrow_batches(), st.sampled_from(["ZSTD", "NONE", "LZ4_FRAME"]), st.booleans(), st.data())
def test_any_columns_of_any_type(
    batch: pa.RecordBatch, compression: str, changelog: bool, data: st.DataObject
) -> None:
    types = bytes(i % 5 for i in range(batch.num_rows)) if changelog else None
    encoded = bytearray(encode_log_batch(batch, 1, compression=compression, change_types=types))
    set_offset_and_timestamp(encoded, 77, 5)
    count = batch.num_columns
    positions = tuple(sorted(data.draw(st.sets(st.integers(0, count - 1), min_size=1))))
    projected = cut(bytes(encoded), schema_from_arrow(batch.schema), positions)
    ((header, view),) = iter_batches(projected)
    assert len(view) == len(projected) == header.size
    assert (header.base_offset, header.timestamp_ms, header.record_count) == (77, 5, batch.num_rows)
    expected = batch.select(list(positions))
    assert decode_log_batch(view, header, expected.schema).equals(expected)
    assert change_types(view, header) == types
    assert len(projected) <= len(encoded) + 64 * len(positions)


def test_what_is_left_is_what_was_written() -> None:
    """Buffers stay compressed as they are, and the checksum stays the old one, as in Fluss."""
    projected = cut(ENCODED, SCHEMA, (2,))
    header, before = read_header(projected), read_header(ENCODED)
    assert header.crc == before.crc
    assert (header.writer_id, header.batch_sequence, header.schema_id) == (9, 4, 1)
    with pytest.raises(CorruptRecord, match="checksum"):
        check_crc(projected, header)
    assert len(projected) < len(ENCODED) / 2


def test_a_batch_with_statistics_loses_them() -> None:
    statistics = b"statistics"
    fields = struct.unpack_from("<qibqIhbiqii", ENCODED)
    length = fields[1] + 4 + len(statistics)
    head = struct.pack("<qibqIhbiqiii", fields[0], length, 1, *fields[3:], len(statistics))
    projected = cut(head + statistics + ENCODED[48:], SCHEMA, (0, 2))
    header = read_header(projected)
    assert (header.magic, header.statistics_length, header.size) == (1, 0, len(projected))
    expected = ROWS.select([0, 2])
    assert decode_log_batch(projected, header, expected.schema).equals(expected)


def test_an_empty_batch_is_left_as_it_is() -> None:
    empty = encode_log_batch(ROWS[:0], 1)
    assert cut(empty, SCHEMA, (2,)) == empty


@pytest.mark.parametrize("positions", [(), (1, 0), (1, 1), (-1,), (0, 3)])
def test_positions_that_cannot_be(positions: tuple[int, ...]) -> None:
    with pytest.raises(InvalidColumnProjection, match="0 to 2"):
        projection(SCHEMA, positions)


def test_a_batch_of_other_columns_than_its_schema() -> None:
    other = Schema(SCHEMA.columns[:2])
    with pytest.raises(CorruptRecord, match="its schema 1 has"):
        cut(ENCODED, other, (0,))


@settings(deadline=None)
@given(st.integers(0, 400), st.binary(min_size=1, max_size=16))
def test_broken_bytes_are_refused_or_cut(position: int, garbage: bytes) -> None:
    broken = bytearray(ENCODED)
    start = 48 + position
    broken[start : start + len(garbage)] = garbage
    try:
        projected = cut(bytes(broken[: len(ENCODED)]), SCHEMA, (0, 1))
    except CorruptRecord:
        return
    assert len(projected) <= 2 * len(ENCODED)


def test_a_batch_that_lacks_a_column_gets_nulls() -> None:
    new = Schema((*SCHEMA.columns, Column("later", STRING, 3)))
    encoded = bytearray(ENCODED)
    set_offset_and_timestamp(encoded, 77, 5)
    view = memoryview(encoded)
    made = project_evolved(view, read_header(view), SCHEMA, new, 2, (0, 3))
    header = read_header(made)
    check_crc(made, header)
    assert (header.base_offset, header.timestamp_ms, header.schema_id) == (77, 5, 2)
    assert (header.writer_id, header.batch_sequence, header.next_offset) == (9, 4, 1077)
    schema = pa.schema([arrow_schema(new).field(0), arrow_schema(new).field(3)])
    decoded = decode_log_batch(made, header, schema)
    assert decoded.column(0).equals(ROWS.column(0))
    assert decoded.column(1).null_count == 1000
