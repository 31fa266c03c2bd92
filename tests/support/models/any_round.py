"""A round of either kind, for tests in which a table is tiered and repaired by the same words."""

from __future__ import annotations

from sluice.model import Claim
from sluice.rounds.commit.options import RoundOptions
from sluice.rounds.records.result import RoundResult
from sluice.rounds.repair.request import RepairRequest
from sluice.rounds.repair.round import run_repair
from sluice.rounds.round.round import run_round
from sluice.rounds.values.attempt import RoundPorts
from sluice.rounds.values.types import OffsetRange, RepairMode


def any_round(
    claim: Claim,
    ports: RoundPorts,
    attempt: str,
    repair: RepairRequest | None,
    options: RoundOptions,
) -> RoundResult:
    """Runs a repair if one is requested, otherwise an ordinary round."""
    if repair is None:
        return run_round(claim, ports, attempt, options)
    return run_repair(claim, ports, attempt, repair, options)


def request_of(mode: RepairMode | None, unreadable: OffsetRange | None) -> RepairRequest | None:
    """The request for a repair that its user has seen no losses of; None: no repair."""
    return None if mode is None else RepairRequest(mode, unreadable)
