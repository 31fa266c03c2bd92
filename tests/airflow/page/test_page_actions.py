"""What people do on the page inside Airflow, and who may not."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from tests.airflow.page.test_page import problem
from tests.airflow.page_process import ASKS_ITSELF, PagePlace, api

pytestmark = [pytest.mark.airflow, pytest.mark.xdist_group("page")]

PAUSE = "tables/shop/acted/pause"


@pytest.fixture(scope="module", autouse=True)
def acted(page: PagePlace) -> None:
    page.shop.table("acted")


def paused(page: PagePlace) -> bool:
    [status] = [s for s in page.shop.client.statuses.list() if s.path.table == "acted"]
    return bool(status.paused)


def test_a_viewer_is_refused(page: PagePlace) -> None:
    calls = ("tier", "retry", "pause", "resume")
    for caller in (page.server.as_("viewer"), page.server.program("viewer")):
        for call in calls:
            answer = caller.post(api(f"tables/shop/acted/{call}"), headers=ASKS_ITSELF)
            why = "your role may not edit DAG tiering"
            assert problem(answer) == (403, "Forbidden", why), call
        answer = caller.post(api("leases/drop"), headers=ASKS_ITSELF, json={"lease_id": "any"})
        assert answer.status_code == 403
    assert not paused(page)


@pytest.mark.parametrize(
    ("headers", "said"),
    [
        ({}, "the header X-Sluice-Page is missing"),
        ({**ASKS_ITSELF, "Origin": "https://evil.example"}, "another page sent this request"),
        ({**ASKS_ITSELF, "Origin": "null"}, "another page sent this request"),
        ({**ASKS_ITSELF, "Sec-Fetch-Site": "same-site"}, "another page sent this request"),
        ({**ASKS_ITSELF, "Sec-Fetch-Site": "cross-site"}, "another page sent this request"),
        ({**ASKS_ITSELF, "Sec-Fetch-Site": "none"}, "another page sent this request"),
        ({**ASKS_ITSELF, "Origin": "https://127.0.0.1:{port}"}, "another page sent this request"),
    ],
)
def test_another_page_is_refused(page: PagePlace, headers: dict[str, str], said: str) -> None:
    port = page.server.url.rpartition(":")[2]
    filled = {name: value.format(port=port) for name, value in headers.items()}
    answer = page.server.as_("admin").post(api(PAUSE), headers=filled)
    assert answer.status_code == 403
    assert said in answer.json()["message"]
    # Airflow itself adds a token to each request if it is told to let everybody in.
    answer = page.server.program("admin", Origin="https://evil.example").post(api(PAUSE))
    assert answer.status_code == 403
    assert not paused(page)


@pytest.mark.parametrize(
    ("origin", "host", "more", "status"),
    [
        ("https://airflow.example", "airflow.example", {}, 200),
        ("https://airflow.example:443", "airflow.example:443", {}, 200),
        ("https://airflow.example", "10.0.0.1:8080", {}, 200),
        ("http://10.0.0.1:8080", "10.0.0.1:8080", {}, 200),
        ("https://other.example", "other.example", {"Sec-Fetch-Site": "same-origin"}, 200),
        ("http://airflow.example", "airflow.example", {}, 403),
        ("http://airflow.example", "10.0.0.1:8080", {}, 403),
        ("http://airflow.example", "airflow.example", {"X-Forwarded-Proto": "http"}, 403),
        ("https://10.0.0.1:8080", "10.0.0.1:8080", {}, 403),
        ("https://10.0.0.1:8080", "10.0.0.1:8080", {"Forwarded": "proto=https"}, 403),
        ("https://airflow.example.evil", "10.0.0.1:8080", {}, 403),
        ("https://evil.example", "airflow.example", {"X-Forwarded-Host": "evil.example"}, 403),
    ],
)
def test_a_page_behind_a_proxy_is_known_by_its_public_address(
    page: PagePlace, origin: str, host: str, more: dict[str, str], status: int
) -> None:
    """[api] base_url is https://airflow.example, and the proxy calls by http."""
    browser = page.server.as_("admin", Origin=origin)
    headers = {**ASKS_ITSELF, "Host": host, **more}
    answer = browser.post(api("tables/shop/acted/retry"), headers=headers)
    assert answer.status_code == status


