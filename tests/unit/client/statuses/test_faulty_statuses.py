"""Statuses that rounds write down while calls fail, come late or show only a part."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sluice.client.admin.admin import Admin
from sluice.client.statuses.recorded import READ_RETRY_AFTER_S
from sluice.client.statuses.status_table import PATH, StatusTable
from sluice.client.statuses.system_table import SystemTable
from sluice.errors import FencedTieringEpoch, InvalidTable, RequestTimeOut, StatusUnreadable
from sluice.model import Reason, TablePath
from sluice.model import types as t
from tests.support.statuses.status_shop import MINUTE_MS, Shop, foreign, status_shop


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    with status_shop(tmp_path / "data") as shop:
        yield shop


def test_rows_of_tables_that_one_may_not_see_are_kept(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fluss lists no more than a user may describe."""
    mine, theirs = shop.create("mine"), shop.create("theirs")
    shop.client.statuses.pause(theirs)
    listed = Admin.list_tables
    with monkeypatch.context() as patch:
        patch.setattr(
            Admin, "list_tables", lambda self, name: [t for t in listed(self, name) if t == "mine"]
        )
        me = shop.another().tiering
        me.finished(shop.claim(mine))
    assert shop.status(theirs).paused


def test_runs_that_are_killed_are_failures(shop: Shop) -> None:
    """The coordinator takes their claims back, and the next claim finds that nothing ended."""
    path = shop.create("orders")
    for failures in range(3):
        claim = shop.claim(path)
        assert shop.status(path).failures == failures
        shop.clock.ms += 2 * MINUTE_MS
    seen = shop.status(path)
    assert (seen.failures, seen.is_failing) == (2, True)
    assert seen.last_error == (
        f"no heartbeat for 180 s: the worker of tiering epoch {claim.tiering_epoch - 1} is"
        " considered lost"
    )


def test_a_table_whose_run_was_killed_waits_as_after_a_failure(shop: Shop) -> None:
    path = shop.create("orders")
    shop.claim(path)
    shop.clock.ms += 2 * MINUTE_MS
    patient = shop.another(tiering_backoff_ms=3 * MINUTE_MS).tiering
    assert patient.claim([path]) is None
    seen = shop.status(path)
    assert (seen.status, seen.failures) == ("Failed", 1)
    assert seen.next_attempt_ms == shop.clock.ms + 3 * MINUTE_MS, "from when it was taken back"
    shop.clock.ms += 3 * MINUTE_MS
    assert patient.claim([path]) is not None


@pytest.mark.parametrize("end", ["failed", "finished"])
def test_an_end_that_is_refused_is_written_while_its_claim_is_the_last(
    shop: Shop, end: str
) -> None:
    path = shop.create("orders")
    claim = shop.claim(path)
    shop.clock.ms += 2 * MINUTE_MS
    tiering = shop.another().tiering

    def report() -> None:
        with pytest.raises(FencedTieringEpoch):
            if end == "failed":
                tiering.failed(claim, Reason.from_text("DriverLost: the machine died"))
            else:
                tiering.finished(claim)

    report()
    seen = shop.status(path)
    if end == "failed":
        assert (seen.failures, seen.last_error) == (1, "DriverLost: the machine died")
        report()
        assert shop.status(path).failures == 1, "it has ended already"
    else:
        assert (seen.status, seen.last_tiered_ms) == ("Scheduled", shop.clock.ms)
    shop.clock.ms += 2 * MINUTE_MS
    shop.claim(path)
    report()
    assert shop.status(path).status == "Tiering", "the end of an older claim changes nothing"


def away(*asked: Any) -> Any:
    raise RequestTimeOut("the table is away")


