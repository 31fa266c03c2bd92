"""Who holds a lease or tiers a table: in words, and with links to the run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from sluice.client import Client
from sluice.client.leases.ids import holder_of
from sluice.model import TieringStatus
from sluice.page.cluster.masked import masked
from sluice.page.cluster.models import TieredBy
from sluice.page.cluster.per_owner import PerOwner
from sluice.page.requests.known_runs import KnownRuns
from sluice.page.requests.ports import Place
from sluice.rounds.records.run_names import RunName

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
