"""`sluice ui` as a process on a free port, of this checkout or of another environment."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.support.page.local_page import OWN_PAGE, built_assets
from tests.support.programs.processes import SLUICE, environment

DESCRIPTION = Path(__file__).parents[3] / "frontend/openapi.json"
_READY = re.compile(r"sluice: ready, log in once at (http://127\.0\.0\.1:\d+/login\?token=\S+)\n")
_ONE_MORE = re.compile(r"sluice: link for one more: (http://127\.0\.0\.1:\d+/login\?token=\S+)\n")


@contextmanager
def ui_process(
    *words: str,
    program: Sequence[str] = (SLUICE,),
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The process and its link. It is gone when the block ends."""
    with subprocess.Popen(
        [*program, "ui", "--listen", "127.0.0.1:0", *words],
        env=environment() if env is None else env,
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            ready = process.stdout.readline()
            found = _READY.fullmatch(ready)
            assert found, ready + process.communicate()[1]
            yield process, found[1]
        finally:
            process.kill()


class LinkedUi:
    """A running page that several people log in to, one after the other."""

    def __init__(self, process: subprocess.Popen[str], link: str) -> None:
        self.origin = origin_of(link)
        self._process = process
        self._link: str | None = link

    def take_link(self) -> str:
        """A link that nobody has used; the one before must have been used."""
        if self._link is None:
            assert self._process.stdout is not None
            line = self._process.stdout.readline()
            found = _ONE_MORE.fullmatch(line)
            assert found, line
            return found[1]
        link, self._link = self._link, None
        return link


@contextmanager
def linked_ui(*words: str) -> Iterator[LinkedUi]:
    """As :func:`ui_process`."""
    with ui_process(*words) as (process, link):
        yield LinkedUi(process, link)


def origin_of(link: str) -> str:
    return link.partition("/login")[0]


def look_at(link: str) -> None:
    """What a browser does first: logs in, and reads the page, its files and its API; and acts."""
    with httpx.Client(base_url=origin_of(link), timeout=60) as browser:
        assert browser.get(link, follow_redirects=True).status_code == 200
        names = built_assets(browser)
        assert len(names) >= 2
        kinds = {
            browser.get(f"/{name}").headers["content-type"].partition(";")[0] for name in names
        }
        assert kinds == {"text/javascript", "text/css"}
        assert browser.get("/api/v1/overview").json()["may_act"] is True
        assert _summaries(browser.get("/api/v1/openapi.json").json()) == _summaries(
            json.loads(DESCRIPTION.read_text())
        )
        assert browser.get("/api/v1/tables?limit=0").status_code == 422
        answer = browser.post("/api/v1/tables/shop/orders/pause")
        assert answer.status_code == 403
        answer = browser.post("/api/v1/tables/shop/orders/pause", headers=OWN_PAGE)
        assert answer.status_code == 502, "no cluster is there"


def _summaries(description: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """The summary and the description of each operation of the API."""
    return {
        f"{method} {path}": (operation["summary"], operation.get("description", ""))
        for path, operations in description["paths"].items()
        for method, operation in operations.items()
    }
