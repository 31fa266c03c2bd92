"""The page as an application of Airflow's API server, below /sluice."""

from __future__ import annotations

from typing import Annotated, Any

from airflow.api_fastapi.app import API_ROOT_PATH
from airflow.api_fastapi.core_api.security import get_user, requires_access_dag
from fastapi import Depends, FastAPI, Request
from fastapi.responses import RedirectResponse, Response
from starlette.datastructures import URL
from starlette.exceptions import HTTPException

import sluice_airflow.airflow_api.logs  # noqa: F401  (masks what the page logs in the API server)
from sluice.page.actions.acts import require_checks
from sluice.page.app import API, page_app
from sluice.page.requests.guard import problem, refused
from sluice.page.requests.ports import Viewer, serve
from sluice_airflow.page.access import Rights, require_own_page
from sluice_airflow.page.clusters import Clusters
from sluice_airflow.page.dag_states import DagStates
from sluice_airflow.page.place import AirflowPlace
from sluice_airflow.page.plain_pages import ICON, plain_page
from sluice_airflow.page.runs import page_url
from sluice_airflow.page.tiering_dags import TieringDags

NO_DAG = (
    "No DAG that you may read tiers lake tables.\n"
    "To add one, put the output of `sluice airflow-dag` into a file of your DAG folder, and"
    " unpause the DAG sluice_lake_tiering. Airflow needs some seconds to find a new file."
)
User = Annotated[Any, Depends(get_user)]


class TiersNothing(Exception):
    """A DAG that tiers nothing."""

    def __init__(self, dag_id: str, others: list[str]) -> None:
        super().__init__(f"DAG {dag_id} tiers no lake tables")
        self.others = others


def airflow_app() -> FastAPI:
    """The application, to mount at /sluice."""
    dags, clusters, states = TieringDags(), Clusters(), DagStates()

    def read(request: Request, dag_id: str, user: User) -> None:
        rights, known = Rights(user), dags.all()
        dag = known.get(dag_id)
        if dag is None:
            raise TiersNothing(dag_id, rights.readable(known))
        if API not in request.scope["path"]:  # the page shows what is wrong with the connection
            return
        may_act = rights.may("PUT", dag_id)
        why_not = None if may_act else f"your role may read DAG {dag_id}, but not edit it"
        why_not_tier_now = why_not
        if may_act and dag.takes_tables:
            why_not_tier_now = rights.why_not_run(dag_id)
        cluster = clusters.of(dag.connection_id, dag_id)
        place = AirflowPlace(dag, cluster, rights, known, states)
        serve(request, place, Viewer(user.get_name(), may_act, why_not, why_not_tier_now))

    may_read = [Depends(requires_access_dag("GET")), Depends(read)]
    may_act = [Depends(require_own_page), Depends(requires_access_dag("PUT"))]
    app = page_app("/dags/{dag_id}", may_read, may_act)
    app.add_exception_handler(HTTPException, _refused)
    app.add_exception_handler(TiersNothing, _tiers_nothing)

    @app.get("/", include_in_schema=False)
    def first(user: User) -> Response:
        for dag_id in Rights(user).readable(dags.all()):
            return RedirectResponse(page_url(dag_id))
        return plain_page("Lake tiering", NO_DAG)

    @app.get("/icon.svg", include_in_schema=False)
    def icon() -> Response:
        return Response(
            ICON, media_type="image/svg+xml", headers={"Cache-Control": "public, max-age=86400"}
        )

    require_checks(app)
    return app


def _is_page(request: Request) -> bool:
    """Whether a person has opened this address, and not a script."""
    return request.method == "GET" and API not in request.scope["path"]


def _why_not(request: Request) -> str:
    verb = "read" if request.method == "GET" else "edit"
    return f"your role may not {verb} DAG {request.path_params.get('dag_id')}"


async def _refused(request: Request, error: Exception) -> Response:
    """The answer to who may not: a person without a login is sent to Airflow's."""
    assert isinstance(error, HTTPException)
    if not _is_page(request) or error.status_code not in (401, 403):
        if error.status_code == 403 and error.detail == "Forbidden":  # Airflow's own says no more
            error = HTTPException(403, _why_not(request), error.headers)
        return await refused(request, error)
    if error.status_code == 403:
        text = f"{error.detail}\nAsk who manages Airflow for the permission to read this DAG."
        return plain_page("Lake tiering: not allowed", text, status=403)
    login = URL(f"{API_ROOT_PATH}api/v2/auth/login").include_query_params(next=request.url.path)
    return RedirectResponse(str(login))


def _tiers_nothing(request: Request, error: Exception) -> Response:
    assert isinstance(error, TiersNothing)
    if not _is_page(request):
        names = f"; these do: {', '.join(error.others)}" if error.others else ""
        return problem(404, f"{error}{names}", "TiersNothing")
    if not error.others:
        return plain_page("Lake tiering", f"{error}.\n{NO_DAG}")
    links = {dag_id: page_url(dag_id) for dag_id in error.others}
    return plain_page("Lake tiering", f"{error}. These DAGs do:", links)
