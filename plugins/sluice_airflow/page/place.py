"""A cluster as one user sees it by one DAG."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from sluice.client import Client, user_requests
from sluice.clock import Clock, SystemClock
from sluice.errors import TableNotExist, TablePaused
from sluice.model import TablePath, TieringRound
from sluice.page.cluster_reader import ClusterReader
from sluice.page.models import Answer, DagState, Link, PageLink
from sluice.page.ports import Viewer
from sluice_airflow.page.addresses import links_of_round, links_of_table
from sluice_airflow.page.clusters import Cluster
from sluice_airflow.page.runs import dag_state, dag_url, start_run, tab_url
from sluice_airflow.page.tiering_dags import TieringDag


class AirflowPlace:
    """One cluster, for one request."""

    def __init__(
        self,
        dag: TieringDag,
        cluster: Cluster,
        readable: Sequence[str],
        check_may_run: Callable[[], None],
    ) -> None:
        """:param readable: ids of the DAGs that tier and that the user may read.
        :param check_may_run: raises HTTPException if the user may not start a run of the DAG.
        """
        self._dag = dag
        self._cluster = cluster
        self._readable = readable
        self._check_may_run = check_may_run
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

        :raises HTTPException: the user may not start a run, or Airflow refuses it.
        :raises TableNotExist, TablePaused: a run could not tier the table.
        """
        if not self._dag.takes_tables:
            done = user_requests.retier(self.client, path)
            return Answer(message=f"table {path}: {done}", url=dag_url(self._dag.dag_id))
        self._check_may_run()
        statuses = self.client.statuses.list(path)
        if not statuses:
            raise TableNotExist(f"table {path} is not tiered")
        if statuses[0].paused:
            raise TablePaused(f"table {path} is paused: resume it, then tier it")
        return start_run(self._dag.dag_id, path, viewer.name)

    def dag(self) -> DagState | None:
        return dag_state(self._dag.dag_id)

    def pages(self) -> list[PageLink]:
        if len(self._readable) < 2:
            return []
        return [
            PageLink(name=dag_id, url=tab_url(dag_id), is_this=dag_id == self._dag.dag_id)
            for dag_id in self._readable
        ]

    def table_links(self, path: TablePath) -> list[Link]:
        return links_of_table(self._dag, path)

    def round_links(self, path: TablePath, ended: TieringRound) -> list[Link]:
        return links_of_round(self._dag, path, ended)
