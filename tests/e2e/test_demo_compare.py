"""The demo's comparison: it must see one changed value, one lost row and one offset too many."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from demo.comparison.compare import differences, facts_of, lake_facts, offset_differences
from demo.data import FIRST_MONTHS, plant_difference, read_sources

FLIGHTS, WEATHER = read_sources()


def test_the_source_files_are_read_whole() -> None:
    assert (FLIGHTS.rows.num_rows, WEATHER.rows.num_rows) == (336_776, 26_115)
    assert FLIGHTS.rows["dep_time"].null_count == 8_255
    assert FLIGHTS.rows.schema.field("time_hour").type == pa.timestamp("us", "UTC")
    assert not FLIGHTS.rows.schema.field("origin").nullable


@pytest.mark.parametrize("source", [FLIGHTS, WEATHER], ids=lambda source: source.name)
def test_the_two_loads_are_the_whole_source(source: Any) -> None:
    first, other = source.first_months, source.other_months
    assert first.num_rows + other.num_rows == source.rows.num_rows
    assert set(first["month"].unique().to_pylist()) == set(range(1, FIRST_MONTHS + 1))
    assert set(other["month"].unique().to_pylist()) == {11, 12}


def test_a_source_does_not_differ_from_itself() -> None:
    assert differences("weather", facts_of(WEATHER.rows), facts_of(WEATHER.rows)) == []


@pytest.mark.parametrize("column", ["distance", "flight", "day"])
def test_a_planted_row_is_found_with_its_column(column: str) -> None:
    planted = plant_difference(FLIGHTS.rows, column)
    found = differences("flights", facts_of(FLIGHTS.rows), facts_of(planted))
    assert {difference.where for difference in found} == {f"column {column}"}
    assert "sum" in {difference.measure for difference in found}


def test_two_texts_of_one_length_are_not_the_same() -> None:
    rows = pa.table({"origin": ["JFK", "EWR", "LGA"], "dest": ["ABC", "MMM", "XYZ"]})
    other = rows.set_column(1, "dest", pa.array(["ABC", "MMN", "XYZ"]))
    found = differences("t", facts_of(rows), facts_of(other))
    assert [(difference.where, difference.measure) for difference in found] == [
        ("column dest", "sum")
    ]


def test_a_lost_row_shows_in_the_count_and_at_its_origin() -> None:
    found = differences("weather", facts_of(WEATHER.rows), facts_of(WEATHER.rows[1:]))
    assert ("all rows", 1) in {(d.where, d.source - d.lake) for d in found if d.measure == "count"}
    assert "origin EWR" in {difference.where for difference in found}


@pytest.fixture(scope="module")
def as_view(
    spark: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str, pa.Table], str]]:
    """Arrow rows as a view in Spark."""
    folder = tmp_path_factory.mktemp("views")

    def make(name: str, rows: pa.Table) -> str:
        path = Path(folder, f"{name}.parquet")
        pq.write_table(rows, path)
        spark.read.parquet(str(path)).createOrReplaceTempView(name)
        return name

    yield make


def rows_of(spark: Any) -> Callable[[str], list[dict[str, Any]]]:
    return lambda text: [row.asDict() for row in spark.sql(text).collect()]


@pytest.mark.spark
@pytest.mark.parametrize(
    "source",
    [pytest.param(FLIGHTS, marks=pytest.mark.slow), WEATHER],
    ids=lambda source: source.name,
)
def test_spark_finds_the_same_facts_as_arrow(spark: Any, as_view: Any, source: Any) -> None:
    view = as_view(f"all_{source.name}", source.rows)
    lake = lake_facts(rows_of(spark), view, source.rows.schema)
    assert differences(source.name, facts_of(source.rows), lake) == []


@pytest.mark.slow
@pytest.mark.spark
def test_spark_finds_a_planted_row(spark: Any, as_view: Any) -> None:
    view = as_view("planted", plant_difference(FLIGHTS.rows))
    lake = lake_facts(rows_of(spark), view, FLIGHTS.rows.schema)
    found = differences("flights", facts_of(FLIGHTS.rows), lake)
    assert [difference.where for difference in found] == ["column distance"]
    assert str(found[0]).startswith("flights, column distance: sum is 350217608 in the lake")


@pytest.mark.spark
def test_a_table_without_offsets_has_as_many_rows_as_the_logs(spark: Any, as_view: Any) -> None:
    view = as_view("clean", pa.table({"origin": ["JFK", "LGA"]}))
    assert offset_differences(rows_of(spark), "t", view, "origin", 2) == []
    [found] = offset_differences(rows_of(spark), "t", view, "origin", 3)
    assert str(found) == "t, all buckets: rows is 2 in the lake and 3 in the source"


def offsets_table(offsets: list[tuple[str, int, int]]) -> pa.Table:
    origin, bucket, offset = zip(*offsets, strict=True)
    return pa.table({"origin": origin, "__bucket": bucket, "__offset": offset})


WHOLE = [("JFK", 0, 0), ("JFK", 0, 1), ("LGA", 0, 0), ("LGA", 1, 0), ("LGA", 1, 1)]


@pytest.mark.spark
@pytest.mark.parametrize(
    ("offsets", "end_offsets", "measures"),
    [
        (WHOLE, 5, set()),
        (WHOLE + [("JFK", 0, 1)], 5, {"rows"}),
        ([row for row in WHOLE if row != ("LGA", 1, 0)], 5, {"first offset", "rows"}),
        (WHOLE + [("JFK", 0, 3)], 7, {"rows", "distinct offsets"}),
        (WHOLE, 6, {"end offsets"}),
    ],
    ids=["whole", "twice", "first missing", "gap", "end missing"],
)
def test_every_offset_must_be_there_once(
    spark: Any, as_view: Any, offsets: Any, end_offsets: int, measures: set[str]
) -> None:
    view = as_view(f"offsets_{len(offsets)}_{end_offsets}", offsets_table(offsets))
    found = offset_differences(rows_of(spark), "t", view, "origin", end_offsets)
    assert measures <= {difference.measure for difference in found}
    assert bool(found) == bool(measures)
