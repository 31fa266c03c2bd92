"""A claimed table as the tasks of a run pass it on: its claim and its plan."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NotRequired, TypedDict

from sluice.client.tiering.heartbeats import by_table
from sluice.errors import FlussError
from sluice.model import Claim
from sluice.rounds.records.plan_file import PlanFile

if TYPE_CHECKING:
    from sluice.client import Client


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
    rows: NotRequired[int]
    """About how many rows waited when the table was claimed. Missing if that is not known."""
    must_reach_end: NotRequired[bool]
    """Whether rounds repeat until the ends of the logs at the trigger are in the lake."""


def heartbeat_all(client: Client, claims: Iterable[Claim]) -> dict[Claim, FlussError | None]:
    """Sends one heartbeat for each claim; two of them may be of one table.

    :returns: why a claim is lost; None if it is held.
    """
    answers: dict[Claim, FlussError | None] = {}
    for together in by_table(list(claims)):
        found = client.tiering.heartbeat(together)
        answers.update({claim: found[claim.table_id] for claim in together})
    return answers


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
    if plan.rows is not None:
        table["rows"] = plan.rows
    if plan.until is not None:
        table["must_reach_end"] = True
    return table
