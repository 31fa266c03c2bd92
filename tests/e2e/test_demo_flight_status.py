"""The demo's table with a primary key: its changes, and the replay that it is compared to."""

from __future__ import annotations

import datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from demo import flight_status
from demo.comparison.compare import differences, facts_of, with_joined_rows
from demo.data import read_sources

FLIGHTS = read_sources()[0].rows
LAST_DAYS = FLIGHTS.filter(pc.and_(pc.equal(FLIGHTS["month"], 10), pc.greater(FLIGHTS["day"], 29)))
FIRST_DAYS = FLIGHTS.filter(pc.and_(pc.equal(FLIGHTS["month"], 11), pc.less(FLIGHTS["day"], 3)))
AROUND = pa.concat_tables([LAST_DAYS, FIRST_DAYS])
"""The flights of four days, the second of which is in both loads."""

Rows = dict[tuple[Any, ...], dict[str, Any]]


def apply(rows: Rows, change: flight_status.Change) -> None:
    for row in change.rows.to_pylist():
        key = tuple(row[name] for name in flight_status.KEY)
        if change.deletes:
            rows.pop(key, None)
        else:
            rows[key] = row


def test_the_changes_lead_to_what_the_replay_says() -> None:
    rows: Rows = {}
    for first in (True, False):
        for change in flight_status.changes(AROUND, first=first):
            apply(rows, change)
        expected = flight_status.replay(AROUND, first=first).to_pylist()
        assert sorted(rows.values(), key=repr) == sorted(expected, key=repr)


def test_the_second_load_changes_and_deletes_what_the_first_one_put() -> None:
    earlier = flight_status.replay(AROUND, first=True)
    ended = flight_status.FIRST_LOAD_ENDS
    assert ended == datetime.date(2013, 10, 31)
    statuses = set(
        earlier.filter(pc.equal(earlier["date"], pa.scalar(ended)))["status"].to_pylist()
    )
    assert statuses == {"scheduled", "departed"}
    later = flight_status.replay(AROUND, first=False)
    assert set(later["status"].to_pylist()) == {"departed", "arrived"}
    assert later.num_rows < AROUND.num_rows, "cancelled flights are deleted"


@pytest.mark.parametrize("column", ["status", "dest", "arr_delay", "date"])
def test_values_that_change_places_are_found(column: str) -> None:
    """Sums of each column would not see it: the text of whole rows does."""
    rows = flight_status.replay(AROUND, first=False)
    values = rows[column].combine_chunks()
    other = next(i for i in range(1, len(values)) if values[i] != values[0])
    order = list(range(len(values)))
    order[0], order[other] = other, 0
    index = rows.schema.get_field_index(column)
    swapped = rows.set_column(index, rows.schema.field(index), values.take(pa.array(order)))
    found = differences("t", facts_of(with_joined_rows(rows)), facts_of(with_joined_rows(swapped)))
    assert [(d.where, d.measure) for d in found if d.measure == "sum"] == [("column whole", "sum")]
