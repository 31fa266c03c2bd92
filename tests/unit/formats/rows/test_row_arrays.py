"""Rows against test vectors, against a plain encoder, and broken bytes.

See docs/fluss/test-vectors.md#rows-and-batches
"""

from __future__ import annotations

import contextlib
import struct
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice.errors import CorruptRecord, InvalidTable
from sluice.formats.rows.arrays import COMPACTED, INDEXED, decode_rows, encode_rows
from sluice.formats.types.types import arrow_type
from sluice.model import Column, DataType, Schema, TypeRoot
from sluice.model import types as t
from tests.golden import tables
from tests.support.tables import row_by_row
from tests.unit.formats.nested_strategies import (
    ANY_TYPE,
    array_of,
    make_column,
    map_of,
    row_of,
    typed_batches,
    value_of,
)
from tests.unit.formats.strategies import SCALARS

FORMATS = [COMPACTED, INDEXED]
LONG = t.binary(100)
Typed = tuple[list[DataType], pa.RecordBatch]


def encode(values: list[list[Any]], types: list[DataType], row_format: str) -> list[bytes]:
    """Rows of values, each in the form that ``value_of`` has."""
    columns = [make_column(of, [row[i] for row in values]) for i, of in enumerate(types)]
    batch = pa.RecordBatch.from_arrays(columns, names=[f"c{i}" for i in range(len(types))])
    return encode_rows(batch, types, row_format).to_pylist()


def decode(row: bytes | None, types: list[DataType], row_format: str) -> list[Any]:
    columns = decode_rows(pa.array([row], pa.binary()), types, row_format)
    for column in columns:
        column.validate(full=True)
    return [column[0].as_py() for column in columns]


@pytest.mark.parametrize(
    ("values", "row_format", "expected"),
    [
        ([1, "a"], COMPACTED, "00010161"),
        ([1, "ab"], INDEXED, "0002000000010000006162"),
    ],
)
def test_rows_of_the_docs(values: list[Any], row_format: str, expected: str) -> None:
    types = [t.INT.not_null(), t.STRING]
    [row] = encode([values], types, row_format)
    assert row.hex() == expected
    assert decode(row, types, row_format) == values


@pytest.mark.parametrize(
    ("element", "values", "expected"),
    [
        (
            t.INT,
            [1, 2, 3, 4, 5, -11, None, 444, 102234],
            "30 09000000 40000000 01000000 02000000 03000000 04000000 05000000 F5FFFFFF"
            " 00000000 BC010000 5A8F0100 00000000",
        ),
        (
            t.FLOAT.not_null(),
            [0.1, 1.1, -0.5, 6.6, 3.4028234663852886e38, 1.401298464324817e-45],
            "20 06000000 00000000 CDCCCC3D CDCC8C3F 000000BF 3333D340 FFFF7F7F 01000000",
        ),
    ],
)
def test_arrays_of_the_docs(element: DataType, values: list[Any], expected: str) -> None:
    [row] = encode([[values]], [array_of(element)], COMPACTED)
    assert row == b"\0" + bytes.fromhex(expected)


def test_nested_values_lie_behind_their_slots_however_short() -> None:
    """Text of up to seven bytes lies in its slot, a row or an array never does."""
    inner = [[[(1,)]], [[("ab",)]], [[[7]]]]
    types = [array_of(row_of(t.TINYINT)), array_of(row_of(t.STRING)), array_of(array_of(t.TINYINT))]
    [row] = encode([[value[0] for value in inner]], types, COMPACTED)
    head = "01000000 00000000 "
    expected = "00 18" + head + "02000000 10000000 0001000000000000"
    expected += "18" + head + "04000000 10000000 0002616200000000"
    expected += "20" + head + "10000000 10000000 01000000 00000000 0700000000000000"
    assert row == bytes.fromhex(expected)


def test_a_map_is_its_keys_and_its_values() -> None:
    types = [map_of(t.STRING, t.INT)]
    [row] = encode([[[("ab", 1), ("c", None)]]], types, COMPACTED)
    keys = "02000000 00000000 6162000000000082 6300000000000081"
    values = "02000000 02000000 01000000 00000000"
    assert row == bytes.fromhex("00 2C 18000000" + keys + values)
    assert decode(row, types, COMPACTED) == [[("ab", 1), ("c", None)]]


def test_nulls_lie_in_bits_from_the_lowest() -> None:
    types = [t.TINYINT] * 9
    [row] = encode([[None, 1, None, 1, 1, 1, 1, 1, None]], types, COMPACTED)
    assert row == bytes([0b101, 1]) + bytes([1] * 6)
    assert encode([[None, b"abc"]], [t.STRING, t.BYTES], INDEXED) == [
        b"\x01\x03" + bytes(7) + b"abc"
    ]


