"""Acquire, settle and drop against a real server, without Airflow."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from sluice.client import connect
from sluice.client.statuses.status_table import PATH as STATUSES
from sluice.errors import ConfigurationError, StatusUnreadable, TableNotExist
from sluice.model import Reason, TablePath
from sluice.model import types as t
from sluice.model.reason import WITHHELD
from sluice.rounds.records.json_files import read_json, write_json
from sluice.rounds.records.plan_file import claim_of, plan_uris
from sluice.rounds.records.result import RoundFailure, RoundResult, failure_uri, result_uri
from sluice.rounds.records.run_files import keys_uri
from sluice_airflow.acquire.acquire import acquire, check_conf_keys, requested_tables
from sluice_airflow.claims.claimed_again import mark_started
from sluice_airflow.claims.claims import ClaimedTable
from sluice_airflow.config.connection import FlussConnection
from sluice_airflow.outcomes.left_files import TASK_LOST
from sluice_airflow.outcomes.settle import NOT_BEGUN, RUN_ENDED, drop, settle
from tests.airflow.place import AirflowProcess, Place
from tests.support.statuses.status_shop import MINUTE_MS, foreign, status_shop

JOB = "sluice-job"


@dataclass
class Run(Place):
    """A place without Airflow, and a connection to it."""

    @property
    def connection_(self) -> FlussConnection:
        return FlussConnection(self.address, work_uri=f"file://{self.work}")

    def acquire(self, *patterns: str, most: int = 10, job: str = JOB) -> list[ClaimedTable]:
        return acquire(self.client, self.connection_, job, patterns or ("*",), most)

    def drop(self, job: str = JOB) -> list[tuple[str, str, str]]:
        verdicts = drop(self.client, f"file://{self.work}", job)
        return [(v.table, v.reported, v.reason) for v in verdicts]

    def names(self, entries: list[ClaimedTable]) -> list[str]:
        return sorted(entry["table"].removeprefix("shop.") for entry in entries)


@pytest.fixture
def run(embedded: str, tmp_path: Path) -> Iterator[Run]:
    with connect(embedded) as client:
        client.admin.create_database("shop")
        none: AirflowProcess = None  # type: ignore[assignment]
        yield Run(none, client, embedded, tmp_path / "work")


def waiting(run: Run, *names: str) -> list[TablePath]:
    paths = [run.table(name, freshness="50 ms") for name in names]
    run.wait(*paths)
    return paths


def result_of(entry: ClaimedTable, outcome: str = "committed") -> RoundResult:
    claim = claim_of(entry)
    return RoundResult(
        str(claim.path), claim.table_id, claim.tiering_epoch, claim.coordinator_epoch, outcome
    )


def left_by(entry: ClaimedTable, outcome: RoundResult | RoundFailure) -> dict[str, Any]:
    """Writes the file of a try; answers what its task would leave in XCom."""
    content = outcome.to_json()
    if isinstance(outcome, RoundResult):
        uri = result_uri(entry["plan_uri"], "1")
        write_json(uri, content)
        return {**content, "result_uri": uri}
    uri = failure_uri(entry["plan_uri"], "1")
    write_json(uri, content)
    shown = {"kind": content["kind"], "reason": content["reason"][:497] + "..."}
    return {"table": entry["table"], **shown, "failure_uri": uri}


# ---- acquire ----


def test_acquire_fails_if_it_cannot_read_what_is_paused(tmp_path: Path) -> None:
    """Else a run without a table would be green."""
    with status_shop(tmp_path / "data") as shop:
        shop.create("orders")
        shop.client.admin.create_database("sluice")
        shop.client.admin.create_table(STATUSES, foreign(paused=t.STRING))
        shop.clock.ms += MINUTE_MS
        connection = FlussConnection(shop.address, work_uri=f"file://{tmp_path / 'work'}")
        for patterns in (["*"], ["shop.orders"]):
            with pytest.raises(StatusUnreadable, match="column paused is STRING") as error:
                acquire(shop.another(), connection, JOB, patterns, 10)
            assert error.value.retryable
        claim = shop.another().tiering._next_claim(())
        assert claim is not None, "nothing stays claimed"


def test_acquire_claims_what_matches_up_to_the_most(run: Run) -> None:
    waiting(run, "a1", "a2", "b1")
    assert run.names(run.acquire("shop.a*", "shop.c*")) == ["a1", "a2"]
    assert run.acquire("shop.c*", job="2") == []
    assert run.acquire("*", most=0, job="3") == []
    assert run.names(run.acquire("shop.b1", job="4")) == ["b1"]


def test_acquire_writes_a_plan_for_each(run: Run) -> None:
    waiting(run, "a1")
    [entry] = run.acquire()
    assert plan_uris(f"file://{run.work}", JOB) == [entry["plan_uri"]]
    plan = read_json(entry["plan_uri"])
    assert plan is not None
    assert (plan["bootstrap"], plan["table"]) == (run.address, "shop.a1")


def test_a_repeated_acquire_takes_over_what_is_still_held(run: Run) -> None:
    waiting(run, "a", "b")
    first = run.acquire(most=1)
    again = run.acquire(most=1)
    assert again == first, "no second claim"
    assert run.names(run.acquire(most=2)) == ["a", "b"]
    settle(run.client, first[0], left_by(first[0], result_of(first[0])), None)
    [left] = run.acquire(most=2)
    assert left["table"] != first[0]["table"], "what was reported is not taken over"
    assert run.acquire(job="another job") == []


def test_the_newer_epoch_of_a_table_is_taken_over(run: Run) -> None:
    waiting(run, "a")
    [old] = run.acquire()
    run.client.tiering.failed(claim_of(old), Reason.from_text("timed out"))
    [new] = run.acquire()
    assert new["tiering_epoch"] == old["tiering_epoch"] + 1
    assert run.acquire(most=1) == [new]


def test_patterns_name_lake_tables(run: Run) -> None:
    waiting(run, "a")
    assert requested_tables(run.client, ["*"]) is None
    assert requested_tables(run.client, ["shop.*"]) == [TablePath("shop", "a")]
    with pytest.raises(TableNotExist, match="'shop.b'"):
        requested_tables(run.client, ["shop.*", "shop.b"])


def test_a_claim_whose_plan_cannot_be_written_goes_back(run: Run) -> None:
    [path] = waiting(run, "a")
    run.work.write_text("in the way")
    with pytest.raises(ConfigurationError, match="cannot write the plan"):
        run.acquire()
    assert run.status(path).status == "Pending"
    assert "cannot write the plan" in (run.status(path).last_error or "")


def test_a_work_folder_of_a_kind_unknown(run: Run) -> None:
    [path] = waiting(run, "a")
    with pytest.raises(ConfigurationError, match="work folder nowhere://x: Protocol not known"):
        acquire(run.client, FlussConnection(run.address, work_uri="nowhere://x"), JOB, ["*"], 1)
    assert run.status(path).status == "Pending"


def test_unknown_keys_of_a_run() -> None:
    check_conf_keys(None, ["tables"])
    check_conf_keys({"tables": []}, ["tables"])
    with pytest.raises(ConfigurationError, match="unknown key 'table'; did you mean 'tables'"):
        check_conf_keys({"x": 1, "table": 2}, ["tables"])


# ---- settle ----


def test_settle_reports_the_result_and_may_be_repeated(run: Run) -> None:
    [path] = waiting(run, "a")
    [entry] = run.acquire()
    content = left_by(entry, result_of(entry))
    for _ in range(2):
        assert settle(run.client, entry, content, None).reported == "finished"
    assert run.status(path).status == "Scheduled"
    assert run.status(path).last_tiered_ms is not None


def test_settle_does_not_repeat_what_the_tier_task_reported(run: Run) -> None:
    """The table may be due again, or in another round, when settle runs."""
    [path] = waiting(run, "a")
    [entry] = run.acquire()
    xcom = left_by(entry, result_of(entry))
    verdict = settle(run.client, entry, {**xcom, "reported": True}, None)
    assert (verdict.reported, verdict.reason) == ("finished", "committed")
    assert run.status(path).status == "Tiering", "settle sent nothing"


@pytest.mark.parametrize(
    "forced",
    ["", "ended early after 180 s: 7 offsets in 1 of 3 buckets are left for the next round"],
)
def test_settle_reports_a_cut_round_as_forced(run: Run, forced: str) -> None:
    [path] = waiting(run, "a")
    [entry] = run.acquire()
    content = left_by(entry, replace(result_of(entry), forced=forced))
    verdict = settle(run.client, entry, content, None)
    assert verdict.reported == "finished"
    assert verdict.reason == (f"committed, forced: {forced}" if forced else "committed")
    assert run.status(path).status == ("Pending" if forced else "Scheduled")


def test_settle_leaves_the_totals_of_the_lake_table_alone(run: Run, tmp_path: Path) -> None:
    """Fluss means totals of the lake table; what one round wrote must not stand in their place."""
    waiting(run, "a")
    [entry] = run.acquire()
    run.client.tiering.finished(claim_of(entry), forced=True, file_size=70_000, record_count=5_000)
    [entry] = run.acquire(job="2")
    result = replace(result_of(entry), rows=3, bytes_written=200)
    assert settle(run.client, entry, left_by(entry, result), None).reported == "finished"
    [database] = (tmp_path / "data").rglob("metadata.sqlite")
    with closing(sqlite3.connect(database)) as sql:
        [totals] = sql.execute("SELECT file_size, record_count FROM tiering").fetchall()
    assert totals == (70_000, 5_000)


def test_settle_reports_the_reason_whole(run: Run) -> None:
    [path] = waiting(run, "a")
    [entry] = run.acquire()
    reason = "r" * 3000
    xcom = left_by(entry, RoundFailure(Reason("Broken", reason)))
    assert settle(run.client, entry, None, xcom).reported == "failed"
    assert run.status(path).last_error == f"Broken: {reason}"
    again = settle(run.client, entry, None, xcom)
    assert (again.reported, again.reason) == ("failed", f"Broken: {reason}"), "said before"


def test_the_files_decide_and_the_xcom_only_names_them(run: Run) -> None:
    waiting(run, "a", "b")
    one, other = run.acquire()
    summary = {**left_by(one, replace(result_of(one), forced="more")), "forced": ""}
    assert settle(run.client, one, summary, None).reason == "committed, forced: more"
    failure = left_by(other, RoundFailure(Reason("Broken", "as the file says")))
    verdict = settle(run.client, other, None, {**failure, "kind": "Other", "reason": "else"})
    assert verdict.reason == "Broken: as the file says"


def test_the_xcom_decides_where_no_file_can_be_read(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    waiting(run, "a", "b", "c")
    one, two, three = run.acquire()
    left = left_by(one, result_of(one))
    Path(left["result_uri"].removeprefix("file://")).unlink()
    assert settle(run.client, one, left, None).reported == "finished"
    assert "no result file can be read" in caplog.text
    left = left_by(two, RoundFailure(Reason("Broken", "it is")))
    Path(left["failure_uri"].removeprefix("file://")).write_text("{")
    assert settle(run.client, two, None, left).reason == "Broken: it is..."
    assert f"cannot read {left['failure_uri']}" in caplog.text
    assert "no failure file can be read" in caplog.text
    left = left_by(three, result_of(three))
    other = {**left, "result_uri": f"{left['result_uri']}-other"}
    caplog.clear()
    assert settle(run.client, three, other, None).reported == "finished"
    assert caplog.text == "", "another try has left its result"


def test_the_xcoms_of_an_earlier_claim_do_not_count(run: Run) -> None:
    """A cleared task keeps its XComs until it starts, and a user may mark it before that."""
    [path] = waiting(run, "a")
    [entry] = run.acquire()
    result = left_by(entry, result_of(entry))
    failure = left_by(entry, RoundFailure(Reason.from_text("denied", kind="LakeNotWritable")))
    settle(run.client, entry, result, None)
    run.client.statuses.request_round(path)
    [again] = run.acquire()
    verdict = settle(run.client, again, result, failure, "failed", 0.0)
    assert (verdict.reported, run.status(path).failures) == ("released", 0)
    assert "the task tier failed before it began" in verdict.reason


def test_a_failure_file_that_holds_a_secret_is_not_sent_on(run: Run) -> None:
    """As a driver would leave it that masks nothing."""
    [path] = waiting(run, "a")
    [entry] = run.acquire()
    left = left_by(entry, RoundFailure(Reason("Broken", "it is")))
    content = read_json(left["failure_uri"]) or {}
    write_json(left["failure_uri"], {**content, "reason": "login: password=planted"})
    assert settle(run.client, entry, None, left).reason == WITHHELD
    assert run.status(path).last_error == WITHHELD


@pytest.mark.parametrize("earlier", [False, True])
def test_settle_of_a_lost_task(run: Run, earlier: bool) -> None:
    [path] = waiting(run, "a")
    [entry] = run.acquire()
    if earlier:
        left_by(entry, RoundFailure(Reason("NetworkError", "away")))
    settle(run.client, entry, None, None)
    said = f"DriverLost: {TASK_LOST}; an earlier try failed: NetworkError: away"
    assert run.status(path).last_error == (said if earlier else TASK_LOST)


def test_settle_trusts_a_result_that_only_its_file_tells(run: Run) -> None:
    """The driver committed; the task around it was killed before it could say so."""
    [path] = waiting(run, "a")
    [entry] = run.acquire()
    left_by(entry, result_of(entry))
    xcom = {"kind": "TierTimedOut", "reason": "too long"}
    assert settle(run.client, entry, None, xcom).reported == "finished"
    assert run.status(path).last_error is None


def test_settle_of_a_lost_claim_reports_nothing(run: Run) -> None:
    [path] = waiting(run, "a")
    [entry] = run.acquire()
    lost = left_by(entry, result_of(entry, "claim_lost"))
    assert settle(run.client, entry, lost, None).reported == "nothing"
    assert run.status(path).status == "Tiering"


def test_settle_of_a_dropped_table(run: Run) -> None:
    [path] = waiting(run, "a")
    [entry] = run.acquire()
    run.client.admin.drop_table(path)
    verdict = settle(run.client, entry, None, {"kind": "TableNotExist", "reason": "gone"})
    assert verdict.reason.startswith("TableNotExist")


def keys_of_killed(entry: ClaimedTable) -> Path:
    """The keys file that a killed attempt has left: the driver of the next one has its own name."""
    uri = f"{keys_uri(entry['plan_uri'], 'killed')}-{entry['table']}.json"
    write_json(uri, {"version": 1}, private=True)
    return Path(uri.removeprefix("file://"))


@pytest.mark.parametrize("reported", [False, True])
def test_settle_of_a_result_deletes_the_keys_of_a_killed_attempt(run: Run, reported: bool) -> None:
    waiting(run, "a")
    [entry] = run.acquire()
    left = keys_of_killed(entry)
    assert left.exists()
    xcom = {**left_by(entry, result_of(entry)), "reported": reported}
    assert settle(run.client, entry, xcom, None).reported == "finished"
    assert not left.exists()
    assert read_json(xcom["result_uri"]) is not None, "only keys are deleted"


# ---- drop ----


def test_drop_lets_go_of_what_was_never_settled(run: Run) -> None:
    paths = waiting(run, "a", "b", "c")
    entries = {entry["table"]: entry for entry in run.acquire()}
    settled, committed = entries["shop.a"], entries["shop.b"]
    settle(run.client, settled, left_by(settled, result_of(settled)), None)
    left_by(committed, result_of(committed))
    assert sorted(run.drop()) == [
        ("shop.b", "finished", "committed"),
        ("shop.c", "released", NOT_BEGUN),
    ]
    assert run.status(paths[2]).failures == 0, "its tier task has never begun"
    assert run.status(paths[0]).status == "Scheduled", "not reported a second time"
    assert run.drop() == []


def test_drop_of_a_run_that_claimed_nothing(run: Run) -> None:
    assert run.drop() == []


def test_drop_without_the_work_folder_goes_by_the_entries(run: Run) -> None:
    [path] = waiting(run, "a")
    entries = run.acquire()
    [verdict] = drop(run.client, "nowhere://x", JOB, entries)
    assert (verdict.reported, verdict.reason) == ("released", NOT_BEGUN)
    assert run.status(path).status == "Pending"


def test_drop_of_a_task_that_left_nothing(run: Run) -> None:
    """It had begun, so its worker was lost, and its settle task never ran."""
    [path] = waiting(run, "a")
    [entry] = run.acquire()
    mark_started(entry["plan_uri"], "1")
    left = keys_of_killed(entry)
    assert run.drop() == [("shop.a", "failed", RUN_ENDED)]
    assert run.status(path).failures == 1
    assert not left.exists()


def test_what_a_killed_run_claimed_on_apache_fluss_is_found_by_its_name(tmp_path: Path) -> None:
    """Its heartbeat has no field for a worker: the recorded statuses do."""
    with status_shop(tmp_path / "data") as shop:
        path = shop.create("orders")
        claim = shop.claim(path)
        another = shop.another()
        assert another.tiering.claims_of("run-2") == []
        assert another.tiering.claims_of("run-1") == [claim]
        [verdict] = drop(another, f"file://{tmp_path / 'work'}", "run-1")
        assert (verdict.table, verdict.reported) == ("shop.orders", "released")
        [status] = another.statuses.list(path)
        assert (status.status, status.failures) == ("Pending", 0)
        assert another.tiering.claims_of("run-1") == []
        again = shop.another().tiering.claim([path])
        assert again is not None, "free at once"
        assert again.tiering_epoch > claim.tiering_epoch
