"""Keeper, tier task, settle and acquire while a lost claim is claimed again, step by step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sluice.client.tiering.tiering import TieringClient
from sluice.errors import NetworkError
from sluice.model import Claim, Reason, TablePath
from sluice.rounds.records.json_files import write_json
from sluice.rounds.records.plan_file import PlanFile, claim_of, plan_uri
from sluice.rounds.records.result import RoundResult, result_uri
from sluice_airflow.acquire import keeper as keeper_module
from sluice_airflow.acquire.acquire import acquire
from sluice_airflow.acquire.keeper import ClaimKeeper
from sluice_airflow.claims import leasing
from sluice_airflow.claims.claimed_again import (
    is_started,
    mark_ended,
    mark_started,
    newest_claim,
    replace_claim,
)
from sluice_airflow.claims.claims import ClaimedTable, claimed_table
from sluice_airflow.config.connection import FlussConnection
from sluice_airflow.outcomes import left_files, settle
from sluice_airflow.tier import start_claims
from tests.airflow.acquire.test_keeper import INTERVAL_MS, JOB, TEN_MINUTES_MS, Shop, committed
from tests.airflow.acquire.test_keeper import shop as shop
from tests.airflow.claims.test_keep_task import Airflow
from tests.airflow.claims.test_keep_task import airflow as airflow
from tests.airflow.operators.test_start_claim import start
from tests.support.statuses.status_shop import MINUTE_MS, status_shop

STEPS = ["lease_snapshots", "replace_claim", "write_json"]
"""Functions that the keeper calls after it has claimed a table again."""


class Killed(BaseException):
    """Ends the keeper like SIGKILL: no handler of errors sees it."""


def lose(shop: Shop, entry: ClaimedTable) -> None:
    shop.client.tiering.release(claim_of(entry), Reason.from_text("another client"))


def work(shop: Shop, keeper: ClaimKeeper, ms: int = INTERVAL_MS) -> None:
    """What the trigger does while this time passes."""
    until = shop.clock.ms + ms
    while shop.clock.ms < until:
        shop.clock.ms += INTERVAL_MS
        if keeper.beat():
            keeper.claim_again()


def is_held(shop: Shop, claim: Claim) -> bool:
    return shop.client.tiering.still_claimed(claim)


def at(monkeypatch: pytest.MonkeyPatch, step: str, act: Callable[..., Any]) -> None:
    monkeypatch.setattr(leasing if step == "lease_snapshots" else keeper_module, step, act)


def raising(error: BaseException) -> Callable[..., Any]:
    def act(*_: object) -> None:
        raise error

    return act


def lost_claim(shop: Shop) -> tuple[TablePath, ClaimedTable, ClaimKeeper]:
    """A keeper that has noticed the loss of a claim."""
    [path] = shop.tables(1)
    [entry] = shop.acquire()
    keeper = shop.keeper()
    assert not keeper.beat()
    lose(shop, entry)
    assert keeper.beat()
    return path, entry, keeper


def killed_at(shop: Shop, monkeypatch: pytest.MonkeyPatch, step: str) -> Any:
    path, entry, keeper = lost_claim(shop)
    with monkeypatch.context() as killing:
        at(killing, step, raising(Killed()))
        with pytest.raises(Killed):
            keeper.claim_again()
    assert shop.failures(path) == [("Tiering", 0)]
    return path, entry


@pytest.mark.parametrize("step", STEPS)
def test_a_new_keeper_continues_what_a_killed_one_claimed(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    path, entry = killed_at(shop, monkeypatch, step)
    work(shop, shop.keeper(), TEN_MINUTES_MS)
    new = newest_claim(entry)
    assert shop.failures(path) == [("Tiering", 0)]
    assert claim_of(new).tiering_epoch == claim_of(entry).tiering_epoch + 1
    assert is_held(shop, claim_of(new))


@pytest.mark.parametrize("step", STEPS)
def test_a_new_keeper_releases_what_the_tier_task_did_not_wait_for(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """A crashed triggerer is replaced after the time that a tier task waits."""
    path, entry = killed_at(shop, monkeypatch, step)
    give_up(entry)
    keeper = shop.keeper()
    for _ in range(3):
        work(shop, keeper)
    assert shop.client.tiering.claims_of(JOB) == []
    assert shop.failures(path) == [("Pending", 0)]
    assert not keeper.beat()


@pytest.mark.parametrize("step", STEPS)
def test_an_error_while_a_table_is_claimed_again_is_retried(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """File systems raise errors of many kinds."""
    path, entry, keeper = lost_claim(shop)
    with monkeypatch.context() as failing:
        at(failing, step, raising(RuntimeError("the endpoint is away")))
        assert keeper.claim_again() == 0
        assert shop.failures(path) == [("Pending", 0)]
    work(shop, keeper, TEN_MINUTES_MS)
    assert shop.failures(path) == [("Tiering", 0)]
    assert is_held(shop, claim_of(newest_claim(entry)))


def give_up(entry: ClaimedTable) -> None:
    """What a tier task leaves that has waited for a new claim for long enough."""
    mark_started(entry["plan_uri"], "try-1")
    lost = RoundResult.of(claim_of(entry), "claim_lost")
    write_json(result_uri(entry["plan_uri"], "try-1"), lost.to_json())


def test_a_claim_lost_after_the_first_heartbeat_of_the_tier_task(
    shop: Shop, airflow: Airflow, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The keeper claims the table again before the task has marked that it works on it."""
    path = shop.tables(1)[0]
    [entry] = shop.acquire()
    keeper = shop.keeper()
    keeper.beat()

    def late(plan: str, attempt: str, task: str) -> None:
        monkeypatch.setattr(start_claims, "mark_started", mark_started)
        lose(shop, entry)
        assert keeper.beat()
        assert keeper.claim_again() == 1
        mark_started(plan, attempt, task)

    monkeypatch.setattr(start_claims, "mark_started", late)
    claim = start(shop, airflow, entry)
    assert claim == claim_of(newest_claim(entry))
    work(shop, keeper, 3 * INTERVAL_MS)
    assert is_held(shop, claim)
    assert shop.failures(path) == [("Tiering", 0)]


