"""Rounds of a run of the DAG as far as their plans: claimed, leased, and written down."""

from __future__ import annotations

from pathlib import Path

from sluice.client import Client
from sluice.client.leases.snapshot_lease import bucket_selections
from sluice.model import Claim, TablePath
from sluice.rounds.records.json_files import write_json
from sluice.rounds.records.plan_file import PlanFile, plan_uri
from sluice.rounds.records.result import RoundResult, result_uri


def plan_round(client: Client, work: Path | str, lease_id: str, claim: Claim) -> PlanFile:
    """Leases the newest KV snapshots of a claimed table, and writes the plan of its round."""
    parts = bucket_selections(client.admin, client.admin.table_info(claim.path))
    found = client.leases.acquire_latest(lease_id, parts)
    snapshots = tuple(found.snapshots.values())
    plan = PlanFile(claim, lease_id, client.config.bootstrap, snapshots)
    write_json(plan_uri(str(work), lease_id, claim), plan.to_json())
    return plan


def claim_and_plan(client: Client, work: Path | str, lease_id: str, path: TablePath) -> PlanFile:
    """A round of a table that is due, claimed by a run."""
    claim = client.tiering.claim([path], lease_id)
    assert claim is not None, f"{path} is not due"
    return plan_round(client, work, lease_id, claim)


def write_result(work: Path | str, plan: PlanFile) -> None:
    """The result that the driver of a round writes: the settle task then releases its table."""
    uri = plan_uri(str(work), plan.lease_id, plan.claim)
    result = RoundResult.of(plan.claim, "nothing_new")
    write_json(result_uri(uri, "1"), result.to_json())
