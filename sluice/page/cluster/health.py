"""Whether a table needs a person, since when, and why. Pure.

The bounds are those of the alert rules, docs/prometheus-sluice.yaml. A table is failing from its
first failed round on, though the alert waits for the third: whoever looks wants to see it.

A table that no round has tiered is new, and never ok, however short its lag is: "ok" would say that
somebody tiers it. The same bounds end that state. A shorter one, its freshness, would call each new
table late whose DAG runs every ten minutes.
"""

from __future__ import annotations

from dataclasses import dataclass

from sluice.client.leases.ids import holder_of
from sluice.errors import SparkSettingsWrong
from sluice.model import TieringStatus
from sluice.page.cluster.models import Health
from sluice.page.cluster.seen import SeenTable
from sluice.statuses import UNKNOWN, State
from sluice.statuses.recorded import NO_ROUND_RECORDED

LATE_MS = 1_800_000
"""The age of the oldest missing row from which a table is late: ten times Fluss's freshness."""
LAG_OLD_MS = 900_000
"""A lag that was read so long before the status says nothing of it any more."""
STATUS_OLD_MS = 60_000
"""A status says nothing of what is later than this after its reading: a round may have begun."""
WAITING_MS = 3_600_000
"""A table that was due for this long, and that no worker has claimed, is waiting."""
DAY_MS = 86_400_000
"""A table without a successful round for this long is late, whatever its lag."""

ORDER: tuple[Health, ...] = (
    "failing",
    "late",
    "waiting",
    "unknown",
    "new",
    "paused",
    "tiering",
    "ok",
)
"""The worst first."""
NEEDS_A_PERSON: frozenset[Health] = frozenset({"failing", "late", "waiting"})
"""A paused table was paused by a person, and an unknown one has had no round of Sluice."""

NOT_CLAIMED = "it is due, and no worker has claimed it"
LAG_UNKNOWN = "its lag is not known"
NO_ROUND = "no round has succeeded for a day"
NOT_TIERED = "no round has tiered it yet"
CANNOT_START = f"{SparkSettingsWrong.__name__}:"
"""Of a stopped round: no failure of the table, but no round starts until a person acts."""
LAKE_UNREAD = "no round of Sluice is recorded, and whether the lake has the table is not read yet"


@dataclass(frozen=True, slots=True)
class Verdict:
    health: Health
    since_ms: int | None = None
    why: str | None = None


def verdict(seen: SeenTable, now_ms: int, paused_dag: str | None = None) -> Verdict:
    """Judges a table by its own times.

    :param paused_dag: the name of the DAG that should tier it, if that is paused.
    """
    status = seen.status
    now_ms = min(now_ms, seen.status_read_ms + STATUS_OLD_MS)
    if status.is_unread:
        return Verdict("unknown", None, status.note)
    if status.has_no_leader:
        return Verdict("failing", None, status.note)
    if status.paused:
        return Verdict("paused", None, "paused by a user")
    if status.is_failing or status.last_error is not None:  # also after a retry was asked for
        return Verdict("failing", _failing_since_ms(seen), status.last_error)
    if status.stopped and status.stopped.startswith(CANNOT_START):
        return Verdict("failing", None, status.stopped)
    found = (
        _late(seen, now_ms)
        or _waiting(status, now_ms)
        or _unsure(seen, now_ms)
        or _new(seen, now_ms)
    )
    if found is not None:
        return found if paused_dag is None else _under_paused_dag(found, paused_dag)
    if status.status == UNKNOWN:
        return Verdict("unknown", None, status.note)
    return Verdict("tiering" if status.status == State.TIERING.value else "ok")


def _failing_since_ms(seen: SeenTable) -> int | None:
    """The first failure since the last success; else what is nearest to it and recorded."""
    status = seen.status
    if seen.failing_since_ms is not None:
        return seen.failing_since_ms
    return status.last_error_ms if status.last_tiered_ms is None else status.last_tiered_ms


