"""The Prometheus metrics at ``/metrics``: tiering, rounds and leases.

Gauges per table are read from the coordinator at each scrape. Counters have no table label, so that
memory does not grow with tables that are created and dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from prometheus_client import CollectorRegistry, Counter, Histogram, Info
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from sluice import __version__
from sluice.leases import Lease
from sluice.model import TieringStatus
from sluice.server.metrics_endpoint import MetricsEndpoint
from sluice.statuses import RoundEnd, State

ROUND_BUCKETS_S = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1_800, 3_600)
_TABLE = ("database", "table")


class RoundMetrics:
    """Counts rounds when they end, in a registry of this server only."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry(auto_describe=True)
        Info("sluice_server", "The server's version.", registry=self.registry).info(
            {"version": __version__}
        )
        self._rounds = Counter(
            "sluice_rounds",
            "Tiering rounds that have ended.",
            ["outcome"],
            registry=self.registry,
        )
        self._seconds = Histogram(
            "sluice_round_seconds",
            "Duration of a round, from claim to report.",
            ["outcome"],
            buckets=ROUND_BUCKETS_S,
            registry=self.registry,
        )
        for outcome in ("finished", "failed"):  # present from the start, for rates
            self._rounds.labels(outcome)
            self._seconds.labels(outcome)

    def ended(self, round_end: RoundEnd) -> None:
        """Takes in a round that has ended."""
        outcome = "finished" if round_end.succeeded else "failed"
        self._rounds.labels(outcome).inc()
        self._seconds.labels(outcome).observe(round_end.round_ms / 1000)


class Metrics:
    """All metrics, served at one address."""

    def __init__(self, place: str, *, insecure: bool) -> None:
        """:param place: HOST:PORT, which ``start`` binds."""
        self._place = place
        self._insecure = insecure
        self._rounds = RoundMetrics()
        self._endpoint: MetricsEndpoint | None = None

    @property
    def address(self) -> str:
        """The URL with its bound port; empty before ``start``."""
        return "" if self._endpoint is None else self._endpoint.address

    def ended(self, round_end: RoundEnd) -> None:
        """Takes in a round that has ended. Quick, and from any thread."""
        self._rounds.ended(round_end)

    def start(
        self,
        statuses: Callable[[], Sequence[TieringStatus]],
        leases: Callable[[], tuple[int, Sequence[Lease]]],
    ) -> None:
        """Serves the metrics.

        :raises ConfigurationError: the address cannot be bound, or is not allowed.
        """
        registry = self._rounds.registry
        registry.register(StatusCollector(statuses, leases))
        self._endpoint = MetricsEndpoint(self._place, registry, insecure=self._insecure)
        self._endpoint.start()

    def stop(self) -> None:
        """Stops serving. Does nothing before ``start``."""
        if self._endpoint is not None:
            self._endpoint.stop()


class StatusCollector(Collector):
    """Reads the status of tiering and leases at each scrape. Stateless."""

    def __init__(
        self,
        statuses: Callable[[], Sequence[TieringStatus]],
        leases: Callable[[], tuple[int, Sequence[Lease]]],
    ) -> None:
        """:param leases: the time, epoch milliseconds, and all leases."""
        self._statuses = statuses
        self._leases = leases

    def describe(self) -> Iterable[Metric]:
        """Returns nothing, so that registration reads no status."""
        return ()

    def collect(self) -> Iterable[Metric]:
        statuses = self._statuses()
        yield _states(statuses)
        for name, what, value in _GAUGES:
            gauge = GaugeMetricFamily(name, what, labels=_TABLE)
            for status in statuses:
                number = value(status)
                if number is not None:
                    gauge.add_metric([status.path.database, status.path.table], number)
            yield gauge
        now_ms, leases = self._leases()
        yield GaugeMetricFamily("sluice_leases", "Leases on KV snapshots.", len(leases))
        yield GaugeMetricFamily(
            "sluice_leased_buckets",
            "Buckets with a leased KV snapshot.",
            sum(lease.buckets for lease in leases),
        )
        oldest_ms = min((lease.created_ms for lease in leases), default=now_ms)
        yield GaugeMetricFamily(
            "sluice_lease_age_seconds", "Age of the oldest lease.", (now_ms - oldest_ms) / 1000
        )


def _states(statuses: Sequence[TieringStatus]) -> GaugeMetricFamily:
    """1 for the state that a table is in, 0 for the others."""
    gauge = GaugeMetricFamily(
        "sluice_table_state",
        "1 for the current tiering state of a table.",
        labels=(*_TABLE, "state"),
    )
    for status in statuses:
        for state in State:
            labels = [status.path.database, status.path.table, state.value]
            gauge.add_metric(labels, float(status.status == state.value))
    return gauge


def _seconds(ms: int | None) -> float | None:
    return None if ms is None else ms / 1000


_Value = Callable[[TieringStatus], float | None]
_GAUGES: tuple[tuple[str, str, _Value], ...] = (
    ("sluice_table_failures", "Failures since the last success.", lambda s: s.failures),
    ("sluice_table_paused", "1 if the table is paused.", lambda s: float(bool(s.paused))),
    (
        "sluice_table_tiering_epoch",
        "Number of times the table became due.",
        lambda s: s.tiering_epoch,
    ),
    ("sluice_table_lag_rows", "Log offsets missing in the lake.", lambda s: s.lag_rows),
    (
        "sluice_table_lag_seconds",
        "Age of the oldest offset missing in the lake.",
        lambda s: _seconds(s.lag_ms),
    ),
    (
        "sluice_table_last_round_seconds",
        "Duration of the last finished round.",
        lambda s: _seconds(s.last_round_ms),
    ),
    (
        "sluice_table_last_tiered_timestamp_seconds",
        "Time of the last successful round.",
        lambda s: _seconds(s.last_tiered_ms),
    ),
    (
        "sluice_table_next_attempt_timestamp_seconds",
        "Time from which the table may be assigned again.",
        lambda s: _seconds(s.next_attempt_ms),
    ),
)