def test_char_and_binary_are_padded_in_indexed_rows_only() -> None:
    types = [t.char(4), t.binary(3)]
    values = [["ü", b"a\0\0"]]
    assert encode(values, types, INDEXED) == [b"\0\xc3\xbc\0\0a\0\0"]
    assert encode(values, types, COMPACTED) == [b"\0\x02\xc3\xbc\x03a\0\0"]
    assert decode(b"\0\xc3\xbc\0\0a\0\0", types, INDEXED) == ["ü", b"a\0\0"]
    # Fluss's own writers leave zeros at the end of a BINARY away
    assert decode(b"\0\x02\xc3\xbc\x01a", types, COMPACTED) == ["ü", b"a\0\0"]
    with pytest.raises(InvalidTable, match=r"row 1: the value of column 'c0' does not fit CHAR\(4"):
        encode([["abcd", b"abc"], ["abcde", b"abc"]], types, INDEXED)


def plain_rows(types: list[DataType], batch: pa.RecordBatch) -> list[list[Any]]:
    schema = Schema(tuple(Column(f"c{i}", of, i) for i, of in enumerate(types)))
    return tables.plain_rows(pa.Table.from_batches([batch]), schema)


def values_fit(types: list[DataType], batch: pa.RecordBatch, row_format: str) -> bool:
    """Whether timestamps in seconds can be said in milliseconds, and CHARs have their room."""
    for of, column in zip(types, batch.columns, strict=True):
        if of.root is TypeRoot.CHAR and row_format == INDEXED:
            texts = column.drop_null().to_pylist()
            if any(len(text.encode()) > (of.length or 0) for text in texts):
                return False
        if of.root in (TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ) and column.type.unit == "s":
            numbers = column.drop_null().cast(pa.int64()).to_pylist()
            if any(abs(number) > (2**63 - 1) // 1000 for number in numbers):
                return False
    return True


def padded(values: list[Any], types: list[DataType]) -> list[Any]:
    """The plain decoder cuts zeros from a BINARY's end."""
    return [
        value if value is None or of.root is not TypeRoot.BINARY else value.ljust(of.length, b"\0")
        for value, of in zip(values, types, strict=True)
    ]


@settings(max_examples=100)
@given(
    typed_batches(st.sampled_from((*SCALARS, LONG, t.decimal(18, 0), t.decimal(19, 3)))),
    st.sampled_from(FORMATS),
)
def test_scalars_are_what_a_plain_encoder_writes(typed: Typed, row_format: str) -> None:
    types, batch = typed
    if not values_fit(types, batch, row_format):
        with pytest.raises(InvalidTable, match="does not fit"):
            encode_rows(batch, types, row_format)
        return
    rows = encode_rows(batch, types, row_format)
    expected = [row_by_row.encode_row(r, types, row_format) for r in plain_rows(types, batch)]
    assert rows.to_pylist() == expected
    columns = decode_rows(rows, types, row_format)
    for column in columns:
        column.validate(full=True)
    found = plain_rows(types, pa.RecordBatch.from_arrays(columns, names=batch.schema.names))
    assert [padded(row, types) for row in found] == [
        padded(row_by_row.decode_row(row, types, row_format), types) for row in expected
    ]


@settings(max_examples=60)
@given(st.sampled_from((*SCALARS, LONG)), st.sampled_from(FORMATS), st.data())
def test_arrays_are_what_a_plain_encoder_writes(
    element: DataType, row_format: str, data: st.DataObject
) -> None:
    one = st.none() | st.lists(st.none() | value_of(element), max_size=40)
    values = data.draw(st.lists(one, max_size=4))
    flat = [each for value in values for each in value or []]
    elements = pa.RecordBatch.from_arrays([make_column(element, flat)], names=["c0"])
    if not values_fit([element], elements, COMPACTED):
        return
    plain = iter(plain_rows([element], elements))
    expected = [
        row_by_row.encode_row(
            [None if value is None else [next(plain)[0] for _ in value]],
            [array_of(element)],
            row_format,
        )
        for value in values
    ]
    assert encode([[value] for value in values], [array_of(element)], row_format) == expected


def is_exact(of: DataType, row_format: str) -> bool:
    """Whether rows keep all of a type: TIME has milliseconds, INDEXED cuts zeros of a CHAR."""
    if of.root is TypeRoot.TIME:
        return (of.precision or 0) <= 3
    if of.root is TypeRoot.CHAR:
        return row_format == COMPACTED
    inner = [of.element, of.key, of.value, *(field.data_type for field in of.fields)]
    return all(each is None or is_exact(each, row_format) for each in inner)


@settings(max_examples=60)
@given(typed_batches(), st.sampled_from(FORMATS))
def test_every_type_survives(typed: Typed, row_format: str) -> None:
    types, batch = typed
    try:
        rows = encode_rows(batch, types, row_format)
    except InvalidTable as error:
        assert "does not fit" in str(error)
        return
    columns = decode_rows(rows, types, row_format)
    for given_column, column, of in zip(batch.columns, columns, types, strict=True):
        column.validate(full=True)
        assert column.type == arrow_type(of)
        if is_exact(of, row_format):
            assert column.equals(given_column)
    again = pa.RecordBatch.from_arrays(columns, names=batch.schema.names)
    assert encode_rows(again, types, row_format).equals(rows)


@settings(max_examples=60)
@given(
    typed_batches(),
    st.sampled_from(FORMATS),
    st.lists(st.tuples(st.integers(0, 500), st.integers(0, 255)), max_size=4),
    st.integers(0, 3),
)
def test_broken_rows_are_corrupt_records_and_nothing_else(
    typed: Typed, row_format: str, changes: list[tuple[int, int]], cut: int
) -> None:
    types, batch = typed
    with contextlib.suppress(InvalidTable, CorruptRecord):
        rows = []
        for row in encode_rows(batch, types, row_format).to_pylist():
            content = bytearray(row)
            for at, value in changes:
                content[at % len(content)] = value
            rows.append(bytes(content[: len(content) - cut]))
        for column in decode_rows(pa.array(rows, pa.binary()), types, row_format):
            column.validate(full=True)


@given(
    st.lists(ANY_TYPE, max_size=4),
    st.lists(st.none() | st.binary(max_size=60), max_size=5),
    st.sampled_from(FORMATS),
    st.integers(0, 3),
)
def test_any_bytes_are_corrupt_records_and_nothing_else(
    types: list[DataType], rows: list[bytes | None], row_format: str, skipped: int
) -> None:
    with contextlib.suppress(CorruptRecord):
        array = pa.array(rows, pa.binary())
        for column in decode_rows(array, types, row_format, skipped=skipped):
            column.validate(full=True)


BEFORE_ONE_SLOT = "00 10 01000000 00000000"
BROKEN: list[tuple[DataType, str, str]] = [
    (t.INT, "00 8080808080", "a varint is longer"),
    (t.BIGINT, "00" + "FF" * 10, "a varint is longer"),
    (t.STRING, "00 02 61", "ends early"),
    (t.STRING, "00 FFFFFFFF0F", "a length is negative"),
    (t.STRING, "00 01 FF", "Invalid UTF8"),
    (t.DOUBLE, "00 00", "ends early"),
    (t.INT, "", "ends early"),
    (t.binary(2), "00 03 616263", "longer than its type"),
    (t.decimal(5, 2), "00 A08D06", "out of its type's range"),
    (t.decimal(20, 0), "00 11" + "00" * 17, "longer than its type"),
    (t.decimal(20, 0), "00 10 7F" + "FF" * 15, "precision"),
    (t.time(3), "00 80B89929", "out of its type's range"),
    (t.time(0), "00 FFFFFFFF0F", "out of its type's range"),
    (t.timestamp(6), "00 00 C0843D", "nanoseconds within the millisecond"),
    (t.timestamp(9), "00 FFFFFFFFFFFFFFFF7F 00", "out of its type's range"),
    (array_of(t.INT), "00 04 FFFFFFFF", "a length is negative"),
    (array_of(t.INT), "00 04 FFFFFF7F", "ends early"),
    (array_of(t.STRING), BEFORE_ONE_SLOT + "00000000000000FF", "is outside of its"),
    (array_of(t.STRING), BEFORE_ONE_SLOT + "0900000010000000", "is outside of its"),
    (array_of(t.decimal(20, 0)), BEFORE_ONE_SLOT + "1100000000000000", "is outside of its"),
    (array_of(t.timestamp(6)), BEFORE_ONE_SLOT + "40420F0000000000", "nanoseconds within"),
    (array_of(t.timestamp(6)), BEFORE_ONE_SLOT + "0000000009000000", "is outside of its"),
    (row_of(t.INT), "00 03 000102", "extra bytes at the end"),
    (map_of(t.INT, t.INT), "00 03 000000", "a map ends early"),
    (map_of(t.INT, t.INT), "00 04 01000000", "keys of a map end after the map"),
    (
        map_of(t.TINYINT, t.TINYINT),
        "00 1C 10000000 01000000 00000000 0100000000000000 00000000 00000000",
        "different numbers of keys and values",
    ),
    (
        map_of(t.TINYINT, t.TINYINT),
        "00 24 10000000 01000000 01000000 0000000000000000 01000000 00000000 0000000000000000",
        "a null key",
    ),
]


@pytest.mark.parametrize(("data_type", "content", "reason"), BROKEN)
def test_broken_rows_say_which_and_what(data_type: DataType, content: str, reason: str) -> None:
    types = [t.BOOLEAN, data_type]
    good = encode_rows(
        pa.RecordBatch.from_arrays(
            [pa.array([True]), make_column(data_type, [None])], names=["a", "b"]
        ),
        types,
        COMPACTED,
    )[0].as_py()
    bad = bytes.fromhex(content)
    row = bad[:1] + b"\x01" + bad[1:] if bad else b""
    with pytest.raises(CorruptRecord, match=f"^row 2: .*{reason}"):
        decode_rows(pa.array([good, None, row, good]), types, COMPACTED)


def test_bytes_behind_a_row_are_noticed() -> None:
    with pytest.raises(CorruptRecord, match="row 1: there are extra bytes at the end"):
        decode_rows(pa.array([b"\0\1", b"\0\1\1"]), [t.INT], COMPACTED)


def test_indexed_lengths_are_checked() -> None:
    for length in (-5, 4):
        row = b"\0" + struct.pack("<i", length) + b"abc"
        with pytest.raises(CorruptRecord, match="row 0: column 0"):
            decode_rows(pa.array([row]), [t.STRING], INDEXED)


def test_elements_that_share_bytes_are_refused() -> None:
    """Else a small row could ask for any amount of memory."""
    count, content = 400, bytes(1000)
    header = 4 + (count + 31) // 32 * 4
    slot = struct.pack("<ii", len(content), header + 8 * count)
    array = struct.pack("<i", count) + bytes(header - 4) + slot * count + content
    row = b"\0" + row_by_row.sized(array)
    with pytest.raises(CorruptRecord, match="outside of its array, or overlaps another"):
        decode_rows(pa.array([row]), [array_of(t.BYTES)], COMPACTED)


def test_a_bad_value_within_a_list_names_its_row() -> None:
    types = [array_of(array_of(t.STRING))]
    rows = encode(
        [[[["a"], ["long enough"]]], [[]], [[[], ["x", "behind its slot"]]]], types, COMPACTED
    )
    rows[2] = rows[2].replace(b"behind", b"b\xffhind")
    with pytest.raises(CorruptRecord, match=r"^row 2: .*Invalid UTF8"):
        decode_rows(pa.array(rows), types, COMPACTED)


@pytest.mark.parametrize("row_format", FORMATS)
def test_null_rows_are_null_in_every_column(row_format: str) -> None:
    types = [*SCALARS, array_of(t.STRING), map_of(t.INT, t.INT), row_of(t.INT, t.STRING)]
    assert decode(None, types, row_format) == [None] * len(types)
    some = decode_rows(pa.array([None, b"xy"], pa.binary()).slice(0, 1), types, row_format)
    assert [column.null_count for column in some] == [1] * len(types)


def test_timestamps_at_the_edge_of_nanoseconds() -> None:
    for edge in (2**63 - 1, -(2**63), 0, -1):
        for of in (t.timestamp(6), t.timestamp(9)):
            column = pa.array([edge]).view(arrow_type(of))
            batch = pa.RecordBatch.from_arrays([column], names=["t"])
            rows = encode_rows(batch, [of], COMPACTED)
            assert decode_rows(rows, [of], COMPACTED)[0].equals(column)
            if edge > 0:
                millis, nanos = divmod(edge * (1 if of.precision == 9 else 1000), 10**6)
                beyond = row_by_row.varint(millis, 64) + row_by_row.varint(nanos + 1000, 32)
                with pytest.raises(CorruptRecord, match="out of its type's range"):
                    decode_rows(pa.array([b"\0" + beyond]), [of], COMPACTED)


def test_columns_of_another_kind_are_refused() -> None:
    batch = pa.record_batch([pa.array([1])], ["a"])
    with pytest.raises(InvalidTable, match="column 'a' is INT: .* int64, but must have int32"):
        encode_rows(batch, [t.INT], COMPACTED)
    with pytest.raises(InvalidTable, match="data have 1 columns, the table has 2"):
        encode_rows(batch, [t.BIGINT, t.INT], COMPACTED)
    with pytest.raises(ValueError, match="ALIGNED"):
        encode_rows(batch, [t.BIGINT], "ALIGNED")
    with pytest.raises(ValueError, match="rows must have the type binary"):
        decode_rows(pa.array(["a"]), [t.INT], COMPACTED)


def test_many_rows_of_long_values_have_room() -> None:
    """A BINARY's size is its type's: it counts for the memory that rows are written to."""
    types = [t.binary(1000), array_of(t.binary(1000)), t.decimal(38, 0)]
    count = 300
    row = [b"\xff" * 1000, [b"\x01" * 1000] * 3, None]
    for row_format in FORMATS:
        rows = encode([row] * count, types, row_format)
        assert len(set(rows)) == 1
        assert decode(rows[0], types, row_format) == row
