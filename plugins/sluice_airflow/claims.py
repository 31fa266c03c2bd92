"""The entry that the tasks of a run pass on for each claimed table."""

from __future__ import annotations

from typing import NotRequired, TypedDict

from sluice.model import Claim, TablePath
from sluice.rounds.files import PlanFile


class Entry(TypedDict):
    """A claim and the address of its plan: under 1 kB for any number of buckets."""

    table: str
    table_id: int
    tiering_epoch: int
    coordinator_epoch: int
    lease_id: str
    plan_uri: str
    snapshots: NotRequired[int]
    """Number of KV snapshots that the lease holds for the table. Missing if there are none."""


def entry_of(plan: PlanFile, plan_uri: str) -> Entry:
    """Returns the entry of a plan."""
    entry = Entry(
        table=str(plan.claim.path),
        table_id=plan.claim.table_id,
        tiering_epoch=plan.claim.tiering_epoch,
        coordinator_epoch=plan.claim.coordinator_epoch,
        lease_id=plan.lease_id,
        plan_uri=plan_uri,
    )
    if plan.snapshots:
        entry["snapshots"] = len(plan.snapshots)
    return entry


def claim_of(entry: Entry) -> Claim:
    """Returns the claim of an entry."""
    return Claim(
        entry["table_id"],
        TablePath.parse(entry["table"]),
        entry["tiering_epoch"],
        entry["coordinator_epoch"],
    )
