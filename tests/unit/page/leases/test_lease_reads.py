"""Leases on the page, with real servers: who holds them, what, and what a drop does."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from fastapi.testclient import TestClient

from sluice.cli.main import cli
from sluice.client import Client, connect
from sluice.client.leases.ids import lease_id
from sluice.client.leases.tier_lease import tier_lease_id
from sluice.client.statuses.recorded import this_process
from sluice.config import ClientConfig
from sluice.model import Claim, TablePath
from sluice.page.cluster.models import Link
from sluice.page.cluster.per_owner import PerOwner
from sluice.page.leases import reads as lease_reads
from sluice.page.leases.reads import LEASES_MAX
from sluice.page.local.place import LocalPlace
from sluice.page.local.serving import local_app
from sluice.page.requests import holders
from sluice.rounds.records.run_names import RunName, write_run_name
from sluice.server.cluster import EmbeddedCluster
from sluice.server.coordinator.calls.lease_calls import LeaseService
from tests.support.network.users import TOKENS, write_users
from tests.support.programs.processes import wait_for
from tests.support.statuses.no_lease_list import list_no_leases
from tests.support.statuses.planned_rounds import plan_round
from tests.unit.server.kv_support import KvCaller
from tests.unit.server.support import Caller, config

OF_RUN = lease_id("west", "lake", "manual__1")
ORDERS, USERS = TablePath("shop", "orders"), TablePath("shop", "users")
TIERED = {"table.datalake.enabled": "true"}


class Linked(LocalPlace):
    """A place that knows the pages of one Airflow's runs."""

    def run_links(self, dag_id: str, run_id: str, deployment_id: str | None) -> list[Link]:
        return [Link(name="Run", url=f"/{deployment_id}/{dag_id}/{run_id}")]


class Scene:
    """Two primary-key tables with a KV snapshot each, and the page of their cluster."""

    def __init__(self, cluster: EmbeddedCluster, client: Client, work: Path) -> None:
        self.cluster, self.client, self.work = cluster, client, work
        self.place = Linked(client, work_uri=str(work))
        self.page = TestClient(local_app(self.place))
        caller = Caller(cluster.address)
        self.tables = {path: KvCaller(caller, path, properties=TIERED) for path in (ORDERS, USERS)}
        self.snapshot(ORDERS, 1)
        self.snapshot(USERS, 1)

    def snapshot(self, path: TablePath, number: int) -> None:
        self.tables[path].put((number, "text" * number, number))
        self.cluster.take_kv_snapshots(path)

    def lease(self, name: str, *paths: TablePath) -> None:
        with self.client.snapshot_lease(name, *paths, on_exit="keep"):
            pass

    def leases(self, address: str = "/api/v1/leases") -> dict[str, Any]:
        answer = self.page.get(address)
        assert answer.status_code == 200, answer.text
        return {one["lease_id"]: one for one in answer.json()["leases"]}

    def drop(self, name: str, status: int = 200) -> Any:
        answer = self.page.post("/api/v1/leases/drop", json={"lease_id": name})
        assert answer.status_code == status, answer.text
        return answer.json()["message"]

    def claim(self, path: TablePath, by: str | None = None) -> None:
        assert self.client.tiering.claim([path], *([by] if by else []))
        seen = self.place.reader.seen.tables
        if not seen:
            self.place.reader.start()
        self.place.reader.read_soon()

        def is_seen() -> bool:
            table = self.place.reader.seen.tables.get(path)
            return table is not None and table.status.status == "Tiering"

        wait_for("the reader to see the claim", is_seen)

    def close(self) -> None:
        if self.place.reader.seen.tables:
            self.place.reader.stop()
        self.client.close()


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    settings = config(tmp_path / "data", listen="grpc://127.0.0.1:0", kv_snapshot_interval_ms=0)
    with EmbeddedCluster(settings) as cluster:
        made = Scene(cluster, connect(cluster.address), tmp_path / "work")
        yield made
        made.close()


