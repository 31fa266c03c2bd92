"""Computes how far the lake is behind the logs of a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from sluice.clock import Clock
from sluice.errors import LakeSnapshotNotExist
from sluice.model import TableBucket
from sluice.server.coordinator.catalog.catalog import TableEntry
from sluice.server.coordinator.tiering.lake_snapshots import LakeSnapshots


class Logs(Protocol):
    """Reads the logs of tablets."""

    def beyond(self, bucket: TableBucket, offset: int) -> tuple[int, int | None]:
        """The number of offsets in the bucket's log from ``offset`` on, and the time of the first.

        The time is in epoch milliseconds. Without such offsets: (0, None).
        """


@dataclass(frozen=True, slots=True)
class Lag:
    """``rows``: number of offsets missing in the lake. ``ms``: age of the oldest, 0 if none."""

    rows: int
    ms: int
    lake_snapshot_id: int | None


class LakeLag:
    """Compares registered lake offsets with the ends of the logs. Stateless."""

    def __init__(self, lake: LakeSnapshots, logs: Logs, clock: Clock) -> None:
        self._lake = lake
        self._logs = logs
        self._clock = clock

    def of(self, table: TableEntry) -> Lag:
        """The lag of one table.

        :raises UnknownServerError: the registered offsets cannot be read.
        """
        info = table.info
        try:
            registered = self._lake.get(info)
        except LakeSnapshotNotExist:
            registered = None
        offsets = {} if registered is None else registered.offsets
        rows, oldest_ms = 0, None
        for partition_id, count in table.bucket_counts().items():
            for number in range(count):
                bucket = TableBucket(info.table_id, partition_id, number)
                more, since_ms = self._logs.beyond(bucket, offsets.get(bucket, 0))
                rows += more
                if since_ms is not None and (oldest_ms is None or since_ms < oldest_ms):
                    oldest_ms = since_ms
        ms = 0 if oldest_ms is None else max(self._clock.now_ms() - oldest_ms, 0)
        return Lag(rows, ms, None if registered is None else registered.snapshot_id)
