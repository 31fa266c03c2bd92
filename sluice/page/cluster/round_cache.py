"""The newest rounds of tables that people look at, for sparklines: few, small and bounded."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from sluice.model import TieringRound, TieringStatus
from sluice.model.round_record import FAILED

SHOWN = 20
"""Rounds of one sparkline."""
TABLES_MAX = 1_000
"""Tables whose rounds are kept: those that were looked at last."""


@dataclass(frozen=True, slots=True)
class RoundPoint:
    """A round, as a point of a sparkline."""

    ended_ms: int | None = None
    outcome: str | None = None
    rows_written: int | None = None
    lag_rows_after: int | None = None
    duration_ms: Annotated[int | None, Field(description="From claim to report")] = None

    def as_round(self) -> TieringRound:
        """As much of its round as it has."""
        is_timed = self.ended_ms is not None and self.duration_ms is not None
        return TieringRound(
            started_ms=(self.ended_ms or 0) - (self.duration_ms or 0) if is_timed else None,
            ended_ms=self.ended_ms,
            outcome=self.outcome,
            rows_written=self.rows_written,
            lag_rows_after=self.lag_rows_after,
        )


class RoundCache:
    """Rounds by table, as of a number of ended rounds. Safe for use by many threads."""

    def __init__(self, tables_max: int = TABLES_MAX) -> None:
        self._max = tables_max
        self._lock = threading.Lock()  # guards the rest
        self._kept: OrderedDict[int, tuple[int, tuple[RoundPoint, ...]]] = OrderedDict()

    def of(self, status: TieringStatus) -> tuple[tuple[RoundPoint, ...], bool]:
        """The known rounds of a table, the oldest first, and whether these are its newest."""
        if not status.rounds:
            return (), True
        with self._lock:
            kept = self._kept.get(status.table_id)
            if kept is None:
                return (), False
            self._kept.move_to_end(status.table_id)
        return kept[1], kept[0] >= status.rounds

    def put(self, status: TieringStatus, rounds: Iterable[TieringRound]) -> None:
        """Keeps the rounds of a table, as read for this status; the newest come first."""
        points = tuple(_point(each) for each in rounds)[:SHOWN][::-1]
        with self._lock:
            self._kept[status.table_id] = status.rounds or 0, points
            self._kept.move_to_end(status.table_id)
            while len(self._kept) > self._max:
                self._kept.popitem(last=False)


def failing_since_ms(status: TieringStatus, newest: Sequence[TieringRound]) -> int | None:
    """The end of the first failed round since the last success, by the history of a table.

    None: the history does not say it, because it begins later or has no failed round.

    :param newest: all rounds that are kept, the newest first.
    """
    since_ms, first = None, None
    for each in newest:
        if each.outcome != FAILED:
            return since_ms
        since_ms, first = each.ended_ms, each.round_number
    is_whole = first == 1 or (since_ms is not None and status.rounds == len(newest))
    return since_ms if is_whole else None


def _point(each: TieringRound) -> RoundPoint:
    return RoundPoint(
        each.ended_ms, each.outcome, each.rows_written, each.lag_rows_after, each.duration_ms
    )
