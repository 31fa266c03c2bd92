"""Values of users as commands show them: complete, also those that Python's own types lack."""

from __future__ import annotations

import sys
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from sluice.cli.terminal.shown_values import shown_rows

DAY = 1_714_521_600
"""2024-05-01T00:00Z in seconds since the epoch."""


def timestamps(unit: str, *values: int | None, zone: str | None = None) -> pa.Array:
    return pa.array(values, pa.timestamp(unit, zone))


CASES: list[tuple[pa.Array, list[Any]]] = [
    (timestamps("s", DAY, None), ["2024-05-01 00:00:00", None]),
    (timestamps("ms", DAY * 1000 + 120, 0), ["2024-05-01 00:00:00.120", "1970-01-01 00:00:00"]),
    (
        timestamps("us", DAY * 10**6 + 1000, -1),
        ["2024-05-01 00:00:00.001", "1969-12-31 23:59:59.999999"],
    ),
    (
        timestamps("ns", DAY * 10**9 + 123_456_789, 1_000, 1, 0),
        [
            "2024-05-01 00:00:00.123456789",
            "1970-01-01 00:00:00.000001",
            "1970-01-01 00:00:00.000000001",
            "1970-01-01 00:00:00",
        ],
    ),
    (timestamps("us", 1_500_000, None, zone="UTC"), ["1970-01-01 00:00:01.500Z", None]),
    (timestamps("us", 2**60), ["38504-08-17 21:30:06.846976"]),
    (pa.array([1, None], pa.time64("ns")), ["00:00:00.000000001", None]),
    (pa.array([43_200_000, 1], pa.time32("ms")), ["12:00:00", "00:00:00.001"]),
    (
        pa.array([0, 2**31 - 1, None], pa.int32()).cast(pa.date32()),
        ["1970-01-01", "5881580-07-11", None],
    ),
    (pa.array([Decimal("1.20"), None]), ["1.20", None]),
    (pa.array([b"\x00\xff", None]), ["00ff", None]),
    (pa.array([b"\x00\xff"], pa.binary(2)), ["00ff"]),
    (pa.array([True, None]), [True, None]),
    (pa.array([float("nan"), 0.5]), ["nan", 0.5]),
    (
        pa.array([[1, None], None, []], pa.list_(pa.timestamp("ns"))),
        [["1970-01-01 00:00:00.000000001", None], None, []],
    ),
    (
        pa.array([[1, 2], None], pa.list_(pa.time64("ns"), 2)),
        [["00:00:00.000000001", "00:00:00.000000002"], None],
    ),
    (
        pa.array([[(1, 2)], None, [(3, None)]], pa.map_(pa.int32(), pa.timestamp("ns"))),
        [[[1, "1970-01-01 00:00:00.000000002"]], None, [[3, None]]],
    ),
    (
        pa.array(
            [{"at": [1], "raw": b"\x01"}, None],
            pa.struct([("at", pa.list_(pa.timestamp("ns"))), ("raw", pa.binary())]),
        ),
        [{"at": ["1970-01-01 00:00:00.000000001"], "raw": "01"}, None],
    ),
]


@pytest.mark.parametrize(("array", "expected"), CASES, ids=[str(array.type) for array, _ in CASES])
def test_a_value_is_shown_complete(array: pa.Array, expected: list[Any]) -> None:
    assert [row for [row] in shown_rows(pa.table({"v": array}))] == expected
    behind = pa.concat_arrays([array, array]).slice(len(array))
    assert [row for [row] in shown_rows(pa.table({"v": behind}))] == expected
    chunks = pa.chunked_array([array, array.slice(0, 0), array])
    assert [row for [row] in shown_rows(pa.table({"v": chunks}))] == 2 * expected


def test_rows_keep_their_order_and_columns() -> None:
    rows = pa.table({"n": [1, 2], "at": timestamps("ns", 1, None)})
    assert shown_rows(rows) == [[1, "1970-01-01 00:00:00.000000001"], [2, None]]
    assert shown_rows(rows.slice(0, 0)) == []
    assert shown_rows(pa.table({})) == []


def test_nanoseconds_need_no_pandas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    assert shown_rows(pa.table({"at": timestamps("ns", 1)})) == [["1970-01-01 00:00:00.000000001"]]
