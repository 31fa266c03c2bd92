"""A tier task whose claim was lost before it started; only Airflow's side is a fake."""

from __future__ import annotations

import logging
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from sluice.errors import ClaimLost
from sluice.model import Claim, Reason, TablePath
from sluice.rounds.records.plan_file import claim_of
from sluice.rounds.records.result import RoundFailure, RoundResult
from sluice_airflow.claims.claims import ClaimedTable
from sluice_airflow.operators.keep import missing_keeper
from sluice_airflow.operators.tier import CLAIMED_AGAIN_S
from sluice_airflow.tier import start_claims as start_module
from sluice_airflow.tier.reports import report
from sluice_airflow.tier.start_claims import start_claims
from sluice_airflow.tier.tried_table import TriedTable
from tests.airflow.acquire.test_keeper import Shop
from tests.airflow.acquire.test_keeper import shop as shop
from tests.airflow.claims.test_keep_task import KEEP, Airflow
from tests.airflow.claims.test_keep_task import airflow as airflow

pytestmark = pytest.mark.filterwarnings("default")
"""Airflow 3.1 warns of parts of its own."""
WAIT_S = 3.0
"""A task that waits for a keeper does so for longer."""


def lost_claim(shop: Shop) -> tuple[TablePath, ClaimedTable]:
    [path] = shop.tables(1)
    [entry] = shop.acquire()
    shop.client.tiering.release(claim_of(entry), Reason.from_text("another client"))
    return path, entry


@pytest.fixture(autouse=True)
def _short_poll(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start_module, "CLAIMED_AGAIN_POLL_S", 0.05)


def start(shop: Shop, airflow: Airflow, entry: ClaimedTable) -> Claim:
    table = TriedTable(entry, "try-1")
    wait_s = 1.0 + CLAIMED_AGAIN_S
    held = start_claims(shop.client, [table], wait_s, lambda: missing_keeper(airflow, KEEP))
    if isinstance(table.outcome, RoundResult):
        raise ClaimLost(table.outcome.notes[0])
    assert held == [table]
    return table.claim


def test_no_secret_is_in_the_log_of_a_report(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    [path] = shop.tables(1)
    [entry] = shop.acquire()
    table = TriedTable(entry, "try-1")
    table.fail(RoundFailure(Reason("LakeNotWritable", "denied for planted4716")))
    with caplog.at_level(logging.INFO):
        assert report(shop.client, table, ["planted4716"])
    [told] = [one.getMessage() for one in caplog.records if one.name.endswith("tier.reports")]
    assert told.startswith(f"{path}: failed (LakeNotWritable: denied for ")
    assert "planted4716" not in told


@pytest.mark.parametrize("state", ["success", "failed", "skipped", "removed", "no task"])
def test_a_task_waits_for_no_keeper_that_has_ended(
    shop: Shop, airflow: Airflow, state: str
) -> None:
    _, entry = lost_claim(shop)
    airflow.states[KEEP] = state
    if state == "no task":
        del airflow.states[KEEP]
    began = time.monotonic()
    with pytest.raises(ClaimLost, match=f"; not claimed again: .*{state}"):
        start(shop, airflow, entry)
    assert time.monotonic() - began < WAIT_S


def test_a_task_waits_for_no_keeper_whose_triggerer_has_stopped(
    shop: Shop, airflow: Airflow
) -> None:
    _, entry = lost_claim(shop)
    airflow.triggerer = "unhealthy"
    began = time.monotonic()
    with pytest.raises(ClaimLost, match="not claimed again: no triggerer runs"):
        start(shop, airflow, entry)
    assert time.monotonic() - began < WAIT_S


def claimed_meanwhile(shop: Shop, airflow: Airflow, entry: ClaimedTable) -> Claim:
    """What the task starts with if the keeper claims the table again while the task waits."""
    with ThreadPoolExecutor(1) as pool:
        starting = pool.submit(start, shop, airflow, entry)
        time.sleep(0.2)
        keeper = shop.keeper()
        assert keeper.beat()
        assert keeper.claim_again() == 1
        return starting.result(30)


@pytest.mark.parametrize("state", ["deferred", None])
def test_a_task_waits_for_a_keeper(shop: Shop, airflow: Airflow, state: str | None) -> None:
    """It sends heartbeats, or Airflow will start it."""
    path, entry = lost_claim(shop)
    airflow.states[KEEP] = state
    claim = claimed_meanwhile(shop, airflow, entry)
    assert claim.tiering_epoch == entry["tiering_epoch"] + 1
    assert shop.failures(path) == [("Tiering", 0)]


def test_a_task_that_cannot_read_the_state_of_the_keeper_waits(
    shop: Shop, airflow: Airflow
) -> None:
    _, entry = lost_claim(shop)
    airflow.is_available = lambda: False
    claim = claimed_meanwhile(shop, airflow, entry)
    assert claim.tiering_epoch == entry["tiering_epoch"] + 1
