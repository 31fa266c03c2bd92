"""The keeper of a run's claims, against real servers whose clock the test owns."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from sluice.client import Client, connect
from sluice.client.tiering.tiering import TieringClient
from sluice.config import ServerConfig
from sluice.errors import FlussError, LeaseNotObtained, UnknownServerError
from sluice.model import BucketSnapshot, Claim, Reason, TablePath
from sluice.rounds.records.json_files import write_json
from sluice.rounds.records.plan_file import claim_of
from sluice.rounds.records.result import RoundFailure, RoundResult, failure_uri, result_uri
from sluice.server.cluster import EmbeddedCluster
from sluice_airflow.acquire.acquire import acquire
from sluice_airflow.acquire.keeper import ClaimKeeper
from sluice_airflow.claims import leasing
from sluice_airflow.claims.claimed_again import mark_started, newest_claim
from sluice_airflow.claims.claims import ClaimedTable
from sluice_airflow.config.connection import FlussConnection
from sluice_airflow.outcomes.settle import drop, settle
from tests.airflow.operators.test_waiting import OwnedClock
from tests.airflow.place import AirflowProcess, Place, wait_until
from tests.support.statuses.status_shop import MINUTE_MS, status_shop

INTERVAL_MS = 20_000
TEN_MINUTES_MS = 600_000
JOB = "sluice-job"


class Shop(Place):
    """A place without Airflow, whose time passes in heartbeat intervals."""

    clock: OwnedClock

    @property
    def work_uri(self) -> str:
        return f"file://{self.work}"

    def tables(self, count: int) -> list[TablePath]:
        paths = [self.table(f"t{number:03}", rows=1) for number in range(count)]
        self.clock.ms += 2_000
        self.wait(*paths)
        return paths

    def acquire(self, job: str = JOB, most: int = 1000, *patterns: str) -> list[ClaimedTable]:
        connection = FlussConnection(self.address, work_uri=self.work_uri)
        return acquire(self.client, connection, job, patterns or ("*",), most)

    def keeper(self, job: str = JOB) -> ClaimKeeper:
        return ClaimKeeper(self.client, self.work_uri, job)

    def pass_by(self, ms: int, *keepers: ClaimKeeper) -> None:
        """Lets time pass; the server looks for lost workers in each interval."""
        until = self.clock.ms + ms
        while self.clock.ms < until:
            self.clock.ms += INTERVAL_MS
            for keeper in keepers:
                keeper.beat()

    def failures(self, *paths: TablePath) -> list[tuple[str, int | None]]:
        found = {status.path: status for status in self.client.statuses.list()}
        return [(found[path].status, found[path].failures) for path in paths]


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    clock = OwnedClock()
    config = ServerConfig(
        data_dir=str(tmp_path / "data"),
        listen="grpc://127.0.0.1:0",
        tiering_timeout_ms=120_000,
        tiering_check_interval_ms=20,
        tiering_backoff_ms=0,
    )
    with EmbeddedCluster(config, clock) as cluster, connect(cluster.address) as client:
        client.admin.create_database("shop")
        none: AirflowProcess = None  # type: ignore[assignment]
        place = Shop(none, client, cluster.address, tmp_path / "work")
        place.clock = clock
        yield place


def committed(entry: ClaimedTable) -> dict[str, object]:
    """Leaves the result of a driver that committed; answers what its task leaves in XCom."""
    result = RoundResult.of(claim_of(entry), "committed")
    uri = result_uri(entry["plan_uri"], "1")
    write_json(uri, result.to_json())
    return {**result.to_json(), "result_uri": uri}


@pytest.mark.parametrize("kept", [False, True])
def test_a_claim_that_waits_for_ten_minutes(shop: Shop, kept: bool) -> None:
    """In a full pool, or of a paused DAG: none of the run's tasks runs."""
    [path] = shop.tables(1)
    [entry] = shop.acquire()
    shop.pass_by(TEN_MINUTES_MS, *[shop.keeper()] * kept)
    if kept:
        assert shop.failures(path) == [("Tiering", 0)]
        assert settle(shop.client, entry, committed(entry), None).reason == "committed"
        assert shop.failures(path) == [("Scheduled", 0)]
    else:
        wait_until(lambda: shop.failures(path)[0][1] == 1, 60, "the worker to be taken for lost")


