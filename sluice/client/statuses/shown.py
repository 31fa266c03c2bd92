"""Statuses as they are shown, from the rows that rounds recorded."""

from __future__ import annotations

from dataclasses import replace

from sluice.client.statuses.lag import NO_LAG, Lag
from sluice.errors import InvalidConfig
from sluice.model import TableInfo, TablePath, TieringStatus
from sluice.statuses import DEFAULT_FRESHNESS_MS, RecordedStatus, freshness_ms, recorded


def shown_status(
    path: TablePath,
    table_id: int,
    freshness_ms: int,
    row: RecordedStatus | None,
    now_ms: int,
    unread: str | None = None,
    lag: Lag = NO_LAG,
    no_leader: str | None = None,
) -> TieringStatus:
    """The status of a table by its row.

    :param unread: why the row could not be read. :param no_leader: which buckets have no leader.
    """
    status = recorded.status_of(path, table_id, freshness_ms, row, now_ms)
    if no_leader is not None:
        status = replace(status, note=no_leader)
    if unread is not None:
        status = replace(status, failures=None, paused=None, rounds=None, note=unread)
    return replace(status, lag_rows=lag.rows, lag_ms=lag.ms, lake_snapshot_id=lag.lake_snapshot_id)


def described_freshness_ms(info: TableInfo) -> int:
    try:
        return freshness_ms(info.descriptor.properties)
    except InvalidConfig:
        return DEFAULT_FRESHNESS_MS
