"""What the page tells of one table, from a real server: definition, splits, snapshots, rounds."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pytest
from fastapi import Depends, Request
from fastapi.testclient import TestClient

from sluice.client import Client, connect
from sluice.client.admin.admin import Admin
from sluice.config import ServerConfig
from sluice.masking import visible
from sluice.model import (
    Column,
    Reason,
    Schema,
    TableBucket,
    TableDescriptor,
    TablePath,
    TieringRound,
)
from sluice.model import types as t
from sluice.model.record_fields import fields_of
from sluice.page.app import page_app
from sluice.page.cluster.models import Link, is_wide_id
from sluice.page.local.place import LocalPlace
from sluice.page.requests.ports import Viewer, serve
from sluice.page.tables import splits as table_splits
from sluice.page.tables.splits import AT_ONCE, WHOLE_MAX
from sluice.server.cluster import EmbeddedCluster
from tests.support.statuses.status_shop import status_shop
from tests.unit.server.kv_support import KvCaller
from tests.unit.server.support import Caller
from tests.unit.server.tablet.kv.test_kv_damaged_replay import damage

LAKE = {"table.datalake.enabled": "true", "table.datalake.freshness": "1 min"}
ORDERS = TablePath("shop", "orders")
ANYBODY = Viewer(None, True)
COMMENT = "of the shop; token: planted-4711"
SNAPSHOT = (1 << 62) + 7
"""More than a browser's numbers can tell apart."""


class Linked(LocalPlace):
    """A place that knows pages of tables and rounds, as Airflow does."""

    def table_links(self, path: TablePath) -> list[Link]:
        return [Link(name="DAG", url=f"/dags/{path}")]

    def round_links(self, path: TablePath, ended: TieringRound) -> list[Link]:
        return [
            Link(name="Task instance", url=f"/tasks/{ended.airflow_task}"),
            Link(name="Lake table", url=f"/lake/{path}/{ended.lake_snapshot_id}"),
        ]


class Hiding(Linked):
    """A place whose viewer may read of no DAG."""

    def shows_dag(self, dag_id: str) -> bool:
        return False


class Foreign(LocalPlace):
    """A place that acts on no table, as the page of a DAG that does not tier it."""

    def why_not_act(self, path: TablePath) -> str:
        return f"not {path}"


class Page:
    """The page of a cluster, and a client of it."""

    def __init__(self, client: Client, place: LocalPlace, who: Viewer = ANYBODY) -> None:
        self.client, self.place = client, place

        def viewer(request: Request) -> None:
            serve(request, place, who)

        self.http = TestClient(page_app("", [Depends(viewer)], []))

    def get(self, path: TablePath, what: str = "", status: int = 200, **query: int) -> Any:
        names = f"{quote(path.database, safe='')}/{quote(path.table, safe='')}"
        answer = self.http.get(f"/api/v1/tables/{names}{what}", params=query)
        assert answer.status_code == status, answer.text
        return answer.json()

    def create(self, path: TablePath = ORDERS, buckets: int = 1, **more: Any) -> TablePath:
        columns = (
            Column("id", t.BIGINT, 0, "number of the order"),
            Column("day", t.STRING, 1, COMMENT),
        )
        schema = Schema(columns, highest_field_id=1)
        properties = {**LAKE, **more.pop("properties", {})}
        descriptor = TableDescriptor(schema, bucket_count=buckets, properties=properties, **more)
        self.client.admin.create_table(path, descriptor)
        return path

    def append(self, path: TablePath, rows: int, day: str = "mon") -> None:
        data = {"id": pa.array(range(rows), pa.int64()), "day": pa.array([day] * rows)}
        with self.client.log_writer(path) as writer:
            writer.write(pa.table(data))

    def tier(self, path: TablePath, offsets: dict[int, int], snapshot_id: int) -> None:
        """What a round does on the side of Fluss."""
        tiering = self.client.tiering
        self.client.statuses.request_round(path)
        claim = tiering.claim([path], by="run-1")
        assert claim is not None
        ends = {TableBucket(claim.table_id, None, b): end for b, end in offsets.items()}
        stored = tiering.prepare_lake_snapshot(claim.table_id, path, ends)
        tiering.commit_lake_snapshot(claim, snapshot_id, stored, ends, {}, -1)
        tiering.finished(claim, details=TieringRound(
            outcome="committed", lake_snapshot_id=snapshot_id, rows_written=sum(offsets.values()),
            lake_rows=5, lake_files=2, lake_bytes=900, airflow_task="d/r/t/0/1",
        ))  # fmt: skip

    def round(self, path: TablePath, details: TieringRound | None, *, failed: bool = False) -> None:
        self.client.statuses.request_round(path)
        claim = self.client.tiering.claim([path], by="run-1")
        assert claim is not None
        if failed:
            self.client.tiering.failed(claim, Reason.from_text("no such file"), details)
            self.client.statuses.retry(path)
        else:
            self.client.tiering.finished(claim, details=details)


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Page]:
    config = ServerConfig(
        data_dir=str(tmp_path), listen="grpc://127.0.0.1:0", kv_snapshot_interval_ms=0
    )
    with EmbeddedCluster(config) as cluster, connect(cluster.address) as client:
        client.admin.create_database("shop")
        yield Page(client, Linked(client))


