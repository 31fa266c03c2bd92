"""The background reader, on a server that keeps statuses and on one with Fluss's calls only."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sluice.client import Client, connect
from sluice.client.statuses.watch import StatusWatch
from sluice.config import ClientConfig, ServerConfig
from sluice.errors import RequestTimeOut
from sluice.model import Reason, TableDescriptor, TablePath, TieringRound
from sluice.page.cluster import detail_reader
from sluice.page.cluster.cluster_reader import FIRST, ClusterReader
from sluice.page.cluster.round_cache import RoundCache
from sluice.page.cluster.seen import SeenTable
from sluice.server.cluster import EmbeddedCluster
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from tests.support.network.proxy import Answer, error, hang
from tests.support.programs.processes import ServerProcess, wait_for
from tests.support.statuses.status_shop import (
    LAKE,
    MINUTE_MS,
    SCHEMA,
    OwnClock,
    Shop,
    behind_proxy,
    status_shop,
)

QUICK_S = 0.05
ROW = pa.table({"id": pa.array([1], pa.int64())})
DONE = TieringRound(outcome="committed", rows_written=7, lag_rows_after=1)
BROKEN = Reason.from_text("create lake table: Parent path is not a directory")


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
    with status_shop(tmp_path / "data") as shop:
        yield shop


@pytest.fixture(params=["embedded", "plain"])
def shop(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Shop]:
    if request.param == "plain":
        yield request.getfixturevalue("plain")
        return
    clock = OwnClock()
    config = ServerConfig(data_dir=str(tmp_path / "data"), listen="grpc://127.0.0.1:0")
    with (
        EmbeddedCluster(config, clock=clock) as cluster,
        Client(ClientConfig(cluster.address), clock) as client,
    ):
        yield EmbeddedShop(cluster, clock, client)


@contextmanager
def reading(client: Client, clock: Any = None, **how: Any) -> Iterator[ClusterReader]:
    reader = ClusterReader(client, clock, **{"read_every_s": QUICK_S, **how})
    reader.start()
    try:
        yield reader
    finally:
        reader.stop()


def sees(reader: ClusterReader, path: TablePath, what: Callable[[SeenTable], object]) -> SeenTable:
    """The table as soon as it is seen so."""
    found: list[SeenTable] = []

    def is_so() -> bool:
        found[:] = [each for each in [reader.seen.tables.get(path)] if each and what(each)]
        return bool(found)

    wait_for(f"{path} to be seen", is_so)
    return found[0]


def test_a_requested_round_and_a_retry_leave_a_trace(shop: Shop) -> None:
    asked, due, broken = (shop.create(name) for name in ("asked", "due", "broken"))
    fails(shop, broken)
    for path in (due, asked):
        succeeds(shop, path)  # a minute after the one before, which is their freshness
    with reading(shop.client, shop.clock) as reader:
        assert sees(reader, broken, lambda each: each.status.failures).status.requested_ms is None
        shop.clock.ms += 1_000
        at_ms = shop.clock.ms
        shop.client.statuses.request_round(asked)
        shop.client.statuses.retry(broken)
        assert sees(reader, asked, is_requested).status.requested_ms == at_ms
        seen = sees(reader, broken, is_requested)
        assert (seen.status.failures, seen.status.requested_ms) == (0, at_ms)
        late = sees(reader, due, lambda each: each.status.status == "Pending")
        assert not is_requested(late)
        succeeds(shop, asked)
        assert not is_requested(sees(reader, asked, lambda each: each.status.rounds == 2))


def test_what_makes_a_table_due_early_is_no_request(shop: Shop) -> None:
    """Tiering that is switched off and on, and a shorter freshness."""
    again, shorter = shop.create("again"), shop.create("shorter")
    for path in (again, shorter):
        succeeds(shop, path)
        shop.client.admin.set_options(path, {"table.datalake.freshness": "1h"})
    shop.clock.ms += 2 * MINUTE_MS
    for enabled in ("false", "true"):
        shop.client.admin.set_options(again, {"table.datalake.enabled": enabled})
    shop.client.admin.set_options(shorter, {"table.datalake.freshness": "1min"})
    assert [status.requested_ms for status in shop.client.statuses.list()] == [None, None]


def is_requested(seen: SeenTable) -> bool:
    return seen.status.requested_ms is not None


def fails(shop: Shop, path: TablePath) -> None:
    shop.client.tiering.failed(shop.claim(path), BROKEN)


def succeeds(shop: Shop, path: TablePath) -> None:
    shop.client.tiering.finished_many([(shop.claim(path), DONE)])


def test_every_lake_table_is_seen_with_its_lag(shop: Shop) -> None:
    path = shop.create("orders")
    shop.client.admin.create_table(TablePath("shop", "plain"), TableDescriptor(SCHEMA))
    with shop.client.log_writer(path) as writer:
        writer.write(ROW)
    with reading(shop.client, shop.clock) as reader:
        seen = sees(reader, path, lambda each: each.lag_read_ms is not None)
        wait_for("all to be read", lambda: reader.seen.is_complete)
        assert set(reader.seen.tables) == {path}
        assert reader.seen.error is None
        assert reader.seen.is_fluss == shop.client.statuses.are_estimates()
    assert seen.status.lag_rows == 1
    assert seen.lag_read_ms == seen.status_read_ms == shop.clock.now_ms()


def test_new_dropped_and_recreated_tables(shop: Shop) -> None:
    first = shop.create("first")
    with reading(shop.client, shop.clock) as reader:
        old = sees(reader, first, lambda each: True)
        second = shop.create("second")
        sees(reader, second, lambda each: True)
        shop.client.admin.drop_table(first)
        wait_for("the drop to be seen", lambda: set(reader.seen.tables) == {second})
        shop.create("first")
        new = sees(reader, first, lambda each: True)
        assert new.status.table_id != old.status.table_id


def test_an_action_is_seen_when_it_is_answered(shop: Shop) -> None:
    """Though the next read of all tables is far away."""
    path = shop.create("orders")
    succeeds(shop, path)
    with reading(shop.client, shop.clock, read_every_s=3_600) as reader:
        wait_for("all to be read", lambda: reader.seen.is_complete)
        assert not reader.seen.tables[path].status.paused
        shop.client.statuses.pause(path)
        reader.read_soon(path)  # it waits for a second at most
        wait_for("the pause", lambda: reader.seen.tables[path].status.paused)
        shop.client.admin.drop_table(path)
        reader.read_soon(path)
        wait_for("the drop", lambda: path not in reader.seen.tables)


def test_a_table_fails_since_its_first_failure_after_the_last_success(shop: Shop) -> None:
    path = shop.create("orders")
    succeeds(shop, path)
    fails(shop, path)
    first_ms = shop.clock.now_ms()
    for _ in range(2):
        shop.clock.ms += 10 * MINUTE_MS
        fails(shop, path)
    with reading(shop.client, shop.clock) as reader:
        seen = sees(reader, path, lambda each: each.failing_since_ms is not None)
        assert seen.failing_since_ms == first_ms
        shop.clock.ms += 10 * MINUTE_MS
        fails(shop, path)
        seen = sees(reader, path, lambda each: each.status.failures == 4)
        assert seen.failing_since_ms == first_ms  # not read again
        shop.clock.ms += 10 * MINUTE_MS
        succeeds(shop, path)
        seen = sees(reader, path, lambda each: not each.status.is_failing)
        assert seen.failing_since_ms is None


def test_rounds_of_a_sparkline_are_read_once_for_each_new_round(shop: Shop) -> None:
    path, other = shop.create("orders"), shop.create("prices")
    succeeds(shop, path)
    with reading(shop.client, shop.clock) as reader:
        seen = sees(reader, path, lambda each: each.status.rounds == 1)
        sees(reader, other, lambda each: True)
        both = [seen, reader.seen.tables[other]]
        assert reader.rounds_of(both) == ([(), ()], False)
        wait_for("its rounds to be read", lambda: reader.rounds_of(both)[1])
        points, _ = reader.rounds_of(both)
        assert [(p.outcome, p.rows_written, p.lag_rows_after) for p in points[0]] == [
            ("committed", 7, 1)
        ]
        assert not points[1]
        fails(shop, path)
        seen = sees(reader, path, lambda each: each.status.rounds == 2)
        points, is_read = reader.rounds_of([seen])
        assert not is_read
        assert len(points[0]) == 1  # what is known meanwhile
        wait_for("the new round to be read", lambda: reader.rounds_of([seen])[1])
        assert [p.outcome for p in reader.rounds_of([seen])[0][0]] == ["committed", "failed"]


def test_nobody_asks_so_nothing_is_read(shop: Shop) -> None:
    shop.create("first")
    with reading(shop.client, shop.clock, idle_after_s=300) as reader:
        wait_for("all to be read", lambda: reader.seen.is_complete)
        shop.clock.ms += 301_000
        wait_for("the reader to rest", lambda: reader.is_resting)
        second = shop.create("second")
        before = reader._store.seen  # to ask for `seen` would wake it
        assert second not in before.tables
        assert reader.is_resting
        assert reader.seen is before  # answers at once with what is known, and its age
        sees(reader, second, lambda each: True)


def test_a_cluster_that_is_away_leaves_the_old_data_with_its_age(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path / "data")
    with connect(server.start()) as client:
        client.admin.create_database("shop")
        path = TablePath("shop", "orders")
        lake = TableDescriptor(SCHEMA, bucket_count=1, properties=LAKE)
        client.admin.create_table(path, lake)
        with reading(client) as reader:
            wait_for("all to be read", lambda: reader.seen.is_complete)
            server.kill()
            wait_for("the error", lambda: reader.seen.error is not None)
            old = reader.seen
            assert set(old.tables) == {path}
            assert "NetworkError" in (old.error or "")
            server.start()
            client.statuses.pause(path)
            new = sees(reader, path, lambda each: each.status.paused)
            assert new.status_read_ms > (old.read_ms or 0)
            wait_for("the error to go", lambda: reader.seen.error is None)
    server.kill()


def test_stop_ends_a_read_that_hangs(plain: Shop) -> None:
    plain.create("orders")
    with behind_proxy(plain) as (proxy, address):
        proxy.plan_always(apis.LIST_DATABASES, hang)
        with connect(address) as client:
            before = set(threading.enumerate())
            reader = ClusterReader(client)
            reader.start()
            wait_for("the read to hang", lambda: proxy.planned == 0 or reader.seen.is_fluss)
            started_s = time.monotonic()
            reader.stop()
            assert time.monotonic() - started_s < 5
            mine = set(threading.enumerate()) - before
            assert not any(t.name.startswith("sluice-page") for t in mine)


def test_an_unreadable_status_table_keeps_what_was_read(plain: Shop) -> None:
    path = plain.create("orders")
    succeeds(plain, path)
    with behind_proxy(plain) as (proxy, address):
        config = ClientConfig(address, request_timeout_ms=1_000)
        with Client(config, plain.clock) as client, reading(client, plain.clock) as reader:
            sees(reader, path, lambda each: each.status.rounds == 1)
            proxy.plan_always(apis.LOOKUP, hang)
            wait_for("the error", lambda: reader.seen.error is not None)
            assert "tiering_status cannot be read" in (reader.seen.error or "")
            assert reader.seen.tables[path].status.rounds == 1
            proxy.mend()
            wait_for("the error to go", lambda: reader.seen.error is None)


@pytest.mark.slow
def test_a_server_that_is_away_hides_no_lags_of_other_servers(
    plain: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The offsets of tables with two rows are not told in time, as if their leader were away."""
    away = {plain.create(f"t{number}"): number % 3 == 0 for number in range(12)}
    for path, is_away in away.items():
        with plain.client.log_writer(path) as writer:
            writer.write(pa.concat_tables([ROW] * (2 if is_away else 1)))

    def late_for_two_rows(client: socket.socket, answer: Answer) -> bool:
        reply = pb.ListOffsetsResponse.FromString(answer.body)
        if any(bucket.offset == 2 for bucket in reply.buckets_resp):
            return error(RequestTimeOut.code, "no answer in time")(client, answer)
        client.sendall(answer.frame)
        return True

    with behind_proxy(plain) as (proxy, address):
        proxy.plan_always(apis.LIST_OFFSETS, late_for_two_rows)
        config = ClientConfig(address, retry_timeout_ms=100)
        with Client(config, plain.clock) as client, reading(client, plain.clock) as reader:

            def lags() -> dict[TablePath, int | None]:
                return {path: each.status.lag_rows for path, each in reader.seen.tables.items()}

            read = {path: None if is_away else 1 for path, is_away in away.items()}
            wait_for("the lags of the others", lambda: lags() == read)
            wait_for("all to be tried", lambda: reader.seen.lags.unread == 4)
            assert reader.seen.error is None
            proxy.mend()
            monkeypatch.setattr(detail_reader, "UNREACHED_AGAIN_S", QUICK_S)
            reader.look_at(away)
            wait_for("all lags", lambda: reader.seen.lags.unread == 0)
            assert None not in lags().values()


