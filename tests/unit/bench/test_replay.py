"""The replay of a benchmark has the row that was written last under each key."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from bench import data
from bench.lake.replay import Appended, Replay

KEYS = 700
ROUNDS, CHANGED = 3, 90
Replayed = tuple[Replay, dict[int, tuple], list[set[int]]]


@pytest.fixture(scope="module")
def replayed() -> Replayed:
    """A replay after rounds of changes, what the written rows say, and the keys of each round."""
    replay = Replay(KEYS)
    written = _by_key(data.batches(KEYS))
    drawn, times = [], {row[-1] for row in written.values()}
    for number in range(ROUNDS):
        changes = _by_key(replay.change(CHANGED, number))
        assert len(changes) == CHANGED, "a key is changed once in a round"
        new = {row[-1] for row in changes.values()}
        assert new.isdisjoint(times), "each change has a row of its own"
        times |= new
        written |= changes
        drawn.append(set(changes))
    return replay, written, drawn


def test_totals_are_those_of_the_written_rows(replayed: Replayed) -> None:
    replay, written, _ = replayed
    cents = sum(_cents(row) for row in written.values())
    assert replay.totals() == [KEYS, sum(written), cents]


def test_an_amount_is_that_of_the_last_change(replayed: Replayed) -> None:
    replay, written, drawn = replayed
    twice = next(iter(drawn[0] & drawn[1]))
    for key in (twice, 0, KEYS - 1):
        assert replay.amount(key) == _cents(written[key])


def test_the_complete_table_has_the_written_rows(replayed: Replayed) -> None:
    replay, written, _ = replayed
    assert _by_key(replay.batches()) == written


def test_keys_are_drawn_from_all(replayed: Replayed) -> None:
    _, _, drawn = replayed
    assert drawn[0] != drawn[1]
    assert max(map(max, drawn)) > 0.9 * KEYS
    assert min(map(min, drawn)) < 0.1 * KEYS


def test_rows_after_the_distinct_ones_repeat(monkeypatch: pytest.MonkeyPatch) -> None:
    """As those of ``bench.data.batches`` do, which a table of many keys begins with."""
    keys = data.BATCH_ROWS * 10 + 5
    replay = Replay(keys)
    whole = pa.Table.from_batches(data.batches(keys))
    assert pa.Table.from_batches(replay.batches()).equals(whole)
    amounts = pc.sum(whole["amount"]).as_py()
    assert replay.totals() == [keys, keys * (keys - 1) // 2, int(amounts.scaleb(2))]


def test_appended_rows_go_on_where_the_last_ones_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also after the distinct ones, which a table of many rows repeats."""
    monkeypatch.setattr(data, "BATCH_ROWS", 30)
    whole = pa.Table.from_batches(data.batches(700))
    log = Appended(700)
    parts = [log.append(count) for count in (100, 250, 350)]
    assert pa.concat_tables(parts).equals(whole)
    assert log.table().equals(whole)
    cents = [int(amount.scaleb(2)) for amount in whole["amount"].to_pylist()]
    assert log.totals() == [700, sum(range(700)), sum(cents)]
    assert [log.amount(key) for key in (0, 299, 300, 699)] == [
        cents[key] for key in (0, 299, 300, 699)
    ]


def _by_key(batches: Iterable[pa.RecordBatch]) -> dict[int, tuple]:
    rows = [tuple(row.values()) for batch in batches for row in batch.to_pylist()]
    found = {row[0]: row[1:] for row in rows}
    assert len(found) == len(rows)
    return found


def _cents(row: tuple) -> int:
    amount = row[data.ARROW_SCHEMA.names.index("amount") - 1]
    assert isinstance(amount, Decimal)
    return int(amount.scaleb(2))
