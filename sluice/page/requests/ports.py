"""What the page needs from where it is served: Airflow, or `sluice ui`.

Where it is served, a FastAPI dependency calls :func:`serve` for each request, after it has checked
who asks. The API takes place and viewer from the request.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, Protocol

from fastapi import Depends, Request

from sluice.client import Client
from sluice.clock import Clock
from sluice.model import TablePath, TieringRound
from sluice.page.cluster.cluster_reader import ClusterReader
from sluice.page.cluster.models import Answer, DagState, Link, PageLink


@dataclass(frozen=True, slots=True)
class Viewer:
    """Who asks, and what they may do."""

    name: str | None
    may_act: bool
    why_not: str | None = None
    """Why they may not act."""
    why_not_tier_now: str | None = None
    """Why they may not tier a table now, which may need another right."""


@dataclass(frozen=True, slots=True)
class Act:
    """What a viewer is about to do."""

    name: str
    """Of the action: ``pause``, ``drop_lease``."""
    on: TablePath | str
    """The table, or the id of the lease."""

    def what(self) -> dict[str, str]:
        """What it is done to, for a log."""
        if isinstance(self.on, str):
            return {"lease_id": self.on}
        return {"database": self.on.database, "table": self.on.table}


class Place(Protocol):
    """One cluster as it is served to people. Safe for use by many threads."""

    @property
    def client(self) -> Client: ...
    @property
    def reader(self) -> ClusterReader: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def cluster(self) -> str:
        """The cluster's address, without secrets."""
        ...

    @property
    def is_in_airflow(self) -> bool: ...
    @property
    def work_uri(self) -> str | None:
        """The work folder of the runs, with their plans and reports; None: not known."""
        ...

    @property
    def tier_now_by(self) -> Literal["run", "request"]:
        """Whether :meth:`tier_now` starts a run of the DAG, or requests a round of any worker."""
        ...

    def tier_now(self, path: TablePath, viewer: Viewer) -> Answer: ...

    def authorize(self, act: Act, viewer: Viewer) -> None:
        """Checks what a viewer who may act is about to do, and writes it down if there is a log.

        :raises HTTPException: 403; says why they may not do this.
        """
        ...

    def why_not_act(self, path: TablePath) -> str | None:
        """Why nobody acts on a table here; None: those may who may act at all."""
        ...

    def dag(self) -> DagState | None:
        """The DAG that tiers; None without Airflow."""
        ...

    def pages(self) -> list[PageLink]:
        """The pages of all DAGs that tier, if there are several."""
        ...

    def shows_dag(self, dag_id: str) -> bool:
        """Whether the viewer may read the name of a DAG."""
        ...

    def table_links(self, path: TablePath) -> list[Link]: ...
    def round_links(self, path: TablePath, ended: TieringRound) -> list[Link]: ...
    def run_links(self, dag_id: str, run_id: str, deployment_id: str | None) -> list[Link]:
        """Pages of a run that holds a lease, if the viewer may open them.

        :param deployment_id: of the run's Airflow, which need not be the one that serves.
        """
        ...


def why_not_act(place: Place, viewer: Viewer, path: TablePath) -> str | None:
    """Why a viewer may not act on a table; None: they may."""
    return viewer.why_not or place.why_not_act(path)


def serve(request: Request, place: Place, viewer: Viewer) -> None:
    """Says which cluster a request is about, and who asks."""
    request.state.sluice_place = place
    request.state.sluice_viewer = viewer


def place_of(request: Request) -> Place:
    place: Place = request.state.sluice_place
    return place


def viewer_of(request: Request) -> Viewer:
    viewer: Viewer = request.state.sluice_viewer
    return viewer


AtPlace = Annotated[Place, Depends(place_of)]
By = Annotated[Viewer, Depends(viewer_of)]
