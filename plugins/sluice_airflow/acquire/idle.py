"""Finishes the rounds of idle tables without a plan, a lease or Spark. Does not import Airflow."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from sluice.client.tiering.heartbeats import CLAIM_LOST, Heartbeats
from sluice.failpoints import failpoint
from sluice.model import Claim
from sluice.rounds.records.result import RoundResult

if TYPE_CHECKING:
    from sluice.client import Client
    from sluice.client.tiering.idle import Waiting

log = logging.getLogger(__name__)

REPORTED_MAX = 500
"""Most rounds of one report."""


def finish_idle(
    client: Client,
    lease_id: str,
    idle: Sequence[tuple[Claim, Waiting]],
    heartbeats: Heartbeats,
    on_idle: Callable[[Claim], None],
) -> None:
    """Reports what a round of these tables would report: that there was nothing new.

    A kill before the report leaves claims without a plan, which the next try of the task or the end
    of the run releases (settle.release_unplanned). The tables are then due at once.

    :param on_idle: called with each claim whose report was accepted.
    """
    failpoint("airflow.acquire.before_idle")
    for at in range(0, len(idle), REPORTED_MAX):
        some = idle[at : at + REPORTED_MAX]
        ends = [(claim, nothing_new(claim, found).details(lease_id)) for claim, found in some]
        for claim, error in client.tiering.finished_many(ends).items():
            heartbeats.remove(claim)
            if error is None:
                log.info("%s: nothing new", claim.path)
                on_idle(claim)
            elif isinstance(error, CLAIM_LOST):
                log.warning("%s: the claim was lost: %s", claim.path, error)
            else:
                log.warning("%s: cannot report that nothing is new: %s", claim.path, error)


def nothing_new(claim: Claim, found: Waiting) -> RoundResult:
    """The result of a round that finds nothing to copy."""
    return RoundResult.of(
        claim,
        "nothing_new",
        lake_snapshot_id=found.lake_snapshot_id,
        lag_rows_before=0,
        lag_rows_after=0,
    )
