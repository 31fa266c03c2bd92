"""Statuses that rounds write down themselves, on a server that has no more calls than Fluss."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sluice.client import Client
from sluice.client.admin.admin import Admin
from sluice.client.connection.addresses import Address
from sluice.client.connection.connection import Connection
from sluice.client.statuses.accesses import RETRY_AFTER_S
from sluice.client.statuses.recorded import HEARTBEAT_INTERVAL_S
from sluice.client.statuses.status_table import PATH, StatusTable
from sluice.client.statuses.system_table import SystemTable
from sluice.errors import (
    AuthorizationError,
    InvalidTable,
    LeaderNotAvailable,
    RequestTimeOut,
    StatusUnreadable,
    TableNotExist,
    UnsupportedVersion,
)
from sluice.model import (
    Claim,
    Reason,
    TableBucket,
    TableDescriptor,
    TablePath,
    TieringRound,
)
from sluice.model import types as t
from sluice.statuses.recorded import SILENCE_MS
from tests.support.statuses.status_shop import MINUTE_MS, SCHEMA, Shop, foreign, status_shop

EITHER_DOOR = pytest.mark.parametrize("shop", ["grpc", "fluss"], indirect=True)


@pytest.fixture
def shop(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Shop]:
    with status_shop(tmp_path / "data", getattr(request, "param", "fluss")) as shop:
        yield shop


def our_records(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """What Sluice has logged. What other tests have left in this process logs when it is collected:
    asyncio does of its tasks."""
    return [record for record in caplog.records if record.name.startswith("sluice.")]


@EITHER_DOOR
def test_an_old_server_tells_nothing_itself(shop: Shop) -> None:
    path = shop.create("never")
    with pytest.raises(UnsupportedVersion, match="does not offer ListTieringStatuses"):
        shop.client.statuses.of_coordinator()
    (status,) = shop.client.statuses.list()
    assert (status.path, status.status, status.tiering_epoch) == (path, "Unknown", 0)
    assert status.note == "no round of Sluice is recorded"
    assert not status.is_failing
    assert "sluice" not in shop.client.admin.list_databases(), "who only reads makes nothing"
    assert shop.client.statuses.lake_tables() == [path]
    with pytest.raises(TableNotExist):
        shop.client.statuses.list(TablePath("shop", "gone"))


@EITHER_DOOR
def test_a_round_is_seen_from_its_claim_to_its_end(shop: Shop) -> None:
    path = shop.create("orders")
    with shop.client.log_writer(path) as writer:
        writer.write(pa.table({"id": pa.array(range(3), pa.int64())}))
    claim = shop.claim(path)
    seen = shop.status(path)
    assert (seen.status, seen.tiering_epoch) == ("Tiering", 1)
    assert (seen.lag_rows, seen.lag_ms) == (3, MINUTE_MS)
    shop.clock.ms += 5_000
    offsets = {TableBucket(claim.table_id, None, 0): 3}
    tiering = shop.client.tiering
    file = tiering.prepare_lake_snapshot(claim.table_id, path, offsets)
    tiering.commit_lake_snapshot(claim, 77, file, offsets, {}, -1)
    shop.another().tiering.finished(claim)
    done = shop.status(path)
    assert (done.status, done.last_tiered_ms) == ("Scheduled", shop.clock.ms)
    assert (done.last_round_ms, done.next_attempt_ms) == (5_000, shop.clock.ms + MINUTE_MS)
    assert (done.lag_rows, done.lag_ms, done.lake_snapshot_id) == (0, 0, 77)
    assert (done.failures, done.paused, done.note) == (0, False, None)
    shop.clock.ms += MINUTE_MS
    assert shop.status(path).status == "Pending"
    (row,) = shop.stored()
    assert (row["claimed_by"], row["outcome"]) == ("run-1", "finished")


def test_failures_are_counted_and_masked_until_a_success(shop: Shop) -> None:
    path = shop.create("orders")
    for failures in (1, 2):
        claim = shop.claim(path)
        shop.another().tiering.failed(
            claim, Reason.from_text("s3://lake: token=planted-secret " + "x" * 5000)
        )
        seen = shop.status(path)
        assert (seen.status, seen.failures, seen.is_failing) == ("Failed", failures, True)
        assert seen.last_error is not None
        assert (seen.last_error_ms, len(seen.last_error)) == (shop.clock.ms, 4096)
        assert seen.next_attempt_ms == shop.clock.ms + 10_000 * failures
        shop.clock.ms += 10_000 * failures
        seen = shop.status(path)
        assert (seen.status, seen.is_failing) == ("Pending", True), "due, and failing"
    assert "planted" not in str(shop.stored())
    shop.client.tiering.finished(shop.claim(path), forced=True)
    seen = shop.status(path)
    assert (seen.status, seen.failures, seen.last_error) == ("Pending", 0, None)


@EITHER_DOOR
def test_a_failed_table_waits_and_keeps_nobody_waiting(shop: Shop) -> None:
    broken, other = shop.create("broken"), shop.create("other")
    shop.client.tiering.failed(shop.claim(broken), Reason.from_text("no such bucket"))
    asked = shop.another().tiering
    with asked.claim_session() as waiting:
        claim = waiting.next()
        assert claim is not None
        assert (claim.path, waiting.next()) == (other, None)
    asked.finished(claim)
    shop.clock.ms += 9_999
    assert asked.claim() is None
    assert shop.status(broken).failures == 1, "released: that was no failure"
    shop.clock.ms += 1
    claim = asked.claim()
    assert claim is not None
    assert claim.path == broken


def test_retry_ends_the_wait(shop: Shop) -> None:
    path = shop.create("orders")
    shop.client.tiering.failed(shop.claim(path), Reason.from_text("no such bucket"))
    assert shop.client.tiering.claim([path]) is None
    shop.another().statuses.retry(path)
    seen = shop.status(path)
    assert (seen.status, seen.failures, seen.last_error) == ("Pending", 0, "no such bucket")
    claim = shop.client.tiering.claim([path])
    assert claim is not None
    assert claim.tiering_epoch == 2, "while it waited nobody asked for it"


@EITHER_DOOR
def test_claims_of_paused_tables_are_known(shop: Shop) -> None:
    one, two = (shop.claim(shop.create(name)) for name in ("one", "two"))
    assert shop.client.statuses.paused([one, two]) == set(), "no row yet is no pause"
    shop.client.statuses.pause(two.path)
    assert shop.another().statuses.paused([one, two]) == {two}
    assert shop.client.statuses.paused([one]) == shop.client.statuses.paused([]) == set()
    shop.client.statuses.resume(two.path)
    assert shop.client.statuses.paused([two]) == set()


@EITHER_DOOR
def test_a_paused_table_is_claimed_by_nobody(shop: Shop) -> None:
    path = shop.create("orders")
    shop.client.statuses.pause(path)
    shop.clock.ms += MINUTE_MS
    assert shop.status(path).paused
    assert shop.another().tiering.claim() is None
    assert shop.another().tiering.claim([path]) is None
    seen = shop.status(path)
    assert (seen.paused, seen.failures, seen.next_attempt_ms) == (True, 0, None)
    shop.client.statuses.resume(path)
    assert not shop.status(path).paused
    assert shop.another().tiering.claim([path]) is not None


def test_what_nobody_can_do_is_an_error(shop: Shop) -> None:
    plain = shop.create("plain", **{"table.datalake.enabled": "false"})
    statuses = shop.client.statuses
    for control in (statuses.pause, statuses.retry, statuses.request_round):
        with pytest.raises(InvalidTable, match="is not tiered"):
            control(plain)
        with pytest.raises(TableNotExist):
            control(TablePath("shop", "gone"))


def test_a_claim_of_which_nothing_is_heard_is_unknown(shop: Shop) -> None:
    path = shop.create("orders")
    claim = shop.claim(path)
    shop.clock.ms += 119_000
    assert shop.status(path).status == "Tiering"
    shop.clock.ms += 1_000
    seen = shop.status(path)
    assert (seen.status, seen.tiering_epoch) == ("Unknown", claim.tiering_epoch)
    assert seen.note == "claimed 120 s ago by run-1, no end reported"


def test_heartbeats_keep_a_long_round_known(shop: Shop) -> None:
    path = shop.create("orders")
    claim = shop.claim(path)
    keeper = shop.another().tiering
    for _ in range(10):
        assert keeper.heartbeat([claim]) == {claim.table_id: None}
        shop.clock.ms += int(HEARTBEAT_INTERVAL_S * 1000)
    assert shop.status(path).status == "Tiering"
    (row,) = shop.stored()
    heard_ms = int(row["heartbeat_time"].timestamp() * 1000)
    assert heard_ms > int(row["claimed_time"].timestamp() * 1000)


def test_an_unwanted_table_is_held_and_leaves_no_trace(shop: Shop) -> None:
    wanted, other = shop.create("wanted"), shop.create("other")
    shop.claim(wanted)
    seen = {status.path: status.status for status in shop.client.statuses.list()}
    assert seen == {wanted: "Tiering", other: "Unknown"}
    assert shop.client.tiering.claim([other]) is not None, "it went back"


def assigned_again(monkeypatch: pytest.MonkeyPatch, client: Client, *claims: Claim) -> None:
    """The coordinator assigns these, as Apache Fluss does from old entries of its queue."""
    queue = list(claims)
    monkeypatch.setattr(client.tiering, "_next_claim", lambda *_: queue.pop(0) if queue else None)


@pytest.mark.parametrize("requested", ["orders", "users", None])
def test_a_claim_that_is_assigned_again_stays_with_its_worker(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, requested: str | None
) -> None:
    paths = {name: shop.create(name) for name in ("orders", "users")}
    claim = shop.claim(paths["orders"])
    other = shop.another()
    assigned_again(monkeypatch, other, claim)
    assert other.tiering.claim([paths[requested]] if requested else None) is None
    assert shop.client.tiering.still_claimed(claim)
    assert shop.status(paths["orders"]).status == "Tiering"


def test_a_claim_is_taken_again_when_its_worker_is_silent(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = shop.create("orders")
    claim = shop.claim(path)
    shop.clock.ms += SILENCE_MS
    other = shop.another()
    assigned_again(monkeypatch, other, claim)
    assert other.tiering.claim([path]) == claim


def test_a_table_that_is_created_again_begins_anew(shop: Shop) -> None:
    path = shop.create("orders")
    shop.client.tiering.failed(shop.claim(path), Reason.from_text("no such bucket"))
    gone = shop.create("gone")
    shop.another().tiering.finished(shop.claim(gone))
    for each in (path, gone):
        shop.client.admin.drop_table(each)
    again = shop.create("orders")
    assert [status.path for status in shop.client.statuses.list()] == [again]
    assert shop.status(again).status == "Unknown"
    shop.another().tiering.finished(shop.claim(again))
    (row,) = shop.stored()
    assert row["table_id"] == shop.client.admin.table_info(again).table_id


@pytest.mark.parametrize(
    ("layout", "named"),
    [
        (foreign(failures=t.STRING), "column failures is STRING instead of INT"),
        (foreign(paused=t.STRING), "column paused is STRING instead of BOOLEAN"),
        (TableDescriptor(SCHEMA, bucket_count=1), "its primary key is none instead of table_id"),
    ],
)
def test_beside_a_foreign_table_nothing_is_claimed(
    shop: Shop, caplog: pytest.LogCaptureFixture, layout: TableDescriptor, named: str
) -> None:
    path = shop.create("orders")
    shop.client.admin.create_database("sluice")
    shop.client.admin.create_table(PATH, layout)
    with caplog.at_level(logging.WARNING, "sluice.client"):
        for requested in (None, [path], [path] * 21):
            with pytest.raises(StatusUnreadable, match="so no table is claimed") as error:
                shop.client.tiering.claim(requested)
            assert named in str(error.value)
    with pytest.raises(StatusUnreadable):
        shop.client.statuses.request_round(path)
    assert our_records(caplog) == []
    seen = shop.status(path)
    assert seen.status == "Unknown"
    assert seen.note is not None
    assert named in seen.note
    with pytest.raises(InvalidTable):
        shop.client.statuses.pause(path)


def test_a_round_goes_on_beside_a_table_that_has_become_foreign(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    path = shop.create("orders")
    claim = shop.claim(path)
    shop.client.admin.drop_table(PATH)
    shop.client.admin.create_table(PATH, foreign(failures=t.STRING))
    with caplog.at_level(logging.WARNING, "sluice.client"):
        shop.client.tiering.finished(claim)
    (warning,) = [record.getMessage() for record in our_records(caplog)]
    assert "column failures is STRING instead of INT" in warning
    assert "the round has ended all the same" in warning


def test_columns_of_a_newer_sluice_are_kept(shop: Shop) -> None:
    path = shop.create("orders")
    table_id = shop.client.admin.table_info(path).table_id
    shop.client.admin.create_database("sluice")
    shop.client.admin.create_table(PATH, foreign(later=t.STRING))
    with shop.client.kv_writer(PATH, ["table_id", "later"]) as writer:
        writer.upsert(pa.table({"table_id": pa.array([table_id]), "later": ["theirs"]}))
    claim = shop.claim(path)
    assert shop.status(path).status == "Tiering"
    shop.client.tiering.finished(claim)
    shop.client.statuses.pause(path)
    (row,) = shop.stored()
    assert (row["later"], row["outcome"], row["paused"]) == ("theirs", "finished", True)


def test_a_table_of_an_older_sluice_is_read_and_completed(shop: Shop) -> None:
    """Its pauses hold, and the columns that it lacks are added by the first write."""
    paused, running = shop.create("paused"), shop.create("running")
    table_id = shop.client.admin.table_info(paused).table_id
    shop.client.admin.create_database("sluice")
    shop.client.admin.create_table(
        PATH, foreign(last_round_ms=None, claimed_by=None, deletes_as=None)
    )
    with shop.client.kv_writer(PATH, ["table_id", "paused", "failures"]) as writer:
        writer.upsert(
            pa.table(
                {
                    "table_id": pa.array([table_id]),
                    "paused": [True],
                    "failures": pa.array([3], pa.int32()),
                }
            )
        )
    assert shop.another().tiering.claim([paused]) is None
    seen = shop.status(paused)
    assert (seen.paused, seen.failures, seen.last_round_ms) == (True, 3, None)
    one = shop.another()
    details = TieringRound(keys_deleted=1, deletes_as="positions")
    one.tiering.finished(shop.claim(running, one), details=details)
    seen = shop.status(running)
    assert (seen.last_round_ms, seen.deletes_as) == (0, "positions")
    assert shop.status(paused).paused
    assert {"last_round_ms", "claimed_by", "deletes_as"} < set(shop.client.admin.schema(PATH).names)


def test_a_table_that_nobody_may_complete_keeps_what_it_can(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, other = shop.create("orders"), shop.create("other")
    shop.client.admin.create_database("sluice")
    shop.client.admin.create_table(PATH, foreign(last_round_ms=None, paused=None, deletes_as=None))

    def forbidden(*asked: Any) -> None:
        raise AuthorizationError("no right to alter the table")

    monkeypatch.setattr(Admin, "add_columns", forbidden)
    details = TieringRound(keys_deleted=1, deletes_as="positions")
    shop.client.tiering.finished(shop.claim(path), details=details)
    seen = shop.status(path)
    assert (seen.status, seen.paused, seen.last_round_ms) == ("Scheduled", False, None)
    assert seen.deletes_as is None
    with pytest.raises(InvalidTable, match="no column paused, and it was not added: no right"):
        shop.client.statuses.pause(other)


def test_after_a_failure_nothing_is_tried_for_a_while(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    paths = [shop.create("a"), shop.create("b")]
    claims = [shop.claim(path) for path in paths]
    shop.client.admin.drop_table(PATH)
    shop.client.admin.create_table(PATH, foreign(failures=t.STRING))
    with caplog.at_level(logging.WARNING, "sluice.client"):
        shop.client.tiering.finished(claims[0])
        shop.client.admin.drop_table(PATH)
        shop.clock.ms += int(RETRY_AFTER_S * 1000) - 1
        shop.client.tiering.finished(claims[1])
        assert not shop.client.admin.table_exists(PATH)
        shop.client.tiering.finished(shop.claim(paths[0]))
    names = [record.name for record in our_records(caplog)]
    assert names == ["sluice.client.statuses.accesses"]
    assert shop.status(paths[0]).status == "Scheduled", "once it works, it is written again"


def test_the_end_of_a_round_is_tried_though_its_claim_was_not_written(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = shop.create("orders")

    def away(*asked: Any) -> None:
        raise RequestTimeOut("the table is away")

    with monkeypatch.context() as patch:
        patch.setattr(StatusTable, "upsert", away)
        claim = shop.claim(path)
    shop.client.tiering.failed(claim, Reason.from_text("no such bucket"))
    seen = shop.status(path)
    assert (seen.status, seen.failures, seen.tiering_epoch) == ("Failed", 1, 1)


def test_a_table_that_does_not_answer_costs_its_deadline_once(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = shop.create("orders")
    slow = shop.another()
    claim = shop.claim(path, slow)
    assert slow._recorded is not None
    slow._recorded._events.deadline_s = 0.05  # of all of it; its calls keep theirs
    release = held_calls(monkeypatch)
    with caplog.at_level(logging.WARNING, "sluice.client"):
        slow.tiering.finished(claim)
    release()
    (warning,) = [record.getMessage() for record in our_records(caplog)]
    assert "could not be accessed within 0.05 s" in warning


def held_calls(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """The table's reads wait until they are let go."""
    gate = threading.Event()
    read = StatusTable.read

    def waiting(table: StatusTable, ids: Any) -> Any:
        gate.wait(60)
        return read(table, ids)

    monkeypatch.setattr(StatusTable, "read", waiting)
    return gate.set


