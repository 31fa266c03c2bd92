"""The primary-key table of the demo: the status of each flight, changed day by day.

A flight is scheduled in the morning. Then it departs and arrives, or it is cancelled. Cancelled
flights are deleted at the end of the day. The first load ends in the middle of its last day, so
that the second load starts with changes of flights that the lake already has.

:func:`replay` computes the expected rows. It shares only the source's rows with :func:`changes`.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from demo.data import FIRST_MONTHS

NAME = "flight_status"
KEY = ("date", "carrier", "flight", "origin")
BUCKET_KEY = "flight"
BUCKETS = 4
SCHEMA = pa.schema(
    [
        pa.field("date", pa.date32(), nullable=False),
        pa.field("carrier", pa.string(), nullable=False),
        pa.field("flight", pa.int32(), nullable=False),
        pa.field("origin", pa.string(), nullable=False),
        pa.field("dest", pa.string()),
        pa.field("status", pa.string()),
        pa.field("dep_delay", pa.int32()),
        pa.field("arr_delay", pa.int32()),
    ]
)
FIRST_LOAD_ENDS = datetime.date(2013, FIRST_MONTHS, 31)
"""Flights of this day depart in the first load, and arrive in the second."""


@dataclass(frozen=True, slots=True)
class Change:
    """Rows to upsert, or keys to delete, in one batch."""

    rows: pa.Table
    deletes: bool = False


def changes(flights: pa.Table, *, first: bool) -> Iterator[Change]:
    """Yields the changes of the first or the second load, in order."""
    flights = flights.append_column(SCHEMA.field("date"), _dates(flights))
    for day in _days(flights):
        date = day["date"][0].as_py()
        if (date <= FIRST_LOAD_ENDS) if first else (date > FIRST_LOAD_ENDS):
            yield _rows(day, "scheduled")
            yield _rows(day.filter(day["dep_time"].is_valid()), "departed", "dep_delay")
        if (date < FIRST_LOAD_ENDS) if first else (date >= FIRST_LOAD_ENDS):
            yield _rows(day.filter(day["arr_time"].is_valid()), "arrived", "dep_delay", "arr_delay")
            cancelled = day.filter(day["dep_time"].is_null())
            yield _rows(cancelled, "cancelled")
            yield Change(cancelled.select(KEY), deletes=True)


def _dates(flights: pa.Table) -> pa.Array:
    texts = pc.binary_join_element_wise(
        *(pc.cast(flights[part], pa.string()) for part in ("year", "month", "day")), "-"
    )
    instants = pc.strptime(texts, format="%Y-%m-%d", unit="s")
    return pc.cast(instants, pa.date32())


def _days(flights: pa.Table) -> Iterator[pa.Table]:
    """Yields the flights of each day, in the order of the days."""
    ordered = flights.sort_by("date")
    counts = ordered["date"].combine_chunks().value_counts()
    start = 0
    for rows in counts.field("counts").to_pylist():
        yield ordered.slice(start, rows)
        start += rows


def _rows(flights: pa.Table, status: str, *known: str) -> Change:
    """Returns the flights' rows with a status. Unknown columns are null."""
    columns: dict[str, Any] = {
        **{name: flights[name] for name in (*KEY, "dest", *known)},
        "status": pa.array([status] * flights.num_rows, pa.string()),
    }
    for field in SCHEMA:
        columns.setdefault(field.name, pa.nulls(flights.num_rows, field.type))
    return Change(pa.table([columns[name] for name in SCHEMA.names], schema=SCHEMA))


def replay(flights: pa.Table, *, first: bool) -> pa.Table:
    """Computes the rows of the table after the first load, or after both."""
    names = ("year", "month", "day", "carrier", "flight", "origin", "dest")
    times = ("dep_time", "arr_time", "dep_delay", "arr_delay")
    found: list[Sequence[Any]] = []
    for row in flights.select([*names, *times]).to_pylist():
        year, month, day, carrier, flight, origin, dest = (row[name] for name in names)
        date = datetime.date(year, month, day)
        key = (date, carrier, flight, origin, dest)
        if first and date > FIRST_LOAD_ENDS:
            continue
        over = not first or date < FIRST_LOAD_ENDS
        if row["dep_time"] is None:
            if not over:
                found.append((*key, "scheduled", None, None))
        elif row["arr_time"] is not None and over:
            found.append((*key, "arrived", row["dep_delay"], row["arr_delay"]))
        else:
            found.append((*key, "departed", row["dep_delay"], None))
    columns = list(zip(*found, strict=True))
    arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
    return pa.table(arrays, schema=SCHEMA)
