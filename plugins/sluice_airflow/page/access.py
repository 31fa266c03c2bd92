"""Who may read the page and act on it: Airflow's login, its permissions, and the page's origin."""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from airflow.api_fastapi.app import API_BASE_URL, get_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity, DagDetails
from airflow.models.dag import DagModel
from airflow.models.log import Log
from airflow.utils.session import create_session
from fastapi import HTTPException, Request

from sluice.page.guard import OWN_HEADER

LEASE_ID_MAX = 1_000
"""Characters of a lease id in the audit log: any text may be one."""


def may(user: Any, method: str, dag_id: str, entity: DagAccessEntity | None = None) -> bool:
    """Whether Airflow allows a user to GET, PUT or POST something of a DAG."""
    details = DagDetails(id=dag_id, team_name=DagModel.get_team_name(dag_id))
    allowed: bool = get_auth_manager().is_authorized_dag(
        method=method, access_entity=entity, details=details, user=user
    )
    return allowed


def readable_of(user: Any, dag_ids: Iterable[str]) -> list[str]:
    """Those DAGs that a user may read."""
    return [dag_id for dag_id in dag_ids if may(user, "GET", dag_id)]


def check_may_run(user: Any, dag_id: str) -> None:
    """:raises HTTPException: 403: the user may not start a run of the DAG."""
    if not may(user, "POST", dag_id, DagAccessEntity.RUN):
        raise HTTPException(403, f"your role may not trigger runs of DAG {dag_id}")


def require_own_page(request: Request) -> None:
    """Refuses a change that another page in the same browser may have sent.

    Airflow's cookie is sent with requests of other pages of the same site. A program with a Bearer
    token may act: it says nothing of an origin, as browsers do.

    :raises HTTPException: 403; says what is missing.
    """
    headers = request.headers
    origin, site = headers.get("origin"), headers.get("sec-fetch-site")
    is_program = headers.get("authorization", "").lower().startswith("bearer ")
    if is_program and origin is None and site is None:
        return
    if OWN_HEADER not in headers:
        raise HTTPException(403, f"the header {OWN_HEADER} is missing: send it with any value")
    if site is not None:  # browsers set it, and no script can
        is_own = site == "same-origin"
    else:
        # Behind a proxy, Host may be another than the one that people see.
        own = {headers.get("host"), urlsplit(API_BASE_URL).netloc or None}
        is_own = origin is not None and urlsplit(origin).netloc in own
    if not is_own:
        raise HTTPException(403, "another page sent this request: use the buttons of this page")


async def about(request: Request) -> dict[str, str]:
    """What a request is about: a table, or the lease that its body names."""
    path = request.path_params
    found: dict[str, str] = {n: path[n] for n in ("database", "table") if n in path}
    with suppress(ValueError):  # the call itself refuses a wrong body
        body = json.loads(await request.body() or b"{}")
        if isinstance(body, dict) and "lease_id" in body:
            found["lease_id"] = str(body["lease_id"])[:LEASE_ID_MAX]
    return found


def record(request: Request, user: Any, dag_id: str, about: dict[str, str]) -> None:
    """Writes what a user does to Airflow's audit log, before it is done, as Airflow's API does."""
    name = user.get_name()
    entry = Log(
        event=f"sluice_{request.scope['route'].name}",
        owner=name,
        owner_display_name=name,
        dag_id=dag_id,
        extra=json.dumps(about),
    )
    with create_session(scoped=False) as session:
        session.add(entry)
