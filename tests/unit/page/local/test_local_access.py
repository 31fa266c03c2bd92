"""Who may see the page of `sluice ui`, and who may act on it: over HTTP, on a free port."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Iterator

import pytest

from tests.support.page.local_page import OWN_PAGE, LocalPage, built_assets, local_page

OVERVIEW = "/api/v1/overview"
PAUSE = "/api/v1/tables/shop/orders/pause"


@pytest.fixture
def page() -> Iterator[LocalPage]:
    with local_page() as served:
        yield served


@pytest.fixture(scope="module")
def shared() -> Iterator[LocalPage]:
    """For tests that leave no more than a login behind."""
    with local_page() as served:
        yield served


def test_a_link_logs_in_once(page: LocalPage, caplog: pytest.LogCaptureFixture) -> None:
    link, browser = page.access.link, page.browser()
    with caplog.at_level(logging.DEBUG):
        answer = browser.get(link)
    assert (answer.status_code, answer.headers["location"]) == (303, "./")
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith(f"sluice-ui-{page.port}=")
    assert {"HttpOnly", "Path=/", "SameSite=lax"} <= {*cookie.split("; ")}
    assert browser.get(OVERVIEW).status_code == 200
    other = page.browser()
    refused = other.get(link)
    assert refused.status_code == 403
    assert "Open the newest link that <code>sluice ui</code> has printed" in refused.text
    assert "`" not in refused.text
    assert other.get(OVERVIEW).status_code == 401
    assert page.access.link != link
    assert other.get(page.access.link).status_code == 303
    assert other.get(OVERVIEW).status_code == browser.get(OVERVIEW).status_code == 200
    ours = [each.getMessage() for each in caplog.records if not each.name.startswith("http")]
    assert link.rpartition("=")[2] not in "\n".join(ours)


def test_a_used_link_leads_who_is_logged_in_to_the_page(shared: LocalPage) -> None:
    browser = shared.browser()
    link = shared.access.link
    assert browser.get(link, follow_redirects=False).status_code == 303
    again = browser.get(link, follow_redirects=False)
    assert (again.status_code, again.headers["location"]) == (303, "./")
    assert shared.browser().get(link).status_code == 403


def test_a_login_whose_terminal_is_gone(page: LocalPage) -> None:
    def broken() -> None:
        raise BrokenPipeError(32, "Broken pipe")

    page.access.on_login = broken
    for browser in (page.logged_in(), page.logged_in()):
        assert browser.get(OVERVIEW).status_code == 200


def test_a_login_whose_terminal_is_full(page: LocalPage) -> None:
    """Others are served while nobody reads what is printed."""
    free = threading.Event()
    page.access.on_login = free.wait
    try:
        assert page.logged_in().get(OVERVIEW).status_code == 200
    finally:
        free.set()


def test_a_fault_of_the_login_is_answered_as_others_are(
    page: LocalPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(token: str) -> str:
        raise RuntimeError(f"password={token}")

    monkeypatch.setattr(page.access.sessions, "begin", fails)
    answer = page.browser().get("/login?token=planted-4711")
    assert (answer.status_code, answer.headers["x-frame-options"]) == (500, "SAMEORIGIN")
    assert answer.json()["message"] == "RuntimeError: the log of the server has the cause"


@pytest.mark.parametrize("token", ["", "?token=", "?token=x", "?token=%ff%ed%a0%80"])
def test_a_wrong_token_does_not_use_up_the_link(shared: LocalPage, token: str) -> None:
    link = shared.access.link
    assert shared.browser().get(f"/login{token}").status_code == 403
    assert shared.browser().head(link).status_code == 405, "as previews of links ask"
    assert shared.access.link == link


def test_a_link_in_a_page_of_another_site(shared: LocalPage) -> None:
    """The cookie is lax, so a link elsewhere opens the page, and may not change anything."""
    browser, elsewhere = shared.browser(), {"Sec-Fetch-Site": "cross-site"}
    assert browser.get(shared.access.link, headers=elsewhere).status_code == 303
    assert browser.get("/", headers=elsewhere).status_code == 200
    assert browser.post(PAUSE, headers={**OWN_PAGE, **elsewhere}).status_code == 403


def test_the_oldest_login_makes_room(page: LocalPage) -> None:
    first = page.logged_in()
    for _ in range(63):
        assert page.access.sessions.begin(page.access.sessions.token)
    assert first.get(OVERVIEW).status_code == 200
    page.logged_in()
    assert first.get(OVERVIEW).status_code == 401


def test_who_is_not_logged_in(shared: LocalPage) -> None:
    stranger = shared.browser()
    for path in (OVERVIEW, "/api/v1/openapi.json", "/api/v1/nothing"):
        answer = stranger.get(path)
        assert (answer.status_code, answer.json()["error"]) == (401, "Unauthorized")
        assert "sluice ui" in answer.json()["message"]
    assert stranger.post(PAUSE, headers=OWN_PAGE).status_code == 401
    forged = {"Cookie": f"{shared.access.cookie}=x"}
    assert stranger.get(OVERVIEW, headers=forged).status_code == 401
    shown = stranger.get("/")
    assert shown.status_code == 401
    assert "<h1>Log in</h1>" in shown.text
    for name in built_assets(shared.logged_in()):
        answer = stranger.get(f"/{name}")
        assert answer.status_code == 200, "the built files are the same for everybody"
        assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example:1", "10.0.0.1", "[::"])
def test_a_foreign_name_is_refused(shared: LocalPage, host: str) -> None:
    """A foreign page may have had its own name resolved to this address."""
    browser = shared.logged_in()
    for path in ("/", OVERVIEW, "/login?token=x", built_assets(browser)[0]):
        answer = browser.get(path, headers={"Host": host})
        assert answer.status_code == 403
        assert "this server has no name" in answer.json()["message"]


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:9", "[::1]:8790", "127.0.0.1", "tunnel.example"]
)
def test_names_of_this_machine(shared: LocalPage, host: str) -> None:
    """Any port: a tunnel has another one."""
    assert shared.logged_in().get(OVERVIEW, headers={"Host": host}).status_code == 200


HIDING_A_PATH = ("/assets/?", "/assets/#", "?", "#", "@127.0.0.1", "\\assets", "%2Fassets")


@pytest.mark.parametrize("more", HIDING_A_PATH)
def test_a_host_with_a_path_of_its_own(shared: LocalPage, more: str) -> None:
    """Starlette makes addresses of Host and path: earlier ones took this for one of a file."""
    host = f"127.0.0.1:{shared.port}{more}"
    own = "".join(f"{name}: {value}\r\n" for name, value in OWN_PAGE.items())
    for request in (f"GET {OVERVIEW}", f"POST {PAUSE}", "GET /"):
        answer = _raw(shared.port, f"{request} HTTP/1.1\r\nHost: {host}\r\n{own}")
        assert answer.startswith("HTTP/1.1 403"), answer
        assert "this server has no name" in answer


@pytest.mark.parametrize(
    "target",
    [
        f"/assets/..{OVERVIEW}",
        f"/assets/%2e%2e{OVERVIEW}",
        f"/assets/?{OVERVIEW}",
        f"/assets{OVERVIEW}",
        f"//assets/{OVERVIEW}",
        f"http://127.0.0.1/assets/..{OVERVIEW}",
    ],
)
def test_a_path_like_that_of_a_file(shared: LocalPage, target: str) -> None:
    answer = _raw(shared.port, f"GET {target} HTTP/1.1\r\nHost: 127.0.0.1:{shared.port}\r\n")
    assert answer.startswith(("HTTP/1.1 401", "HTTP/1.1 404")), answer
    assert "may_act" not in answer


def test_no_host_and_two_hosts() -> None:
    with local_page(host="0.0.0.0") as page:
        for hosts in ("", "Host:\r\n", "Host: 127.0.0.1\r\nHost: evil.example\r\n"):
            answer = _raw(page.port, f"GET {OVERVIEW} HTTP/1.0\r\n{hosts}")
            assert answer.startswith(("HTTP/1.1 400", "HTTP/1.1 403")), answer


def _raw(port: int, head: str) -> str:
    """The whole answer to a request that no library writes."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as stranger:
        stranger.sendall(f"{head}Connection: close\r\n\r\n".encode())
        answer = b""
        while more := stranger.recv(65_536):
            answer += more
    return answer.decode()


