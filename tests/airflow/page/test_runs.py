"""Whole runs of the DAG on a real embedded server; driver.py stands where spark-submit does."""

import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from sluice.artifacts.iceberg import NEWEST
from sluice.model import Reason
from sluice.rounds.records.json_files import read_json
from sluice.rounds.records.plan_file import PlanFile
from sluice.statuses.full_rounds import FULL_ROUND_MS
from tests.airflow.place import (
    Place,
    claimed_in,
    failures_of,
    only,
    results_of,
    settled_of,
    wait_until,
)
from tests.support.harness.findings import finding
from tests.support.network.ports import kept_port
from tests.support.programs.living import lives

pytestmark = pytest.mark.airflow

SUCCESS_ONE = {
    "open_job": "success",
    "keep_claims": "success",
    "acquire_lease": "success",
    "per_application.tier[0]": "success",
    "per_application.settle[0]": "success",
    "drop_lease": "success",
}


def test_a_table_is_tiered(place: Place) -> None:
    path = place.table("ok", rows=5)
    place.wait(path)
    seen = len(place.airflow.log.read_text())
    run = place.run({"spark_conf": {"spark.executor.memory": "2g"}})
    assert (run["state"], run["tasks"]) == ("success", SUCCESS_ONE)
    log = place.airflow.log.read_text()[seen:]
    assert "shop.ok: finished (committed)" in log
    assert "XCom not found" not in log, "an error that Airflow logs where nothing is wrong"
    assert "Returned value was: [" not in log, "one line for all tables of a run"

    [result] = results_of(run).values()
    assert (result["outcome"], result["rows"]) == ("committed", 5)
    snapshot = place.client.admin.lake_snapshot(path)
    assert snapshot is not None
    assert (snapshot.snapshot_id, list(snapshot.offsets.values())) == (4711, [5])
    assert place.status(path).status == "Scheduled"
    assert place.status(path).last_error is None

    [entry] = claimed_in(run)
    assert sorted(entry) == [
        "coordinator_epoch", "lease_id", "plan_uri", "rows", "table", "table_id", "tiering_epoch",
    ]  # fmt: skip
    assert entry["rows"] == 5
    for task, values in run["xcoms"].items():
        assert len(json.dumps(values)) < 2000, task
    [command] = place.work.rglob("command-*")
    said = command.read_text().splitlines()
    assert f"spark.sluice.datalake.iceberg.warehouse={place.lake}" in said
    assert "spark.executor.memory=2g" in said
    # As a file if this machine has it, see test_submitted_start.py.
    option = "--packages" if "--packages" in said else "--jars"
    assert said[said.index(option) + 1].endswith((NEWEST.coordinates, NEWEST.name))
    assert said[-5].endswith("sluice_spark/tier_tables.py")


def period(seconds: float) -> int:
    """The period of six hours in which a table has one complete round."""
    return int(seconds * 1000) // FULL_ROUND_MS


@pytest.mark.slow
def test_a_table_without_new_rows_gets_no_driver(place: Place) -> None:
    path = place.table("ok", freshness="1 s")  # id 0: its periods begin at 0, 6, 12 and 18 h UTC
    wait_until(lambda: place.status(path).status == "Pending", 60, f"{path} to be due")
    assert place.run()["tasks"] == SUCCESS_ONE
    tiered = 1
    wait_until(lambda: place.status(path).status == "Pending", 60, f"{path} to be due again")
    soon = period(time.time() + 120)
    if soon > period((place.status(path).last_tiered_ms or 0) / 1000):  # its first run has a driver
        wait_until(lambda: period(time.time()) == soon, 150, "the next period")
        assert place.run()["tasks"] == SUCCESS_ONE
        tiered = 2
        wait_until(lambda: place.status(path).status == "Pending", 60, f"{path} to be due again")
    seen, before = len(place.airflow.log.read_text()), place.status(path)
    run = place.run()
    assert (run["state"], run["tasks"]["per_application.tier"]) == ("success", "skipped")
    assert run["tasks"]["drop_lease"] == "success"
    log = place.airflow.log.read_text()[seen:]
    assert "shop.ok: nothing new" in log
    assert run["xcoms"]["drop_lease"]["account"]["summary"] == "1 table: 1 nothing new"
    after = place.status(path)
    assert after.rounds == (before.rounds or 0) + 1
    assert (after.last_tiered_ms or 0) > (before.last_tiered_ms or 0)
    last, *earlier = place.client.statuses.history(path)
    assert len(earlier) == tiered
    assert (last.outcome, last.lake_snapshot_id) == ("nothing_new", 4711 if tiered == 1 else 4714)


