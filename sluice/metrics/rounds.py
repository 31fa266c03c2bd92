"""Counts ended rounds: as they end, or from statuses that are read now and then."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from prometheus_client import Counter, Histogram
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from sluice.model import TieringStatus

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

    A table whose last success or last error has moved had a round. Several rounds of one outcome
    between two reads count as one, and failures before a success are not seen.
    """

    def __init__(self, metrics: RoundMetrics) -> None:
        self._metrics = metrics
        self._ends: dict[int, tuple[int | None, int | None]] = {}

    def seen(self, statuses: Sequence[TieringStatus]) -> None:
        """Adds the rounds that have ended since the last call.

        :param statuses: of all tables. A table's first status counts no round.
        """
        before, self._ends = self._ends, {}
        for status in statuses:
            ends = (status.last_tiered_ms, status.last_error_ms)
            known = before.get(status.table_id, ends)
            if status.is_unread:
                self._ends[status.table_id] = known
                continue
            self._ends[status.table_id] = ends
            if status.last_tiered_ms is not None and ends[0] != known[0]:
                self._metrics.ended(True, status.last_round_ms)
            if status.last_error_ms is not None and ends[1] != known[1]:
                self._metrics.ended(False, None)
