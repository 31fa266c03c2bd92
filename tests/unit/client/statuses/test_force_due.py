"""A table made due on a Fluss that has no call for that, and no open claim ended by it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from sluice.client import connect
from sluice.client.admin.admin import Admin
from sluice.client.connection.connection import Connection
from sluice.client.connection.heartbeat_entries import entry_of
from sluice.client.statuses.accesses import StatusEvents
from sluice.client.statuses.due import RecordedDue
from sluice.client.statuses.force_due import make_due
from sluice.client.statuses.recorded import this_process
from sluice.client.statuses.status_table import PATH as STATUS_PATH
from sluice.clock import Clock, SystemClock
from sluice.config import ClientConfig
from sluice.driver.not_due import claim_table
from sluice.errors import (
    AuthorizationError,
    NetworkError,
    SluiceError,
    StorageError,
    TableNotDue,
    TableNotExist,
)
from sluice.model import Claim, Column, Reason, TableBucket, TablePath
from sluice.model import types as t
from sluice.statuses.recorded import REVOKED_MS
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from sluice.wire.apis import Role
from tests.support.models.tables import table_info
from tests.support.network.wire_server import WireServer
from tests.support.statuses.status_shop import Shop, foreign, status_shop

DAY = {"table.datalake.freshness": "1d"}
PATH = TablePath("shop", "orders")


@pytest.fixture
def shop(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Shop]:
    with status_shop(tmp_path / "data", getattr(request, "param", "fluss")) as shop:
        yield shop


EITHER_DOOR = pytest.mark.parametrize("shop", ["grpc", "fluss"], indirect=True)


def claimed_now(shop: Shop, path: TablePath) -> Claim:
    return claim_table(shop.another(), path, now=True, clock=shop.clock)


@EITHER_DOOR
def test_a_table_that_nobody_has_tiered(shop: Shop) -> None:
    path = shop.create("orders", **DAY)
    assert shop.client.tiering.claim([path]) is None, "as in Fluss, it waits for its freshness"
    shop.client.statuses.request_round(path)
    seen = shop.status(path)
    assert (seen.status, seen.next_attempt_ms) == ("Pending", shop.clock.ms)
    assert claimed_now(shop, path).tiering_epoch == 1


@EITHER_DOOR
def test_a_table_after_its_round(shop: Shop) -> None:
    path = shop.create("orders", **DAY)
    for epoch in (1, 2, 3):
        claim = claimed_now(shop, path)
        assert claim.tiering_epoch == epoch
        shop.clock.ms += 1_000
        shop.another().tiering.finished(claim)
        seen = shop.status(path)
        assert (seen.status, seen.last_tiered_ms) == ("Scheduled", shop.clock.ms)
    for _ in range(4):  # the same again
        shop.another().statuses.request_round(path)
    seen = shop.status(path)
    assert (seen.status, seen.last_tiered_ms, seen.failures) == ("Pending", shop.clock.ms, 0)
    assert claimed_now(shop, path).tiering_epoch == 4


@EITHER_DOOR
def test_after_a_restart_of_the_coordinator(shop: Shop) -> None:
    path = shop.create("orders", **DAY)
    shop.client.tiering.finished(claimed_now(shop, path))
    shop.cluster.stop()
    shop.cluster.start()
    with connect(ClientConfig(shop.address, tiering_status_timeout_ms=60_000)) as client:
        assert claim_table(client, path, now=True).tiering_epoch == 2


def test_a_round_that_is_written_down_is_left_alone_and_not_even_asked(shop: Shop) -> None:
    path = shop.create("orders", **DAY)
    claim = claimed_now(shop, path)
    for ask in (
        lambda: shop.another().statuses.request_round(path),
        lambda: claimed_now(shop, path),
    ):
        with pytest.raises(TableNotDue, match=r"is being tiered.*\(tiering epoch 1\)") as caught:
            ask()
        assert "--now --wait 5min" in str(caught.value)
        assert caught.value.details["waits"]
    shop.clock.ms += 119_000
    with pytest.raises(TableNotDue):
        claimed_now(shop, path)
    shop.clock.ms += 1_000  # what asks must not keep a dead round alive
    assert claimed_now(shop, path).tiering_epoch > claim.tiering_epoch


@EITHER_DOOR
def test_a_round_that_nobody_has_written_down_is_left_alone(shop: Shop) -> None:
    """Of another tiering service, or where rows could not be written."""
    path = shop.create("orders", **DAY)
    shop.client.statuses.request_round(path)
    other = shop.client.tiering._next_claim(())
    assert other is not None
    with pytest.raises(TableNotDue, match=r"is being tiered \(tiering epoch 1\)") as caught:
        claimed_now(shop, path)
    assert caught.value.details == {"waits": True, "tiering_epoch": 1}
    assert shop.client.tiering.beat([other]) == {other.table_id: None}
    file = shop.client.tiering.prepare_lake_snapshot(
        other.table_id, path, {TableBucket(other.table_id, None, 0): 0}
    )
    assert file, "it goes on"
    shop.client.tiering._report(
        pb.LakeTieringHeartbeatRequest(finished_tables=[entry_of(other)]),
        [other],
        lambda reply: reply.finished_table_resp,
    )
    shop.clock.ms += REVOKED_MS  # its end was not written down either
    assert claimed_now(shop, path).tiering_epoch == 2


def freed_after_s(shop: Shop, claim: Claim, askers: int = 2) -> float:
    """How long processes that ask every three seconds in turn wait for a dead worker's claim."""
    clients = [shop.another() for _ in range(askers)]
    died_ms = shop.clock.ms
    for turn in range(400):
        shop.clock.ms += 3_000
        try:
            found = claim_table(clients[turn % askers], claim.path, now=True, clock=shop.clock)
        except TableNotDue as error:
            assert error.details["waits"], error
        else:
            assert found.tiering_epoch > claim.tiering_epoch
            return (shop.clock.ms - died_ms) / 1000
    raise AssertionError("whoever asks keeps the dead claim alive")


