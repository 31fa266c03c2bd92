"""How far the lake is behind the logs, for a cluster that does not report it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from sluice.client.admin.admin import Admin
from sluice.client.admin.missing_leaders import Described
from sluice.client.statuses.status_table import StatusTable
from sluice.clock import Clock
from sluice.errors import SluiceError
from sluice.model import TableBucket, TableInfo

LAG_ERRORS = (SluiceError, OSError, ValueError, ImportError)
"""Errors that leave a lag unknown: of the cluster, its storage, or a missing file system."""


@dataclass(frozen=True, slots=True)
class Lag:
    """The number of untiered rows, and the age of the oldest. None: not known."""

    rows: int | None = None
    ms: int | None = None
    lake_snapshot_id: int | None = None


NO_LAG = Lag()


def read_lags(
    table: StatusTable,
    infos: Sequence[TableInfo],
    clock: Clock,
    found: dict[int, Lag],
    is_late: Callable[[], bool],
) -> None:
    """Adds to ``found`` what can be read: all row counts first, because ages need fetches.

    :param is_late: whether to stop.
    """
    behind: list[tuple[TableInfo, dict[TableBucket, int]]] = []
    for info in infos:
        if is_late():
            return
        with suppress(*LAG_ERRORS):  # dropped in the meantime, or no leader
            behind.append((info, rows_behind(table.admin, info, found)))
    for info, offsets in behind:
        if offsets and not is_late():
            found[info.table_id] = aged(found[info.table_id], table, info, offsets, clock)


def aged(
    lag: Lag, table: StatusTable, info: TableInfo, begins: Mapping[TableBucket, int], clock: Clock
) -> Lag:
    """The lag with the age of its oldest row; without it if that cannot be read: it is a fetch.

    :param begins: the first untiered offset of each bucket that has any.
    """
    with suppress(*LAG_ERRORS):  # expired, or in an unreachable storage
        oldest_ms = min(table.written_ms(info, begins), default=None)
        if oldest_ms is not None:
            return replace(lag, ms=max(clock.now_ms() - oldest_ms, 0))
    return lag


def rows_behind(admin: Admin, info: Described, found: dict[int, Lag]) -> dict[TableBucket, int]:
    """Adds the number of untiered rows to ``found``; returns their first offsets."""
    snapshot = admin.lake_snapshot(info.path)
    snapshot_id = None if snapshot is None else snapshot.snapshot_id
    found[info.table_id] = Lag(lake_snapshot_id=snapshot_id)
    offsets = {} if snapshot is None else snapshot.offsets
    counts: dict[int | None, int] = {None: info.bucket_count}
    if info.is_partitioned:
        counts = dict(admin.partition_counts(info.path, info).items())
    rows = 0
    begins: dict[TableBucket, int] = {}
    for partition, count in counts.items():
        ends = admin.list_offsets(info.path, range(count), partition, table_id=info.table_id)
        at = {number: offsets.get(TableBucket(info.table_id, partition, number)) for number in ends}
        if never := [n for n, end in ends.items() if at[n] is None and end > 0]:
            # Rows that expired before the first round do not count as lag.
            at |= admin.list_offsets(
                info.path, never, partition, "earliest", table_id=info.table_id
            )
        for number, end in ends.items():
            tiered = at[number] or 0
            if end > tiered:
                begins[TableBucket(info.table_id, partition, number)] = tiered
                rows += end - tiered
    found[info.table_id] = Lag(rows, None if rows else 0, snapshot_id)
    return begins
