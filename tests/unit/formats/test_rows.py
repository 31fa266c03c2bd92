"""Rows against the vectors of reference parts 10.1 and 10.3, round trips and broken bytes."""

import contextlib
import math
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.errors import CorruptRecord, InvalidTable, UnsupportedType
from sluice.formats.rows import COMPACTED, INDEXED, decode_row, encode_compacted, encode_row
from sluice.model import DataType, RowField, TypeRoot
from sluice.model import types as t

from .strategies import NESTED, SCALARS

VECTOR_TYPES = (t.INT.not_null(), t.STRING)
FORMATS = [COMPACTED, INDEXED]


def array(element: DataType) -> DataType:
    return DataType(TypeRoot.ARRAY, element=element)


@pytest.mark.parametrize(
    ("values", "row_format", "expected"),
    [
        ([1, "a"], COMPACTED, "00010161"),
        ([1, "ab"], INDEXED, "0002000000010000006162"),
    ],
)
def test_rows_of_the_reference(values: list[Any], row_format: str, expected: str) -> None:
    row = encode_row(values, VECTOR_TYPES, row_format)
    assert row.hex() == expected
    assert decode_row(row, VECTOR_TYPES, row_format) == values


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
def test_array_keys_of_the_reference(element: DataType, values: list[Any], expected: str) -> None:
    assert encode_compacted(values, array(element)) == bytes.fromhex(expected)


def test_nulls_lie_in_bits_from_the_lowest() -> None:
    types = [t.TINYINT] * 9
    row = encode_row([None, 1, None, 1, 1, 1, 1, 1, None], types, COMPACTED)
    assert row == bytes([0b101, 1]) + bytes([1] * 6)
    indexed = encode_row([None, b"abc"], [t.STRING, t.BYTES], INDEXED)
    assert indexed == b"\x01\x03\0\0\0\0\0\0\0abc"


def test_char_and_binary_are_padded_in_indexed_rows_only() -> None:
    types = [t.char(4), t.binary(3)]
    assert encode_row(["ü", b"a"], types, INDEXED) == b"\0\xc3\xbc\0\0a\0\0"
    assert encode_row(["ü", b"a"], types, COMPACTED) == b"\0\x02\xc3\xbc\x01a"
    for value, other in (("abcde", b""), ("", b"abcd")):
        with pytest.raises(InvalidTable, match="does not fit"):
            encode_row([value, other], types, INDEXED)


