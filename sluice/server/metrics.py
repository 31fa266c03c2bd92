"""The metrics of the embedded server: its version, its rounds as they end, and its own statuses."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sluice.config import ServerConfig
from sluice.metrics.endpoint import MetricsEndpoint
from sluice.metrics.readings import ClusterCollector, ClusterState, HasLease, read_once
from sluice.metrics.rounds import RoundMetrics
from sluice.model import TieringRound, TieringStatus


class Metrics:
    """All metrics, served at one address."""

    def __init__(self, config: ServerConfig) -> None:
        self._config = config
        self._rounds = RoundMetrics()
        self._endpoint: MetricsEndpoint | None = None

    @property
    def address(self) -> str:
        """The URL with its bound port; empty before ``start``."""
        return "" if self._endpoint is None else self._endpoint.address

    def ended(self, ended: TieringRound) -> None:
        """Adds a round that has ended. Quick, and from any thread."""
        self._rounds.ended(ended.succeeded, ended.duration_ms)

    def start(
        self,
        statuses: Callable[[], Sequence[TieringStatus]],
        leases: Callable[[], tuple[int, Sequence[HasLease]]],
    ) -> None:
        """Serves the metrics.

        :param leases: the time, epoch milliseconds, and all leases.
        :raises ConfigurationError: the address cannot be bound, or is not allowed.
        """

        def read() -> ClusterState:
            found = statuses()
            now_ms, held = leases()
            return ClusterState(found, held, now_ms)

        cluster = ClusterCollector(lambda: read_once(read))
        self._endpoint = MetricsEndpoint(
            self._config.metrics,
            "server",
            [cluster, self._rounds],
            setting="server.metrics",
            insecure=self._config.insecure,
            allowed_by="--insecure (server.insecure)",
            hosts=self._config.metrics_hosts.replace(",", " ").split(),
            hosts_by="server.metrics_hosts",
        )
        self._endpoint.start()

    def stop(self) -> None:
        """Stops serving. Does nothing before ``start``."""
        if self._endpoint is not None:
            self._endpoint.stop()
