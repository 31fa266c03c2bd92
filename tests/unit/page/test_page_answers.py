"""What every answer of the page has: safe headers, one form of errors, and bounds."""

from __future__ import annotations

import asyncio
import http.client
import logging
import socket
import time
from collections.abc import Iterator
from contextlib import suppress

import httpx
import pytest
from fastapi import Depends, FastAPI, Request

from sluice.page.app import page_app
from sluice.page.cluster.models import Problem
from sluice.page.local import http_server
from sluice.page.requests.guard import HEADERS
from sluice.wire.listeners.http_places import bound_socket
from tests.support.page.local_page import OWN_PAGE, LocalPage, built_assets, listening, local_page


@pytest.fixture(scope="module")
def page() -> Iterator[LocalPage]:
    with local_page() as served:
        yield served


@pytest.fixture(scope="module")
def browser(page: LocalPage) -> httpx.Client:
    return page.logged_in()


def is_guarded(answer: httpx.Response) -> bool:
    safe = {name: text for name, text in HEADERS.items() if name != "Cache-Control"}
    return {name: answer.headers.get(name) for name in safe} == safe


@pytest.mark.parametrize(
    ("method", "path", "status", "caching"),
    [
        ("GET", "/api/v1/overview", 200, "no-store"),
        ("GET", "/", 200, "no-cache"),
        ("GET", "/api/v1/nothing", 404, "no-store"),
        ("GET", "/assets/nothing.js", 404, "no-store"),
        ("DELETE", "/api/v1/overview", 405, "no-store"),
        ("GET", "/api/v1/tables?limit=0", 422, "no-store"),
        ("GET", f"/api/v1/tables?database={'x' * 201}", 422, "no-store"),
        ("GET", f"/api/v1/maintenance?database={'x' * 201}", 422, "no-store"),
        ("GET", "/api/v1/tables/a/b", 502, "no-store"),
        ("GET", "/login", 303, "no-store"),  # logged in before
    ],
)
def test_headers(browser: httpx.Client, method: str, path: str, status: int, caching: str) -> None:
    answer = browser.request(method, path, headers=OWN_PAGE)
    assert (answer.status_code, answer.headers["cache-control"]) == (status, caching)
    assert is_guarded(answer)
    assert "server" not in answer.headers
    if status >= 400:
        Problem.model_validate(answer.json())


def test_headers_of_refusals(page: LocalPage, browser: httpx.Client) -> None:
    assert is_guarded(page.browser().get("/"))
    assert is_guarded(page.browser().get("/api/v1/overview"))
    assert is_guarded(browser.get("/", headers={"Host": "evil.example"}))
    assert is_guarded(browser.get(f"/{built_assets(browser)[0]}"))


def test_a_large_body_is_refused(browser: httpx.Client) -> None:
    path = "/api/v1/leases/drop"
    for content in (b"x" * 20_000, iter([b"x" * 20_000])):  # the second one declares no length
        answer = browser.post(path, content=content, headers=OWN_PAGE)
        assert answer.status_code == 413
        assert answer.json()["message"] == "the body is larger than 16,384 bytes"
        assert is_guarded(answer)


def test_a_body_that_is_no_text_is_refused(browser: httpx.Client) -> None:
    headers = OWN_PAGE | {"Content-Type": "application/json"}
    answer = browser.post("/api/v1/leases/drop", content=b"\xff\x18x;", headers=headers)
    assert answer.status_code == 400
    Problem.model_validate(answer.json())
    described = browser.get("/api/v1/openapi.json").json()
    assert "400" in described["paths"]["/api/v1/leases/drop"]["post"]["responses"]


def test_a_long_head_is_refused(page: LocalPage) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", page.port, timeout=60)
    with suppress(ConnectionError):  # or the server has closed the connection before its end
        connection.request("GET", f"/login?token={'x' * 5_000_000}")
        assert connection.getresponse().status == 400
    connection.close()


