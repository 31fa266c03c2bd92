"""The account of a run: what became of each table that it was asked for."""

from __future__ import annotations

import pytest

from sluice.model import TablePath, TieringStatus
from sluice_airflow.outcomes.account import (
    FAILED,
    HELD,
    NOT_DUE,
    NOT_TIERED,
    NOTHING_NEW,
    PAUSED,
    TIERED,
    TableAccount,
    complete,
    error,
    lines,
    of_status,
    of_verdict,
    summary,
    tell,
    tell_attempts,
)
from sluice_airflow.outcomes.verdict import Verdict
from tests.docs.blocks import claimed_blocks

NOW_MS = 1_800_000_000_000  # 2027-01-15 08:00:00 UTC
ORDERS = TablePath("shop", "orders")


def status(state: str, **facts: object) -> TieringStatus:
    return TieringStatus(path=ORDERS, table_id=1, status=state, tiering_epoch=4, **facts)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("verdict", "became", "text"),
    [
        (
            Verdict("a.b", "finished", "committed", "committed", 1200, 77),
            TIERED,
            "1,200 rows, lake snapshot 77",
        ),
        (
            Verdict("a.b", "finished", "committed, forced: the limit of 60 s", "committed", 1, 77),
            TIERED,
            "1 row, lake snapshot 77; the round ended early: the limit of 60 s",
        ),
        (Verdict("a.b", "finished", "nothing_new", "nothing_new"), NOTHING_NEW, ""),
        (Verdict("a.b", "failed", "LakeNotWritable: denied"), FAILED, "LakeNotWritable: denied"),
        (Verdict("a.b", "released", "a user did it"), NOT_TIERED, "a user did it"),
        (Verdict("a.b", "nothing", "another round", "claim_lost"), "claim lost", "another round"),
    ],
)
def test_of_a_table_that_the_run_had(verdict: Verdict, became: str, text: str) -> None:
    found = of_verdict(verdict)
    assert (found["table"], found["became"], found["text"]) == ("a.b", became, text)


@pytest.mark.parametrize(
    ("now", "text"),
    [
        (
            status("Failed", next_attempt_ms=NOW_MS + 90_000),
            "denied; due again at 2027-01-15 08:01:30 UTC",
        ),
        (status("Pending", next_attempt_ms=NOW_MS), "denied; due again now"),
        (status("Pending", next_attempt_ms=NOW_MS, paused=True), "denied"),
        (status("Tiering", next_attempt_ms=NOW_MS), "denied"),
        (status("Failed"), "denied"),
    ],
)
def test_a_failed_table_has_the_time_of_its_next_attempt(now: TieringStatus, text: str) -> None:
    failed, tiered = tell(ORDERS, FAILED, "denied"), tell("shop.other", TIERED, "1 row")
    tell_attempts([failed, tiered], [now], NOW_MS)
    assert (failed["text"], tiered["text"]) == (text, "1 row")


def test_of_a_table_that_the_run_could_not_claim() -> None:
    due = "due at 2027-01-15 08:01:40 UTC"
    force = "the parameter `force` tiers it now"
    for found, became, text in (
        (status("Scheduled", paused=True), PAUSED, "`sluice resume shop.orders` resumes it"),
        (status("Tiering"), HELD, "another round tiers it (tiering epoch 4)"),
        (status("Tiering", claimed_by="host:7"), HELD, "<host:7> tiers it (tiering epoch 4)"),
        (
            status("Unknown", note="no round of Sluice is recorded"),
            NOT_DUE,
            "it is not due, or an unknown worker tiers it (no round of Sluice is recorded);"
            f" {force}",
        ),
        (status("Pending"), NOT_DUE, f"it has become due since; {force}"),
        (status("Scheduled", next_attempt_ms=NOW_MS + 100_000), NOT_DUE, f"{due}; {force}"),
        (
            status("Pending", next_attempt_ms=NOW_MS + 100_000, failures=3, last_error="denied"),
            NOT_DUE,
            f"{due}, after 3 failures (last error: denied); {force}",
        ),
    ):
        one = of_status(found, NOW_MS, "<{}>".format)
        assert (one["became"], one["text"]) == (became, text)


