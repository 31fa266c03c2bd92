"""The tiering status that Sluice's rounds record themselves for clusters that do not report it.

Claim, end of the round, pause and heartbeat each change their own columns, so concurrent writers do
not overwrite each other: a late end of an older round does not end a newer claim. Without I/O.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from sluice.model import Claim, KeptStatus, TablePath, TieringRound, TieringStatus
from sluice.model import types as t
from sluice.model.record_fields import TIME, described
from sluice.model.tiering import kept_values
from sluice.statuses.outcomes import after_failure, after_success, newly_accepted
from sluice.statuses.transitions import State

UNKNOWN = "Unknown"
"""The state of a table whose status is not known; Fluss has no such state."""

NO_ROUND_RECORDED = "no round of Sluice is recorded"
"""Why the state of a table without a claim is not known: others may tier it."""

NOT_REQUESTED = "this table was not requested"
"""Why a claim that Apache Fluss assigns is unsuitable; it is released."""

ASSIGNED_AGAIN = "a worker holds this claim already"
"""Why a claim is unsuitable that must not be released either: that would end the worker's round."""

SILENCE_MS = 120_000
"""Apache Fluss revokes a claim that had no heartbeat for this long.

See docs/fluss/tiering.md#timers
"""

REVOKED_MS = SILENCE_MS + 20_000
"""A claim without heartbeats has ended after this time: Fluss looks for such claims every 15 s."""

_UNRECORDED_MS = 60_000
"""The last heartbeat may be so much later than the recorded one: see RecordedStatuses.heartbeat."""

FINISHED, FORCED, FAILED, RELEASED = "finished", "forced", "failed", "released"
"""How a claim ended. Forced: there are more rows, so Fluss has queued the table at once."""

Columns = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RecordedStatus(KeptStatus):
    """One row: the last claim, the last end of a round, and user actions. Times are epoch ms."""

    table_id: int = described(t.BIGINT.not_null(), "Id of the table", required=True)
    database_name: str | None = described(t.STRING, "Database name")
    table_name: str | None = described(t.STRING, "Table name")
    coordinator_epoch: int | None = described(t.INT, "Coordinator epoch of the last claim")
    tiering_epoch: int | None = described(t.BIGINT, "Tiering epoch of the last claim")
    claimed_ms: int | None = described(TIME, "Time of the last claim")
    claimed_by: str | None = described(t.STRING, "Who holds or held it")
    heartbeat_ms: int | None = described(TIME, "Last recorded heartbeat of the claim")
    ended_coordinator_epoch: int | None = described(t.INT, "Coordinator epoch of the last end")
    ended_tiering_epoch: int | None = described(t.BIGINT, "Tiering epoch of the last end")
    ended_ms: int | None = described(TIME, "Time of the last end")
    outcome: str | None = described(t.STRING, "finished, forced, failed or released")
    asked_tiering_epoch: int | None = described(
        t.BIGINT, "Tiering epoch about which the coordinator was asked last"
    )
    asked_ms: int | None = described(TIME, "Time of that question, which counts as a heartbeat")

    @property
    def is_claimed(self) -> bool:
        """Whether no end of the last claim is recorded."""
        if self.tiering_epoch is None:
            return False
        if self.ended_tiering_epoch is None:
            return True
        claimed = (self.coordinator_epoch or 0, self.tiering_epoch)
        return claimed > (self.ended_coordinator_epoch or 0, self.ended_tiering_epoch)

    def is_of(self, claim: Claim) -> bool:
        """Whether the last claim is this one."""
        epochs = (self.coordinator_epoch, self.tiering_epoch)
        return epochs == (claim.coordinator_epoch, claim.tiering_epoch)

    def has_ended(self, claim: Claim) -> bool:
        """Whether the last recorded end belongs to this claim."""
        epochs = (self.ended_coordinator_epoch, self.ended_tiering_epoch)
        return epochs == (claim.coordinator_epoch, claim.tiering_epoch)

    @property
    def last_seen_ms(self) -> int:
        """The time of the last claim's latest heartbeat, or of the claim."""
        return max(self.claimed_ms or 0, self.heartbeat_ms or 0)


# ---- the columns that each event changes ----