def test_rounds_that_are_always_wanted_do_not_keep_lags_away(
    plain: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cache of rounds is too small for what is looked at, so rounds are wanted again."""
    monkeypatch.setattr(detail_reader, "RoundCache", partial(RoundCache, 1))
    monkeypatch.setattr(detail_reader, "LOOKED_EVERY_S", QUICK_S)
    paths = [plain.create(f"t{number}") for number in range(3)]
    for path in paths:
        succeeds(plain, path)
    since_ms = plain.clock.now_ms() + 1
    recorded_rounds = StatusWatch.recorded_rounds
    with reading(plain.client, plain.clock) as reader:

        def look() -> list[int]:
            tables = list(reader.seen.tables.values())
            reader.look_at(paths)
            reader.rounds_of(tables)
            return [table.lag_read_ms or 0 for table in tables]

        def read_rounds(each: StatusWatch, *args: Any) -> Any:
            """Somebody looks while each read of rounds is under way."""
            look()
            plain.clock.ms = since_ms
            return recorded_rounds(each, *args)

        wait_for("all tables", lambda: len(look()) == len(paths))
        monkeypatch.setattr(StatusWatch, "recorded_rounds", read_rounds)
        wait_for("new lags", lambda: min(look()) >= since_ms)


def test_a_reader_that_never_started_stops(shop: Shop) -> None:
    reader = ClusterReader(shop.client)
    reader.read_soon(TablePath("shop", "orders"))
    reader.stop()
    reader.start()
    assert reader.seen.tables == {}


def test_a_pass_that_takes_too_long_goes_on_in_the_next_one(plain: Shop) -> None:
    """Here each pass ends after its first step. The oldest status is read first."""
    paths = {plain.create(f"t{number:03}") for number in range(2 * FIRST + 1)}
    with reading(plain.client, plain.clock, pass_s=0) as reader:
        wait_for("all to be read", lambda: set(reader.seen.tables) == paths)
        assert not reader.seen.is_complete
        assert "the next read begins with the others" in (reader.seen.error or "")
        plain.clock.ms += 1
        since_ms = plain.clock.now_ms()

        def are_new() -> bool:
            return all(each.status_read_ms >= since_ms for each in reader.seen.tables.values())

        wait_for("all to be read again", are_new)