def test_a_path_makes_no_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> None:
        raise RuntimeError("broken")

    bound = bound_socket("127.0.0.1", 0)
    url = f"http://127.0.0.1:{bound.getsockname()[1]}/api/v1/tables/a%0AERROR%20fake%0D/{'b' * 999}"
    with listening(page_app("", [Depends(broken)], []), bound), caplog.at_level(logging.ERROR):
        assert httpx.get(url).status_code == 500
    [line] = [one for one in caplog.text.splitlines() if "ERROR fake" in one]
    assert "GET '/api/v1/tables/a\\nERROR fake\\r/b" in line
    assert len(line) < 500


def test_an_unexpected_error_shows_no_text(caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> None:
        raise RuntimeError("password=hunter22 of the lake")

    bound = bound_socket("127.0.0.1", 0)
    with listening(page_app("", [Depends(broken)], []), bound), caplog.at_level(logging.DEBUG):
        answer = httpx.get(f"http://127.0.0.1:{bound.getsockname()[1]}/api/v1/overview")
    assert answer.status_code == 500
    assert is_guarded(answer)
    assert answer.json() == {
        "error": "Internal Server Error",
        "message": "RuntimeError: the log of the server has the cause",
    }
    assert "in broken" in caplog.text
    assert "password=*** of the lake" in caplog.text


def test_no_answer_waits_for_the_caller_to_acknowledge_its_head(browser: httpx.Client) -> None:
    """Else each answer after a connection's first takes 40 ms longer: its body is held back."""

    def took_s() -> float:
        started_s = time.perf_counter()
        assert browser.get("/api/v1/overview").status_code == 200
        return time.perf_counter() - started_s

    assert min(took_s() for _ in range(12)) < 0.03


@pytest.mark.parametrize(
    "path",
    [
        "/assets/../index.html",
        "/assets/..%2findex.html",
        "/assets/%2e%2e/%2e%2e/app.py",
        "/assets/..\\..\\app.py",
        "/assets//etc/passwd",
        "/assets/%00",
        "/assets/",
    ],
)
def test_no_path_leads_out_of_the_assets(page: LocalPage, path: str) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", page.port, timeout=60)
    connection.request("GET", path)
    assert connection.getresponse().status == 404
    connection.close()


WITHOUT_BODY = b"POST /api/v1/leases/drop HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n"
SILENT = {
    "nothing": b"",
    "half a head": b"GET / HTTP/1.1\r\nHost: local",
    "answered": b"answered",
    "no body": WITHOUT_BODY,
    "half a body": WITHOUT_BODY + b"\r\n{",
}


@pytest.mark.parametrize("head", SILENT.values(), ids=SILENT)
def test_a_silent_connection_is_closed(monkeypatch: pytest.MonkeyPatch, head: bytes) -> None:
    monkeypatch.setattr(http_server, "REQUEST_TIMEOUT_S", 0.2)
    with local_page() as page, socket.create_connection(("127.0.0.1", page.port), 60) as silent:
        if head == b"answered":  # a second request that does not end
            silent.sendall(b"GET /login HTTP/1.1\r\nHost: localhost\r\n\r\n")
            while b"</html>" not in silent.recv(65_536):
                pass
            head = b"GET"
        if head.startswith(WITHOUT_BODY):
            own = "".join(f"{name}: {value}\r\n" for name, value in OWN_PAGE.items())
            session = page.logged_in().cookies[page.access.cookie]
            login = f"Cookie: {page.access.cookie}={session}\r\n"
            lines = f"{own}{login}Content-Type: application/json\r\n\r\n".encode()
            head = WITHOUT_BODY + lines + head[len(WITHOUT_BODY) + 2 :]
        silent.sendall(head)
        with suppress(ConnectionResetError):
            assert silent.recv(1) == b""


def test_an_answer_may_take_longer_than_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "REQUEST_TIMEOUT_S", 0.2)
    app, bound = FastAPI(), bound_socket("127.0.0.1", 0)

    @app.post("/slow")
    async def slow(request: Request) -> str:
        body = await request.body()
        await asyncio.sleep(0.6)
        return body.decode()

    url = f"http://127.0.0.1:{bound.getsockname()[1]}"
    with listening(app, bound), httpx.Client(base_url=url, timeout=60) as browser:
        for content in (b"", b"{}", iter([b"in ", b"parts"])):
            assert browser.post("/slow", content=content).status_code == 200
