"""The keeper of claims: when a claim counts as lost, and when it does not."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from sluice.client import connect
from sluice.client.tiering.heartbeats import Heartbeats, beat_interval_s
from sluice.config import ClientConfig, ServerConfig
from sluice.errors import (
    ClaimLost,
    FencedTieringEpoch,
    FlussError,
    InvalidCoordinator,
    NetworkError,
    TableNotExist,
    UnknownServerError,
)
from sluice.model import Claim, Column, Schema, TableDescriptor, TablePath
from sluice.model.types import BIGINT
from sluice.server.cluster import EmbeddedCluster
from sluice.setting_limits import CLAIM_TIMEOUT_MIN_MS
from tests.support.harness.findings import finding

ORDERS = Claim(1, TablePath("shop", "orders"), 5, 1)
ITEMS = Claim(2, TablePath("shop", "items"), 7, 1)


class Coordinator:
    """Answers heartbeats as the test says."""

    def __init__(self) -> None:
        self.beats: list[list[Claim]] = []
        self.answers: dict[int, FlussError | None] = {}
        self.down: FlussError | None = None
        self.beaten = threading.Event()
        self.claim_timeout_s: float | None = None
        self.while_it_answers: Callable[[], None] = lambda: None

    def heartbeat(
        self, claims: Iterable[Claim], *, retry: bool = True
    ) -> dict[int, FlussError | None]:
        assert not retry, "a beat is not repeated but followed by the next"
        self.while_it_answers()
        self.beats.append(list(claims))
        self.beaten.set()
        if self.down is not None:
            raise self.down
        return {claim.table_id: self.answers.get(claim.table_id) for claim in self.beats[-1]}


class Keeper:
    """A Heartbeats with a coordinator and a clock of the test's own."""

    def __init__(self) -> None:
        self.coordinator = Coordinator()
        self.now_s = 1000.0
        self.lost: list[Claim] = []
        self.heartbeats = Heartbeats(
            self.coordinator,
            on_lost=lambda claim, error: self.lost.append(claim),
            now=lambda: self.now_s,
        )

    def beat_after(self, seconds: float) -> None:
        self.now_s += seconds
        self.heartbeats.beat()


@pytest.fixture
def keeper() -> Keeper:
    return Keeper()


def test_all_claims_go_in_one_message(keeper: Keeper) -> None:
    keeper.heartbeats.beat()
    keeper.heartbeats.add(ORDERS)
    keeper.heartbeats.add(ITEMS)
    keeper.heartbeats.beat()
    keeper.heartbeats.remove(ORDERS)
    keeper.heartbeats.beat()
    assert keeper.coordinator.beats == [[ORDERS, ITEMS], [ITEMS]]


@pytest.mark.parametrize("cls", [FencedTieringEpoch, InvalidCoordinator, TableNotExist])
def test_a_claim_is_lost_at_once_when_the_coordinator_says_so(
    keeper: Keeper, cls: type[FlussError]
) -> None:
    keeper.heartbeats.add(ORDERS)
    keeper.heartbeats.add(ITEMS)
    keeper.coordinator.answers = {1: cls("epoch 5 is not 6")}
    keeper.heartbeats.beat()
    assert keeper.lost == [ORDERS]
    with pytest.raises(ClaimLost, match=r"shop\.orders.*tiering epoch 5.*epoch 5 is not 6"):
        keeper.heartbeats.check(ORDERS)
    keeper.heartbeats.check(ITEMS)
    keeper.heartbeats.beat()
    assert keeper.coordinator.beats[-1] == [ITEMS]
    assert keeper.lost == [ORDERS]


def test_a_beat_that_fails_is_only_repeated_until_the_liveness_time_out(keeper: Keeper) -> None:
    keeper.heartbeats.add(ORDERS)
    keeper.coordinator.down = NetworkError("down")
    for _ in range(5):
        keeper.beat_after(20)
    keeper.heartbeats.check(ORDERS)
    assert keeper.lost == []
    keeper.beat_after(20)
    with pytest.raises(ClaimLost, match="no heartbeat succeeded for 120 s: down"):
        keeper.heartbeats.check(ORDERS)
    assert keeper.lost == [ORDERS]


def test_a_claim_is_lost_after_the_time_that_the_coordinator_says(keeper: Keeper) -> None:
    keeper.coordinator.claim_timeout_s = 5.0
    keeper.heartbeats.add(ORDERS)
    keeper.coordinator.down = NetworkError("down")
    keeper.beat_after(4.9)
    keeper.heartbeats.check(ORDERS)
    keeper.beat_after(0.1)
    with pytest.raises(ClaimLost, match="no heartbeat succeeded for 5 s: down"):
        keeper.heartbeats.check(ORDERS)


def test_the_coordinator_may_need_more_heartbeats_than_requested() -> None:
    assert beat_interval_s(20, None) == 20, "nobody knows yet"
    assert beat_interval_s(20, 120) == 20
    assert beat_interval_s(60, 6) == 2


