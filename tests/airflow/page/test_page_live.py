"""People use the page inside a running Airflow, in a browser."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from tests.airflow.page_live import LEASE, Scene, running_scene
from tests.airflow.page_people import WAIT_MS, Person
from tests.airflow.place import wait_until
from tests.support.page.browser import chromium

pytestmark = [
    pytest.mark.airflow,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.xdist_group("page_live"),  # one Airflow for all of them
]
DAG = "sluice_lake_tiering"
REASON = "cannot write s3://lake/broken: Access Denied"


@pytest.fixture(scope="module")
def scene(
    airflow_environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Scene]:
    with running_scene(tmp_path_factory.mktemp("page-live"), airflow_environment) as found:
        yield found


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


def test_somebody_on_call_sees_why_and_acts(scene: Scene, browser: Browser) -> None:
    person = Person(browser, scene.url, "admin", scene.admin)
    frame = person.from_navigation()
    expect(frame.get_by_role("heading", name="1 of 2 tables needs attention")).to_be_visible()

    frame = person.from_tab(DAG)
    stuck = frame.get_by_role("region", name="1 of 2 tables needs attention")
    expect(stuck.get_by_text(REASON).first).to_be_visible()
    stuck.get_by_role("link", name=str(scene.broken)).first.click()
    expect(frame.get_by_role("region", name="Last error")).to_contain_text(REASON)
    assert scene.live.place.status(scene.broken).failures == 1
    retry = frame.get_by_role("button", name=f"Retry: {scene.broken}").first
    person.act(frame, retry, "Retry", "failures cleared")
    assert scene.live.place.status(scene.broken).failures == 0

    person.page.goto(f"{scene.url}/dags/{DAG}/plugin/lake-tiering-of-dag#/tables/shop/fine")
    frame = person.frame()
    pause = frame.get_by_role("button", name=f"Pause: {scene.fine}").first
    person.act(frame, pause, "Pause", "paused")
    assert scene.live.place.status(scene.fine).paused

    frame.get_by_role("navigation", name="Views").get_by_role("link", name="Leases").click()
    drop = frame.get_by_role("button", name=f"Drop lease: {LEASE}").first
    person.act(frame, drop, "Drop lease", "is dropped")
    assert scene.live.place.client.leases.all() == []
    person.close()


def test_a_link_to_a_run_leaves_the_frame(scene: Scene, browser: Browser) -> None:
    person = Person(browser, scene.url, "admin", scene.admin)
    frame = person.from_tab(DAG)
    frame.get_by_role("link", name=re.compile("^last run failed")).click()
    person.page.wait_for_url(re.compile(f"/dags/{DAG}/runs/manual"))
    expect(person.page.locator("iframe")).to_have_count(0, timeout=WAIT_MS)
    person.close()


def test_tier_now_starts_a_run_that_tiers_the_table(scene: Scene, browser: Browser) -> None:
    live = scene.live
    path = live.place.table("soon")
    person = Person(browser, scene.url, "admin", scene.admin)
    person.page.goto(f"{scene.url}/dags/{DAG}/plugin/lake-tiering-of-dag#/tables/shop/soon")
    frame = person.frame()
    button = frame.get_by_role("button", name=f"Tier now: {path}").first
    person.act(frame, button, "Start a run", f"table {path}: run manual")
    wait_until(lambda: bool(live.place.status(path).rounds), 300, "a round of the table")
    [run, *_] = live.airflow._get(f"/api/v2/dags/{DAG}/dagRuns?order_by=-id")["dag_runs"]
    assert (run["conf"], run["triggering_user_name"]) == ({"tables": [str(path)]}, "admin")
    person.close()


def test_a_viewer_is_refused(scene: Scene, browser: Browser) -> None:
    person = Person(browser, scene.url, "viewer", scene.viewer)
    person.page.goto(f"{scene.url}/dags/{DAG}/plugin/lake-tiering-of-dag#/tables/shop/broken")
    frame = person.frame()
    why = f"your role may read DAG {DAG}, but not edit it"
    button = frame.get_by_role("button", name=f"Pause: {scene.broken}").first
    expect(button).to_have_attribute("aria-disabled", "true")
    expect(button).to_have_attribute("title", why)
    for call in ("pause", "tier", "retry"):
        assert person.post(f"api/v1/tables/shop/broken/{call}") == 403
    assert not scene.live.place.status(scene.broken).paused
    person.close()
