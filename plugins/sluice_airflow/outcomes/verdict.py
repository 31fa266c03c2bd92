"""What was reported of one table, as tasks pass it on. Does not import Airflow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sluice.errors import TablePaused
from sluice.quantities import counted
from sluice.rounds.records.result import RoundFailure, RoundResult

PAUSED = "paused"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The report of one table to the coordinator, and the reason. XComs have the same fields.

    ``reported``: finished, failed, released (the round counts as none), or nothing.
    """

    table: str
    reported: str
    reason: str = ""
    outcome: str = ""
    """That of the result: committed, already_landed, nothing_new or claim_lost. Without a result:
    paused if a user paused the table, else empty."""
    rows: int = 0
    lake_snapshot_id: str | None = None
    """A text, because browsers round large numbers. Of a failed round: the snapshot with the
    buckets that did not fail, if there is one."""
    offsets_sum: int | None = None
    """The sum of the end offsets of the table's buckets in that snapshot."""
    tiering_epoch: int | None = None

    def __str__(self) -> str:
        """A line for a log: ``shop.orders: finished (committed), 3 rows, lake snapshot 9``."""
        reason = f" ({self.reason})" if self.reason else ""
        landed = ""
        if self.lake_snapshot_id is not None:
            landed = f", {counted(self.rows, 'row')}, lake snapshot {self.lake_snapshot_id}"
        return f"{self.table}: {self.reported}{reason}{landed}"


def id_text(snapshot_id: int | None) -> str | None:
    """The id of a lake snapshot as XComs have it."""
    return None if snapshot_id is None else str(snapshot_id)


def finished_verdict(table: str, result: RoundResult, reason: str = "") -> Verdict:
    forced = f", forced: {result.forced}" if result.forced else ""
    text = reason or f"{result.outcome}{forced}"
    return Verdict(table, "finished", text, result.outcome, **landed(result))


def lost_verdict(table: str, result: RoundResult) -> Verdict:
    return Verdict(table, "nothing", "; ".join(result.notes) or "claim lost", result.outcome)


def stopped_verdict(table: str, failure: RoundFailure) -> Verdict:
    reason = failure.reason.checked()
    found = PAUSED if reason.kind == TablePaused.__name__ else ""
    return Verdict(table, "released", str(reason), found)


def failed_verdict(table: str, failure: RoundFailure) -> Verdict:
    return Verdict(table, "failed", str(failure.reason.checked()), **landed(failure.committed))


def landed(result: RoundResult | None) -> dict[str, Any]:
    """What a verdict says of the rows that a round has committed."""
    if result is None:
        return {}
    return {
        "rows": result.rows,
        "lake_snapshot_id": id_text(result.lake_snapshot_id),
        "offsets_sum": sum(result.offsets.values()) if result.offsets else None,
        "tiering_epoch": result.tiering_epoch,
    }
