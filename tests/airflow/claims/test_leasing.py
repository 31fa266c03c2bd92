"""The lease of a run: acquire, settle and drop against a real server, without Airflow."""

from __future__ import annotations

import json
import logging
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sluice.client import Client, connect
from sluice.client.leases.calls import AcquiredSnapshots, BucketSelection, LeaseClient
from sluice.config import ClientConfig, ServerConfig
from sluice.errors import LeaseLost, LeaseNotObtained
from sluice.model import BucketSnapshot, TableBucket, TablePath
from sluice.rounds.records.dropped_leases import dropped_plans, note_drop, stored_versions
from sluice.rounds.records.json_files import VERSION, read_json, write_json
from sluice.rounds.records.plan_file import LEASED_VERSION, PlanFile, claim_of
from sluice.rounds.records.result import RoundResult, result_uri
from sluice.server.cluster import EmbeddedCluster
from sluice.server.coordinator.calls.lease_calls import LeaseService
from sluice_airflow.acquire.acquire import acquire
from sluice_airflow.claims import leasing
from sluice_airflow.claims.claims import ClaimedTable
from sluice_airflow.config.connection import FlussConnection
from sluice_airflow.outcomes.settle import drop, settle, settle_pack
from tests.airflow.place import LONG_MS, AirflowProcess, Place
from tests.support.programs.processes import environment
from tests.unit.server.kv_support import KEYED, KvCaller
from tests.unit.server.support import Caller

JOB = "sluice-job"
OPTIONS = {"table.datalake.enabled": "true", "table.datalake.freshness": "50 ms"}


class Run(Place):
    """A place without Airflow, whose server deletes all but the newest snapshot."""

    def __init__(self, cluster: EmbeddedCluster, client: Client, work: Path) -> None:
        none: AirflowProcess = None  # type: ignore[assignment]
        super().__init__(none, client, cluster.address, work)
        self.cluster = cluster
        self.caller = Caller(cluster.address)
        self.refused: list[str] = []
        client.admin.create_database("shop")

    def keyed(self, name: str) -> KvCaller:
        """A lake table with a primary key, two buckets, a snapshot of each."""
        path = TablePath("shop", name)
        kv = KvCaller(self.caller, path, schema=KEYED, bucket_count=2, properties=OPTIONS)
        self.snapshot(kv)
        return kv

    def snapshot(self, kv: KvCaller) -> None:
        for bucket in (0, 1):
            kv.put((1, "text", 1), bucket=bucket)
        self.cluster.take_kv_snapshots(kv.path)

    def acquire(self, *tables: str, most: int = 10) -> list[ClaimedTable]:
        connection = FlussConnection(self.address, work_uri=f"file://{self.work}")
        return acquire(
            self.client, connection, JOB, tables or ("*",), most,
            on_refused=lambda claim, reason: self.refused.append(f"{claim.path}: {reason}"),
        )  # fmt: skip

    def plan(self, entry: ClaimedTable) -> PlanFile:
        return PlanFile.from_json(read_json(entry["plan_uri"]) or {})

    def held(self) -> dict[str, int]:
        return {lease.lease_id: lease.buckets for lease in self.client.leases.all()}

    def finish(self, entry: ClaimedTable) -> None:
        claim = claim_of(entry)
        result = RoundResult(
            entry["table"],
            claim.table_id,
            claim.tiering_epoch,
            claim.coordinator_epoch,
            "committed",
        )
        uri = result_uri(entry["plan_uri"], "1")
        write_json(uri, result.to_json())
        assert settle(self.client, entry, {"result_uri": uri}, None).reported == "finished"


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    config = ServerConfig(
        data_dir=str(tmp_path / "data"),
        listen="grpc://127.0.0.1:0",
        tiering_timeout_ms=LONG_MS,
        kv_snapshot_interval_ms=0,
        kv_snapshot_num_retained=1,
    )
    with EmbeddedCluster(config) as cluster, connect(cluster.address) as client:
        made = Run(cluster, client, tmp_path / "work")
        yield made
        made.caller.transport.close()


