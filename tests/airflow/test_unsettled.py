"""Tables that no task could report: their files tell what became of them."""

from pathlib import Path

import pytest

from sluice.model import Claim, Reason, TablePath
from sluice.rounds.files import PlanFile, RoundFailure, RoundResult, plan_uri, write_json
from sluice_airflow.claims import ClaimedTable, claimed_table
from sluice_airflow.settle import Verdict, unsettled

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


def test_a_result_counts_and_a_stop_by_a_user_does_not(entry: ClaimedTable) -> None:
    assert unsettled(entry) is None
    leave(entry, RoundFailure(Reason("StoppedByUser", "marked as failed")))
    assert unsettled(entry) is None
    leave(entry, RoundResult.of(CLAIM, "committed", rows=5, lake_snapshot_id=9, offsets={"0": 5}))
    verdict = unsettled(entry)
    assert verdict is not None
    assert (verdict.reported, verdict.rows, verdict.offsets_sum) == ("finished", 5, 5)
    assert Verdict.from_xcom(verdict.to_xcom()) == verdict
    assert verdict.to_xcom()["lake_snapshot_id"] == "9"
