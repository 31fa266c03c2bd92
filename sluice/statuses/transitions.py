"""The seven states of a lake table, and the allowed transitions between them.

See docs/fluss/tiering.md#states. Two transitions differ from Fluss: a failed table stays Failed
after a restart until its next attempt, and a released claim makes a table Pending again.

Every transition is checked by :func:`may_enter`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from sluice.model import TablePath


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
class TableStatus:
    """The coordinator's status of one lake table. Times are epoch milliseconds.

    ``scheduled_from_ms`` is the start of the freshness interval: the end of the last round or, at
    first, the time when tiering was enabled. ``heartbeat_ms`` and ``claimed_ms`` are set only while
    Tiering. ``failures`` counts failures since the last success. ``next_attempt_ms`` replaces
    freshness after a failure and for a requested round. A ``paused`` table is not assigned.
    """

    table_id: int
    path: TablePath
    freshness_ms: int
    scheduled_from_ms: int
    tiering_epoch: int = 0
    state: State | None = None
    heartbeat_ms: int | None = None
    last_tiered_ms: int | None = None
    last_error: str | None = None
    last_error_ms: int | None = None
    failures: int = 0
    file_size: int | None = None
    record_count: int | None = None
    next_attempt_ms: int | None = None
    paused: bool = False
    claimed_ms: int | None = None
    last_round_ms: int | None = None

    @property
    def due_ms(self) -> int:
        """When the next round may start, if the table is Scheduled or Failed."""
        if self.next_attempt_ms is not None:
            return self.next_attempt_ms
        return self.scheduled_from_ms + self.freshness_ms