def test_names_of_a_server_in_the_network() -> None:
    with local_page(host="0.0.0.0") as page:
        assert page.access.link.startswith(f"http://{socket.gethostname()}:")
        browser = page.logged_in()
        assert browser.get(OVERVIEW, headers={"Host": "10.0.0.1:1"}).status_code == 200
        assert browser.get(OVERVIEW, headers={"Host": "evil.example"}).status_code == 403


@pytest.mark.parametrize(
    ("headers", "why"),
    [
        ({"Sec-Fetch-Site": "same-origin"}, "the header X-Sluice-Page is missing"),
        ({"X-Sluice-Page": "1"}, "the header Origin is missing"),
        ({**OWN_PAGE, "Sec-Fetch-Site": "cross-site"}, "another page sent this"),
        ({**OWN_PAGE, "Sec-Fetch-Site": "same-site"}, "another page sent this"),
        ({"X-Sluice-Page": "1", "Origin": "http://127.0.0.1:1"}, "another page sent this"),
        ({"X-Sluice-Page": "1", "Origin": "null"}, "another page sent this"),
        ({"X-Sluice-Page": "1", "Origin": "https://127.0.0.1:{port}"}, "another page sent this"),
        ({"X-Sluice-Page": "1", "Origin": "ftp://127.0.0.1:{port}"}, "another page sent this"),
        ({"X-Sluice-Page": "1", "Origin": "127.0.0.1:{port}"}, "another page sent this"),
        ({**OWN_PAGE, "Sec-Fetch-Site": "none"}, "another page sent this"),
        ({"Authorization": "Bearer x"}, "the header X-Sluice-Page is missing"),
    ],
)
def test_a_change_from_a_foreign_page(shared: LocalPage, headers: dict[str, str], why: str) -> None:
    filled = {name: value.format(port=shared.port) for name, value in headers.items()}
    answer = shared.logged_in().post(PAUSE, headers=filled)
    assert answer.status_code == 403
    assert why in answer.json()["message"]


def test_a_change_from_this_page(shared: LocalPage) -> None:
    """It reaches the cluster, which is away."""
    browser = shared.logged_in()
    for headers in (OWN_PAGE, {"X-Sluice-Page": "1", "Origin": shared.url}):
        answer = browser.post(PAUSE, headers=headers)
        assert (answer.status_code, answer.json()["error"]) == (502, "NetworkError")


def test_read_only() -> None:
    with local_page(read_only=True) as page:
        browser = page.logged_in()
        seen = browser.get(OVERVIEW).json()
        assert (seen["may_act"], "--read-only" in seen["why_not"]) == (False, True)
        answer = browser.post(PAUSE, headers=OWN_PAGE)
        assert (answer.status_code, answer.json()["message"]) == (403, seen["why_not"])