def test_who_holds_what_and_for_how_long(scene: Scene) -> None:
    write_run_name(str(scene.work), OF_RUN, RunName("lake", "manual__1"))
    unnamed = lease_id("east", "lake", "manual__2")
    scene.lease(OF_RUN, ORDERS, USERS)
    scene.lease(unnamed, USERS)
    scene.lease("job-7", ORDERS)
    with tier_lease_id(scene.tables[ORDERS].table_id) as of_tier:
        scene.lease(of_tier, ORDERS)
    found = scene.leases()
    assert {name: (one["holder"], one["holder_kind"]) for name, one in found.items()} == {
        OF_RUN: ("the run manual__1 of DAG lake, Airflow west", "run"),
        unnamed: ("a run of the Airflow east", "run"),
        "job-7": ("another reader", "reader"),
        of_tier: (
            "a round of `sluice tier` or `sluice repair`, installation"
            f" {of_tier.removeprefix('sluice-tier-').rpartition('-')[0]}",
            "tier",
        ),
    }
    run = found[OF_RUN]
    assert (run["deployment_id"], run["dag_id"], run["run_id"]) == ("west", "lake", "manual__1")
    assert run["links"] == [{"name": "Run", "url": "/west/lake/manual__1"}]
    assert found[unnamed]["links"] == found["job-7"]["links"] == []
    assert run["created_ms"] <= run["renewed_ms"] < run["expires_ms"]
    assert (run["buckets"], run["table_count"]) == (2, 2)
    assert {one["path"]: one["buckets"] for one in run["tables"]} == {
        "shop.orders": 1,
        "shop.users": 1,
    }
    assert [one["oldest_snapshot_id"] for one in run["tables"]] == ["0", "0"]
    assert run["held_bytes"] == sum(one["held_bytes"] for one in run["tables"]) > 0
    assert run["freed_bytes"] == 0


def test_of_very_many_leases_the_largest_are_shown(scene: Scene) -> None:
    latest = scene.client.leases.latest(ORDERS).snapshots.values()
    for number in range(LEASES_MAX + 1):
        scene.client.leases.acquire(f"small-{number:03}", 60_000, latest)
    scene.lease("both", ORDERS, USERS)
    answer = scene.page.get("/api/v1/leases").json()
    assert (answer["total"], len(answer["leases"])) == (LEASES_MAX + 2, LEASES_MAX)
    assert answer["is_complete"] is False
    assert answer["note"] == f"Only the {LEASES_MAX} largest leases are shown."
    assert answer["leases"][0]["lease_id"] == "both"


def test_the_leases_of_one_table(scene: Scene) -> None:
    scene.lease("both", ORDERS, USERS)
    scene.lease("one", USERS)
    assert list(scene.leases("/api/v1/tables/shop/users/leases")) == ["both", "one"]
    found = scene.leases("/api/v1/tables/shop/orders/leases")
    assert list(found) == ["both"]
    assert [one["path"] for one in found["both"]["tables"]] == ["shop.orders"]
    answer = scene.page.get("/api/v1/tables/shop/nope/leases")
    assert (answer.status_code, answer.json()["error"]) == (404, "TableNotExist")


def test_a_drop_of_what_nobody_reads(scene: Scene) -> None:
    scene.lease("job-7", ORDERS)
    assert scene.drop("job-7") == (
        "lease job-7 is dropped. A reader that still uses it fails at its next renewal."
    )
    assert scene.leases() == {}


def test_a_drop_of_what_is_not_there_names_what_is(scene: Scene) -> None:
    assert scene.drop("gone", 404) == "lease 'gone' does not exist: there are no leases"
    for number in range(7):
        scene.lease(f"job-{number}", ORDERS)
    assert scene.drop("gone", 404) == (
        "lease 'gone' does not exist: the leases are job-0, job-1, job-2, job-3, job-4 and 2 more"
    )


@pytest.mark.parametrize("name", ["a/b", "../x", "..", "a b", "é\u2028?#%2F", "x/drop", "'\";<b>"])
def test_an_id_may_be_any_text(scene: Scene, name: str) -> None:
    assert scene.drop(name, 404) == f"lease {name!r} does not exist: there are no leases"


@pytest.mark.parametrize("name", ["..", ".", "a:b", "x" * 200])
def test_odd_ids_that_the_server_takes(scene: Scene, name: str) -> None:
    scene.lease(name, ORDERS)
    assert scene.drop(name).startswith(f"lease {name} is dropped.")
    assert scene.leases() == {}


