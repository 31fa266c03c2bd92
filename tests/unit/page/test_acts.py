"""Each route that acts is checked and written down, and one that is not acts on nothing."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from fastapi import FastAPI, Request
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient
from starlette.responses import PlainTextResponse

from sluice.client import connect
from sluice.page.acts import SAFE_METHODS, OnTable, require_checks
from sluice.page.local_place import LocalPlace
from sluice.page.serving import local_app
from tests.support.local_page import NOWHERE


@pytest.fixture
def place() -> Iterator[LocalPlace]:
    with connect(NOWHERE) as client:
        yield LocalPlace(client)


def acting(app: FastAPI) -> list[APIRoute]:
    found = [one for one in app.routes if not SAFE_METHODS.issuperset(getattr(one, "methods", ()))]
    assert all(isinstance(one, APIRoute) for one in found)
    return found  # type: ignore[return-value]


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


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
@pytest.mark.parametrize("handler", [without, beside, read_again, raw])
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
