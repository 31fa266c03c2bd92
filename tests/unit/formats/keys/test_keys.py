"""Key bytes against the test vectors of Fluss.

See docs/fluss/test-vectors.md#compacted-key-bytes and
docs/fluss/test-vectors.md#hashes-and-buckets
"""

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.errors import InvalidTable, UnsupportedLakeOption, UnsupportedType
from sluice.formats.keys.bucketing import murmur3_x86_32
from sluice.formats.keys.keys import encode_key
from sluice.formats.types.types import arrow_type
from sluice.model import Column, DataType, Schema, TypeRoot
from sluice.model import types as t

MILLIS = 1698235273182


def encode(
    fields: list[tuple[DataType, list[Any] | pa.Array]], lake: str | None = None, skip: int = 0
) -> list[bytes]:
    """Keys of one column after another; a plain list takes the column's own Arrow type."""
    names = [f"c{i}" for i in range(len(fields))]
    columns = tuple(Column(n, f[0], i) for i, (n, f) in enumerate(zip(names, fields, strict=True)))
    arrays = [v if isinstance(v, pa.Array) else pa.array(v, arrow_type(of)) for of, v in fields]
    batch = pa.record_batch(arrays, names).slice(skip)
    return encode_key(batch, names, Schema(columns), lake).to_pylist()


def hex_of(*fields: tuple[DataType, Any], lake: str | None = None) -> str:
    values = [(of, v if isinstance(v, pa.Array) else [v]) for of, v in fields]
    (key,) = encode(values, lake)
    return key.hex().upper()


@pytest.mark.parametrize(
    ("data_type", "value", "expected"),
    [
        (t.STRING, "a2", "026132"),
        (t.BOOLEAN, True, "01"),
        (t.TINYINT, 2, "02"),
        (t.SMALLINT, 10, "0A00"),
        (t.INT, 100, "64"),
        (t.BIGINT, -6101065172474983726, "D295FCD8CEB1AAAAAB01"),
        (t.FLOAT, 13.2, "33335341"),
        (t.DOUBLE, 15.21, "EC51B81E856B2E40"),
        (t.DATE, pa.array([19655], pa.int32()).cast(pa.date32()), "C79901"),
        (t.time(3), pa.array([34200000], pa.int32()).cast(pa.time32("ms")), "C0B3A710"),
        (t.binary(20), pa.array([b"1234567890"]), "0A31323334353637383930"),
        (t.BYTES, b"20", "023230"),
        (t.char(2), "1", "0131"),
        (t.STRING, "hello", "0568656C6C6F"),
        (t.decimal(5, 2), Decimal("0.09"), "09"),
        (t.decimal(20, 0), Decimal(10), "010A"),
        (
            t.timestamp(1),
            pa.array([MILLIS], pa.timestamp("ms")),
            "DE9FD7B5B631",
        ),
        (
            t.timestamp(5),
            pa.array([MILLIS * 1000], pa.timestamp("us")),
            "DE9FD7B5B63100",
        ),
    ],
)
def test_compacted_keys_of_the_docs(data_type: DataType, value: Any, expected: str) -> None:
    assert hex_of((data_type, value)) == expected


def test_a_compacted_key_of_several_columns() -> None:
    assert hex_of((t.INT, 1), (t.BIGINT, 3), (t.INT, 2)) == "010302"
    assert hex_of((t.INT, -1), (t.STRING, ""), lake="lance") == "FFFFFFFF0F00"


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_time_is_milliseconds_in_every_precision(unit: str) -> None:
    kind = pa.time32(unit) if unit in ("s", "ms") else pa.time64(unit)
    value = pa.array([dt.time(9, 30)], kind)
    precision = {"s": 0, "ms": 3, "us": 6, "ns": 9}[unit]
    assert hex_of((t.time(precision), value)) == "C0B3A710"


ICEBERG_HASHES: list[tuple[DataType, Any, int]] = [
    (t.INT, 34, 2017239379),
    (t.BIGINT, 34, 2017239379),
    (t.decimal(4, 2), Decimal("14.20"), -500754589),
    (t.DATE, dt.date(2017, 11, 16), -653330422),
    (t.time(3), dt.time(22, 31, 8), -662762989),
    (t.time(0), dt.time(22, 31, 8), -662762989),
    (t.timestamp(6), dt.datetime(2017, 11, 16, 22, 31, 8), -2047944441),
    (t.timestamp(6), dt.datetime(2017, 11, 16, 22, 31, 8, 1), -1207196810),
    (t.timestamp(0), dt.datetime(2017, 11, 16, 22, 31, 8), -2047944441),
    (t.STRING, "iceberg", 1210000089),
    (t.char(7), "iceberg", 1210000089),
    (t.BYTES, bytes(range(4)), -188683207),
    (t.binary(4), bytes(range(4)), -188683207),
]


@pytest.mark.parametrize(("data_type", "value", "expected"), ICEBERG_HASHES)
def test_iceberg_keys_give_the_hashes_of_the_docs(
    data_type: DataType, value: Any, expected: int
) -> None:
    (key,) = encode([(data_type, [value])], "iceberg")
    assert murmur3_x86_32(pa.array([key])).view(np.int32).tolist() == [expected]


def test_derived_keys_of_the_docs() -> None:
    assert hex_of((t.INT, 42), lake="iceberg") == "2A00000000000000"
    assert hex_of((t.INT, 42), lake="paimon") == "00000000000000002A00000000000000"
    assert hex_of((t.STRING, "hi"), lake="paimon")[16:] == "6869000000000082"


