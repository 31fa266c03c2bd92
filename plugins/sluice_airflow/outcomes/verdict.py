"""What was reported of one table, as tasks pass it on. Does not import Airflow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from sluice.errors import (
    TablePaused,
)
from sluice.rounds.records.result import RoundFailure, RoundResult
from sluice_airflow.claims.snapshot_ids import id_of, id_text

PAUSED = "paused"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The report of one table to the coordinator, and the reason.

    ``reported``: finished, failed, released (the round counts as none), or nothing.
    """

    table: str
    reported: str
    reason: str = ""
    outcome: str = ""
    """That of the result: committed, already_landed, nothing_new or claim_lost. Without a result:
    paused if a user paused the table, else empty."""
    rows: int = 0
    lake_snapshot_id: int | None = None
    """Of a failed round: the snapshot with the buckets that did not fail, if there is one."""
    offsets_sum: int | None = None
    """The sum of the end offsets of the table's buckets in that snapshot."""
    tiering_epoch: int | None = None

    def to_xcom(self) -> dict[str, Any]:
        """The verdict for drop_lease, as JSON."""
        return {**asdict(self), "lake_snapshot_id": id_text(self.lake_snapshot_id)}

    @classmethod
    def from_xcom(cls, content: Mapping[str, Any]) -> Verdict:
        """Reads what :meth:`to_xcom` has made."""
        return cls(**{**content, "lake_snapshot_id": id_of(content.get("lake_snapshot_id"))})


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
        "lake_snapshot_id": result.lake_snapshot_id,
        "offsets_sum": sum(result.offsets.values()) if result.offsets else None,
        "tiering_epoch": result.tiering_epoch,
    }
