"""Headless Chromium on a page: what it may not do is collected, and fails the test."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import sync_playwright

from tests.support.programs.processes import ROOT

AXE = ROOT / "frontend/node_modules/axe-core/axe.min.js"
WAIT_MS = 60_000


@contextmanager
def chromium() -> Iterator[Any]:
    """A running browser."""
    program = shutil.which("chromium") or shutil.which("google-chrome")
    assert program, "a browser is missing: run `make setup`"
    arguments = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=arguments)
        try:
            yield browser
        finally:
            browser.close()


class Watched:
    """A page, and what went wrong in it."""

    def __init__(self, context: Any, origin: str) -> None:
        self.page = context.new_page()
        self.page.set_default_timeout(WAIT_MS)
        self.wrong: list[str] = []
        self._host = urlsplit(origin).netloc
        self.page.on("console", self._said)
        self.page.on("pageerror", lambda error: self.wrong.append(f"error: {error}"))
        self.page.on("request", self._requested)

    def _said(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.wrong.append(f"console: {message.text}")

    def _requested(self, request: Any) -> None:
        address = urlsplit(request.url)
        if address.scheme in ("http", "https", "ws", "wss") and address.netloc != self._host:
            self.wrong.append(f"request of another origin: {request.url}")

    def serious_violations(self) -> list[str]:
        """What axe finds that keeps people from using the page."""
        self.page.evaluate(AXE.read_text())
        found = self.page.evaluate("async () => (await axe.run(document)).violations")
        return [
            f"{each['id']}: {each['help']}: {each['nodes'][0]['html'][:200]}"
            for each in found
            if each["impact"] in ("serious", "critical")
        ]
