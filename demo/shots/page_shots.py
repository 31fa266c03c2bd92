"""The pictures of the page "Lake tiering": which there are, and how a browser takes them."""

from __future__ import annotations

import io
import json
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from PIL import Image
from playwright.sync_api import Browser, Frame, Page, ViewportSize, sync_playwright

from demo.airflow import DAG_ID, Airflow
from demo.processes import Processes
from demo.run import inherited_environment
from demo.shots.airflow_scene import PAGES
from demo.shots.airflow_shots import CHROMIUM, OPTIONS
from demo.shots.page_rounds import DEPLOYMENT
from demo.shots.page_scene import Scene, running_scene
from demo.shots.page_tables import FAILING

READY = re.compile(r"log in once at (\S+)")
UI_S, AIRFLOW_S = 60.0, 400.0
POLL_S = 0.1
POLL_MS = 200
WAIT_MS = 60_000
READ = """() => document.querySelector("h1") && !document.querySelector(".bone, .skeleton")
  && !/read so far|still being read|No run of the maintenance/.test(document.body.innerText)"""
"""Whether a view shows all that it will."""
SETTLE_MS = 1_200
"""Late answers and transitions end within this time."""
WIDE, PHONE = (1360, 900), (390, 844)
SCHEMES = ("light", "dark")
TAB = f"/dags/{DAG_ID}/plugin/lake-tiering-of-dag"

Act = Callable[[Page | Frame], None]
"""What is done before the picture."""


@dataclass(frozen=True)
class Shot:
    """One picture of one view."""

    name: str
    """Of its file, without `.png`."""
    view: str
    """The hash of its address."""
    size: tuple[int, int] = WIDE
    """Pixels of the window."""
    scheme: str = "light"
    in_airflow: bool = False
    act: Act = field(default=lambda _: None)


@dataclass(frozen=True)
class Places:
    """Where the page is."""

    link: str
    """Of `sluice ui`: it logs in, once."""
    airflow: str = ""
    """Address of Airflow; empty: none runs."""
    token: str = ""
    """Logs in to it."""


def _open_dialog(page: Page | Frame) -> None:
    page.get_by_role("button", name=f"Retry: {FAILING}").first.click()
    page.get_by_role("dialog").wait_for()


def _to_rounds(page: Page | Frame) -> None:
    page.get_by_text("Rows written").first.scroll_into_view_if_needed()
    page.evaluate("window.scrollBy(0, 420)")


_TABLE = f"#/tables/{FAILING.database}/{FAILING.table}"
_VIEWS = {"tables": "#/", "table": _TABLE, "leases": "#/leases", "maintenance": "#/maintenance"}
_ALL = tuple(
    Shot(f"{where}{view}-{name}-{scheme}", address, size, scheme, bool(where))
    for where in ("", "airflow-")
    for view, address in _VIEWS.items()
    for name, size in (("wide", WIDE), ("phone", PHONE))
    for scheme in SCHEMES
)
_MORE = tuple(
    Shot(f"{name}-{scheme}", _TABLE, size, scheme, act=act)
    for name, size, act in (
        ("dialog-wide", WIDE, _open_dialog),
        ("dialog-phone", PHONE, _open_dialog),
        ("rounds-wide", WIDE, _to_rounds),
        ("rounds-phone", PHONE, _to_rounds),
    )
    for scheme in SCHEMES
)
CHOSEN = (
    Shot("tables", "#/"),
    Shot("table", _TABLE, (1360, 1180)),
    Shot("leases", "#/leases", (1360, 620)),
    Shot("maintenance", "#/maintenance", (1360, 820), "dark"),
    Shot("phone", "#/", PHONE, "dark"),
    Shot("airflow", "#/", in_airflow=True),
)
"""Those that the documentation shows."""
ALL = (*CHOSEN, *_ALL, *_MORE)


@contextmanager
def running_places(
    folder: Path, say: Callable[[str], None], *, needs_airflow: bool
) -> Iterator[Places]:
    """Starts the scene, `sluice ui` and an Airflow beside it.

    :param folder: an empty folder for their data and logs.
    :raises AirflowFailed, ProcessFailed, TimeoutError: a program does not start.
    """
    (folder / "logs").mkdir()
    processes = Processes(folder / "logs", inherited_environment())
    with running_scene(folder / "scene", say=say) as scene:
        airflow = Airflow(folder / "home", processes, _settings(scene))
        try:
            if needs_airflow:
                airflow.prepare()
                airflow.start()
                airflow.wait_until_ready(AIRFLOW_S, lambda _: None)
            link = _ui(processes, scene)
            yield Places(link, *((airflow.url, airflow.token) if needs_airflow else ()))
        finally:
            processes.stop_all()


