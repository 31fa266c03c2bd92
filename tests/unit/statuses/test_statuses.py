"""The rules of docs/fluss/tiering.md#states and docs/fluss/tiering.md#heartbeat, one by one."""

from __future__ import annotations

import pytest

from sluice.errors import (
    FencedTieringEpoch,
    InvalidCoordinator,
    TableNotExist,
    UnknownServerError,
)
from sluice.model import TablePath, TieringRound
from sluice.statuses import BACKOFF_MS, ERROR_CHARS_MAX, State, TableStatus, TieringStatuses

EPOCH = 7
FRESHNESS = 1_000
TIMEOUT = 120_000


def new_table(table_id: int, epoch: int = 0, freshness: int = FRESHNESS) -> TableStatus:
    return TableStatus(table_id, TablePath("db", f"t{table_id}"), freshness, 0, epoch)


@pytest.fixture
def statuses() -> TieringStatuses:
    return TieringStatuses(EPOCH, TIMEOUT)


def claimed(statuses: TieringStatuses, table_id: int = 1, now: int = 0) -> TableStatus:
    statuses.enable(new_table(table_id), now)
    statuses.advance(now, now)
    status = statuses.claim(now, now)
    assert status is not None
    return status


def reclaimed(statuses: TieringStatuses, now: int) -> TableStatus:
    """The table that waits, handed out once it may be."""
    statuses.advance(now, now)
    status = statuses.claim(now, now)
    assert status is not None
    return status


def state(statuses: TieringStatuses, table_id: int = 1) -> State | None:
    status = statuses.get(table_id)
    assert status is not None
    return status.state


def test_a_new_table_is_due_at_once(statuses: TieringStatuses) -> None:
    statuses.enable(new_table(1, freshness=86_400_000), 500)
    assert state(statuses) is State.SCHEDULED
    assert statuses.has_due(500, 500)
    statuses.advance(500, 500)
    assert state(statuses) is State.PENDING
    status = statuses.claim(500, 500)
    assert status is not None
    assert (status.state, status.tiering_epoch) == (State.TIERING, 1)
    statuses.finished(1, EPOCH, 1, 800)
    assert not statuses.has_due(86_400_799, 86_400_799), "from then on its freshness counts"
    assert statuses.has_due(86_400_800, 86_400_800)


def test_a_new_table_of_fluss_waits_for_its_freshness(statuses: TieringStatuses) -> None:
    statuses.enable(new_table(1), 500, at_once=False)
    assert not statuses.has_due(1_499, 1_499)
    statuses.advance(1_499, 1_499)
    assert state(statuses) is State.SCHEDULED
    assert statuses.claim(1_499, 1_499) is None
    assert statuses.has_due(1_500, 1_500)
    statuses.advance(1_500, 1_500)
    assert state(statuses) is State.PENDING


def test_a_new_table_that_nobody_has_tiered_is_due_after_a_restart_too() -> None:
    old = TieringStatuses(EPOCH, TIMEOUT)
    old.enable(new_table(1, freshness=86_400_000), 500)
    old.advance(500, 500)
    stored = old.get(1)
    assert stored is not None
    statuses = TieringStatuses(EPOCH + 1, TIMEOUT)
    statuses.restore(stored)
    statuses.advance(600, 600)
    assert state(statuses) is State.PENDING


def test_a_restored_table_keeps_its_time_and_epoch(statuses: TieringStatuses) -> None:
    statuses.restore(TableStatus(1, TablePath("db", "t1"), 1_000, 5_000, 41, last_tiered_ms=5_000))
    statuses.advance(5_999, 5_999)
    assert state(statuses) is State.SCHEDULED
    statuses.advance(6_000, 6_000)
    status = statuses.claim(6_000, 6_000)
    assert status is not None
    assert (status.tiering_epoch, status.last_tiered_ms) == (42, 5_000)


def test_the_longest_overdue_is_handed_out_first(statuses: TieringStatuses) -> None:
    for table_id, at in ((1, 300), (2, 100), (3, 200)):
        statuses.enable(new_table(table_id), at)
    statuses.advance(10_000, 10_000)
    assert statuses.pending == [2, 3, 1]


def test_a_claim_may_name_the_tables_it_wants(statuses: TieringStatuses) -> None:
    for table_id in (1, 2):
        statuses.enable(new_table(table_id), table_id)
    statuses.advance(10_000, 10_000)
    assert statuses.claim(10_000, 10_000, {TablePath("db", "other")}) is None
    status = statuses.claim(10_000, 10_000, {TablePath("db", "t2")})
    assert status is not None
    assert status.table_id == 2
    assert statuses.pending == [1]