def test_a_drop_says_what_becomes_of_a_run(scene: Scene) -> None:
    scene.lease(OF_RUN, ORDERS)
    assert scene.drop(OF_RUN).endswith("No round in progress is known to use it.")
    scene.claim(ORDERS, OF_RUN)
    scene.lease(OF_RUN, ORDERS)
    assert scene.drop(OF_RUN).endswith(
        "A round of shop.orders is in progress. It may fail with LeaseLost at the next renewal."
        " The next round reads newer snapshots."
    )


def test_a_drop_says_what_becomes_of_sluice_tier(scene: Scene) -> None:
    scene.claim(USERS)
    with tier_lease_id(scene.tables[USERS].table_id) as of_tier:
        scene.lease(of_tier, USERS)
        assert "A round of shop.users is in progress." in scene.drop(of_tier)


def test_an_earlier_server_tells_less(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """It knows no bytes, and of the tables of a lease the one of its oldest snapshot."""
    listed = LeaseService.list_leases

    def without_tables(self: LeaseService, asked: Any) -> Any:
        answer = listed(self, type(asked)())  # it does not know what else is asked
        for lease in answer.leases:
            for name in ("held_bytes", "freed_bytes", "tables", "table_count"):
                lease.ClearField(name)
        return answer

    monkeypatch.setattr(LeaseService, "list_leases", without_tables)
    scene: Scene = request.getfixturevalue("scene")
    scene.lease("job", USERS)
    [lease] = scene.leases().values()
    assert (lease["buckets"], lease["held_bytes"], lease["table_count"]) == (1, None, None)
    assert lease["tables"][0] == {
        "path": "shop.users",
        "table_id": scene.tables[USERS].table_id,
        "buckets": None,
        "held_bytes": None,
        "freed_bytes": None,
        "oldest_snapshot_id": "0",
    }
    assert list(scene.leases("/api/v1/tables/shop/users/leases")) == ["job"]
    assert scene.leases("/api/v1/tables/shop/orders/leases") == {}
    ran = CliRunner().invoke(cli, ["leases", "--bootstrap", scene.cluster.address])
    assert ran.output.splitlines()[2].split()[:4] == ["job", "1", "-", "-"]


def test_a_cluster_that_lists_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """As Apache Fluss: what runs hold is in the plans of their rounds."""
    list_no_leases(monkeypatch)
    scene: Scene = request.getfixturevalue("scene")
    answer = scene.page.get("/api/v1/leases").json()
    assert (answer["is_complete"], answer["leases"]) == (False, [])
    assert answer["note"].startswith("Not all statuses of tables are read yet")
    scene.claim(ORDERS, OF_RUN)
    [status] = scene.client.statuses.list(ORDERS)
    claim = Claim(status.table_id, ORDERS, status.tiering_epoch, 0)
    plan_round(scene.client, scene.work, OF_RUN, claim)
    write_run_name(str(scene.work), OF_RUN, RunName("lake", "manual__1"))
    monkeypatch.setattr(lease_reads, "_round_leases", PerOwner())  # it answers the same for seconds
    answer = scene.page.get("/api/v1/leases").json()
    assert answer["note"].startswith("This cluster lists no leases. Shown are those that rounds of")
    [lease] = answer["leases"]
    assert lease["holder"] == "the run manual__1 of DAG lake, Airflow west"
    assert lease["links"] == [{"name": "Run", "url": "/west/lake/manual__1"}]
    assert (lease["buckets"], lease["expires_ms"], lease["renewed_ms"]) == (1, None, None)
    assert lease["held_bytes"] > 0
    assert [one["path"] for one in lease["tables"]] == ["shop.orders"]
    assert list(scene.leases("/api/v1/tables/shop/orders/leases")) == [OF_RUN]
    assert scene.leases("/api/v1/tables/shop/users/leases") == {}
    assert scene.drop("a/b é") == (
        "lease a/b é is dropped, if it existed: this cluster lists no leases. A reader that still"
        " uses it fails if its snapshots are deleted before it ends."
    )
    assert scene.drop(OF_RUN).endswith(
        "A round of shop.orders is in progress. It may fail if its KV snapshots are deleted before"
        " it has read them. The next round reads newer snapshots."
    )
    assert scene.leases() == {}
    assert scene.drop(OF_RUN).startswith(f"lease {OF_RUN} was dropped before. This cluster")


def test_another_users_lease_is_refused(tmp_path: Path) -> None:
    users = write_users(tmp_path / "users", {**TOKENS, "rob": ("read", "read-token-0b0b")})
    where: dict[str, Any] = {"listen": "grpc://127.0.0.1:0", "kv_snapshot_interval_ms": 0}
    with EmbeddedCluster(config(tmp_path / "data", **where)) as cluster:
        caller = Caller(cluster.address)
        kv = KvCaller(caller, ORDERS, properties=TIERED)
        kv.put((1, "text", 1))
        cluster.take_kv_snapshots(ORDERS)
        caller.transport.close()
    guarded = config(tmp_path / "data", users_file=str(users), **where)
    with EmbeddedCluster(guarded) as cluster:
        ria = ClientConfig(cluster.address, token=TOKENS["ria"][1])
        with connect(ria) as reader, reader.snapshot_lease("job", ORDERS, on_exit="keep"):
            pass
        with connect(ClientConfig(cluster.address, token="read-token-0b0b")) as rob:
            page = TestClient(local_app(LocalPlace(rob)))
            [lease] = page.get("/api/v1/leases").json()["leases"]
            assert lease["owner"] == "ria"
            answer = page.post("/api/v1/leases/drop", json={"lease_id": "job"})
        assert answer.status_code == 403
        assert answer.json()["error"] == "AuthorizationError"
        assert "belongs to another user" in answer.json()["message"]
        with connect(ClientConfig(cluster.address, token=TOKENS["ada"][1])) as ada:
            page = TestClient(local_app(LocalPlace(ada)))
            assert page.post("/api/v1/leases/drop", json={"lease_id": "job"}).status_code == 200


def test_a_table_names_who_tiers_it(scene: Scene) -> None:
    write_run_name(str(scene.work), OF_RUN, RunName("lake", "manual__1"))
    address = "/api/v1/tables/shop/{}"
    scene.claim(ORDERS, OF_RUN)
    scene.claim(USERS)
    orders, users = (
        scene.page.get(address.format(name)).json()["table"] for name in ("orders", "users")
    )
    assert orders["tiered_by"] == {
        "name": "the run manual__1 of DAG lake, Airflow west",
        "is_run": True,
        "links": [{"name": "Run", "url": "/west/lake/manual__1"}],
    }
    assert users["tiered_by"] == {"name": this_process(), "is_run": False, "links": []}
    assert 0 <= orders["status_read_ms"] - orders["claimed_ms"] < 60_000
    listed = scene.page.get("/api/v1/tables").json()["tables"]
    assert [one["tiered_by"] for one in listed] == [orders["tiered_by"], users["tiered_by"]]


def test_a_storage_that_hangs_does_not_keep_a_table_waiting(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(holders, "READ_S", 60.0)
    pipe = scene.work / OF_RUN / "run.json"
    pipe.parent.mkdir(parents=True)
    os.mkfifo(pipe)  # who opens it waits for somebody who writes
    scene.claim(ORDERS, OF_RUN)
    began_s = time.monotonic()
    table = scene.page.get("/api/v1/tables/shop/orders").json()["table"]
    assert time.monotonic() - began_s < 30
    assert table["tiered_by"] == {
        "name": f"a run of the Airflow west, lease {OF_RUN}",
        "is_run": True,
        "links": [],
    }
    os.close(os.open(pipe, os.O_WRONLY))


def test_who_tiers_a_table_has_no_secrets(scene: Scene) -> None:
    write_run_name(str(scene.work), OF_RUN, RunName("lake", "manual token=planted-1"))
    scene.claim(ORDERS, OF_RUN)
    scene.claim(USERS, "job?password=planted-2")
    answer = scene.page.get("/api/v1/tables")
    assert [one["tiered_by"]["name"] for one in answer.json()["tables"]] == [
        "the run manual token=*** of DAG lake, Airflow west",
        "job?password=***",
    ]
    assert "planted" not in answer.text
