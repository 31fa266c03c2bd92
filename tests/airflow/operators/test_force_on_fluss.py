"""What a run is told, forces and takes again on Apache Fluss, which reports no statuses.

Each test runs on the embedded server with no more than Fluss has, and on a real Fluss.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sluice.client import Client, connect
from sluice.client.connection.heartbeat_entries import entry_of
from sluice.client.tiering.heartbeats import Heartbeats
from sluice.clock import SystemClock
from sluice.config import ClientConfig
from sluice.errors import ClaimLost
from sluice.formats.types.types import schema_from_arrow
from sluice.model import Claim, Reason, TableDescriptor, TablePath
from sluice.wire import fluss_api_pb2 as pb
from sluice_airflow.acquire.requests import ESTIMATE, Acquired, Request, acquire_request
from sluice_airflow.claims.packs import PackLimits
from sluice_airflow.config.connection import FlussConnection
from sluice_airflow.outcomes.account import HELD, NOT_DUE, PAUSED, WOULD_TIER
from sluice_airflow.tier.next_rounds import NextRounds
from sluice_airflow.tier.tried_table import TriedTable
from tests.real_fluss.place import PATIENCE_MS, make_status_tables
from tests.support.fluss.plain_fluss import plain_fluss
from tests.support.fluss.table_creation import create_table

LIMITS = PackLimits(100, 5_000_000)
ROWS = pa.table({"id": pa.array(range(3), pa.int64())})
DAY = {"table.datalake.enabled": "true", "table.datalake.freshness": "1d"}
"""Longer than any test: whatever is assigned was made due."""


@dataclass
class Place:
    """A database of a cluster that reports no statuses, and two clients of it."""

    client: Client
    other: Client
    database: str
    connection: FlussConnection
    warehouse: Path | None

    @property
    def job(self) -> str:
        return f"sluice-{self.database}"

    def table(self, name: str) -> TablePath:
        path = TablePath(self.database, name)
        descriptor = TableDescriptor(schema_from_arrow(ROWS.schema), bucket_count=1, properties=DAY)
        create_table(self.client, path, descriptor, self.warehouse)
        with self.client.log_writer(path) as writer:
            writer.write(ROWS)
        return path

    def scheduled(self, name: str) -> TablePath:
        """A table that was tiered once."""
        path = self.table(name)
        self.client.statuses.request_round(path)
        claim = self.other.tiering.claim([path], by="an earlier run")
        assert claim is not None
        self.other.tiering.finished(claim)
        return path

    def held(self, name: str) -> Claim:
        """A claim of another run of Sluice."""
        path = self.table(name)
        self.other.statuses.request_round(path)
        claim = self.other.tiering.claim([path], by="host:7")
        assert claim is not None
        return claim

    def unwritten(self, path: TablePath) -> Claim:
        """A claim of which no status says anything, as Fluss's own tiering service has it."""
        others: list[Claim] = []
        while (claim := self.other.tiering._next_claim(())) is not None and claim.path != path:
            others.append(claim)
        for each in others:
            self.other.tiering._give_back(each, Reason.from_text("only looked"))
        assert claim is not None
        return claim

    def ask(self, *patterns: str, **request: bool) -> Acquired:
        names = [f"{self.database}.{pattern}" for pattern in patterns or ("*",)]
        asked = Request(names, 100, **request)
        return acquire_request(self.client, self.connection, self.job, asked, LIMITS, 4, 20.0, 0)

    def beats(self, claim: Claim) -> bool:
        return self.other.tiering.beat([claim]) == {claim.table_id: None}


@pytest.fixture(
    params=[
        "plain",
        pytest.param("real", marks=[pytest.mark.real_fluss, pytest.mark.slow]),
    ]
)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    with ExitStack() as stack:
        warehouse: Path | None = None
        if request.param == "real":
            fluss: Any = request.getfixturevalue("real_fluss")
            address, warehouse = fluss.bootstrap, fluss.warehouse
        else:
            clock = SystemClock()
            address = stack.enter_context(plain_fluss(tmp_path / "data", clock)).address
        config = ClientConfig(address, tiering_status_timeout_ms=PATIENCE_MS)
        client, other = (stack.enter_context(connect(config)) for _ in range(2))
        make_status_tables(client)
        database = f"force_{uuid.uuid4().hex[:8]}"
        client.admin.create_database(database)
        there = FlussConnection(address, work_uri=(tmp_path / "work").as_uri())
        yield Place(client, other, database, there, warehouse)
        client.admin.drop_database(database, cascade=True)


