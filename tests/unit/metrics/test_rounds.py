"""Rounds that are counted from statuses."""

from __future__ import annotations

from dataclasses import replace

from sluice.metrics.rounds import RoundMetrics, SeenRounds
from sluice.model import TablePath, TieringStatus

NEW = TieringStatus(
    path=TablePath("shop", "orders"), table_id=7, status="Pending", tiering_epoch=1, failures=0
)
FAILED = replace(NEW, last_error_ms=1_000, last_error="no", failures=1)
TIERED = replace(NEW, last_tiered_ms=2_000, last_round_ms=3_000)


def counted(*reads: list[TieringStatus]) -> dict[str, float]:
    """Rounds by outcome, and the seconds of finished ones."""
    metrics = RoundMetrics()
    seen = SeenRounds(metrics)
    for statuses in reads:
        seen.seen(statuses)
    samples = [sample for family in metrics.collect() for sample in family.samples]
    rounds = {s.labels["outcome"]: s.value for s in samples if s.name == "sluice_rounds_total"}
    sums = {s.labels["outcome"]: s.value for s in samples if s.name == "sluice_round_seconds_sum"}
    assert sums["failed"] == 0, "their duration is not known"
    return rounds | {"seconds": sums["finished"]}


def test_each_end_counts_once() -> None:
    again = replace(TIERED, last_tiered_ms=9_000)
    found = counted([NEW], [FAILED], [FAILED], [TIERED], [TIERED], [again])
    assert found == {"finished": 2, "failed": 1, "seconds": 6}


def test_a_failure_after_a_success_counts() -> None:
    failed = replace(TIERED, last_error_ms=5_000, failures=1)
    retried = replace(failed, failures=0)
    assert counted([TIERED], [failed], [retried])["failed"] == 1


def test_what_ended_before_the_first_read_does_not_count() -> None:
    assert counted([TIERED], [TIERED]) == {"finished": 0, "failed": 0, "seconds": 0}


def test_statuses_that_could_not_be_read_count_nothing() -> None:
    unread = replace(NEW, failures=None, note="table sluice.tiering_status cannot be read")
    assert counted([TIERED], [unread], [TIERED])["finished"] == 0
    again = replace(TIERED, last_tiered_ms=9_000)
    assert counted([TIERED], [unread], [again])["finished"] == 1


def test_a_table_created_again_counts_by_itself() -> None:
    other = replace(TIERED, table_id=8, last_tiered_ms=9_000)
    assert counted([TIERED], [], [other], [other])["finished"] == 0


def test_a_finished_round_of_unknown_duration_counts() -> None:
    found = counted([NEW], [replace(TIERED, last_round_ms=None)])
    assert found == {"finished": 1, "failed": 0, "seconds": 0}
