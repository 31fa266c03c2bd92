"""What passes between those who tier a table: claims, statuses and lake snapshots."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sluice.model.paths import TableBucket, TablePath


@dataclass(frozen=True, slots=True)
class Claim:
    """One round's right to a table, as the coordinator handed it out (reference part 3.2)."""

    table_id: int
    path: TablePath
    tiering_epoch: int
    coordinator_epoch: int


@dataclass(frozen=True, slots=True)
class TieringStatus:
    """The coordinator's word on one lake table (seed 001). Times are epoch milliseconds."""

    path: TablePath
    table_id: int
    status: str
    tiering_epoch: int
    last_tiered_ms: int | None = None
    last_error: str | None = None
    last_error_ms: int | None = None


@dataclass(frozen=True, slots=True)
class LakeSnapshotInfo:
    """The lake snapshot that Fluss has registered: its id and the end offset of each bucket."""

    table_id: int
    snapshot_id: int
    offsets: Mapping[TableBucket, int]
