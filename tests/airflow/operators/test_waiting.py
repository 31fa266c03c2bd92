"""Heartbeats for tables whose tier task waits, on a server whose clock the test owns."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sluice.client import Heartbeats, connect
from sluice.config import ServerConfig
from sluice.rounds.records.plan_file import claim_of
from sluice.server.cluster import EmbeddedCluster
from sluice_airflow.acquire.acquire import acquire
from sluice_airflow.config.connection import FlussConnection
from sluice_airflow.tier.waiting import WaitingClaims
from tests.airflow.place import AirflowProcess, Place, wait_until


class OwnedClock:
    """Wall time that the test owns."""

    def __init__(self) -> None:
        self.ms = 1_000_000

    def now_ms(self) -> int:
        return self.ms

    def monotonic_s(self) -> float:
        return time.monotonic() + self.ms / 1000

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


@pytest.fixture
def clock() -> OwnedClock:
    return OwnedClock()


@pytest.fixture
def place(clock: OwnedClock, tmp_path: Path) -> Iterator[Place]:
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
        yield Place(none, client, cluster.address, tmp_path / "work")


def test_a_claim_is_kept_while_its_task_waits_and_no_longer(
    place: Place, clock: OwnedClock
) -> None:
    paths = [place.table(name) for name in ("a", "b", "c")]
    clock.ms += 2_000
    place.wait(*paths)
    connection = FlussConnection(place.address, work_uri=f"file://{place.work}")
    a, b, c = paths
    claims = {e["table"]: claim_of(e) for e in acquire(place.client, connection, "job", ["*"], 3)}
    states: dict[int, str | None] = {0: "running", 2: "queued"}  # 1 was not scheduled yet
    heartbeats = Heartbeats(place.client.tiering, interval_s=3600)
    waiting = WaitingClaims(
        heartbeats, {1: [claims[str(b)]], 2: [claims[str(c)]]}, lambda: states, 3600
    )

    clock.ms += 100_000
    waiting.update()
    clock.ms += 50_000
    place.wait(a)
    assert [place.status(p).status for p in (b, c)] == ["Tiering", "Tiering"]

    states[1] = "running"  # from here on b's own task has to beat
    waiting.update()
    clock.ms += 60_000
    heartbeats.beat()
    clock.ms += 20_000
    place.wait(b)
    assert place.status(c).status == "Tiering"

    states[2] = "up_for_retry"
    waiting.update()
    heartbeats.beat()
    states[2] = "failed"
    waiting.update()
    clock.ms += 121_000
    place.wait(c)


def test_states_that_cannot_be_read_change_nothing(place: Place, clock: OwnedClock) -> None:
    path = place.table("a")
    clock.ms += 2_000
    place.wait(path)
    connection = FlussConnection(place.address, work_uri=f"file://{place.work}")
    [entry] = acquire(place.client, connection, "job", ["*"], 1)
    looks: list[str] = []

    def states() -> dict[int, str | None]:
        looks.append("begun")
        if len(looks) > 1:
            raise ConnectionError("the API server is away")
        return {}

    heartbeats = Heartbeats(place.client.tiering, interval_s=3600)
    with WaitingClaims(heartbeats, {1: [claim_of(entry)]}, states, 0.01):
        wait_until(lambda: len(looks) > 1, 60, "the first look to be over")
        clock.ms += 100_000
        heartbeats.beat()
        clock.ms += 100_000
        heartbeats.beat()
    assert place.status(path).status == "Tiering"