def test_a_run_says_what_became_of_each_table(place: Place) -> None:
    ok, broken, paused = (place.table(name) for name in ("ok", "broken", "paused"))
    place.wait(ok, broken, paused)
    place.client.statuses.pause(paused)
    seen = len(place.airflow.log.read_text())
    run = place.run({"tables": ["shop.*"]})
    assert run["state"] == "failed"
    told = run["xcoms"]["drop_lease"]["account"]
    assert told["summary"] == "3 tables: 1 failed, 1 paused, 1 tiered (3 rows)"
    assert {one["table"]: one["became"] for one in told["tables"]} == {
        "shop.broken": "failed",
        "shop.ok": "tiered",
        "shop.paused": "paused",
    }
    log = place.airflow.log.read_text()[seen:]
    assert "shop.ok      tiered  3 rows, lake snapshot 4711" in log
    assert "shop.paused  paused  `sluice resume shop.paused` resumes it" in log
    error = (
        "1 of 3 tables was not tiered:\n"
        "shop.broken: LakeNotWritable: cannot write s3://lake/broken: Access Denied; due again "
    )
    assert error in log, "the reason and the next attempt, not just the name"
    [named] = place.work.glob("*/run.json")
    content = json.loads(named.read_text())
    assert (content["dag_id"], content["run_id"]) == ("sluice_lake_tiering", run["run_id"])


def test_a_named_table_is_tiered_now_and_green_means_that_it_was(place: Place) -> None:
    """Names in a manual run imply `force`; a paused table stays paused, and the run is red."""
    ok, paused = place.table("ok"), place.table("paused")
    place.wait(ok, paused)
    assert place.run({"tables": ["shop.ok"]})["state"] == "success"
    assert place.status(ok).status == "Scheduled", "due in a day"
    assert place.run({"tables": ["shop.*"], "dry_run": True})["state"] == "success"
    again = place.run({"tables": ["shop.ok"]})
    assert again["state"] == "success"
    [one] = again["xcoms"]["drop_lease"]["account"]["tables"]
    assert one["became"] in ("tiered", "nothing new")
    assert place.status(ok).rounds == 2
    place.client.statuses.pause(paused)
    run = place.run({"tables": ["shop.paused"]})
    assert (run["state"], run["tasks"]["drop_lease"]) == ("failed", "failed")
    assert run["xcoms"]["drop_lease"]["account"]["summary"] == "1 table: 1 paused"


@pytest.mark.slow
def test_a_run_repeats_rounds_until_the_end_at_its_trigger(place: Place) -> None:
    """Each round of this driver commits one row and says that a limit ended it."""
    path = place.table("early", rows=3)
    place.wait(path)
    run = place.run({"tables": ["shop.early"]})
    assert run["state"] == "success"
    snapshot = place.client.admin.lake_snapshot(path)
    assert snapshot is not None
    assert list(snapshot.offsets.values()) == [3]
    [result] = results_of(run).values()
    assert (result["rows"], result["rounds"], result["rows_before"]) == (1, 3, 2)
    assert run["xcoms"]["drop_lease"]["account"]["summary"] == "1 table: 1 tiered (3 rows)"
    assert place.status(path).rounds == 3
    assert place.status(path).status == "Scheduled", "nothing stays claimed"
    assert place.client.tiering.claims_of(run["xcoms"]["open_job"]["return_value"]) == []


