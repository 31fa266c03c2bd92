"""The page as one FastAPI application: built front end, JSON API, and its description."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.middleware.gzip import GZipMiddleware
from fastapi.responses import FileResponse, JSONResponse, Response
from fastapi.routing import APIRoute
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException

from sluice import __version__
from sluice.errors import SluiceError
from sluice.page.actions.acts import refuse_unchecked, require_checks
from sluice.page.actions.routes import actions
from sluice.page.cluster.models import Problem
from sluice.page.leases.reads import lease_reads
from sluice.page.maintenance.reads import maintenance_reads
from sluice.page.requests.guard import STATUSES, UNCHANGING, Guard, problem, refused, status_of
from sluice.page.tables.list_reads import reads
from sluice.page.tables.table_reads import table_reads

STATIC = Path(__file__).parent / "static"
"""The built front end: `make page` writes it from `frontend/`."""
API = "/api/v1"
_STATUSES = {400, 401, 413, 500, 503, *STATUSES}
"""Of problems: those of the cluster, and of requests that are refused before they reach it."""
_PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {"model": Problem} for status in sorted(_STATUSES)
}


def page_app(prefix: str, may_read: Sequence[Any], may_act: Sequence[Any]) -> FastAPI:
    """The application, to mount or to serve.

    :param prefix: of each page: empty, or with a path parameter that names the cluster.
    :param may_read: FastAPI dependencies of everything; one of them calls ``serve``.
    :param may_act: more dependencies of each POST, before what it acts on is checked.
    """
    app = FastAPI(
        title="Sluice: lake tiering",
        version=__version__,
        description="What the page of Sluice shows, and what it does.",
        docs_url=None,
        redoc_url=None,
        openapi_url=None,  # served below, behind the dependencies
        dependencies=[Depends(refuse_unchecked)],
        generate_unique_id_function=_operation_id,
    )
    # 100 tables are 200 kB of JSON, and 10 kB compressed, for 1 ms of CPU.
    app.add_middleware(GZipMiddleware, minimum_size=1_000, compresslevel=4)
    _include(app, f"{prefix}{API}", list(may_read), list(may_act))
    page = APIRouter(dependencies=list(may_read), include_in_schema=False)

    @page.get(f"{prefix}/")
    def index() -> FileResponse:
        return FileResponse(STATIC / "index.html", headers={"Cache-Control": "no-cache"})

    @page.get(f"{prefix}{API}/openapi.json")
    def description(request: Request) -> JSONResponse:
        found = app.openapi()
        if root := request.scope.get("root_path"):  # where another application has mounted this one
            found = {**found, "servers": [{"url": root}]}
        return JSONResponse(found)

    app.include_router(page)
    app.mount(f"{prefix}/assets", _Assets(directory=STATIC / "assets", check_dir=False))
    app.add_exception_handler(SluiceError, _problem)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, refused)
    app.add_middleware(Guard)
    require_checks(app)
    return app


def _include(app: FastAPI, prefix: str, may_read: list[Any], may_act: list[Any]) -> None:
    """Adds the calls. At once: through a router of all of them, each would be made twice."""
    for router, tag, may in (
        (reads, "tables", may_read),
        (table_reads, "tables", may_read),
        (lease_reads, "leases", may_read),
        (maintenance_reads, "maintenance", may_read),
        (actions, "actions", [*may_read, *may_act]),
    ):
        _summarize(router)
        app.include_router(router, prefix=prefix, tags=[tag], dependencies=may, responses=_PROBLEMS)


class _Assets(StaticFiles):
    """Built files, whose names change with their contents."""

    def lookup_path(self, path: str) -> tuple[str, os.stat_result | None]:
        if "\0" in path:  # the system refuses it, which an older Starlette lets through as an error
            return "", None
        return super().lookup_path(path)

    def file_response(self, *args: Any, **more: Any) -> Response:
        answer = super().file_response(*args, **more)
        answer.headers["Cache-Control"] = UNCHANGING
        return answer


def _operation_id(route: APIRoute) -> str:
    """A name for clients that are made from the description: `table_rounds`, `pause`."""
    is_part = "{table}" in route.path_format and "GET" in route.methods
    name = "" if route.name == "details" else f"_{route.name}"
    return f"table{name}" if is_part else route.name


def _summarize(router: APIRouter) -> None:
    """Makes the first sentence of each operation its summary, and the rest its description."""
    for route in router.routes:
        if isinstance(route, APIRoute) and route.summary is None:
            first, _, rest = route.description.partition("\n\n")
            route.summary = " ".join(first.split()).removesuffix(".")
            # A description that is empty would be the whole docstring again; FastAPI cuts at \f.
            route.description = rest or "\f"


def _problem(request: Request, error: Exception) -> JSONResponse:  # noqa: ARG001
    """An error of the cluster as one line, without secrets."""
    return problem(status_of(error), str(error), type(error).__name__)


def _invalid(request: Request, error: Exception) -> JSONResponse:  # noqa: ARG001
    """What is wrong with a request, in one line. It does not repeat the values."""
    assert isinstance(error, RequestValidationError)
    wrong = (f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())
    return problem(422, "; ".join(wrong), "InvalidRequest")