def test_a_user_pauses_and_resumes_and_airflow_writes_it_down(page: PagePlace) -> None:
    browser, program = page.server.as_("user"), page.server.program("admin")
    answer = browser.post(api(PAUSE), headers=ASKS_ITSELF)
    said = "table shop.acted: paused until `sluice resume shop.acted`"
    assert (answer.status_code, answer.json()["message"]) == (200, said)
    assert paused(page)
    assert program.post(api("tables/shop/acted/resume")).status_code == 200
    assert not paused(page)
    assert events(program)[:2] == [
        ("sluice_resume", "admin", {"database": "shop", "table": "acted"}),
        ("sluice_pause", "user", {"database": "shop", "table": "acted"}),
    ]


def events(caller: httpx.Client, dag: str = "tiering") -> list[tuple[str, str, Any]]:
    """What Airflow's audit log has of the DAG's actions on the page, the newest first."""
    found = caller.get(f"/api/v2/eventLogs?dag_id={dag}&order_by=-event_log_id").json()
    return [
        (one["event"], one["owner"], json.loads(one["extra"]))
        for one in found["event_logs"]
        if one["event"].startswith("sluice_")
    ]


def test_who_drops_a_lease_is_written_down(page: PagePlace) -> None:
    browser = page.server.as_("user")
    answer = browser.post(api("leases/drop"), headers=ASKS_ITSELF, json={"lease_id": "no/such"})
    assert problem(answer)[:2] == (404, "LeaseNotExist")
    program = page.server.program("admin")
    assert events(program)[0] == ("sluice_drop_lease", "user", {"lease_id": "no/such"})
    before = events(program)
    for wrong in (b"[", b"{}", b'{"lease_id": ""}'):
        assert program.post(api("leases/drop"), content=wrong).status_code == 422
    assert events(program) == before, "what was refused is no action"


def test_a_table_that_does_not_exist_is_named(page: PagePlace) -> None:
    for call in ("tier", "pause"):
        answer = page.server.program("admin").post(api(f"tables/shop/absent/{call}"))
        assert problem(answer)[:2] == (404, "TableNotExist"), answer.text


def test_tier_now_starts_one_run_in_the_name_of_the_user(page: PagePlace) -> None:
    browser, program = page.server.as_("user"), page.server.program("admin")
    before = program.get(api("overview")).json()["dag"]
    assert (before["dag_id"], before["is_paused"], before["schedule"]) == (
        *("tiering", True, "* * * * *"),
    )
    first = browser.post(api("tables/shop/acted/tier"), headers=ASKS_ITSELF)
    assert first.status_code == 200, first.text
    [run] = runs(program)
    assert run["conf"] == {"tables": ["shop.acted"]}
    assert (run["run_type"], run["triggered_by"]) == ("manual", "ui")
    assert run["triggering_user_name"] == "user"
    answer = first.json()
    assert answer.pop("changed_ms") is not None
    assert answer == {
        "message": f"table shop.acted: run {run['dag_run_id']} is queued; DAG tiering is paused, so"
        " it starts when somebody unpauses the DAG",
        "url": f"/dags/tiering/runs/{run['dag_run_id'].replace(':', '%3A').replace('+', '%2B')}",
    }
    second = browser.post(api("tables/shop/acted/tier"), headers=ASKS_ITSELF).json()
    assert f"run {run['dag_run_id']} is queued already" in second["message"]
    assert second["url"] == first.json()["url"]
    assert len(runs(program)) == 1
    last = program.get(api("overview")).json()["dag"]
    assert (last["last_run_state"], last["last_run_url"]) == ("queued", first.json()["url"])
    assert last["last_run_ms"] is not None
    assert events(program)[0][:2] == ("sluice_tier_now", "user")


def runs(caller: httpx.Client, dag: str = "tiering") -> list[dict[str, Any]]:
    return list(caller.get(f"/api/v2/dags/{dag}/dagRuns").json()["dag_runs"])


def test_a_run_could_not_tier_a_paused_table(page: PagePlace) -> None:
    path = page.shop.table("stopped")
    page.shop.client.statuses.pause(path)
    answer = page.server.program("admin").post(api("tables/shop/stopped/tier"))
    assert problem(answer) == (
        *(409, "TablePaused"),
        "table shop.stopped is paused: resume it, then tier it",
    )


def test_a_dag_with_other_tasks_is_not_started_for_one_table(page: PagePlace) -> None:
    program = page.server.program("admin")
    assert program.get(api("overview", "own")).json()["tier_now"] == "request"
    answer = program.post(api("tables/shop/acted/tier", "own"))
    message = answer.json()["message"]
    assert message.startswith("table shop.acted: a round is requested")
    assert message.endswith("; DAG own is paused, so it starts no run")
    assert runs(program, "own") == []
