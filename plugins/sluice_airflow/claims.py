"""A claimed table as the tasks of a run pass it on: its claim and its plan."""

from __future__ import annotations

from typing import NotRequired, TypedDict

from sluice.rounds.files import PlanFile


class ClaimedTable(TypedDict):
    """A claim and the address of its plan: under 1 kB for any number of buckets."""

    table: str
    table_id: int
    tiering_epoch: int
    coordinator_epoch: int
    lease_id: str
    plan_uri: str
    snapshots: NotRequired[int]
    """Number of KV snapshots that the lease holds for the table. Missing if there are none."""


def claimed_table(plan: PlanFile, plan_uri: str) -> ClaimedTable:
    """Returns the claimed table of a plan."""
    table = ClaimedTable(
        table=str(plan.claim.path),
        table_id=plan.claim.table_id,
        tiering_epoch=plan.claim.tiering_epoch,
        coordinator_epoch=plan.claim.coordinator_epoch,
        lease_id=plan.lease_id,
        plan_uri=plan_uri,
    )
    if plan.snapshots:
        table["snapshots"] = len(plan.snapshots)
    return table
