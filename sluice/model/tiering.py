"""What passes between those who tier a table: claims, statuses and lake snapshots."""

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
    """The coordinator's word on one lake table (seed 001). Times are epoch milliseconds.

    What comes after ``last_error_ms`` is None where the server does not tell it.
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
    """When the table may be handed out, or since when; None while it is tiered, or paused."""
    lag_rows: int | None = None
    """Offsets of its logs that the registered lake snapshot does not hold, over all buckets."""
    lag_ms: int | None = None
    """How long ago the oldest of them was written; 0 if there is none."""
    lake_snapshot_id: int | None = None
    paused: bool | None = None
    last_round_ms: int | None = None
    """How long the last finished round took, from claim to report."""
    note: str | None = None
    """Why the status is ``Unknown``: only where a cluster cannot be asked how tiering stands."""

    @property
    def is_unread(self) -> bool:
        """Whether what is written down of it could not be read; ``note`` says why."""
        return self.note is not None and self.failures is None

    @property
    def is_failing(self) -> bool:
        """Whether the last round failed, and none has succeeded since."""
        if self.failures is not None:
            return self.failures > 0
        return self.status == "Failed" or self.last_error is not None


@dataclass(frozen=True, slots=True)
class LakeSnapshotInfo:
    """The lake snapshot that Fluss has registered: its id and the end offset of each bucket."""

    table_id: int
    snapshot_id: int
    offsets: Mapping[TableBucket, int]