def test_a_claim_lost_while_settle_reads_its_outcome(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The keeper claims the table again before settle has marked that it reports it."""
    path = shop.tables(1)[0]
    [entry] = shop.acquire()
    keeper = shop.keeper()
    keeper.beat()

    def late(plan: str) -> None:
        monkeypatch.setattr(left_files, "mark_ended", mark_ended)
        lose(shop, entry)
        assert keeper.beat()
        assert keeper.claim_again() == 1
        mark_ended(plan)

    monkeypatch.setattr(left_files, "mark_ended", late)
    assert settle.settle(shop.client, entry, None, None, "failed").reported == "released"
    assert shop.client.tiering.claims_of(JOB) == []
    assert shop.failures(path) == [("Pending", 0)]


def after_the_plan(monkeypatch: pytest.MonkeyPatch, act: Callable[[], None]) -> None:
    """Acts once the keeper has written its files, before it looks for the tier task."""
    left = {"replace_claim", "write_json"}

    def wrapped(name: str) -> Callable[..., None]:
        write = getattr(keeper_module, name)

        def written(*arguments: Any) -> None:
            write(*arguments)
            left.discard(name)
            if not left:
                act()

        return written

    for name in tuple(left):
        monkeypatch.setattr(keeper_module, name, wrapped(name))


def test_a_claim_that_the_tier_task_has_begun_is_not_released(
    shop: Shop, airflow: Airflow, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keeper and task notice each other."""
    path, entry, keeper = lost_claim(shop)
    begun: list[Claim] = []

    def task() -> None:
        mark_started(entry["plan_uri"], "try-1")  # it has waited long enough
        begun.append(start(shop, airflow, entry))

    after_the_plan(monkeypatch, task)
    keeper.claim_again()
    work(shop, keeper, 4 * INTERVAL_MS)
    assert begun == [claim_of(newest_claim(entry))]
    assert is_held(shop, begun[0])
    assert shop.failures(path) == [("Tiering", 0)]


def test_a_claim_that_came_too_late_is_released(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the keeper notices the task."""
    path, entry, keeper = lost_claim(shop)
    after_the_plan(monkeypatch, lambda: give_up(entry))
    keeper.claim_again()
    assert shop.failures(path)[0][1] == 0
    for _ in range(4):
        work(shop, keeper)
    assert shop.client.tiering.claims_of(JOB) == []
    assert shop.failures(path) == [("Pending", 0)]


def test_a_claim_whose_release_fails_gets_heartbeats_until_the_run_ends(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, entry, keeper = lost_claim(shop)
    after_the_plan(monkeypatch, lambda: give_up(entry))
    keeper.claim_again()
    with monkeypatch.context() as network:
        network.setattr(TieringClient, "release", raising(NetworkError("away")))
        work(shop, keeper, 4 * INTERVAL_MS)
    work(shop, keeper, TEN_MINUTES_MS)
    assert shop.failures(path) == [("Tiering", 0)]
    settle.drop(shop.client, shop.work_uri, JOB)
    assert shop.failures(path) == [("Pending", 0)]


def test_a_table_that_acquire_claimed_itself_is_not_claimed_again(shop: Shop) -> None:
    """acquire_lease was retried or cleared after the keeper had noticed the loss."""
    path, old, keeper = lost_claim(shop)
    [entry] = shop.acquire()
    assert claim_of(entry) != claim_of(old)
    work(shop, keeper)
    mark_started(entry["plan_uri"], "1")
    assert settle.settle(shop.client, entry, committed(entry), None).reported == "finished"
    shop.client.statuses.request_round(path)
    for keeping in (keeper, shop.keeper()):
        work(shop, keeping, 3 * INTERVAL_MS)
        assert shop.client.tiering.claims_of(JOB) == []


def test_a_table_that_acquire_left_out_is_not_claimed_again(shop: Shop) -> None:
    """No tier task of the run would tier it."""
    path, _, keeper = lost_claim(shop)
    assert shop.acquire(JOB, 0) == []
    for keeping in (keeper, shop.keeper()):
        work(shop, keeping, 3 * INTERVAL_MS)
        assert shop.failures(path) == [("Pending", 0)]


def test_a_claim_with_a_smaller_epoch_may_be_the_newer_one(shop: Shop) -> None:
    """An Apache Fluss coordinator that restarts begins at tiering epoch 1 again."""
    [path] = shop.tables(1)
    [entry] = shop.acquire()
    claim = claim_of(entry)
    before = PlanFile(replace(claim, tiering_epoch=claim.tiering_epoch + 2), JOB, "grpc://x:1")
    uri = plan_uri(shop.work_uri, JOB, before.claim)
    write_json(uri, before.to_json())
    replace_claim(uri, entry)
    shop.pass_by(TEN_MINUTES_MS, shop.keeper())
    assert shop.failures(path) == [("Tiering", 0)]
    assert shop.acquire() == [entry]
    assert newest_claim(claimed_table(before, uri)) == entry
    assert not is_started(entry["plan_uri"])


@pytest.mark.parametrize("is_valid", [True, False])
def test_on_apache_fluss_a_new_keeper_continues_only_a_valid_claim(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_valid: bool
) -> None:
    """Its statuses name a claim that nobody has reported, also after its end."""
    with status_shop(tmp_path / "data") as plain:
        path = plain.create("mine")
        plain.clock.ms += MINUTE_MS
        work_uri = f"file://{tmp_path / 'work'}"
        connection = FlussConnection(plain.address, work_uri=work_uri)
        [entry] = acquire(plain.client, connection, JOB, ["*"], 10)
        why = Reason.from_text("another client")
        plain.another().tiering._give_back(claim_of(entry), why)
        with monkeypatch.context() as killing:
            at(killing, "lease_snapshots", raising(Killed()))
            keeper = ClaimKeeper(plain.another(), work_uri, JOB)
            assert keeper.beat()
            with pytest.raises(Killed):
                keeper.claim_again()
        [held] = plain.client.tiering.claims_of(JOB)
        if not is_valid:
            plain.another().tiering._give_back(held, why)
        keeper = ClaimKeeper(plain.another(), work_uri, JOB)
        assert keeper.beat()
        assert keeper.claim_again() == 1
        again = claim_of(newest_claim(entry))
        assert again.tiering_epoch == held.tiering_epoch + (not is_valid)
        assert plain.client.tiering.heartbeat([again]) == {again.table_id: None}
        assert plain.status(path).failures == 0