# ---- details ----


def test_the_definition_of_a_table(page: Page) -> None:
    page.create(
        buckets=3,
        bucket_keys=("id",),
        custom_properties={
            "iceberg.s3.secret-access-key": "planted-4711",
            "team": "see https://ann:planted-4711@wiki",
        },
    )
    page.append(ORDERS, 4)
    seen = page.get(ORDERS)
    assert "planted-4711" not in str(seen)
    assert (seen["is_tiered"], seen["how_to_enable"]) == (True, None)
    assert (seen["bucket_count"], seen["bucket_keys"]) == (3, ["id"])
    assert (seen["has_primary_key"], seen["primary_key"]) == (False, [])
    assert seen["freshness_ms"] == 60_000
    assert seen["columns"][0] == {
        "name": "id", "type": "BIGINT", "comment": "number of the order"
    }  # fmt: skip
    assert seen["properties"]["iceberg.s3.secret-access-key"] == "***"
    assert seen["properties"]["team"] == "see https://***@wiki"
    assert seen["properties"]["table.datalake.enabled"] == "true"
    assert "planted-4711" not in json.dumps(seen)
    assert seen["links"] == [{"name": "DAG", "url": "/dags/shop.orders"}]
    assert seen["damage"] == []
    table = seen["table"]
    assert (table["path"], table["status"], table["lag_rows"]) == ("shop.orders", "Pending", 4)


def test_a_table_that_is_not_tiered_says_how_to_enable_it(page: Page) -> None:
    page.create(properties={"table.datalake.enabled": "false"})
    seen = page.get(ORDERS)
    assert seen["is_tiered"] is False
    assert (
        "ALTER TABLE shop.orders SET ('table.datalake.enabled' = 'true')" in seen["how_to_enable"]
    )
    table = seen["table"]
    assert (table["health"], table["status"]) == ("unknown", "Unknown")
    assert table["why"].startswith("table shop.orders is not tiered: in Flink SQL")
    assert page.get(ORDERS, "/snapshots")["snapshots"] == []
    assert page.get(ORDERS, "/splits")["total"] == 1
    page.client.admin.set_options(ORDERS, {"table.datalake.enabled": "true"})
    assert page.get(ORDERS)["table"]["status"] in ("New", "Initialized", "Pending", "Scheduled")