def test_the_interval_is_learned_from_the_first_answer() -> None:
    """A claim that another process made: nobody has asked the coordinator before."""
    coordinator = Coordinator()
    with Heartbeats(coordinator, interval_s=3600) as heartbeats:
        heartbeats.add(ORDERS)
        assert coordinator.beaten.wait(60), "at once, not after an hour"
        coordinator.claim_timeout_s = 0.05
        heartbeats.add(ITEMS)  # wakes the thread
        while len(coordinator.beats) < 3:
            coordinator.beaten.clear()
            assert coordinator.beaten.wait(60)


def test_a_claim_lasts_from_the_sending_of_its_heartbeat_on(keeper: Keeper) -> None:
    """The coordinator counts from when it receives the request, and may answer much later."""

    def slowly() -> None:
        keeper.now_s += 30

    keeper.heartbeats.add(ORDERS)
    keeper.coordinator.while_it_answers = slowly
    keeper.beat_after(60)
    keeper.coordinator.while_it_answers = lambda: None
    keeper.coordinator.down = NetworkError("down")
    keeper.beat_after(89.9)
    keeper.heartbeats.check(ORDERS)
    keeper.beat_after(0.2)
    with pytest.raises(ClaimLost, match="no heartbeat succeeded for 120 s: down"):
        keeper.heartbeats.check(ORDERS)


def test_a_beat_that_gets_through_starts_the_time_out_afresh(keeper: Keeper) -> None:
    keeper.heartbeats.add(ORDERS)
    for down in [NetworkError("down")] * 5 + [None] + [NetworkError("down")] * 5:
        keeper.coordinator.down = down
        keeper.beat_after(20)
    keeper.heartbeats.check(ORDERS)


def test_an_error_of_the_cluster_itself_is_no_loss_of_the_claim(keeper: Keeper) -> None:
    keeper.heartbeats.add(ORDERS)
    keeper.coordinator.answers = {1: UnknownServerError("database is locked")}
    keeper.beat_after(20)
    keeper.coordinator.down = TableNotExist("of the whole call: says nothing about the claim")
    keeper.beat_after(20)
    keeper.heartbeats.check(ORDERS)


def test_two_rounds_of_one_table_are_told_apart(keeper: Keeper) -> None:
    older = Claim(1, ORDERS.path, 4, 1)
    keeper.heartbeats.add(older)
    keeper.heartbeats.add(ORDERS)
    keeper.heartbeats.beat()
    assert keeper.coordinator.beats == [[older], [ORDERS]]


def test_the_thread_beats_until_it_is_stopped_and_wakes_who_waits() -> None:
    coordinator = Coordinator()
    coordinator.answers = {1: FencedTieringEpoch("gone")}
    with Heartbeats(coordinator, interval_s=0.01) as heartbeats:
        heartbeats.add(ORDERS)
        assert heartbeats.wait_lost(ORDERS, 60)
        thread = heartbeats._thread
        assert thread is not None
        assert (thread.name, thread.is_alive()) == ("sluice-heartbeats", True)
    with finding():
        assert not thread.is_alive()


def test_stopping_does_not_wait_for_the_next_beat() -> None:
    heartbeats = Heartbeats(Coordinator(), interval_s=3600)
    heartbeats.start()
    thread = heartbeats._thread
    assert thread is not None
    heartbeats.stop(60)
    with finding():
        assert not thread.is_alive()


def test_a_broken_callback_does_not_cost_the_other_claims() -> None:
    coordinator = Coordinator()
    coordinator.answers = {1: FencedTieringEpoch("gone")}

    def broken(claim: Claim, error: ClaimLost) -> None:
        raise ZeroDivisionError

    with Heartbeats(coordinator, interval_s=0.01, on_lost=broken) as heartbeats:
        heartbeats.add(ORDERS)
        heartbeats.add(ITEMS)
        assert heartbeats.wait_lost(ORDERS, 60)
        while coordinator.beats[-1] != [ITEMS]:
            coordinator.beaten.clear()
            assert coordinator.beaten.wait(60)


def test_a_worker_lives_at_a_server_with_a_short_timeout(tmp_path: Path) -> None:
    """It asks for a heartbeat every 20 seconds, and the server waits for three."""
    config = ServerConfig(
        data_dir=str(tmp_path / "data"),
        listen="grpc://127.0.0.1:0",
        tiering_timeout_ms=CLAIM_TIMEOUT_MIN_MS,
        tiering_check_interval_ms=20,
    )
    columns = Schema((Column("id", BIGINT, 0),), highest_field_id=0)
    with EmbeddedCluster(config) as cluster, connect(ClientConfig(cluster.address)) as client:
        client.admin.create_database("shop")
        lake = {"table.datalake.enabled": "true"}
        client.admin.create_table(ORDERS.path, TableDescriptor(columns, properties=lake))
        claim = client.tiering.claim()
        assert claim is not None
        with Heartbeats(client.tiering) as heartbeats:
            heartbeats.add(claim)
            assert not heartbeats.wait_lost(claim, CLAIM_TIMEOUT_MIN_MS / 1000 + 0.5)
        assert client.tiering.still_claimed(claim)
