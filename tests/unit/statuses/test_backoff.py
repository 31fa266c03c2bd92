"""Failing tables wait longer and longer, and keep nobody from being tiered; claims given back."""

from __future__ import annotations

from collections import Counter

import pytest

from sluice.errors import FencedTieringEpoch, InvalidCoordinator
from sluice.model import TablePath
from sluice.statuses import State, TableStatus, TieringStatuses

EPOCH = 7
TIMEOUT = 120_000
MINUTE = 60_000


def of(statuses: TieringStatuses, table_id: int = 1) -> TableStatus:
    status = statuses.get(table_id)
    assert status is not None
    return status


def make(tables: int = 1, freshness: int = 1_000, backoff_ms: int = 10_000) -> TieringStatuses:
    statuses = TieringStatuses(EPOCH, TIMEOUT, backoff_ms)
    for table_id in range(1, tables + 1):
        path = TablePath("db", f"t{table_id}")
        statuses.enable(TableStatus(table_id, path, freshness, 0), 0)
    return statuses


def fail(statuses: TieringStatuses, now: int) -> None:
    statuses.advance(now, now)
    status = statuses.claim(now, now)
    assert status is not None
    assert statuses.failed(status.table_id, EPOCH, status.tiering_epoch, now, "broken")


@pytest.mark.parametrize(
    ("freshness", "waits_s"),
    [
        (1_000, [10, 20, 40, 80, 160, 300, 300]),
        (20 * MINUTE, [10, 20, 40, 80, 160, 320, 640, 1200, 1200]),
    ],
)
def test_each_failure_doubles_the_wait_up_to_the_freshness(
    freshness: int, waits_s: list[int]
) -> None:
    statuses, now = make(freshness=freshness), freshness
    for failures, wait_s in enumerate(waits_s, 1):
        fail(statuses, now)
        assert (of(statuses).state, of(statuses).failures) == (State.FAILED, failures)
        assert of(statuses).due_ms == now + wait_s * 1000
        statuses.advance(now + wait_s * 1000 - 1, now + wait_s * 1000 - 1)
        assert statuses.claim(now, now) is None
        now += wait_s * 1000


def test_a_hundred_failures_later_the_wait_is_still_the_longest() -> None:
    statuses, now = make(), 1_000
    for _ in range(100):
        fail(statuses, now)
        now = of(statuses).due_ms
    assert of(statuses).failures == 100
    fail(statuses, now)
    assert of(statuses).due_ms == now + 5 * MINUTE


def test_a_success_ends_the_waiting() -> None:
    statuses = make()
    fail(statuses, 1_000)
    fail(statuses, 11_000)
    statuses.advance(31_000, 31_000)
    status = statuses.claim(31_000, 31_000)
    assert status is not None
    statuses.finished(1, EPOCH, status.tiering_epoch, 32_000)
    assert (of(statuses).failures, of(statuses).due_ms) == (0, 33_000)
    fail(statuses, 33_000)
    assert of(statuses).due_ms == 43_000


def test_without_back_off_a_failed_table_is_pending_at_once_as_in_fluss() -> None:
    statuses = make(backoff_ms=0)
    fail(statuses, 1_000)
    assert (of(statuses).state, of(statuses).failures) == (State.PENDING, 1)
    assert statuses.claim(1_000, 1_000) is not None


def test_the_round_of_a_failed_table_is_over_before_its_epoch_rises() -> None:
    statuses = make()
    fail(statuses, 1_000)
    before = of(statuses)
    for call in (statuses.heartbeat, statuses.failed, statuses.finished):
        with pytest.raises(FencedTieringEpoch, match="has failed and ended"):
            call(1, EPOCH, before.tiering_epoch, 2_000)
    with pytest.raises(FencedTieringEpoch):
        statuses.release(1, EPOCH, before.tiering_epoch)
    assert of(statuses) == before


