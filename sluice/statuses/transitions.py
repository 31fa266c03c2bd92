"""The seven states of a lake table, and the allowed transitions between them.

See docs/fluss/tiering.md#states. Two transitions differ from Fluss: a failed table stays Failed
after a restart until its next attempt, and a released claim makes a table Pending again.

Every transition is checked by :func:`may_enter`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from sluice.model import KeptStatus, TablePath
from sluice.model import types as t
from sluice.model.record_fields import TIME, described


class State(Enum):
    """A tiering state; the value is Fluss's name for it."""

    NEW = "New"
    INITIALIZED = "Initialized"
    SCHEDULED = "Scheduled"
    PENDING = "Pending"
    TIERING = "Tiering"
    TIERED = "Tiered"
    FAILED = "Failed"


TRANSITIONS: Mapping[State, frozenset[State | None]] = {
    # state entered: the states that it may be entered from (None: the table was not known)
    State.NEW: frozenset({None}),
    State.INITIALIZED: frozenset({None}),
    State.SCHEDULED: frozenset({State.NEW, State.INITIALIZED, State.TIERED}),
    State.PENDING: frozenset({State.SCHEDULED, State.FAILED, State.TIERED, State.TIERING}),
    State.TIERING: frozenset({State.PENDING}),
    State.TIERED: frozenset({State.TIERING}),
    State.FAILED: frozenset({State.TIERING, State.INITIALIZED}),
}


def may_enter(state: State, current: State | None) -> bool:
    """Whether a table in ``current`` may enter ``state``."""
    return current in TRANSITIONS[state]


@dataclass(frozen=True, slots=True)
class TableStatus(KeptStatus):
    """The coordinator's status of one lake table. Times are epoch milliseconds, with one exception.

    ``heartbeat_ms`` counts by the monotonic clock, because a changed wall clock must not end a
    claim. The described fields are stored. ``heartbeat_ms``, ``claimed_ms`` and ``claimed_by`` are
    set only while Tiering. ``next_attempt_ms`` replaces freshness after a failure and for a
    requested round. ``requested_ms`` stays until a round that began after it has ended. A
    ``paused`` table is not assigned.
    """

    table_id: int
    path: TablePath
    freshness_ms: int
    scheduled_from_ms: int = described(
        TIME,
        "Start of the freshness interval: the end of the last round or, at first, the time when"
        " tiering was enabled",
        required=True,
    )
    tiering_epoch: int = described(t.BIGINT, "Current tiering epoch", default=0)
    state: State | None = None
    heartbeat_ms: int | None = None
    file_size: int | None = described(t.BIGINT, "Bytes of the lake table, if a worker reported it")
    record_count: int | None = described(t.BIGINT, "Rows of the lake table, likewise")
    requested_ms: int | None = described(TIME, "When somebody requested the next round or a retry")
    claimed_ms: int | None = None
    claimed_by: str | None = None

    @property
    def due_ms(self) -> int:
        """When the next round may start, if the table is Scheduled or Failed."""
        if self.next_attempt_ms is not None:
            return self.next_attempt_ms
        return self.scheduled_from_ms + self.freshness_ms

    @property
    def requested_next_ms(self) -> int | None:
        """When the next round was requested; None: nobody did, or that round is under way."""
        asked_ms, claimed_ms = self.requested_ms, self.claimed_ms
        has_begun = asked_ms is not None and claimed_ms is not None and asked_ms <= claimed_ms
        return None if has_begun else asked_ms
