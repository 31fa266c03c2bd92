"""What the page says of maintenance: runs by their reports, rounds by their history."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from sluice.client import Client
from sluice.config import ClientConfig, ServerConfig
from sluice.model import Reason, TablePath, TieringRound, TieringStatus
from sluice.page.cluster.seen import Seen, SeenTable
from sluice.page.local.place import LocalPlace
from sluice.page.local.serving import local_app
from sluice.page.maintenance.history import LOST_AFTER_MS, REPORT_BYTES_MAX, RUNS_MAX
from sluice.page.maintenance.reads import READ_EVERY_S, MaintenanceReader, maintenance_of
from sluice.rounds.records.json_files import write_json
from sluice.rounds.records.maintenance import (
    RUNS_KEPT,
    MaintenanceFiles,
    MaintenanceRequest,
    MaintenanceRun,
    TableReport,
    note_run,
    request_uri,
)
from sluice.rounds.upkeep.conversion import Conversion
from sluice.rounds.upkeep.health import TableHealth
from sluice.rounds.upkeep.maintenance import MaintenanceReport, table_report
from sluice.server.cluster import EmbeddedCluster
from tests.support.programs.processes import wait_for
from tests.support.statuses.status_shop import OwnClock, Shop, status_shop

TASK_URL = "https://airflow/dags/own/runs/r/tasks/maintain_tables"
BEFORE = TableHealth(equality_files=2, data_manifests=5)
CONVERTED = Conversion(files_removed=2, rows=6)
COMPACTED = TieringRound(
    outcome="committed",
    compacted="bucket 0: 5 files became 1",
    files_compacted=5,
    compaction_read_bytes=500,
    compaction_written_bytes=300,
    compaction_ms=70,
    lake_files=3,
    lake_bytes=900,
)
EXPIRED = TieringRound(outcome="committed", snapshots_expired=4, files_expired=9)
LEFT_OUT = TieringRound(outcome="committed", compacted="bucket 0 left out: no time")


class EmbeddedShop(Shop):
    """The same calls on a server that keeps statuses itself."""

    __repr__ = object.__repr__

    def __init__(self, cluster: EmbeddedCluster, clock: OwnClock, client: Client) -> None:
        self.cluster, self.clock, self.client = cluster, clock, client
        client.admin.create_database("shop")

    def another(self, **settings: Any) -> Client:
        return self.client


@pytest.fixture
def plain(tmp_path: Path) -> Iterator[Shop]:
    with status_shop(tmp_path / "plain") as shop:
        yield shop


@pytest.fixture
def embedded(tmp_path: Path) -> Iterator[Shop]:
    clock = OwnClock()
    config = ServerConfig(data_dir=str(tmp_path / "data"), listen="grpc://127.0.0.1:0")
    with (
        EmbeddedCluster(config, clock=clock) as cluster,
        Client(ClientConfig(cluster.address), clock) as client,
    ):
        yield EmbeddedShop(cluster, clock, client)


@pytest.fixture
def work(tmp_path: Path) -> str:
    return f"file://{tmp_path}/work"


class Hiding(LocalPlace):
    """A place whose viewer may not read of the DAG `two`."""

    def shows_dag(self, dag_id: str) -> bool:
        return dag_id != "two"


class InAirflow(LocalPlace):
    is_in_airflow = True


class Page:
    """The page of a shop, which has been read when it is asked."""

    def __init__(
        self, shop: Shop, work_uri: str | None, kind: type[LocalPlace] = LocalPlace
    ) -> None:
        self.shop = shop
        self.place = kind(shop.client, shop.clock, work_uri)
        self._http = TestClient(local_app(self.place))

    def ask(self, **how: Any) -> dict[str, Any]:
        answer = self._http.get("/api/v1/maintenance", params=how)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def read(self, **how: Any) -> dict[str, Any]:
        """The answer once everything that is there now was read."""
        tables = len(self.shop.client.statuses.lake_tables())
        seen_ms = self.place.reader.seen.read_ms

        def is_seen() -> bool:
            self.place.reader.read_soon()
            seen = self.place.reader.seen
            return seen.is_complete and seen.read_ms != seen_ms and len(seen.tables) == tables

        self.shop.clock.ms += round(READ_EVERY_S * 1000)
        wait_for("the tables to be read", is_seen)
        self.ask()
        assert maintenance_of(self.place).wait(60)
        return self.ask(**how)

    def table(self, name: str) -> dict[str, Any]:
        [found] = [one for one in self.read()["tables"] if one["path"] == name]
        return dict(found)


@contextmanager
def page_of(
    shop: Shop, work_uri: str | None, kind: type[LocalPlace] = LocalPlace
) -> Iterator[Page]:
    page = Page(shop, work_uri, kind)
    page.place.reader.start()
    try:
        yield page
    finally:
        page.place.reader.stop()


def maintain(
    work: str,
    *reports: MaintenanceReport,
    began_ms: int = 1_000,
    attempt: str = "a",
    ends: bool | Reason = True,
    **changes: Any,
) -> MaintenanceRun:
    """A run that has reported these tables."""
    folder = changes.pop("folder", f"sluice-west-{began_ms}")
    run = MaintenanceRun(
        folder=folder,
        attempt=attempt,
        began_ms=began_ms,
        ended_ms=began_ms + 500 if ends else None,
        by="the run r of DAG own",
        dag_id="own",
        run_id=f"r{began_ms}",
        task_id="maintain_tables",
        url=TASK_URL,
    )
    run = replace(run, **changes)
    note_run(work, run.dag_id, run)
    files = MaintenanceFiles(request_uri(work, folder, attempt))
    write_json(files.request, MaintenanceRequest("grpc://x:1", ("*",), run.applied).to_json())
    for one in reports:
        files.begin(one.table)
        files.add(table_report(one, applied=run.applied))
    if ends:
        files.end(ends if isinstance(ends, Reason) else None)
    return run


def converted(name: str, **changes: Any) -> MaintenanceReport:
    after = TableHealth(data_manifests=2)
    return MaintenanceReport(name, BEFORE, after, conversion=CONVERTED, **changes)


def test_nothing_is_known_yet(embedded: Shop, work: str) -> None:
    embedded.create("orders")
    with page_of(embedded, None) as page:
        found = page.read()
        assert "`sluice ui --work-uri` names it" in found["note"]
        assert (found["runs"], found["last_run_ms"], found["runs_read_ms"]) == ([], None, None)
        [table] = found["tables"]
        assert (table["path"], table["state"], table["needs"]) == ("shop.orders", "unknown", [])
        assert table["are_rounds_read"], "it has had no round"
    with page_of(embedded, None, InAirflow) as page:
        assert "give Airflow's connection to the cluster a `work_uri`" in page.ask()["note"]
    with page_of(embedded, work) as page:
        found = page.read()
        assert found["note"].startswith("The work folder names no run of the maintenance.")
        assert found["runs_read_ms"] == embedded.clock.now_ms()


def test_what_the_last_run_did_and_what_tables_need_now(embedded: Shop, work: str) -> None:
    for name in ("orders", "stock", "prices"):
        embedded.create(name)
    small = TableHealth(small_files_of_worst=40)
    maintain(
        work,
        converted("shop.orders"),
        MaintenanceReport("shop.stock", small, small, compaction_requested=True),
        MaintenanceReport("shop.prices", notes=["could not expire snapshots: access denied"]),
        MaintenanceReport("shop.x*", error="no table of the cluster matches this pattern"),
    )
    with page_of(embedded, work) as page:
        found = page.read()
        assert found["note"] is None
        [run] = found["runs"]
        assert (run["state"], run["applied"], run["url"]) == ("ended", True, TASK_URL)
        assert (run["began_ms"], run["ended_ms"]) == (1_000, 1_500)
        assert (run["tables"], run["needed"], run["problems"]) == (4, 2, 2)
        assert run["by"] == "the run r of DAG own"
        assert (run["numbers"]["positions"], run["numbers"]["compactions_requested"]) == (6, 1)
        assert (found["last_run_ms"], found["last_run_url"]) == (1_000, TASK_URL)
        by_path = {one["path"]: one for one in found["tables"]}
        assert [*by_path] == ["shop.prices", "shop.x*", "shop.stock", "shop.orders"]
        assert found["by_state"] == {"problem": 2, "needs": 1, "ok": 1}
        orders = by_path["shop.orders"]
        assert (orders["state"], orders["needs"]) == ("ok", []), "what it needed is done"
        assert orders["done"] == ["2 equality delete files became 6 positions"]
        assert orders["gains"] == ["2 -> 0 files of equality deletes", "5 -> 2 manifests"]
        assert (orders["last_maintained_ms"], orders["maintained_by"]) == (1_000, run["folder"])
        assert orders["line"] == (
            "shop.orders: 2 equality delete files: PyIceberg, polars and Snowflake refuse the"
            " table; done: 2 equality delete files became 6 positions; gained: 2 -> 0 files of"
            " equality deletes, 5 -> 2 manifests"
        )
        stock = by_path["shop.stock"]
        assert stock["needs"] == ["up to 40 small data files in a bucket: scans are slow"]
        prices = by_path["shop.prices"]
        assert prices["problems"] == ["could not expire snapshots: access denied"]
        assert prices["retryable"]
        assert (by_path["shop.x*"]["is_known"], prices["is_known"]) == (False, True)


def test_names_of_a_dag_are_hidden_from_who_may_not_read_it(embedded: Shop, work: str) -> None:
    embedded.create("a")
    maintain(work, converted("shop.a"), began_ms=1_000, dag_id="one")
    maintain(work, converted("shop.a"), began_ms=2_000, dag_id="two")
    names = f"{work}/sluice-west-2000/maintenance"
    write_json(f"{names}/x-table-x.json", {"version": 1})
    with page_of(embedded, work, Hiding) as page:
        found = page.read()
        hidden, shown = found["runs"]
    assert "sluice-west-2000" not in json.dumps(found), "it names the Airflow and the run"
    [table] = found["tables"]
    assert table["reported_by"] == table["maintained_by"] == hidden["folder"] == "hidden-1"
    assert (shown["folder"], hidden["problem"].count("hidden-1")) == ("sluice-west-1000", 1)
    assert shown["dag_id"] == "one"
    assert [hidden[name] for name in ("dag_id", "run_id", "task_id", "url")] == [None] * 4
    assert hidden["by"] == "a run of another DAG"
    assert shown["url"]


def test_a_run_is_shown_with_all_of_its_tasks(embedded: Shop, work: str) -> None:
    embedded.create("t0")
    for number in range(RUNS_MAX + 2):
        maintain(work, converted("shop.t0"), began_ms=1_000 + number)
    missing = MaintenanceReport("shop.x*", error="no table of the cluster matches this pattern")
    for index in range(RUNS_MAX + 2):
        maintain(
            work,
            *([] if index else [missing]),
            began_ms=2_000 + index,
            folder=f"sluice-west-2000-{index}",
            run_id="mapped",
            map_index=index,
        )
    with page_of(embedded, work) as page:
        found = page.read()
    runs = found["runs"]
    mapped = [one for one in runs if one["run_id"] == "mapped"]
    assert [one["map_index"] for one in mapped] == [*reversed(range(RUNS_MAX + 2))]
    assert {one["map_index"] for one in runs} == {None, *range(RUNS_MAX + 2)}
    assert len(runs) == len(mapped) + RUNS_KEPT
    assert len({one["folder"] for one in runs}) == len(runs)
    assert [one["path"] for one in found["tables"]] == ["shop.x*", "shop.t0"], "of the newest run"


def test_a_dag_that_runs_often_hides_no_other(embedded: Shop, work: str) -> None:
    embedded.create("t0")
    maintain(work, converted("shop.t0"), began_ms=1_000, dag_id="daily")
    for number in range(RUNS_MAX):
        maintain(work, began_ms=2_000 + number, dag_id=f"hourly{number % 2}")
    with page_of(embedded, work) as page:
        found = page.read()
    assert [one["dag_id"] for one in found["runs"]].count("daily") == 1
    assert len(found["runs"]) == RUNS_MAX
    assert found["tables"][0]["last_maintained_ms"] == 1_000


def test_search_filter_sort_and_pages(embedded: Shop, work: str) -> None:
    for name in ("a", "b", "c", "d"):
        embedded.create(name)
    maintain(work, converted("shop.c"), began_ms=1_000, dag_id="one")
    maintain(
        work,
        converted("shop.a"),
        converted("shop.b", notes=["could not merge manifests: refused"]),
        began_ms=2_000,
        dag_id="two",
    )
    with page_of(embedded, work) as page:

        def paths(**how: Any) -> list[str]:
            return [one["path"].removeprefix("shop.") for one in page.ask(**how)["tables"]]

        assert page.read()["total"] == 4
        assert paths() == ["b", "d", "a", "c"]
        assert paths(sort="table", descending=True) == ["d", "c", "b", "a"]
        assert paths(sort="last_maintained") == ["c", "a", "b", "d"]
        assert paths(sort="last_maintained", descending=True) == ["a", "b", "c", "d"]
        assert paths(search="REFUSED") == ["b"]
        assert paths(state=["ok", "unknown"], sort="table") == ["a", "c", "d"]
        assert paths(database="other") == []
        found = page.ask(sort="table", offset=1, limit=2)
        assert [one["path"] for one in found["tables"]] == ["shop.b", "shop.c"]
        assert (found["matched"], found["offset"], found["databases"]) == (4, 1, ["shop"])
        assert page.ask(search="refused")["matched"] == 1
    with page_of(embedded, work) as page:
        bad = page._http.get("/api/v1/maintenance", params={"sort": "nonsense"})
        assert bad.status_code == 422


def test_a_dry_run_says_what_is_needed_and_hides_nothing_that_was_done(
    embedded: Shop, work: str
) -> None:
    embedded.create("orders")
    maintain(work, converted("shop.orders"), began_ms=1_000)
    looked = MaintenanceReport("shop.orders", BEFORE, snapshots_due=3)
    maintain(work, looked, began_ms=2_000, applied=False)
    with page_of(embedded, work) as page:
        table = page.table("shop.orders")
    assert (table["state"], table["was_applied"], table["reported_ms"]) == ("needs", False, 2_000)
    assert table["needs"] == list(BEFORE.needs())
    assert table["line"].endswith("to do: 3 snapshots may expire")
    assert table["last_maintained_ms"] == 1_000
    assert table["done"] == ["2 equality delete files became 6 positions"]


def test_a_run_under_way_one_that_gave_up_and_one_that_was_killed(
    embedded: Shop, work: str
) -> None:
    for name in ("a", "b"):
        embedded.create(name)
    why = Reason("NetworkError", "no coordinator: token=tip-top-secret", "refused", retryable=True)
    maintain(work, began_ms=1_000, ends=why)
    killed = maintain(work, converted("shop.a"), began_ms=2_000, ends=False)
    MaintenanceFiles(request_uri(work, killed.folder, "a")).begin("shop.b")
    with page_of(embedded, work) as page:
        found = page.read()
        running, failed = found["runs"]
        assert (running["state"], running["at"], running["tables"]) == ("running", "shop.b", 1)
        assert failed["state"] == "failed"
        assert failed["error"] == "NetworkError: no coordinator: token=***"
        assert found["last_run_ms"] == 1_000, "the last one that ended"
        again = maintain(
            work, converted("shop.b"), began_ms=3_000, attempt="b", folder=killed.folder
        )
        found = page.read()
        retried, _ = found["runs"]
        assert (retried["state"], retried["tables"], retried["began_ms"]) == ("ended", 2, 3_000)
        assert {one["path"]: one["state"] for one in found["tables"]} == {
            "shop.a": "ok",
            "shop.b": "ok",
        }
        maintain(work, began_ms=4_000, ends=False)
        note_run(work, "own", replace(again, folder="sluice-west-5000", began_ms=5_000))
        states = {one["began_ms"]: one["state"] for one in page.read()["runs"]}
        assert states[4_000] == "running", "another run of the task says nothing of it"
        assert states[5_000] == "unreported", "it has ended, and nobody knows how"


def test_a_run_is_lost_once_it_was_silent_for_hours(embedded: Shop, work: str) -> None:
    embedded.create("a")
    began_ms = embedded.clock.ms
    run = maintain(work, converted("shop.a"), began_ms=began_ms, ends=False)
    MaintenanceFiles(request_uri(work, run.folder, "a")).begin("shop.b")
    folder = Path(work.removeprefix("file://")) / run.folder / "maintenance"
    sign_ms = began_ms + 60_000
    for file in folder.iterdir():
        os.utime(file, (sign_ms / 1000, sign_ms / 1000))
    with page_of(embedded, work) as page:
        embedded.clock.ms = sign_ms + LOST_AFTER_MS - 60_000
        [shown] = page.read()["runs"]
        assert (shown["state"], shown["at"]) == ("running", "shop.b")
        assert shown["last_sign_ms"] == sign_ms
        embedded.clock.ms = sign_ms + LOST_AFTER_MS
        [shown] = page.read()["runs"]
        assert (shown["state"], shown["at"]) == ("lost", "shop.b")
        late = converted("shop.b")
        MaintenanceFiles(request_uri(work, run.folder, "a")).add(table_report(late, applied=True))
        sign_ms = embedded.clock.ms
        for file in folder.iterdir():
            os.utime(file, (sign_ms / 1000, sign_ms / 1000))
        [shown] = page.read()["runs"]
        assert shown["state"] == "running", "it was slow, and goes on"


def test_a_run_that_ended_without_its_end_file_is_lost(embedded: Shop, work: str) -> None:
    run = maintain(work, converted("shop.a"), ends=False)
    note_run(work, "own", replace(run, ended_ms=1_500))
    with page_of(embedded, work) as page:
        [shown] = page.read()["runs"]
    assert (shown["state"], shown["problem"]) == ("lost", None)


def test_no_secret_of_the_work_folders_address_is_shown(
    embedded: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A storage may name the key that it refuses without the address that has it."""
    monkeypatch.chdir(tmp_path)  # this address is a relative path
    work = "file://ann:planted-4711@/work"
    embedded.create("orders")
    why = "the store refused planted-4711"
    maintain(work, converted("shop.orders", notes=[why]), ends=Reason("OSError", why))
    with page_of(embedded, work) as page:
        found = page.read()
    assert found["runs"][0]["error"] == "OSError: the store refused ***"
    assert "planted-4711" not in str(found)


