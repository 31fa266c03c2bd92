"""Reads a cluster for its metrics, with a time limit and a short cache."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import Protocol

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from sluice.masking import mask
from sluice.metrics.tables import table_gauges
from sluice.model import TieringStatus

_LOG = logging.getLogger(__name__)


class HasLease(Protocol):
    """A lease as the server stores it, or as the client lists it."""

    @property
    def buckets(self) -> int: ...
    @property
    def created_ms(self) -> int: ...
    @property
    def held_bytes(self) -> int | None: ...


@dataclass(frozen=True, slots=True)
class ClusterState:
    """All statuses and leases of a cluster."""

    statuses: Sequence[TieringStatus]
    leases: Sequence[HasLease] | None
    """None: the cluster lists no leases."""
    now_ms: int
    """The time when the leases were listed, epoch milliseconds of the cluster."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One read of a cluster."""

    seconds: float
    ended_s: float
    """When it ended, on the monotonic clock."""
    state: ClusterState | None = None
    """None: the read failed."""
    error: str | None = None
    """Why the read failed, or why the statuses are incomplete."""


def read_once(read: Callable[[], ClusterState]) -> Reading:
    """Reads a cluster; an error becomes part of the reading."""
    started_s = time.monotonic()
    state: ClusterState | None = None
    try:
        state = read()
        error = next((status.note for status in state.statuses if status.is_unread), None)
    except Exception as caught:  # the page must be served whatever the error is
        error = mask(f"{type(caught).__name__}: {caught}")
    ended_s = time.monotonic()
    return Reading(ended_s - started_s, ended_s, state, error)


class CachedReadings:
    """Reads a cluster within a time limit, at most once in a while. Safe for use by many threads.

    A read that exceeds the limit continues in the background, and the next caller gets its result.
    """

    def __init__(
        self, read: Callable[[], ClusterState], *, cache_s: float, timeout_s: float
    ) -> None:
        self._read = read
        self._cache_s = cache_s
        self._timeout_s = timeout_s
        self._lock = threading.Lock()  # guards the rest
        self._running: Future[Reading] | None = None
        self._last: Reading | None = None

    def reading(self) -> Reading:
        """The last reading, if it is new enough, or a new one."""
        with self._lock:
            self._collect()
            if self._last is not None and time.monotonic() - self._last.ended_s < self._cache_s:
                return self._last
            self._running = self._running or self._start()
            wait([self._running], self._timeout_s)
            if not self._collect():
                error = f"no complete answer within {self._timeout_s:g} s"
                self._last = Reading(self._timeout_s, time.monotonic(), error=error)
            assert self._last is not None
            return self._last

    def _collect(self) -> bool:
        """Takes over the result of the running read, if that has ended."""
        if self._running is None or not self._running.done():
            return False
        self._last, self._running = self._running.result(), None
        return True

    def _start(self) -> Future[Reading]:
        answer: Future[Reading] = Future()

        def run() -> None:
            answer.set_result(read_once(self._read))

        threading.Thread(target=run, name="sluice-metrics-read", daemon=True).start()
        return answer


class ClusterCollector(Collector):
    """The gauges of a cluster, from one reading for each scrape; one scrape at a time."""

    def __init__(self, reading: Callable[[], Reading]) -> None:
        self._reading = reading
        self._error: str | None = None

    def describe(self) -> Iterable[Metric]:
        """Returns nothing, so that registration reads no status."""
        return ()

    def collect(self) -> Iterable[Metric]:
        reading = self._reading()
        self._log_change(reading.error)
        yield GaugeMetricFamily(
            "sluice_up",
            "1 if the last read of the cluster succeeded.",
            float(reading.error is None),
        )
        yield GaugeMetricFamily(
            "sluice_read_seconds", "Duration of the last read of the cluster.", reading.seconds
        )
        state = reading.state
        if state is not None:
            yield from table_gauges([each for each in state.statuses if not each.is_unread])
            if state.leases is not None:
                yield from _lease_gauges(state.leases, state.now_ms)

    def _log_change(self, error: str | None) -> None:
        if error is not None and self._error is None:
            _LOG.warning("the cluster cannot be read: %s", error)
        if error is None and self._error is not None:
            _LOG.warning("the cluster can be read again")
        self._error = error


def _lease_gauges(leases: Sequence[HasLease], now_ms: int) -> Iterable[Metric]:
    yield GaugeMetricFamily("sluice_leases", "Leases on KV snapshots.", len(leases))
    yield GaugeMetricFamily(
        "sluice_leased_buckets",
        "Buckets with a leased KV snapshot.",
        sum(lease.buckets for lease in leases),
    )
    sizes = [lease.held_bytes for lease in leases]
    if None not in sizes:
        yield GaugeMetricFamily(
            "sluice_leased_bytes",
            "Stored bytes of leased KV snapshots; a snapshot counts for each lease.",
            sum(filter(None, sizes)),
        )
    oldest_ms = min((lease.created_ms for lease in leases), default=now_ms)
    yield GaugeMetricFamily(
        "sluice_lease_age_seconds", "Age of the oldest lease.", (now_ms - oldest_ms) / 1000
    )
