"""Rounds that somebody has requested, as far as a status says it. Pure.

Nobody records a request as such: it makes a table due before its freshness has passed.
"""

from __future__ import annotations

from sluice.model import TieringStatus
from sluice.page.seen import SeenTable
from sluice.statuses import State


def requested_ms(seen: SeenTable) -> int | None:
    """Since when a table is due by a request. Before a retry it may have been due already.

    None: it is not, or its status does not say it: a table that is due anyway stays due since then,
    and a round that follows the one under way is known when that one ends.
    """
    status, freshness_ms = seen.status, seen.freshness_ms
    if _is_retried(status):
        return status.next_attempt_ms
    if freshness_ms is None or not may_be_requested(status):
        return None
    assert status.last_tiered_ms is not None
    assert status.next_attempt_ms is not None
    is_early = status.next_attempt_ms < status.last_tiered_ms + freshness_ms
    return status.next_attempt_ms if is_early else None


def may_be_requested(status: TieringStatus) -> bool:
    """Whether the freshness of a table tells if its next round was requested."""
    due_ms, last_ms = status.next_attempt_ms, status.last_tiered_ms
    if status.status != State.PENDING.value or status.is_failing or due_ms is None:
        return False
    # At the very end of a round: it left rows for the next one.
    return last_ms is not None and last_ms < due_ms


def _is_retried(status: TieringStatus) -> bool:
    """Whether its failures were cleared, and no round has succeeded since."""
    is_cleared = status.failures == 0 and status.last_error is not None
    return is_cleared and status.status == State.PENDING.value
