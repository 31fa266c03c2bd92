"""Registers with Fluss, before a round plans, a lake snapshot of a round that died too early.

Such a round committed to the lake and died before its second commit, the one to Fluss.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

from sluice.errors import (
    LakeCommitRefused,
    LakeRolledBack,
    LakeTableMismatch,
    LakeTableMissing,
    SluiceError,
)
from sluice.failpoints import failpoint
from sluice.model import Claim, LakeSnapshotInfo, TableBucket, TablePath
from sluice.rounds.values.offsets import TABLE_ID_KEY, offsets_of
from sluice.rounds.values.ports import Cluster, LakeTable
from sluice.rounds.values.reasons import reason_of
from sluice.rounds.values.types import LakeSnapshot

OFFSETS_PATH_KEY = "fluss-offsets"
KEEP_ALL = -1
_ID_IN_PATH = re.compile(r"-(\d+)/metadata/[^/]+$")
_NAMED_MAX = 3


class LakeStatus(Enum):
    """How the lake compares with what Fluss has registered."""

    EMPTY = "neither the lake nor Fluss has a tiering snapshot"
    SAME = "Fluss has registered the newest tiering snapshot"
    AHEAD = "a round died before it registered its snapshot with Fluss"
    BEHIND = "the lake lacks what Fluss has registered"


@dataclass(frozen=True, slots=True)
class LakeComparison:
    """The result of :func:`compare`."""

    status: LakeStatus
    offsets: dict[TableBucket, int] | None = None
    """Of the newest tiering snapshot; None: there is none, or Fluss's own tiering wrote it."""
    foreign_path: str | None = None
    """Where the offsets of a snapshot of Fluss's own tiering are stored."""
    why: str = ""
    """The offsets that the lake lacks, if it is behind."""


def compare(
    path: TablePath,
    table_id: int,
    table: LakeTable,
    ours: LakeSnapshot | None,
    registered: LakeSnapshotInfo | None,
) -> LakeComparison:
    """Compares the newest tiering snapshot with the registered one; changes nothing.

    :raises LakeTableMismatch: the snapshot belongs to another Fluss table, or is of an old Fluss.
    :raises LakeOffsetsLost: the file with its offsets is missing or damaged.
    """
    if ours is None:
        if registered is None:
            _check_never_ours(path, table_id, table)
            return LakeComparison(LakeStatus.EMPTY)
        return LakeComparison(LakeStatus.BEHIND, why="its history has no tiering snapshot any more")
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


def move_tag(table: LakeTable, snapshot: LakeSnapshot) -> list[str]:
    """Moves the tag ``sluice-tiered``; the commit is done, so a failure is only a note."""
    failpoint("round.tag.before")
    try:
        table.tag(snapshot.snapshot_id)
    except SluiceError as error:
        why = reason_of(error).text
        return [f"lake snapshot {snapshot.snapshot_id} could not be tagged sluice-tiered: {why}"]
    return []


