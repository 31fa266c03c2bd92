"""Values of a file are those of the table, or they are refused: none changes without a word."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import click
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.cli.rows.columns import columns_of, rows_of
from sluice.cli.rows.values import cast, from_text
from sluice.model import Column, DataType, RowField, Schema, TypeRoot
from sluice.model import types as t

NAN, INF = float("nan"), float("inf")
NOON = dt.datetime(2024, 5, 1, 12)
MIDNIGHT = dt.datetime(2024, 5, 1)
US, BERLIN = pa.timestamp("us"), pa.timestamp("us", "Europe/Berlin")


def lists(arrow: pa.DataType, value: object) -> pa.Array:
    return pa.array([[value]], pa.list_(pa.field("element", arrow)))


def array_of(element: DataType) -> DataType:
    return DataType(TypeRoot.ARRAY, element=element)


def field_of(data_type: DataType) -> pa.Field:
    return columns_of(Schema((Column("c", data_type, 0),), highest_field_id=0), ["c"]).field(0)


def read(home: Path, values: pa.Array, data_type: DataType) -> pa.Array:
    """What a Parquet file of these values gives for a column of that type."""
    path = home / "t.parquet"
    pq.write_table(pa.table({"c": values}), path)
    batches = list(rows_of(path, pa.schema([field_of(data_type)])).batches())
    return pa.Table.from_batches(batches).column(0).combine_chunks()


def refused(home: Path, values: pa.Array, data_type: DataType) -> str:
    with pytest.raises(click.ClickException) as caught:
        read(home, values, data_type)
    message = str(caught.value.message)
    assert message.startswith(f"{home}/t.parquet: ")
    return message.removeprefix(f"{home}/t.parquet: ")


@pytest.mark.parametrize(
    ("values", "data_type", "found"),
    [
        (pa.array([0.13, 0.129]), t.decimal(10, 2), "0.129"),
        (pa.array([0.5, 0.1]), t.FLOAT, "0.1"),
        (pa.array([0.5, 1e-50]), t.FLOAT, "1e-50"),
        (pa.array([0.5, 16777217.0]), t.FLOAT, "16777217.0"),
        (pa.array([0.5, 1e39]), t.FLOAT, "1e+39"),
        (pa.array([2.0, 2.5]), t.INT, "2.5"),
        (pa.array([2.0, NAN]), t.INT, "nan"),
        (pa.array([2.0, NAN]), t.decimal(5, 2), "nan"),
        (pa.array([1, 2**53 + 1]), t.DOUBLE, "9007199254740993"),
        (pa.array([Decimal("0.5"), Decimal("0.1234567890123456789")]), t.DOUBLE, "0.123456789012"),
        (
            pa.array([Decimal("0.5"), Decimal("1234567890123456789.123456789")]),
            t.DOUBLE,
            "1234567890123456789.123456789",
        ),
        (pa.array([Decimal("0.5"), Decimal("0.123456789012")]), t.FLOAT, "0.123456789012"),
        (pa.array([Decimal("1.0"), Decimal("1.5")]), t.INT, "1.5"),
        (pa.array([MIDNIGHT, NOON], US), t.DATE, "2024-05-01 12:00:00"),
        (pa.array([0, 1_500_000], pa.time64("us")), t.time(0), "00:00:01.500"),
        (pa.array([0, 2**40], pa.timestamp("ms")), t.timestamp(0), "2004-11-03"),
        (pa.array([[0.5], [0.5, 0.1]]), array_of(t.FLOAT), "[0.5, 0.1]"),
        (pa.array([["abc"], ["abcd"]]), array_of(t.char(3)), "['abcd']"),
    ],
)
def test_a_value_that_would_change_is_told(
    tmp_path: Path, values: pa.Array, data_type: DataType, found: str
) -> None:
    told = refused(tmp_path, values, data_type)
    assert told.startswith("row 2 (row group 1 of 1): column c: expected ")
    assert f"found {found}" in told


@pytest.mark.parametrize(
    ("values", "data_type"),
    [
        (pa.array([7]), t.BOOLEAN),
        (pa.array([1.0]), t.BOOLEAN),
        (pa.array([Decimal(1)]), t.BOOLEAN),
        (pa.array([True]), t.INT),
        (pa.array([True]), t.DOUBLE),
        (pa.array([True]), t.decimal(5, 2)),
        (pa.array([NOON], US), t.BIGINT),
        (pa.array([NOON], US), t.time(0)),
        (pa.array([NOON], BERLIN), t.STRING),
        (pa.array([1_700_000_000]), t.timestamp(3)),
        (pa.array([1_700_000_000]), t.timestamp_ltz(3)),
        (pa.array([5], pa.int32()), t.DATE),
        (pa.array([5], pa.int32()), t.time(0)),
        (pa.array([MIDNIGHT.date()]), t.INT),
        (pa.array([MIDNIGHT.date()]), t.timestamp_ltz(3)),
        (pa.array([5], pa.time32("ms")), t.INT),
        (pa.array([5], pa.duration("s")), t.BIGINT),
        (pa.array([b"12"]), t.INT),
        (lists(pa.int64(), 7), array_of(t.BOOLEAN)),
        (pa.array([7]), array_of(t.INT)),
        (lists(BERLIN, NOON), array_of(t.timestamp(6))),
    ],
)
def test_values_of_another_kind_are_refused(
    tmp_path: Path, values: pa.Array, data_type: DataType
) -> None:
    told = refused(tmp_path, values, data_type)
    assert told.startswith(f"column c: expected {data_type}, found a column of type {values.type}")


def test_a_zone_belongs_to_a_timestamp_ltz_and_to_no_timestamp(tmp_path: Path) -> None:
    zoned, plain = pa.array([NOON], BERLIN), pa.array([NOON], US)
    assert read(tmp_path, zoned, t.timestamp_ltz(6)).to_pylist() == [NOON]
    assert read(tmp_path, plain, t.timestamp(6)).to_pylist() == [NOON]
    assert "only TIMESTAMP_LTZ has a time zone" in refused(tmp_path, zoned, t.timestamp(6))
    # as text without a zone, and as Fluss's own Arrow batches: it is UTC
    assert read(tmp_path, plain, t.timestamp_ltz(6)).to_pylist() == [NOON]
    assert read(tmp_path, lists(US, NOON), array_of(t.timestamp_ltz(6))).to_pylist() == [[NOON]]


NOTES = array_of(t.STRING)
ROW = DataType(TypeRoot.ROW, fields=(RowField("at", t.timestamp_ltz(3), None, 1),))


@pytest.mark.parametrize(
    ("values", "data_type", "found"),
    [
        (pa.array([0.13, -0.01, None]), t.decimal(10, 2), ["0.13", "-0.01", None]),
        (pa.array([0.5, NAN, INF, None]), t.FLOAT, ["0.5", "nan", "inf", None]),
        (pa.array([2.0, -0.0]), t.INT, ["2", "0"]),
        (pa.array([0.1], pa.float32()), t.decimal(10, 2), ["0.10"]),
        (pa.array([0.1]), t.decimal(38, 30), ["0.100000000000000005551115123126"]),
        (pa.array([Decimal("12345678901.23456"), None]), t.DOUBLE, ["12345678901.23456", None]),
        (pa.array([Decimal("0.10")]), t.FLOAT, ["0.10000000149011612"]),
        (pa.array([Decimal("1.25")], pa.decimal256(50, 2)), t.decimal(5, 2), ["1.25"]),
        (pa.array([7]), t.STRING, ["7"]),
        (pa.array([Decimal("1.50")]), t.STRING, ["1.50"]),
        (pa.array([0.1]), t.STRING, ["0.1"]),
        (pa.array([MIDNIGHT.date()]), t.STRING, ["2024-05-01"]),
        (pa.array([b"a"]), t.STRING, ["a"]),
        (pa.array([True, None]), t.STRING, ["true", None]),
        (pa.array([NOON], US), t.STRING, ["2024-05-01 12:00:00.000000"]),
        (lists(pa.float64(), 0.5), array_of(t.FLOAT), ["[0.5]"]),
        (lists(pa.string(), "7"), array_of(t.INT), ["[7]"]),
        (lists(pa.date32(), MIDNIGHT.date()), array_of(t.DATE), [f"[{MIDNIGHT.date()!r}]"]),
        (pa.array([[1]], pa.large_list(pa.int64())), array_of(t.BIGINT), ["[1]"]),
        (pa.array([[1, 2]], pa.list_(pa.int64(), 2)), array_of(t.BIGINT), ["[1, 2]"]),
        (pa.array([["a"]], pa.list_(pa.dictionary(pa.int32(), pa.string()))), NOTES, ["['a']"]),
        (pa.array([MIDNIGHT, None], US), t.DATE, ["2024-05-01", None]),
        (pa.array([MIDNIGHT.date()]), t.timestamp(3), ["2024-05-01 00:00:00"]),
        (pa.array([b"ab"], pa.large_binary()), t.binary(2), ["b'ab'"]),
        (pa.nulls(1), t.BOOLEAN, [None]),
        (pa.nulls(1, pa.float64()), t.decimal(5, 2), [None]),
        (pa.nulls(1, pa.float64()), t.FLOAT, [None]),
        (pa.nulls(1, US), t.DATE, [None]),
        (pa.array([1, None]).dictionary_encode(), t.TINYINT, ["1", None]),
        (pa.array([[1], None]), array_of(t.decimal(20, 0)), ["[Decimal('1')]", None]),
        (lists(BERLIN, NOON), array_of(t.timestamp_ltz(6)), [f"[{NOON!r}]"]),
        (
            pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int32())),
            DataType(TypeRoot.MAP, key=t.STRING.not_null(), value=t.BIGINT),
            ["[('a', 1)]"],
        ),
        (pa.array([{"at": NOON}], pa.struct([("at", BERLIN)])), ROW, [str({"at": NOON})]),
    ],
)
def test_a_value_that_stays_the_same_is_taken(
    tmp_path: Path, values: pa.Array, data_type: DataType, found: list[str | None]
) -> None:
    taken = read(tmp_path, values, data_type).to_pylist()
    assert [value if value is None else str(value) for value in taken] == found


NUMBERS: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    (pa.uint64(), st.integers(0, 2**64 - 1)),
    (pa.float32(), st.floats(width=32)),
    (pa.float64(), st.floats() | st.floats(width=32) | st.integers(-999, 999).map(lambda n: n / 8)),
    (pa.decimal128(9, 2), st.decimals(-999999, 999999, places=2)),
    (pa.decimal128(38, 18), st.decimals(-(10**6), 10**6, places=18)),
]
TARGETS = [t.TINYINT, t.BIGINT, t.FLOAT, t.DOUBLE, t.decimal(5, 2), t.decimal(20, 4), t.STRING]


@given(st.sampled_from(NUMBERS).flatmap(lambda n: st.tuples(st.just(n[0]), n[1])), st.data())
def test_a_number_converts_back_to_itself_or_is_refused(
    number: tuple[pa.DataType, Any], data: st.DataObject
) -> None:
    """By Python's own conversions, which are exact or the nearest."""
    source, value = number
    target = field_of(data.draw(st.sampled_from(TARGETS)))
    try:
        (found,) = cast(pa.array([value], source), target).to_pylist()
    except pa.ArrowException:
        return
    if value != value:
        assert str(found) == "nan"
    elif pa.types.is_integer(source):
        assert int(Decimal(found)) == value
    elif pa.types.is_decimal(source):
        back = Decimal(found).quantize(Decimal(1).scaleb(-source.scale))
        assert back == value
        assert target.type != pa.float64() or found == float(value)
    else:
        back = np.float32(found) if source == pa.float32() else float(found)
        assert back == value


