"""Stored values and value batches against test vectors.

See docs/fluss/test-vectors.md#rows-and-batches
"""

from __future__ import annotations

import contextlib
import struct

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.errors import CorruptRecord, SchemaNotExist, UnsupportedType
from sluice.formats.kv.value_batch import (
    build_value_batch,
    decode_values,
    stored_values,
    values_of,
)
from sluice.formats.rows.arrays import COMPACTED, encode_rows
from sluice.model import Column, Schema
from sluice.model import types as t

ROW = bytes.fromhex("00010161")
VALUE_BATCH = bytes.fromhex("0F000000 00 01000000 06000000 0100 00010161")
OLD = Schema((Column("a", t.INT.not_null(), 0), Column("b", t.STRING, 1)), ("a",))
NEW = Schema(
    (Column("n", t.BIGINT, 2), Column("b", t.STRING, 1), Column("a", t.INT.not_null(), 0)), ("a",)
)
SCHEMAS = {1: OLD, 7: NEW}


def binary(values: list[bytes | None]) -> pa.Array:
    return pa.array(values, pa.binary())


def test_the_stored_value_of_the_docs() -> None:
    values = stored_values(binary([ROW, None]), 1)
    assert values.to_pylist() == [bytes.fromhex("010000010161"), None]


def test_the_value_batch_of_the_docs() -> None:
    assert build_value_batch(stored_values(binary([ROW]), 1)) == VALUE_BATCH
    assert values_of(VALUE_BATCH).to_pylist() == [bytes.fromhex("010000010161")]


@given(st.lists(st.tuples(st.integers(-(2**15), 2**15 - 1), st.binary())), st.integers(0, 2))
def test_value_batches_survive(values: list[tuple[int, bytes]], skip: int) -> None:
    stored = [struct.pack("<h", schema_id) + row for schema_id, row in values]
    array = binary([*stored]).slice(skip)
    content = build_value_batch(array)
    parts = [struct.pack("<i", len(value)) + value for value in stored[skip:]]
    assert content[9:] == b"".join(parts)
    assert values_of(memoryview(content)).equals(array)


@given(st.lists(st.tuples(st.integers(0, 100), st.integers(0, 255)), max_size=4))
def test_broken_batches_are_corrupt_records_and_nothing_else(
    changes: list[tuple[int, int]],
) -> None:
    content = bytearray(VALUE_BATCH)
    for at, value in changes:
        content[at % len(content)] = value
    with contextlib.suppress(CorruptRecord, SchemaNotExist):
        decode_values(values_of(content), {1: OLD}, OLD, COMPACTED)


@pytest.mark.parametrize("cut", range(len(VALUE_BATCH)))
def test_cut_batches_are_refused(cut: int) -> None:
    with pytest.raises(CorruptRecord, match="value batch"):
        values_of(VALUE_BATCH[:cut])


def test_broken_batches_say_what_is_wrong() -> None:
    with pytest.raises(CorruptRecord, match="magic 1"):
        values_of(VALUE_BATCH[:4] + b"\x01" + VALUE_BATCH[5:])
    with pytest.raises(CorruptRecord, match="-1 records"):
        values_of(VALUE_BATCH[:5] + b"\xff" * 4 + VALUE_BATCH[9:])
    with pytest.raises(CorruptRecord, match="20 of 19 bytes"):
        values_of(VALUE_BATCH + b"\0")
    with pytest.raises(CorruptRecord, match="value 1 is shorter than a schema id"):
        decode_values(binary([b"ab", b"a"]), {}, OLD, COMPACTED)
    with pytest.raises(ValueError, match="1 nulls"):
        build_value_batch(binary([None]))


def old_values() -> pa.Array:
    batch = pa.record_batch([pa.array([1, 2], pa.int32()), ["one", None]], ["a", "b"])
    return stored_values(encode_rows(batch, [t.INT, t.STRING], COMPACTED), 1)