def register_unknown(
    claim: Claim,
    cluster: Cluster,
    table: LakeTable,
    ours: LakeSnapshot | None,
    registered: LakeSnapshotInfo | None,
) -> int | None:
    """Registers the newest tiering snapshot with Fluss, unless it is registered already.

    :returns: the id of the snapshot that was registered, here or by another driver meanwhile; None
        if there was nothing to do.
    :raises LakeRolledBack: its offsets are below the registered ones.
    :raises LakeCommitRefused: another snapshot was registered meanwhile.
    :raises LakeTableMismatch: the snapshot belongs to another Fluss table, or is of an old Fluss.
    :raises LakeOffsetsLost: the file with its offsets is missing or damaged.
    :raises FencedTieringEpoch, InvalidCoordinator, TableNotExist: the claim is no longer valid.
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
        # A new file: the killed round's file may have been deleted since.
        path = cluster.prepare_lake_snapshot(claim.table_id, claim.path, offsets)
    if (other := registered_since(claim.path, cluster, registered)) is not None:
        if other.snapshot_id == ours.snapshot_id:
            return ours.snapshot_id
        raise registered_meanwhile(claim.path, other)  # this registration would hide that one
    failpoint("round.recover.prepared")
    keep = registered.snapshot_id if registered else KEEP_ALL
    cluster.commit_lake_snapshot(claim, ours.snapshot_id, path, offsets, {}, keep)
    return ours.snapshot_id


def behind_text(path: TablePath, registered: LakeSnapshotInfo, what: str) -> str:
    """States that the lake is behind Fluss, and in which buckets."""
    return (
        f"lake table {path} is behind snapshot {registered.snapshot_id}, which Fluss has"
        f" registered: {what}"
    )


def rolled_back(path: TablePath, registered: LakeSnapshotInfo, what: str) -> LakeRolledBack:
    """The error for a lake that is behind Fluss, with the command that repairs it."""
    return LakeRolledBack(
        f"{behind_text(path, registered, what)}. Run `sluice repair {path}` with the same"
        " --warehouse or --config: it lists the possible repairs, and applies one with --yes",
        table=str(path),
        registered_snapshot_id=registered.snapshot_id,
    )


def registered_since(
    path: TablePath, cluster: Cluster, known: LakeSnapshotInfo | None
) -> LakeSnapshotInfo | None:
    """Asks Fluss again; None: it still names the known snapshot, or it names none."""
    now = cluster.lake_snapshot(path)
    if now is None or (known is not None and now.snapshot_id == known.snapshot_id):
        return None
    return now


def registered_meanwhile(path: TablePath, registered: LakeSnapshotInfo) -> LakeCommitRefused:
    """The error for a snapshot of another round, which a registration by this one would hide."""
    return LakeCommitRefused(
        f"table {path}: another round registered lake snapshot {registered.snapshot_id} with Fluss"
        " while this round ran, so Fluss may have deleted rows that this round has not read."
        " This attempt committed nothing. The next one plans again, or reports that main was rolled"
        " back"
    )


def missing_text(path: TablePath, registered: LakeSnapshotInfo, where: str) -> str:
    """States that the lake table is missing; ``where`` names the lake."""
    return (
        f"lake table {path} is missing in {where}, but Fluss has registered its snapshot"
        f" {registered.snapshot_id}"
    )


def table_missing(path: TablePath, registered: LakeSnapshotInfo, where: str) -> LakeTableMissing:
    """The error for a missing lake table: Sluice never recreates one automatically."""
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
            f"{found[:100]!r}: Fluss 0.8 or older wrote it. Register it with that version first"
        )
    return found


def _check_never_ours(path: TablePath, table_id: int, table: LakeTable) -> None:
    """Checks that main has no rows of a tiering snapshot that Fluss does not know.

    :raises LakeTableMismatch: main descends from an expired tiering snapshot, or may descend from
        one that the catalog hides, and Fluss has registered none.
    """
    history = table.history()
    last = history.newest_tiering_snapshot()
    if last is None:
        if (hidden := history.began_with_hidden_rows()) is not None:
            raise LakeTableMismatch(
                f"lake table {path} had rows before its snapshot {hidden.snapshot_id}, of commits"
                " that the catalog hides, and Fluss has registered no snapshot: a round could copy"
                " rows a second time that a tiering service has committed. Tier to another lake,"
                " and compare the rows of both",
                table_id=table_id,
            )
        return
    check_owner(path, table_id, LakeSnapshot(last.snapshot_id, last.sequence_number, last.summary))
    raise LakeTableMismatch(
        f"lake table {path} descends from tiering snapshot {last.snapshot_id}, which has expired,"
        " but Fluss has registered no snapshot: a round would copy its rows a second time. Tier to"
        " another lake, and compare the rows of both",
        table_id=table_id,
    )


def check_owner(path: TablePath, table_id: int, ours: LakeSnapshot) -> None:
    """Checks that a snapshot belongs to this Fluss table, not to a dropped one of the same name.

    :raises LakeTableMismatch: the snapshot belongs to another table id.
    """
    found = ours.summary.get(TABLE_ID_KEY)
    if found is None and (match := _ID_IN_PATH.search(ours.summary.get(OFFSETS_PATH_KEY, ""))):
        found = match[1]
    if found is not None and found != str(table_id):
        raise LakeTableMismatch(
            f"lake table {path} holds the rows of Fluss table id {found}, which was dropped or is"
            f" one of another cluster; the Fluss table of that name has id {table_id}. Check that"
            " this is the lake of this cluster. If it is, the lake has the only rows of the dropped"
            " table: create the new Fluss table under another name",
            table_id=table_id,
        )


def _below(
    ours: LakeSnapshot, offsets: dict[TableBucket, int], registered: LakeSnapshotInfo
) -> str:
    """Names the buckets whose offset is below the registered one; empty if there is none."""
    behind = [
        f"bucket {bucket} at {offsets.get(bucket, 'no offset')} where Fluss has {offset}"
        for bucket, offset in registered.offsets.items()
        if offsets.get(bucket, -1) < offset
    ]
    if not behind:
        return ""
    more = f" and {len(behind) - _NAMED_MAX} more" if len(behind) > _NAMED_MAX else ""
    named = ", ".join(behind[:_NAMED_MAX])
    return f"its newest tiering snapshot, {ours.snapshot_id}, has {named}{more}"
