"""Leases of KV snapshots that the keeper of a run takes while the run ends."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from airflow.sdk.execution_time.comms import SkipDownstreamTasks

from sluice.client import Client
from sluice.model import BucketSnapshot, Claim, Reason
from sluice.rounds.records.plan_file import claim_of
from sluice_airflow.acquire import keeper as keeper_module
from sluice_airflow.acquire.keeper import ClaimKeeper
from sluice_airflow.airflow_api.airflow_names import AirflowFailException
from sluice_airflow.claims import leasing
from sluice_airflow.claims.claimed_again import mark_started, newest_claim
from sluice_airflow.claims.claims import ClaimedTable
from sluice_airflow.group import ACQUIRE
from sluice_airflow.operators.drop import SluiceDropOperator
from sluice_airflow.outcomes.settle import drop
from tests.airflow.claims.test_keep_task import DROP, KEEP, Airflow, Triggerer
from tests.airflow.claims.test_keep_task import airflow as airflow
from tests.airflow.claims.test_keep_task import keepers as keepers
from tests.airflow.claims.test_keep_task import triggerer as triggerer
from tests.airflow.claims.test_leasing import JOB, Run
from tests.airflow.claims.test_leasing import run as run
from tests.airflow.place import wait_until

Snapshots = tuple[BucketSnapshot, ...]
pytestmark = pytest.mark.filterwarnings("default")
"""Airflow 3.1 warns of parts of its own."""


@pytest.fixture
def shop(run: Run) -> Run:
    """The place of the trigger."""
    return run


def acquire(run: Run, *names: str) -> list[ClaimedTable]:
    run.wait(*(run.keyed(name).path for name in names))
    entries = run.acquire()
    assert run.held() == {JOB: 2 * len(names)}
    return entries


def lose(run: Run, *entries: ClaimedTable) -> None:
    for entry in entries:
        run.client.tiering.release(claim_of(entry), Reason.from_text("another client"))


def keeper_with_a_lost_claim(run: Run) -> ClaimKeeper:
    entries = acquire(run, "a")
    keeper = ClaimKeeper(run.client, f"file://{run.work}", JOB)
    keeper.beat()
    lose(run, *entries)
    assert keeper.beat()
    return keeper


def before_leasing(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> list[str]:
    """Acts before the keeper leases snapshots. Returns the tables whose snapshots it leases."""
    lease_snapshots, tables = leasing.lease_snapshots, list[str]()

    def acting(client: Client, lease_id: str, claim: Claim) -> Snapshots:
        tables.append(str(claim.path))
        act()
        return lease_snapshots(client, lease_id, claim)

    monkeypatch.setattr(leasing, "lease_snapshots", acting)
    return tables


@pytest.mark.parametrize("end", ["the run ends", "the trigger is cancelled"])
def test_a_lease_after_the_drop_is_released(
    run: Run,
    airflow: Airflow,
    triggerer: Triggerer,
    keepers: list[ClaimKeeper],
    monkeypatch: pytest.MonkeyPatch,
    end: str,
) -> None:
    """The keeper has a table's claim when drop_lease starts, and leases its snapshots later."""
    entries = acquire(run, "a", "b")

    def ended() -> None:
        if end == "the run ends":
            airflow.states[DROP] = "running"
        else:
            triggerer.cancel()
        drop(run.client, f"file://{run.work}", JOB, entries)
        assert run.held() == {}
        wait_until(keepers[0]._stopping.is_set, 10, "the stop of the keeper")

    tables = before_leasing(monkeypatch, ended)
    running = triggerer.start()
    lose(run, *entries)
    wait_until(running.done, 60, "the end of the trigger")
    assert len(tables) == 1, "it leased the snapshots of another table"
    assert run.held() == {}
    assert run.client.tiering.claims_of(JOB) == []


def test_a_table_whose_plan_cannot_be_written_leaves_no_lease(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    keeper = keeper_with_a_lost_claim(run)
    before_leasing(monkeypatch, lambda: leasing.drop_lease(run.client, JOB))

    def full(*_: object) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr(keeper_module, "write_json", full)
    assert keeper.claim_again() == 0
    assert run.held() == {}


def test_a_new_claim_that_was_lost_takes_no_snapshots_of_its_successor(run: Run) -> None:
    """Airflow's API fails, so the first new claim was not confirmed when it was lost."""
    [entry] = acquire(run, "a")
    keeper = ClaimKeeper(run.client, f"file://{run.work}", JOB)
    keeper.beat()
    for _ in range(2):
        lose(run, entry)
        assert keeper.beat()
        assert keeper.claim_again() == 1
        entry = newest_claim(entry)
    mark_started(entry["plan_uri"], "1")
    keeper.release_again()
    assert run.held() == {JOB: 2}
    assert [claim.path for claim in run.client.tiering.claims_of(JOB)] == [claim_of(entry).path]


def test_nothing_is_leased_for_a_claim_during_which_the_keeper_was_stopped(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    keeper = keeper_with_a_lost_claim(run)
    tables = before_leasing(monkeypatch, lambda: None)
    monkeypatch.setattr(keeper_module, "failpoint", lambda _: keeper.stop())
    assert keeper.claim_again() == 0
    assert tables == []
    assert run.client.tiering.claims_of(JOB) == []


def test_the_run_drops_its_lease_after_its_keeper_has_ended(
    run: Run,
    airflow: Airflow,
    triggerer: Triggerer,
    keepers: list[ClaimKeeper],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So nothing has to release what a keeper leases and is killed before it releases it."""
    entries = acquire(run, "a")
    held: list[dict[str, int]] = []

    def stopped() -> None:
        wait_until(keepers[0]._stopping.is_set, 30, "the stop of the keeper")
        held.append(run.held())

    tables = before_leasing(monkeypatch, stopped)
    running = triggerer.start()
    running.add_done_callback(lambda _: airflow.states.update({KEEP: "success"}))
    lose(run, *entries)
    wait_until(lambda: bool(tables), 30, "the claim")

    def xcom_pull(task_ids: str, key: str = "", **_: object) -> object:
        if task_ids != ACQUIRE or key:
            return None
        return [{"label": "shop.a", "tables": entries}]

    airflow.xcom_pull = xcom_pull  # type: ignore[attr-defined]
    airflow.xcom_push = lambda **_: None  # type: ignore[attr-defined]
    airflow.states |= {DROP: "running", ACQUIRE: "success"}
    task = SluiceDropOperator(task_id=DROP, lease_id=JOB)
    with pytest.raises(AirflowFailException, match="1 of 1 table was not tiered"):
        task.execute({"ti": airflow})  # type: ignore[typeddict-item]
    assert running.result(30) == ["TaskSuccessEvent"]
    assert SkipDownstreamTasks(tasks=[KEEP]) not in airflow.sent
    assert held == [{JOB: 2}]
    assert run.held() == {}