def test_a_failing_table_waits_on_after_a_restart() -> None:
    old = make()
    fail(old, 1_000)
    fail(old, 11_000)
    statuses = TieringStatuses(EPOCH + 1, TIMEOUT)
    statuses.restore(of(old))
    assert (of(statuses).state, of(statuses).failures) == (State.FAILED, 2)
    assert (of(statuses).last_error, of(statuses).last_error_ms) == ("broken", 11_000)
    statuses.advance(30_999, 30_999)
    assert of(statuses).state is State.FAILED
    statuses.advance(31_000, 31_000)
    status = statuses.claim(31_000, 31_000)
    assert status is not None
    assert status.tiering_epoch == of(old).tiering_epoch + 1


def test_a_broken_table_does_not_starve_the_others() -> None:
    """One worker, an hour: rounds of 4 s; the broken one fails at once, the others are tiered."""
    statuses = make(tables=5, freshness=30_000)
    rounds: Counter[int] = Counter()
    now = 0
    while now < 60 * MINUTE:
        statuses.advance(now, now)
        status = statuses.claim(now, now)
        if status is None:
            now += 1_000
            continue
        rounds[status.table_id] += 1
        if status.table_id == 1:
            statuses.failed(1, EPOCH, status.tiering_epoch, now, "broken")
        else:
            now += 4_000
            statuses.finished(status.table_id, EPOCH, status.tiering_epoch, now)
    # 30 s of freshness, 4 s of work, and at most three others in between: some 46 s a round.
    # The first one waits for nothing.
    assert all(
        60 * MINUTE // 47_000 <= rounds[table] - 1 <= 60 * MINUTE // 34_000 for table in range(2, 6)
    )
    # 10, 20, 40, 80, 160 s, then every five minutes
    assert rounds[1] == 16


def test_without_back_off_the_broken_table_would_be_tried_all_the_time() -> None:
    statuses = make(tables=2, freshness=30_000, backoff_ms=0)
    rounds: Counter[int] = Counter()
    statuses.advance(30_000, 30_000)
    for now in range(30_000, 60_000, 100):
        statuses.advance(now, now)
        status = statuses.claim(now, now)
        assert status is not None
        rounds[status.table_id] += 1
        report = statuses.failed if status.table_id == 1 else statuses.finished
        report(status.table_id, EPOCH, status.tiering_epoch, now)
    assert rounds == {1: 299, 2: 1}


def test_a_claim_given_back_is_no_failure() -> None:
    statuses = make()
    statuses.advance(1_000, 1_000)
    status = statuses.claim(1_000, 1_000)
    assert status is not None
    assert statuses.release(1, EPOCH, status.tiering_epoch)
    waiting = of(statuses)
    assert (waiting.state, waiting.failures, waiting.last_error) == (State.PENDING, 0, None)
    assert waiting.tiering_epoch == status.tiering_epoch + 1
    with pytest.raises(FencedTieringEpoch):
        statuses.heartbeat(1, EPOCH, status.tiering_epoch, 1_000)
    with pytest.raises(InvalidCoordinator):
        statuses.release(1, EPOCH - 1, waiting.tiering_epoch)
    assert not statuses.release(1, EPOCH, waiting.tiering_epoch)  # nobody has it


def test_who_gives_back_waits_behind_the_others() -> None:
    statuses = make(tables=3)
    statuses.advance(1_000, 1_000)
    assert statuses.pending == [1, 2, 3]
    status = statuses.claim(1_000, 1_000)
    assert status is not None
    statuses.release(status.table_id, EPOCH, status.tiering_epoch)
    assert statuses.pending == [2, 3, 1]


def test_a_paused_table_is_handed_out_to_nobody() -> None:
    statuses = make(tables=2)
    statuses.pause(1, True)
    statuses.advance(1_000, 1_000)
    assert [s.table_id for s in iter(lambda: statuses.claim(1_000, 1_000), None)] == [2]
    assert (of(statuses).state, of(statuses).paused) == (State.PENDING, True)
    assert statuses.claim(1_000, 1_000, {of(statuses).path}) is None
    statuses.pause(1, False)
    status = statuses.claim(1_000, 1_000)
    assert status is not None
    statuses.pause(1, True)  # the round under way goes on
    statuses.heartbeat(1, EPOCH, status.tiering_epoch, 2_000)
    assert statuses.finished(1, EPOCH, status.tiering_epoch, 2_000)


