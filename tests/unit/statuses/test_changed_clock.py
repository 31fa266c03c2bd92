"""A wall clock that is set forward or back: who is alive, and when tables are due."""

from __future__ import annotations

import pytest

from sluice.model import TablePath
from sluice.statuses import BACKOFF_MS, State, TableStatus, TieringStatuses

TWO_DAYS_MS = 2 * 86_400_000
FRESHNESS_MS = 60_000
TIMEOUT_MS = 120_000
NOW_MS = 10 * TWO_DAYS_MS
UP_MS = 5_000
"""Time by the monotonic clock, whose beginning has no meaning."""


def state(statuses: TieringStatuses) -> State | None:
    status = statuses.get(1)
    assert status is not None
    return status.state


def new_table(statuses: TieringStatuses) -> None:
    statuses.enable(TableStatus(1, TablePath("db", "t"), FRESHNESS_MS, 0), NOW_MS)
    statuses.advance(NOW_MS, UP_MS)


@pytest.fixture
def statuses() -> TieringStatuses:
    statuses = TieringStatuses(1, TIMEOUT_MS)
    new_table(statuses)
    assert statuses.claim(NOW_MS, UP_MS) is not None
    return statuses


@pytest.mark.parametrize("jump_ms", [-TWO_DAYS_MS, TWO_DAYS_MS])
def test_a_claim_lives_as_long_as_its_worker(statuses: TieringStatuses, jump_ms: int) -> None:
    now = NOW_MS + jump_ms
    assert statuses.advance(now, UP_MS + TIMEOUT_MS - 1) == []
    statuses.heartbeat(1, 1, 1, UP_MS + TIMEOUT_MS - 1)
    assert not statuses.has_due(now, UP_MS + 2 * TIMEOUT_MS - 2)
    (lost,) = statuses.advance(now, UP_MS + 2 * TIMEOUT_MS - 1)
    assert lost.table_id == 1
    status = statuses.get(1)
    assert status is not None
    assert "no heartbeat for 120 s" in str(status.last_error)


def test_a_table_waits_for_its_freshness_once_more_if_the_clock_went_back(
    statuses: TieringStatuses,
) -> None:
    statuses.finished(1, 1, 1, NOW_MS)
    now = NOW_MS - TWO_DAYS_MS
    assert statuses.has_due(now, UP_MS)
    statuses.advance(now, UP_MS)
    assert not statuses.has_due(now + FRESHNESS_MS - 1, UP_MS), "one change, not one a check"
    statuses.advance(now + FRESHNESS_MS, UP_MS)
    assert state(statuses) is State.PENDING


def test_a_failed_table_waits_no_longer_than_after_its_failure(statuses: TieringStatuses) -> None:
    statuses.failed(1, 1, 1, NOW_MS, "no space left")
    now = NOW_MS - TWO_DAYS_MS
    statuses.advance(now, UP_MS)
    assert state(statuses) is State.FAILED
    assert not statuses.has_due(now + BACKOFF_MS - 1, UP_MS)
    statuses.advance(now + BACKOFF_MS, UP_MS)
    assert state(statuses) is State.PENDING


def test_a_requested_round_does_not_wait_for_a_clock_that_went_back(
    statuses: TieringStatuses,
) -> None:
    statuses.finished(1, 1, 1, NOW_MS)
    statuses.request_round(1, NOW_MS)
    statuses.advance(NOW_MS - TWO_DAYS_MS, UP_MS)
    assert state(statuses) is State.PENDING


def test_a_clock_that_went_forward_costs_one_round(statuses: TieringStatuses) -> None:
    statuses.finished(1, 1, 1, NOW_MS)
    now = NOW_MS + TWO_DAYS_MS
    statuses.advance(now, UP_MS)
    claimed = statuses.claim(now, UP_MS)
    assert claimed is not None
    statuses.finished(1, 1, claimed.tiering_epoch, now)
    assert not statuses.has_due(now + FRESHNESS_MS - 1, UP_MS)


def test_a_stored_schedule_is_bounded_after_a_restart(statuses: TieringStatuses) -> None:
    statuses.finished(1, 1, 1, NOW_MS)
    stored = statuses.get(1)
    assert stored is not None
    again = TieringStatuses(2, TIMEOUT_MS)
    again.restore(stored)
    now = NOW_MS - TWO_DAYS_MS
    again.advance(now, 0)
    assert state(again) is State.SCHEDULED
    again.advance(now + FRESHNESS_MS, 0)
    assert state(again) is State.PENDING
