"""Tables without new rows, which acquire_lease finishes itself. Without Airflow."""

from __future__ import annotations

import logging
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sluice import failpoints
from sluice.client import Client
from sluice.client.tiering.tiering import TieringClient
from sluice.config import ServerConfig
from sluice.errors import ConfigurationError, FencedTieringEpoch
from sluice.model import Claim, Reason, TableBucket, TablePath
from sluice.rounds.records.plan_file import claim_of, plan_uris
from sluice.rounds.round.round import run_round
from sluice.rounds.values.attempt import RoundPorts
from sluice.server.cluster import EmbeddedCluster
from sluice_airflow.acquire import acquire as acquiring
from sluice_airflow.acquire.acquire import acquire
from sluice_airflow.claims import leasing
from sluice_airflow.claims.claims import ClaimedTable
from sluice_airflow.config.connection import FlussConnection
from sluice_airflow.outcomes.settle import NOT_BEGUN, drop
from tests.airflow.place import LONG_MS
from tests.support.fluss.plain_fluss import plain_fluss
from tests.support.models.memory_lake import MemoryLake
from tests.support.programs.processes import environment
from tests.support.statuses.status_shop import MINUTE_MS, OwnClock, Shop

JOB = "sluice-job"


class Run(Shop):
    """A shop whose tables are tiered by runs of the DAG, without Airflow."""

    home: Path
    idle: list[Claim]
    refused: list[str]

    @property
    def work_uri(self) -> str:
        return (self.home / "work").as_uri()

    def acquire(
        self, *patterns: str, most: int = 100, client: Client | None = None
    ) -> list[ClaimedTable]:
        self.idle, self.refused = [], []
        return acquire(
            client or self.another(),
            FlussConnection(self.address, work_uri=self.work_uri),
            JOB,
            patterns or ("*",),
            most,
            on_refused=lambda claim, _reason: self.refused.append(claim.path.table),
            on_idle=self.idle.append,
        )

    def append(self, path: TablePath, rows: int) -> None:
        with self.client.log_writer(path) as writer:
            writer.write(pa.table({"id": pa.array(range(rows), pa.int64())}))

    def end(self, entry: ClaimedTable) -> None:
        """Registers the ends of the logs and reports the round."""
        claim, tiering = claim_of(entry), self.client.tiering
        ends = self.client.admin.list_offsets(claim.path)
        offsets = {TableBucket(claim.table_id, None, n): end for n, end in ends.items()}
        file = tiering.prepare_lake_snapshot(claim.table_id, claim.path, offsets)
        number = self.clock.ms + claim.table_id
        tiering.commit_lake_snapshot(claim, number, file, offsets, {}, -1)
        tiering.finished(claim)

    def tiered(self, *names: str) -> list[TablePath]:
        """Tables whose last round ended well, and which are due again."""
        paths = [self.create(name) for name in names]
        self.clock.ms += MINUTE_MS
        for entry in self.acquire():
            self.end(entry)
        self.clock.ms += MINUTE_MS
        return paths

    def idle_names(self) -> list[str]:
        return sorted(claim.path.table for claim in self.idle)


def names(entries: list[ClaimedTable]) -> list[str]:
    return sorted(entry["table"].removeprefix("shop.") for entry in entries)


@pytest.fixture(params=["embedded server", "like Apache Fluss"])
def run(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Run]:
    clock = OwnClock()
    with ExitStack() as closing:
        if request.param == "embedded server":
            config = ServerConfig(
                data_dir=str(tmp_path / "data"),
                listen="grpc://127.0.0.1:0",
                tiering_backoff_ms=0,
                tiering_timeout_ms=LONG_MS,
            )
            cluster = closing.enter_context(EmbeddedCluster(config, clock))
        else:
            cluster = closing.enter_context(plain_fluss(tmp_path / "data", clock))
        found = Run(cluster, clock, closing)
        found.home = tmp_path
        yield found


