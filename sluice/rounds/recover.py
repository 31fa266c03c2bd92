"""Brings Fluss up to the lake before a round plans: a snapshot of ours that Fluss does not know
was committed by a round that died before it could say so.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

from sluice.errors import LakeRolledBack, LakeTableMismatch, LakeTableMissing
from sluice.failpoints import failpoint
from sluice.model import Claim, LakeSnapshotInfo, TableBucket, TablePath
from sluice.rounds.offsets import TABLE_ID_KEY, offsets_of
from sluice.rounds.ports import Cluster, LakeTable
from sluice.rounds.types import LakeSnapshot

OFFSETS_PATH_KEY = "fluss-offsets"
KEEP_ALL = -1
_ID_IN_PATH = re.compile(r"-(\d+)/metadata/[^/]+$")
_NAMED_MAX = 3


class LakeStatus(Enum):
    """How the lake stands to what Fluss has registered of it."""

    EMPTY = "neither has a snapshot"
    SAME = "Fluss knows the newest one"
    AHEAD = "a round died before Fluss heard of its snapshot"
    BEHIND = "the lake lacks what Fluss has registered"


@dataclass(frozen=True, slots=True)
class LakeComparison:
    """What :func:`compare` found."""

    status: LakeStatus
    offsets: dict[TableBucket, int] | None = None
    """Of our newest snapshot; None: there is none, or Fluss's own tiering has written it."""
    foreign_path: str | None = None
    """Where Fluss's own tiering says that its offsets lie."""
    why: str = ""
    """If the lake is behind: in what."""


def compare(
    path: TablePath,
    table_id: int,
    table: LakeTable,
    ours: LakeSnapshot | None,
    registered: LakeSnapshotInfo | None,
) -> LakeComparison:
    """Our newest lake snapshot beside the one that Fluss has registered; changes nothing.

    :raises LakeTableMismatch: the snapshot is that of another Fluss table, or of an old Fluss.
    :raises LakeOffsetsLost: its offsets lie in a file that is gone or damaged.
    """
    if ours is None:
        if registered is None:
            _check_never_ours(path, table_id, table)
            return LakeComparison(LakeStatus.EMPTY)
        return LakeComparison(LakeStatus.BEHIND, why="no snapshot of ours is left in its history")
    check_owner(path, table_id, ours)
    if registered is not None and registered.snapshot_id == ours.snapshot_id:
        return LakeComparison(LakeStatus.SAME)
    offsets = offsets_of(path, table, ours)
    if offsets is not None:
        why = "" if registered is None else _below(ours, offsets, registered)
        status = LakeStatus.BEHIND if why else LakeStatus.AHEAD
        return LakeComparison(status, offsets, why=why)
    foreign = _foreign_path(path, ours)
    if registered is not None and not table.is_ancestor(registered.snapshot_id):
        why = f"snapshot {registered.snapshot_id} is not in its history"
        return LakeComparison(LakeStatus.BEHIND, foreign_path=foreign, why=why)
    return LakeComparison(LakeStatus.AHEAD, foreign_path=foreign)


def register_unknown(
    claim: Claim,
    cluster: Cluster,
    table: LakeTable,
    ours: LakeSnapshot | None,
    registered: LakeSnapshotInfo | None,
) -> int | None:
    """Registers our newest lake snapshot with Fluss, if Fluss does not know it yet.

    :returns: the id of the snapshot that was registered; None if there was nothing to do.
    :raises LakeRolledBack: offsets would go below those that Fluss has.
    :raises LakeTableMismatch: the snapshot is that of another Fluss table, or of an old Fluss.
    :raises LakeOffsetsLost: its offsets lie in a file that is gone or damaged.
    :raises FencedTieringEpoch, InvalidCoordinator, TableNotExist: the round is not wanted.
    """
    found = compare(claim.path, claim.table_id, table, ours, registered)
    if found.status is LakeStatus.BEHIND:
        assert registered is not None
        raise rolled_back(claim.path, registered, found.why)
    if found.status is not LakeStatus.AHEAD:
        return None
    assert ours is not None
    offsets = found.offsets or {}
    path = found.foreign_path
    if path is None:
        # A fresh file: the one of the dead round may have been discarded by then.
        path = cluster.prepare_lake_snapshot(claim.table_id, claim.path, offsets)
    failpoint("round.recover.prepared")
    keep = registered.snapshot_id if registered else KEEP_ALL
    cluster.commit_lake_snapshot(claim, ours.snapshot_id, path, offsets, {}, keep)
    return ours.snapshot_id


