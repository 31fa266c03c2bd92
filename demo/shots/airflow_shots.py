"""The pictures of Airflow's pages: which there are, and how a browser takes them."""

from __future__ import annotations

import io
import json
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import quote

from PIL import Image
from playwright.sync_api import Browser, Page, ViewportSize, sync_playwright
from playwright.sync_api import Error as BrowserError

from demo.airflow import DAG_ID, ROOT
from demo.shots.airflow_scene import REPORT, WAITING, Scene

CHROMIUM = "/usr/bin/chromium"
OPTIONS = (
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
WIDTH, HEIGHT = 1400, 900
WAIT_MS = 20_000
SETTLE_MS = 1_500
"""Animations and late requests end within this time."""
HIDE = """places => {
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let text = texts.nextNode(); text; text = texts.nextNode())
    for (const [here, shown] of places)
      if (text.data.includes(here)) text.data = text.data.replaceAll(here, shown);
}"""
"""Replaces the folders of this machine on a page."""
COLORS = 128
"""A picture of a page needs no more, and is then three times smaller."""
ACQUIRE, KEEP, DROP = "acquire_lease", "keep_claims", "drop_lease"
TIER, SETTLE = "per_application.tier", "per_application.settle"


class Absent(Exception):
    """This Airflow does not have what a picture shows."""


class Pages:
    """The addresses of the pages of a scene, and what its REST API says about them."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene

    @cached_property
    def token(self) -> str:
        login = {"username": self.scene.user, "password": self.scene.password}
        return str(self._send("/auth/token", login)["access_token"])

    def dag(self, rest: str = "") -> str:
        return f"/dags/{DAG_ID}{rest}"

    def run(self, name: str, rest: str = "") -> str:
        return self.dag(f"/runs/{quote(self.scene.runs[name], safe='')}{rest}")

    def task(self, run: str, task_id: str, rest: str = "") -> str:
        return self.run(run, f"/tasks/{task_id}{rest}")

    def mapped(self, run: str, task_id: str, state: str, rest: str = "") -> str:
        """The page of the first mapped task that has ended so.

        :raises Absent: there is none.
        """
        found = self.tasks(run)
        for one in sorted(found, key=lambda task: task["map_index"]):
            if (one["task_id"], one["state"]) == (task_id, state):
                return self.task(run, task_id, f"/mapped/{one['map_index']}{rest}")
        raise Absent(f"no task {task_id} is {state} in run {self.scene.runs[run]}")

    def tasks(self, run: str) -> list[dict[str, Any]]:
        path = f"/api/v2/dags/{DAG_ID}/dagRuns/{quote(self.scene.runs[run])}/taskInstances"
        return list(self._get(f"{path}?limit=100")["task_instances"])

    def asset(self) -> str:
        """:raises Absent: no asset is known."""
        assets = self._get("/api/v2/assets?limit=1&name_pattern=orders")["assets"]
        if not assets:
            raise Absent("no asset is known")
        return f"/assets/{assets[0]['id']}"

    def assets(self) -> str:
        """:raises Absent: no asset is known."""
        return self.asset().rpartition("/")[0]

    def sensor(self) -> str:
        """:raises Absent: no sensor has run."""
        path = "/api/v2/dags/~/dagRuns/~/taskInstances?limit=100&order_by=-start_date"
        for one in self._get(path)["task_instances"]:
            if one["dag_id"] == WAITING:
                run = quote(one["dag_run_id"], safe="")
                return f"/dags/{one['dag_id']}/runs/{run}/tasks/{one['task_id']}"
        raise Absent("no sensor has run")

    def downstream(self) -> str:
        """:raises Absent: no asset has started a run."""
        for one in self._get(f"/api/v2/dags/{REPORT}/dagRuns?limit=1")["dag_runs"]:
            return f"/dags/{REPORT}/runs/{quote(one['dag_run_id'], safe='')}"
        raise Absent("no asset has started a run")

    def links(self) -> str:
        """:raises Absent: a tier task has no links."""
        page = self.mapped("good", TIER, "success")
        index = page.rpartition("/")[2]
        run = quote(self.scene.runs["good"])
        path = f"/api/v2/dags/{DAG_ID}/dagRuns/{run}/taskInstances/{TIER}/links?map_index={index}"
        if not self._get(path)["extra_links"]:
            raise Absent("a tier task has no links")
        return f"{page}/details"

    def _get(self, path: str) -> dict[str, Any]:
        return self._send(path, None, {"Authorization": f"Bearer {self.token}"})

    def _send(
        self, path: str, body: dict[str, Any] | None, headers: dict[str, str] | None = None
    ) -> dict[str, Any]:
        request = urllib.request.Request(
            self.scene.url + path,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json", **(headers or {})},
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            found: dict[str, Any] = json.loads(answer.read())
        return found


@dataclass(frozen=True)
class Shot:
    """One picture: the page, a text that shows that it is complete, and what to click before."""

    name: str
    address: Callable[[Pages], str]
    awaited: str
    """A text on the page. Without it, the picture is absent."""
    act: Callable[[Page], None] = field(default=lambda _: None)
    height: int = HEIGHT
    """In pixels. More than usual, if a form would be cut off."""


def take(scene: Scene, folder: Path, shots: Sequence[Shot], say: Callable[[str], None]) -> int:
    """Takes the pictures, and says which are absent. Returns how many are.

    :raises playwright.sync_api.Error: the browser does not start.
    """
    pages = Pages(scene)
    absent = 0
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(OPTIONS))
        for shot in shots:
            try:
                say(f"{shot.name}.png: {_take(browser, pages, shot, folder)}")
            except (Absent, BrowserError, OSError, KeyError) as error:
                absent += 1
                say(f"{shot.name}.png: absent: {str(error).splitlines()[0]}")
        browser.close()
    return absent


def _take(browser: Browser, pages: Pages, shot: Shot, folder: Path) -> str:
    # A context of its own: the UI remembers what a user has opened.
    size = ViewportSize(width=WIDTH, height=shot.height)
    with browser.new_context(color_scheme="light", viewport=size) as context:
        context.set_default_timeout(WAIT_MS)
        context.add_cookies([{"name": "_token", "value": pages.token, "url": pages.scene.url}])
        page = context.new_page()
        page.goto(pages.scene.url + shot.address(pages), wait_until="domcontentloaded")
        shot.act(page)
        page.get_by_text(shot.awaited).first.wait_for()
        page.wait_for_timeout(SETTLE_MS)
        page.evaluate(HIDE, [[str(ROOT), "/opt/sluice"]])
        written = _save(page.screenshot(), folder / f"{shot.name}.png")
    return f"{written / 1000:.0f} kB"


def _save(png: bytes, file: Path) -> int:
    """Writes the picture with few colors. Returns its size in bytes."""
    picture = Image.open(io.BytesIO(png)).convert("RGB")
    small = picture.quantize(COLORS, dither=Image.Dither.NONE)
    small.save(file, optimize=True)
    return file.stat().st_size


def _new_connection(page: Page) -> None:
    page.get_by_role("button", name="Add Connection").first.click()
    page.get_by_role("combobox").first.click()
    page.keyboard.type("fluss")
    page.wait_for_timeout(SETTLE_MS)
    page.keyboard.press("Enter")
    page.wait_for_timeout(SETTLE_MS)


def _extra_fields(page: Page) -> None:
    _new_connection(page)
    page.get_by_role("button", name="Standard Fields").click()
    page.get_by_role("button", name="Extra Fields", exact=True).click()


def _trigger(page: Page) -> None:
    page.get_by_role("button", name="Trigger").first.click()


def _docs(page: Page) -> None:
    page.get_by_role("button", name="Dag Docs").first.click()


def _graph(page: Page) -> None:
    page.get_by_role("button", name="Show Graph").first.click()
    page.wait_for_timeout(SETTLE_MS)


def _open_groups(page: Page) -> None:
    page.get_by_role("button", name="Expand all task groups").click()


def _to_start(page: Page) -> None:
    """Airflow shows the end of a log first."""
    page.get_by_text("Post Execute").first.wait_for()
    page.wait_for_timeout(SETTLE_MS)
    page.mouse.move(WIDTH * 0.6, HEIGHT * 0.7)
    page.mouse.wheel(0, -100_000)


def _values(page: Page) -> None:
    page.get_by_role("button", name="Expand").last.click()


SHOTS: tuple[Shot, ...] = (
    Shot("connection-form", lambda _: "/connections", "Extra Fields", _new_connection),
    Shot("connection-form-extra", lambda _: "/connections", "Lake", _extra_fields, 1600),
    Shot("providers", lambda _: "/providers", "fluss"),
    Shot("trigger-form", lambda p: p.dag(), "Maximum number of tables", _trigger, 1600),
    Shot("dag", lambda p: p.dag(), "Overview"),
    Shot("dag-docs", lambda p: p.dag(), "Sluice", _docs),
    Shot("graph", lambda p: p.run("bad"), "drop_lease", _graph),
    Shot("run-good", lambda p: p.run("good"), "Success", _open_groups),
    Shot("run-failed", lambda p: p.run("bad"), "Failed", _open_groups),
    Shot("mapped-tier", lambda p: p.task("bad", TIER, "/mapped"), "Failed"),
    Shot("mapped-settle", lambda p: p.task("bad", SETTLE, "/mapped"), "Map Index"),
    Shot("tier-log-good", lambda p: p.mapped("good", TIER, "success"), "committed"),
    Shot("tier-log-start", lambda p: p.mapped("good", TIER, "success"), "Pre Execute", _to_start),
    Shot("tier-log-bad", lambda p: p.mapped("bad", TIER, "failed"), "LakeNotWritable"),
    Shot(
        "tier-rendered", lambda p: p.mapped("good", TIER, "success", "/rendered_templates"), "entry"
    ),
    Shot("tier-xcom", lambda p: p.mapped("bad", TIER, "failed", "/xcom"), "failures", _values),
    Shot("tier-links", Pages.links, "Lake table"),
    Shot("acquire-log", lambda p: p.task("bad", ACQUIRE), "claimed"),
    Shot("keep-log", lambda p: p.task("bad", KEEP), "keeping the claims"),
    Shot("settle-log", lambda p: p.mapped("bad", SETTLE, "success"), "Post Execute"),
    Shot("drop-log", lambda p: p.task("bad", DROP), "tiered"),
    Shot("drop-xcom", lambda p: p.task("bad", DROP, "/xcom"), "account", _values),
    Shot("dry-run-log", lambda p: p.task("dry", DROP), "would tier"),
    Shot("assets", Pages.assets, "Assets"),
    Shot("asset-graph", Pages.asset, "Asset"),
    Shot("run-downstream", Pages.downstream, "Success"),
    Shot("sensor-log", Pages.sensor, "last error"),
)
"""All pictures. A new one is a new line; one whose page does not exist yet is only reported."""