def test_a_pause_is_stored_once() -> None:
    statuses = make()
    statuses.changed.clear()
    statuses.pause(1, False)
    assert statuses.changed == set()
    statuses.pause(1, True)
    assert statuses.changed == {1}


def test_a_retry_forgets_the_failures_and_waits_no_more() -> None:
    statuses = make()
    fail(statuses, 1_000)
    fail(statuses, 11_000)
    statuses.retry(1, 12_000)
    assert (of(statuses).failures, of(statuses).due_ms) == (0, 12_000)
    assert of(statuses).last_error == "broken"  # until it succeeds
    fail(statuses, 12_000)
    assert of(statuses).due_ms == 22_000


def test_a_retry_of_a_table_that_does_not_fail_changes_nothing() -> None:
    statuses = make()
    before = of(statuses)
    statuses.retry(1, 500)
    assert of(statuses) == before


def test_again_does_not_wait_for_the_freshness() -> None:
    statuses = make(freshness=10 * MINUTE)
    for now in (1_000, 6_000):
        statuses.request_round(1, now)
        statuses.advance(now, now)
        status = statuses.claim(now, now)
        assert status is not None
        statuses.finished(1, EPOCH, status.tiering_epoch, now)
        assert (of(statuses).state, of(statuses).due_ms) == (State.SCHEDULED, now + 10 * MINUTE)


def test_again_during_a_round_means_another_one_after_it() -> None:
    statuses = make()
    statuses.advance(1_000, 1_000)
    status = statuses.claim(1_000, 1_000)
    assert status is not None
    statuses.request_round(1, 1_000)
    statuses.finished(1, EPOCH, status.tiering_epoch, 1_500)
    assert of(statuses).state is State.PENDING
    status = statuses.claim(1_500, 1_500)
    assert status is not None
    statuses.finished(1, EPOCH, status.tiering_epoch, 2_000)
    assert of(statuses).state is State.SCHEDULED


def test_a_request_is_told_until_its_round_begins_and_kept_until_it_ends() -> None:
    statuses = make(freshness=10 * MINUTE)
    claimed_at(statuses, 500)
    statuses.finished(1, EPOCH, of(statuses).tiering_epoch, 600)
    assert of(statuses).requested_next_ms is None
    for now in (1_000, 1_100):  # asked twice
        statuses.request_round(1, now)
        statuses.advance(now, now)
        assert (of(statuses).state, of(statuses).requested_next_ms) == (State.PENDING, 1_000)
    status = claimed_at(statuses, 1_200)
    assert status.requested_next_ms is None
    statuses.release(1, EPOCH, status.tiering_epoch)
    assert of(statuses).requested_next_ms == 1_000
    status = claimed_at(statuses, 1_300)
    statuses.request_round(1, 1_300)  # another one, after this
    assert of(statuses).requested_next_ms == 1_301
    statuses.finished(1, EPOCH, status.tiering_epoch, 1_400)
    assert (of(statuses).state, of(statuses).requested_next_ms) == (State.PENDING, 1_301)
    status = claimed_at(statuses, 1_500)
    statuses.failed(1, EPOCH, status.tiering_epoch, 1_600)
    assert of(statuses).requested_ms is None
    statuses.retry(1, 1_700)
    statuses.retry(1, 1_800)
    assert of(statuses).requested_next_ms == 1_700
    stored = of(statuses)
    statuses.forget(1)
    statuses.enable(stored, 2_000)
    assert of(statuses).requested_ms is None


def claimed_at(statuses: TieringStatuses, now: int) -> TableStatus:
    statuses.advance(now, now)
    status = statuses.claim(now, now)
    assert status is not None
    return status
