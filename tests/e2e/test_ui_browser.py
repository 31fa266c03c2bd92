"""`sluice ui` in a browser, on a real server: looked at, acted on, and refused."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from sluice.model import TieringStatus
from tests.support.browser import WAIT_MS, Watched, chromium
from tests.support.page_cluster import FAILING, KEYED, LEASE, REASON, PageCluster, page_cluster
from tests.support.processes import wait_for
from tests.support.ui_process import origin_of, ui_process

pytestmark = pytest.mark.slow
expect.set_options(timeout=WAIT_MS)
SCHEMES = ("light", "dark")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as started:
        yield started


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[PageCluster]:
    with page_cluster(tmp_path / "data") as started:
        yield started


def status(cluster: PageCluster, path: Any) -> TieringStatus:
    (found,) = cluster.client.statuses.list(path)
    return found


def confirmed(page: Any, button: str, confirm: str, said: str) -> None:
    """Presses a button, confirms in its dialog, and reads the answer."""
    page.get_by_role("button", name=button, exact=True).first.click()
    page.get_by_role("dialog").get_by_role("button", name=confirm, exact=True).click()
    expect(page.get_by_role("status").filter(has_text=said).first).to_be_visible()


def test_a_person_looks_and_acts(cluster: PageCluster, browser: Any) -> None:
    with ui_process("--bootstrap", cluster.address) as (_, link):
        origin = origin_of(link)
        watched = Watched(browser.new_context(), origin)
        page = watched.page
        page.goto(link)
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
        assert watched.wrong == []


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
    cluster: PageCluster, browser: Any, tmp_path: Path
) -> None:
    """As in a terminal that runs in the browser: the session begins all the same."""
    with ui_process("--bootstrap", cluster.address) as (_, link):
        watched = Watched(browser.new_context(), origin_of(link))
        foreign = tmp_path / "foreign.html"
        foreign.write_text(f'<a href="{link}">terminal</a>')
        watched.page.goto(foreign.as_uri())
        watched.page.get_by_role("link").click()
        expect(watched.page.get_by_role("heading", name=re.compile("attention"))).to_be_visible()
        assert watched.page.url.rstrip("/") == origin_of(link)
        assert watched.wrong == []


def test_who_has_no_link(cluster: PageCluster, browser: Any) -> None:
    with ui_process("--bootstrap", cluster.address) as (_, link):
        page = browser.new_context().new_page()
        page.goto(origin_of(link))
        expect(page.get_by_role("heading", name="Log in")).to_be_visible()
        expect(page.get_by_text("Open the newest link")).to_be_visible()


@pytest.mark.parametrize("scheme", SCHEMES)
def test_people_who_use_other_means_can_use_it(
    cluster: PageCluster, browser: Any, scheme: str
) -> None:
    """The rules of WCAG that a program can check."""
    views: dict[str, Callable[[Any], Any]] = {
        "#/": lambda page: page.get_by_role("heading", name=re.compile("attention")),
        f"#/tables/shop/{FAILING.table}": lambda page: page.get_by_role(
            "heading", name=str(FAILING), exact=True
        ),
        "#/leases": lambda page: page.get_by_text(LEASE, exact=True).first,
        "#/maintenance": lambda page: page.get_by_role("heading", name="Maintenance").first,
    }
    with ui_process("--bootstrap", cluster.address) as (_, link):
        watched = Watched(browser.new_context(color_scheme=scheme), origin_of(link))
        watched.page.goto(link)
        found = {}
        for view, shown in views.items():
            watched.page.goto(f"{origin_of(link)}/{view}")
            expect(shown(watched.page)).to_be_visible()
            found[view] = watched.serious_violations()
        assert {view: each for view, each in found.items() if each} == {}
        assert watched.wrong == []
