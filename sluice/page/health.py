"""Whether a table needs a person, since when, and why. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from sluice.model import TieringStatus
from sluice.page.models import Health

LATE_MS = 1_800_000
"""The age of the oldest missing row from which a table is late: ten times Fluss's freshness."""
WAITING_MS = 3_600_000
"""A table that was due for this long, and that no worker has claimed, is waiting."""

ORDER: tuple[Health, ...] = ("failing", "late", "waiting", "unknown", "paused", "tiering", "ok")
"""The worst first."""


@dataclass(frozen=True, slots=True)
class Verdict:
    health: Health
    since_ms: int | None = None
    why: str | None = None


def verdict(status: TieringStatus, now_ms: int) -> Verdict:
    """Judges a status by its own times and the same bounds as the alert rules."""
    if status.is_unread:
        return Verdict("unknown", None, status.note)
    if status.paused:
        return Verdict("paused", None, "paused by a user")
    if status.is_failing:
        return Verdict("failing", status.last_error_ms, status.last_error)
    if status.lag_ms is not None and status.lag_ms > LATE_MS:
        return Verdict("late", now_ms - status.lag_ms, status.stopped)
    due_ms = status.next_attempt_ms
    if due_ms is not None and now_ms - due_ms > WAITING_MS:
        return Verdict("waiting", due_ms, "it is due, and no worker has claimed it")
    if status.status == "Unknown":
        return Verdict("unknown", None, status.note)
    return Verdict("tiering" if status.status == "Tiering" else "ok")
