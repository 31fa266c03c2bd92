"""A cluster that goes away: the page tells what it knows, since when, and why, and at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from sluice.client import Client
from sluice.config import ClientConfig
from sluice.model import TableDescriptor, TablePath
from sluice.page.cluster.seen import SeenTable
from sluice.page.local.place import LocalPlace
from sluice.page.local.serving import local_app
from sluice.server.cluster import EmbeddedCluster
from tests.support.page.page_cluster import (
    CALM,
    FAILING,
    KEYED_BY_NOTHING,
    LEASE,
    REASON,
    TIERED,
    PageCluster,
)
from tests.support.programs.processes import wait_for
from tests.unit.server.support import config

SHORT = dict.fromkeys(("request_timeout_ms", "connect_timeout_ms", "retry_timeout_ms"), 200)
OF_TABLE = ["", "/rounds", "/splits", "/snapshots", "/leases"]
READ = [*(f"/tables/shop/stock{part}" for part in OF_TABLE), "/leases"]
AGAIN, GONE = TablePath("shop", "again"), TablePath("shop", "gone")
KEPT = ("leases", "splits", "rounds", "snapshots", "columns", "properties")


class Scene:
    """The page of a cluster that goes away after some of its views were open."""

    def __init__(self, data_dir: Path) -> None:
        settings = config(data_dir, listen="grpc://127.0.0.1:0", kv_snapshot_interval_ms=0)
        with EmbeddedCluster(settings) as cluster:
            self.client = Client(ClientConfig(cluster.address, **SHORT))
            PageCluster(cluster, self.client)
            self.place = LocalPlace(self.client)
            self.place.reader.start()
            wait_for("the statuses", lambda: self.place.reader.seen.is_complete)
            self.http = TestClient(local_app(self.place))
            self.before = {path: self.get(path) for path in READ}
            self.drop_tables()
            wait_for("the rounds", lambda: self.get("/tables")["are_rounds_read"])
        self.first = {path: self.get(path) for path in READ}  # nobody has noticed it yet
        self.place.reader.read_soon()
        wait_for("the reader to give up", lambda: self.place.reader.seen.away_ms is not None)

    def drop_tables(self) -> None:
        """Drops two tables whose views were open, and creates one of them again."""
        admin, paths = self.client.admin, (AGAIN, GONE)
        for path in paths:
            admin.create_table(
                path, TableDescriptor(KEYED_BY_NOTHING, bucket_count=2, properties=TIERED)
            )
        self.read_until(lambda tables: set(paths) <= tables.keys())
        for path in paths:
            for part in OF_TABLE:
                assert self.get(f"/tables/shop/{path.table}{part}")["old"] is None
            admin.drop_table(path)
        admin.create_table(
            AGAIN, TableDescriptor(KEYED_BY_NOTHING, bucket_count=3, properties=TIERED)
        )
        self.new_id = admin.table_info(AGAIN).table_id
        self.read_until(
            lambda tables: (
                AGAIN in tables
                and GONE not in tables
                and tables[AGAIN].status.table_id == self.new_id
            )
        )

    def read_until(self, is_so: Callable[[Mapping[TablePath, SeenTable]], bool]) -> None:
        self.place.reader.read_soon()
        wait_for("the tables", lambda: is_so(self.place.reader.seen.tables))

    def get(self, what: str, status: int = 200) -> Any:
        answer = self.http.get(f"/api/v1{what}")
        assert answer.status_code == status, answer.text
        return answer.json()

    def close(self) -> None:
        self.place.reader.stop()
        self.client.close()


@pytest.fixture(scope="module")
def away(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    found = Scene(tmp_path_factory.mktemp("away"))
    yield found
    found.close()


def test_what_was_read_is_told_while_the_cluster_is_away(away: Scene) -> None:
    assert [one["old"] for one in away.before.values()] == [None] * len(READ)
    for path, then in away.before.items():
        # splits of some seconds ago are not read again, so nobody asks whether the cluster is away
        for now in [away.get(path)] + ([] if path.endswith("/splits") else [away.first[path]]):
            assert now["old"]["read_ms"] < away.place.clock.now_ms()
            assert "127.0.0.1" in now["old"]["why"]
            for name in KEPT:
                assert now.get(name) == then.get(name), (path, name)


def test_a_table_that_nobody_opened_has_what_the_list_has(away: Scene) -> None:
    failing = away.get(f"/tables/shop/{FAILING.table}")
    assert failing["table"]["last_error"] == REASON
    assert failing["table"]["health"] == "failing"
    assert failing["old"]["why"].startswith("the cluster did not answer lately: NetworkError")
    assert failing["bucket_count"] is failing["freshness_ms"] is None
    assert failing["columns"] == []
    (ended,) = away.get(f"/tables/shop/{FAILING.table}/rounds")["rounds"]
    assert (ended["outcome"], ended["round_number"]) == ("failed", 1)
    assert ended["duration_ms"] is not None
    assert away.get(f"/tables/shop/{CALM.table}/rounds")["old"] is not None
    for part in ("/splits", "/snapshots", "/leases"):
        problem = away.get(f"/tables/shop/{FAILING.table}{part}", 502)
        assert problem["message"].startswith("the cluster did not answer lately")
    assert away.get("/tables/shop/none", 502)["error"] == "NetworkError"


def test_nothing_is_told_of_a_table_that_was_dropped(away: Scene) -> None:
    again = away.get(f"/tables/shop/{AGAIN.table}")
    assert again["table"]["table_id"] == away.new_id
    assert again["bucket_count"] is None, "that of the table before"
    for part in ("/splits", "/snapshots", "/leases"):
        away.get(f"/tables/shop/{AGAIN.table}{part}", 502)
    for part in OF_TABLE:
        away.get(f"/tables/shop/{GONE.table}{part}", 502)


def test_a_cluster_that_is_known_to_be_away_costs_no_wait(away: Scene) -> None:
    for _ in range(5):
        started_s = time.monotonic()
        assert away.get("/tables/shop/stock")["table"]["path"] == "shop.stock"
        assert away.get("/leases")["leases"][0]["lease_id"] == LEASE
        if time.monotonic() - started_s < min(SHORT.values()) / 1000:
            return
    raise AssertionError("each of five answers took as long as a call of the cluster")