def told(found: Acquired) -> dict[str, tuple[str, str]]:
    """What became of each table, and why, by its name."""
    return {one["table"].rpartition(".")[2]: (one["became"], one["text"]) for one in found.account}


def tables(found: Acquired) -> dict[str, int]:
    """The claimed tables with their tiering epochs."""
    return {
        table["table"].rpartition(".")[2]: table["tiering_epoch"]
        for pack in found.packs
        for table in pack["tables"]
    }


def test_force_makes_tables_due_and_ends_no_claim(place: Place) -> None:
    place.table("never")
    place.scheduled("later")
    place.client.statuses.pause(place.scheduled("paused"))
    held = place.held("held")
    unknown = place.scheduled("unknown")
    place.client.statuses.request_round(unknown)
    stranger = place.unwritten(unknown)

    dry = told(place.ask(dry_run=True, force=True))
    would = f"3 rows in 1 bucket, application 1 of 1{ESTIMATE}"
    assert dry["never"] == dry["later"] == (WOULD_TIER, would)
    assert dry["held"] == (HELD, "host:7 tiers it (tiering epoch 1)")
    assert dry["paused"][0] == PAUSED
    assert told(place.ask("later", dry_run=True))["later"][1].endswith(ESTIMATE)
    not_known = told(place.ask("never", dry_run=True))["never"]
    assert not_known[0] == NOT_DUE
    assert "no round of Sluice is recorded" in not_known[1]
    assert place.client.tiering.claims_of(place.job) == []

    found = place.ask(force=True)
    assert tables(found) == {"never": 1, "later": 2}
    account = told(found)
    assert account["held"] == (HELD, "host:7 tiers it (tiering epoch 1)")
    worker = "a worker that records no status in this cluster"
    assert account["unknown"] == (HELD, f"{worker} tiers it (tiering epoch 2)")
    assert account["paused"][0] == PAUSED
    assert place.beats(held)
    assert place.beats(stranger)


def test_a_table_that_another_worker_claims_first_is_held(place: Place) -> None:
    """It was made due, and Fluss gives it to whoever asks first."""
    path = place.scheduled("a")
    claims: list[Claim] = []
    real = place.client.statuses.request_round

    def and_then_somebody(wanted: TablePath) -> None:
        real(wanted)
        claims.append(place.unwritten(wanted))

    place.client.statuses.request_round = and_then_somebody  # type: ignore[method-assign,assignment]
    found = place.ask("a", is_manual=True)
    why = "it was made due, but not assigned to this run; another worker may have it"
    assert (tables(found), told(found)) == ({}, {"a": (HELD, why)})
    assert found.wanted == [str(path)], "so the run fails"
    assert place.beats(claims[0])


def test_a_lost_claim_is_taken_again(place: Place) -> None:
    """A stranger has ended the round, so the table is Scheduled, and the status is out of date."""
    place.scheduled("a")
    [pack] = place.ask("a", is_manual=True).packs
    table = TriedTable(pack["tables"][0], "1")
    lost = table.claim
    place.other.tiering._report(
        pb.LakeTieringHeartbeatRequest(finished_tables=[entry_of(lost)]),
        [lost],
        lambda reply: reply.finished_table_resp,
    )
    table.fail_with(ClaimLost("the coordinator reports a lost claim"))
    with Heartbeats(place.client.tiering) as heartbeats:
        rounds = NextRounds(place.client, place.connection, place.job, heartbeats)
        assert rounds.begin([table], "1-0") == [table]
    assert table.claim.tiering_epoch == lost.tiering_epoch + 1
    assert place.beats(table.claim)


@pytest.mark.slow
def test_a_claim_of_a_stranger_is_not_taken(place: Place) -> None:
    path = place.scheduled("a")
    [pack] = place.ask("a", is_manual=True).packs
    table = TriedTable(pack["tables"][0], "1")
    place.other.tiering._give_back(table.claim, Reason.from_text("another client"))
    stranger = place.unwritten(path)
    table.fail_with(ClaimLost("the coordinator reports a lost claim"))
    with Heartbeats(place.client.tiering) as heartbeats:
        rounds = NextRounds(place.client, place.connection, place.job, heartbeats, due_s=1.5)
        assert rounds.begin([table], "1-0") == []
    assert place.beats(stranger)
    assert table.xcom()["notes"][0] == (
        "not claimed again: held: a worker that records no status in this cluster tiers it"
        f" (tiering epoch {stranger.tiering_epoch})"
    )
