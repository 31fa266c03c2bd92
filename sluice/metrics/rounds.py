"""Counts ended rounds: as they end, or from statuses that are read now and then."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from prometheus_client import Counter, Histogram
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from sluice.errors import SluiceError
from sluice.model import TablePath, TieringRound, TieringStatus
from sluice.model.round_record import ROUNDS_KEPT

ROUND_BUCKETS_S = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1_800, 3_600)


class RoundMetrics(Collector):
    """The number of ended rounds and their seconds, by outcome. Safe for use by many threads."""

    def __init__(self) -> None:
        self._rounds = Counter(
            "sluice_rounds", "Tiering rounds that have ended.", ["outcome"], registry=None
        )
        self._seconds = Histogram(
            "sluice_round_seconds",
            "Duration of a round, from claim to report.",
            ["outcome"],
            buckets=ROUND_BUCKETS_S,
            registry=None,
        )
        for outcome in ("finished", "failed"):  # present from the start, for rates
            self._rounds.labels(outcome)
            self._seconds.labels(outcome)

    def ended(self, succeeded: bool, round_ms: int | None) -> None:
        """Adds a round that has ended.

        :param round_ms: None: not known.
        """
        outcome = "finished" if succeeded else "failed"
        self._rounds.labels(outcome).inc()
        if round_ms is not None:
            self._seconds.labels(outcome).observe(round_ms / 1000)

    def collect(self) -> Iterable[Metric]:
        yield from self._rounds.collect()
        yield from self._seconds.collect()


class SeenRounds:
    """Counts rounds of a cluster whose statuses are read now and then.

    A status has the number of ended rounds of its table. It also describes the last round, if that
    was a success. Other rounds are read from the history. A status of an older Sluice has no
    number; its table had one round if the last success or the last error has moved.
    """

    def __init__(
        self, metrics: RoundMetrics, history: Callable[[TablePath, int], Iterable[TieringRound]]
    ) -> None:
        """:param history: returns the newest rounds of a table, at most the given number."""
        self._metrics = metrics
        self._history = history
        self._last: dict[int, TieringStatus] = {}
        self._readable = True

    def seen(self, statuses: Sequence[TieringStatus]) -> None:
        """Adds the rounds that have ended since the last call.

        :param statuses: of all tables. A table's first status counts no round.
        """
        before, self._last = self._last, {}
        self._readable = True
        for status in statuses:
            last = before.get(status.table_id)
            self._last[status.table_id] = last if status.is_unread and last else status
            if last is None or status.is_unread or last.is_unread:
                continue
            if status.rounds is None or last.rounds is None:
                moved = (last.last_tiered_ms, last.last_error_ms) != (
                    status.last_tiered_ms,
                    status.last_error_ms,
                )
                if moved:
                    self._count_last(status)
            elif status.rounds > last.rounds:
                first = max(last.rounds, status.rounds - ROUNDS_KEPT) + 1
                self._count(status, range(first, status.rounds + 1))

    def _count(self, status: TieringStatus, numbers: range) -> None:
        """Counts these rounds of a table, the last of which its status describes."""
        found: dict[int | None, TieringRound] = {}
        if self._readable and (len(numbers) > 1 or status.last_error_ms is not None):
            try:
                rounds = self._history(status.path, ROUNDS_KEPT)
                found = {each.round_number: each for each in rounds}
            except SluiceError:
                self._readable = False  # the other tables of this call would wait as long
        for number in numbers:
            if each := found.get(number):
                self._metrics.ended(each.succeeded, each.duration_ms)
            elif number == numbers[-1]:  # its record is written after its status, or failed to be
                self._count_last(status)

    def _count_last(self, status: TieringStatus) -> None:
        """Counts the last round of a table, as its status describes it."""
        succeeded = status.last_error_ms is None
        self._metrics.ended(succeeded, status.last_round_ms if succeeded else None)