@pytest.mark.slow
def test_two_runs_with_200_tables_wait_for_ten_minutes(shop: Shop) -> None:
    paths = shop.tables(200)
    entries = shop.acquire("one", 100) + shop.acquire("two", 100)
    keepers = shop.keeper("one"), shop.keeper("two")
    shop.pass_by(TEN_MINUTES_MS, *keepers)
    assert set(shop.failures(*paths)) == {("Tiering", 0)}
    for entry in entries[100:]:
        assert settle(shop.client, entry, committed(entry), None).reason == "committed"
    shop.pass_by(TEN_MINUTES_MS, *keepers)
    ended = {entry["table"] for entry in entries[100:]}
    for path, found in zip(paths, shop.failures(*paths), strict=True):
        assert found == (("Scheduled", 0) if str(path) in ended else ("Tiering", 0))
    assert keepers[1].summary() == "100 claims kept, 0 lost before their tier task"


def test_a_lost_claim_is_taken_again_before_its_driver_starts(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    path, other = shop.tables(2)
    entries = {entry["table"]: entry for entry in shop.acquire()}
    old = entries[str(path)]
    keeper = shop.keeper()
    assert not keeper.beat()
    shop.client.tiering.release(claim_of(old), Reason.from_text("another client"))
    assert keeper.beat()
    assert keeper.claim_again() == 1
    new = newest_claim(old)
    assert claim_of(new).tiering_epoch == claim_of(old).tiering_epoch + 1
    assert newest_claim(new) == new
    assert newest_claim(entries[str(other)]) == entries[str(other)]
    shop.pass_by(TEN_MINUTES_MS, keeper)
    assert shop.failures(path, other) == [("Tiering", 0)] * 2
    said = [record.message for record in caplog.records if record.name.endswith("keeper")]
    assert [line.split(":")[1].strip() for line in said] == [
        "the claim was lost before its tier task",
        "claimed again, tiering epoch 2",
    ]
    verdict = settle(shop.client, old, committed(new), None)
    assert (verdict.reported, verdict.reason) == ("finished", "committed")
    assert shop.failures(path) == [("Scheduled", 0)]


def test_a_killed_worker_loses_its_claim(shop: Shop) -> None:
    """Its tier task sent the heartbeats; it left no outcome."""
    [path] = shop.tables(1)
    [entry] = shop.acquire()
    keeper = shop.keeper()
    shop.pass_by(TEN_MINUTES_MS, keeper)
    assert shop.failures(path) == [("Tiering", 0)]
    mark_started(entry["plan_uri"], "try-1")
    shop.pass_by(180_000, keeper)
    wait_until(lambda: shop.failures(path)[0][1] == 1, 60, "the worker to be taken for lost")
    assert not keeper.beat()


@pytest.mark.parametrize("outcome", ["failure", "result"])
def test_a_claim_is_kept_between_two_tries(shop: Shop, outcome: str) -> None:
    """And from the last try to settle, if the pool is full."""
    [path] = shop.tables(1)
    [entry] = shop.acquire()
    keeper = shop.keeper()
    mark_started(entry["plan_uri"], "try-1")
    keeper.beat()
    if outcome == "failure":
        failure = RoundFailure(Reason("NetworkError", "away", retryable=True))
        write_json(failure_uri(entry["plan_uri"], "try-1"), failure.to_json())
    else:
        result = RoundResult.of(claim_of(entry), "committed")
        write_json(result_uri(entry["plan_uri"], "try-1"), result.to_json())
    shop.pass_by(TEN_MINUTES_MS, keeper)
    assert shop.failures(path) == [("Tiering", 0)]
    mark_started(entry["plan_uri"], "try-2")
    shop.pass_by(180_000, keeper)
    wait_until(lambda: shop.failures(path)[0][1] == 1, 60, "the worker to be taken for lost")


def test_a_claim_whose_task_has_started_is_not_taken_again(shop: Shop) -> None:
    paths = shop.tables(3)
    entries = shop.acquire()
    keeper = shop.keeper()
    keeper.beat()
    started, reported, _ = entries
    mark_started(started["plan_uri"], "1")
    shop.client.tiering.release(claim_of(started), Reason.from_text("another client"))
    settle(shop.client, reported, None, None)  # the task was killed before it left a file
    assert not keeper.beat()
    for verdict in drop(shop.client, shop.work_uri, JOB):
        assert verdict.table == entries[2]["table"]
    assert not keeper.beat()
    assert {status for status, _ in shop.failures(*paths)} == {"Pending"}


@pytest.mark.parametrize("state", ["success", "skipped", "failed", None])
def test_what_settle_has_reported_is_not_claimed_again(shop: Shop, state: str | None) -> None:
    """Without a file: a user stopped the task, or its failure is only in XCom."""
    [path] = shop.tables(1)
    [entry] = shop.acquire()
    keeper = shop.keeper()
    keeper.beat()
    for _ in range(2):
        xcom = None if state else {"table": str(path), "kind": "Broken", "reason": "it is"}
        settle(shop.client, entry, None, xcom, state, 0)
        assert not keeper.beat()
        assert shop.failures(path) == [("Pending", 0 if state else 1)]


def test_what_acquire_has_reported_is_not_claimed_again(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its retry could not lease the snapshots of a claim that it had taken over."""
    [path] = shop.tables(1)
    shop.acquire()
    keeper = shop.keeper()
    keeper.beat()

    def refuse(*_: object) -> None:
        raise LeaseNotObtained("no snapshot is left")

    monkeypatch.setattr(leasing, "renew_snapshots", refuse)
    assert shop.acquire(JOB, 1) == []
    assert not keeper.beat()
    assert shop.failures(path) == [("Pending", 1)]


def test_a_task_that_did_not_wait_leaves_no_claim_behind(shop: Shop) -> None:
    """It has given up between the keeper's two looks."""
    [path] = shop.tables(1)
    [entry] = shop.acquire()
    keeper = shop.keeper()
    shop.client.tiering.release(claim_of(entry), Reason.from_text("another client"))
    assert keeper.beat()
    mark_started(entry["plan_uri"], "1")
    assert keeper.claim_again() == 0
    assert shop.failures(path) == [("Pending", 0)]


def test_a_table_that_cannot_be_claimed_again_is_released_at_the_end(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Released at once, it would be assigned to the same session again."""
    path, other = shop.tables(2)
    entries = shop.acquire()
    keeper = shop.keeper()
    keeper.beat()
    for entry in entries:
        shop.client.tiering.release(claim_of(entry), Reason.from_text("another client"))
    assert shop.client.tiering.claim([other]), "it has this table longer"
    assert keeper.beat()
    calls: list[TablePath] = []

    def refuse(_client: Client, _lease_id: str, claim: Claim) -> None:
        calls.append(claim.path)
        raise LeaseNotObtained("no snapshot is left")

    monkeypatch.setattr(leasing, "lease_snapshots", refuse)
    assert keeper.claim_again() == 0
    assert calls == [path]
    assert shop.failures(path, other) == [("Pending", 0), ("Tiering", 0)]


def test_claims_have_heartbeats_while_another_is_claimed_again(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Snapshots are leased one after the other, which may take minutes."""
    paths = shop.tables(4)
    entries = shop.acquire()
    keeper = ClaimKeeper(shop.client, shop.work_uri, JOB, interval_s=0.02)
    keeper.beat()
    for entry in entries[2:]:
        shop.client.tiering.release(claim_of(entry), Reason.from_text("another client"))
    assert keeper.beat()
    beats: list[int] = []
    heartbeat, lease_snapshots = TieringClient.heartbeat, leasing.lease_snapshots

    def counted(
        tiering: TieringClient, claims: list[Claim], *, retry: bool = True
    ) -> dict[int, FlussError | None]:
        answers = heartbeat(tiering, claims, retry=retry)
        beats.append(len(claims))
        return answers

    def slow(client: Client, lease_id: str, claim: Claim) -> tuple[BucketSnapshot, ...]:
        for _ in range(4):
            shop.clock.ms += 50_000
            seen = len(beats)
            wait_until(lambda seen=seen: len(beats) > seen + 1, 10, "a heartbeat")  # type: ignore[misc]
        return lease_snapshots(client, lease_id, claim)

    monkeypatch.setattr(TieringClient, "heartbeat", counted)
    monkeypatch.setattr(leasing, "lease_snapshots", slow)
    assert keeper.claim_again() == 2
    assert {3, 4} <= set(beats)
    assert set(shop.failures(*paths)) == {("Tiering", 0)}


def test_what_was_taken_again_is_released_if_the_run_ends_meanwhile(shop: Shop) -> None:
    [path] = shop.tables(1)
    [entry] = shop.acquire()
    keeper = shop.keeper()
    shop.client.tiering.release(claim_of(entry), Reason.from_text("another client"))
    assert keeper.beat()
    assert keeper.claim_again() == 1
    keeper.release_again()
    assert shop.failures(path) == [("Pending", 0)]
    keeper.release_again()


def test_a_plan_that_cannot_be_read_ends_no_other_heartbeat(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    paths = shop.tables(2)
    one, other = shop.acquire()
    Path(one["plan_uri"].removeprefix("file://")).write_text("{}")
    shop.pass_by(TEN_MINUTES_MS, shop.keeper())
    assert caplog.text.count("one of the run's plans cannot be read") == 1
    found = dict(zip(map(str, paths), shop.failures(*paths), strict=True))
    assert found[other["table"]] == ("Tiering", 0)


@pytest.mark.parametrize("error", [OSError, RuntimeError])
def test_a_work_folder_that_cannot_be_read_ends_no_heartbeat(
    shop: Shop,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: type[Exception],
) -> None:
    """Some file systems raise errors of their own."""
    paths = shop.tables(2)
    one, _ = shop.acquire()
    keeper = shop.keeper()
    keeper.beat()

    def refuse(*_: object) -> None:
        raise error("away: password=planted")

    with monkeypatch.context() as storage:
        storage.setattr("sluice.storage.fsspec_file_system", refuse)
        shop.client.tiering.release(claim_of(one), Reason.from_text("another client"))
        shop.pass_by(TEN_MINUTES_MS, keeper)
        assert keeper.claim_again() == 0
    assert caplog.text.count("the plans of the run cannot be read") == 1
    assert "planted" not in caplog.text
    found = dict(zip(map(str, paths), shop.failures(*paths), strict=True))
    assert sorted(found.values()) == [("Pending", 0), ("Tiering", 0)]
    assert keeper.beat(), "the lost claim is judged when its folder can be read"
    assert keeper.claim_again() == 1


@pytest.mark.parametrize("claims", [0, 1])
def test_a_triggerer_that_sees_no_plan_says_so_once(
    shop: Shop, tmp_path: Path, caplog: pytest.LogCaptureFixture, claims: int
) -> None:
    shop.tables(1)
    shop.acquire(JOB, claims)
    elsewhere = f"file://{tmp_path / 'elsewhere'}"
    keeper = ClaimKeeper(shop.client, elsewhere, JOB)
    caplog.clear()
    for beats in range(8):
        keeper.beat()
        assert beats > 2 or caplog.text == "", "acquire_lease may be about to write it"
    text = f"1 claims of the run are not kept: the triggerer sees no plan in {elsewhere}/{JOB}"
    assert caplog.text.count(text) == claims
    assert len(caplog.records) == claims


def test_a_single_unknown_error_ends_no_claim(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Such an error may be transient; the same answer again means that the claim has ended."""
    shop.tables(1)
    [entry] = shop.acquire()
    keeper = shop.keeper()
    heartbeat = TieringClient.heartbeat
    failing = True

    def answer(
        tiering: TieringClient, claims: list[Claim], *, retry: bool = True
    ) -> dict[int, FlussError | None]:
        if failing:
            return {claim.table_id: UnknownServerError("busy") for claim in claims}
        return heartbeat(tiering, claims, retry=retry)

    monkeypatch.setattr(TieringClient, "heartbeat", answer)
    assert not keeper.beat()
    failing = False
    assert not keeper.beat()
    failing = True
    assert not keeper.beat()
    assert keeper.beat()
    assert keeper.summary() == "1 claims kept, 1 lost before their tier task"
    assert entry["table"] in caplog.text


def test_trouble_is_logged_once_and_ends_by_itself(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    [path] = shop.tables(1)
    [entry] = shop.acquire()
    keeper = shop.keeper()
    plan = Path(entry["plan_uri"].removeprefix("file://"))
    content = plan.read_text()
    plan.write_text("{")
    keeper.beat()
    keeper.beat()
    assert caplog.text.count("one of the run's plans cannot be read") == 1
    plan.write_text(content)
    shop.pass_by(TEN_MINUTES_MS, keeper)
    assert shop.failures(path) == [("Tiering", 0)]


def test_on_apache_fluss_other_tables_are_released_without_a_failure(tmp_path: Path) -> None:
    """There a heartbeat returns whichever table is next."""
    with status_shop(tmp_path / "data") as plain:
        mine = plain.create("mine")
        plain.clock.ms += MINUTE_MS
        work_uri = f"file://{tmp_path / 'work'}"
        connection = FlussConnection(plain.address, work_uri=work_uri)
        [entry] = acquire(plain.client, connection, JOB, ["*"], 10)
        other = plain.create("other")
        plain.clock.ms += MINUTE_MS
        keeper = ClaimKeeper(plain.another(), work_uri, JOB)
        assert not keeper.beat()
        plain.another().tiering._give_back(claim_of(entry), Reason.from_text("another client"))
        assert keeper.beat()
        assert keeper.claim_again() == 1
        again = claim_of(newest_claim(entry))
        assert plain.client.tiering.heartbeat([again]) == {again.table_id: None}
        assert again.tiering_epoch == claim_of(entry).tiering_epoch + 1
        assert [plain.status(path).failures for path in (mine, other)] == [0, 0]
        assert plain.status(mine).status == "Tiering"
        assert plain.client.tiering.claim([other]) is not None, "it waits for another run"
