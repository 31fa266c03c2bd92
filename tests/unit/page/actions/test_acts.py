"""Each route that acts is checked and written down, and one that is not acts on nothing."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Annotated

import pytest
from fastapi import Cookie, Depends, FastAPI, Header, Request, Response
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient
from starlette.requests import HTTPConnection
from starlette.responses import PlainTextResponse

from sluice.client import connect
from sluice.model import TablePath
from sluice.page.actions.acts import SAFE_METHODS, OnTable, require_checks, routes_of
from sluice.page.leases.reads import LeaseToDrop
from sluice.page.local.place import LocalPlace
from sluice.page.local.serving import local_app
from tests.support.page.local_page import NOWHERE


@pytest.fixture
def place() -> Iterator[LocalPlace]:
    with connect(NOWHERE) as client:
        yield LocalPlace(client)


def acting(app: FastAPI) -> list[APIRoute]:
    return [
        one
        for one in routes_of(app)
        if not SAFE_METHODS.issuperset(getattr(one, "methods", None) or ())
    ]


def test_each_route_that_acts_is_checked_and_written_down(
    place: LocalPlace, caplog: pytest.LogCaptureFixture
) -> None:
    app, looks = local_app(place), TestClient(local_app(place, read_only=True))
    acts, routes = TestClient(app), acting(app)
    assert {"tier_now", "retry", "pause", "resume", "compact", "drop_lease"} <= {
        one.name for one in routes
    }
    caplog.set_level(logging.WARNING)  # of all loggers but the page's
    for route in routes:
        assert route.methods == {"POST"}
        path, body = route.path.format(database="shop", table="orders"), {"lease_id": "any"}
        with caplog.at_level(logging.INFO, "sluice.page"):
            caplog.clear()
            answer = looks.post(path, json=body)
            assert (answer.status_code, "--read-only" in answer.text) == (403, True), path
            assert not caplog.messages, "what was refused is no action"
            assert acts.post(path, json=body).status_code == 502, "the cluster is away"
            [line] = caplog.messages
        on_table = "{database}" in route.path
        what = {"database": "shop", "table": "orders"} if on_table else body
        assert line == f"{route.name} of {what!r} by the page"


async def raw(request: Request) -> PlainTextResponse:
    return PlainTextResponse((await request.body()).decode())


def without(database: str, table: str) -> str:
    return f"{database}.{table}"


def beside(path: OnTable, database: str, also: str = "") -> str:
    return f"{path}{database}{also}"


def read_again(path: OnTable, request: Request) -> str:
    return f"{path}{request.url}"


def by_connection(path: OnTable, connection: HTTPConnection) -> str:
    return f"{path}{connection.url}"


async def body_of(request: Request) -> bytes:
    return await request.body()


def address_of(connection: HTTPConnection) -> str:
    return str(connection.url)


def named(also: str = "") -> str:
    return also


def token_of(authorization: Annotated[str, Header()], other: Annotated[str, Cookie()]) -> str:
    return authorization + other


def within(found: Annotated[bytes, Depends(body_of)]) -> bytes:
    return found


def body_beside(path: OnTable, found: Annotated[bytes, Depends(body_of)]) -> str:
    return f"{path}{found!r}"


def body_below(path: OnTable, found: Annotated[bytes, Depends(within)]) -> str:
    return f"{path}{found!r}"


def connection_beside(path: OnTable, found: Annotated[str, Depends(address_of)]) -> str:
    return f"{path}{found}"


def query_beside(path: OnTable, found: Annotated[str, Depends(named)]) -> str:
    return f"{path}{found}"


def header_beside(path: OnTable, found: Annotated[str, Depends(token_of)]) -> str:
    return f"{path}{found}"


UNCHECKED = [
    *(without, beside, read_again, raw, by_connection, body_beside, body_below),
    *(connection_beside, query_beside, header_beside),
]


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
@pytest.mark.parametrize("handler", UNCHECKED)
def test_a_route_without_a_check_is_refused(
    place: LocalPlace, handler: object, method: str
) -> None:
    app = local_app(place)
    app.add_api_route("/{database}/{table}/new", handler, methods=[method])  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="may act on what nobody has checked"):
        require_checks(app)
    answer = TestClient(app).request(method, "/shop/orders/new")
    assert (answer.status_code, "without a check" in answer.text) == (403, True)


def test_a_route_that_is_none_of_fastapi_is_refused(place: LocalPlace) -> None:
    for add in (
        lambda app: app.router.add_route("/new", raw, methods=["POST"]),
        lambda app: app.mount("/new", PlainTextResponse("")),
    ):
        app = local_app(place)
        add(app)
        with pytest.raises(RuntimeError, match=r"/new may act on what nobody has checked"):
            require_checks(app)


def a_table(path: OnTable) -> TablePath:
    return path


def body_before(lease: LeaseToDrop) -> None:
    """Not for the handler, but by itself it may act on what it reads."""


def test_dependencies_are_looked_at_as_a_whole(place: LocalPlace) -> None:
    def of_checked(path: Annotated[TablePath, Depends(a_table)], response: Response) -> str:
        return f"{path}{response.status_code}"

    app = local_app(place)
    app.add_api_route("/{database}/{table}/new", of_checked, methods=["POST"])
    require_checks(app)
    app.add_api_route(
        "/{database}/{table}/other",
        of_checked,
        methods=["POST"],
        dependencies=[Depends(body_before)],
    )
    with pytest.raises(RuntimeError, match="other may act on what nobody has checked"):
        require_checks(app)