def behind_text(path: TablePath, registered: LakeSnapshotInfo, what: str) -> str:
    """That the lake is behind Fluss, in words."""
    return (
        f"lake table {path} is behind snapshot {registered.snapshot_id} that Fluss has registered:"
        f" {what}"
    )


def rolled_back(path: TablePath, registered: LakeSnapshotInfo, what: str) -> LakeRolledBack:
    """The error of a lake that is behind Fluss."""
    return LakeRolledBack(
        f"{behind_text(path, registered, what)}. Run `sluice repair {path}` with the same"
        " --warehouse or --config: it lists the possible repairs, and applies one with --yes",
        table=str(path),
        registered_snapshot_id=registered.snapshot_id,
    )


def missing_text(path: TablePath, registered: LakeSnapshotInfo, where: str) -> str:
    """That the lake table is gone, in words; ``where``: the lake that was looked at."""
    return (
        f"lake table {path} is missing in {where}, but Fluss has registered its snapshot"
        f" {registered.snapshot_id}"
    )


def table_missing(path: TablePath, registered: LakeSnapshotInfo, where: str) -> LakeTableMissing:
    """The error of a lake table that is gone: it is never made anew by itself."""
    return LakeTableMissing(
        f"{missing_text(path, registered, where)}. Check that the catalog settings name the right"
        f" lake. If they do, run `sluice repair {path}` with the same --warehouse or --config: it"
        " lists the possible repairs",
        table=str(path),
    )


def _foreign_path(path: TablePath, ours: LakeSnapshot) -> str:
    found = ours.summary.get(OFFSETS_PATH_KEY, "")
    if not found or "{" in found:
        raise LakeTableMismatch(
            f"snapshot {ours.snapshot_id} of lake table {path} has {OFFSETS_PATH_KEY}="
            f"{found[:100]!r}: it was written by Fluss 0.8 or older; let that version register it"
        )
    return found


def _check_never_ours(path: TablePath, table_id: int, table: LakeTable) -> None:
    """Our snapshots may have expired after a rollback; the rows that they brought are still there.

    :raises LakeTableMismatch: main came from a snapshot of ours, and Fluss knows of none.
    """
    last = table.history().newest_tiering_snapshot()
    if last is None:
        return
    check_owner(path, table_id, LakeSnapshot(last.snapshot_id, last.sequence_number, last.summary))
    raise LakeTableMismatch(
        f"lake table {path} came from snapshot {last.snapshot_id} of ours, which has expired, and"
        " Fluss has registered none: its rows would be doubled. Drop or rename the lake table",
        table_id=table_id,
    )


def check_owner(path: TablePath, table_id: int, ours: LakeSnapshot) -> None:
    """A table that was dropped and created again has a new id; its old rows are another table's.

    :raises LakeTableMismatch: the snapshot is another table's.
    """
    found = ours.summary.get(TABLE_ID_KEY)
    if found is None and (match := _ID_IN_PATH.search(ours.summary.get(OFFSETS_PATH_KEY, ""))):
        found = match[1]
    if found is not None and found != str(table_id):
        raise LakeTableMismatch(
            f"lake table {path} holds the rows of Fluss table id {found}, which was dropped;"
            f" the table is now id {table_id}: drop or rename the lake table",
            table_id=table_id,
        )


def _below(
    ours: LakeSnapshot, offsets: dict[TableBucket, int], registered: LakeSnapshotInfo
) -> str:
    """In which buckets the snapshot is below what Fluss has registered; empty if in none."""
    behind = [
        f"bucket {bucket} at {offsets.get(bucket, 'no offset')} where Fluss has {offset}"
        for bucket, offset in registered.offsets.items()
        if offsets.get(bucket, -1) < offset
    ]
    if not behind:
        return ""
    more = f" and {len(behind) - _NAMED_MAX} more" if len(behind) > _NAMED_MAX else ""
    named = ", ".join(behind[:_NAMED_MAX])
    return f"its newest snapshot of ours, {ours.snapshot_id}, has {named}{more}"