@pytest.mark.slow
def test_a_run_whose_rounds_do_not_reach_the_end_fails(place: Place) -> None:
    path = place.table("stuck", rows=3)
    place.wait(path)
    run = place.run({"tables": ["shop.stuck"]}, AIRFLOW__SLUICE__TIER_RETRIES="0")
    assert run["state"] == "failed"
    [one] = run["xcoms"]["drop_lease"]["account"]["tables"]
    assert one["became"] == "failed"
    assert one["text"].startswith(
        "RoundsNotEnough: 2 rounds did not reach the end of the log at the time of the trigger"
        " (the limit of the test); trigger the run again"
    )
    assert place.status(path).failures == 0, "its rounds were committed"
    assert place.client.tiering.claims_of(run["xcoms"]["open_job"]["return_value"]) == []


@pytest.mark.slow
def test_a_run_with_patterns_leaves_the_rest_to_the_next_one(place: Place) -> None:
    path = place.table("early", rows=3)
    place.wait(path)
    run = place.run({"tables": ["shop.*"]})
    assert run["state"] == "success"
    [one] = run["xcoms"]["drop_lease"]["account"]["tables"]
    assert one["text"].endswith("; the round ended early: the limit of the test")
    assert place.status(path).rounds == 1
    run = place.run({"tables": ["shop.*"], "wait": True})
    assert run["xcoms"]["drop_lease"]["account"]["summary"] == "1 table: 1 tiered (2 rows)"


def test_the_tier_task_reports_its_success_itself(place: Place) -> None:
    """A long time may pass before settle runs: the pool may be full, or the DAG paused."""
    path = place.table("ok")
    place.wait(path)
    seen = len(place.airflow.log.read_text())
    run = place.run()
    assert run["state"] == "success"
    assert only(results_of(run))["reported"] is True
    log = place.airflow.log.read_text()[seen:]
    before, _, after = log.partition("task_id=per_application.settle")
    assert after
    assert "shop.ok: finished (committed)" in before
    [round_] = place.client.statuses.history(path)
    assert round_.worker == run["xcoms"]["open_job"]["return_value"], "reported once"


def test_one_of_several_fails_and_its_reason_is_seen(place: Place) -> None:
    paths = [place.table(name) for name in ("ok_1", "broken", "ok_2")]
    place.wait(*paths)
    run = place.run()
    assert run["state"] == "failed"
    assert run["tasks"]["per_application.tier[0]"] == "failed"
    assert run["tasks"]["per_application.settle[0]"] == "success"
    assert run["tasks"]["drop_lease"] == "failed"
    assert sorted(results_of(run)) == ["shop.ok_1", "shop.ok_2"]
    [failure] = failures_of(run).values()
    assert failure["kind"] == "LakeNotWritable"
    assert failure["reason"] == "cannot write s3://lake/broken: Access Denied"
    status = place.status(paths[1])
    assert status.last_error == "LakeNotWritable: cannot write s3://lake/broken: Access Denied"
    assert status.status == "Pending"
    assert [place.status(p).last_error for p in (paths[0], paths[2])] == [None, None]
    assert len(list(place.work.rglob("*broken*"))) == 0  # files are named by table id, no surprise
    assert len(list(place.work.rglob("command-*"))) == 3, "what cannot heal is not tried again"


def test_a_killed_driver_without_a_file(place: Place) -> None:
    path = place.table("killed")
    place.wait(path)
    run = place.run(AIRFLOW__SLUICE__TIER_RETRIES="0")
    assert run["state"] == "failed"
    [failure] = failures_of(run).values()
    assert failure["kind"] == "DriverLost"
    assert failure["retryable"]
    error = place.status(path).last_error
    assert error is not None
    assert error.startswith("DriverLost: the Spark driver ended without a result")
    assert "exit code is 137" in error or "exit code is -9" in error
    assert "the last words of a driver" in error