def test_finished_schedules_and_clears_the_error(statuses: TieringStatuses) -> None:
    status = claimed(statuses)
    assert statuses.failed(1, EPOCH, status.tiering_epoch, 1_500, "disk full")
    failed = statuses.get(1)
    assert failed is not None
    assert (failed.state, failed.last_error, failed.last_error_ms) == (
        State.FAILED,
        "disk full",
        1_500,
    )
    again = reclaimed(statuses, 1_500 + BACKOFF_MS)
    assert again is not None
    assert again.tiering_epoch == status.tiering_epoch + 1
    ended = 2_000 + BACKOFF_MS
    assert statuses.finished(1, EPOCH, again.tiering_epoch, ended, file_size=10, record_count=3)
    done = statuses.get(1)
    assert done is not None
    assert done.state is State.SCHEDULED
    assert (done.last_tiered_ms, done.last_error, done.last_error_ms) == (ended, None, None)
    assert (done.failures, done.last_round_ms) == (0, 500)
    assert (done.file_size, done.record_count) == (10, 3)
    assert not statuses.has_due(ended + FRESHNESS - 1, ended + FRESHNESS - 1)
    assert statuses.has_due(ended + FRESHNESS, ended + FRESHNESS)


def test_forced_finish_is_pending_at_once(statuses: TieringStatuses) -> None:
    status = claimed(statuses)
    assert statuses.finished(1, EPOCH, status.tiering_epoch, 1_500, forced=True)
    assert state(statuses) is State.PENDING
    again = statuses.claim(1_500, 1_500)
    assert again is not None
    assert again.tiering_epoch == status.tiering_epoch + 1


def test_late_repeats_while_scheduled_change_nothing(statuses: TieringStatuses) -> None:
    status = claimed(statuses)
    assert statuses.finished(1, EPOCH, status.tiering_epoch, 1_500)
    before = statuses.get(1)
    assert not statuses.finished(1, EPOCH, status.tiering_epoch, 9_000)
    assert not statuses.failed(1, EPOCH, status.tiering_epoch, 9_000, "late")
    assert statuses.get(1) == before
    with pytest.raises(UnknownServerError, match=r"db\.t1.*in Scheduled state, not Tiering"):
        statuses.heartbeat(1, EPOCH, status.tiering_epoch, 9_000)


def test_a_forced_finish_after_the_end_makes_the_table_due(statuses: TieringStatuses) -> None:
    """As in Fluss: so a table is asked for before its freshness is over."""
    status = claimed(statuses)
    statuses.finished(1, EPOCH, status.tiering_epoch, 1_500)
    rounds = list(statuses.ended)
    assert statuses.finished(1, EPOCH, status.tiering_epoch, 1_600, forced=True)
    done = statuses.get(1)
    assert done is not None
    assert (done.state, done.last_tiered_ms, done.tiering_epoch) == (State.PENDING, 1_500, 2)
    assert statuses.ended == rounds, "no round has ended by that"
    with pytest.raises(FencedTieringEpoch):  # the same again
        statuses.finished(1, EPOCH, status.tiering_epoch, 1_600, forced=True)
    assert not statuses.finished(1, EPOCH, 2, 1_600, forced=True), "it waits already"
    assert statuses.claim(1_700, 1_700) is not None


def test_a_silent_worker_is_fenced(statuses: TieringStatuses) -> None:
    status = claimed(statuses)
    statuses.heartbeat(1, EPOCH, status.tiering_epoch, 5_000)
    assert statuses.advance(5_000 + TIMEOUT - 1, 5_000 + TIMEOUT - 1) == []
    assert state(statuses) is State.TIERING
    assert [lost.table_id for lost in statuses.advance(5_000 + TIMEOUT, 5_000 + TIMEOUT)] == [1]
    failed = statuses.get(1)
    assert failed is not None
    assert (failed.state, failed.failures) == (State.FAILED, 1)
    assert failed.last_error is not None
    assert "no heartbeat for 120 s" in failed.last_error
    with pytest.raises(FencedTieringEpoch, match="epoch 1 has failed and ended"):
        statuses.heartbeat(1, EPOCH, status.tiering_epoch, 130_000)
    statuses.advance(200_000, 200_000)
    with pytest.raises(FencedTieringEpoch, match="tiering epoch 1 is not the current epoch 2"):
        statuses.heartbeat(1, EPOCH, status.tiering_epoch, 200_000)


def test_checks_come_in_fluss_order(statuses: TieringStatuses) -> None:
    status = claimed(statuses)
    with pytest.raises(InvalidCoordinator):
        statuses.check(99, EPOCH - 1, 99)
    with pytest.raises(TableNotExist):
        statuses.check(99, EPOCH, 99)
    with pytest.raises(FencedTieringEpoch):
        statuses.check(1, EPOCH, status.tiering_epoch + 1)
    assert statuses.check(1, EPOCH, status.tiering_epoch).table_id == 1


