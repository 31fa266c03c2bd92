"""No answer of the page in Airflow holds a secret of a connection, nor does the server's log."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.airflow.page_process import ASKS_ITSELF, PLANTED, PagePlace, api
from tests.airflow.place import wait_until
from tests.support.harness.leaks import leaks

pytestmark = [pytest.mark.airflow, pytest.mark.xdist_group("page")]

NAMES = {"database": "shop", "table": "secrets"}
NOWHERE_ELSE = "Planted-4799-unknown"
PLACES = ("tiering", "sales", "missing", "wrong")
"""DAGs with the connection, and with one that is missing or wrong."""


def calls(page: PagePlace, method: str) -> list[str]:
    """All calls of the API that it describes, without the part that names the DAG."""
    found = page.server.program("admin").get(api("openapi.json")).json()["paths"]
    paths = [path for path, operations in found.items() if method in operations]
    return [path.partition("/api/v1/")[2] for path in paths]


def written(answer: httpx.Response) -> str:
    """Everything that a browser gets."""
    return f"{answer.status_code} {dict(answer.headers)} {answer.text}"


def read(page: PagePlace) -> dict[str, str]:
    """What an administrator reads, by address."""
    admin = page.server.program("admin")
    found = {}
    for dag in PLACES:
        paths = [api(call.format(**NAMES), dag) for call in calls(page, "get")]
        more = [api("openapi.json", dag), f"/sluice/dags/{dag}/", api("tables/shop/absent", dag)]
        found |= {path: written(admin.get(path)) for path in (*paths, *more)}
    return found


def acted(page: PagePlace) -> dict[str, str]:
    """What actions answer: refused for who asks, what is asked and how; failed; and done."""
    viewer, admin = page.server.as_("viewer"), page.server.as_("admin")
    body = {"lease_id": "no-such"}
    found = {}

    def ask(caller: httpx.Client, call: str, dag: str, **how: Any) -> None:
        answer = caller.post(api(call, dag), **how)
        found[f"{len(found)} {dag} {call} {answer.status_code}"] = written(answer)

    for call in calls(page, "post"):
        real, absent = call.format(**NAMES), call.format(database="shop", table="absent")
        ask(viewer, real, "tiering", json=body, headers=ASKS_ITSELF)
        ask(admin, real, "tiering", json=body)
        ask(admin, real, "tiering", content=b"[" * 20_000, headers=ASKS_ITSELF)
        ask(admin, absent, "tiering", content=b"{}", headers=ASKS_ITSELF)
        for dag in PLACES:
            ask(admin, absent, dag, json=body, headers=ASKS_ITSELF)
        ask(admin, real, "own", json=body, headers=ASKS_ITSELF)
    return found


def test_no_answer_and_no_log_holds_a_secret_of_a_connection(page: PagePlace) -> None:
    path, admin = page.shop.table(NAMES["table"]), page.server.program("admin")
    shown = api(f"tables?search={path}")
    wait_until(lambda: str(path) in admin.get(shown).text, 60, "the table to be read")
    answers = read(page) | acted(page)
    statuses = {text.partition(" ")[0] for text in answers.values()}
    assert {"200", "403", "404", "413", "422", "502"} <= statuses, "each kind of answer"
    assert leaks(answers, PLANTED.values()) == []
    log = {"log": page.server.log.read_text(errors="replace")}
    assert leaks(log, PLANTED.values()) == []


def test_a_secret_in_an_answer_would_be_found(page: PagePlace) -> None:
    """In the option of a table, where nobody can know that it is one. No connection has it."""
    path = page.shop.table("proof")
    page.shop.client.admin.set_options(path, {"note-0": NOWHERE_ELSE, "note-1": PLANTED["token"]})
    answer = page.server.program("admin").get(api("tables/shop/proof"))
    shown = {"proof": written(answer)}
    assert leaks(shown, [NOWHERE_ELSE, *PLANTED.values()]) == [("proof", NOWHERE_ELSE)]
