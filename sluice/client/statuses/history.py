"""The history of rounds on a cluster that keeps none: written as rounds end, in events of their
own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from sluice.client.statuses.accesses import EventKind, StatusEvents
from sluice.client.statuses.round_table import PATH as ROUNDS_PATH
from sluice.client.statuses.round_table import RoundTable
from sluice.model import Claim, TablePath, TieringRound


class RoundHistory:
    """Writes what rounds did. Safe for use by many threads."""

    def __init__(self, table: RoundTable, events: StatusEvents) -> None:
        self._table, self._events = table, events

    def record(self, rounds: Sequence[tuple[TablePath, TieringRound]]) -> None:
        """:param rounds: a round without a number gets the next one of the table's history."""
        if not rounds:
            return

        def write() -> None:
            table = self._table
            unnumbered = [ended.table_id for _, ended in rounds if ended.round_number is None]
            last = table.last_numbers(unnumbered) if unnumbered else {}
            table.write(
                [
                    replace(ended, round_number=last.get(ended.table_id, 0) + 1)
                    if ended.round_number is None
                    else ended
                    for _, ended in rounds
                ],
                self._events.is_late,
            )

        what = "record what its round did"
        self._events.event(rounds[0][0], what, write, EventKind.ROUND, ROUNDS_PATH)

    def last_numbers(self, claims: Sequence[Claim]) -> dict[int, int]:
        """The newest rounds' numbers in the history: statuses may be lost, or have none yet."""
        if not claims:
            return {}
        what, kind = "read the number of its last round", EventKind.ROUND
        read = partial(self._table.last_numbers, [claim.table_id for claim in claims])
        return self._events.event(claims[0].path, what, read, kind, ROUNDS_PATH) or {}
