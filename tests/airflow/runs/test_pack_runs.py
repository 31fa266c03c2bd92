"""Runs whose tables share one Spark application; driver.py stands where spark-submit does."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sluice.model import Reason, TablePath
from sluice.rounds.records.json_files import read_json
from sluice.rounds.records.plan_file import PlanFile
from tests.airflow.place import Place, failures_of, only, results_of, settled_of, wait_until

pytestmark = pytest.mark.airflow


def commands(place: Place) -> list[list[str]]:
    """The tables of each spark-submit, in the order of their start."""
    packs: dict[str, list[str]] = {}
    for file in sorted(place.work.rglob("command-*"), key=lambda path: path.stat().st_mtime):
        said = file.read_text().splitlines()
        table = json.loads(file.with_name("plan.json").read_text())["table"]
        packs.setdefault(said[said.index("--pack") + 1], []).append(table.removeprefix("shop."))
    return [sorted(tables) for tables in packs.values()]


def log_of(place: Place) -> str:
    return place.airflow.log.read_text()


def starts(place: Place) -> list[str]:
    """The starts of Spark that were refused."""
    return [line for file in place.work.rglob("refused") for line in file.read_text().splitlines()]


def test_a_retry_tiers_only_what_has_not_finished(place: Place) -> None:
    paths = [place.table(name) for name in ("ok_1", "ok_2", "flaky", "broken")]
    place.wait(*paths)
    run = place.run()
    assert run["state"] == "failed"
    assert commands(place) == [["broken", "flaky", "ok_1", "ok_2"], ["flaky"]]
    assert sorted(results_of(run)) == ["shop.flaky", "shop.ok_1", "shop.ok_2"]
    assert only(failures_of(run))["table"] == "shop.broken"
    reported = {name: one["reported"] for name, one in settled_of(run).items()}
    assert reported == {
        "shop.broken": "failed",
        "shop.flaky": "finished",
        "shop.ok_1": "finished",
        "shop.ok_2": "finished",
    }
    assert [place.status(path).failures for path in paths] == [0, 0, 0, 1]
    log = place.airflow.log.read_text()
    assert "1 of 4 tables was not tiered:" in log
    assert "Callback failed" not in log
    assert "shop.broken: LakeNotWritable: cannot write s3://lake/broken: Access Denied" in log
    place.nothing_is_held()


@pytest.mark.slow
def test_a_third_try_leaves_alone_what_the_second_one_tiered(place: Place) -> None:
    """The table has a failure of the first try, too, which must not count any more."""
    flaky, twice = place.table("flaky"), place.table("twice")
    place.wait(flaky, twice)
    run = place.run(AIRFLOW__SLUICE__TIER_RETRIES="2")
    assert run["state"] == "success"
    assert commands(place) == [["flaky", "twice"], ["flaky", "twice"], ["twice"]]
    assert {one["reported"] for one in settled_of(run).values()} == {"finished"}
    assert [place.status(path).failures for path in (flaky, twice)] == [0, 0]
    place.nothing_is_held()


@pytest.mark.slow
def test_settings_that_cannot_work_are_no_failure_of_a_table(place: Place) -> None:
    """One start, one error of the task, no second try, and a reason in every status.

    The next scheduled run starts nothing. One that a person triggers does.
    """
    paths = [place.table(name) for name in ("unstartable", "ok_1", "ok_2")]
    place.wait(*paths)
    run = place.run(run_type="scheduled", AIRFLOW__SLUICE__TIER_RETRIES="2")
    assert run["state"] == "failed"
    assert run["tries"]["per_application.tier"] == 1
    assert starts(place) == ["a start"]
    said = (
        "SparkSettingsWrong: Spark cannot start with its settings (spark-submit's exit code is 1);"
        " its output says: org.apache.spark.SparkIllegalArgumentException: [INVALID_DRIVER_MEMORY]"
    )
    assert f"TierNotRetried: 3 of 3 tables were not tiered: {said}" in log_of(place)
    assert {one["reported"] for one in settled_of(run).values()} == {"released"}
    for path in paths:
        status = place.status(path)
        assert (status.status, status.failures, status.last_error) == ("Pending", 0, None)
        assert (status.stopped or "").startswith(said)
    place.nothing_is_held()
    run = place.run(run_type="scheduled")
    assert run["tasks"]["acquire_lease"] == "failed"
    assert "SparkSettingsWrong: Spark is not started before 20" in log_of(place)
    assert len(starts(place)) == 1
    assert all((place.status(path).stopped or "").startswith(said) for path in paths)
    [noted] = place.work.glob("failed-starts/*/*")
    note = noted.read_text()
    assert place.run({"spark_conf": {"spark.driver.memory": "1"}})["state"] == "failed"
    assert (len(starts(place)), noted.read_text()) == (2, note), "it has properties of its own"
    run = place.run({"tables": ["shop.ok_*"]}, AIRFLOW__SLUICE__SPARK_BINARY="/nowhere/none")
    assert (run["state"], noted.read_text()) == ("failed", note), "Spark has not started"
    assert place.run({"dry_run": True}, run_type="scheduled")["state"] == "success"
    for run_type in ("manual", "operator_triggered"):
        assert place.run(run_type=run_type)["state"] == "failed"
    assert (len(starts(place)), json.loads(noted.read_text())["failures"]) == (4, 3)
    assert place.run({"tables": ["shop.ok_*"]})["state"] == "success"
    assert not noted.exists(), "Spark has started"
    place.nothing_is_held()


@pytest.mark.slow
def test_a_poisonous_table_does_not_take_the_others_down_twice(place: Place) -> None:
    """`pair` was in flight when `poison` killed the driver; `ok` had finished."""
    ok, pair, poison = (place.table(name) for name in ("ok", "pair", "poison"))
    place.wait(ok, pair, poison)
    run = place.run()
    assert run["state"] == "failed"
    first, *alone = commands(place)
    assert first == ["ok", "pair", "poison"]
    assert sorted(alone) == [["pair"], ["poison"]], "each suspect has its own application"
    assert sorted(results_of(run)) == ["shop.ok", "shop.pair"]
    assert only(failures_of(run))["kind"] == "DriverLost"
    assert [place.status(path).failures for path in (ok, pair, poison)] == [0, 0, 1]
    error = place.status(poison).last_error or ""
    assert error.startswith("DriverLost: the Spark driver ended without a result or a reason")
    reasons = [
        json.loads(file.read_text())["reason"] for file in place.work.rglob("failure-*.json")
    ]
    together = [reason.partition("; it was tiering ")[2].partition(";")[0] for reason in reasons]
    named = {frozenset(tables.split(", ")) for tables in together if tables}
    assert named == {frozenset({"shop.pair", "shop.poison"})}, "the tables in flight are named"
    assert len(reasons) == 3, "poison has failed twice"
    place.nothing_is_held()


@pytest.mark.slow
def test_a_table_that_the_lost_driver_had_not_begun_has_no_failure(place: Place) -> None:
    """The fake driver tiers four tables at once, so the last ones wait."""
    names = ["poison", *(f"pair_{n}" for n in range(3)), "wait_1", "wait_2"]
    paths = {name: place.table(name) for name in names}
    place.wait(*paths.values())
    run = place.run(AIRFLOW__SLUICE__TIER_RETRIES="0")
    assert run["state"] == "failed"
    kinds = {name: failure["kind"] for name, failure in failures_of(run).items()}
    not_begun = [name for name, kind in kinds.items() if kind == "TierNotStarted"]
    assert sorted(kinds.values()) == ["DriverLost"] * 4 + ["TierNotStarted"] * 2
    for name in names:
        status = place.status(paths[name])
        assert status.failures == (0 if f"shop.{name}" in not_begun else 1), name
    assert "it had begun shop." in failures_of(run)[not_begun[0]]["reason"]
    place.nothing_is_held()


@pytest.mark.slow
def test_a_driver_that_is_lost_between_its_tables_has_failed_none(place: Place) -> None:
    """`ok` has ended, and no other table had begun when the driver was killed."""
    ok, wait = place.table("ok"), place.table("unbegun")
    place.wait(ok, wait)
    run = place.run(AIRFLOW__SLUICE__TIER_RETRIES="0")
    assert run["state"] == "failed"
    assert only(failures_of(run))["kind"] == "TierNotStarted"
    assert "before it began this table; it had begun shop.ok" in only(failures_of(run))["reason"]
    assert [place.status(path).failures for path in (ok, wait)] == [0, 0]
    assert place.status(wait).status == "Pending"
    place.nothing_is_held()


def tell_to_commit(place: Place, path: TablePath) -> None:
    """Ends the wait of a table that is "held"."""
    (place.work / f"{path}-go").touch()


@pytest.mark.slow
def test_a_claim_taken_away_ends_that_table_and_no_other(place: Place) -> None:
    hung, ok = place.table("hung"), place.table("held")
    place.wait(hung, ok)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(place.run)
        started = place.started(running)
        plan = PlanFile.from_json(read_json(f"file://{started.with_name('plan.json')}") or {})
        place.client.tiering.failed(plan.claim, Reason.from_text("taken by somebody else"))
        place.client.tiering.claim([hung], by="somebody else")
        left = started.parent.glob
        wait_until(lambda: running.done() or any(left("failure-*.json")), 300, "an end")
        assert place.status(ok).status == "Tiering", "before the end of the application"
        tell_to_commit(place, ok)
        run = running.result(500)
    assert run["state"] == "success", "a lost claim is no failure"
    outcomes = {name: result["outcome"] for name, result in results_of(run).items()}
    assert outcomes == {"shop.hung": "claim_lost", "shop.held": "committed"}
    assert len(commands(place)) == 1
    assert place.status(hung).last_error == "taken by somebody else"
    assert place.status(ok).last_error is None
    assert place.status(ok).status == "Scheduled"
    assert place.client.leases.all() == []


@pytest.mark.slow
def test_a_pause_ends_that_table_and_no_other(place: Place) -> None:
    hung, ok = place.table("hung"), place.table("held")
    place.wait(hung, ok)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(place.run)
        place.started(running)
        place.client.statuses.pause(hung)
        wait_until(lambda: running.done() or place.status(hung).status != "Tiering", 300, "an end")
        assert place.status(ok).status == "Tiering", "before the end of the application"
        tell_to_commit(place, ok)
        run = running.result(500)
    assert run["state"] == "success", "a pause is no failure"
    assert only(results_of(run))["table"] == "shop.held"
    assert only(failures_of(run))["kind"] == "TablePaused"
    assert len(commands(place)) == 1
    tables = {one["table"]: one for one in run["xcoms"]["drop_lease"]["account"]["tables"]}
    assert tables["shop.hung"]["became"] == "paused"
    status = place.status(hung)
    assert (status.failures, status.last_error, status.paused) == (0, None, True)
    assert status.stopped == "TablePaused: a user paused the table shop.hung"
    assert status.status != "Tiering", "its claim was released"


@pytest.mark.slow
def test_a_table_that_is_paused_before_its_driver_starts(place: Place) -> None:
    """The pause comes between acquire_lease and the tier task; which of two is first is open."""
    paths = [place.table(name) for name in ("hung_1", "hung_2")]
    place.wait(*paths)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(place.run, AIRFLOW__SLUICE__TABLES_PER_APPLICATION="1")
        plan = place.started(running).with_name("plan.json")
        first = TablePath.parse(json.loads(plan.read_text())["table"])
        [second] = {*paths} - {first}
        place.client.statuses.pause(second)
        release(place, first)
        run = running.result(500)
    assert run["state"] == "success"
    assert commands(place) == [[first.table]], "no Spark application for a paused table"
    assert place.status(second).stopped == f"TablePaused: a user paused the table {second}"
    assert place.status(second).status != "Tiering"


def test_a_table_that_takes_too_long_ends_alone(place: Place) -> None:
    hung, flaky = place.table("hung"), place.table("ok")
    place.wait(hung, flaky)
    run = place.run(AIRFLOW__SLUICE__TIER_RETRIES="0", AIRFLOW__SLUICE__TIER_TIMEOUT_SECONDS="5")
    assert run["state"] == "failed"
    assert only(results_of(run))["outcome"] == "committed"
    assert only(failures_of(run))["kind"] == "TierTimedOut"
    assert (place.status(hung).last_error or "").startswith("TierTimedOut: this try took longer")
    assert place.status(flaky).last_error is None
    place.nothing_is_held()


def test_a_table_is_reported_while_others_are_tiered(place: Place) -> None:
    """A success, and a failure that no retry heals."""
    hung, ok, broken = (place.table(name) for name in ("hung", "ok", "broken"))
    place.wait(hung, ok, broken)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(
            place.run,
            AIRFLOW__SLUICE__TIER_RETRIES="0",
            AIRFLOW__SLUICE__TIER_TIMEOUT_SECONDS="30",
        )
        place.started(running)
        wait_until(lambda: running.done() or place.status(ok).status == "Scheduled", 300, "an end")
        wait_until(lambda: running.done() or place.status(broken).failures == 1, 300, "a failure")
        assert place.status(hung).status == "Tiering", "before the end of the application"
        release(place, hung)
        run = running.result(500)
    assert settled_of(run)["shop.broken"]["reported"] == "failed"
    assert place.status(broken).failures == 1, "counted once"
    [last, *_] = place.client.statuses.history(broken)
    assert last.outcome == "failed"
    assert "Access Denied" in (last.reason or "")


def release(place: Place, path: object) -> None:
    """Takes the claim away, which ends the table."""
    for file in place.work.rglob("plan.json"):
        plan = PlanFile.from_json(json.loads(Path(file).read_text()))
        if plan.claim.path == path:
            place.client.tiering.release(plan.claim, Reason.from_text("the test is over"))
            place.client.tiering.claim([plan.claim.path], by="the test")