def test_no_secret_is_shown(embedded: Shop, work: str) -> None:
    embedded.create("orders")
    secret = "hunter2-hunter2"
    note = f"could not delete: s3://lake refused password={secret}"
    maintain(
        work,
        MaintenanceReport("shop.orders", TableHealth(unknown=note), notes=[note]),
        url=f"https://u:{secret}@airflow/x",
        by=f"token={secret}",
    )
    with page_of(embedded, work) as page:
        found = page.read()
    assert secret not in str(found)
    assert found["runs"][0]["url"] is None
    [table] = found["tables"]
    assert table["problems"] == ["could not delete: s3://lake refused password=***"]


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("javascript:alert(1)", None),
        ("", None),
        ("http://[broken", None),
        ("http://localhost:8080/dags/own", "http://localhost:8080/dags/own"),
    ],
)
def test_only_addresses_for_browsers_are_links(
    embedded: Shop, work: str, url: str, shown: str | None
) -> None:
    maintain(work, url=url)
    with page_of(embedded, work) as page:
        [run] = page.read()["runs"]
    assert run["url"] == shown


def test_reports_that_cannot_be_read_hide_no_others(embedded: Shop, work: str) -> None:
    for name in ("a", "b", "c"):
        embedded.create(name)
    run = maintain(work, converted("shop.a"), converted("shop.b"), converted("shop.c"))
    folder = Path(work.removeprefix("file://")) / run.folder / "maintenance"
    (folder / "a-table-00001.json").write_text('{"version": 1, "tab')
    (folder / "a-table-00002.json").write_text(" " * (REPORT_BYTES_MAX + 1))
    odd = TableReport("shop.d", "", numbers={"positions": "many"})  # type: ignore[dict-item]
    write_json(f"file://{folder}/a-table-00004.json", odd.to_json())
    with page_of(embedded, work) as page:
        found = page.read()
        [shown] = found["runs"]
        assert "2 reports cannot be read: file://" in shown["problem"]
        assert {one["path"]: one["state"] for one in found["tables"]} == {
            "shop.a": "unknown",
            "shop.b": "unknown",
            "shop.c": "ok",
        }
    for path in folder.iterdir():
        path.unlink()
    (Path(work.removeprefix("file://")) / "maintenance/bad.json").write_text("{")
    with page_of(embedded, work) as page:
        found = page.read()
        [shown] = found["runs"]
        assert shown["problem"] == "its reports were deleted"
        assert (shown["state"], shown["ended_ms"]) == ("unreported", 1_500), "not lost: it ended"
        assert "maintenance/bad.json cannot be read" in found["note"]