def test_snapshots_are_held_from_acquire_to_settle_and_the_rest_to_drop(run: Run) -> None:
    kv, other = run.keyed("a"), run.keyed("b")
    log = run.table("log", freshness="50 ms")
    run.wait(kv.path, other.path, log)
    entries = {entry["table"]: entry for entry in run.acquire()}
    assert entries["shop.a"].get("snapshots") == 2
    assert "snapshots" not in entries["shop.log"]
    assert run.held() == {JOB: 4}
    plan = run.plan(entries["shop.a"])
    assert set(plan.snapshots) == {
        BucketSnapshot(TableBucket(kv.table_id, None, n), 0, 1) for n in (0, 1)
    }
    run.finish(entries["shop.log"])
    assert run.held() == {JOB: 4}
    run.finish(entries["shop.a"])
    assert run.held() == {JOB: 2}
    run.finish(entries["shop.a"])  # a repeated settle
    drop(run.client, f"file://{run.work}", JOB)
    assert run.held() == {}


def test_plans_of_log_tables_are_as_before(run: Run) -> None:
    kv, log = run.keyed("a"), run.table("log", freshness="50 ms")
    run.wait(kv.path, log)
    versions = {e["table"]: (read_json(e["plan_uri"]) or {})["version"] for e in run.acquire()}
    assert versions == {"shop.a": LEASED_VERSION, "shop.log": VERSION}


def test_buckets_that_were_tiered_need_no_snapshot(run: Run) -> None:
    kv = run.keyed("a")
    run.wait(kv.path)
    [entry] = run.acquire()
    claim, tiering = claim_of(entry), run.client.tiering
    offsets = {TableBucket(kv.table_id, None, 0): 1}
    path = tiering.prepare_lake_snapshot(claim.table_id, claim.path, offsets)
    tiering.commit_lake_snapshot(claim, 4711, path, offsets, {}, -1)
    found = leasing.lease_snapshots(run.client, "another", claim)
    assert [snapshot.bucket.bucket for snapshot in found] == [1]


def test_a_retried_acquire_finds_its_own_lease(run: Run) -> None:
    kv = run.keyed("a")
    run.wait(kv.path)
    first = run.acquire()
    before = run.plan(first[0])
    for _ in range(3):
        run.snapshot(kv)
    assert run.acquire() == first
    assert run.plan(first[0]) == before, "the snapshots of the first try are still held"
    assert run.held() == {JOB: 2}


def test_a_retried_acquire_whose_lease_is_gone_leases_anew(run: Run) -> None:
    kv = run.keyed("a")
    run.wait(kv.path)
    [entry] = run.acquire()
    run.client.leases.drop(JOB)
    run.snapshot(kv)
    [again] = run.acquire()
    assert again == entry
    assert {s.snapshot_id for s in run.plan(again).snapshots} == {1}
    assert run.held() == {JOB: 2}


def test_a_retried_acquire_that_leases_the_same_again_forgets_the_drop(run: Run) -> None:
    work, kv = f"file://{run.work}", run.keyed("a")
    run.wait(kv.path)
    [entry] = run.acquire()
    note_drop(work, JOB, stored_versions(work, JOB))
    run.client.leases.drop(JOB)
    assert [*dropped_plans(work, JOB)] == [Path(entry["plan_uri"]).parent.name]
    assert run.acquire() == [entry]
    assert run.held() == {JOB: 2}
    assert dropped_plans(work, JOB) == {}


