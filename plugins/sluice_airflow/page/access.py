"""Who may read the page and act on it: Airflow's login, its permissions, and the page's origin."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from airflow.api_fastapi.app import API_BASE_URL, get_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity, DagDetails
from airflow.models.dag import DagModel
from airflow.models.log import Log
from airflow.utils.session import create_session
from fastapi import Request

from sluice.page.requests import guard
from sluice.page.requests.ports import Act
from sluice_airflow.airflow_api.airflow_names import conf

TEXT_MAX = 1_000
"""Characters of a lease id in the audit log: any text may be one."""


class Rights:
    """What Airflow allows one user. For one request: each answer of its auth manager is kept."""

    def __init__(self, user: Any) -> None:
        self._user = user
        self._known: dict[tuple[str, str, DagAccessEntity | None], bool] = {}

    def may(self, method: str, dag_id: str, entity: DagAccessEntity | None = None) -> bool:
        """Whether the user may GET, PUT or POST something of a DAG."""
        key = method, dag_id, entity
        if key not in self._known:
            team = DagModel.get_team_name(dag_id) if has_teams() else None
            details = DagDetails(id=dag_id, team_name=team)
            self._known[key] = get_auth_manager().is_authorized_dag(
                method=method, access_entity=entity, details=details, user=self._user
            )
        return self._known[key]

    def readable(self, dag_ids: Iterable[str]) -> list[str]:
        """Those DAGs that the user may read, in the same order."""
        if has_teams():
            return [dag_id for dag_id in dag_ids if self.may("GET", dag_id)]
        asked = list(dag_ids)  # some auth managers answer for all of them in one call
        found = get_auth_manager().filter_authorized_dag_ids(
            dag_ids=set(asked), user=self._user, method="GET"
        )
        return [dag_id for dag_id in asked if dag_id in found]

    def why_not_run(self, dag_id: str) -> str | None:
        """Why the user may not start a run of a DAG; None: they may."""
        if self.may("POST", dag_id, DagAccessEntity.RUN):
            return None
        return f"your role may not trigger runs of DAG {dag_id}"


def has_teams() -> bool:
    """Whether Airflow gives DAGs and connections to teams."""
    return bool(conf.getboolean("core", "multi_team", fallback=False))


def require_own_page(request: Request) -> None:
    """Refuses a change that another page in the same browser may have sent.

    Airflow's cookie is sent with requests of other pages of the same site.

    :raises HTTPException: 403; says what is missing.
    """
    guard.require_own_page(request, programs=True, public_url=API_BASE_URL)


def record(user_name: str, dag_id: str, act: Act) -> None:
    """Writes what a user does to Airflow's audit log, before it is done, as Airflow's API does."""
    entry = Log(
        event=f"sluice_{act.name}",
        owner=user_name,
        owner_display_name=user_name,
        dag_id=dag_id,
        extra=json.dumps({name: value[:TEXT_MAX] for name, value in act.what().items()}),
    )
    with create_session(scoped=False) as session:
        session.add(entry)
