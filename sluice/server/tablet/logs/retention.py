"""Deletes log segments that are older than ``table.log.ttl``, in the background.

A segment is deleted when its newest batch is older than that, and nobody needs it: not the lake of
a table with tiering, not the key-value store of a primary-key table (its oldest KV snapshot that is
kept or leased), and no open scan. The last segment of a log always stays.

``table.log.local-ttl`` is about segments that also are in remote storage. This server has none
there, so the option has no effect.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import structlog

from sluice.clock import Clock
from sluice.errors import FlussError
from sluice.model import TableBucket, TableInfo
from sluice.model.durations import duration_ms
from sluice.server.tablet.buckets.ports import HostedTable, Tables
from sluice.server.tablet.logs.manager import LogManager
from sluice.server.ticker import Ticker

TTL = "table.log.ttl"
DEFAULT_TTL = "7 d"
"""Fluss's default of ``table.log.ttl``."""

_log = structlog.get_logger("sluice.log")


@dataclass(frozen=True, slots=True)
class Needs:
    """Who still reads segments. Each returns the lowest log offset that is needed."""

    lake: Callable[[TableInfo], Mapping[TableBucket, int]]
    """The lake offsets of a table's buckets. :raises StorageError: they cannot be read."""
    kv_snapshots: Callable[[TableBucket], int]
    """Where a recovery from the oldest KV snapshot begins; 0 without a snapshot."""
    scans: Callable[[TableBucket], int | None]
    """Where the log continues the oldest open scan; None without a scan."""


class LogRetention:
    """Checks all logs at intervals."""

    def __init__(
        self, tables: Tables, logs: LogManager, needs: Needs, clock: Clock, since_ms: int
    ) -> None:
        """:param since_ms: when segments began to expire in this data directory. Older ones count
        as that old only, so that an upgrade deletes nothing at once.
        """
        self._tables = tables
        self._logs = logs
        self._needs = needs
        self._clock = clock
        self._since_ms = since_ms
        self._ticker = Ticker("log-retention", self.check)

    def start(self, interval_ms: int) -> None:
        """Starts to check every ``interval_ms``; 0: never."""
        self._ticker.start(interval_ms)

    def stop(self) -> None:
        self._ticker.stop()

    def check(self) -> int:
        """Deletes what has expired; returns the number of deleted segments.

        A table or bucket that fails does not stop the others; the next check tries it again.
        """
        deleted = 0
        for table in self._tables.tables():
            ttl_ms = ttl_of(table.info)
            before_ms = self._clock.now_ms() - ttl_ms
            is_due = ttl_ms > 0 and before_ms > self._since_ms
            try:
                deleted += self._check_table(table, before_ms if is_due else None)
            except (FlussError, OSError) as error:
                _log.error(
                    "old log segments were not deleted",
                    table=str(table.info.path),
                    error=str(error),
                )
        return deleted

    def _check_table(self, table: HostedTable, before_ms: int | None) -> int:
        """:param before_ms: older segments expire; None: only repeat deletions that failed."""
        deleted, in_lake = 0, None
        for bucket in table.buckets():
            log = self._logs.opened(bucket)
            if self._ticker.is_stopping or log is None:
                continue
            start = log.start_offset
            end = start if before_ms is None else log.expired_end(before_ms)
            if end > start and table.info.datalake_enabled:
                if in_lake is None:
                    in_lake = self._needs.lake(table.info)
                end = min(end, in_lake.get(bucket, 0))
            if end > start and table.info.has_primary_key:
                end = min(end, self._needs.kv_snapshots(bucket))
                scanned = self._needs.scans(bucket)
                end = end if scanned is None else min(end, scanned)
            try:
                deleted += log.delete_before(end) if end > start else log.delete_expired()
            except OSError as error:
                _log.error("old log segments were not deleted", bucket=log.name, error=str(error))
        return deleted


def ttl_of(info: TableInfo) -> int:
    """The time to live of a table's log in milliseconds; 0: for ever."""
    return duration_ms(TTL, info.descriptor.properties.get(TTL, DEFAULT_TTL))
