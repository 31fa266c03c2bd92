"""The page inside Airflow: its places, who may see it, and who may act."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from urllib.parse import unquote, urljoin

import httpx
import pytest

from tests.airflow.page_process import ASKS_ITSELF, PagePlace, api, connection
from tests.airflow.place import wait_until
from tests.unit.page.test_page_description import CHECKS, SCHEMATHESIS

pytestmark = [pytest.mark.airflow, pytest.mark.xdist_group("page")]


def problem(answer: httpx.Response) -> tuple[int, str, str]:
    found = answer.json()
    return answer.status_code, found["error"], found["message"]


def test_airflow_shows_the_page_in_its_navigation_and_on_dags(page: PagePlace) -> None:
    answer = page.server.program("admin").get("/api/v2/plugins").json()
    [plugin] = [one for one in answer["plugins"] if one["name"] == "sluice"]
    views = {one["destination"]: one["href"] for one in plugin["external_views"]}
    assert views == {"nav": "sluice/", "dag": "sluice/dags/{DAG_ID}/"}
    assert [one["url_prefix"] for one in plugin["fastapi_apps"]] == ["/sluice"]
    icon = page.server.as_(None).get("/sluice/icon.svg")
    assert (icon.status_code, icon.headers["content-type"]) == (200, "image/svg+xml")


def test_who_is_not_logged_in_is_sent_to_the_login_and_reads_nothing(page: PagePlace) -> None:
    stranger = page.server.as_(None)
    shown = stranger.get("/sluice/dags/tiering/")
    assert (shown.status_code, shown.headers["location"]) == (
        307,
        "/api/v2/auth/login?next=%2Fsluice%2Fdags%2Ftiering%2F",
    )
    login = stranger.get(shown.headers["location"])
    assert unquote(login.headers["location"]) == "/auth/login?next=/sluice/dags/tiering/"
    assert problem(stranger.get(api("overview")))[:2] == (401, "Unauthorized")
    answer = stranger.post(api("tables/shop/orders/pause"), headers=ASKS_ITSELF)
    assert problem(answer)[:2] == (401, "Unauthorized")


def test_a_browser_and_a_program_read_the_page(page: PagePlace) -> None:
    for caller in (page.server.as_("viewer"), page.server.program("viewer")):
        answer = caller.get(api("overview"))
        assert answer.status_code == 200, answer.text
        found = answer.json()
        assert (found["user"], found["may_act"]) == ("viewer", False)
        assert found["why_not"] == "your role may read DAG tiering, but not edit it"
        shown = caller.get("/sluice/dags/tiering/")
        assert shown.status_code == 200
        assert "<html" in shown.text
    assert page.server.as_("user").get(api("overview")).json()["may_act"]


def test_the_first_dag_that_tiers_is_opened(page: PagePlace) -> None:
    answer = page.server.as_("viewer").get("/sluice/")
    assert (answer.status_code, answer.headers["location"]) == (307, "/sluice/dags/missing/")
    pages = page.server.as_("viewer").get(api("overview")).json()["pages"]
    assert [one["name"] for one in pages] == [
        *("missing", "moved", "own", "rendered", "sales", "tiering", "tiering.second", "wrong"),
    ]
    assert [one["name"] for one in pages if one["is_this"]] == ["tiering"]
    assert pages[0]["url"] == "/dags/missing/plugin/lake-tiering-of-dag"


@pytest.mark.parametrize("dag", ["else", "maintenance", "no.such"])
def test_a_dag_that_tiers_nothing_names_those_that_do(page: PagePlace, dag: str) -> None:
    """A tag makes no DAG that tiers."""
    shown = page.server.as_("viewer").get(f"/sluice/dags/{dag}/")
    assert shown.status_code == 200
    assert f"DAG {dag} tiers no lake tables. These DAGs do:" in shown.text
    assert '<a href="/sluice/dags/tiering/">tiering</a>' in shown.text
    status, error, message = problem(page.server.as_("viewer").get(api("overview", dag)))
    assert (status, error) == (404, "TiersNothing")
    assert message.startswith(f"DAG {dag} tiers no lake tables; these do: missing, moved, own")


def test_a_connection_that_is_missing_or_wrong_is_named(page: PagePlace) -> None:
    viewer = page.server.as_("viewer")
    assert viewer.get("/sluice/dags/missing/").status_code == 200, "the page shows the problem"
    assert problem(viewer.get(api("overview", "missing"))) == (
        502,
        "ConfigurationError",
        "Airflow has no connection 'not_there': add it, type Apache Fluss, by Admin > Connections"
        " or as AIRFLOW_CONN_NOT_THERE. The API server needs it, too",
    )
    status, error, message = problem(viewer.get(api("overview", "wrong")))
    assert (status, error) == (502, "ConfigurationError")
    assert message.startswith("connection 'wrong': a login needs transport fluss")


def test_a_connection_that_changes_is_noticed(page: PagePlace) -> None:
    admin = page.server.program("admin")
    stored = json.loads(connection(page.shop))
    body = {"connection_id": "moved", **stored, "extra": json.dumps(stored["extra"]), "port": 1}
    assert admin.post("/api/v2/connections", json=body).status_code == 201
    page.shop.table("moved")
    first = admin.get(api("overview", "moved")).json()
    assert first["cluster"] == "grpc://127.0.0.1:1"
    wait_until(lambda: _error(admin), 60, "the reader to fail")
    changed = admin.patch("/api/v2/connections/moved", json={**body, "port": stored["port"]})
    assert changed.status_code == 200, changed.text
    wait_until(lambda: _tables(admin), 60, "the page to read the other address")


def _error(caller: httpx.Client) -> bool:
    return caller.get(api("overview", "moved")).json()["reading"]["error"] is not None


def _tables(caller: httpx.Client) -> bool:
    found = caller.get(api("tables?search=moved", "moved")).json()
    return [one["path"] for one in found["tables"]] == ["shop.moved"]


def _shown(caller: httpx.Client, path: str) -> bool:
    return path in caller.get(api(f"tables?search={path}")).text


def test_headers_keep_the_page_to_itself(page: PagePlace) -> None:
    viewer = page.server.as_("viewer")
    for address in (api("overview"), "/sluice/dags/tiering/", "/sluice/dags/else/"):
        headers = viewer.get(address).headers
        assert "frame-ancestors 'self'" in headers["content-security-policy"], address
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
    assert viewer.get(api("overview")).headers["cache-control"] == "no-store"


def test_the_description_holds_at_the_address_that_it_names(
    page: PagePlace, tmp_path: Path
) -> None:
    """A client that is made from it, and schemathesis on all reads."""
    viewer = page.server.program("viewer")
    path = page.shop.table("described")
    wait_until(lambda: _shown(viewer, str(path)), 60, "the table to be read")
    asked = viewer.get(api("openapi.json"))
    description = asked.json()
    [server] = description["servers"]
    base = urljoin(str(asked.url), server["url"])
    assert base == f"{page.server.url}/sluice"
    names = {"dag_id": "tiering", "database": "shop", "table": "described"}
    for address, operations in description["paths"].items():
        if "get" in operations:
            answer = viewer.get(base + address.format(**names))
            assert (answer.status_code, answer.headers["content-type"]) == (
                *(200, "application/json"),
            ), address
    for operations in description["paths"].values():
        for parameter in operations.get("get", {}).get("parameters", ()):
            if parameter["in"] == "path":
                parameter["schema"] = {"enum": [names[parameter["name"]]]}
    file = tmp_path / "openapi.json"
    file.write_text(json.dumps(description))
    command = [SCHEMATHESIS, "run", str(file), "--url", base, "--include-method", "GET"]
    command += ["--checks", ",".join(CHECKS), "--phases", "examples,coverage,fuzzing"]
    command += ["--max-examples", "4", "--seed", "1", "--warnings", "off", "--no-color"]
    command += ["--header", f"Authorization: Bearer {page.server.token('viewer')}"]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=280,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout[-6000:]


def test_links_of_a_table_are_those_of_the_dag_file(page: PagePlace) -> None:
    viewer = page.server.as_("viewer")
    path = page.shop.table("linked")
    wait_until(lambda: _shown(viewer, str(path)), 60, "the table to be read")
    found = viewer.get(api("tables/shop/linked")).json()["links"]
    assert {one["name"]: one["url"] for one in found} == {
        "Lake table": "https://catalog.example/shop/linked?at=",
        "Assets": "/assets?name_pattern=shop.linked",
        "DAG tiering": "/dags/tiering",
    }
    found = viewer.get(api("tables/shop/linked", "sales")).json()["links"]
    assert {one["name"] for one in found} == {"Assets", "DAG sales"}, "only of the web"
