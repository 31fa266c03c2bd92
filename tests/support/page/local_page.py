"""The page of `sluice ui`, served by this process on a free port."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx

from sluice.client import connect
from sluice.config import ClientConfig
from sluice.page.local.http_server import IsKnown, PageServer
from sluice.page.local.place import LocalPlace
from sluice.page.local.serving import Access, behind, local_app
from sluice.wire.listeners.http_places import bound_socket

NOWHERE = ClientConfig(
    "grpc://127.0.0.1:1",
    connect_timeout_ms=100,
    request_timeout_ms=100,
    retry_timeout_ms=100,
)
"""No server: what needs none is tried without."""
OWN_PAGE = {"X-Sluice-Page": "1", "Sec-Fetch-Site": "same-origin"}
"""What the page's own calls have."""


@contextmanager
def listening(app: Any, bound: socket.socket, *is_known: IsKnown) -> Iterator[None]:
    server = PageServer(app, bound, *is_known)
    server.start()
    try:
        yield
    finally:
        assert server.stop(30)


class LocalPage:
    """A served page, its links, and browsers."""

    def __init__(self, access: Access, place: LocalPlace, url: str) -> None:
        self.access = access
        self.place = place
        self.url = url

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def browser(self) -> httpx.Client:
        """One that is not logged in."""
        return httpx.Client(base_url=self.url, timeout=60)

    def logged_in(self) -> httpx.Client:
        browser = self.browser()
        path = self.access.link[self.access.link.index("/login") :]
        assert browser.get(path).status_code == 303
        return browser


@contextmanager
def local_page(
    address: str | ClientConfig = NOWHERE, host: str = "127.0.0.1", *, read_only: bool = False
) -> Iterator[LocalPage]:
    """The page of a cluster while the block lasts."""
    bound = bound_socket("127.0.0.1", 0)
    port = bound.getsockname()[1]
    with connect(address) as client:
        place = LocalPlace(client)
        place.reader.start()
        access = Access(host, port, lambda: None, ["tunnel.example"])
        app = behind(access, local_app(place, read_only=read_only))
        with listening(app, bound, access.is_logged_in):
            yield LocalPage(access, place, f"http://127.0.0.1:{port}")
        place.reader.stop()


def built_assets(browser: httpx.Client) -> list[str]:
    """The files that the page names."""
    return re.findall(r'(?:src|href)="\./(assets/[^"]+)"', browser.get("/").text)