def test_two_who_make_the_table_at_once(shop: Shop) -> None:
    paths = [shop.create(f"t{i}") for i in range(4)]
    shop.clock.ms += MINUTE_MS
    # The coordinator hands out all of them; nobody has written yet.
    claims = [shop.client.tiering._next_claim(()) for _ in paths]
    clients = [shop.another() for _ in paths]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda c, claim: c._recorded.claimed_many([claim]), clients, claims))
    seen = [status.status for status in shop.client.statuses.list()]
    assert seen == ["Tiering"] * 4


def led_by_nobody(connection: Connection, path: TablePath, bucket: TableBucket) -> Address:
    raise LeaderNotAvailable(f"bucket {bucket} of {path} has no leader now")


def test_a_new_table_that_the_cluster_misses_is_dropped_and_made_the_next_time(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As the coordinator of Fluss 0.9.1 may: the table has no leader then."""
    path = shop.create("orders")
    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING, "sluice.client"):
        patch.setattr(SystemTable, "_is_led", lambda self: False)
        patch.setattr(Connection, "leader", led_by_nobody)
        claim = shop.claim(path)
        assert not shop.client.admin.table_exists(PATH)
    (warning,) = [record.getMessage() for record in our_records(caplog)]
    assert "assigned no leader to the new table sluice.tiering_status" in warning
    shop.another().tiering.finished(claim)
    assert shop.status(path).status == "Scheduled"