@pytest.mark.parametrize("what", ["", "/splits", "/snapshots", "/rounds"])
@pytest.mark.parametrize(
    "path",
    [
        TablePath("shop", "none"),
        TablePath("none", "orders"),
        TablePath("shop", "no such'\"; table"),
        TablePath("shop", "a.b.c"),
        TablePath("__sys", "__t"),
        TablePath("läden", "süß"),
        TablePath("shop", "..\x00?#&"),
        TablePath("shop", "x" * 2_000),
    ],
    ids=lambda path: path.table[:8],
)
def test_a_table_that_does_not_exist_is_a_problem(page: Page, path: TablePath, what: str) -> None:
    problem = page.get(path, what, status=404)
    assert problem["error"] == "TableNotExist"
    assert visible(path.table[:20]) in problem["message"]


def test_a_table_of_the_same_name_is_another_table(page: Page) -> None:
    """The background reader has the dropped one."""
    page.create()
    page.place.reader.start()
    try:
        while not page.place.reader.seen.is_complete:
            page.place.reader.read_soon()
        first = page.get(ORDERS)["table"]
        assert first["table_id"] == page.client.admin.table_info(ORDERS).table_id
        page.client.admin.drop_table(ORDERS)
        page.create()
        again = page.get(ORDERS)["table"]
        assert again["table_id"] != first["table_id"]
        page.client.admin.set_options(ORDERS, {"table.datalake.enabled": "false"})
        assert page.get(ORDERS)["is_tiered"] is False
    finally:
        page.place.reader.stop()


def test_damage_of_the_servers_disk_is_told(tmp_path: Path) -> None:
    config = ServerConfig(
        data_dir=str(tmp_path / "data"),
        listen="grpc://127.0.0.1:0",
        kv_snapshot_interval_ms=0,
        log_ttl_check_interval_ms=0,
    )
    with EmbeddedCluster(config) as cluster:
        caller = Caller(cluster.address)
        kv = KvCaller(caller)
        for key in range(5):
            kv.put((key, "row", key))
        caller.transport.close()
    shutil.rmtree(tmp_path / "data" / "kv")
    (index,) = (tmp_path / "data" / "log").rglob("*.index")
    index.unlink()
    damage(tmp_path, (3,))
    with EmbeddedCluster(config) as cluster, connect(cluster.address) as client:
        seen = Page(client, LocalPlace(client)).get(kv.path)
    (told,) = seen["damage"]
    assert told.startswith("bucket 0: ")
    assert "sluice skip-damaged db.kv 0:3" in told


# ---- splits ----


def test_splits_begin_with_the_largest_lag(page: Page) -> None:
    page.create(buckets=3, bucket_keys=("id",))
    page.append(ORDERS, 300)
    info = page.client.admin.table_info(ORDERS)
    ends = {b.bucket: end for b, end in page.client.admin.table_offsets(info).items()}
    assert min(ends.values()) > 5
    page.tier(ORDERS, {0: ends[0], 1: ends[1] - 5}, SNAPSHOT)
    seen = page.get(ORDERS, "/splits")
    assert (seen["total"], seen["is_by_lag"]) == (3, True)
    assert seen["lake_snapshot_id"] == str(SNAPSHOT)
    told = [
        (s["bucket"], s["tiered_offset"], s["start_offset"], s["lag_rows"]) for s in seen["splits"]
    ]
    assert told == [(2, None, 0, ends[2]), (1, ends[1] - 5, None, 5), (0, ends[0], None, 0)]
    page_two = page.get(ORDERS, "/splits", offset=1, limit=1)
    assert (page_two["total"], page_two["offset"], len(page_two["splits"])) == (3, 1, 1)
    assert page_two["splits"] == seen["splits"][1:2]
    assert page.get(ORDERS, "/splits", offset=3)["splits"] == []
    for wrong in ({"limit": 0}, {"limit": 1_001}, {"offset": -1}):
        page.get(ORDERS, "/splits", status=422, **wrong)


