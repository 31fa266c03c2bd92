"""Computes how far the lake is behind the logs of a table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from sluice.clock import Clock
from sluice.errors import LakeSnapshotNotExist
from sluice.model import TableBucket, TieringStatus
from sluice.server.coordinator.catalog.entries import TableEntry
from sluice.server.coordinator.tiering.lake_snapshots import LakeSnapshots


@dataclass(frozen=True, slots=True)
class LakeLag:
    """Compares registered lake offsets with the ends of the logs. Stateless."""

    _lake: LakeSnapshots
    _beyond: Callable[[TableBucket, int], tuple[int, int | None]]
    """How many offsets a log has from one on, and the time of the first: ``LogManager.beyond``."""
    _clock: Clock

    def added_to(self, status: TieringStatus, table: TableEntry) -> TieringStatus:
        """The status with the number of offsets that the lake lacks, and the age of the oldest.

        :raises UnknownServerError: the registered offsets cannot be read.
        """
        try:
            registered = self._lake.get(table.info)
        except LakeSnapshotNotExist:
            registered = None
        offsets = {} if registered is None else registered.offsets
        rows, oldest_ms = 0, None
        for bucket in table.buckets():
            more, since_ms = self._beyond(bucket, offsets.get(bucket, 0))
            rows += more
            if since_ms is not None and (oldest_ms is None or since_ms < oldest_ms):
                oldest_ms = since_ms
        return replace(
            status,
            lag_rows=rows,
            lag_ms=0 if oldest_ms is None else max(self._clock.now_ms() - oldest_ms, 0),
            lake_snapshot_id=None if registered is None else registered.snapshot_id,
        )