def claimed(claim: Claim, now_ms: int, by: str) -> Columns:
    """Records a claim, and clears the previous end, because epochs may start again."""
    return {
        **_name(claim.table_id, claim.path),
        "coordinator_epoch": claim.coordinator_epoch,
        "tiering_epoch": claim.tiering_epoch,
        "claimed_ms": now_ms,
        "claimed_by": by,
        "heartbeat_ms": None,
        "ended_coordinator_epoch": None,
        "ended_tiering_epoch": None,
        "ended_ms": None,
        "outcome": None,
    }


def heartbeat(
    row: RecordedStatus | None, claim: Claim, now_ms: int, *, since_ms: int, by: str
) -> Columns:
    """Records a heartbeat, and the claim if the row lacks it.

    :param row: the row as just read.
    :param since_ms: when the table was claimed, as far as the caller knows, and ``by`` whom.
    """
    if row is not None and row.is_of(claim):
        return {"table_id": claim.table_id, "heartbeat_ms": now_ms}
    if row is not None and row.has_ended(claim):
        return {}
    return {**claimed(claim, since_ms, by), "heartbeat_ms": now_ms}


def finished(
    claim: Claim,
    before: RecordedStatus | None,
    now_ms: int,
    *,
    forced: bool,
    details: TieringRound | None = None,
) -> Columns:
    """Records a successful round, which clears failures and error."""
    mine = before is not None and before.is_of(claim)
    since_ms = before.claimed_ms if before is not None and mine else None
    outcome = FORCED if forced else FINISHED
    kept = after_success(before, now_ms, since_ms, details)
    return {**_ended(claim, now_ms, outcome), **kept, **_counted(before, claim)}


def failed(
    claim: Claim,
    before: RecordedStatus | None,
    now_ms: int,
    reason: str,
    *,
    freshness_ms: int,
    backoff_ms: int,
    details: TieringRound | None = None,
) -> Columns:
    """Records a failed round: see :func:`after_failure`."""
    kept = after_failure(
        before,
        now_ms,
        reason,
        freshness_ms=freshness_ms,
        backoff_ms=backoff_ms,
        details=details,
    )
    return {**_ended(claim, now_ms, FAILED), **kept, **_counted(before, claim)}


def lost(
    row: RecordedStatus, claim: Claim, now_ms: int, *, freshness_ms: int, backoff_ms: int
) -> Columns:
    """Records the failure of an earlier claim without heartbeats, which the coordinator revoked.

    Returns no change if that claim has ended.

    :param claim: the new one.
    """
    silent_ms = now_ms - row.last_seen_ms
    if not row.is_claimed or row.is_of(claim) or silent_ms < SILENCE_MS:
        return {}
    before = last_claim(row, claim.path)
    reason = (
        f"no heartbeat for {silent_ms / 1000:.0f} s: the worker of tiering epoch"
        f" {before.tiering_epoch} is considered lost"
    )
    at_ms = row.last_seen_ms + SILENCE_MS
    return failed(before, row, at_ms, reason, freshness_ms=freshness_ms, backoff_ms=backoff_ms)


def round_of(
    claim: Claim, before: RecordedStatus | None, ended: Columns, details: TieringRound | None
) -> TieringRound:
    """The round that an end recorded.

    :param before: the row before its end.
    :param ended: the columns that :func:`finished` or :func:`failed` returned.
    :param details: what the worker reported.
    """
    details = details or TieringRound()
    has_failed = ended["outcome"] == FAILED
    mine = before if before is not None and before.is_of(claim) else None
    is_repeated = before is not None and before.has_ended(claim)
    return replace(
        details,
        table_id=claim.table_id,
        round_number=ended["rounds"],
        tiering_epoch=claim.tiering_epoch,
        coordinator_epoch=claim.coordinator_epoch,
        started_ms=mine.claimed_ms if mine is not None else None,
        ended_ms=ended["ended_ms"],
        outcome=FAILED if has_failed else details.outcome or FINISHED,
        reason=ended["last_error"],
        accepted=newly_accepted(None if is_repeated else before, details),
        worker=details.worker or (mine.claimed_by if mine is not None else None),
    )


def last_claim(row: RecordedStatus, path: TablePath) -> Claim:
    """The claim that a row records."""
    return Claim(row.table_id, path, row.tiering_epoch or 0, row.coordinator_epoch or 0)