def test_a_table_that_cannot_be_leased_fails_alone(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    kv, other = run.keyed("a"), run.keyed("b")
    run.wait(kv.path, other.path)
    acquire_latest = LeaseClient.acquire_latest

    def hasty(
        self: LeaseClient, lease_id: str, parts: list[BucketSelection], duration_ms: int = 1
    ) -> AcquiredSnapshots:
        if parts[0].info.path == kv.path:
            raise LeaseNotObtained("lease x: the snapshots of 2 buckets could not be leased")
        return acquire_latest(self, lease_id, parts)

    monkeypatch.setattr(LeaseClient, "acquire_latest", hasty)
    assert [entry["table"] for entry in run.acquire()] == ["shop.b"]
    said = "LeaseNotObtained: lease x: the snapshots of 2 buckets could not be leased"
    assert run.refused == [f"shop.a: {said}"]
    assert run.status(kv.path).last_error == said
    assert run.held() == {JOB: 2}


def test_an_older_run_has_plans_and_entries_without_a_lease(run: Run) -> None:
    log = run.table("log", freshness="50 ms")
    run.wait(log)
    [entry] = run.acquire()
    content = read_json(entry["plan_uri"]) or {}
    del content["lease_id"]
    write_json(entry["plan_uri"], content)
    [again] = run.acquire()
    assert again == entry
    del entry["lease_id"]  # type: ignore[misc]
    run.finish(entry)
    assert drop(run.client, f"file://{run.work}", JOB) == []


def test_a_lease_that_ended_before_the_driver_began(run: Run) -> None:
    kv = run.keyed("a")
    run.wait(kv.path)
    [entry] = run.acquire()
    lost: list[LeaseLost] = []
    with leasing.keep_lease(run.client, [entry], lost.append):
        assert lost == []
    run.client.leases.drop(JOB)
    with leasing.keep_lease(run.client, [entry], lost.append):  # its log tables continue
        [error] = lost
        assert "Clear the task acquire_lease" in str(error)


def test_the_lease_is_dropped_whatever_else_fails(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    kv = run.keyed("a")
    run.wait(kv.path)
    entries = run.acquire()
    run.work.rename(run.work.with_name("gone"))
    drop(run.client, f"file://{run.work}", JOB, entries)
    assert run.held() == {}
    with caplog.at_level(logging.WARNING):
        leasing.release_snapshots(run.client, entries[0])
    assert "its snapshots stay leased until the run ends" in caplog.text


ACQUIRE = """
import sys
from sluice.client import connect
from sluice_airflow.acquire.acquire import acquire
from sluice_airflow.config.connection import FlussConnection
address, work, job = sys.argv[1:]
with connect(address) as client:
    acquire(client, FlussConnection(address, work_uri=work), job, ["*"], 10)
"""
SETTLE = """
import json, sys
from sluice.client import connect
from sluice_airflow.outcomes.settle import settle
address, entry = sys.argv[1:]
with connect(address) as client:
    settle(client, json.loads(entry), None, {"kind": "Broken", "reason": "it is"})
"""


def killed(code: str, failpoint: str, *arguments: str) -> None:
    """Runs a task's function in a process of its own, which a failpoint kills."""
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env=environment({"SLUICE_FAILPOINTS": f"{failpoint}=kill"}),
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr[-2000:]


STEPS = ("after_claim", "after_lease", "after_plan")


@pytest.mark.parametrize("step", STEPS)
def test_a_killed_acquire_leaves_its_claim_to_the_end_of_the_run(run: Run, step: str) -> None:
    kv = run.keyed("a")
    run.wait(kv.path)
    killed(ACQUIRE, f"airflow.acquire.{step}", run.address, f"file://{run.work}", JOB)
    assert run.held() == ({} if step == "after_claim" else {JOB: 2})
    assert run.status(kv.path).status == "Tiering"
    [verdict] = drop(run.client, f"file://{run.work}", JOB)
    assert verdict.reported == "released"
    assert run.held() == {}
    status = run.status(kv.path)
    assert (status.status, status.failures, status.rounds) == ("Pending", 0, 0)


@pytest.mark.parametrize("step", STEPS)
def test_a_killed_acquire_that_is_retried_has_its_claim(run: Run, step: str) -> None:
    kv = run.keyed("a")
    run.wait(kv.path)
    killed(ACQUIRE, f"airflow.acquire.{step}", run.address, f"file://{run.work}", JOB)
    [entry] = run.acquire()
    assert entry["table"] == "shop.a"
    assert run.held() == {JOB: 2}
    run.finish(entry)
    assert run.status(kv.path).failures == 0


def test_a_run_releases_no_claim_of_another(run: Run) -> None:
    log = run.table("log", freshness="50 ms")
    run.wait(log)
    killed(ACQUIRE, "airflow.acquire.after_claim", run.address, f"file://{run.work}", JOB)
    assert drop(run.client, f"file://{run.work}", "sluice-other") == []
    assert run.status(log).status == "Tiering"
    assert [claim.path for claim in run.client.tiering.claims_of(JOB)] == [log]


def test_a_settle_that_is_killed_before_the_release_is_repeated(run: Run) -> None:
    kv = run.keyed("a")
    run.wait(kv.path)
    [entry] = run.acquire()
    killed(SETTLE, "airflow.settle.before_release", run.address, json.dumps(entry))
    assert run.status(kv.path).last_error == "Broken: it is"
    assert run.held() == {JOB: 2}
    settle(run.client, entry, None, {"kind": "Broken", "reason": "it is"})
    assert run.held() == {}


def test_a_cluster_without_leases(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(LeaseService, "handlers", lambda self: {})  # as a server of before
    config = ServerConfig(
        data_dir=str(tmp_path / "old"), listen="grpc://127.0.0.1:0", kv_snapshot_interval_ms=0
    )
    with EmbeddedCluster(config) as cluster, connect(cluster.address) as client:
        old = Run(cluster, client, tmp_path / "old-work")
        kv = old.keyed("a")
        old.wait(kv.path)
        [entry] = old.acquire()
        assert old.acquire() == [entry]
        assert len(old.plan(entry).snapshots) == 2
        with leasing.keep_lease(client, [entry], lambda lost: None):
            pass
        old.finish(entry)
        drop(client, f"file://{old.work}", JOB)
        old.caller.transport.close()
    [warning] = [r for r in caplog.records if "without a lease" in r.getMessage()]
    assert warning.levelno == logging.WARNING


def test_a_plan_with_snapshots_comes_back() -> None:
    plan = PlanFile(
        claim_of({"table": "a.b", "table_id": 7, "tiering_epoch": 1, "coordinator_epoch": 2}),  # type: ignore[typeddict-item]
        "job",
        "grpc://h:1",
        (
            BucketSnapshot(TableBucket(7, None, 0), 5, 17),
            BucketSnapshot(TableBucket(7, 12, 3), 0, 0),
        ),
    )
    assert PlanFile.from_json(plan.to_json()) == plan
    plain = replace(plan, snapshots=())
    assert PlanFile.from_json(plain.to_json()) == plain


def test_a_table_dropped_after_its_claim_is_no_failure_of_the_run(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    kv, other = run.keyed("a"), run.keyed("b")
    run.wait(kv.path, other.path)

    def failpoint(name: str) -> None:
        if name == "airflow.acquire.after_claim":
            run.client.admin.drop_table(kv.path, ignore_if_not_exists=True)

    monkeypatch.setattr("sluice_airflow.acquire.acquire.failpoint", failpoint)
    assert [entry["table"] for entry in run.acquire()] == ["shop.b"]
    assert run.refused == []


def test_a_coordinator_that_is_away_costs_one_time_limit_for_a_pack(run: Run) -> None:
    """drop_lease reports what is left."""
    paths = [run.table(name, freshness="50 ms") for name in ("a", "b", "c")]
    run.wait(*paths)
    entries = run.acquire()
    patience = {"retry_timeout_ms": 300, "request_timeout_ms": 300, "connect_timeout_ms": 300}
    with connect(ClientConfig(run.address, **patience)) as client:
        client.admin.list_databases()
        run.cluster.stop()
        verdicts, errors = settle_pack(client, entries, {}, {}, "failed", 0.0)
    assert (verdicts, len(entries), len(errors)) == ([], 3, 1)