def test_of_a_table_that_max_tables_has_left_out() -> None:
    for state in (status("Pending"), status("Pending", next_attempt_ms=NOW_MS - 1)):
        one = of_status(state, NOW_MS, tables_max=7)
        assert (one["became"], one["text"]) == (
            NOT_DUE,
            "it is due, but max_tables (7) was reached",
        )
    later = of_status(status("Scheduled", next_attempt_ms=NOW_MS + 1), NOW_MS, tables_max=7)
    assert later["text"].startswith("due at 2027")


def account() -> list[TableAccount]:
    return complete(
        [tell("s.idle", NOTHING_NEW), tell("s.later", NOT_DUE, "due at noon")],
        ["s.ok", "s.bad", "s.silent"],
        [
            Verdict("s.ok", "finished", "committed", "committed", 10, 5),
            Verdict("s.bad", "failed", "KeyError: id"),
        ],
        [],
    )


def test_problems_come_first_and_each_table_once() -> None:
    found = account()
    assert [one["table"] for one in found] == ["s.bad", "s.silent", "s.ok", "s.idle", "s.later"]
    assert lines(found) == [
        "s.bad     failed       KeyError: id",
        "s.silent  not tiered   no task has reported it; `sluice status` shows its state",
        "s.ok      tiered       10 rows, lake snapshot 5",
        "s.idle    nothing new",
        "s.later   not due      due at noon",
    ]
    assert summary(found) == (
        "5 tables: 1 failed, 1 not tiered, 1 tiered (10 rows), 1 nothing new, 1 not due"
    )
    assert summary(found[2:3], {NOTHING_NEW: 7}) == "8 tables: 1 tiered (10 rows), 7 nothing new"
    assert summary([]) == "no table was due"


def test_the_page_shows_an_account() -> None:
    [shown] = claimed_blocks("docs/airflow.md", __file__)
    found = account()
    assert shown.content.rstrip("\n").splitlines() == [summary(found), *lines(found)]


def test_what_drop_lease_reports_counts() -> None:
    """It reports claims that no other task has reported."""
    [one] = complete([], ["s.a"], [], [Verdict("s.a", "failed", "the run ended")])
    assert (one["became"], one["text"]) == (FAILED, "the run ended")


def test_the_error_has_the_reasons() -> None:
    assert error(account()) == (
        "2 of 5 tables were not tiered:\n"
        "s.bad: KeyError: id\n"
        "s.silent: not tiered: no task has reported it; `sluice status` shows its state"
    )
    many = [tell(f"s.t{n:02}", FAILED, "away") for n in range(15)]
    assert error(many).splitlines()[-1] == "and 5 more; see the log of this task"
    assert error(account()[2:]) == ""


def test_a_wanted_table_that_nobody_tells_of_fails_the_run() -> None:
    assert error([], ["s.gone"]) == (
        "1 of 1 table was not tiered:\n"
        "s.gone: not tiered: its state could not be read; `sluice status` shows it"
    )


def test_a_claim_that_had_ended_says_nothing_of_a_table_that_was_told_of() -> None:
    told = Verdict("s.a", "finished", "committed", "committed", 5, 7)
    [one] = complete([], ["s.a"], [told], [Verdict("s.a", "nothing", "FencedTieringEpoch")])
    assert one["became"] == TIERED
    [one] = complete([], ["s.a"], [], [Verdict("s.a", "nothing", "FencedTieringEpoch")])
    assert one["became"] == "claim lost"


def test_green_means_that_the_wanted_tables_are_tiered() -> None:
    found = account()[2:]
    assert error(found, ["s.ok", "s.idle"]) == ""
    assert error(found, ["s.later"], more=40).startswith("1 of 43 tables was not tiered:")
    assert error(found, ["s.later"]) == (
        "1 of 3 tables was not tiered:\ns.later: not due: due at noon"
    )
