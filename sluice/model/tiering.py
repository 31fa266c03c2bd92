"""Claims, tiering statuses and registered lake snapshots."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sluice.model.paths import TableBucket, TablePath


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to tier a table once, which the coordinator assigned to a worker.

    See docs/fluss/tiering.md#heartbeat
    """

    table_id: int
    path: TablePath
    tiering_epoch: int
    coordinator_epoch: int


@dataclass(frozen=True, slots=True)
class TieringStatus:
    """The tiering status of one lake table. Times are epoch milliseconds.

    The fields after ``last_error_ms`` are None if the server does not report them.
    """

    path: TablePath
    table_id: int
    status: str
    tiering_epoch: int
    last_tiered_ms: int | None = None
    last_error: str | None = None
    last_error_ms: int | None = None
    failures: int | None = None
    """Failures since the last success."""
    next_attempt_ms: int | None = None
    """When the coordinator may assign the table, or since when; None while tiered or paused."""
    lag_rows: int | None = None
    """Log offsets that are not in the registered lake snapshot, over all buckets."""
    lag_ms: int | None = None
    """Age of the oldest of these rows; 0 if there are none."""
    lake_snapshot_id: int | None = None
    paused: bool | None = None
    last_round_ms: int | None = None
    """How long the last finished round took, from claim to report."""
    note: str | None = None
    """Why the status is ``Unknown``, for a cluster that keeps no statuses itself."""

    @property
    def is_unread(self) -> bool:
        """Whether the recorded status could not be read; ``note`` has the reason."""
        return self.note is not None and self.failures is None

    @property
    def is_failing(self) -> bool:
        """Whether the last round failed, and none has succeeded since."""
        if self.failures is not None:
            return self.failures > 0
        return self.status == "Failed" or self.last_error is not None


@dataclass(frozen=True, slots=True)
class LakeSnapshotInfo:
    """A lake snapshot registered in Fluss: its id and the end offset of each bucket."""

    table_id: int
    snapshot_id: int
    offsets: Mapping[TableBucket, int]
