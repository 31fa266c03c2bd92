"""What a user does on the page: one object, which is checked, written down and used.

The handler of a route that acts gets what it acts on from here, and from nowhere else. So the
request is read once, and a route cannot act without the check of its place.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import Annotated, Any

from fastapi import Depends, FastAPI, HTTPException, Request, routing
from fastapi.routing import APIRoute
from fastapi.staticfiles import StaticFiles
from starlette.routing import Mount

from sluice.model import TablePath
from sluice.page.leases.reads import LeaseToDrop
from sluice.page.requests.calls import CALLS_CLUSTER
from sluice.page.requests.ports import Act, AtPlace, By, Place, Viewer, place_of, viewer_of

UNCHECKED = "this call would act without a check of who may do so: it is refused"
SAFE_METHODS = frozenset(("GET", "HEAD", "OPTIONS"))
"""Methods that change nothing, as HTTP says."""


def _on_table(request: Request, place: AtPlace, viewer: By, database: str, table: str) -> TablePath:
    path = TablePath(database, table)
    _authorize(request, place, viewer, path)
    return path


def _on_lease(request: Request, place: AtPlace, viewer: By, lease: LeaseToDrop) -> str:
    _authorize(request, place, viewer, lease.lease_id)
    return lease.lease_id


def _authorize(request: Request, place: Place, viewer: Viewer, on: TablePath | str) -> None:
    """:raises HTTPException: 403; says why the viewer may not."""
    if not viewer.may_act:
        raise HTTPException(403, viewer.why_not)
    place.authorize(Act(request.scope["route"].name, on), viewer)


OnTable = Annotated[TablePath, Depends(_on_table)]
"""The table that a route acts on, after the check."""
OnLease = Annotated[str, Depends(_on_lease)]
"""The id of the lease that a route acts on, after the check."""
_CHECKS = (_on_table, _on_lease)
_OWN = (*_CHECKS, place_of, viewer_of, CALLS_CLUSTER.dependency)
"""What gives nothing of the request to a handler that was not checked."""
_NOT_OF_REQUEST = (
    "response_param_name",
    "background_tasks_param_name",
    "security_scopes_param_name",
)


def refuse_unchecked(request: Request) -> None:
    """For all routes of an application: a request that may act is checked, or refused.

    :raises HTTPException: 403.
    """
    if request.method not in SAFE_METHODS and _why_unchecked(request.scope["route"]):
        raise HTTPException(403, UNCHECKED)


def require_checks(app: FastAPI) -> None:
    """Refuses an application with a route that may act without a check.

    :raises RuntimeError: names the route.
    """
    for route in routes_of(app):
        methods, own = getattr(route, "methods", None), _own(route)
        is_of_files = isinstance(own, Mount) and isinstance(own.app, StaticFiles)
        if is_of_files or (methods and SAFE_METHODS.issuperset(methods)):
            continue
        if why := _why_unchecked(route):
            where = f"{sorted(methods or ('any',))} {getattr(route, 'path', route)}"
            raise RuntimeError(f"{where} may act on what nobody has checked: {why}")


def routes_of(app: FastAPI) -> Sequence[Any]:
    """The routes, also those of routers that newer versions of FastAPI keep apart."""
    contexts = getattr(routing, "iter_route_contexts", None)
    return app.routes if contexts is None else [*contexts(app.routes)]


def _own(route: Any) -> Any:
    """A route as its router has it."""
    return getattr(route, "original_route", route)


def _why_unchecked(route: Any) -> str | None:
    """Why a route may act on something that was not checked; None: it cannot."""
    if not isinstance(_own(route), APIRoute):
        return "only routes of FastAPI may act"
    own = route.dependant
    calls = [each.call for each in _all_of(own)]
    if sum(calls.count(check) for check in _CHECKS) != 1:
        return "take what it acts on as OnTable or OnLease, which check it"
    if any(map(_takes_request, _handed_over(own))) or any(
        each.body_params for each in _all_of(own) if each.call not in _CHECKS
    ):
        return "take nothing else from the request, because nobody checks it"
    return None


def _handed_over(dependant: Any) -> Iterator[Any]:
    """A handler, and all whose values it gets; not those that are only called before it."""
    yield dependant
    for each in dependant.dependencies:
        if each.name is not None and each.call not in _OWN:
            yield from _handed_over(each)


def _takes_request(dependant: Any) -> bool:
    """Whether this function reads any part of the request by itself."""
    names = [one.name for one in fields(dependant)]
    names = [name for name in names if name.endswith(("_params", "_param_name"))]
    return any(getattr(dependant, name) for name in names if name not in _NOT_OF_REQUEST)


def _all_of(dependant: Any) -> Iterator[Any]:
    for each in dependant.dependencies:
        yield each
        yield from _all_of(each)