def test_a_dead_claim_ends_while_processes_ask_for_the_table(shop: Shop) -> None:
    """Its last heartbeat is later than the last recorded one."""
    path = shop.create("orders", **DAY)
    claim = claimed_now(shop, path)
    shop.clock.ms += 40_000
    assert shop.client.tiering.beat([claim]) == {claim.table_id: None}
    assert freed_after_s(shop, claim) <= 123


def test_a_dead_claim_that_is_not_recorded_ends_while_processes_ask(shop: Shop) -> None:
    """One of them has to ask the coordinator once, which prolongs the claim once."""
    path = shop.create("orders", **DAY)
    shop.client.statuses.request_round(path)
    claim = shop.client.tiering._next_claim(())
    assert claim is not None
    shop.clock.ms += 60_000
    assert freed_after_s(shop, claim) <= 126


def test_a_question_that_cannot_be_recorded_is_not_sent(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table is of an older Sluice, and this user may not add columns."""
    shop.client.admin.create_database(STATUS_PATH.database)
    shop.client.admin.create_table(STATUS_PATH, foreign(asked_time=None, asked_tiering_epoch=None))

    def refused(admin: Admin, path: TablePath, columns: Sequence[Column]) -> None:
        raise AuthorizationError(f"no right to alter {path}")

    path = shop.create("orders", **DAY)
    with monkeypatch.context() as patch:
        patch.setattr(Admin, "add_columns", refused)
        shop.another().tiering.finished(claimed_now(shop, path))
        with pytest.raises(TableNotDue, match="has no column asked_ms.*Allow this user") as caught:
            shop.another().statuses.request_round(path)
        assert "`sluice tier` with --wait 5min" in str(caught.value)
        assert shop.status(path).status == "Scheduled"
    shop.another().statuses.request_round(path)
    assert shop.status(path).status == "Pending"


def test_what_a_question_waits_for(shop: Shop) -> None:
    path = shop.create("orders", **DAY)
    claim = claim_table(shop.another(), path, now=True, clock=shop.clock)
    shop.clock.ms += 100_000
    assert shop.client.tiering.beat([claim]) == {claim.table_id: None}
    shop.clock.ms += 30_000
    with pytest.raises(TableNotDue) as caught:
        claimed_now(shop, path)
    assert str(caught.value) == (
        f"table shop.orders may be tiered by {this_process()}, which has been silent for 130 s"
        " (tiering epoch 1). If that worker is dead, Fluss frees the table within 70 s: use `sluice"
        " tier` with --now --wait 5min to tier it then"
    )
    assert caught.value.details["claimed_by"] == this_process()


def test_a_failing_table_is_tried_at_once(shop: Shop) -> None:
    path = shop.create("orders", **DAY)
    shop.client.tiering.failed(claimed_now(shop, path), Reason.from_text("no such bucket"))
    assert shop.status(path).status == "Failed"
    shop.another().statuses.request_round(path)
    seen = shop.status(path)
    assert (seen.status, seen.failures, seen.last_error) == ("Pending", 1, "no such bucket")
    shop.client.tiering.failed(
        claim_table(shop.another(), path, clock=shop.clock), Reason.from_text("no such key")
    )
    assert shop.status(path).failures == 2
    claimed_now(shop, path)
    assert shop.status(path).failures == 0, "as after a retry"


def test_a_pause_holds(shop: Shop) -> None:
    path = shop.create("orders", **DAY)
    shop.client.statuses.pause(path)
    with pytest.raises(TableNotDue, match="is paused: `sluice resume`"):
        claimed_now(shop, path)
    shop.client.statuses.request_round(path)  # wanted, once it is resumed
    assert shop.another().tiering.claim([path]) is None
    shop.client.statuses.resume(path)
    assert shop.another().tiering.claim([path]) is not None


def test_several_at_once_get_one_round_each_and_end_none(shop: Shop) -> None:
    path = shop.create("orders", **DAY)
    clients = [shop.another() for _ in range(4)]

    def one(client: Any) -> Claim | None:
        try:
            return claim_table(client, path, now=True, clock=shop.clock)
        except TableNotDue:
            return None

    with ThreadPoolExecutor(4) as pool:
        claims = [claim for claim in pool.map(one, clients) if claim is not None]
    (claim,) = claims
    assert shop.client.tiering.beat([claim]) == {claim.table_id: None}


# ---- a coordinator that answers in the words of Fluss 0.9.1 ----


class Words:
    """One table's tiering as Fluss 0.9.1 keeps it, and what it says of it. Seen on a real one."""

    def __init__(self, state: str, epoch: int, *, known: bool = True) -> None:
        self.state, self.epoch, self.known = state, epoch, known
        self.unknown_from: int | None = None
        """From which heartbeat on the coordinator does not know the table."""
        self.lost_from: int | None = None
        """From which heartbeat on no answer arrives."""
        self.finished: list[int] = []
        self.beats: list[int] = []
        self.before_finish: Callable[[], None] = lambda: None
        self.after_scheduled: Callable[[], None] = lambda: None
        self.words = (
            "The tiering epoch {asked} is not match current epoch {epoch} in coordinator for table"
            " 7.",
            "java.lang.IllegalStateException: The table 7 to renew tiering heartbeat must in"
            " Tiering state, but in {state} state.\n\tat org.apache.fluss.server.Something",
        )

    def heartbeat(self, request: Any) -> Any:
        reply = pb.LakeTieringHeartbeatResponse(coordinator_epoch=0)
        for entry in request.tiering_tables:
            self.beats.append(entry.tiering_epoch)
            if len(self.beats) == self.unknown_from:
                self.known = False
            if self.lost_from is not None and len(self.beats) >= self.lost_from:
                raise NetworkError("the answer is lost")
            self._say(reply.tiering_table_resp.add(table_id=7), entry, heartbeat=True)
        for entry in request.finished_tables:
            self.before_finish()
            assert list(request.force_finished_tables) == [7]
            self.finished.append(entry.tiering_epoch)
            if self._say(reply.finished_table_resp.add(table_id=7), entry):
                self.state, self.epoch = "Pending", self.epoch + 1
        return reply

    def _say(self, answer: Any, entry: Any, *, heartbeat: bool = False) -> bool:
        code, text = 0, ""
        if not self.known:
            code, text = 7, "The table 7 doesn't exist."
        elif entry.tiering_epoch != self.epoch:
            code, text = 50, self.words[0].format(asked=entry.tiering_epoch, epoch=self.epoch)
        elif heartbeat and self.state != "Tiering":
            code, text = -1, self.words[1].format(state=self.state)
        if code:
            answer.error.error_code, answer.error.error_message = code, text
        if code == -1 and self.state == "Scheduled":
            self.after_scheduled()
        return not code


def may_ask(claim: Claim) -> None:
    assert claim.tiering_epoch, "no claim has epoch 0, so that it may be asked about without leave"


def made_due(
    words: Words, clock: Clock | None = None, before: Callable[[Claim], None] = may_ask
) -> Claim | None:
    handlers = {(Role.COORDINATOR, apis.LAKE_TIERING_HEARTBEAT): words.heartbeat}
    with WireServer(handlers) as server:
        connection = Connection(ClientConfig(server.address))
        try:
            return make_due(connection, PATH, 7, before, lambda claim: None, clock)
        finally:
            connection.close()


@pytest.mark.parametrize("epoch", [0, 1, 12])
def test_a_scheduled_table_is_finished_under_the_epoch_that_fluss_names(epoch: int) -> None:
    words = Words("Scheduled", epoch)
    assert made_due(words) == Claim(7, PATH, epoch, 0)
    assert (words.finished, words.state) == ([epoch], "Pending")


@pytest.mark.parametrize("epoch", [1, 12])
def test_what_is_due_already_is_left_alone(epoch: int) -> None:
    words = Words("Pending", epoch)
    assert made_due(words) is None
    assert words.finished == []


@pytest.mark.parametrize("epoch", [1, 12])
def test_an_open_claim_is_left_alone(epoch: int) -> None:
    words = Words("Tiering", epoch)
    with pytest.raises(TableNotDue, match=rf"is being tiered \(tiering epoch {epoch}\)"):
        made_due(words)
    assert (words.finished, words.beats) == ([], [0, epoch])


@pytest.mark.parametrize("state", ["Scheduled", "Pending", "Tiering"])
def test_without_leave_only_the_epoch_is_asked_for(state: str) -> None:
    words = Words(state, 12)

    def refuse(claim: Claim) -> None:
        assert words.beats == [0], "before the question"
        raise TableNotDue(f"{claim.tiering_epoch} may be open")

    with pytest.raises(TableNotDue, match="12 may be open"):
        made_due(words, before=refuse)
    assert (words.finished, words.beats) == ([], [0])


@pytest.mark.parametrize(
    "words", [("Fenced: {asked}", "no"), ("current epoch {epoch}", "it is {state} now"), ("", "")]
)
@pytest.mark.parametrize("state", ["Scheduled", "Pending"])
def test_words_that_nobody_knows_are_not_guessed_at(words: tuple[str, str], state: str) -> None:
    unknown = Words(state, 3)
    unknown.words = words
    with pytest.raises(
        TableNotDue, match="cannot be made due: this Fluss does not report"
    ) as caught:
        made_due(unknown)
    assert "`sluice tier` with --wait 5min" in str(caught.value)
    assert unknown.finished == []


def test_a_table_that_becomes_due_meanwhile_is_claimed_by_others_in_peace() -> None:
    """Its freshness ends, and somebody claims it, between the heartbeat and the report."""
    words = Words("Scheduled", 4)

    def claimed() -> None:
        words.state, words.epoch = "Tiering", 5

    words.before_finish = claimed
    assert made_due(words) is None
    assert (words.finished, words.state, words.epoch) == ([4], "Tiering", 5)


def test_the_report_is_never_sent_twice() -> None:
    """Its answer is lost with the coordinator; the next one may have come to that epoch again."""
    words = Words("Scheduled", 1)

    def lost() -> None:
        words.before_finish = lambda: None  # a second report would be answered
        words.finished.append(1)
        raise NetworkError("the coordinator is gone")

    words.before_finish = lost
    with pytest.raises(NetworkError):
        made_due(words)
    assert words.finished == [1]


class Ahead(SystemClock):
    """This machine's clock, ahead by what a test says: as after a SIGSTOP or a suspension."""

    stopped_s = 0.0
    suspended_s = 0.0
    """The monotonic clock of Linux stands meanwhile."""

    def now_ms(self) -> int:
        return super().now_ms() + int((self.stopped_s + self.suspended_s) * 1000)

    def monotonic_s(self) -> float:
        return super().monotonic_s() + self.stopped_s


@pytest.mark.parametrize("how", ["stopped_s", "suspended_s"])
def test_a_claim_of_the_same_epoch_after_a_restart_is_not_ended(how: str) -> None:
    """The client stands still, the coordinator restarts, and its epochs come to the same number."""
    words, clock = Words("Scheduled", 1), Ahead()

    def meanwhile() -> None:
        setattr(clock, how, 60.0)
        words.state = "Tiering"

    words.after_scheduled = meanwhile
    with pytest.raises(TableNotDue, match=r"is being tiered \(tiering epoch 1\)"):
        made_due(words, clock)
    assert words.finished == []


def test_who_stood_still_once_asks_again_and_goes_on() -> None:
    words, clock = Words("Scheduled", 2), Ahead()
    words.after_scheduled = lambda: setattr(clock, "stopped_s", 60.0)
    assert made_due(words, clock) == Claim(7, PATH, 2, 0)
    assert (words.finished, words.beats) == ([2], [0, 2, 0, 2])


def test_answers_that_are_always_old_are_given_up() -> None:
    words, clock = Words("Scheduled", 2), Ahead()

    def slow() -> None:
        clock.stopped_s += 1.5

    words.after_scheduled = slow
    with pytest.raises(
        TableNotDue, match=r"was not made due: 5 responses .* more than 1 s"
    ) as caught:
        made_due(words, clock)
    assert caught.value.details == {"waits": True}
    assert (words.finished, len(words.beats)) == ([], 10)


def test_a_table_that_the_coordinator_does_not_know() -> None:
    with pytest.raises(TableNotExist, match=r"does not list table shop\.orders \(id 7\)"):
        made_due(Words("Scheduled", 0, known=False))


# ---- what is left recorded of a question ----


def kept_question(words: Words, clock: Clock | None = None) -> tuple[str, Any]:
    """How a call ended, and the epoch whose question others must wait for."""
    row: dict[str, Any] = {}

    def upsert(*rows: Mapping[str, Any], needed: str | None = None) -> None:
        for columns in rows:
            row.update(columns)

    own = clock or SystemClock()
    due = RecordedDue(StatusEvents(own, 30.0), own, upsert)
    handlers = {(Role.COORDINATOR, apis.LAKE_TIERING_HEARTBEAT): words.heartbeat}
    with WireServer(handlers) as server:
        connection = Connection(ClientConfig(server.address, retry_timeout_ms=200))
        table = table_info({"n": t.BIGINT}, path=PATH, table_id=7)
        try:
            due.make(
                table,
                None,
                lambda *told: make_due(connection, PATH, 7, told[0], told[1], own),
                None,
            )
            ended = "due"
        except SluiceError as error:
            ended = type(error).__name__
        finally:
            connection.close()
    assert (row["asked_tiering_epoch"] is None) == (row["asked_ms"] is None)
    return ended, row["asked_tiering_epoch"]


def fails(error: Exception) -> Callable[[], None]:
    def raises() -> None:
        raise error

    return raises


def test_a_question_that_prolonged_nothing_is_taken_back_whatever_follows() -> None:
    """Else others would say for 140 s that the table may be tiered."""
    assert kept_question(Words("Scheduled", 4)) == ("due", None)
    assert kept_question(Words("Pending", 4)) == ("due", None)

    unknown_state = Words("Scheduled", 4)
    unknown_state.words = (unknown_state.words[0], "no renewal of {state}")
    assert kept_question(unknown_state) == ("TableNotDue", None)

    for error in (NetworkError("gone"), TableNotExist("dropped"), StorageError("full")):
        unfinished = Words("Scheduled", 4)
        unfinished.before_finish = fails(error)
        assert kept_question(unfinished) == (type(error).__name__, None)

    dropped = Words("Pending", 4)
    dropped.unknown_from = 2
    assert kept_question(dropped) == ("TableNotExist", None)

    slow, clock = Words("Scheduled", 4), Ahead()
    slow.after_scheduled = lambda: setattr(clock, "stopped_s", clock.stopped_s + 1.5)
    assert kept_question(slow, clock) == ("TableNotDue", None)


def test_a_question_that_may_have_prolonged_a_claim_stays_recorded() -> None:
    assert kept_question(Words("Tiering", 4)) == ("TableNotDue", 4)

    lost = Words("Tiering", 4)
    lost.lost_from = 2
    assert kept_question(lost) == ("NetworkError", 4)

    claimed, clock = Words("Scheduled", 4), Ahead()

    def restarted() -> None:
        clock.stopped_s, claimed.state = 60.0, "Tiering"

    claimed.after_scheduled = restarted
    assert kept_question(claimed, clock) == ("TableNotDue", 4), "the second answer counts"