@pytest.mark.parametrize("kind", [pa.decimal128(9, 2), pa.decimal128(38, 2), pa.decimal256(50, 2)])
def test_prices_are_the_same_in_every_type_that_has_room(kind: pa.DataType) -> None:
    """Arrow's own cast makes 0.07 of DECIMAL another DOUBLE than 0.07."""
    cents = [*range(-9_999, 10_000), 12_345_678]
    prices = pa.array([Decimal(n).scaleb(-2) for n in cents] + [None], kind)
    reals = cast(prices, field_of(t.DOUBLE))
    assert reals.to_pylist() == [n / 100 for n in cents] + [None]
    assert cast(reals, field_of(t.decimal(10, 2))).to_pylist() == prices.to_pylist()
    for few in (prices.slice(0, 0), prices.slice(len(cents)), pa.array([], kind)):
        assert cast(few, field_of(t.DOUBLE)).to_pylist() == few.to_pylist()
    narrow = cast(prices.slice(5, 15_000), field_of(t.FLOAT))
    assert narrow.to_numpy().tolist() == [np.float32(n / 100) for n in cents[5:15_005]]
    assert cast(narrow, field_of(t.decimal(9, 2))).equals(
        prices.slice(5, 15_000).cast(pa.decimal128(9, 2))
    )


