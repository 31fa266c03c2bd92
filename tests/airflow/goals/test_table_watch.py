"""What a table sensor finds and says, on real servers whose clock the test owns."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from sluice.client import Client, connect
from sluice.config import ClientConfig
from sluice.model import Reason, TableBucket, TablePath
from sluice_airflow.goals.table_watch import Look, TableWatch
from sluice_airflow.goals.table_words import span
from sluice_airflow.goals.until import Until
from tests.support.network.ports import kept_port
from tests.support.statuses.status_shop import status_shop
from tests.unit.client.conftest import Cluster
from tests.unit.client.conftest import client as client
from tests.unit.client.conftest import cluster as cluster
from tests.unit.client.tiering.test_idle_check import Shop
from tests.unit.client.tiering.test_idle_check import shop as shop

ORDERS = TablePath("shop", "orders")


class Watching:
    """A watch and what it has said. Each look is that of another process, if ``moves``."""

    def __init__(self, shop: Shop, until: Any, *, moves: bool = False, **more: Any) -> None:
        self.shop, self.moves = shop, moves
        self.watch = TableWatch(ORDERS, Until.parse(until), clock=shop.clock, **more)
        self.lines: list[str] = []

    def look(self, client: Client | None = None) -> Look:
        if self.moves:
            stored = json.loads(json.dumps(self.watch.to_json()))
            self.watch = TableWatch.from_json(stored, self.shop.clock)
        found = self.watch.look(client or self.shop.client)
        self.lines += [line.removeprefix("shop.orders: ") for _, line in found.lines]
        return found

    def said(self) -> list[str]:
        """The lines since the last call."""
        found, self.lines = self.lines, []
        return found

    def waits(self) -> list[str]:
        """Looks, and finds that the goal is not reached; the new lines."""
        found = self.look()
        assert (found.tiered, found.failure) == (None, "")
        return self.said()

    def tiered(self) -> dict[str, Any]:
        found = self.look()
        assert found.failure == ""
        assert found.tiered is not None, self.said()
        return dict(found.tiered)

    def fails(self) -> str:
        found = self.look()
        assert found.tiered is None
        assert found.failure.startswith("shop.orders: ")
        return found.failure


def buckets(shop: Shop) -> str:
    """How many buckets have rows: without a key, few batches may go to one of them."""
    number = sum(end > 0 for end in shop.ends(ORDERS).values())
    return f"{number} bucket{'' if number == 1 else 's'}"


@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize("days", [False, True])
def test_the_ends_of_the_logs_at_the_start(shop: Shop, keyed: bool, days: bool) -> None:
    """Rows that are written later are not waited for, wherever the watch continues."""
    path = shop.create("orders", keyed=keyed, days=days)
    if days:
        shop.client.admin.create_partition(path, {"day": "a"})
    shop.write(path, range(40))
    old = shop.ends(path)
    watching = Watching(shop, "now", moves=True)
    noun, held = "changes" if keyed else "rows", buckets(shop)
    first, state = watching.waits()
    assert first == (f"waiting until 40 {noun} in {held} are tiered; there is no lake snapshot yet")
    assert state.startswith("Pending, waits for a run of the DAG or `sluice tier`")
    assert not watching.watch.may_move
    shop.write(path, range(40, 60))
    if days:
        shop.client.admin.create_partition(path, {"day": "b"})
        shop.write(path, range(5), day="b")

    [claim] = shop.claim(path)
    [line] = watching.waits()
    assert line.startswith("Tiering by ")
    bucket = next(bucket for bucket, end in old.items() if end)
    snapshot = shop.register(claim, {bucket: 1})
    assert watching.waits() == [f"39 of 40 {noun} left; lake snapshot {snapshot}"]
    assert watching.waits() == [], "nothing has changed"
    snapshot = shop.register(claim, old)
    shop.clock.ms += 7_400
    assert watching.tiered() == {"lake_snapshot_id": str(snapshot), "offsets_sum": 40}
    assert watching.said() == []
    assert watching.watch.last_line == (
        f"shop.orders: 40 {noun} in {held} are tiered after 1 min 7 s; lake snapshot {snapshot}"
    )


def test_a_table_that_is_tiered_already(shop: Shop) -> None:
    path = shop.create("orders")
    shop.write(path, range(40))
    shop.tier(path)
    watching = Watching(shop, "now")
    assert watching.tiered() == {"lake_snapshot_id": "1", "offsets_sum": 40}
    assert watching.said() == []
    assert watching.watch.last_line == (
        f"shop.orders: 40 rows in {buckets(shop)} are tiered after 0 s; lake snapshot 1"
    )


def test_a_table_without_rows(shop: Shop) -> None:
    shop.create("orders", days=True)
    watching = Watching(shop, "now")
    assert watching.tiered() == {"lake_snapshot_id": None, "offsets_sum": 0}
    assert watching.watch.last_line == (
        "shop.orders: there is no row to wait for after 0 s; no lake snapshot"
    )


def test_a_snapshot_that_has_a_part_at_the_start(shop: Shop) -> None:
    path = shop.create("orders")
    shop.write(path, range(40))
    shop.tier(path)
    shop.write(path, range(40, 52))
    watching = Watching(shop, "now")
    first, state = watching.waits()
    assert first == f"waiting until 52 rows in {buckets(shop)} are tiered; lake snapshot 1 has 40"
    assert state.startswith("Scheduled, due at 2025-")
    assert watching.watch.missing() == f"shop.orders: 12 of 52 rows left; lake snapshot 1; {state}"


def test_rows_written_before_a_time(shop: Shop) -> None:
    path = shop.create("orders")
    shop.write(path, range(30))
    shop.clock.ms += 1_000
    noon = shop.clock.ms
    old, held = shop.ends(path), buckets(shop)
    shop.write(path, range(30, 50))  # in the millisecond of that time
    watching = Watching(shop, noon_text(noon), moves=True)
    first, _ = watching.waits()
    assert first == (
        f"waiting until 30 rows written before 2025-06-15 15:06:41Z in {held} are tiered; there"
        " is no lake snapshot yet"
    )
    [claim] = shop.claim(path)
    snapshot = shop.register(claim, old)
    assert watching.tiered() == {"lake_snapshot_id": str(snapshot), "offsets_sum": 30}


def noon_text(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat()


def test_a_time_to_come_is_waited_for_first(shop: Shop) -> None:
    path = shop.create("orders")
    shop.write(path, range(10))
    shop.tier(path)
    watching = Watching(shop, noon_text(shop.clock.ms + 3_725_000), moves=True)
    [line] = watching.waits()
    assert line.startswith("waiting for 2025-06-15 ")
    assert line.endswith(" (in 1 h 2 min), then for the rows written before it")
    assert not watching.watch.may_move, "the same offsets are found after a restart"
    shop.clock.ms += 3_724_999
    shop.write(path, range(10, 15))
    assert watching.waits() == []
    shop.clock.ms += 1
    shop.write(path, range(15, 25))
    first, _ = watching.waits()
    assert "15 rows written before" in first
    assert "; lake snapshot 1 has 10" in first
    shop.tier(path)
    assert watching.tiered()["offsets_sum"] == 25


def test_the_clock_of_the_server_may_be_behind(shop: Shop) -> None:
    path = shop.create("orders")
    shop.write(path, range(10))
    time_ms = shop.clock.ms + 5_000
    here = type(shop.clock)()
    here.ms = time_ms
    watch = TableWatch(ORDERS, Until(time_ms=time_ms), clock=here)
    [(_, line)] = watch.look(shop.client).lines
    assert "by the clock of the cluster, which is behind the clock of this machine" in line
    assert watch.look(shop.client).lines == ()
    shop.write(path, range(10, 13))
    shop.clock.ms = time_ms
    (_, line), _ = watch.look(shop.client).lines
    assert "waiting until 13 rows written before" in line


def test_an_offset_for_each_bucket(shop: Shop) -> None:
    path = shop.create("orders")
    shop.write(path, range(10))
    watching = Watching(shop, {"0": 1, "1": 2})
    assert watching.waits()[0] == (
        "waiting until 3 rows in 2 buckets are tiered; there is no lake snapshot yet"
    )
    [claim] = shop.claim(path)
    table_id = claim.table_id
    ends = {TableBucket(table_id, None, 0): 1, TableBucket(table_id, None, 1): 1}
    shop.register(claim, ends)
    assert watching.waits()[0] == "1 of 3 rows left; lake snapshot 1"
    shop.register(claim, ends | {TableBucket(table_id, None, 1): 2})
    assert watching.tiered() == {"lake_snapshot_id": "2", "offsets_sum": 3}


def test_offsets_that_are_not_written_yet(shop: Shop) -> None:
    path = shop.create("orders")
    shop.write(path, range(10))
    shop.tier(path)
    for until in (15, {"0": 10, "1": 10}):
        watching = Watching(shop, until)
        _, state = watching.waits()
        assert state.startswith("Scheduled, due at ")
        assert state.endswith("; the lake has all rows that are written, and more are waited for")


def test_a_sum_of_offsets(shop: Shop) -> None:
    path = shop.create("orders")
    shop.write(path, range(10))
    shop.tier(path)
    assert Watching(shop, 10).tiered() == {"lake_snapshot_id": "1", "offsets_sum": 10}
    watching = Watching(shop, "1015", moves=True)
    assert watching.waits()[0] == (
        "waiting until the end offsets of all buckets in the lake add up to 1,015; lake snapshot 1"
        " has 10"
    )
    shop.write(path, range(10, 1010))
    shop.tier(path)
    assert watching.waits()[0] == "5 of 1,015 offsets left; lake snapshot 2"
    shop.write(path, range(6))
    shop.tier(path)
    assert watching.tiered() == {"lake_snapshot_id": "3", "offsets_sum": 1016}
    assert "the end offsets in the lake add up to 1,016 after 2 min" in watching.watch.last_line


@pytest.mark.parametrize(
    ("days", "until", "words"),
    [
        (False, {"2": 1}, "has no bucket '2'; its buckets are numbered from 0 to 1"),
        (False, {"7/0": 1}, "has no bucket '7/0'; its buckets are named BUCKET"),
        (True, {"0": 1}, "has no bucket '0'; its buckets are named PARTITION_ID/BUCKET"),
    ],
)
def test_a_bucket_that_the_table_cannot_have(
    shop: Shop, days: bool, until: dict[str, int], words: str
) -> None:
    shop.create("orders", days=days)
    assert words in Watching(shop, until).fails()


def test_a_partition_has_its_own_number_of_buckets(shop: Shop) -> None:
    """As of Fluss 1.0, where bucket.num was altered between the two partitions."""
    path, admin = shop.create("orders", days=True), shop.client.admin
    admin.set_options(path, {"table.datalake.enabled": "false"})
    admin.create_partition(path, {"day": "a"})
    admin.set_bucket_count(path, 4)
    admin.create_partition(path, {"day": "b"})
    admin.set_options(path, {"table.datalake.enabled": "true"})
    early, late = [one.partition_id for one in admin.partitions(path)]
    said = Watching(shop, {f"{early}/2": 1}).fails()
    assert f"has no bucket '{early}/2'; its buckets are numbered from 0 to 1" in said
    assert Watching(shop, {f"{late}/3": 1}).waits()[0].startswith("waiting until 1 row in 1 bucket")


@pytest.mark.parametrize("until", ["now", "ends"])
def test_a_dropped_partition_is_not_waited_for(shop: Shop, until: str) -> None:
    path = shop.create("orders", days=True)
    for day, rows in (("a", 10), ("b", 20)):
        shop.client.admin.create_partition(path, {"day": day})
        shop.write(path, range(rows), day=day)
    ends = {bucket.name: end for bucket, end in shop.ends(path).items()}
    dropped, kept = [one.partition_id for one in shop.client.admin.partitions(path)]
    watching = Watching(shop, ends if until == "ends" else "now", moves=True)
    assert f"30 rows in {buckets(shop)}" in watching.waits()[0]
    shop.client.admin.drop_partition(path, {"day": "a"})
    assert watching.waits()[:2] == [
        f"partition {dropped} was dropped: 10 rows of it are not waited for",
        "20 of 20 rows left; no lake snapshot yet",
    ]
    [claim] = shop.claim(path)
    shop.register(claim, {b: end for b, end in shop.ends(path).items() if b.partition_id == kept})
    assert watching.tiered()["offsets_sum"] == 20


def test_all_partitions_are_dropped(shop: Shop) -> None:
    path = shop.create("orders", days=True)
    shop.client.admin.create_partition(path, {"day": "a"})
    shop.write(path, range(10), day="a")
    watching = Watching(shop, "now")
    watching.waits()
    shop.client.admin.drop_partition(path, {"day": "a"})
    assert watching.tiered() == {"lake_snapshot_id": None, "offsets_sum": 0}
    assert "10 rows of it are not waited for" in watching.said()[0]


def test_a_partition_that_never_was_is_said(shop: Shop) -> None:
    shop.create("orders", days=True)
    watching = Watching(shop, {"4711/0": 3})
    assert watching.tiered() == {"lake_snapshot_id": None, "offsets_sum": 0}
    assert watching.said() == ["partition 4711 was dropped: 3 rows of it are not waited for"]


def test_a_table_that_does_not_exist(shop: Shop) -> None:
    failure = Watching(shop, "now").fails()
    assert "the table does not exist" in failure
    assert "`sluice tables` lists the tables" in failure


def drop(shop: Shop) -> None:
    shop.client.admin.drop_table(ORDERS)


def create_again(shop: Shop) -> None:
    drop(shop)
    shop.create("orders")


def disable(shop: Shop) -> None:
    shop.client.admin.set_options(ORDERS, {"table.datalake.enabled": "false"})


@pytest.mark.parametrize("until", ["now", 1000, "2030-01-01"])
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (drop, "the table does not exist"),
        (create_again, "was dropped and created again"),
        (disable, "ALTER TABLE shop.orders SET ('table.datalake.enabled' = 'true')"),
    ],
)
def test_a_table_that_will_never_be_tiered(
    shop: Shop, until: Any, change: Callable[[Shop], None], words: str
) -> None:
    path = shop.create("orders")
    shop.write(path, range(10))
    watching = Watching(shop, until, moves=True)
    watching.waits()
    change(shop)
    assert words in watching.fails()


def test_a_stuck_table_is_understood_from_the_log(shop: Shop) -> None:
    path = shop.create("orders")
    shop.write(path, range(10))
    watching = Watching(shop, "now")
    watching.waits()
    [claim] = shop.claim(path)
    reason = "cannot write s3://lake:\n AccessDenied, password=hunter2secret"
    shop.client.tiering.failed(claim, Reason.from_text(reason, kind="LakeNotWritable"))
    [line] = watching.waits()
    assert line.startswith("Failed, next attempt at 2025-06-15 ")
    assert line.endswith(
        "; 1 failure, last error: LakeNotWritable: cannot write s3://lake: AccessDenied,"
        " password=***"
    )
    assert watching.waits() == []
    assert watching.watch.timed_out(90) == (
        "not tiered within the timeout of 1 min 30 s: shop.orders: 10 of 10 rows left; no lake"
        f" snapshot yet; {line}"
    )
    [claim] = shop.claim(path)
    [line] = watching.waits()
    assert line.startswith("Tiering by ")
    assert "last error" not in line, "it is known"
    reason = "1 failure, last error: LakeNotWritable: cannot write s3://lake: AccessDenied,"
    assert f"{line}; {reason}" in watching.watch.timed_out(90)
    shop.client.tiering.failed(claim, Reason.from_text("no space is left"))
    [line] = watching.waits()
    assert line.endswith("; 2 failures, last error: no space is left")
    [claim] = shop.claim(path)
    watching.waits()
    shop.register(claim)
    assert watching.tiered()["offsets_sum"] == 10


def test_a_paused_table(shop: Shop) -> None:
    path = shop.create("orders")
    shop.write(path, range(10))
    shop.client.statuses.pause(path)
    watching = Watching(shop, "now")
    paused = "paused, `sluice resume shop.orders` ends the pause; Pending"
    levels = [level for level, _ in watching.look().lines]
    assert levels == [logging.INFO, logging.WARNING]
    assert watching.said()[1] == paused
    shop.client.statuses.resume(path)
    assert watching.waits() == ["Pending, waits for a run of the DAG or `sluice tier`"]
    strict = Watching(shop, "now", fail_on_paused=True)
    strict.waits()
    shop.client.statuses.pause(path)
    assert strict.fails() == (f"shop.orders: 10 of 10 rows left; no lake snapshot yet; {paused}")
    assert strict.said() == [paused]


def test_a_cluster_that_is_away_is_said_once(shop: Shop, cluster: Cluster) -> None:
    path = shop.create("orders")
    shop.write(path, range(10))
    watching = Watching(shop, "now")
    watching.waits()
    cluster.stop()
    impatient = ClientConfig(
        cluster.address, request_timeout_ms=300, retry_timeout_ms=300, connect_timeout_ms=300
    )
    with connect(impatient) as other:
        assert not watching.look(other).failure
        [line] = watching.said()
        assert line.startswith("cannot be looked at, which is tried again: NetworkError: ")
        watching.look(other)
        assert watching.said() == []
    assert "; the last look failed: NetworkError: " in watching.watch.missing()
    cluster.start()
    assert watching.waits()[0] == "the cluster answers again"
    assert "the last look failed" not in watching.watch.missing()


def test_now_is_found_as_soon_as_the_cluster_answers(shop: Shop) -> None:
    path = shop.create("orders")
    shop.write(path, range(10))
    watching = Watching(shop, "now")
    with kept_port() as port:
        nobody = ClientConfig(f"grpc://127.0.0.1:{port}", connect_timeout_ms=200)
        with connect(nobody) as other:
            watching.look(other)
    assert watching.watch.may_move
    assert "what is to be tiered is not known yet" in watching.watch.missing()
    shop.write(path, range(10, 15))
    watching.said()
    assert "waiting until 15 rows" in watching.waits()[1]


def test_secrets_are_masked(shop: Shop) -> None:
    watching = Watching(shop, "now")
    watching.watch.secrets = ("planted4716",)
    found = watching.watch.unread(OSError("no route to planted4716"), may_heal=True)
    assert "planted4716" not in str(found.lines)
    assert "planted4716" not in watching.watch.missing()
    assert "planted4716" not in str(watching.watch.to_json())


def test_a_cluster_that_keeps_no_statuses(tmp_path: Path) -> None:
    """As Apache Fluss: rounds record what the log says."""
    with status_shop(tmp_path) as fluss:
        path = fluss.create("orders")
        fluss.client.admin.table_info(path)
        watch = TableWatch(path, Until(ends={"0": 5}), clock=fluss.clock)
        (_, _), (_, line) = watch.look(fluss.another()).lines
        assert line == (
            "shop.orders: Unknown; the lake has all rows that are written, and more are waited for;"
            " no round of Sluice is recorded"
        )
        claim = fluss.claim(path)
        [(_, line)] = watch.look(fluss.another()).lines
        assert line.startswith("shop.orders: Tiering by run-1; ")
        fluss.client.tiering.failed(claim, Reason.from_text("no more space"))
        [(level, line)] = watch.look(fluss.another()).lines
        assert level == logging.WARNING
        assert "Failed, next attempt at " in line
        assert line.endswith("1 failure, last error: no more space")


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0, "0 s"),
        (0.51, "0.5 s"),
        (8, "8 s"),
        (59.4, "59 s"),
        (60, "1 min"),
        (3_725, "1 h 2 min"),
        (90_061, "1 d 1 h"),
    ],
)
def test_durations(seconds: float, expected: str) -> None:
    assert span(seconds) == expected
