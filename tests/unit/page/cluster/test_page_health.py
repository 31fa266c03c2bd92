"""Verdicts: the alerts' bounds, since when, and why; and that every status has one."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.client.leases.ids import lease_id
from sluice.errors import SparkSettingsWrong
from sluice.model import TablePath, TieringRound, TieringStatus
from sluice.page.cluster.health import (
    DAY_MS,
    LAG_OLD_MS,
    LAG_UNKNOWN,
    LAKE_UNREAD,
    LATE_MS,
    NEEDS_A_PERSON,
    NOT_CLAIMED,
    NOT_TIERED,
    ORDER,
    STATUS_OLD_MS,
    WAITING_MS,
    verdict,
)
from sluice.page.cluster.models import Health
from sluice.page.cluster.round_cache import SHOWN, RoundCache, failing_since_ms
from sluice.page.cluster.seen import SeenTable, merged
from sluice.rounds.values.reasons import reason_of
from sluice.statuses.recorded import NO_ROUND_RECORDED
from sluice.statuses.transitions import State

NOW_MS = 1_790_000_000_000
PATH = TablePath("shop", "orders")
RULES = (Path(__file__).parents[4] / "docs/prometheus-sluice.yaml").read_text()


def table(state: str = "Scheduled", seen: dict[str, Any] | None = None, **fields: Any) -> SeenTable:
    """A table that was tiered once, unless ``lake_snapshot_id`` is None."""
    status = TieringStatus(PATH, 1, state, 5, **{"lake_snapshot_id": 7, **fields})
    return SeenTable(status, NOW_MS, **{"lag_read_ms": NOW_MS, **(seen or {})})


def fresh(state: str = "Pending", seen: dict[str, Any] | None = None, **fields: Any) -> SeenTable:
    """A table that no round has tiered."""
    return table(state, seen, lake_snapshot_id=None, **fields)


def judged(each: SeenTable, dag: str | None = None) -> tuple[str, int | None, str | None]:
    found = verdict(each, NOW_MS, dag)
    return found.health, found.since_ms, found.why


def test_a_table_whose_spark_cannot_start_is_failing_until_a_round_ends() -> None:
    """No table counts that as a failure, but somebody has to correct the settings."""
    why = str(reason_of(SparkSettingsWrong("Spark cannot start: Invalid driver memory: 1x")))
    for state in ("Pending", "Scheduled", "Tiering"):
        assert judged(table(state, failures=0, stopped=why)) == ("failing", None, why)
        assert judged(fresh(state, failures=0, stopped=why)) == ("failing", None, why)
    assert judged(table(stopped=why, paused=True))[0] == "paused"
    assert judged(table(stopped="StoppedByUser: a user cleared the task tier"))[0] == "ok"


def test_a_table_without_a_leader_is_failing_whatever_else_is_known() -> None:
    why = "no leader: bucket 0 of table shop.orders. Restart the coordinator"
    for state in ("Unknown", "Pending", "Tiering"):
        assert judged(fresh(state, note=why, failures=0)) == ("failing", None, why)
        assert judged(table(state, note=why, failures=0, paused=True)) == ("failing", None, why)


def test_bounds_are_those_of_the_alert_rules() -> None:
    bounds = re.findall(r"_seconds > (\d+)", RULES)
    assert str(LATE_MS // 1000) in bounds
    assert str(WAITING_MS // 1000) in bounds
    assert bounds.count(str(DAY_MS // 1000)) == 2


@pytest.mark.parametrize(
    ("each", "health", "since_ms", "why"),
    [
        (table(), "ok", None, None),
        (table("Tiering"), "tiering", None, None),
        (table(paused=True, failures=3), "paused", None, "paused by a user"),
        (table("Unknown", note="no round of Sluice is recorded"), "unknown", None,
         "no round of Sluice is recorded"),
        (table("Unknown", note="cannot be read", failures=None), "unknown", None, "cannot be read"),
        (table("Failed", failures=1, last_error="disk", last_error_ms=7), "failing", 7, "disk"),
        (table("Failed", failures=2, last_error="disk", last_error_ms=7, last_tiered_ms=5),
         "failing", 5, "disk"),
        (table("Failed", {"failing_since_ms": 6}, failures=2, last_error="disk", last_error_ms=7,
               last_tiered_ms=5), "failing", 6, "disk"),
        (table(lag_ms=LATE_MS), "ok", None, None),
        (table("Pending", lag_ms=LATE_MS + 1, next_attempt_ms=NOW_MS), "late",
         NOW_MS - LATE_MS - 1, NOT_CLAIMED),
        (table("Tiering", lag_ms=2 * LATE_MS, claimed_by="run-7"), "late", NOW_MS - 2 * LATE_MS,
         "its round by run-7 has not ended"),
        (table(lag_ms=2 * LATE_MS, stopped="stopped by ria"), "late", NOW_MS - 2 * LATE_MS,
         "stopped by ria"),
        (table("Pending", lag_ms=0, next_attempt_ms=NOW_MS - WAITING_MS), "ok", None, None),
        (table("Pending", next_attempt_ms=NOW_MS - WAITING_MS - 1), "waiting",
         NOW_MS - WAITING_MS - 1, NOT_CLAIMED),
        (table("Pending", last_tiered_ms=NOW_MS - DAY_MS - 1, next_attempt_ms=NOW_MS - 1), "late",
         NOW_MS - DAY_MS - 1, f"no round has succeeded for a day: {NOT_CLAIMED}"),
        # Its freshness is longer than a day.
        (table(last_tiered_ms=NOW_MS - DAY_MS - 1, next_attempt_ms=NOW_MS + 1), "ok", None, None),
        (table("Unknown", last_tiered_ms=NOW_MS - DAY_MS - 1, note="no end reported"), "late",
         NOW_MS - DAY_MS - 1, "no round has succeeded for a day: no end reported"),
    ],
)  # fmt: skip
def test_what_is_wrong_since_when_and_why(
    each: SeenTable, health: str, since_ms: int | None, why: str | None
) -> None:
    assert judged(each) == (health, since_ms, why)


@pytest.mark.parametrize(
    ("each", "health", "since_ms", "why"),
    [
        # The embedded server: due since it was created, far longer than its freshness.
        (fresh(lag_rows=7, lag_ms=LATE_MS, next_attempt_ms=NOW_MS - LATE_MS), "new", None,
         f"{NOT_TIERED}: {NOT_CLAIMED}"),
        (fresh(lag_rows=0, lag_ms=0, next_attempt_ms=NOW_MS - WAITING_MS), "new", None,
         f"{NOT_TIERED}: {NOT_CLAIMED}"),
        (fresh(seen={"lag_read_ms": None}, next_attempt_ms=NOW_MS), "unknown", None, LAKE_UNREAD),
        (fresh("Scheduled", next_attempt_ms=NOW_MS + 1), "new", None,
         f"{NOT_TIERED}: its next round is not due yet"),
        # The bounds of all tables hold for it, too.
        (fresh(lag_ms=LATE_MS + 1, next_attempt_ms=NOW_MS - LATE_MS - 1), "late",
         NOW_MS - LATE_MS - 1, NOT_CLAIMED),
        (fresh(lag_rows=0, lag_ms=0, next_attempt_ms=NOW_MS - WAITING_MS - 1), "waiting",
         NOW_MS - WAITING_MS - 1, NOT_CLAIMED),
        (fresh("Tiering"), "tiering", None, None),
        (fresh(paused=True), "paused", None, "paused by a user"),
        (fresh(failures=1, last_error="disk", last_error_ms=7), "failing", 7, "disk"),
        # Apache Fluss: with the lag one learns that the lake has nothing of it.
        (fresh("Unknown", lag_rows=7, lag_ms=9, note=NO_ROUND_RECORDED), "new", None, NOT_TIERED),
        (fresh("Unknown", {"lag_read_ms": None}, note=NO_ROUND_RECORDED), "unknown", None,
         NO_ROUND_RECORDED),
        (table("Unknown", lag_rows=0, lag_ms=0, note=NO_ROUND_RECORDED), "unknown", None,
         NO_ROUND_RECORDED),
        (fresh("Unknown", lag_rows=7, lag_ms=LATE_MS + 1, note=NO_ROUND_RECORDED), "late",
         NOW_MS - LATE_MS - 1, NO_ROUND_RECORDED),
        (fresh("Unknown", note="claimed 300 s ago by run-7, no end reported"), "unknown", None,
         "claimed 300 s ago by run-7, no end reported"),
    ],
)  # fmt: skip
def test_a_table_that_no_round_has_tiered_is_never_ok(
    each: SeenTable, health: str, since_ms: int | None, why: str | None
) -> None:
    assert judged(each) == (health, since_ms, why)


def test_a_new_table_under_a_paused_dag_names_it() -> None:
    why = judged(fresh(next_attempt_ms=NOW_MS), "lake")[2]
    assert why == f"{NOT_TIERED}: {NOT_CLAIMED}: the DAG lake is paused"


HOUR_MS = 3_600_000
LONG_AGO_MS = NOW_MS - 6 * HOUR_MS


@pytest.mark.parametrize(
    ("each", "health", "since_ms", "why"),
    [
        # Its lag was small when it could be read for the last time.
        (table("Pending", {"lag_read_ms": LONG_AGO_MS}, lag_ms=5_000,
               next_attempt_ms=NOW_MS - LATE_MS - 1), "late", NOW_MS - LATE_MS - 1,
         f"{LAG_UNKNOWN}: {NOT_CLAIMED}"),
        (table("Pending", {"lag_read_ms": NOW_MS - LAG_OLD_MS}, lag_ms=5_000,
               next_attempt_ms=NOW_MS - LATE_MS - 1), "ok", None, None),
        (table("Pending", {"lag_read_ms": None}, next_attempt_ms=NOW_MS - LATE_MS), "ok", None,
         None),
        (table("Pending", {"lag_read_ms": None}, next_attempt_ms=NOW_MS - LATE_MS - 1), "late",
         NOW_MS - LATE_MS - 1, f"{LAG_UNKNOWN}: {NOT_CLAIMED}"),
        # It is waiting whatever its lag is.
        (table("Pending", {"lag_read_ms": None}, next_attempt_ms=NOW_MS - WAITING_MS - 1),
         "waiting", NOW_MS - WAITING_MS - 1, NOT_CLAIMED),
        (table(seen={"lag_read_ms": None}, next_attempt_ms=NOW_MS + 1), "ok", None, None),
        # The age of its missing rows cannot be read.
        (table("Pending", lag_rows=7, next_attempt_ms=NOW_MS - LATE_MS - 1), "late",
         NOW_MS - LATE_MS - 1, f"{LAG_UNKNOWN}: {NOT_CLAIMED}"),
        # It was late, and no round has succeeded since.
        (table("Tiering", {"lag_read_ms": LONG_AGO_MS}, lag_ms=LATE_MS + 1, claimed_by="run-7"),
         "late", LONG_AGO_MS - LATE_MS - 1, "its round by run-7 has not ended"),
        (table("Tiering", {"lag_read_ms": LONG_AGO_MS}, lag_ms=LATE_MS + 1, claimed_by="run-7",
               last_tiered_ms=LONG_AGO_MS + 1), "tiering", None, None),
        # The round itself takes long, whether its lag is known or not.
        (table("Tiering", lag_ms=0, claimed_ms=NOW_MS - LATE_MS - 1, claimed_by="run-7"),
         "late", NOW_MS - LATE_MS - 1, "its round by run-7 has not ended"),
        (table("Tiering", claimed_ms=NOW_MS - LATE_MS, claimed_by="run-7"), "tiering", None, None),
        (table("Tiering", {"lag_read_ms": None, "freshness_ms": HOUR_MS}, claimed_by="run-7",
               last_tiered_ms=NOW_MS - HOUR_MS - LATE_MS - 1), "late", NOW_MS - LATE_MS - 1,
         f"{LAG_UNKNOWN}: its round by run-7 has not ended"),
        (table("Tiering", {"lag_read_ms": None, "freshness_ms": HOUR_MS}, claimed_by="run-7",
               last_tiered_ms=NOW_MS - HOUR_MS - LATE_MS), "tiering", None, None),
    ],
)  # fmt: skip
def test_a_lag_that_is_not_known_hides_no_late_table(
    each: SeenTable, health: str, since_ms: int | None, why: str | None
) -> None:
    assert judged(each) == (health, since_ms, why)


def test_a_retry_does_not_change_since_when_a_table_fails() -> None:
    failing = replace(
        table("Failed", failures=3, last_error="refused", last_tiered_ms=LONG_AGO_MS),
        failing_since_ms=LONG_AGO_MS + 1,
    )
    asked = replace(failing.status, failures=0, status="Pending")
    retried = SeenTable(asked, NOW_MS + 1)
    assert judged(merged(failing, retried))[:2] == ("failing", LONG_AGO_MS + 1)
    tiered = replace(asked, last_error=None, last_tiered_ms=NOW_MS, status="Scheduled")
    assert merged(failing, SeenTable(tiered, NOW_MS + 1)).failing_since_ms is None


def test_a_run_is_not_named_by_its_lease_id() -> None:
    run = lease_id("prod", "lake", "manual__1")
    why = judged(table("Tiering", lag_ms=2 * LATE_MS, claimed_by=run))[2]
    assert why == "its round by a run of the Airflow prod has not ended"


def test_a_status_is_not_judged_by_the_clock_long_after_its_reading() -> None:
    """As while the cluster is away: a worker may have claimed the table since."""
    waits = table("Pending", lag_ms=0, next_attempt_ms=NOW_MS + STATUS_OLD_MS - WAITING_MS)
    assert verdict(waits, NOW_MS + DAY_MS).health == "ok"
    unsure = replace(waits, status=replace(waits.status, next_attempt_ms=NOW_MS, lag_ms=None))
    assert verdict(unsure, NOW_MS + DAY_MS).health == "ok"
    tiered = table("Scheduled", last_tiered_ms=NOW_MS, next_attempt_ms=NOW_MS + LATE_MS)
    assert verdict(tiered, NOW_MS + 2 * DAY_MS).health == "ok"


def test_a_paused_dag_is_named_where_nobody_claims() -> None:
    waits = table("Pending", next_attempt_ms=0)
    assert judged(waits, "lake")[2] == f"{NOT_CLAIMED}: the DAG lake is paused"
    runs = table("Tiering", lag_ms=2 * LATE_MS)
    assert judged(runs, "lake")[2] == "its round by a worker has not ended"
    assert judged(table(), "lake") == ("ok", None, None)


def test_a_lag_that_was_read_earlier_keeps_its_own_time() -> None:
    old = replace(table(lag_ms=LATE_MS + 1), lag_read_ms=NOW_MS - 60_000)
    assert judged(old)[1] == NOW_MS - 60_000 - LATE_MS - 1


def times() -> st.SearchStrategy[int | None]:
    return st.none() | st.integers(0, NOW_MS + 10 * DAY_MS)


STATUSES = st.builds(
    TieringStatus,
    path=st.just(PATH),
    table_id=st.integers(0, 3),
    status=st.sampled_from([*(state.value for state in State), "Unknown", "of a later version"]),
    tiering_epoch=st.integers(0, 3),
    last_tiered_ms=times(),
    last_error=st.none() | st.text(max_size=5),
    last_error_ms=times(),
    failures=st.none() | st.integers(0, 5),
    next_attempt_ms=times(),
    paused=st.none() | st.booleans(),
    rounds=st.none() | st.integers(0, 5),
    stopped=st.none() | st.text(max_size=5),
    lag_rows=times(),
    lag_ms=times(),
    lake_snapshot_id=st.none() | st.integers(0, 3),
    claimed_by=st.none() | st.text(max_size=5),
    claimed_ms=times(),
    note=st.none() | st.text(max_size=5),
)
SEEN = st.builds(SeenTable, STATUSES, st.integers(0, NOW_MS), times(), times(), times())


@given(SEEN, times(), st.none() | st.text(max_size=5))
def test_every_status_has_a_verdict(each: SeenTable, now_ms: int | None, dag: str | None) -> None:
    found = verdict(each, now_ms or 0, dag)
    assert found.health in ORDER
    if found.health in ("ok", "tiering"):
        assert (found.since_ms, found.why) == (None, None)
    if found.health == "ok":
        assert each.status.last_tiered_ms is not None or each.status.lake_snapshot_id is not None
    if found.health in ("late", "waiting"):
        assert found.since_ms is not None
        assert found.why is not None
    assert found == verdict(each, now_ms or 0, dag)


def lately() -> st.SearchStrategy[int | None]:
    return st.none() | st.integers(NOW_MS - 2 * HOUR_MS, NOW_MS)


UNFAILED = st.builds(
    TieringStatus,
    path=st.just(PATH),
    table_id=st.just(1),
    status=st.sampled_from(["Pending", "Scheduled", "Tiering", "Tiered"]),
    tiering_epoch=st.just(3),
    last_tiered_ms=lately(),
    next_attempt_ms=lately(),
    claimed_ms=lately(),
    lag_ms=st.none() | st.integers(0, 2 * LATE_MS),
)


@given(
    st.builds(SeenTable, UNFAILED, st.just(NOW_MS), lately(), st.none()),
    st.integers(0, HOUR_MS),
)
def test_no_table_is_ok_that_is_due_for_long_with_an_unknown_lag(
    each: SeenTable, more_ms: int
) -> None:
    """``ok`` and ``tiering`` need a recent lag or a table that is not due, and a short round."""
    now_ms = each.status_read_ms + min(more_ms, STATUS_OLD_MS)
    if verdict(each, now_ms).health not in ("ok", "tiering"):
        return
    status, read_ms = each.status, each.status_read_ms
    if status.status == "Tiering" and status.claimed_ms is not None:
        assert read_ms - status.claimed_ms <= LATE_MS
    is_lag_known = status.lag_ms is not None and (
        each.lag_read_ms is None or read_ms - each.lag_read_ms <= LAG_OLD_MS
    )
    if not is_lag_known and status.next_attempt_ms is not None:
        assert now_ms - status.next_attempt_ms <= LATE_MS


def test_each_health_has_a_rank() -> None:
    assert sorted(ORDER) == sorted(get_args(Health))
    assert set(ORDER) >= NEEDS_A_PERSON


@given(SEEN, SEEN)
def test_the_later_reading_wins_and_forgets_no_lag(old: SeenTable, new: SeenTable) -> None:
    found = merged(old, new)
    assert found.status_read_ms <= max(old.status_read_ms, new.status_read_ms)
    if old.status_read_ms > new.status_read_ms:
        assert found is old
    elif old.status.table_id != new.status.table_id:
        assert found is new
    else:
        is_lag_known = old.lag_read_ms is not None or new.lag_read_ms is not None
        assert found.lag_read_ms is not None or not is_lag_known or found is old
        assert found is old or found.status.rounds == new.status.rounds
        if found is not old and new.lag_read_ms is None:
            assert found.lag_unread_ms == old.lag_unread_ms


# ---- since when it fails ----


def ended(number: int, outcome: str) -> TieringRound:
    return TieringRound(table_id=1, round_number=number, ended_ms=number * 10, outcome=outcome)


@pytest.mark.parametrize(
    ("outcomes", "since_ms"),
    [
        (["failed", "committed"], 20),
        (["failed", "failed", "nothing_new", "failed"], 30),
        (["failed", "failed"], 10),  # it never succeeded
        (["committed", "failed"], None),
        ([], None),
    ],
)
def test_the_first_failure_after_the_last_success(
    outcomes: list[str], since_ms: int | None
) -> None:
    newest = [ended(len(outcomes) - at, outcome) for at, outcome in enumerate(outcomes)]
    assert failing_since_ms(table().status, newest) == since_ms


def test_a_history_that_begins_later_does_not_say_it() -> None:
    newest = [ended(number, "failed") for number in range(120, 20, -1)]
    assert failing_since_ms(table(rounds=120).status, newest) is None


def test_rounds_of_few_tables_are_kept() -> None:
    cache = RoundCache(tables_max=2)
    statuses = [replace(table(rounds=40).status, table_id=number) for number in range(3)]
    for status in statuses:
        cache.put(status, [ended(number, "committed") for number in range(40, 0, -1)])
    assert cache.of(statuses[0]) == ((), False)
    points, are_newest = cache.of(statuses[2])
    assert are_newest
    assert [point.ended_ms for point in points] == [n * 10 for n in range(40 - SHOWN + 1, 41)]
    assert cache.of(replace(statuses[2], rounds=41)) == (points, False)
    assert cache.of(replace(statuses[2], rounds=None)) == ((), True)


def test_a_retried_table_is_failing_until_a_round_succeeds() -> None:
    """`retry` clears the failures, and nobody knows yet whether the cause is gone."""
    retried = TieringStatus(
        TablePath("shop", "a"), 1, "Pending", 3, failures=0, last_error="no space"
    )
    found = verdict(SeenTable(retried, NOW_MS), NOW_MS)
    assert (found.health, found.why) == ("failing", "no space")
