"""The cluster of `sluice ui`, which runs without Airflow."""

from __future__ import annotations

import logging
from typing import Literal

from sluice.client import Client, user_requests
from sluice.clock import Clock, SystemClock
from sluice.model import TablePath, TieringRound
from sluice.page.cluster.cluster_reader import ClusterReader
from sluice.page.cluster.models import Answer, DagState, Link, PageLink
from sluice.page.requests.ports import Act, Viewer

_log = logging.getLogger(__name__)


class LocalPlace:
    """One cluster. Safe for use by many threads."""

    is_in_airflow: bool = False
    tier_now_by: Literal["run", "request"] = "request"

    def __init__(
        self, client: Client, clock: Clock | None = None, work_uri: str | None = None
    ) -> None:
        """:param work_uri: the work folder of Airflow's runs; None: not known."""
        self.client = client
        self.work_uri = work_uri
        self.clock = clock or SystemClock()
        self.reader = ClusterReader(client, self.clock)

    @property
    def cluster(self) -> str:
        return self.client.config.bootstrap

    def tier_now(self, path: TablePath, viewer: Viewer) -> Answer:  # noqa: ARG002
        return Answer(message=f"table {path}: {user_requests.retier(self.client, path)}")

    def authorize(self, act: Act, viewer: Viewer) -> None:  # noqa: ARG002
        """Who has logged in may do all of it: the command's own access to the cluster decides."""
        _log.info("%s of %r by the page", act.name, act.what())

    def why_not_act(self, path: TablePath) -> str | None:  # noqa: ARG002
        return None

    def dag(self) -> DagState | None:
        return None

    def pages(self) -> list[PageLink]:
        return []

    def shows_dag(self, dag_id: str) -> bool:  # noqa: ARG002
        return True

    def table_links(self, path: TablePath) -> list[Link]:  # noqa: ARG002
        return []

    def round_links(self, path: TablePath, ended: TieringRound) -> list[Link]:  # noqa: ARG002
        return []

    def run_links(
        self,
        dag_id: str,  # noqa: ARG002
        run_id: str,  # noqa: ARG002
        deployment_id: str | None,  # noqa: ARG002
    ) -> list[Link]:
        return []