def test_a_pause_holds_though_a_write_has_failed(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, other = shop.create("orders"), shop.create("other")
    shop.client.statuses.pause(path)
    one = shop.another()
    claim = shop.claim(other, one)
    one.tiering.heartbeat([claim])
    shop.clock.ms += 31_000
    with monkeypatch.context() as patch:
        patch.setattr(StatusTable, "upsert", away)
        one.tiering.heartbeat([claim])
    assert one.tiering.claim([path]) is None


def test_a_table_whose_pause_cannot_be_read_is_not_claimed(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    paused, good = shop.create("paused"), shop.create("good")
    shop.client.statuses.pause(paused)
    one = shop.another()
    with monkeypatch.context() as patch:
        patch.setattr(StatusTable, "read", away)
        for requested in ([paused, good], None):  # read once, and then not for a while
            with pytest.raises(StatusUnreadable, match="RequestTimeOut: the table is away"):
                one.tiering.claim(requested)
    shop.clock.ms += int(READ_RETRY_AFTER_S * 1000)
    assert one.tiering.claim([paused]) is None
    assert shop.claim(good, one).path == good


def test_a_claim_is_released_if_its_pause_cannot_be_read(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [shop.create(f"t{i}") for i in range(3)]
    shop.clock.ms += MINUTE_MS
    session = shop.another().tiering.claim_session()
    with (
        monkeypatch.context() as patch,
        pytest.raises(StatusUnreadable),
        session as tables,
    ):
        assert tables.next() is not None
        patch.setattr(StatusTable, "read", away)
        tables.next()
    free = shop.another().tiering
    with free.claim_session() as tables:
        assert [tables.next() is not None for _ in paths] == [True, True, False]


def test_a_table_waits_after_a_failure_that_could_not_be_written(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = shop.create("orders")
    one = shop.another()
    with monkeypatch.context() as patch:
        patch.setattr(StatusTable, "upsert", away)
        one.tiering.failed(shop.claim(path, one), Reason.from_text("no such bucket"))
        assert one.tiering.claim([path]) is None
        shop.clock.ms += 10_000
        claim = one.tiering.claim([path])
        assert claim is not None
        one.tiering.failed(claim, Reason.from_text("no such bucket"))
        shop.clock.ms += 19_999
        assert one.tiering.claim([path]) is None, "twice as long"
    shop.clock.ms += MINUTE_MS
    assert one.tiering.claim([path]) is not None
    seen = shop.status(path)
    assert (seen.status, seen.failures) == ("Tiering", 2), "both come with the next write"


def test_what_was_given_up_is_not_written_late(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    path = shop.create("orders")
    shop.client.statuses.pause(path)
    slow = shop.another()
    assert slow._recorded is not None
    slow._recorded._events.deadline_s = 0.05
    gate, done = threading.Event(), threading.Event()
    upsert = StatusTable.upsert

    def late(table: StatusTable, *asked: Any) -> None:
        gate.wait(60)
        try:
            upsert(table, *asked)
        finally:
            done.set()

    with monkeypatch.context() as patch:
        patch.setattr(StatusTable, "upsert", late)
        with pytest.raises(RequestTimeOut, match="could not be accessed within"):
            slow.statuses.resume(path)
        gate.set()
        assert done.wait(60)
    assert shop.status(path).paused


def test_a_new_table_that_somebody_has_written_to_is_kept(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who made it did not reach its leader; who did wrote there meanwhile."""
    path = shop.create("orders")
    maker, other = shop.another(), shop.another()

    def not_led(table: Any) -> bool:
        other.statuses.pause(path)
        return False

    monkeypatch.setattr(SystemTable, "_is_led", not_led)
    shop.claim(path, maker)
    assert shop.status(path).paused


def test_a_new_table_is_kept_where_nobody_answers_whether_it_is_led(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = shop.create("orders")
    with monkeypatch.context() as patch:
        patch.setattr(Admin, "list_offsets", away)
        claim = shop.claim(path)
    assert shop.client.admin.table_exists(PATH)
    shop.another().tiering.finished(claim)
    assert shop.status(path).status == "Scheduled"


def test_heartbeats_of_many_rounds_are_one_write(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [shop.create(f"t{i}") for i in range(8)]
    shop.clock.ms += MINUTE_MS
    with shop.client.tiering.claim_session() as tables:
        claims = [claim for _ in paths if (claim := tables.next()) is not None]
    keeper = shop.another().tiering
    keeper.heartbeat(claims)
    shop.clock.ms += 31_000
    writes = []
    upsert = StatusTable.upsert

    def counted(table: StatusTable, *asked: Any) -> None:
        writes.append(asked)
        upsert(table, *asked)

    monkeypatch.setattr(StatusTable, "upsert", counted)
    keeper.heartbeat(claims)
    assert len(writes) == 1
    heard = {int(row["heartbeat_time"].timestamp() * 1000) for row in shop.stored()}
    assert heard == {shop.clock.ms}


def test_a_question_before_a_commit_waits_for_no_status(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A real Fluss takes a commit of a claim that has gone: so none is lost between the two."""
    claim = shop.claim(shop.create("orders"))
    tiering = shop.client.tiering
    assert tiering.still_claimed(claim)
    shop.clock.ms += 31_000
    asked: list[Any] = []
    monkeypatch.setattr(StatusTable, "read", lambda *args: asked.append(args))
    monkeypatch.setattr(StatusTable, "upsert", lambda *args: asked.append(args))
    assert tiering.still_claimed(claim)
    shop.clock.ms += 31_000
    assert tiering.still_claimed(claim)
    assert asked == []


def test_heartbeats_make_up_for_a_claim_that_was_not_written(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = shop.create("orders")
    shop.client.tiering.finished(shop.claim(path))
    one = shop.another()
    with monkeypatch.context() as patch:
        patch.setattr(StatusTable, "upsert", away)
        claim = shop.claim(path, one)
    claimed_ms = shop.clock.ms
    assert shop.status(path).status == "Pending"
    for _ in range(6):  # no row is written for a minute after the failure
        shop.clock.ms += 15_000
        one.tiering.heartbeat([claim])
    seen = shop.status(path)
    assert (seen.status, seen.tiering_epoch) == ("Tiering", claim.tiering_epoch)
    (row,) = shop.stored()
    assert row["claimed_by"] == "run-1"
    one.tiering.finished(claim)
    assert shop.status(path).last_round_ms == shop.clock.ms - claimed_ms


def test_a_late_heartbeat_leaves_no_row_without_a_name(shop: Shop) -> None:
    path, other = shop.create("orders"), shop.create("other")
    shop.client.tiering.finished(shop.claim(other))
    claim = shop.claim(path)
    keeper = shop.another()._recorded
    assert keeper is not None
    keeper.heartbeat([claim])
    shop.client.admin.drop_table(path)
    shop.another().tiering.finished(shop.claim(other))
    assert [row["table_name"] for row in shop.stored()] == ["other"]
    shop.clock.ms += 31_000
    keeper.heartbeat([claim])  # it was on its way
    shop.another().tiering.finished(shop.claim(other))
    assert [row["table_name"] for row in shop.stored()] == ["other"]


def test_a_late_heartbeat_does_not_undo_an_end(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    path = shop.create("orders")
    one = shop.another()
    with monkeypatch.context() as patch:
        patch.setattr(StatusTable, "upsert", away)
        claim = shop.claim(path, one)
    keeper = shop.another()._recorded
    assert keeper is not None
    keeper.heartbeat([claim])
    one.tiering.finished(claim)
    shop.clock.ms += 31_000
    keeper.heartbeat([claim])
    assert shop.status(path).status == "Scheduled"


def test_rows_that_have_expired_are_no_lag(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bucket that was never tiered begins where its log does."""
    path = shop.create("orders")
    with shop.client.log_writer(path) as writer:
        writer.write(pa.table({"id": pa.array(range(5), pa.int64())}))
    listed = Admin.list_offsets

    def two_expired(admin: Admin, table: TablePath, *args: Any, **named: Any) -> dict[int, int]:
        found = listed(admin, table, *args, **named)
        return dict.fromkeys(found, 2) if "earliest" in args else found

    with monkeypatch.context() as patch:
        patch.setattr(Admin, "list_offsets", two_expired)
        assert shop.status(path).lag_rows == 3
    assert shop.status(path).lag_rows == 5


def test_times_of_another_precision_are_another_table(shop: Shop) -> None:
    path = shop.create("orders")
    shop.client.admin.create_database("sluice")
    shop.client.admin.create_table(PATH, foreign(ended_time=t.timestamp_ltz(6)))
    with pytest.raises(
        InvalidTable, match=r"ended_time is .*_LTZ\(6\) instead of TIMESTAMP_LTZ\(3\)"
    ):
        shop.client.statuses.pause(path)
