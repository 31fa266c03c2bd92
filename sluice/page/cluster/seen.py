"""What was last read of a cluster: immutable, and replaced as a whole by its readers."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from sluice.client.statuses.lag import Lag
from sluice.client.statuses.watch import WatchedTable
from sluice.model import TablePath, TieringStatus


@dataclass(frozen=True, slots=True)
class SeenTable:
    """The status of a table, and when it and its lag were read (epoch milliseconds)."""

    status: TieringStatus
    status_read_ms: int
    lag_read_ms: int | None = None
    failing_since_ms: int | None = None
    """End of the first failed round since the last success, by the history; None: not read."""
    freshness_ms: int | None = None
    """``table.datalake.freshness``. None: not read, as on an embedded server."""
    lag_unread_ms: int | None = None
    """Since when its lag cannot be read; None: it can, or was not tried."""

    @classmethod
    def reported(cls, status: TieringStatus, read_ms: int) -> SeenTable:
        """As a coordinator reports it that counts lags itself."""
        return cls(status, read_ms, None if status.lag_rows is None else read_ms)

    @classmethod
    def recorded(
        cls, tables: Iterable[WatchedTable], statuses: Iterable[TieringStatus], read_ms: int
    ) -> list[SeenTable]:
        """As rounds recorded the statuses of these tables: their lags are read one by one."""
        return [
            cls(status, read_ms, freshness_ms=table.freshness_ms)
            for table, status in zip(tables, statuses, strict=True)
        ]


@dataclass(frozen=True, slots=True)
class LagReads:
    """How fresh the lags of a reading are."""

    oldest_ms: int | None
    """When the oldest lag was read; None: at least one was not, or there is no table."""
    unread: int
    """The tables whose lag was tried and cannot be read."""


@dataclass(frozen=True, eq=False)
class Seen:
    """What was last read of a cluster. Immutable."""

    tables: Mapping[TablePath, SeenTable] = field(default_factory=dict)
    read_ms: int | None = None
    is_complete: bool = False
    error: str | None = None
    away_ms: int | None = None
    """When the cluster did not answer; None: it did."""
    is_fluss: bool = False
    """Whether the coordinator keeps no statuses, as in Apache Fluss."""

    @cached_property
    def lags(self) -> LagReads:
        """How fresh the lags are."""
        tables = self.tables.values()
        known = [each.lag_read_ms for each in tables if each.lag_read_ms is not None]
        return LagReads(
            min(known) if known and len(known) == len(tables) else None,
            sum(each.lag_unread_ms is not None for each in tables),
        )


class SeenStore:
    """Replaces what was seen. Safe for use by many threads: what was read later wins."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # one change at a time
        self.seen = Seen()

    def put(
        self, found: Iterable[SeenTable], *, is_fluss: bool, read_ms: int | None = None
    ) -> None:
        """Adds tables that were just read.

        :param read_ms: when the first pass began, while it is not complete.
        """
        with self._lock:
            seen = self.seen
            tables = dict(seen.tables)
            for each in found:
                path = each.status.path
                tables[path] = merged(tables.get(path), each)
            at_ms = seen.read_ms if seen.is_complete else read_ms or seen.read_ms
            self.seen = replace(seen, tables=tables, is_fluss=is_fluss, read_ms=at_ms)

    def drop(self, gone: Iterable[TablePath], read_ms: int) -> None:
        """Removes tables that were not there when a read began at ``read_ms``."""
        with self._lock:
            there = self.seen.tables
            old = {p for p in gone if p in there and there[p].status_read_ms <= read_ms}
            if old:
                kept = {path: each for path, each in there.items() if path not in old}
                self.seen = replace(self.seen, tables=kept)

    def complete(self, read_ms: int, error: str | None = None) -> None:
        """Every table was read since ``read_ms``."""
        with self._lock:
            self.seen = replace(
                self.seen, read_ms=read_ms, is_complete=True, error=error, away_ms=None
            )

    def fail(self, error: str, away_ms: int | None = None) -> None:
        """Keeps what is known, and says why nothing newer is.

        :param away_ms: when that was, if the cluster does not answer.
        """
        with self._lock:
            self.seen = replace(self.seen, error=error, away_ms=away_ms)

    def put_lags(self, lags: Mapping[TablePath, tuple[int, Lag | None, int]]) -> None:
        """Adds lags that were read one by one: table id, lag, and when that was tried.

        Where there is none, it could not be read: the last one is kept.
        """
        with self._lock:
            tables = dict(self.seen.tables)
            for path, (table_id, lag, read_ms) in lags.items():
                each = tables.get(path)
                if each is None or each.status.table_id != table_id:
                    continue
                if lag is None:
                    since_ms = read_ms if each.lag_unread_ms is None else each.lag_unread_ms
                    tables[path] = replace(each, lag_unread_ms=since_ms)
                    continue
                status = replace(
                    each.status,
                    lag_rows=lag.rows,
                    lag_ms=lag.ms,
                    lake_snapshot_id=lag.lake_snapshot_id,
                )
                tables[path] = replace(each, status=status, lag_read_ms=read_ms, lag_unread_ms=None)
            self.seen = replace(self.seen, tables=tables)

    def put_failing_since(self, since: Mapping[TablePath, tuple[SeenTable, int]]) -> None:
        """Adds since when tables have been failing; the table as it was when that was asked."""
        with self._lock:
            tables = dict(self.seen.tables)
            for path, (asked, since_ms) in since.items():
                each = tables.get(path)
                if each is not None and is_same_streak(asked.status, each.status):
                    tables[path] = replace(each, failing_since_ms=since_ms)
            self.seen = replace(self.seen, tables=tables)


def is_same_streak(one: TieringStatus, other: TieringStatus) -> bool:
    """Whether a table has been failing from the one status to the other, without a success."""
    return (
        one.table_id == other.table_id
        and one.last_tiered_ms == other.last_tiered_ms
        and _has_failed(one)
        and _has_failed(other)
    )


def _has_failed(status: TieringStatus) -> bool:
    """Whether its last round failed, also after a retry has cleared the failures."""
    return status.is_failing or status.last_error is not None


def merged(old: SeenTable | None, new: SeenTable) -> SeenTable:
    """The newer of two readings, with what only the older one has: lag, and since when it is so.

    A status that could not be read does not replace one that was.
    """
    if old is None:
        return new
    if old.status_read_ms > new.status_read_ms:
        return old
    if old.status.table_id != new.status.table_id:
        return new
    if new.status.is_unread and not old.status.is_unread:
        return old
    since_ms = new.failing_since_ms
    if since_ms is None and is_same_streak(old.status, new.status):
        since_ms = old.failing_since_ms
    status, lag_read_ms = new.status, new.lag_read_ms
    if lag_read_ms is None and old.lag_read_ms is not None:
        lag_read_ms = old.lag_read_ms
        status = replace(
            status,
            lag_rows=old.status.lag_rows,
            lag_ms=old.status.lag_ms,
            lake_snapshot_id=old.status.lake_snapshot_id,
        )
    return SeenTable(
        status,
        new.status_read_ms,
        lag_read_ms,
        since_ms,
        old.freshness_ms if new.freshness_ms is None else new.freshness_ms,
        old.lag_unread_ms if new.lag_read_ms is None else None,
    )
