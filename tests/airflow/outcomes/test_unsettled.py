"""Tables that no task could report: their files tell what became of them."""

from dataclasses import replace
from pathlib import Path

import pytest

from sluice.errors import SparkSettingsWrong
from sluice.model import Claim, Reason, TablePath
from sluice.rounds.records.json_files import read_json, write_json
from sluice.rounds.records.plan_file import PlanFile, plan_uri
from sluice.rounds.records.result import RoundFailure, RoundResult
from sluice_airflow.claims.claims import ClaimedTable, claimed_table
from sluice_airflow.outcomes.account import CLAIM_LOST, NOT_TIERED, PAUSED, of_verdict
from sluice_airflow.outcomes.left_files import TIER_NOT_STARTED
from sluice_airflow.outcomes.settle import unsettled
from sluice_airflow.outcomes.verdict import Verdict

CLAIM = Claim(7, TablePath("shop", "orders"), 3, 1)
FAILURE = RoundFailure(Reason("LakeNotWritable", "no space is left"))


@pytest.fixture
def entry(tmp_path: Path) -> ClaimedTable:
    plan = PlanFile(CLAIM, "sluice-job", "grpc://127.0.0.1:1")
    uri = plan_uri(f"file://{tmp_path}", plan.lease_id, CLAIM)
    write_json(uri, plan.to_json())
    return claimed_table(plan, uri)


def leave(entry: ClaimedTable, outcome: RoundResult | RoundFailure) -> None:
    kind = "result" if isinstance(outcome, RoundResult) else "failure"
    write_json(entry["plan_uri"].replace("plan.json", f"{kind}-a.json"), outcome.to_json())


def test_the_reason_of_a_failure(entry: ClaimedTable) -> None:
    leave(entry, FAILURE)
    assert unsettled(entry) == Verdict("shop.orders", "failed", "LakeNotWritable: no space is left")


@pytest.mark.parametrize("kind", [TIER_NOT_STARTED, SparkSettingsWrong.__name__])
def test_what_is_no_failure_of_the_table_is_released(entry: ClaimedTable, kind: str) -> None:
    """As settle reports it."""
    leave(entry, RoundFailure(Reason(kind, "no application began")))
    verdict = unsettled(entry)
    assert verdict == Verdict("shop.orders", "released", f"{kind}: no application began")
    assert of_verdict(verdict)["became"] == NOT_TIERED


def test_a_pause_and_a_lost_claim_are_no_failures(entry: ClaimedTable) -> None:
    leave(entry, RoundFailure(Reason("TablePaused", "a user paused it")))
    paused = unsettled(entry)
    assert paused is not None
    assert of_verdict(paused)["became"] == PAUSED
    leave(entry, replace(RoundResult.of(CLAIM, "claim_lost"), notes=("another has it",)))
    lost = unsettled(entry)
    assert lost == Verdict("shop.orders", "nothing", "another has it", "claim_lost")
    assert of_verdict(lost)["became"] == CLAIM_LOST


def test_a_round_that_ended_too_early(entry: ClaimedTable) -> None:
    """A run that must reach an end has not tiered the table, although rows are in the lake."""
    plan = PlanFile.from_json(read_json(entry["plan_uri"]) or {})
    write_json(entry["plan_uri"], replace(plan, until={"0": 10}).to_json())
    result = RoundResult.of(CLAIM, "committed", rows=5, lake_snapshot_id=9, offsets={"0": 5})
    leave(entry, replace(result, forced="the limit of 60 s"))
    for must, reported in ((False, "finished"), (True, "failed")):
        entry["must_reach_end"] = must
        verdict = unsettled(entry)
        assert verdict is not None
        assert (verdict.reported, verdict.rows) == (reported, 5)
    assert verdict.reason.startswith("RoundsNotEnough: ")


def test_a_result_counts_more_than_a_stop(entry: ClaimedTable) -> None:
    assert unsettled(entry) is None
    leave(entry, RoundFailure(Reason("StoppedByUser", "marked as failed")))
    said = "StoppedByUser: marked as failed"
    assert unsettled(entry) == Verdict("shop.orders", "released", said)
    leave(entry, RoundResult.of(CLAIM, "committed", rows=5, lake_snapshot_id=9, offsets={"0": 5}))
    verdict = unsettled(entry)
    assert verdict is not None
    assert (verdict.reported, verdict.rows, verdict.offsets_sum) == ("finished", 5, 5)
    assert verdict.lake_snapshot_id == "9"