def new_values() -> pa.Array:
    batch = pa.record_batch([pa.array([30]), ["three"], pa.array([3], pa.int32())], ["n", "b", "a"])
    return stored_values(encode_rows(batch, [t.BIGINT, t.STRING, t.INT], COMPACTED), 7)


def test_columns_are_found_by_their_id_in_whatever_schema_a_value_has() -> None:
    old, new = old_values(), new_values()
    mixed = pa.concat_arrays([old.slice(0, 1), new, old.slice(1)])
    batch = decode_values(mixed, SCHEMAS, NEW, COMPACTED)
    assert batch.schema.names == ["n", "b", "a"]
    assert batch.to_pylist() == [
        {"n": None, "b": "one", "a": 1},
        {"n": 30, "b": "three", "a": 3},
        {"n": None, "b": None, "a": 2},
    ]
    assert decode_values(mixed.slice(1), SCHEMAS, NEW, COMPACTED).equals(batch.slice(1))
    assert decode_values(mixed, SCHEMAS, OLD, COMPACTED).equals(batch.select(["a", "b"]))
    assert decode_values(old, {1: OLD}, OLD, COMPACTED)["a"].to_pylist() == [1, 2]


def test_a_null_value_is_a_row_of_nulls() -> None:
    values = pa.concat_arrays([old_values().slice(1), binary([None]), new_values()])
    batch = decode_values(values, SCHEMAS, OLD, COMPACTED)
    assert batch.to_pylist() == [
        {"a": 2, "b": None},
        {"a": None, "b": None},
        {"a": 3, "b": "three"},
    ]
    batch.validate(full=True)
    assert batch.schema.field("a").nullable
    for nothing in (binary([None] * 2), binary([])):
        assert decode_values(nothing, SCHEMAS, OLD, COMPACTED).num_rows == len(nothing)


def test_values_that_cannot_be_read_are_refused() -> None:
    with pytest.raises(SchemaNotExist, match="schema 7; only 1 are available"):
        decode_values(new_values(), {1: OLD}, OLD, COMPACTED)
    changed = Schema((Column("a", t.STRING, 0),))
    with pytest.raises(UnsupportedType, match="column 'a' is STRING, but was written as int32"):
        decode_values(old_values(), SCHEMAS, changed, COMPACTED)
    broken = pa.concat_arrays([new_values(), old_values(), binary([b"\x01\0\0\x05\x05a"])])
    with pytest.raises(CorruptRecord, match=r"row 3: column 1 \(STRING\): it ends early"):
        decode_values(broken, SCHEMAS, OLD, COMPACTED)
    with pytest.raises(CorruptRecord, match="value 1 is shorter"):
        decode_values(binary([None, b"\x01"]), SCHEMAS, OLD, COMPACTED)


@given(st.lists(st.sampled_from([None, 1, 2, 513, -2]), max_size=12), st.integers(0, 3))
def test_each_value_is_read_by_the_schema_of_its_id(ids: list[int | None], skip: int) -> None:
    """The ids differ in one byte or both; each schema has a column of its own."""
    schemas = {
        number: Schema((Column("a", t.INT, 0), Column("b", t.INT, 10 + place)))
        for place, number in enumerate((1, 2, 513, -2))
    }
    values: list[pa.Array] = [binary([])]
    expected: list[dict[str, int | None]] = []
    for row, number in enumerate(ids):
        if number is None:
            values.append(binary([None]))
            expected.append({"a": None, "b": None})
            continue
        batch = pa.record_batch([pa.array([row], pa.int32())] * 2, ["a", "b"])
        rows = encode_rows(batch, [t.INT, t.INT], COMPACTED)
        values.append(stored_values(rows, number))
        expected.append({"a": row, "b": row if number == 513 else None})
    found = decode_values(pa.concat_arrays(values).slice(skip), schemas, schemas[513], COMPACTED)
    assert found.to_pylist() == expected[skip:]