# ---- text ----

TEXTS = [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())]


@pytest.mark.parametrize("arrow", [*TEXTS, pa.dictionary(pa.int32(), pa.large_string())])
def test_every_form_of_text_is_read_as_text(tmp_path: Path, arrow: pa.DataType) -> None:
    stamps = pa.array(["2024-05-01T14:00:00+02:00", None, "2024-05-01T12:00:00"]).cast(arrow)
    found = read(tmp_path, stamps, t.timestamp_ltz(6))
    assert found.to_pylist() == [NOON, None, NOON]
    words = pa.array(["true", "false"]).cast(arrow)
    assert read(tmp_path, words, t.BOOLEAN).to_pylist() == [True, False]
    assert read(tmp_path, words, t.STRING).to_pylist() == ["true", "false"]
    told = refused(tmp_path, pa.array(["1", "soon"]).cast(arrow), t.INT)
    assert "row 2 (row group 1 of 1): column c: expected INT, found 'soon'" in told


@pytest.mark.parametrize("data_type", [t.FLOAT, t.DOUBLE])
def test_a_text_becomes_the_nearest_number_but_never_an_infinite_one(
    tmp_path: Path, data_type: DataType
) -> None:
    words = ["16777217", "1e-400", "inf", "-Infinity", None, "NaN"]
    found = read(tmp_path, pa.array(words), data_type)
    nearest = 16777216 if data_type is t.FLOAT else 16777217
    assert found.to_pylist()[:5] == [nearest, 0, INF, -INF, None]
    for text in ("1e400", "-1e400", "9" * 400):
        told = refused(tmp_path, pa.array(["inf", text]), data_type)
        assert (
            f"row 2 (row group 1 of 1): column c: expected {data_type}, found '{text[:9]}" in told
        )
    if data_type is t.FLOAT:
        assert "found '1e300'" in refused(tmp_path, pa.array(["1", "1e300"]), t.FLOAT)


def test_the_nearest_float_is_not_found_by_way_of_a_double() -> None:
    above_the_middle = "1.000000059604644775390626"  # of 1 and the next float
    found = from_text(pa.array([above_the_middle]), field_of(t.FLOAT))
    assert found.to_pylist() == [1 + 2.0**-23]


@pytest.mark.parametrize("arrow", TEXTS)
def test_a_char_has_so_many_characters_at_most(tmp_path: Path, arrow: pa.DataType) -> None:
    fits = pa.array(["abc", "äöü", "a", "", None]).cast(arrow)
    assert read(tmp_path, fits, t.char(3)).to_pylist() == ["abc", "äöü", "a", "", None]
    told = refused(tmp_path, pa.array(["abc", "abcd"]).cast(arrow), t.char(3))
    assert "row 2 (row group 1 of 1): column c: expected CHAR(3), found 'abcd'" in told
    assert "found 1234" in refused(tmp_path, pa.array([123, 1234]), t.char(3))
