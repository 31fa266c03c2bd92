"""Rounds that are counted from statuses and the history."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sluice.errors import TableNotExist
from sluice.metrics.rounds import RoundMetrics, SeenRounds
from sluice.model import TablePath, TieringRound, TieringStatus

PATH = TablePath("shop", "orders")
NEW = TieringStatus(path=PATH, table_id=7, status="Pending", tiering_epoch=1, failures=0, rounds=0)
TIERED = replace(NEW, last_tiered_ms=2_000, last_round_ms=3_000, rounds=1)
FAILED = replace(NEW, last_error_ms=1_000, last_error="no", failures=1, rounds=1)


def done(number: int, seconds: int, outcome: str = "committed") -> TieringRound:
    return TieringRound(round_number=number, outcome=outcome, started_ms=0, ended_ms=seconds * 1000)


def failed(number: int, seconds: int) -> TieringRound:
    return done(number, seconds, "failed")


class Counting:
    """Counts what it is shown, with a history that grows."""

    def __init__(self, *kept: TieringRound) -> None:
        self.kept = kept
        self.asked: list[tuple[TablePath, int]] = []
        self.metrics = RoundMetrics()
        self.seen = SeenRounds(self.metrics, self.history)

    def history(self, path: TablePath, limit: int) -> Sequence[TieringRound]:
        self.asked.append((path, limit))
        if not self.kept:
            raise TableNotExist(f"table {path} does not exist")
        return self.kept

    def counts(self, *reads: list[TieringStatus]) -> dict[str, tuple[float, float]]:
        """Rounds and their seconds by outcome, without outcomes that never happened."""
        for statuses in reads:
            self.seen.seen(statuses)
        found = {
            (sample.name, sample.labels["outcome"]): sample.value
            for family in self.metrics.collect()
            for sample in family.samples
            if sample.name in ("sluice_rounds_total", "sluice_round_seconds_sum")
        }
        return {
            outcome: (number, found["sluice_round_seconds_sum", outcome])
            for (name, outcome), number in found.items()
            if name == "sluice_rounds_total" and number
        }


def test_a_single_success_needs_no_history() -> None:
    counting = Counting()
    again = replace(TIERED, last_tiered_ms=9_000, last_round_ms=4_000, rounds=2)
    assert counting.counts([NEW], [TIERED], [TIERED], [again]) == {"finished": (2, 7)}
    assert counting.asked == []


def test_a_failure_has_the_duration_of_the_history() -> None:
    counting = Counting(failed(1, 5))
    assert counting.counts([NEW], [FAILED], [FAILED]) == {"failed": (1, 5)}
    assert counting.asked == [(PATH, 100)]
    retried = replace(FAILED, failures=0)
    assert counting.counts([retried]) == {"failed": (1, 5)}


def test_all_rounds_between_two_reads_count() -> None:
    counting = Counting(done(5, 50), done(4, 7), failed(3, 5), done(2, 3), done(1, 99))
    first, later = replace(TIERED, rounds=1), replace(TIERED, rounds=4)
    # Round 5 has ended since the statuses were read: the next read has it.
    assert counting.counts([first], [later]) == {"finished": (2, 10), "failed": (1, 5)}
    last = replace(TIERED, rounds=5, last_round_ms=50_000)
    assert counting.counts([last]) == {"finished": (3, 60), "failed": (1, 5)}


def test_a_round_that_the_history_lacks_counts_as_its_status_has_it() -> None:
    counting = Counting(failed(1, 5))
    assert counting.counts([NEW], [replace(TIERED, rounds=2)]) == {
        "failed": (1, 5),
        "finished": (1, 3),
    }
    assert Counting().counts([NEW], [FAILED]) == {"failed": (1, 0)}
    unknown = replace(TIERED, last_round_ms=None)
    assert Counting().counts([NEW], [unknown]) == {"finished": (1, 0)}


def test_what_ended_before_the_first_read_does_not_count() -> None:
    assert Counting().counts([TIERED], [TIERED]) == {}


def test_statuses_that_could_not_be_read_count_nothing() -> None:
    unread = replace(NEW, failures=None, note="table sluice.tiering_status cannot be read")
    assert Counting().counts([unread], [TIERED], [unread], [TIERED]) == {}
    again = replace(TIERED, rounds=2)
    assert Counting().counts([TIERED], [unread], [again]) == {"finished": (1, 3)}


def test_a_table_created_again_counts_by_itself() -> None:
    other = replace(TIERED, table_id=8, rounds=4)
    assert Counting().counts([TIERED], [], [other], [other]) == {}


def test_a_status_without_a_number_counts_from_its_first_round_on() -> None:
    unnumbered = replace(NEW, rounds=None)
    assert Counting().counts([unnumbered], [TIERED]) == {"finished": (1, 3)}