def test_paimon_puts_behind_the_slots_what_does_not_fit_them() -> None:
    fields = [
        (t.STRING, ["12345678", "1234567", "", "123456789"]),
        (t.decimal(20, 0), [Decimal(-1), Decimal(256), Decimal(0), Decimal(127)]),
        (t.timestamp(6), pa.array([MILLIS * 1000 + 7] * 4, pa.timestamp("us"))),
        (t.BIGINT, [-1, 0, 1, 2]),
    ]
    rows = encode(fields, "paimon")
    first = rows[0]
    assert len(first) == 8 + 4 * 8 + 8 + 16 + 8
    assert first[8:16] == (8).to_bytes(4, "little") + (40).to_bytes(4, "little")
    assert first[16:24] == (1).to_bytes(4, "little") + (48).to_bytes(4, "little")
    assert first[24:32] == (7000).to_bytes(4, "little") + (64).to_bytes(4, "little")
    assert first[32:40] == b"\xff" * 8
    assert first[40:] == b"12345678" + b"\xff" + bytes(15) + MILLIS.to_bytes(8, "little")
    assert rows[1][8:16] == b"1234567\x87"
    assert rows[1][40:42] == b"\x01\x00"
    assert rows[2][8:16] == bytes(7) + b"\x80"
    assert rows[3][40:56] == b"123456789" + bytes(7)


def test_paimon_marks_nulls_in_nullable_columns_only() -> None:
    rows = encode([(t.STRING, [None, "long enough"]), (t.INT, [7, None])], "paimon")
    assert rows[0] == bytes.fromhex("0001000000000000" + "00" * 8 + "0700000000000000")
    assert rows[1][:8] == bytes.fromhex("0002000000000000")
    assert rows[1][16:24] == bytes(8)
    with pytest.raises(InvalidTable, match="'c0' is NOT NULL"):
        encode([(t.INT.not_null(), [None])], "paimon")


@pytest.mark.parametrize("lake", [None, "iceberg"])
def test_a_null_names_its_column(lake: str | None) -> None:
    with pytest.raises(InvalidTable, match="key column 'c0' has 1 nulls"):
        encode([(t.INT, [1, None])], lake)


def test_what_an_encoder_does_not_know_is_refused() -> None:
    array = DataType(TypeRoot.ARRAY, element=t.INT)
    for lake in (None, "iceberg", "paimon"):
        with pytest.raises(UnsupportedType, match="'c0'"):
            encode([(array, [[1]])], lake)
    for data_type, value in ((t.BOOLEAN, True), (t.TINYINT, 1), (t.SMALLINT, 1)):
        with pytest.raises(UnsupportedType, match=data_type.root.name):
            encode([(data_type, [value])], "iceberg")
    with pytest.raises(UnsupportedType, match="TIMESTAMP_LTZ"):
        encode([(t.timestamp_ltz(6), [dt.datetime(2020, 1, 1)])], "iceberg")
    with pytest.raises(InvalidTable, match="one key column, not 2"):
        encode([(t.INT, [1]), (t.INT, [1])], "iceberg")
    with pytest.raises(UnsupportedLakeOption, match="hudi"):
        encode([(t.INT, [1])], "hudi")
    batch = pa.record_batch([pa.array([1])], ["a"])
    schema = Schema((Column("a", t.BIGINT, 0),))
    with pytest.raises(InvalidTable, match="'b'"):
        encode_key(batch, ["b"], schema, None)
    with pytest.raises(InvalidTable, match="at least one column"):
        encode_key(batch, [], schema, None)


def leb128(value: int, bits: int) -> bytes:
    value &= (1 << bits) - 1
    result = b""
    while value > 0x7F:
        result += bytes([value & 0x7F | 0x80])
        value >>= 7
    return result + bytes([value])


def shortest(value: int) -> bytes:
    return value.to_bytes((value + (value < 0)).bit_length() // 8 + 1, "big", signed=True)


ROWS = st.tuples(
    st.integers(-(2**31), 2**31 - 1),
    st.integers(-(2**63), 2**63 - 1),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=200),
    st.binary(max_size=20),
    st.integers(-(10**38) + 1, 10**38 - 1),
)


@given(st.lists(ROWS, max_size=20), st.integers(0, 3))
def test_compacted_keys_are_what_a_plain_encoder_writes(
    rows: list[tuple[int, int, str, bytes, int]], skip: int
) -> None:
    columns = list(zip(*rows, strict=True)) or [(), (), (), (), ()]
    unscaled = [Decimal(value) for value in columns[4]]
    fields = [
        (t.INT, list(columns[0])),
        (t.BIGINT, list(columns[1])),
        (t.STRING, list(columns[2])),
        (t.BYTES, list(columns[3])),
        (t.decimal(38, 0), unscaled),
    ]
    expected = []
    for a, b, text, content, number in rows[skip:]:
        utf8, big = text.encode(), shortest(number)
        expected.append(
            leb128(a, 32)
            + leb128(b, 64)
            + leb128(len(utf8), 32)
            + utf8
            + leb128(len(content), 32)
            + content
            + leb128(len(big), 32)
            + big
        )
    assert encode(fields, None, skip) == expected


@given(st.lists(st.integers(-(10**18) + 1, 10**18 - 1), min_size=1), st.integers(0, 3))
def test_iceberg_decimals_are_the_shortest_bytes(numbers: list[int], skip: int) -> None:
    values = [Decimal(number).scaleb(-3) for number in numbers]
    expected = [shortest(number) for number in numbers[skip:]]
    assert encode([(t.decimal(18, 3), values)], "iceberg", skip) == expected