def test_a_task_that_breaks_leaves_its_reason(place: Place) -> None:
    """An error that is none of Sluice's own: settle reports it, and not that the task was lost."""
    path = place.table("garbled")
    place.wait(path)
    run = place.run(AIRFLOW__SLUICE__TIER_RETRIES="0")
    assert run["state"] == "failed"
    [failure] = failures_of(run).values()
    assert failure["kind"] == "JSONDecodeError"
    assert (place.status(path).last_error or "").startswith("JSONDecodeError: ")


def test_no_table_is_waiting(place: Place) -> None:
    run = place.run()
    assert run["state"] == "success"
    assert run["tasks"]["acquire_lease"] == "success"
    assert run["tasks"]["per_application.tier"] == "skipped"
    assert run["tasks"]["drop_lease"] == "success"
    assert not place.work.exists()


def test_a_retry_heals(place: Place) -> None:
    path = place.table("flaky")
    place.wait(path)
    run = place.run()
    assert (run["state"], run["tasks"]) == ("success", SUCCESS_ONE)
    assert run["tries"]["per_application.tier"] == 2
    assert run["tries"]["per_application.settle"] == 1
    assert place.status(path).last_error is None
    attempts = {file.name.removeprefix("command-") for file in place.work.rglob("command-*")}
    assert len(attempts) == 2, "each try has an attempt of its own"


@pytest.mark.slow
def test_a_lost_claim_is_no_failure_of_the_table(place: Place) -> None:
    """The try claims the table again three times, and its driver loses each of these claims."""
    path = place.table("lost")
    place.wait(path)
    run = place.run()
    assert (run["state"], run["tasks"]) == ("success", SUCCESS_ONE)
    [result] = results_of(run).values()
    assert result["outcome"] == "claim_lost"
    left = [json.loads(file.read_text()) for file in place.work.rglob("result-*.json")]
    assert [one["outcome"] for one in left] == ["claim_lost"] * 4
    # The driver's own word, or the heartbeat's if that came first.
    assert result["notes"][0] == "not claimed again: its claim was lost 4 times"
    assert any(said in result["notes"][1] for said in ("FencedTieringEpoch", "coordinator reports"))
    [settled] = settled_of(run).values()
    assert settled["reported"] == "nothing"
    assert place.status(path).last_error == "taken by somebody else"


def test_a_claim_taken_away_ends_the_driver(place: Place) -> None:
    """Heartbeats hear of it; the driver, which does not ask before its commit, must not copy on."""
    path = place.table("busy")
    place.wait(path)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(place.run)
        started = place.started(running)
        plan = PlanFile.from_json(read_json(f"file://{started.with_name('plan.json')}") or {})
        place.client.tiering.failed(plan.claim, Reason.from_text("taken by somebody else"))
        place.client.tiering.claim([path], by="somebody else")
        run = running.result(500)  # its driver would work on for longer than that
    assert (run["state"], run["tasks"]) == ("success", SUCCESS_ONE)
    assert run["tries"]["per_application.tier"] == 1
    [result] = results_of(run).values()
    assert result["outcome"] == "claim_lost"
    held = "held: somebody else tiers it (tiering epoch 2)"
    assert result["notes"][0] == f"not claimed again: {held}"
    assert "the coordinator reports" in result["notes"][1]
    [told] = run["xcoms"]["drop_lease"]["account"]["tables"]
    assert (told["became"], held in told["text"]) == ("claim lost", True)
    assert only(settled_of(run))["reported"] == "nothing"
    assert place.status(path).last_error == "taken by somebody else"
    with finding():
        assert [pid for pid in started.read_text().split() if lives(int(pid))] == []