def released(claim: Claim, now_ms: int, stopped: str | None = None) -> Columns:
    """Records the release of a claim, which is not a failure.

    :param stopped: who stopped the round; None: the claim was not used.
    """
    told = {} if stopped is None else {"stopped": stopped}
    return {**_ended(claim, now_ms, RELEASED), **told}


def paused(table_id: int, path: TablePath, is_paused: bool) -> Columns:
    return {**_name(table_id, path), "paused": is_paused}


def retried(table_id: int, path: TablePath, now_ms: int) -> Columns:
    """Clears the failures and keeps the error."""
    return {**_name(table_id, path), "failures": 0, "next_attempt_ms": now_ms}


def compaction_requested(table_id: int, path: TablePath, now_ms: int) -> Columns:
    return {**_name(table_id, path), "compaction_requested_ms": now_ms}


def asked(claim: Claim, now_ms: int) -> Columns:
    """Records, before it is asked, that the coordinator is asked about an epoch."""
    return {
        **_name(claim.table_id, claim.path),
        "asked_tiering_epoch": claim.tiering_epoch,
        "asked_ms": now_ms,
    }


def not_asked(claim: Claim) -> Columns:
    """Records that the answer showed no open claim: the next question may follow at once."""
    return {
        **_name(claim.table_id, claim.path),
        "asked_tiering_epoch": None,
        "asked_ms": None,
    }


def round_requested(
    table_id: int, path: TablePath, row: RecordedStatus | None, forced: Claim | None, now_ms: int
) -> Columns:
    """Records a requested round. Keeps failures, and a claim without a recorded end.

    :param forced: the claim whose forced finish queued the table; None: the table was due.
    """
    if row is not None and row.is_claimed:
        return {}
    if row is not None and row.outcome == FAILED:
        return {**_name(table_id, path), "next_attempt_ms": now_ms}
    if forced is None:
        return {}
    if row is None or row.ended_tiering_epoch is None:
        return _ended(forced, now_ms, FORCED)
    # Keep the epochs: forced ones may have started again and would reopen the ended claim.
    return {**_name(table_id, path), "ended_ms": now_ms, "outcome": FORCED}


# ---- the meaning of a row ----


def is_assigned_again(row: RecordedStatus, claim: Claim, now_ms: int) -> bool:
    """Whether Fluss assigns a claim that a worker holds, from an old entry of its queue.

    The table was disabled and enabled, see docs/fluss/tiering.md#restarted-epochs
    """
    return row.is_of(claim) and claim_holder(row, now_ms) is not None


def skip_reason(row: RecordedStatus | None, now_ms: int) -> str | None:
    """Why a table that Fluss assigns should not be tiered now; None if it should."""
    if row is None:
        return None
    if row.paused:
        return "it is paused"
    if _waits_after_failure(row, now_ms):
        left_s = ((row.next_attempt_ms or 0) - now_ms + 999) // 1000
        return f"it has failed ({row.failures} in a row) and is tried again in {left_s} s"
    return None


def claim_holder(row: RecordedStatus | None, now_ms: int) -> str | None:
    """Who holds the table's claim, by its last heartbeat; None: no worker, or it is unknown.

    It is unknown, too, if the heartbeat is far ahead: then the clock went back.
    """
    if row is None or not row.is_claimed or abs(now_ms - row.last_seen_ms) >= SILENCE_MS:
        return None
    return row.claimed_by or "a round"


def unasked_ms(row: RecordedStatus | None, claim: Claim, now_ms: int, is_lost: bool) -> int:
    """For how many milliseconds the coordinator must not be asked about an epoch; 0: it may be.

    For the coordinator such a question is a heartbeat. So it is asked only when a claim of a dead
    worker must have ended, and then once in the time that such a claim takes to end.

    :param claim: with the table's current epoch.
    :param is_lost: the recorded claim is known to be lost.
    """
    if row is None:
        return 0
    waits_ms = 0
    if row.is_claimed and row.tiering_epoch == claim.tiering_epoch and not is_lost:
        waits_ms = _left_ms(row.last_seen_ms, REVOKED_MS + _UNRECORDED_MS, now_ms)
    if row.asked_tiering_epoch != claim.tiering_epoch or row.asked_ms is None:
        return waits_ms
    if row.has_ended(claim) and (row.ended_ms or 0) >= row.asked_ms:
        return waits_ms
    return max(waits_ms, _left_ms(row.asked_ms, REVOKED_MS, now_ms))


