"""The demo's comparison by rows: it must see what sums, extremes and counts cannot show."""

from __future__ import annotations

import pyarrow as pa
import pytest

from demo.comparison.row_compare import row_differences
from demo.data import plant_difference, read_sources

ROWS = pa.table(
    {"origin": ["JFK", "EWR", "LGA", "JFK"], "n": [1, 2, None, 1], "x": [0.5, None, 1.5, 0.5]}
)


def measured(lake: pa.Table) -> dict[str, tuple[object, object]]:
    return {d.where: (d.source, d.lake) for d in row_differences("t", ROWS, lake)}


def test_another_order_and_more_columns_are_no_difference() -> None:
    lake = ROWS.take([3, 2, 0, 1]).append_column("__offset", pa.array([4, 3, 2, 1]))
    assert row_differences("t", ROWS, lake) == []


def test_types_that_readers_choose_are_no_difference() -> None:
    other = {"origin": pa.large_string(), "n": pa.int64(), "x": pa.float64()}
    assert row_differences("t", ROWS, ROWS.cast(pa.schema(other))) == []


@pytest.mark.parametrize(
    ("kept", "missing", "extra"),
    [([0, 1, 2], 1, 0), ([0, 1, 2, 3, 3], 0, 1), ([0, 1, 1, 3], 1, 1), ([], 4, 0)],
    ids=["one of two alike lost", "one more of two alike", "another in its place", "no row"],
)
def test_copies_of_rows_are_counted(kept: list[int], missing: int, extra: int) -> None:
    found = measured(ROWS.take(pa.array(kept, pa.int64())))
    assert found["rows that are not in the lake"] == (missing, 0)
    assert found["rows that are not in the source"] == (0, extra)


def test_values_that_changed_places_are_found() -> None:
    swapped = ROWS.set_column(1, "n", pa.array([2, 1, None, 1]))
    assert measured(swapped) == {
        "rows that are not in the lake": (2, 0),
        "rows that are not in the source": (0, 2),
    }


def test_a_null_is_not_a_zero() -> None:
    found = measured(ROWS.set_column(1, "n", pa.array([1, 2, 0, 1])))
    assert found["rows that are not in the lake"] == (1, 0)
    assert found["column n"]


def test_a_planted_row_is_found_with_its_column() -> None:
    flights, _ = read_sources()
    found = row_differences("flights by Spark", flights.rows, plant_difference(flights.rows))
    assert [d.where for d in found] == [
        "rows that are not in the lake",
        "rows that are not in the source",
        "column distance",
    ]
    assert str(found[0]).startswith("flights by Spark, rows that are not in the lake: count is 0")
