"""`sluice ui` in a browser, on a real server: looked at, acted on, and refused."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from demo.shots.page_scene import running_scene
from demo.shots.page_tables import FAILING as BROKEN
from demo.shots.page_tables import LATE, TABLES_MIN, WAITING
from sluice.model import TieringStatus
from tests.support.page.browser import WAIT_MS, Watched, chromium
from tests.support.page.page_cluster import FAILING, KEYED, LEASE, REASON, PageCluster, page_cluster
from tests.support.page.ui_process import LinkedUi, linked_ui, origin_of, ui_process
from tests.support.programs.processes import wait_for

pytestmark = pytest.mark.slow
expect.set_options(timeout=WAIT_MS)
MANY = 5_000
"""Further tables of the cluster."""
ROWS_MAX = 60
"""Rows that exist at once: those in sight, and some on both sides."""
NODES_MAX = 3_000
PHONE = {"width": 390, "height": 844}
NARROWEST = {"width": 360, "height": 740}
WIDE = {"width": 1280, "height": 800}
SECTIONS = ("rounds", "splits", "snapshots", "leases", "definition")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PageCluster]:
    with page_cluster(tmp_path_factory.mktemp("many") / "data") as started:
        started.create_more(MANY)
        yield started


@pytest.fixture
def cluster(served: PageCluster) -> PageCluster:
    """With a failing table and a lease, whatever the test before did."""
    served.make_again()
    return served


@pytest.fixture(scope="module")
def ui(served: PageCluster) -> Iterator[LinkedUi]:
    with linked_ui("--bootstrap", served.address) as started:
        yield started


@pytest.fixture(scope="module")
def scene_ui(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LinkedUi]:
    """Of tables that are stuck for each of the reasons, leases of all kinds and maintenance."""
    with (
        running_scene(tmp_path_factory.mktemp("scene"), TABLES_MIN) as scene,
        linked_ui("--bootstrap", scene.address, "--work-uri", scene.work_uri) as started,
    ):
        yield started


def status(cluster: PageCluster, path: Any) -> TieringStatus:
    (found,) = cluster.client.statuses.list(path)
    return found


def confirmed(page: Any, button: str, confirm: str, said: str) -> None:
    """Presses a button, confirms in its dialog, and reads the answer."""
    page.get_by_role("button", name=button, exact=True).first.click()
    page.get_by_role("dialog").get_by_role("button", name=confirm, exact=True).click()
    expect(page.get_by_role("status").filter(has_text=said).first).to_be_visible()


def test_a_person_looks_and_acts(cluster: PageCluster, ui: LinkedUi, browser: Any) -> None:
    with watched_by(browser, ui) as watched:
        page, origin = watched.page, ui.origin
        assert page.url.rstrip("/") == origin, "the token is not in the address"
        assert "token" not in page.evaluate("JSON.stringify(performance.getEntries())").lower()
        assert page.evaluate("document.cookie") == "", "scripts cannot read the session"

        expect(page.get_by_role("heading", name=re.compile("needs? attention"))).to_be_visible()
        stuck = page.get_by_role("listitem").filter(has_text=str(FAILING)).first
        expect(stuck).to_contain_text(REASON.splitlines()[0])
        page.get_by_role("link", name=str(FAILING), exact=True).first.click()
        expect(page.get_by_role("heading", name=str(FAILING), exact=True)).to_be_visible()
        expect(page.get_by_text(REASON.splitlines()[1]).first).to_be_visible()
        deep = page.url
        page.reload()
        assert page.url == deep
        expect(page.get_by_role("heading", name=str(FAILING), exact=True)).to_be_visible()

        confirmed(page, f"Retry: {FAILING}", "Retry", "failures cleared")
        assert status(cluster, FAILING).failures == 0
        confirmed(page, f"Pause: {FAILING}", "Pause", "paused")
        assert status(cluster, FAILING).paused
        confirmed(page, f"Resume: {FAILING}", "Resume", "resumed")
        assert not status(cluster, FAILING).paused

        page.get_by_role("link", name="Leases", exact=True).first.click()
        expect(page.get_by_text(LEASE, exact=True).first).to_be_visible()
        expect(page.get_by_role("link", name=str(KEYED)).first).to_be_visible()
        confirmed(page, f"Drop lease: {LEASE}", "Drop lease", f"lease {LEASE} is dropped")
        wait_for("the lease to be gone", lambda: cluster.client.leases.all() == [])


def test_a_person_who_may_only_look(cluster: PageCluster, browser: Any) -> None:
    with ui_process("--bootstrap", cluster.address, "--read-only") as (_, link):
        watched = Watched(browser.new_context(), origin_of(link))
        page = watched.page
        page.goto(link)
        retry = page.get_by_role("button", name=f"Retry: {FAILING}", exact=True).first
        expect(retry).to_have_attribute("aria-disabled", "true")
        expect(retry).to_have_attribute("title", re.compile("--read-only"))
        expect(page.get_by_text(re.compile("^Read-only")).first).to_be_visible()
        retry.click(force=True)
        expect(page.get_by_role("dialog")).to_have_count(0)
        answer = page.evaluate(
            "async (path) => (await fetch(path, {method: 'POST', headers: {'X-Sluice-Page': '1'}}))"
            ".status",
            f"/api/v1/tables/{FAILING.database}/{FAILING.table}/retry",
        )
        assert answer == 403
        assert status(cluster, FAILING).failures == 1
        assert [each for each in watched.wrong if "status of 403" not in each] == []


def test_a_link_on_a_page_of_another_site(
    cluster: PageCluster, ui: LinkedUi, browser: Any, tmp_path: Path
) -> None:
    """As in a terminal that runs in the browser: the session begins all the same."""
    assert status(cluster, FAILING).failures == 1
    with browser.new_context() as context:
        watched = Watched(context, ui.origin)
        foreign = tmp_path / "foreign.html"
        foreign.write_text(f'<a href="{ui.take_link()}">terminal</a>')
        watched.page.goto(foreign.as_uri())
        watched.page.get_by_role("link").click()
        expect(watched.page.get_by_role("heading", name=re.compile("attention"))).to_be_visible()
        assert watched.page.url.rstrip("/") == ui.origin
        assert watched.wrong == []


def test_who_has_no_link(ui: LinkedUi, browser: Any) -> None:
    with browser.new_context() as context:
        page = context.new_page()
        page.goto(ui.origin)
        expect(page.get_by_role("heading", name="Log in")).to_be_visible()
        expect(page.get_by_text("Open the newest link")).to_be_visible()


def test_all_of_many_tables_can_be_reached(
    cluster: PageCluster, ui: LinkedUi, browser: Any
) -> None:
    """Only the rows in sight exist, however many tables there are."""
    total = len(cluster.client.statuses.lake_tables())
    assert total > MANY
    with watched_by(browser, ui) as watched:
        page = watched.page
        rows = page.get_by_role("table", name="Lake tables").locator("[data-index]")
        expect(page.get_by_text(f"{total:,} tables", exact=True)).to_be_visible()
        expect(rows.first).to_be_visible()
        assert rows.count() <= ROWS_MAX
        assert page.evaluate("document.getElementsByTagName('*').length") <= NODES_MAX

        page.evaluate("window.scrollTo(0, document.documentElement.scrollHeight)")
        last = page.locator(f"[data-index='{total - 1}']")
        expect(last.get_by_role("link").first).to_be_in_viewport()
        expect(page.locator("[data-index='0']")).to_have_count(0)
        assert rows.count() <= ROWS_MAX
        assert page.evaluate("document.getElementsByTagName('*').length") <= NODES_MAX

        one = cluster.more(MANY // 2)
        page.get_by_role("searchbox").fill(one.table)
        expect(page.get_by_text(f"1 of {total:,} tables", exact=True)).to_be_visible()
        expect(rows).to_have_count(1)
        expect(rows.first).to_contain_text(one.table)


def test_each_stuck_table_says_why(scene_ui: LinkedUi, browser: Any) -> None:
    with watched_by(browser, scene_ui) as watched:
        page = watched.page
        head = page.get_by_role("heading", name=f"3 of {TABLES_MIN} tables need attention")
        expect(head).to_be_visible()
        for path, state, why in (
            (BROKEN, "Failing", "s3:PutObject"),
            (LATE, "Late", "has not ended"),
            (WAITING, "Waiting", "no worker has claimed it"),
        ):
            stuck = page.get_by_role("listitem").filter(has_text=str(path)).first
            expect(stuck).to_contain_text(state)
            expect(stuck).to_contain_text(re.compile(r"for \d h"))
            expect(stuck).to_contain_text(why)


@pytest.mark.parametrize(("scheme", "size"), [("light", WIDE), ("dark", PHONE)], ids=str)
def test_people_who_use_other_means_can_use_it(
    scene_ui: LinkedUi, browser: Any, scheme: str, size: dict[str, int]
) -> None:
    """The rules of WCAG that a program can check, on each view and in a dialog."""
    table = f"#/tables/{BROKEN.database}/{BROKEN.table}"
    views = ["#/", *(f"{table}?section={name}" for name in SECTIONS), "#/leases", "#/maintenance"]
    with watched_by(browser, scene_ui, color_scheme=scheme, viewport=size) as watched:
        found = {}
        for view in views:
            opened(watched.page, scene_ui, view)
            found[view] = watched.serious_violations()
        opened(watched.page, scene_ui, table)
        watched.page.get_by_role("button", name=f"Retry: {BROKEN}", exact=True).first.click()
        expect(watched.page.get_by_role("dialog")).to_be_visible()
        found["dialog"] = watched.serious_violations()
        assert {view: each for view, each in found.items() if each} == {}


def test_nothing_is_wider_than_a_narrow_phone(scene_ui: LinkedUi, browser: Any) -> None:
    table = f"#/tables/{BROKEN.database}/{BROKEN.table}"
    views = ["#/", *(f"{table}?section={name}" for name in SECTIONS), "#/leases", "#/maintenance"]
    with watched_by(browser, scene_ui, viewport=NARROWEST) as watched:
        found = {}
        for view in views:
            opened(watched.page, scene_ui, view)
            found[view] = watched.page.evaluate("document.documentElement.scrollWidth")
        assert {view: width for view, width in found.items() if width > NARROWEST["width"]} == {}


def opened(page: Any, ui: LinkedUi, view: str) -> None:
    """Opens a view, and waits until it shows what it has read."""
    page.goto(f"{ui.origin}/{view}")
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    expect(page.locator("[role=status][aria-label*=loading], .bone, .skeleton")).to_have_count(0)


@contextmanager
def watched_by(browser: Any, ui: LinkedUi, **context: Any) -> Iterator[Watched]:
    """Somebody who has logged in. Whatever their page should not do fails the test."""
    with browser.new_context(**context) as opened_context:
        watched = Watched(opened_context, ui.origin)
        watched.page.goto(ui.take_link())
        expect(watched.page.get_by_role("heading", name=re.compile("attention"))).to_be_visible()
        yield watched
        assert watched.wrong == []