def _left_ms(since_ms: int, length_ms: int, now_ms: int) -> int:
    """What is left of a time; 0 if its beginning is far ahead, because the clock went back."""
    left_ms = since_ms + length_ms - now_ms
    return left_ms if 0 < left_ms < 2 * length_ms else 0


def status_of(
    path: TablePath, table_id: int, freshness_ms: int, row: RecordedStatus | None, now_ms: int
) -> TieringStatus:
    """Computes a table's status from its row; ``Unknown`` if the row does not determine it."""
    if row is None:
        row = RecordedStatus(table_id)
    state, due_ms, note = _state(row, freshness_ms, now_ms)
    waits = not row.paused and state not in (State.TIERING.value, UNKNOWN)
    epoch = row.tiering_epoch if row.is_claimed else row.ended_tiering_epoch
    return TieringStatus(
        path=path,
        table_id=table_id,
        status=state,
        tiering_epoch=0 if epoch is None else epoch,
        claimed_by=row.claimed_by if state == State.TIERING.value else None,
        claimed_ms=row.claimed_ms if state == State.TIERING.value else None,
        requested_ms=_requested_ms(row),
        note=note,
        **{
            **kept_values(row),
            "failures": row.failures or 0,
            "paused": bool(row.paused),
            "next_attempt_ms": due_ms if waits else None,
        },
    )


def _state(
    row: RecordedStatus, freshness_ms: int, now_ms: int
) -> tuple[str, int | None, str | None]:
    """The state, the time when the table is due, and why the state is unknown."""
    if row.is_claimed:
        since_ms = row.claimed_ms or 0
        if claim_holder(row, now_ms) is not None:
            return State.TIERING.value, None, None
        ago_s = max(now_ms - since_ms, 0) // 1000
        return UNKNOWN, None, f"claimed {ago_s} s ago by {row.claimed_by}, no end reported"
    if row.outcome is None:
        return UNKNOWN, None, NO_ROUND_RECORDED
    if row.outcome == FAILED:
        due_ms = row.next_attempt_ms
        waits = _waits_after_failure(row, now_ms)
        return (State.FAILED if waits else State.PENDING).value, due_ms, None
    if row.outcome == FINISHED and row.last_tiered_ms is not None:
        due_ms = row.last_tiered_ms + freshness_ms
        return (State.SCHEDULED if due_ms > now_ms else State.PENDING).value, due_ms, None
    return State.PENDING.value, row.ended_ms, None


def _requested_ms(row: RecordedStatus) -> int | None:
    """When the next round or a retry was requested, if the row says it for certain."""
    if row.outcome == FAILED and row.failures == 0:
        return row.next_attempt_ms
    # A round that leaves rows for the next one is queued at its very end.
    is_asked = row.outcome == FORCED and row.ended_ms != row.last_tiered_ms
    return row.ended_ms if is_asked else None


def _waits_after_failure(row: RecordedStatus, now_ms: int) -> bool:
    """Whether it is not yet time for the next attempt.

    It is, if the clock went back since the failure: nobody knows how long the table has waited.
    """
    if not row.failures or row.next_attempt_ms is None or row.next_attempt_ms <= now_ms:
        return False
    return (row.last_error_ms or 0) <= now_ms + SILENCE_MS


def _name(table_id: int, path: TablePath) -> dict[str, Any]:
    return {"table_id": table_id, "database_name": path.database, "table_name": path.table}


def _counted(before: RecordedStatus | None, claim: Claim) -> dict[str, Any]:
    """The number of rounds, where an end is reported again: it is not counted twice."""
    repeated = before is not None and before.has_ended(claim)
    return {"rounds": before.rounds or 0} if before is not None and repeated else {}


def _ended(claim: Claim, now_ms: int, outcome: str) -> dict[str, Any]:
    return {
        **_name(claim.table_id, claim.path),
        "ended_coordinator_epoch": claim.coordinator_epoch,
        "ended_tiering_epoch": claim.tiering_epoch,
        "ended_ms": now_ms,
        "outcome": outcome,
    }
