"""The actions of the page, on a server that keeps statuses and on one like Fluss."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from sluice.client import Client
from sluice.client.leases.ids import lease_id
from sluice.config import ClientConfig, ServerConfig
from sluice.model import Reason, TablePath
from sluice.page.cluster import cluster_reader
from sluice.page.cluster.cluster_reader import ClusterReader
from sluice.page.cluster.models import DagState
from sluice.page.local.place import LocalPlace
from sluice.page.local.serving import local_app
from sluice.rounds.upkeep.requested import REQUEST_MS_MAX
from sluice.server.cluster import EmbeddedCluster
from tests.support.programs.processes import wait_for
from tests.support.statuses.status_shop import MINUTE_MS, OwnClock, Shop, status_shop


class EmbeddedShop(Shop):
    """The same calls on a server that keeps statuses itself."""

    def __init__(self, cluster: EmbeddedCluster, clock: OwnClock, client: Client) -> None:
        self.cluster, self.clock, self.client = cluster, clock, client
        client.admin.create_database("shop")

    def another(self, **settings: Any) -> Client:
        return self.client


@pytest.fixture
def embedded(tmp_path: Path) -> Iterator[Shop]:
    clock = OwnClock()
    config = ServerConfig(data_dir=str(tmp_path / "data"), listen="grpc://127.0.0.1:0")
    with (
        EmbeddedCluster(config, clock=clock) as cluster,
        Client(ClientConfig(cluster.address)) as client,
    ):
        yield EmbeddedShop(cluster, clock, client)


@pytest.fixture
def plain(tmp_path: Path) -> Iterator[Shop]:
    with status_shop(tmp_path / "plain") as shop:
        yield shop


@pytest.fixture(params=["embedded", "plain"])
def shop(request: pytest.FixtureRequest) -> Shop:
    found: Shop = request.getfixturevalue(request.param)
    return found


@dataclass
class Page:
    """The page of a shop, as a browser calls it."""

    shop: Shop
    place: type[LocalPlace] = LocalPlace

    def __post_init__(self) -> None:
        self._http = TestClient(local_app(self.place(self.shop.client, self.shop.clock)))

    def post(self, path: str) -> tuple[int, dict[str, Any]]:
        answer = self._http.post(f"/api/v1/{path}")
        return answer.status_code, answer.json()

    def get(self, path: str, **headers: str) -> int:
        coded = {name: value.encode() for name, value in headers.items()}
        return self._http.get(f"/api/v1/{path}", headers=coded).status_code

    def done(self, table: TablePath, action: str) -> str:
        """What an action says that it did."""
        status, answer = self.post(f"tables/{table.database}/{table.table}/{action}")
        assert status == 200, answer
        head = f"table {table}: "
        assert answer["message"].startswith(head)
        return str(answer["message"]).removeprefix(head)


@pytest.fixture
def page(shop: Shop) -> Page:
    return Page(shop)


def failing(shop: Shop) -> TablePath:
    path = shop.create("failing")
    claim = shop.claim(path)
    shop.client.tiering.failed(claim, Reason.from_text("the lake is full"))
    return path


def test_retry_says_whether_there_was_something_to_clear(page: Page) -> None:
    path = failing(page.shop)
    assert page.shop.status(path).failures == 1
    assert page.done(path, "retry") == "failures cleared, the next round may start now"
    assert page.shop.status(path).failures == 0
    for _ in range(2):
        assert page.done(path, "retry") == "no failures to clear, nothing was changed"


def test_retry_of_a_paused_table_names_what_is_left_to_do(page: Page) -> None:
    path = failing(page.shop)
    page.done(path, "pause")
    after = "failures cleared, the next round starts after `sluice resume shop.failing`"
    assert page.done(path, "retry") == after


def test_pause_and_resume_say_whether_they_changed_something(page: Page) -> None:
    path = page.shop.create("orders")
    assert page.done(path, "resume") == "not paused, nothing was changed"
    assert page.done(path, "pause") == "paused until `sluice resume shop.orders`"
    again = "paused already until `sluice resume shop.orders`, nothing was changed"
    assert page.done(path, "pause") == again
    assert page.shop.status(path).paused
    assert page.done(path, "resume") == "resumed, the next round starts when the table is due"
    assert page.done(path, "resume") == "not paused, nothing was changed"
    assert not page.shop.status(path).paused


@pytest.mark.parametrize(
    ("by", "becomes"),
    [
        (lease_id("west", "dag", "run"), "ends without a failure, as Airflow runs it"),
        ("host:4711", "continues to its end"),
    ],
)
def test_pause_says_what_becomes_of_the_round_under_way(page: Page, by: str, becomes: str) -> None:
    path = page.shop.create("orders")
    page.shop.clock.ms += MINUTE_MS
    assert page.shop.client.tiering.claim([path], by=by) is not None
    told = page.done(path, "pause")
    assert told == f"paused until `sluice resume shop.orders`; its round under way {becomes}"


def test_tier_now_says_when_the_round_starts(page: Page) -> None:
    path = page.shop.create("orders")
    page.shop.client.tiering.finished(page.shop.claim(path))
    starts = "a round is requested; `sluice tier` or a DAG run starts it"
    for _ in range(2):
        assert page.done(path, "tier") == starts
    page.done(path, "pause")
    starts = "a round is requested, and starts after `sluice resume shop.orders`"
    assert page.done(path, "tier") == starts


class OfPausedDag(LocalPlace):
    """As in Airflow, where somebody has paused the DAG."""

    def dag(self) -> DagState:
        return DagState(dag_id="lake", url="/dags/lake", is_paused=True)


def test_an_answer_says_that_the_dag_is_paused(embedded: Shop) -> None:
    page, path = Page(embedded, OfPausedDag), embedded.create("orders")
    embedded.client.tiering.finished(embedded.claim(path))
    said = "; DAG lake is paused, so it starts no run"
    for action in ("tier", "retry", "resume", "compact"):
        assert page.done(path, action).endswith(said), action
    assert page.done(path, "pause") == "paused until `sluice resume shop.orders`"


class WithoutDatabase(LocalPlace):
    """As in Airflow, whose database is away."""

    def dag(self) -> DagState:
        raise ConnectionError("no database")


def test_an_action_that_cannot_be_answered_is_not_made(embedded: Shop) -> None:
    page, path = Page(embedded, WithoutDatabase), failing(embedded)
    before = embedded.status(path)
    for action in ("tier", "retry", "resume", "compact"):
        status, _ = page.post(f"tables/shop/{path.table}/{action}")
        assert status == 500
        assert embedded.status(path) == before, action


def test_tier_now_during_a_round(embedded: Shop, plain: Shop) -> None:
    """Fluss refuses it: a forced finish would end the round."""
    path = embedded.create("orders")
    embedded.claim(path)
    assert Page(embedded).done(path, "tier") == (
        "a round is requested, and follows the one under way; `sluice tier` or a DAG run starts it"
    )
    plain.claim(plain.create("orders"))
    status, answer = Page(plain).post("tables/shop/orders/tier")
    assert status >= 400
    assert answer["error"] == "TableNotDue"
    assert answer["message"].startswith("table shop.orders is being tiered by run-1")


def test_a_compaction_is_requested_once_until_it_is_too_old(page: Page) -> None:
    path, clock = page.shop.create("orders"), page.shop.clock
    done = "a compaction is requested: the table's next round makes it"
    already = "a compaction is requested already: the table's next round makes it"
    assert page.done(path, "compact") == done
    asked_ms = clock.now_ms()
    assert page.shop.status(path).compaction_requested_ms == asked_ms
    clock.ms += MINUTE_MS
    assert page.done(path, "compact") == already
    assert page.shop.status(path).compaction_requested_ms == asked_ms
    clock.ms = asked_ms + REQUEST_MS_MAX + MINUTE_MS
    assert page.done(path, "compact") == done
    assert page.shop.status(path).compaction_requested_ms == clock.now_ms()
    page.done(path, "pause")
    assert page.done(path, "compact") == (
        "a compaction is requested already: the first round after `sluice resume shop.orders`"
        " makes it"
    )


@pytest.mark.parametrize("action", ["tier", "retry", "pause", "resume", "compact"])
def test_tables_that_cannot_be_acted_on(page: Page, action: str) -> None:
    status, answer = page.post(f"tables/shop/nobody/{action}")
    assert (status, answer["error"]) == (404, "TableNotExist")
    assert "shop.nobody" in answer["message"]
    page.shop.create("log", **{"table.datalake.enabled": "false"})
    status, answer = page.post(f"tables/shop/log/{action}")
    assert status >= 400
    assert answer["error"] == "InvalidTable"
    assert answer["message"].startswith("table shop.log is not tiered")


@pytest.fixture
def other_process(shop: Shop) -> Iterator[LocalPlace]:
    """The place as a second process of the server has it, whose next pass is far away."""
    place = LocalPlace(shop.client, shop.clock)
    place.reader = ClusterReader(shop.client, shop.clock, read_every_s=3600)
    yield place
    place.reader.stop()


def test_another_process_answers_as_new_as_the_change(
    page: Page, other_process: LocalPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = page.shop.create("orders")
    browser = TestClient(local_app(other_process))
    other_process.reader.start()
    wait_for("the first pass", lambda: other_process.reader.seen.is_complete)

    def paused(**headers: str) -> list[bool]:
        found = browser.get("/api/v1/tables", headers=headers).json()["tables"]
        one = browser.get(f"/api/v1/tables/shop/{path.table}", headers=headers).json()["table"]
        return [found[0]["paused"] or False, one["paused"] or False]

    def changed(action: str) -> dict[str, str]:
        page.shop.clock.ms += 1_000
        status, answer = page.post(f"tables/shop/orders/{action}")
        assert status == 200
        page.shop.clock.ms += 10
        return {"X-Sluice-Changed": f"shop.gone@7,shop.orders@{answer['changed_ms']}"}

    header = changed("pause")
    assert paused() == [False, False], "what it has read lately"
    assert paused(**header) == [True, True]
    read_ms = other_process.reader.seen.tables[path].status_read_ms
    page.shop.clock.ms += 1_000
    assert paused(**header) == [True, True]
    assert other_process.reader.seen.tables[path].status_read_ms == read_ms, "it is new enough"
    monkeypatch.setattr(cluster_reader, "CHANGED_PER_S_MAX", 0)
    assert paused(**changed("resume")) == [True, True], "too many in this second"


@pytest.mark.parametrize("wrong", ["orders@1", "shop.orders", "shop.orders@x", "s.o@1,", "s.ö@1"])
def test_a_wrong_change_is_refused(page: Page, wrong: str) -> None:
    status = page.get("tables", **{"X-Sluice-Changed": wrong})
    assert status == 422