@pytest.mark.slow
def test_a_claim_that_was_lost_before_its_driver_started(place: Place) -> None:
    """The task claims the table again: no keeper is at work in a test run."""
    path = place.table("ok")
    place.wait(path)

    def lose() -> None:
        wait_until(lambda: bool([*place.work.rglob("plan.json")]), 400, "the plan")
        [plan] = place.work.rglob("plan.json")
        claim = PlanFile.from_json(read_json(f"file://{plan}") or {}).claim
        place.client.tiering.release(claim, Reason.from_text("another client"))

    seen = len(place.airflow.log.read_text())
    with ThreadPoolExecutor(1) as pool:
        losing = pool.submit(lose)
        run = place.run({"max_tables": 1})  # else acquire_lease might claim it again
        losing.result()
    assert (run["state"], run["tasks"]) == ("success", SUCCESS_ONE)
    assert place.status(path).failures == 0
    [result] = results_of(run).values()
    assert (result["outcome"], result["rounds"]) == ("committed", 2)
    assert "shop.ok: round 2 of this try" in place.airflow.log.read_text()[seen:]
    assert len([*place.work.rglob("command-*")]) == 1, "no driver began with the lost claim"
    [verdict] = settled_of(run).values()
    assert (verdict["reported"], verdict["rows"]) == ("finished", 3)


@pytest.mark.slow
def test_a_driver_that_takes_too_long_is_ended(place: Place) -> None:
    """A hanging driver at tier_timeout_seconds; one that copies large KV snapshots later."""
    slow, huge = place.table("slow"), place.table("huge")
    place.wait(slow, huge)
    seen = len(place.airflow.log.read_text())
    run = place.run(
        AIRFLOW__SLUICE__TIER_RETRIES="0",
        AIRFLOW__SLUICE__TIER_TIMEOUT_SECONDS="3",
        AIRFLOW__SLUICE__TABLES_PER_APPLICATION="1",
    )
    assert run["state"] == "failed"
    assert place.status(huge).last_error is None
    assert results_of(run)["shop.huge"]["outcome"] == "committed"
    assert (
        "this try may take 1003 s: 3 s (tier_timeout_seconds) and 1000 s for 2.0 GB of KV snapshots"
        " at 2 MB/s"
    ) in place.airflow.log.read_text()[seen:]
    error = (
        "TierTimedOut: this try took longer than 3 s (tier_timeout_seconds); raise"
        " tier_timeout_seconds, an option of section sluice and an argument of the DAG file, if the"
        " driver was still working"
    )
    assert place.status(slow).last_error == error
    failure = failures_of(run)["shop.slow"]
    assert (failure["kind"], failure["retryable"]) == ("TierTimedOut", True)
    [left] = place.work.rglob("failure-*.json")
    assert json.loads(left.read_text())["kind"] == "TierTimedOut"
    with finding():
        started = [file.read_text() for file in place.work.rglob("started")]
        assert [pid for pid in started if lives(int(pid))] == []


@pytest.mark.long
def test_the_last_words_of_a_driver_that_is_ended(place: Place) -> None:
    """They do not count: it was ended. A reason that it gave before it hung does."""
    last, late = place.table("last"), place.table("late")
    place.wait(last, late)
    run = place.run(
        AIRFLOW__SLUICE__TIER_RETRIES="0",
        AIRFLOW__SLUICE__TIER_TIMEOUT_SECONDS="5",
        AIRFLOW__SLUICE__TABLES_PER_APPLICATION="1",
    )
    assert run["state"] == "failed"
    assert (place.status(last).last_error or "").startswith("TierTimedOut: this try took longer")
    assert place.status(late).last_error == "SparkError: the Spark context was shut down"


def test_spark_submit_that_does_not_start(place: Place) -> None:
    path = place.table("ok")
    place.wait(path)
    binary = place.work.with_name("spark-submit")
    binary.write_text("#!/nowhere/shell\n")
    binary.chmod(0o755)
    run = place.run(AIRFLOW__SLUICE__SPARK_BINARY=str(binary))
    assert run["state"] == "failed"
    assert run["tries"]["per_application.tier"] == 1
    error = place.status(path).last_error
    assert error is not None
    assert error.startswith("DriverRefused: spark-submit could not be started:")
    assert str(binary) in error