def _late(seen: SeenTable, now_ms: int) -> Verdict | None:
    status, lag_ms = seen.status, _lag_ms(seen)
    if lag_ms is not None and lag_ms > LATE_MS:
        read_ms = now_ms if seen.lag_read_ms is None else seen.lag_read_ms
        return Verdict("late", read_ms - lag_ms, _why_late(status, now_ms))
    tiered_ms, due_ms = status.last_tiered_ms, status.next_attempt_ms
    waits = due_ms is not None and due_ms > now_ms  # its freshness may be longer than a day
    if tiered_ms is not None and now_ms - tiered_ms > DAY_MS and not waits:
        return Verdict("late", tiered_ms, f"{NO_ROUND}: {_why_late(status, now_ms)}")
    # Until the last reading: nobody knows whether the round went on after it.
    begun_ms = status.claimed_ms if status.status == State.TIERING.value else None
    if begun_ms is not None and seen.status_read_ms - begun_ms > LATE_MS:
        return Verdict("late", begun_ms, _why_late(status, now_ms))
    return None


def _lag_ms(seen: SeenTable) -> int | None:
    """The age of the oldest missing row, if the last lag that was read still tells it."""
    status, read_ms = seen.status, seen.lag_read_ms
    if status.lag_ms is None or read_ms is None or seen.status_read_ms - read_ms <= LAG_OLD_MS:
        return status.lag_ms
    # Until a round succeeds, a table that was late only gets later.
    has_tiered = status.last_tiered_ms is not None and status.last_tiered_ms > read_ms
    return status.lag_ms if status.lag_ms > LATE_MS and not has_tiered else None


def _unsure(seen: SeenTable, now_ms: int) -> Verdict | None:
    """A table that may be late: it was due long ago, and its lag is not known."""
    status = seen.status
    due_ms = status.next_attempt_ms
    if due_ms is None and status.last_tiered_ms is not None and seen.freshness_ms is not None:
        due_ms = status.last_tiered_ms + seen.freshness_ms
    if _lag_ms(seen) is not None or due_ms is None or now_ms - due_ms <= LATE_MS:
        return None
    return Verdict("late", due_ms, f"{LAG_UNKNOWN}: {_why_late(status, now_ms)}")


def _why_late(status: TieringStatus, now_ms: int) -> str:
    """What keeps its next round away, as far as the status says it."""
    if status.stopped:
        return status.stopped
    if status.status == State.TIERING.value:
        return f"its round by {_worker(status)} has not ended"
    if status.note:
        return status.note
    if status.next_attempt_ms is not None:
        return NOT_CLAIMED if status.next_attempt_ms <= now_ms else "its next round is not due yet"
    return f"its state is {status.status}"


def _worker(status: TieringStatus) -> str:
    """Who tiers it; of a run what its lease id says, which nobody can read."""
    by = status.claimed_by or "a worker"
    holder = holder_of(by)
    return str(holder) if holder.kind == "run" else by


def _waiting(status: TieringStatus, now_ms: int) -> Verdict | None:
    due_ms = status.next_attempt_ms
    if due_ms is None or now_ms - due_ms <= WAITING_MS or status.status == State.TIERING.value:
        return None
    return Verdict("waiting", due_ms, NOT_CLAIMED)


def _new(seen: SeenTable, now_ms: int) -> Verdict | None:
    """A table that neither a round of Sluice nor anybody else has tiered."""
    status = seen.status
    if status.last_tiered_ms is not None or status.lake_snapshot_id is not None:
        return None
    if status.status == State.TIERING.value:
        return None
    is_lake_read = seen.lag_read_ms is not None  # the lake snapshot is read with the lag
    if status.status == UNKNOWN:
        is_known = status.note == NO_ROUND_RECORDED and is_lake_read
        return Verdict("new", None, NOT_TIERED) if is_known else None
    if not is_lake_read:  # others, as Flink, may tier it, also after a request or a release
        return Verdict("unknown", None, LAKE_UNREAD)
    return Verdict("new", None, f"{NOT_TIERED}: {_why_late(status, now_ms)}")


def _under_paused_dag(found: Verdict, dag: str) -> Verdict:
    """A paused DAG explains why nothing claims a table, but not why its round does not end."""
    if found.why is None or not found.why.endswith(NOT_CLAIMED):
        return found
    return Verdict(found.health, found.since_ms, f"{found.why}: the DAG {dag} is paused")