def test_an_idle_table_is_finished_without_a_plan(run: Run) -> None:
    _, busy, _ = run.tiered("a", "b", "c")
    run.append(busy, 7)
    [entry] = run.acquire()
    assert (entry["table"], entry["rows"]) == ("shop.b", 7)
    assert run.idle_names() == ["a", "c"]
    assert len(plan_uris(run.work_uri, JOB)) == 3 + 1, "those of the first rounds, and one"
    for claim in run.idle:
        status = run.status(claim.path)
        assert (status.status, status.last_tiered_ms) == ("Scheduled", run.clock.ms)
        assert (status.failures, status.lag_rows) == (0, 0)
        [last, *_] = run.client.statuses.history(claim.path)
        snapshot = run.client.admin.lake_snapshot(claim.path)
        assert snapshot is not None
        assert (last.outcome, last.lake_snapshot_id) == ("nothing_new", snapshot.snapshot_id)
    run.end(entry)
    assert drop(run.client, run.work_uri, JOB) == []


def test_what_is_reported_is_what_a_round_reports(run: Run) -> None:
    """Of two empty tables, one gets a second round, and one is found idle."""
    lake, path, other = MemoryLake(), run.create("a"), run.create("b")
    for tables in ((path, other), (other,)):
        run.clock.ms += MINUTE_MS
        with run.client.tiering.claim_session(tables, by=JOB) as session:
            claims = session.take(2)
        for claim in claims:
            result = run_round(claim, RoundPorts(run.client.tiering, lake, no_runner), "1")
            run.client.tiering.finished(claim, details=result.details(JOB))
    run.acquire("shop.a")
    assert run.idle_names() == ["a"]
    [mine, *_], [theirs, *_] = (run.client.statuses.history(each) for each in (path, other))
    assert (mine.outcome, mine.rows_written, mine.round_number) == ("nothing_new", 0, 2)
    differ = {name for name in mine.__slots__ if getattr(mine, name) != getattr(theirs, name)}
    assert differ <= {"table_id", "tiering_epoch", "recover_ms", "plan_ms"}
    theirs_now = run.status(other)
    same = {name: getattr(theirs_now, name) for name in ("path", "table_id", "tiering_epoch")}
    assert replace(run.status(path), **same) == theirs_now


def no_runner(info: Any, writers: Any) -> Any:
    raise AssertionError("there is nothing to copy")


def test_the_first_round_of_a_table_is_complete(run: Run) -> None:
    """It makes the lake table, which a reader expects though it is empty."""
    run.create("a")
    run.clock.ms += MINUTE_MS
    [entry] = run.acquire()
    assert entry["rows"] == 0
    assert run.idle == []


def test_idle_tables_do_not_count(run: Run) -> None:
    paths = run.tiered("a", "b", "c", "d", "e")
    for path in paths[3:]:
        run.append(path, 2)
    assert names(run.acquire(most=1)) in (["d"], ["e"])
    assert len(run.acquire(most=2)) == 2
    assert run.acquire(most=0) != [], "what an earlier try has claimed"


def test_a_claim_takes_its_rows_along(run: Run) -> None:
    [path] = run.tiered("a")
    run.append(path, 5)
    [entry] = run.acquire()
    run.append(path, 3)
    [again] = run.acquire()
    assert again == entry
    assert again["rows"] == 5


