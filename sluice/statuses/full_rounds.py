"""Which idle tables get a complete round all the same, and not just the report of one. Pure.

The check whether a table is idle asks Fluss and not the lake. So it does not see a lake snapshot
that Fluss does not know, a lake that was rolled back, or a column that the lake lacks. Nor does it
compact anything.
docs/design/rounds.md#idle-tables
"""

from __future__ import annotations

from sluice.model import KeptStatus, TableInfo

FULL_ROUND_MS = 6 * 3_600_000
"""In each period of this length, the first round of a table is complete."""

_SPREAD = 2_654_435_761  # spreads consecutive table ids over a period


def needs_full_round(status: KeptStatus | None, info: TableInfo, now_ms: int) -> bool:
    """Whether the next round of an idle table must look at its lake.

    :param status: its status before the round; None: not known.
    """
    if status is None or status.last_tiered_ms is None:
        return True  # nothing shows that a round was ever complete: the lake may lack the table
    if status.failures or status.last_error is not None or status.stopped is not None:
        return True  # that round may have died between its two commits
    if status.compaction_requested_ms is not None:
        return True
    begun_ms = status.last_tiered_ms - (status.last_round_ms or 0)
    if info.modified_ms >= begun_ms:
        return True  # it has a new column or another option
    return _period(info.table_id, now_ms) > _period(info.table_id, status.last_tiered_ms)


def _period(table_id: int, at_ms: int) -> int:
    """The number of a table's period. Periods begin at different times for different tables."""
    return (at_ms + table_id * _SPREAD % FULL_ROUND_MS) // FULL_ROUND_MS