def test_expired_rows_are_no_lag(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    page.create()
    page.append(ORDERS, 5)
    listed = Admin.list_offsets

    def two_expired(admin: Admin, table: TablePath, *args: Any, **named: Any) -> dict[int, int]:
        found = listed(admin, table, *args, **named)
        return dict.fromkeys(found, 2) if "earliest" in args else found

    monkeypatch.setattr(Admin, "list_offsets", two_expired)
    (split,) = page.get(ORDERS, "/splits")["splits"]
    assert (split["start_offset"], split["end_offset"], split["lag_rows"]) == (2, 5, 3)


def test_pages_of_many_splits_repeat_none_while_lags_change(
    page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_splits, "WHOLE_SPLITS_MAX", 3)
    page.create(buckets=4, bucket_keys=("id",))
    first = page.get(ORDERS, "/splits", limit=2)
    assert (first["is_by_lag"], first["total"]) == (False, 4)
    page.append(ORDERS, 30)
    second = page.get(ORDERS, "/splits", offset=2, limit=2)
    assert [one["bucket"] for one in first["splits"] + second["splits"]] == [0, 1, 2, 3]


def test_splits_of_partitions_have_their_names(page: Page) -> None:
    page.create(buckets=2, partition_keys=("day",))
    for day, rows in (("mon", 3), ("tue", 7)):
        page.client.admin.create_partition(ORDERS, {"day": day})
        page.append(ORDERS, rows, day)
    seen = page.get(ORDERS, "/splits")
    assert seen["total"] == 4
    lags: dict[str, int] = {}
    for one in seen["splits"]:
        lags[one["partition"]] = lags.get(one["partition"], 0) + one["lag_rows"]
    assert lags == {"mon": 3, "tue": 7}


def test_a_table_without_partitions_yet(page: Page) -> None:
    page.create(partition_keys=("day",))
    seen = page.get(ORDERS, "/splits")
    assert (seen["total"], seen["splits"]) == (0, [])


def test_of_many_partitions_only_those_of_the_page_are_read(
    page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    page.create(buckets=2, partition_keys=("day",))
    names = [f"d{number:03}" for number in range(WHOLE_MAX + 1)]
    for name in names:
        page.client.admin.create_partition(ORDERS, {"day": name})
    read: list[int | None] = []
    listed = Admin.list_offsets

    def counted(
        admin: Admin, path: TablePath, buckets: Any, partition: Any, *args: Any, **named: Any
    ) -> Any:
        read.append(partition)
        return listed(admin, path, buckets, partition, *args, **named)

    monkeypatch.setattr(Admin, "list_offsets", counted)
    found: list[tuple[str, int]] = []
    total = 2 * len(names)
    while len(found) < total:
        read.clear()
        seen = page.get(ORDERS, "/splits", offset=len(found), limit=100)
        assert (seen["total"], seen["is_by_lag"]) == (total, False)
        assert len(read) == len(seen["splits"]) / 2 <= 50
        found += [(one["partition"], one["bucket"]) for one in seen["splits"]]
    assert found == [(name, bucket) for name in reversed(names) for bucket in (0, 1)]
    read.clear()
    middle = page.get(ORDERS, "/splits", offset=3, limit=2)["splits"]
    assert [(one["partition"], one["bucket"]) for one in middle] == found[3:5]
    assert len(read) == 2
    assert page.get(ORDERS, "/splits", offset=total)["splits"] == []


def test_all_requests_for_splits_share_eight_threads(
    page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    page.create(buckets=2)
    names: set[threading.Thread] = set()
    real = Admin.list_offsets

    def noted(*args: Any, **more: Any) -> Any:
        names.add(threading.current_thread())
        return real(*args, **more)

    monkeypatch.setattr(Admin, "list_offsets", noted)
    with ThreadPoolExecutor(5) as viewers:  # each asks for more than one thread
        limits = range(1, 25)  # one answer would do for those who ask for the same
        found = [*viewers.map(lambda n: page.get(ORDERS, "/splits", limit=n)["total"], limits)]
    assert found == [2] * 24
    assert len(names) <= AT_ONCE


@pytest.mark.parametrize("partitions", [3, WHOLE_MAX + 3])
def test_a_partition_that_is_dropped_meanwhile_is_left_out(
    page: Page, monkeypatch: pytest.MonkeyPatch, partitions: int
) -> None:
    page.create(partition_keys=("day",))
    for number in range(partitions):
        page.client.admin.create_partition(ORDERS, {"day": f"d{number:03}"})
    gone = f"d{partitions - 2:03}"
    after(
        monkeypatch,
        "partitions_of",
        lambda: page.client.admin.drop_partition(ORDERS, {"day": gone}),
    )
    names = [one["partition"] for one in page.get(ORDERS, "/splits")["splits"]]
    assert gone not in names
    assert f"d{partitions - 1:03}" in names


@pytest.mark.parametrize("is_partitioned", [False, True])
@pytest.mark.parametrize("call", ["table_info", "lake_snapshot"])
@pytest.mark.parametrize("what", ["", "/splits", "/snapshots"])
def test_a_table_that_is_dropped_meanwhile(
    page: Page, monkeypatch: pytest.MonkeyPatch, what: str, call: str, is_partitioned: bool
) -> None:
    page.create(partition_keys=("day",) if is_partitioned else ())
    if is_partitioned:
        page.client.admin.create_partition(ORDERS, {"day": "mon"})
    dropped = after(monkeypatch, call, lambda: page.client.admin.drop_table(ORDERS))
    names = f"{ORDERS.database}/{ORDERS.table}"
    answer = page.http.get(f"/api/v1/tables/{names}{what}")
    if dropped:
        if answer.status_code == 200:
            assert (what, is_partitioned) == ("/splits", True), answer.text
            assert answer.json()["splits"] == []
            return
        assert answer.status_code == 404, answer.text
        assert answer.json()["error"] == "TableNotExist"


def after(monkeypatch: pytest.MonkeyPatch, call: str, act: Callable[[], Any]) -> list[bool]:
    """Does something once, after the next call of the admin client of this name."""
    original = getattr(Admin, call)
    done: list[bool] = []

    def called(admin: Admin, *args: Any, **named: Any) -> Any:
        found = original(admin, *args, **named)
        if not done:
            done.append(True)
            act()
        return found

    monkeypatch.setattr(Admin, call, called)
    return done


# ---- snapshots and rounds ----


def test_snapshots_of_the_history(page: Page) -> None:
    page.create()
    page.append(ORDERS, 5)
    page.tier(ORDERS, {0: 3}, SNAPSHOT - 1)
    page.tier(ORDERS, {0: 5}, SNAPSHOT)
    nothing = TieringRound(outcome="nothing_new", lake_snapshot_id=SNAPSHOT)
    page.round(ORDERS, nothing)
    page.round(ORDERS, replace(nothing, outcome="already_landed", rows_written=0))
    page.round(ORDERS, TieringRound(lake_snapshot_id=SNAPSHOT + 1, rows_written=2), failed=True)
    page.round(ORDERS, None, failed=True)
    page.round(ORDERS, TieringRound(
        outcome="committed", lake_snapshot_id=SNAPSHOT + 2, keys_deleted=3, deletes_as="positions",
        files_compacted=4, compacted="2 of 2 buckets", snapshots_expired=6, files_expired=7,
    ))  # fmt: skip
    seen = page.get(ORDERS, "/snapshots")
    assert seen["registered_snapshot_id"] == str(SNAPSHOT)
    told = [
        (s["lake_snapshot_id"], s["round_number"], s["is_registered"]) for s in seen["snapshots"]
    ]
    assert told == [
        (str(SNAPSHOT + 2), 7, False),
        (str(SNAPSHOT + 1), 5, False),
        (str(SNAPSHOT), 2, True),
        (str(SNAPSHOT - 1), 1, False),
    ]
    newest, partly, registered, _ = seen["snapshots"]
    assert newest["deletes_as"] == "positions"
    assert (newest["files_compacted"], newest["compacted"]) == (4, "2 of 2 buckets")
    assert (newest["snapshots_expired"], newest["files_expired"]) == (6, 7)
    assert (partly["rows_written"], partly["lake_rows"]) == (2, None)
    assert registered["rows_written"] == 5, "of the round that wrote it"
    assert [registered[f"lake_{what}"] for what in ("rows", "files", "bytes")] == [5, 2, 900]
    assert registered["url"] == f"/lake/shop.orders/{SNAPSHOT}"
    assert "other writers" in seen["note"]


def test_a_round_has_each_recorded_field_and_links(page: Page) -> None:
    page.create()
    values: dict[str, Any] = {
        entry.name: f"text {at}" if entry.data_type == t.STRING else SNAPSHOT + at
        for at, entry in enumerate(fields_of(TieringRound))
        if entry.name not in ("table_id", "coordinator_epoch", "outcome", "reason", "accepted")
    }
    page.round(ORDERS, TieringRound(outcome="committed", **values))
    stored = page.client.statuses.history(ORDERS, 1)[0]
    (seen,) = page.get(ORDERS, "/rounds")["rounds"]
    for entry in fields_of(TieringRound):
        value = getattr(stored, entry.name)
        assert seen[entry.name] == (str(value) if is_wide_id(entry) else value), entry.name
    assert seen["lake_snapshot_id"] == str(stored.lake_snapshot_id)
    assert seen["duration_ms"] == stored.duration_ms
    assert seen["links"][0] == {
        "name": "Task instance", "url": f"/tasks/{stored.airflow_task}"
    }  # fmt: skip
    table = page.get(ORDERS)["table"]
    assert (table["lake_rows"], table["lake_bytes"]) == (stored.lake_rows, stored.lake_bytes)


def test_who_may_not_read_a_dag_does_not_see_its_name(page: Page) -> None:
    path = page.create()
    page.tier(path, {0: 0}, 7)
    (ended,) = page.get(path, "/rounds")["rounds"]
    assert ended["airflow_task"] == "d/r/t/0/1"
    (ended,) = Page(page.client, Hiding(page.client)).get(path, "/rounds")["rounds"]
    assert ended["airflow_task"] is None


def test_a_table_says_why_the_viewer_may_not_act_on_it(page: Page) -> None:
    path = page.create()

    def told(place: LocalPlace, who: Viewer = ANYBODY) -> str | None:
        answer: str | None = Page(page.client, place, who).get(path)["table"]["why_not_act"]
        return answer

    assert told(LocalPlace(page.client)) is None
    assert told(Foreign(page.client)) == "not shop.orders"
    assert told(Foreign(page.client), Viewer("ann", False, "ann only reads")) == "ann only reads"


def test_a_cluster_that_keeps_no_statuses(tmp_path: Path) -> None:
    """As an Apache Fluss: status and history are what rounds wrote into its tables."""
    with status_shop(tmp_path / "data") as shop:
        page = Page(shop.client, Linked(shop.client, shop.clock))
        path = shop.create("orders")
        assert page.get(path)["table"]["health"] == "new"
        details = TieringRound(
            outcome="committed",
            lake_snapshot_id=SNAPSHOT,
            lake_rows=5,
            lake_files=2,
            lake_bytes=900,
            airflow_task="dag/run/tier/0/1",
            spark_application="app-1",
        )
        shop.client.tiering.finished(shop.claim(path), details=details)
        table = page.get(path)["table"]
        assert (table["lake_rows"], table["lake_files"], table["lake_bytes"]) == (5, 2, 900)
        assert (table["lag_rows"], table["health"]) == (0, "ok")
        (ended,) = page.get(path, "/rounds")["rounds"]
        assert (ended["airflow_task"], ended["spark_application"]) == ("dag/run/tier/0/1", "app-1")
        (snapshot,) = page.get(path, "/snapshots")["snapshots"]
        assert (snapshot["lake_snapshot_id"], snapshot["is_registered"]) == (str(SNAPSHOT), False)
        assert page.get(path, "/splits")["total"] == 1
        for what in ("", "/splits", "/snapshots", "/rounds"):
            problem = page.get(TablePath("shop", "none"), what, status=404)
            assert problem["error"] == "TableNotExist"
