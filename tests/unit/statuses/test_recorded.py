"""What is written down of rounds, and the states that it comes to."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sluice.client.statuses.status_table import LAYOUT, dropped_rows
from sluice.model import Claim, TablePath, TieringRound, TieringStatus
from sluice.statuses import ERROR_CHARS_MAX, UNKNOWN, RecordedStatus, recorded

PATH = TablePath("shop", "orders")
CLAIM = Claim(7, PATH, 5, 3)
FRESHNESS_MS = 60_000
NOW = 1_790_000_000_000

longs = st.none() | st.integers(0, 2**53)
ints = st.none() | st.integers(0, 2**31 - 1)
times = st.none() | st.integers(0, 4_000_000_000_000)
texts = st.none() | st.text(max_size=50)
flags = st.none() | st.booleans()
rows = st.builds(
    RecordedStatus,
    table_id=st.integers(0, 2**62),
    **{
        field.name: {"BIGINT": longs, "INT": ints, "STRING": texts, "BOOLEAN": flags}
        .get(str(field.data_type), times)
        for field in LAYOUT.fields
        if field.name != "table_id"
    },
)  # fmt: skip


def after(*events: Any, row: RecordedStatus | None = None) -> RecordedStatus:
    """The row as partial updates leave it."""
    row = row or RecordedStatus(CLAIM.table_id)
    for event in events:
        row = replace(row, **(event(row) if callable(event) else event))
    return row


def seen(row: RecordedStatus | None, now_ms: int) -> TieringStatus:
    return recorded.status_of(PATH, CLAIM.table_id, FRESHNESS_MS, row, now_ms)


def failure(claim: Claim, at_ms: int, reason: str = "no") -> Any:
    return lambda row: recorded.failed(
        claim, row, at_ms, reason, freshness_ms=FRESHNESS_MS, backoff_ms=10_000
    )


def success(claim: Claim, at_ms: int, *, forced: bool = False) -> Any:
    return lambda row: recorded.finished(claim, row, at_ms, forced=forced)


@settings(max_examples=50, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(rows, max_size=3))
def test_rows_survive_arrow(found: list[RecordedStatus]) -> None:
    written = [asdict(row) for row in found]
    if written:
        assert LAYOUT.records_of(LAYOUT.columns_of(written)) == found


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(rows, st.integers(0, 4_000_000_000_000))
def test_every_row_has_a_status(row: RecordedStatus, now_ms: int) -> None:
    status = seen(row, now_ms)
    assert status.status in {"Scheduled", "Pending", "Tiering", "Failed", UNKNOWN}
    assert (status.note is not None) == (status.status == UNKNOWN)
    assert status.paused == bool(row.paused)
    if status.status in ("Tiering", UNKNOWN) or row.paused:
        assert status.next_attempt_ms is None
    if status.status == "Failed":
        assert status.is_failing
        assert recorded.skip_reason(row, now_ms) is not None


@given(
    st.lists(st.sampled_from(["claim", "finish", "fail", "release", "pause", "retry"]), max_size=12)
)
def test_any_course_of_events(events: list[str]) -> None:
    """Against a model that knows only what happened last."""
    row, now, epoch, failures, is_open, is_paused = RecordedStatus(7), NOW, 0, 0, False, False
    for event in events:
        now += 1_000
        claim = replace(CLAIM, tiering_epoch=epoch)
        if event == "claim" and not is_open:
            epoch, is_open = epoch + 1, True
            row = after(recorded.claimed(replace(CLAIM, tiering_epoch=epoch), now, "me"), row=row)
        elif event == "finish" and is_open:
            row, failures, is_open = after(success(claim, now), row=row), 0, False
        elif event == "fail" and is_open:
            row, failures, is_open = after(failure(claim, now), row=row), failures + 1, False
        elif event == "release" and is_open:
            row, is_open = after(recorded.released(claim, now), row=row), False
        elif event == "pause":
            is_paused = not is_paused
            row = after(recorded.paused(7, PATH, is_paused), row=row)
        elif event == "retry" and failures:
            row, failures = after(recorded.retried(7, PATH, now), row=row), 0
        status = seen(row, now)
        assert (status.failures, status.paused, status.tiering_epoch) == (
            failures,
            is_paused,
            epoch,
        )
        assert (status.status == "Tiering") == is_open
        assert (status.status == UNKNOWN) == (epoch == 0)
        assert (status.last_error is None) == (row.last_error_ms is None)


def test_a_late_end_of_an_older_round_does_not_end_a_newer_claim() -> None:
    newer = replace(CLAIM, tiering_epoch=6)
    row = after(
        recorded.claimed(CLAIM, NOW, "a"),
        recorded.claimed(newer, NOW + 1, "b"),
        success(CLAIM, NOW + 2),
    )
    status = seen(row, NOW + 3)
    assert (status.status, status.tiering_epoch) == ("Tiering", 6)
    assert (status.last_tiered_ms, status.last_round_ms) == (NOW + 2, None)
    status = seen(after(success(newer, NOW + 9), row=row), NOW + 9)
    assert (status.status, status.last_round_ms) == ("Scheduled", 8)


def test_epochs_that_begin_anew() -> None:
    """After tiering was off, and after the coordinator's start."""
    ended = after(recorded.claimed(CLAIM, NOW, "a"), success(CLAIM, NOW))
    for anew in (replace(CLAIM, tiering_epoch=1), Claim(7, PATH, 1, 4)):
        row = after(recorded.claimed(anew, NOW, "b"), row=ended)
        assert (seen(row, NOW).status, seen(row, NOW).tiering_epoch) == ("Tiering", 1)
        assert seen(after(success(anew, NOW), row=row), NOW).status == "Scheduled"


