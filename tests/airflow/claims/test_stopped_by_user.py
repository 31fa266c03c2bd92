"""What a user did to a tier task is no failure of the table: settle, without Airflow."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from sluice.cli.tiering.status import print_notes
from sluice.errors import DriverLost
from sluice.model import Reason, TablePath, TieringStatus
from sluice.rounds.records.json_files import write_json
from sluice.rounds.records.result import RoundFailure, failure_uri
from sluice_airflow.claims.claimed_again import mark_started
from sluice_airflow.claims.claims import ClaimedTable
from sluice_airflow.outcomes.left_files import TASK_LOST
from sluice_airflow.outcomes.settle import NOT_STARTED, settle
from sluice_airflow.tier.errors import stop_of
from tests.airflow.claims.test_claims import Run, left_by, result_of, waiting
from tests.airflow.claims.test_claims import run as run
from tests.docs.blocks import claimed_blocks
from tests.support.statuses.status_shop import status_shop

MARKED = "StoppedByUser: a user marked the task tier as success before it had a result"


def claimed(run: Run) -> tuple[TablePath, ClaimedTable]:
    [path] = waiting(run, "orders")
    [entry] = run.acquire()
    return path, entry


def is_no_failure(status: TieringStatus) -> bool:
    return (status.status, status.failures, status.last_error) == ("Pending", 0, None)


def test_marked_success_by_hand(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    path, entry = claimed(run)
    verdict = settle(run.client, entry, None, None, "success")
    assert (verdict.reported, verdict.reason) == ("released", MARKED)
    status = run.status(path)
    assert is_no_failure(status)
    assert status.stopped == MARKED
    print_notes([status])
    _, shown = claimed_blocks("docs/airflow.md", __file__)
    assert capsys.readouterr().out == shown.content.rstrip("\n") + "\n"
    [again] = run.acquire(job="2")
    settle(run.client, again, left_by(again, result_of(again)), None)
    assert run.status(path).stopped is None, "the next end of a round clears it"


def test_a_run_that_is_ended_before_the_task_ran(run: Run) -> None:
    path, entry = claimed(run)
    assert settle(run.client, entry, None, None, "skipped").reported == "released"
    assert is_no_failure(run.status(path))


def test_a_failed_try_stays_a_failure_when_its_retry_is_skipped(run: Run) -> None:
    path, entry = claimed(run)
    left_by(entry, RoundFailure(Reason("NetworkError", "away")))
    assert settle(run.client, entry, None, None, "skipped").reported == "failed"
    assert run.status(path).last_error == "NetworkError: away"


def test_marked_failed_while_it_ran(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """Airflow kills the task some seconds later: only then it leaves its file."""
    path, entry = claimed(run)
    stopped = RoundFailure(Reason("StoppedByUser", str(stop_of("failed"))))

    def leave() -> None:
        time.sleep(0.3)
        write_json(failure_uri(entry["plan_uri"], "1"), stopped.to_json())

    mark_started(entry["plan_uri"], "1")
    thread = threading.Thread(target=leave)
    thread.start()
    verdict = settle(run.client, entry, None, None, "failed", 30)
    thread.join()
    assert verdict.reported == "released"
    assert is_no_failure(run.status(path))
    assert run.status(path).stopped == str(stopped.reason)
    capsys.readouterr()
    print_notes([run.status(path)])
    shown, _ = claimed_blocks("docs/airflow.md", __file__)
    assert capsys.readouterr().out == shown.content.rstrip("\n") + "\n"


def test_a_lost_worker_after_a_clear_is_a_failure(run: Run) -> None:
    """The stop file of the cleared try is older than the try whose worker was lost."""
    path, entry = claimed(run)
    mark_started(entry["plan_uri"], "1")
    left_by(entry, RoundFailure(Reason("StoppedByUser", str(stop_of("restarting")))))
    mark_started(entry["plan_uri"], "2")
    assert settle(run.client, entry, None, None, "failed", 0.01).reported == "failed"
    assert (run.status(path).failures, run.status(path).last_error) == (1, TASK_LOST)


def test_a_lost_worker_after_a_clear_is_a_failure_for_drop(run: Run) -> None:
    path, entry = claimed(run)
    mark_started(entry["plan_uri"], "1")
    left_by(entry, RoundFailure(Reason("StoppedByUser", str(stop_of("restarting")))))
    mark_started(entry["plan_uri"], "2")
    assert [reported for _, reported, _ in run.drop()] == ["failed"]
    assert run.status(path).failures == 1


@pytest.mark.parametrize("leaves", [True, False])
def test_a_retry_that_is_marked_success_while_it_runs(run: Run, leaves: bool) -> None:
    """The first try has failed. Airflow kills the second one, which may leave its file."""
    path, entry = claimed(run)
    mark_started(entry["plan_uri"], "1")
    left_by(entry, RoundFailure(Reason("NetworkError", "away")))
    mark_started(entry["plan_uri"], "2")
    stopped = RoundFailure(Reason("StoppedByUser", str(stop_of("success"))))

    def leave() -> None:
        time.sleep(0.3)
        if leaves:
            write_json(failure_uri(entry["plan_uri"], "2"), stopped.to_json())

    thread = threading.Thread(target=leave)
    thread.start()
    verdict = settle(run.client, entry, None, None, "success", 30 if leaves else 0.01)
    thread.join()
    assert verdict.reported == "released"
    assert is_no_failure(run.status(path))
    assert run.status(path).stopped == (str(stopped.reason) if leaves else MARKED)


def test_a_failed_try_that_is_marked_success_stays_a_failure(run: Run) -> None:
    path, entry = claimed(run)
    mark_started(entry["plan_uri"], "1")
    left_by(entry, RoundFailure(Reason("NetworkError", "away")))
    assert settle(run.client, entry, None, None, "success", 30).reported == "failed"
    assert run.status(path).last_error == "NetworkError: away"


@pytest.mark.parametrize("state", NOT_STARTED)
def test_a_task_that_did_not_begin(run: Run, state: str) -> None:
    """A user marked it, the executor lost it, or a task before it failed: no fault of the table."""
    path, entry = claimed(run)
    verdict = settle(run.client, entry, None, None, state, 30)
    assert verdict.reported == "released"
    assert is_no_failure(run.status(path))
    assert run.status(path).stopped == f"TierNotStarted: {NOT_STARTED[state]}"


def test_a_lost_worker_is_a_failure(run: Run) -> None:
    path, entry = claimed(run)
    mark_started(entry["plan_uri"], "1")
    assert settle(run.client, entry, None, None, "failed", 0.01).reported == "failed"
    assert (run.status(path).failures, run.status(path).last_error) == (1, TASK_LOST)


def test_a_worker_that_is_shut_down_is_a_failure(run: Run) -> None:
    path, entry = claimed(run)
    xcom = left_by(entry, RoundFailure(Reason(DriverLost.__name__, "Airflow stopped the task")))
    assert settle(run.client, entry, None, xcom, "failed", 30).reported == "failed"
    assert run.status(path).failures == 1


def test_a_result_counts_whatever_a_user_did(run: Run) -> None:
    path, entry = claimed(run)
    left_by(entry, result_of(entry))
    assert settle(run.client, entry, None, None, "success").reported == "finished"
    assert run.status(path).stopped is None


@pytest.mark.parametrize("state", ["running", "queued", None, "up_for_retry"])
def test_states_that_no_user_sets(state: str | None) -> None:
    assert stop_of(state) is None


@pytest.mark.parametrize("state", ["success", "failed", "skipped", "restarting"])
def test_states_that_a_user_sets(state: str) -> None:
    assert "a user " in str(stop_of(state))


def test_on_apache_fluss_a_stop_is_recorded_without_a_failure(tmp_path: Path) -> None:
    """Its heartbeat can only report a failure; the recorded status counts none."""
    with status_shop(tmp_path / "data") as shop:
        path = shop.create("orders")
        claim = shop.claim(path)
        shop.client.tiering.release(claim, Reason("StoppedByUser", "a user did it"), stopped=True)
        [status] = shop.another().statuses.list(path)
        assert is_no_failure(status)
        assert status.stopped == "StoppedByUser: a user did it"
        assert shop.another().tiering.claim([path]) is not None, "no back-off"