def test_a_work_folder_that_cannot_be_listed_is_said(embedded: Shop) -> None:
    path = embedded.create("orders")
    embedded.client.tiering.finished(embedded.claim(path), details=COMPACTED)
    with page_of(embedded, "nonsense://x/work") as page:
        found = page.read()
    assert found["note"].startswith("Runs of the maintenance cannot be read: ValueError")
    assert found["tables"][0]["files_compacted"] == 5, "the rest is shown all the same"


@pytest.mark.parametrize("kind", ["embedded", "plain"])
def test_what_rounds_compacted_and_expired(
    kind: str, request: pytest.FixtureRequest, work: str
) -> None:
    shop: Shop = request.getfixturevalue(kind)
    path = shop.create("orders")
    idle = shop.create("idle")
    ended = []
    for details in (COMPACTED, EXPIRED, LEFT_OUT):
        shop.client.tiering.finished(shop.claim(path), details=details)
        ended.append(shop.clock.ms)
    shop.client.statuses.request_compaction(path)
    asked_ms = shop.clock.ms
    with page_of(shop, work) as page:
        table = page.table(str(path))
        assert (table["last_compacted_ms"], table["last_compaction_round"]) == (ended[0], 1)
        assert table["last_compaction"] == "bucket 0: 5 files became 1"
        sizes = [table[f"compaction_{name}"] for name in ("read_bytes", "written_bytes", "ms")]
        assert (table["files_compacted"], sizes) == (5, [500, 300, 70])
        assert (table["last_expired_ms"], table["snapshots_expired"]) == (ended[1], 4)
        assert (table["lake_files"], table["lake_bytes"]) == (3, 900)
        assert (table["left_out"], table["left_out_ms"]) == (LEFT_OUT.compacted, ended[2])
        assert (table["state"], table["compaction_requested_ms"]) == ("requested", asked_ms)
        assert table["next_round"] == "compacts the table, as was requested"
        shop.client.statuses.pause(path)
        after = "compacts the table, as was requested, after `sluice resume shop.orders`"
        assert page.table(str(path))["next_round"] == after
        shop.client.statuses.resume(path)
        details = replace(COMPACTED, files_compacted=8, compaction_request_ms=asked_ms)
        shop.client.tiering.finished(shop.claim(path), details=details)
        table = page.table(str(path))
        assert (table["files_compacted"], table["left_out"]) == (8, None)
        assert table["request_completed_ms"] == table["last_compacted_ms"]
        assert (table["state"], table["next_round"]) == ("unknown", None)
        assert table["last_expired_ms"] == ended[1], "of a round that was read before"
        assert page.table(str(idle))["last_compacted_ms"] is None
        assert [one["path"] for one in page.ask(sort="last_compacted")["tables"]] == [
            "shop.orders",
            "shop.idle",
        ]