def test_an_end_whose_claim_was_not_written() -> None:
    row = after(recorded.claimed(CLAIM, NOW, "a"), failure(replace(CLAIM, tiering_epoch=9), NOW))
    status = seen(row, NOW)
    assert (status.status, status.tiering_epoch, status.failures) == ("Failed", 9, 1)


@pytest.mark.parametrize(("failures", "wait_s"), [(1, 10), (2, 20), (5, 160), (6, 300), (90, 300)])
def test_waits_grow_as_the_embedded_servers_do(failures: int, wait_s: int) -> None:
    row = after(failure(CLAIM, NOW), row=RecordedStatus(7, failures=failures - 1))
    assert row.next_attempt_ms == NOW + wait_s * 1000
    assert recorded.skip_reason(row, NOW) == (
        f"it has failed ({failures} in a row) and is tried again in {wait_s} s"
    )
    assert recorded.skip_reason(row, NOW + wait_s * 1000) is None


def test_reasons_are_cut() -> None:
    row = after(failure(CLAIM, NOW, "x" * 5000))
    assert row.last_error is not None
    assert len(row.last_error) == ERROR_CHARS_MAX


def test_rows_of_dropped_tables() -> None:
    def row(table_id: int, table: str | None, database: str = "shop") -> RecordedStatus:
        return RecordedStatus(table_id, database if table else None, table)

    there = {"shop": ["a", "b"], "gone": []}
    found = [row(1, "a"), row(2, "a"), row(3, "b"), row(4, "c"), row(5, "a", "gone"), row(6, None)]
    dropped = dropped_rows(found, lambda database: there[database])
    assert [r.table_id for r in dropped] == [1, 4, 5]


def round_requested(at_ms: int, forced: Claim | None) -> Any:
    return lambda row: recorded.round_requested(CLAIM.table_id, PATH, row, forced, at_ms)


def test_a_table_that_is_made_due_is_pending_until_its_next_claim() -> None:
    tiered = after(recorded.claimed(CLAIM, NOW, "me"), success(CLAIM, NOW + 5))
    due = after(round_requested(NOW + 10, CLAIM), row=tiered)
    status = seen(due, NOW + 20)
    assert (status.status, status.next_attempt_ms) == ("Pending", NOW + 10)
    assert (status.requested_ms, seen(tiered, NOW + 20).requested_ms) == (NOW + 10, None)
    assert (status.last_tiered_ms, status.failures) == (NOW + 5, 0)
    following = replace(CLAIM, tiering_epoch=6)
    assert seen(after(recorded.claimed(following, NOW + 30, "me"), row=due), NOW + 31).status == (
        "Tiering"
    )
    late = after(recorded.claimed(following, NOW + 8, "me"), row=tiered)
    late = after(recorded.round_requested(7, PATH, tiered, CLAIM, NOW + 10), row=late)
    assert seen(late, NOW + 20).status == "Tiering", "written after the claim that came of it"


def test_epochs_that_have_begun_anew_do_not_bring_an_ended_claim_back() -> None:
    """As on Fluss 0.9.1 after a restart of its coordinator, whose own epoch stays the same."""
    tiered = after(recorded.claimed(CLAIM, NOW, "me"), success(CLAIM, NOW + 5))
    due = after(round_requested(NOW + 10, replace(CLAIM, tiering_epoch=0)), row=tiered)
    assert (seen(due, NOW + 20).status, due.is_claimed) == ("Pending", False)
    following = recorded.claimed(replace(CLAIM, tiering_epoch=1), NOW + 30, "me")
    assert seen(after(following, row=due), NOW + 31).status == "Tiering"


def test_a_table_of_which_nothing_is_known_is_pending_too() -> None:
    due = after(round_requested(NOW, replace(CLAIM, tiering_epoch=0)))
    assert (seen(due, NOW + 1).status, seen(due, NOW + 1).tiering_epoch) == ("Pending", 0)
    assert after(round_requested(NOW, None)) == RecordedStatus(CLAIM.table_id), "it was due already"