def test_a_table_that_cannot_be_read_is_tiered(
    run: Run, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    [path] = run.tiered("a")
    run.append(path, 5)
    monkeypatch.setattr("sluice.client.tiering.idle.PATIENCE_S", -1.0)
    [entry] = run.acquire()
    assert "rows" not in entry
    assert run.idle == []
    assert run.client.tiering.heartbeat([claim_of(entry)])[entry["table_id"]] is None


def test_no_lease_is_asked_for_where_no_round_could_use_one(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log table has no KV snapshots."""
    asked = []
    lease_snapshots = leasing.lease_snapshots

    def noted(client: Client, lease_id: str, claim: Claim) -> Any:
        asked.append(claim.path.table)
        return lease_snapshots(client, lease_id, claim)

    monkeypatch.setattr(leasing, "lease_snapshots", noted)
    [path] = run.tiered("a")
    run.append(path, 1)
    assert len(run.acquire()) == 1
    assert asked == []


def test_more_tables_than_one_batch(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acquiring, "TOGETHER_MAX", 3)
    monkeypatch.setattr("sluice_airflow.acquire.idle.REPORTED_MAX", 2)
    paths = run.tiered(*(f"t{number}" for number in range(8)))
    run.append(paths[6], 1)
    assert names(run.acquire()) == ["t6"]
    assert run.idle_names() == ["t0", "t1", "t2", "t3", "t4", "t5", "t7"]
    assert run.acquire() != []
    assert run.idle == [], "none of them is due again"


def test_a_claim_that_is_lost_before_the_report_is_not_idle(
    run: Run, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path, other = run.tiered("a", "b")
    finished_many = TieringClient.finished_many

    def late(tiering: TieringClient, ends: Any) -> Any:
        [lost] = [claim for claim, _ in ends if claim.path == path]
        tiering._give_back(lost, Reason.from_text("as after two minutes without a heartbeat"))
        with tiering.claim_session([path]) as session:
            assert session.next() is not None
        found = finished_many(tiering, ends)
        assert isinstance(found[lost], FencedTieringEpoch)
        return found

    monkeypatch.setattr(TieringClient, "finished_many", late)
    with caplog.at_level(logging.WARNING):
        run.acquire()
    assert run.idle_names() == ["b"]
    assert "shop.a: the claim was lost" in caplog.text
    assert run.status(path).status == "Tiering"
    assert run.status(other).status == "Scheduled"


def test_what_was_claimed_with_a_table_whose_plan_cannot_be_written_goes_back(run: Run) -> None:
    paths = run.tiered("a", "b", "c", "d")
    for path in paths[1:]:
        run.append(path, 1)
    work = run.home / "work"
    work.rename(run.home / "gone")
    work.write_text("in the way")
    with pytest.raises(ConfigurationError, match="cannot write the plan"):
        run.acquire()
    assert run.idle_names() == ["a"], "its report needs no folder"
    work.unlink()
    assert run.client.tiering.claims_of(JOB) == []


ACQUIRE = """
import sys
from sluice.client import connect
from sluice_airflow.acquire.acquire import acquire
from sluice_airflow.config.connection import FlussConnection
address, work, job = sys.argv[1:]
with connect(address) as client:
    client._clock = type("Clock", (), {"now_ms": lambda _: 1_790_000_000_000})()
    acquire(client, FlussConnection(address, work_uri=work), job, ["*"], 10)
"""


@pytest.mark.parametrize("end", ["retried", "dropped"])
@pytest.mark.parametrize("run", ["embedded server"], indirect=True)
def test_a_kill_before_the_report_is_no_failure(run: Run, end: str) -> None:
    [path] = run.tiered("a")
    done = subprocess.run(
        [sys.executable, "-c", ACQUIRE, run.address, run.work_uri, JOB],
        env=environment({failpoints.ENVIRONMENT_KEY: "airflow.acquire.before_idle=kill"}),
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr[-2000:]
    assert run.status(path).status == "Tiering"
    before = run.status(path).rounds
    if end == "dropped":
        [verdict] = drop(run.client, run.work_uri, JOB)
        assert (verdict.reported, verdict.reason) == ("released", NOT_BEGUN)
        assert run.status(path).status == "Pending"
    run.acquire()
    assert run.idle_names() == ["a"]
    status = run.status(path)
    assert (status.status, status.failures, status.rounds) == ("Scheduled", 0, (before or 0) + 1)
