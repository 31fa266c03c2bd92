"""Who holds a lease or tiers a table: in words, and with links to the run of the work folder."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from functools import partial

from sluice.client import Client
from sluice.client.connection.daemon_pool import DaemonPool
from sluice.client.leases.ids import holder_of
from sluice.clock import Clock
from sluice.model import TieringStatus
from sluice.page.cluster.masked import masked
from sluice.page.cluster.models import TieredBy
from sluice.page.cluster.per_owner import PerOwner
from sluice.page.requests.ports import Place
from sluice.rounds.records.run_names import RunName, read_run_name

READ_MAX = 100
"""Most names that are read at a time."""
READ_S = 5.0
"""Longest wait of one answer. A name that comes later is in a later answer."""
AGAIN_S = 30.0
"""A run writes its name after it has leased snapshots, so a missing name is read again."""
KEPT_MAX = 1_000
"""Names that are kept besides those of the newest answer."""
_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class _Reading:
    result: Future[RunName | None]
    until_s: float
    """Monotonic time until which answers wait for it: together they wait once."""


class KnownRuns:
    """What Airflow calls the runs of a work folder."""

    def __init__(self, work_uri: str | None, clock: Clock) -> None:
        """:param work_uri: None: no name is known."""
        self._work_uri = work_uri
        self._clock = clock
        self._pool = DaemonPool(_AT_ONCE, "sluice-run-name")
        self._lock = threading.Lock()  # guards the rest; nobody reads files under it
        self._found: dict[str, tuple[RunName | None, float]] = {}
        self._reading: dict[str, _Reading] = {}

    def of(self, lease_ids: Iterable[str], wait_s: float | None = None) -> dict[str, RunName]:
        """The names of those runs that are known. A storage that hangs costs one wait.

        :param wait_s: a shorter wait; who asks later may wait for the rest of ``READ_S``.
        """
        if not self._work_uri:
            return {}
        of_runs = [one for one in lease_ids if holder_of(one).kind == "run"]
        wanted = set(of_runs)
        with self._lock:
            self._collect()
            # An answer for one table has other leases than the one for all.
            others = [one for one in self._found if one not in wanted]
            for lease_id in others[:-KEPT_MAX]:
                del self._found[lease_id]
            now_s = self._clock.monotonic_s()
            missing = [one for one in of_runs if self._is_missing(one, now_s)]
            for lease_id in missing[: max(READ_MAX - len(self._reading), 0)]:
                read = self._pool.submit(partial(read_run_name, self._work_uri, lease_id))
                self._reading[lease_id] = _Reading(read, time.monotonic() + READ_S)
            reading = [self._reading[one] for one in wanted & self._reading.keys()]
        until_s = max((each.until_s for each in reading), default=0.0)
        left_s = max(until_s - time.monotonic(), 0.0)
        wait([each.result for each in reading], left_s if wait_s is None else min(left_s, wait_s))
        with self._lock:
            self._collect()
            found = {one: self._found[one][0] for one in of_runs if one in self._found}
        return {lease_id: name for lease_id, name in found.items() if name}

    def _collect(self) -> None:
        now_s = self._clock.monotonic_s()
        for lease_id in [one for one, each in self._reading.items() if each.result.done()]:
            reading = self._reading.pop(lease_id).result
            self._found[lease_id] = None if reading.exception() else reading.result(), now_s

    def _is_missing(self, lease_id: str, now_s: float) -> bool:
        name, read_s = self._found.get(lease_id, (None, -AGAIN_S))
        is_due = name is None and now_s - read_s >= AGAIN_S
        return is_due and lease_id not in self._reading


SOON_S = 0.05
"""Longest wait of lists of tables: they have the names of runs at their next refresh."""

_known_runs: PerOwner[Client, KnownRuns] = PerOwner()


def runs_of(
    place: Place, lease_ids: Iterable[str], wait_s: float | None = None
) -> Mapping[str, RunName]:
    """The runs behind these lease ids, of DAGs that the viewer may read.

    :param wait_s: longest wait for names that were not read yet; None: as :class:`KnownRuns`.
    """
    known = _known_runs.of(place.client, lambda: KnownRuns(place.work_uri, place.clock))
    found = known.of(lease_ids, wait_s)
    return {lease_id: run for lease_id, run in found.items() if place.shows_dag(run.dag_id)}


def holder_in_words(lease_id: str, run: RunName | None) -> str:
    """``the run manual__1 of DAG lake, Airflow prod``, or what the id alone says."""
    holder = holder_of(lease_id)
    return masked(f"{run}, Airflow {holder.deployment_id}" if run else str(holder))


def tiered_by(place: Place, statuses: Sequence[TieringStatus]) -> dict[str, TieredBy]:
    """Who tiers tables now, by what their claims name. It waits for names only shortly."""
    claimed_by = {each.claimed_by for each in statuses if each.claimed_by}
    runs = runs_of(place, sorted(claimed_by), SOON_S)
    return {each: _tiered_by(place, each, runs.get(each)) for each in claimed_by}


def _tiered_by(place: Place, claimed_by: str, run: RunName | None) -> TieredBy:
    holder = holder_of(claimed_by)
    if holder.kind != "run":  # a process: its own name says the most
        return TieredBy(name=masked(claimed_by))
    if run is None:
        return TieredBy(name=masked(f"{holder}, lease {claimed_by}"), is_run=True)
    links = place.run_links(masked(run.dag_id), masked(run.run_id), holder.deployment_id)
    return TieredBy(name=holder_in_words(claimed_by, run), is_run=True, links=links)