def plain(data_type: DataType) -> st.SearchStrategy[Any]:
    """Values in the form that rows take them."""
    root = data_type.root
    whole = {TypeRoot.TINYINT: 8, TypeRoot.SMALLINT: 16, TypeRoot.INT: 32, TypeRoot.DATE: 32}
    if root in whole or root is TypeRoot.BIGINT:
        bits = whole.get(root, 64)
        return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    if root is TypeRoot.BOOLEAN:
        return st.booleans()
    if root in (TypeRoot.FLOAT, TypeRoot.DOUBLE):
        return st.floats(width=32 if root is TypeRoot.FLOAT else 64, allow_nan=False)
    if root is TypeRoot.TIME:
        return st.integers(0, 86_399_999)
    if root is TypeRoot.DECIMAL:
        limit = 10 ** (data_type.precision or 0) - 1
        return st.integers(-limit, limit)
    if root in (TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ):
        step = 10 ** (6 if (data_type.precision or 0) <= 3 else 0)
        return st.integers(-(2**63), 2**63 - 1).map(lambda n: n // step * step)
    text = st.text(st.characters(min_codepoint=1, exclude_categories=["Cs"]), max_size=20)
    if root is TypeRoot.CHAR:
        return st.text("abcxyz", max_size=data_type.length)
    if root is TypeRoot.BINARY:
        return st.binary(max_size=data_type.length).map(lambda b: b.rstrip(b"\0"))
    return text if root is TypeRoot.STRING else st.binary(max_size=20)


@st.composite
def typed_rows(draw: st.DrawFn) -> tuple[list[DataType], list[Any]]:
    scalars = draw(st.lists(st.sampled_from(SCALARS), max_size=12))
    types, values = [], []
    for scalar in scalars:
        one = st.none() | plain(scalar)
        if draw(st.integers(0, 3)) == 0:
            types.append(array(scalar))
            values.append(draw(st.none() | st.lists(one, max_size=40)))
        else:
            types.append(scalar)
            values.append(draw(one))
    return types, values


@given(typed_rows(), st.sampled_from(FORMATS))
def test_every_scalar_and_array_survives(
    typed: tuple[list[DataType], list[Any]], row_format: str
) -> None:
    types, values = typed
    row = encode_row(values, types, row_format)
    assert decode_row(memoryview(row), types, row_format) == values


@given(
    typed_rows(),
    st.sampled_from(FORMATS),
    st.lists(st.tuples(st.integers(0, 500), st.integers(0, 255)), max_size=4),
    st.integers(0, 5),
)
def test_broken_rows_are_corrupt_records_and_nothing_else(
    typed: tuple[list[DataType], list[Any]],
    row_format: str,
    changes: list[tuple[int, int]],
    cut: int,
) -> None:
    types, values = typed
    row = bytearray(encode_row(values, types, row_format))
    for at, value in changes:
        if row:
            row[at % len(row)] = value
    with contextlib.suppress(CorruptRecord):
        decode_row(bytes(row[: len(row) - cut]), types, row_format)


@given(st.lists(st.sampled_from(SCALARS + (array(t.STRING), array(t.INT)))), st.binary())
def test_any_bytes_are_corrupt_records_and_nothing_else(
    types: list[DataType], content: bytes
) -> None:
    for row_format in FORMATS:
        with contextlib.suppress(CorruptRecord):
            decode_row(content, types, row_format)


@pytest.mark.parametrize(
    ("data_type", "content", "reason"),
    [
        (t.INT, "00 8080808080", "more than 32 bits"),
        (t.BIGINT, "00" + "FF" * 10, "more than 64 bits"),
        (t.STRING, "00 02 61", "2 bytes wanted"),
        (t.STRING, "00 FFFFFFFF0F", "-1 bytes wanted"),
        (t.STRING, "00 01 FF", "not UTF-8"),
        (t.INT, "00 01 01", "1 bytes too many"),
        (t.INT, "", "1 bytes wanted"),
        (array(t.INT), "00 04 FFFFFFFF", "array of -1 elements"),
        (array(t.INT), "00 04 FFFFFF7F", "array of 2147483647 elements"),
        (array(t.STRING), "00 10 01000000 00000000 FF00000000000080"[:-2] + "FF", "slot of 7"),
        (array(t.STRING), "00 10 01000000 00000000 0900000010000000", "element at 16"),
        (array(t.decimal(20, 0)), "00 10 01000000 00000000 1100000000000000", "17 bytes"),
        (array(t.timestamp(6)), "00 10 01000000 00000000 40420F0000000000", "1000000 nanos"),
    ],
)
def test_broken_rows_say_what_is_wrong(data_type: DataType, content: str, reason: str) -> None:
    with pytest.raises(CorruptRecord, match=reason):
        decode_row(bytes.fromhex(content), [data_type], COMPACTED)


def test_indexed_lengths_are_checked() -> None:
    row = b"\0" + struct.pack("<i", -5) + b"abc"
    with pytest.raises(CorruptRecord, match="-5 bytes wanted"):
        decode_row(row, [t.STRING], INDEXED)


def test_floats_keep_their_bits() -> None:
    row = encode_row([math.inf, -0.0], [t.FLOAT, t.DOUBLE], COMPACTED)
    values = decode_row(row, [t.FLOAT, t.DOUBLE], COMPACTED)
    assert values[0] == math.inf
    assert math.copysign(1, values[1]) == -1


@pytest.mark.parametrize("row_format", FORMATS)
def test_what_rows_do_not_carry_is_refused(row_format: str) -> None:
    row = DataType(TypeRoot.ROW, fields=(RowField("x", t.INT),))
    for data_type, value in ((NESTED[1], {}), (row, [1]), (array(row), [[1]])):
        with pytest.raises(UnsupportedType, match="rows"):
            encode_row([value], [data_type], row_format)
    for data_type in (NESTED[1], row):
        with pytest.raises(UnsupportedType, match="rows"):
            decode_row(b"\0", [data_type], row_format)
    with pytest.raises(ValueError, match="ALIGNED"):
        encode_row([], [], "ALIGNED")
