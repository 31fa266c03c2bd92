"""Partitions of rows: those of PyIceberg, which has transforms of its own."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyiceberg.transforms import parse_transform
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    IcebergType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
    TimestamptzType,
)

from sluice.errors import UnsupportedLakeOption
from sluice.lake.iceberg.write.partition_transforms import partition_codes

MICROS = [-1, 0, -86_400_000_000, 86_399_999_999, 1_700_000_000_123_456, -3_600_000_001]
CASES: dict[str, tuple[pa.Array, IcebergType, list[str]]] = {
    "int": (
        pa.array([-11, -10, -1, 0, 7, 2**31 - 1, None], pa.int32()),
        IntegerType(),
        ["bucket[7]", "truncate[10]", "identity"],
    ),
    "long": (
        pa.array([-(2**62), -1, 0, 5, 2**63 - 1, None], pa.int64()),
        LongType(),
        ["bucket[16]", "truncate[3]"],
    ),
    "string": (
        pa.array(["", "\u00e9\u20ac\U0001d11ex", "a/b=c %", None]),
        StringType(),
        ["bucket[5]", "truncate[2]", "identity"],
    ),
    "binary": (pa.array([b"", b"\x00\xff", None]), BinaryType(), ["bucket[9]"]),
    "date": (
        pa.array([-1, 0, 31, 365, -719_162, None], pa.int32()).view(pa.date32()),
        DateType(),
        ["day", "month", "year", "bucket[4]", "identity"],
    ),
    "timestamp": (
        pa.array([*MICROS, None], pa.timestamp("us")),
        TimestampType(),
        ["hour", "day", "month", "year", "bucket[4]"],
    ),
    "timestamptz": (
        pa.array([*MICROS, None], pa.timestamp("us", tz="UTC")),
        TimestamptzType(),
        ["hour", "day", "bucket[4]"],
    ),
    "boolean": (pa.array([True, False, None]), BooleanType(), ["identity"]),
}


@pytest.mark.parametrize("kind", CASES)
def test_partitions_are_those_of_the_specification(kind: str) -> None:
    values, of, transforms = CASES[kind]
    plain = values
    if pa.types.is_date(values.type):
        plain = values.view(pa.int32())
    elif pa.types.is_timestamp(values.type):
        plain = values.view(pa.int64())
    for name in transforms:
        codes, texts = partition_codes(pa.chunked_array([values]), name)
        theirs = parse_transform(name)
        apply = theirs.transform(of)
        for value, code in zip(plain.to_pylist(), codes, strict=True):
            found = apply(value)
            expected: str | None = str(found).lower() if isinstance(found, bool) else str(found)
            if found is None:
                expected = None
            elif name == "day" or (kind == "date" and name == "identity"):
                expected = theirs.to_human_string(of, found)
            assert texts[code] == expected, (name, value)


def test_dates_of_any_year_are_as_java_reads_them() -> None:
    days = pa.array([-800_000, -719_528, 2_932_896, 2_932_897, None], pa.int32()).view(pa.date32())
    _, texts = partition_codes(pa.chunked_array([days]), "identity")
    assert texts == ["-0221-09-04", "0000-01-01", "9999-12-31", "+10000-01-01", None]


def test_a_time_far_away_has_a_day_and_no_hour() -> None:
    ends = pa.chunked_array([pa.array([-(2**63), 2**63 - 1], pa.timestamp("us"))])
    assert partition_codes(ends, "day")[1] == ["-290308-12-21", "+294247-01-10"]
    assert partition_codes(ends, "month")[1] == ["-3507325", "3507324"]
    with pytest.raises(UnsupportedLakeOption, match="a time on -290308-12-21 has no hour in"):
        partition_codes(ends, "hour")


def test_what_is_not_supported_is_named() -> None:
    with pytest.raises(UnsupportedLakeOption, match="partition transform zorder"):
        partition_codes(pa.chunked_array([pa.array([1])]), "zorder")


def test_a_dropped_field_has_null_everywhere() -> None:
    codes, texts = partition_codes(pa.chunked_array([pa.array([1, 2])]), "void")
    assert [texts[code] for code in codes] == [None, None]
