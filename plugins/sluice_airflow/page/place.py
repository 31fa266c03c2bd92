"""A cluster as one user sees it by one DAG."""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal

from fastapi import HTTPException

from sluice.client import Client, user_requests
from sluice.client.leases.ids import holder_of
from sluice.clock import Clock, SystemClock
from sluice.errors import TableNotExist, TablePaused
from sluice.model import TablePath, TieringRound
from sluice.page.cluster.cluster_reader import ClusterReader
from sluice.page.cluster.models import Answer, DagState, Link, PageLink
from sluice.page.requests.ports import Act, Viewer
from sluice.rounds.records.run_names import read_run_name
from sluice_airflow.page.access import Rights, record
from sluice_airflow.page.addresses import links_of_round, links_of_table
from sluice_airflow.page.clusters import Cluster, own_deployment
from sluice_airflow.page.dag_states import DagStates
from sluice_airflow.page.runs import dag_url, run_url, start_run, tab_url
from sluice_airflow.page.tiering_dags import TieringDag


class AirflowPlace:
    """One cluster, for one request."""

    is_in_airflow: bool = True

    def __init__(
        self,
        dag: TieringDag,
        cluster: Cluster,
        rights: Rights,
        others: Collection[str],
        states: DagStates,
    ) -> None:
        """:param rights: of the user who asks.
        :param others: ids of all DAGs that tier.
        :param states: of all requests.
        """
        self._dag = dag
        self._cluster = cluster
        self._rights = rights
        self._others = others
        self._states = states
        self.clock: Clock = SystemClock()

    @property
    def client(self) -> Client:
        return self._cluster.client

    @property
    def reader(self) -> ClusterReader:
        return self._cluster.reader

    @property
    def cluster(self) -> str:
        return self._cluster.connection.bootstrap

    @property
    def work_uri(self) -> str | None:
        return self._cluster.connection.work_uri or None

    @property
    def tier_now_by(self) -> Literal["run", "request"]:
        """A DAG that has the tiering tasks among others is not started for one table."""
        return "run" if self._dag.takes_tables else "request"

    def tier_now(self, path: TablePath, viewer: Viewer) -> Answer:
        """Starts a run for the table, or requests a round of the next run.

        :raises HTTPException: Airflow refuses the run.
        :raises TableNotExist, TablePaused: a run could not tier the table.
        """
        if not self._dag.takes_tables:
            done = user_requests.retier(self.client, path)
            return Answer(message=f"table {path}: {done}", url=dag_url(self._dag.dag_id))
        statuses = self.client.statuses.list(path, lags=False)
        if not statuses:
            raise TableNotExist(f"table {path} is not tiered")
        if statuses[0].paused:
            raise TablePaused(f"table {path} is paused: resume it, then tier it")
        started = start_run(self._dag.dag_id, path, viewer.name)
        self._states.forget(self._dag.dag_id)
        return started

    def why_not_act(self, path: TablePath) -> str | None:
        return self._dag.why_not(path)

    def authorize(self, act: Act, viewer: Viewer) -> None:
        """Whether a user who may edit the DAG may also do this by it. If so, it is audited.

        :raises HTTPException: 403; says why not.
        """
        if isinstance(act.on, str):
            why_not = self._why_not_drop(act.on)
        else:
            why_not = self.why_not_act(act.on)
            if why_not is None and act.name == "tier_now" and self._dag.takes_tables:
                why_not = self._rights.why_not_run(self._dag.dag_id)
        if why_not is not None:
            raise HTTPException(403, why_not)
        record(viewer.name or "", self._dag.dag_id, act)

    def _why_not_drop(self, lease_id: str) -> str | None:
        """Other leases than those of runs may hold any table, and nobody here knows whose."""
        if self._dag.tiers_all:
            return None
        holder, work_uri = holder_of(lease_id), self.work_uri
        if holder.kind == "run" and work_uri:
            run = read_run_name(work_uri, lease_id)
            own = own_deployment(self._cluster.connection)
            if run and holder.deployment_id == own and self._rights.may("PUT", run.dag_id):
                return None
        return (
            f"lease {lease_id} is of no run of a DAG that you may edit: only the page of a DAG that"
            " tiers all tables drops it"
        )

    def shows_dag(self, dag_id: str) -> bool:
        return self._rights.may("GET", dag_id)

    def dag(self) -> DagState | None:
        return self._states.of(self._dag.dag_id)

    def pages(self) -> list[PageLink]:
        readable = self._rights.readable(self._others)
        if len(readable) < 2:
            return []
        return [
            PageLink(name=dag_id, url=tab_url(dag_id), is_this=dag_id == self._dag.dag_id)
            for dag_id in readable
        ]

    def table_links(self, path: TablePath) -> list[Link]:
        return links_of_table(self._dag, path)

    def run_links(self, dag_id: str, run_id: str, deployment_id: str | None) -> list[Link]:
        """Another Airflow may have a run of the same name."""
        is_own = deployment_id == own_deployment(self._cluster.connection)
        if not is_own or not self.shows_dag(dag_id):
            return []
        return [Link(name="Run", url=run_url(dag_id, run_id))]

    def round_links(self, path: TablePath, ended: TieringRound) -> list[Link]:
        return links_of_round(self._dag, path, ended, self.shows_dag)