def test_a_round_that_left_rows_for_the_next_one_is_no_request() -> None:
    running = after(recorded.claimed(CLAIM, NOW, "me"))
    ended = after(recorded.finished(CLAIM, running, NOW + 5, forced=True), row=running)
    status = seen(ended, NOW + 20)
    assert (status.status, status.requested_ms) == ("Pending", None)


def test_a_failed_table_that_is_made_due_waits_no_more_and_keeps_its_failures() -> None:
    failing = after(recorded.claimed(CLAIM, NOW, "me"), failure(CLAIM, NOW + 5))
    assert recorded.skip_reason(failing, NOW + 10) is not None
    due = after(round_requested(NOW + 10, None), row=failing)
    assert recorded.skip_reason(due, NOW + 10) is None
    status = seen(due, NOW + 10)
    assert (status.status, status.failures, status.last_error) == ("Pending", 1, "no")


def test_a_claim_without_an_end_stays_as_it_is() -> None:
    """The next claim says what became of it."""
    silent = after(recorded.claimed(CLAIM, NOW, "me"))
    assert recorded.round_requested(7, PATH, silent, CLAIM, NOW + 200_000) == {}
    assert recorded.claim_holder(silent, NOW + 119_999) == "me"
    assert recorded.claim_holder(silent, NOW + 120_000) is None
    assert recorded.claim_holder(after(success(CLAIM, NOW), row=silent), NOW) is None
    assert recorded.claim_holder(None, NOW) is None


def test_a_status_names_who_tiers_the_table_while_it_does() -> None:
    held = after(recorded.claimed(CLAIM, NOW, "me"))
    status = seen(held, NOW + 5)
    assert (status.status, status.claimed_by, status.claimed_ms) == ("Tiering", "me", NOW)
    lost = seen(held, NOW + 120_000)  # nobody knows whether it still does
    ended = seen(after(success(CLAIM, NOW), row=held), NOW)
    for each in (lost, ended):
        assert (each.claimed_by, each.claimed_ms) == (None, None)


def test_what_users_accepted_is_kept_the_newest_first() -> None:
    def repaired(claim: Claim, what: str | None) -> Any:
        details = TieringRound(outcome="committed", accepted=what)
        return lambda row: recorded.finished(claim, row, NOW, forced=False, details=details)

    later, last = replace(CLAIM, tiering_epoch=6), replace(CLAIM, tiering_epoch=7)
    row = after(repaired(CLAIM, "bucket 0: offsets 3 to 4"), repaired(later, "bucket 1: offset 7"))
    assert row.accepted == "bucket 1: offset 7; bucket 0: offsets 3 to 4"
    again = after(repaired(later, "bucket 1: offset 7"), repaired(last, None), row=row)
    assert seen(after(failure(last, NOW), row=again), NOW).accepted == row.accepted
    both = "bucket 0: offsets 3 to 4; bucket 2: offset 1"  # the first was reported before
    assert after(repaired(last, both), row=again).accepted == f"bucket 2: offset 1; {row.accepted}"


def test_a_round_that_failed_after_a_commit_reports_what_users_accepted() -> None:
    details = TieringRound(accepted="bucket 0: offsets 3 to 4")

    def failed(row: RecordedStatus | None) -> Any:
        return recorded.failed(CLAIM, row, NOW, "no", freshness_ms=0, backoff_ms=0, details=details)

    row = after(failed)
    assert row.accepted == "bucket 0: offsets 3 to 4"
    assert recorded.round_of(CLAIM, None, failed(None), details).accepted == row.accepted
    later = replace(CLAIM, tiering_epoch=6)
    again = recorded.finished(later, row, NOW, forced=False, details=details)
    assert recorded.round_of(later, row, again, details).accepted is None, "one round has it"
    assert recorded.round_of(CLAIM, row, failed(row), details).accepted == row.accepted, "repeated"
    long = replace(details, accepted="; ".join(f"bucket {n}: offset 1" for n in range(1_000)))
    kept = recorded.round_of(CLAIM, row, failed(row), long).accepted
    assert kept is not None
    assert len(kept) <= ERROR_CHARS_MAX


def test_a_clock_that_went_back_neither_stops_a_table_nor_keeps_a_worker() -> None:
    two_days_ms = 2 * 86_400_000
    failing = after(recorded.claimed(CLAIM, NOW, "me"), failure(CLAIM, NOW))
    assert recorded.skip_reason(failing, NOW - 1_000) is not None, "as between two machines"
    assert recorded.skip_reason(failing, NOW - two_days_ms) is None
    held = after(recorded.claimed(CLAIM, NOW, "me"))
    assert recorded.claim_holder(held, NOW - 1_000) == "me"
    assert recorded.claim_holder(held, NOW - two_days_ms) is None