def _settings(scene: Scene) -> dict[str, str]:
    parts = urlsplit(scene.address)
    extra = {"work_uri": scene.work_uri, "deployment_id": DEPLOYMENT}
    fluss = {"conn_type": "fluss", "host": parts.hostname, "port": parts.port, "extra": extra}
    return {
        **PAGES,
        "AIRFLOW_CONN_FLUSS_DEFAULT": json.dumps(fluss),
        "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": "local[1]"}),
        "AIRFLOW__SLUICE__SCHEDULE": "none",
    }


def _ui(processes: Processes, scene: Scene) -> str:
    """Starts `sluice ui`, and returns its link."""
    where = ("--bootstrap", scene.address, "--work-uri", scene.work_uri)
    command = (sys.executable, "-m", "sluice.cli.main", "ui", "--listen", "127.0.0.1:0")
    processes.start("ui", [*command, *where])
    deadline_s = time.monotonic() + UI_S
    while time.monotonic() < deadline_s:
        processes.check("ui")
        if found := READY.search(processes.log("ui").read_text()):
            return found[1]
        time.sleep(POLL_S)
    raise TimeoutError(f"`sluice ui` was not ready after {UI_S:.0f} s{processes.tail('ui')}")


def take(places: Places, folder: Path, shots: Sequence[Shot], say: Callable[[str], None]) -> None:
    """Takes the pictures; those inside Airflow only if it runs.

    :raises playwright.sync_api.Error: a page does not show what it should.
    """
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(OPTIONS))
        cookies = _logged_in(browser, places.link)
        for shot in shots:
            if shot.in_airflow and not places.airflow:
                continue
            began_s = time.monotonic()
            with _page(browser, shot) as page:
                if shot.in_airflow:
                    shown: Page | Frame = _in_airflow(page, places, shot)
                else:
                    page.context.add_cookies(cookies)
                    page.goto(f"{_origin(places.link)}/{shot.view}")
                    shown = page
                shown.wait_for_function(READ, polling=POLL_MS)
                page.wait_for_timeout(SETTLE_MS)
                shot.act(shown)
                page.wait_for_timeout(SETTLE_MS / 3)
                written = _save(page.screenshot(), folder / f"{shot.name}.png")
            say(f"{shot.name}.png: {written / 1000:.0f} kB, {time.monotonic() - began_s:.1f} s")
        browser.close()


def _save(png: bytes, file: Path) -> int:
    """Writes the picture with few colors, small marks keep theirs. Returns its size in bytes."""
    picture = Image.open(io.BytesIO(png)).convert("RGB")
    small = picture.quantize(256, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
    small.save(file, optimize=True)
    return file.stat().st_size


def _origin(link: str) -> str:
    return link.partition("/login")[0]


def _logged_in(browser: Browser, link: str) -> list[Any]:
    with browser.new_context() as context:
        page = context.new_page()
        page.goto(link)
        page.get_by_role("heading", name=re.compile("attention")).wait_for(timeout=WAIT_MS)
        found: list[Any] = context.cookies()
        return found


@contextmanager
def _page(browser: Browser, shot: Shot) -> Iterator[Page]:
    width, height = shot.size
    size = ViewportSize(width=width, height=height)
    is_phone = shot.size == PHONE
    with browser.new_context(
        color_scheme="dark" if shot.scheme == "dark" else "light",
        viewport=size,
        has_touch=is_phone,
        device_scale_factor=2 if is_phone else 1,
    ) as context:
        context.set_default_timeout(WAIT_MS)
        yield context.new_page()


def _in_airflow(page: Page, places: Places, shot: Shot) -> Frame:
    page.context.add_cookies([{"name": "_token", "value": places.token, "url": places.airflow}])
    # Beside the grid of a DAG, a phone has no room.
    route = "/plugin/lake-tiering" if shot.size == PHONE else TAB
    page.goto(f"{places.airflow}{route}{shot.view}", wait_until="domcontentloaded")
    handle = page.locator("iframe").first.element_handle()
    frame = handle.content_frame() if handle is not None else None
    assert frame is not None
    return frame