def test_a_cluster_that_is_away_is_told_and_not_asked_at_each_look() -> None:
    clock = OwnClock()
    config = ClientConfig("grpc://127.0.0.1:1", connect_timeout_ms=100, retry_timeout_ms=0)
    path = TablePath("shop", "orders")
    seen = Seen({path: SeenTable(TieringStatus(path, 1, "Tiered", 1, rounds=9), 1_000)}, 1_000)
    with Client(config) as client:
        reader = MaintenanceReader(client, None, clock)
        reader.listing(seen)
        assert reader.wait(60)
        first = reader._thread
        found, _ = reader.listing(seen)
        assert "NetworkError" in (found.error or "")
        assert reader._thread is first
        clock.ms += round(READ_EVERY_S * 1000)
        reader.listing(seen)
        assert reader._thread is not first
        assert reader.wait(60)


def test_an_older_run_is_shown_again_once_the_newer_one_is_deleted(
    embedded: Shop, work: str
) -> None:
    embedded.create("a")
    older = maintain(work, converted("shop.a"), began_ms=1_000)
    newer = maintain(work, converted("shop.a"), began_ms=2_000)
    with page_of(embedded, work) as page:
        page.read()
        assert page.table("shop.a")["reported_by"] == newer.folder
        [notes] = Path(work.removeprefix("file://")).glob("maintenance/*.json")
        content = json.loads(notes.read_text())
        content["runs"] = [each for each in content["runs"] if each["folder"] == older.folder]
        notes.write_text(json.dumps(content))
        assert page.table("shop.a")["reported_by"] == older.folder


def test_a_report_with_very_many_texts_is_cut(embedded: Shop, work: str) -> None:
    for name in ("many", "long"):
        embedded.create(name)
    maintain(
        work,
        converted("shop.many", notes=tuple(f"problem {number}" for number in range(50))),
        converted("shop.long", notes=tuple(f"{letter * 3_000}" for letter in "abc")),
    )
    with page_of(embedded, work) as page:
        many = page.table("shop.many")["problems"]
        assert many[-2:] == ["problem 19", "and 30 more: the report has them"]
        long = page.table("shop.long")["problems"]
        assert long == ["a" * 3_000, "and 2 more: the report has them"]
