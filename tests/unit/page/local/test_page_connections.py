"""Who is logged in gets in, whatever connections others hold."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import suppress

import httpx
import pytest
from fastapi import FastAPI
from fastapi.responses import Response

from sluice.page.local import http_server
from sluice.page.local.http_server import CONNECTIONS_MAX
from sluice.wire.listeners.http_places import bound_socket
from tests.support.network.half_open import ended, half_open, trickling
from tests.support.page.local_page import OWN_PAGE, LocalPage, listening, local_page

OVERVIEW = "/api/v1/overview"
HALF = b"GET / HTTP/1.1\r\nHost: localhost\r\n"
WHOLE = HALF + b"\r\n"
LATER_S, FIRST_S = 0.2, 2.0
LARGE = 30_000_000
"""Bytes of an answer that do not fit into what the system keeps for a connection."""
OF_ONE_HOST = CONNECTIONS_MAX // 2


@pytest.fixture
def page() -> Iterator[LocalPage]:
    with local_page() as served:
        yield served


def answer_s(browser: httpx.Client) -> float:
    began_s = time.monotonic()
    assert browser.get(OVERVIEW).status_code == 200
    return time.monotonic() - began_s


def again(page: LocalPage, browser: httpx.Client) -> httpx.Client:
    """The same browser with a new connection."""
    return httpx.Client(base_url=page.url, timeout=60, cookies=browser.cookies)


@pytest.mark.parametrize("sent", [b"", HALF, WHOLE], ids=["silent", "half a head", "no login"])
@pytest.mark.parametrize("count", [200, 1_000])
def test_who_is_logged_in_beside_half_open_connections(
    page: LocalPage, count: int, sent: bytes
) -> None:
    browser = page.logged_in()
    alone_s = min(answer_s(again(page, browser)) for _ in range(3))
    with half_open(page.port, count, sent):
        first_s = answer_s(browser)  # while the server still accepts the others
        kept_s = min(answer_s(browser) for _ in range(3))
        beside_s = min(answer_s(again(page, browser)) for _ in range(3))
        assert page.logged_in().get(OVERVIEW).status_code == 200, "and who logs in now"
        print(f"{alone_s=:.4f} {beside_s=:.4f} {kept_s=:.4f} {first_s=:.4f} beside {count}")
    assert max(beside_s, kept_s) - alone_s < LATER_S
    assert first_s < FIRST_S


def test_a_connection_with_a_login_is_kept_and_one_without_ends(page: LocalPage) -> None:
    browser = page.logged_in()
    with (
        _raw(page, _request(page, browser)) as known,
        half_open(page.port, 2 * OF_ONE_HOST, HALF) as strangers,
    ):
        known.sendall(_request(page, browser))
        assert known.recv(15) == b"HTTP/1.1 200 OK"
        assert ended(strangers[0])
        assert not ended(strangers[-1], 0.05), "the oldest ends first"


def test_an_idle_one_makes_room_where_all_have_logins(page: LocalPage) -> None:
    browser = page.logged_in()
    request, held = _request(page, browser), []
    try:
        held += [_raw(page, request) for _ in range(OF_ONE_HOST + 3)]
        assert ended(held[0])
        assert held[-1].send(request)
        assert held[-1].recv(15) == b"HTTP/1.1 200 OK"
    finally:
        for one in held:
            one.close()


def test_a_login_that_has_ended_keeps_no_place(page: LocalPage) -> None:
    browser = page.logged_in()
    with _raw(page, _request(page, browser)) as known:
        page.access.sessions._sessions.clear()
        known.sendall(_request(page, browser))
        assert known.recv(12) == b"HTTP/1.1 401"
        with half_open(page.port, OF_ONE_HOST + 1):
            assert ended(known)


def _request(page: LocalPage, browser: httpx.Client) -> bytes:
    cookie = f"{page.access.cookie}={browser.cookies[page.access.cookie]}"
    return f"GET {OVERVIEW} HTTP/1.1\r\nHost: localhost\r\nCookie: {cookie}\r\n\r\n".encode()


def _raw(page: LocalPage, request: bytes) -> socket.socket:
    """A connection that has been answered, and is idle."""
    connection = socket.create_connection(("127.0.0.1", page.port), 60)
    connection.sendall(request)
    answer = b""
    while b'"tier_now"' not in answer or not answer.endswith(b"}"):
        answer += connection.recv(65_536)
    return connection


BODY = b"POST /api/v1/leases/drop HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9999\r\n"


@pytest.mark.parametrize("whose", ["a stranger's", "of a login"])
@pytest.mark.parametrize("sent", [b"", HALF + b"X: ", BODY + b"\r\n"], ids=["line", "head", "body"])
def test_slow_requests_are_ended(
    monkeypatch: pytest.MonkeyPatch, page: LocalPage, sent: bytes, whose: str
) -> None:
    monkeypatch.setattr(http_server, "REQUEST_TIMEOUT_S", 0.3)
    if sent.startswith(BODY) and whose == "of a login":
        session = page.logged_in().cookies[page.access.cookie]
        own = {**OWN_PAGE, "Cookie": f"{page.access.cookie}={session}"}
        lines = "".join(f"{name}: {value}\r\n" for name, value in own.items())
        sent = BODY + lines.encode() + b"\r\n"
    with half_open(page.port, 3, sent) as held, trickling(held):
        assert all(ended(one, 20) for one in held)


def test_slow_readers_are_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "ANSWER_TIMEOUT_S", 0.2)
    monkeypatch.setattr(http_server, "KEEP_ALIVE_S", -0.5)
    app, bound = FastAPI(), bound_socket("127.0.0.1", 0)

    @app.get("/large")
    async def large() -> Response:
        return Response(b"x" * LARGE)

    with listening(app, bound), socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        slow.connect(("127.0.0.1", bound.getsockname()[1]))
        slow.sendall(b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n")
        got, deadline_s = 0, time.monotonic() + 30
        with suppress(ConnectionError):
            for _ in range(20):  # 1 s, and slowly
                got += len(slow.recv(2_048))
                time.sleep(0.05)
            while more := slow.recv(65_536):  # what the system has of it
                got += len(more)
                assert time.monotonic() < deadline_s
        assert got < LARGE


def test_a_stop_is_quick_beside_connections() -> None:
    began_s = 0.0
    with local_page() as page, half_open(page.port, 40, HALF):
        began_s = time.monotonic()
    assert time.monotonic() - began_s < 5
