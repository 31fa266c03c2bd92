"""What travels between the tasks of a run: one small entry per claimed table."""

from __future__ import annotations

from typing import NotRequired, TypedDict

from sluice.model import Claim, TablePath
from sluice.rounds.files import PlanFile


class Entry(TypedDict):
    """A claim and where its plan lies: under 1 kB whatever the number of buckets."""

    table: str
    table_id: int
    tiering_epoch: int
    coordinator_epoch: int
    lease_id: str
    plan_uri: str
    snapshots: NotRequired[int]
    """How many KV snapshots the lease holds for it; missing if none, as of a log table."""


def entry_of(plan: PlanFile, plan_uri: str) -> Entry:
    """The entry of a plan."""
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
    """The claim that an entry stands for."""
    return Claim(
        entry["table_id"],
        TablePath.parse(entry["table"]),
        entry["tiering_epoch"],
        entry["coordinator_epoch"],
    )
