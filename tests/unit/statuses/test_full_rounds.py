"""Which idle tables get a complete round."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sluice.model import (
    Column,
    KeptStatus,
    Schema,
    TableDescriptor,
    TableInfo,
    TablePath,
)
from sluice.model import types as t
from sluice.statuses.full_rounds import FULL_ROUND_MS, needs_full_round

NOW = 1_790_000_000_000
SCHEMA = Schema((Column("id", t.BIGINT, 0),), highest_field_id=0)
CREATED_MS = NOW - 10 * FULL_ROUND_MS


def info(table_id: int = 7, modified_ms: int = CREATED_MS) -> TableInfo:
    path, descriptor = TablePath("shop", "orders"), TableDescriptor(SCHEMA, bucket_count=1)
    return TableInfo(path, table_id, 1, descriptor, CREATED_MS, modified_ms)


def tiered(last_tiered_ms: int) -> KeptStatus:
    return KeptStatus(last_tiered_ms=last_tiered_ms, last_round_ms=1_000, rounds=3)


def begin_of_period(table_id: int) -> int:
    """The first millisecond of a period of this table, not long before NOW."""
    for ms in range(NOW - FULL_ROUND_MS, NOW, 1_000):
        if needs_full_round(tiered(ms - 1_000), info(table_id), ms):
            return ms
    raise AssertionError("no period begins within the length of one")


@pytest.mark.parametrize("table_id", [0, 7, 123_456])
def test_the_first_round_of_each_period_is_complete(table_id: int) -> None:
    begin, table = begin_of_period(table_id), info(table_id)
    for after in range(0, FULL_ROUND_MS - 1_000, FULL_ROUND_MS // 50):
        assert needs_full_round(tiered(begin - 2_000), table, begin + after)
        assert not needs_full_round(tiered(begin + after), table, begin + after)
        last = begin + FULL_ROUND_MS - 1_000
        assert not needs_full_round(tiered(begin + after), table, last - 1_000)
        assert needs_full_round(tiered(begin + after), table, last + 1_000)


def test_periods_of_tables_begin_at_different_times() -> None:
    """Else all idle tables would get a Spark application in the same run."""
    now = NOW - NOW % 60_000
    complete = [needs_full_round(tiered(now - 180_000), info(i), now) for i in range(1_000)]
    assert 1_000 * 180_000 // FULL_ROUND_MS == 8
    assert 4 <= sum(complete) <= 16


@pytest.mark.parametrize(
    "change",
    [
        {"failures": 1},
        {"last_error": "the driver was lost"},
        {"stopped": "a user stopped it"},
        {"last_tiered_ms": None},
    ],
)
def test_after_a_round_that_may_have_died_the_next_is_complete(change: dict[str, object]) -> None:
    begin = begin_of_period(7)
    healthy = tiered(begin)
    assert not needs_full_round(healthy, info(), begin + 5_000)
    assert needs_full_round(replace(healthy, **change), info(), begin + 5_000)  # type: ignore[arg-type]
    assert needs_full_round(None, info(), begin + 5_000)


def test_a_table_that_was_altered_since_its_last_claim_is_tiered() -> None:
    begin = begin_of_period(7)
    status = tiered(begin)
    assert not needs_full_round(status, info(modified_ms=begin - 1_001), begin + 5_000)
    assert needs_full_round(status, info(modified_ms=begin - 1_000), begin + 5_000)
    assert needs_full_round(status, info(modified_ms=begin + 1), begin + 5_000)


def test_a_clock_that_is_behind_asks_for_nothing() -> None:
    begin = begin_of_period(7)
    assert not needs_full_round(tiered(begin + 1_000), info(), begin - 1_000)


def test_a_requested_compaction_needs_a_round() -> None:
    begin = begin_of_period(7)
    status = tiered(begin + 1_000)
    assert not needs_full_round(status, info(), begin + 2_000)
    assert needs_full_round(replace(status, compaction_requested_ms=NOW), info(), begin + 2_000)