def test_a_forgotten_table_is_neither_known_nor_handed_out(statuses: TieringStatuses) -> None:
    statuses.enable(new_table(1), 0)
    statuses.advance(FRESHNESS, FRESHNESS)
    statuses.forget(1)
    assert statuses.claim(FRESHNESS, FRESHNESS) is None
    assert statuses.all() == []


def test_the_epoch_survives_disable_and_enable(statuses: TieringStatuses) -> None:
    status = claimed(statuses)
    statuses.forget(1)
    statuses.enable(new_table(1, epoch=status.tiering_epoch), 50_000)
    with pytest.raises(UnknownServerError):
        statuses.heartbeat(1, EPOCH, status.tiering_epoch, 50_000)
    statuses.advance(50_000, 50_000)
    again = statuses.claim(50_000, 50_000)
    assert again is not None
    assert again.tiering_epoch == status.tiering_epoch + 1


def test_freshness_moves_the_timer(statuses: TieringStatuses) -> None:
    status = claimed(statuses)
    statuses.finished(1, EPOCH, status.tiering_epoch, 0)
    statuses.set_freshness(1, 5_000)
    assert not statuses.has_due(4_999, 4_999)
    statuses.set_freshness(1, 10)
    assert statuses.has_due(10, 10)


def test_a_long_reason_is_cut(statuses: TieringStatuses) -> None:
    status = claimed(statuses)
    statuses.failed(1, EPOCH, status.tiering_epoch, 1, "x" * 10_000)
    failed = statuses.get(1)
    assert failed is not None
    assert failed.last_error == "x" * ERROR_CHARS_MAX


def test_a_draft_leaves_the_original_alone(statuses: TieringStatuses) -> None:
    status = claimed(statuses)
    draft = statuses.copy()
    draft.failed(1, EPOCH, status.tiering_epoch, 5, "no")
    assert draft.changed == {1}
    assert state(statuses) is State.TIERING
    assert statuses.pending == []


def test_what_users_accepted_is_listed_once(statuses: TieringStatuses) -> None:
    """A round after a repair reports it again, also one that fails after its commit."""
    details = TieringRound(accepted="bucket 0: offsets 3 to 4")
    first = claimed(statuses)
    assert statuses.failed(1, EPOCH, first.tiering_epoch, 1_500, "no", details)
    status = statuses.get(1)
    assert status is not None
    assert status.accepted == "bucket 0: offsets 3 to 4"
    second = reclaimed(statuses, 100_000)
    assert statuses.finished(1, EPOCH, second.tiering_epoch, 101_000, details=details)
    status = statuses.get(1)
    assert status is not None
    assert status.accepted == "bucket 0: offsets 3 to 4"
    assert [ended.accepted for ended in statuses.ended] == ["bucket 0: offsets 3 to 4", None]


def test_a_long_list_of_what_users_accepted_does_not_change_each_round(
    statuses: TieringStatuses,
) -> None:
    """The oldest ranges are left out, and no range is cut."""
    ranges = [f"bucket {n}: offsets 3 to 4 were no longer in the log" for n in range(200)]
    repairs = ["; ".join(ranges[n : n + 20]) for n in range(0, 200, 20)]
    status, texts = claimed(statuses), []
    for number, text in enumerate([*repairs, repairs[-1], repairs[-1]]):
        details = TieringRound(accepted=text)
        now_ms = 10_000 * number
        assert statuses.finished(1, EPOCH, status.tiering_epoch, now_ms, details=details)
        ended = statuses.get(1)
        assert ended is not None
        assert ended.accepted is not None
        assert len(ended.accepted) <= ERROR_CHARS_MAX
        texts.append(ended.accepted)
        status = reclaimed(statuses, now_ms + 5_000)
    *named, more = texts[-1].split("; ")
    assert set(named) < set(ranges)
    assert named[:20] == ranges[-20:]
    assert more == f"and {200 - len(named)} more"
    assert texts[-3] == texts[-2] == texts[-1]
    assert [ended.accepted for ended in statuses.ended] == [*repairs, None, None]


def test_the_accepted_ranges_of_any_worker_are_limited(statuses: TieringStatuses) -> None:
    details = TieringRound(accepted="; ".join(f"bucket {n}: offset 1" for n in range(1_000)))
    for now_ms in (1_500, 101_000):
        status = claimed(statuses) if now_ms == 1_500 else reclaimed(statuses, 100_000)
        assert statuses.finished(1, EPOCH, status.tiering_epoch, now_ms, details=details)
    first, second = [ended.accepted for ended in statuses.ended]
    assert first is not None
    assert len(first) < ERROR_CHARS_MAX
    assert second is None
    *named, more = first.split("; ")
    assert more == f"and {1_000 - len(named)} more"
    kept = statuses.get(1)
    assert kept is not None
    assert kept.accepted == first