def test_what_a_run_needs_is_missing(place: Place) -> None:
    """Nothing is claimed or leased, and the log names the first thing."""
    path = place.table("ok")
    place.wait(path)
    before = place.status(path)
    (place.work.parent / "file").touch()
    lake = {"iceberg.type": "hadoop", "iceberg.warehouse": f"{place.work.parent}/file/lake"}
    for environment, said in (
        (
            {"AIRFLOW__SLUICE__APPLICATION": "/nowhere/tier.py"},
            "the driver's script: file /nowhere/tier.py does not exist",
        ),
        (
            {"AIRFLOW_CONN_SPARK_DEFAULT": ""},
            "connection 'spark_default' does not exist: run `airflow connections add",
        ),
        (place.connection(datalake=lake), f"write to the lake, {place.work.parent}/file/lake: "),
        (place.connection(work_uri=f"file://{place.work.parent}/file/work"), "work folder file:"),
    ):
        seen = len(place.airflow.log.read_text())
        run = place.run(**environment)
        assert run["state"] == "failed"
        assert run["tasks"]["acquire_lease"] == "failed"
        assert run["tasks"]["drop_lease"] == "failed"
        assert run["tries"]["acquire_lease"] == 1
        assert said in place.airflow.log.read_text()[seen:]
        assert not place.work.exists(), "no plan was written"
        assert place.client.leases.all() == []
        assert replace(place.status(path), lag_ms=before.lag_ms) == before


def test_drop_lets_go_when_acquire_fails_midway(place: Place) -> None:
    """A work folder for short names only: the first claim is handed back with the reason."""
    path = place.table("ok")
    place.wait(path)
    # Longer than this no path may be: a check's file fits, a plan's does not.
    most = os.pathconf("/", "PC_PATH_MAX") - 1
    work = place.work
    while len(str(work)) < most - 60:
        work = work / ("w" * min(200, most - 60 - len(str(work))))
    run = place.run(**place.connection(work_uri=f"file://{work}"))
    assert run["state"] == "failed"
    assert run["tasks"]["acquire_lease"] == "failed"
    assert run["tasks"]["drop_lease"] == "failed"
    status = place.status(path)
    assert status.last_error is not None
    assert status.last_error.startswith(f"work folder file://{work}: cannot write the plan")
    assert status.status == "Pending"


@pytest.mark.parametrize(
    ("conf", "why"),
    [
        ({"table": ["shop.ok"]}, "unknown key 'table'; did you mean 'tables'?"),
        ({"tables": ["shop.nope"]}, "tables: lake table 'shop.nope' does not exist; correct"),
    ],
)
def test_a_run_that_asks_for_nonsense_claims_nothing(place: Place, conf: dict, why: str) -> None:
    path = place.table("ok")
    place.wait(path)
    run = place.run(conf)
    assert run["state"] == "failed"
    assert run["tasks"]["acquire_lease"] == "failed"
    assert why in place.airflow.log.read_text()
    assert place.status(path).status == "Pending"
    assert place.status(path).last_error is None


@pytest.mark.slow
def test_a_network_that_fails_may_be_tried_again_and_a_refusal_may_not(place: Place) -> None:
    """Airflow never tries again after an AirflowFailException."""
    seen = len(place.airflow.log.read_text())
    with kept_port() as port:
        lake = {"iceberg.type": "rest", "iceberg.uri": f"http://127.0.0.1:{port}"}
        run = place.run(**place.connection(datalake=lake))
    assert run["tasks"]["acquire_lease"] == "failed"
    log = place.airflow.log.read_text()
    assert ".AirflowException: lake catalog: ConnectionRefusedError: " in log[seen:]
    place.lake.touch()
    run = place.run()
    assert run["tasks"]["acquire_lease"] == "failed"
    refused = ".AirflowFailException: write to the lake, "
    assert refused in place.airflow.log.read_text()[len(log) :]
