"""Brings Fluss up to the lake before a round plans: a snapshot of ours that Fluss does not know
was committed by a round that died before it could say so.
"""

from __future__ import annotations

import re

from sluice.errors import LakeRolledBack, LakeTableMismatch
from sluice.failpoints import failpoint
from sluice.model import Claim, LakeSnapshotInfo, TableBucket
from sluice.rounds.offsets import TABLE_ID_KEY, offsets_of
from sluice.rounds.ports import Cluster, LakeTable
from sluice.rounds.types import LakeSnapshot

OFFSETS_PATH_KEY = "fluss-offsets"
KEEP_ALL = -1
_ID_IN_PATH = re.compile(r"-(\d+)/metadata/[^/]+$")


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
    :raises FencedTieringEpoch, InvalidCoordinator, TableNotExist: the round is not wanted.
    """
    if ours is None:
        if registered is None:
            return None
        raise _rolled_back(claim, registered, "no snapshot of ours is left in its history")
    _check_owner(claim, ours)
    if registered is not None and registered.snapshot_id == ours.snapshot_id:
        return None
    offsets = offsets_of(claim.path, table, ours)
    if offsets is None:
        path = _foreign_path(claim, ours)
        if registered is not None and not table.is_ancestor(registered.snapshot_id):
            raise _rolled_back(
                claim, registered, f"snapshot {registered.snapshot_id} is not in its history"
            )
        offsets = {}
    else:
        if registered is not None:
            _check_not_below(claim, ours, offsets, registered)
        # A fresh file: the one of the dead round may have been discarded by then.
        path = cluster.prepare_lake_snapshot(claim.table_id, claim.path, offsets)
    failpoint("round.recover.prepared")
    keep = registered.snapshot_id if registered else KEEP_ALL
    cluster.commit_lake_snapshot(claim, ours.snapshot_id, path, offsets, {}, keep)
    return ours.snapshot_id


def _foreign_path(claim: Claim, ours: LakeSnapshot) -> str:
    path = ours.summary.get(OFFSETS_PATH_KEY, "")
    if not path or "{" in path:
        raise LakeTableMismatch(
            f"snapshot {ours.snapshot_id} of lake table {claim.path} has {OFFSETS_PATH_KEY}="
            f"{path[:100]!r}: it was written by Fluss 0.8 or older; let that version register it"
        )
    return path


def _check_owner(claim: Claim, ours: LakeSnapshot) -> None:
    """A table that was dropped and created again has a new id; its old rows are another table's."""
    found = ours.summary.get(TABLE_ID_KEY)
    if found is None and (match := _ID_IN_PATH.search(ours.summary.get(OFFSETS_PATH_KEY, ""))):
        found = match[1]
    if found is not None and found != str(claim.table_id):
        raise LakeTableMismatch(
            f"lake table {claim.path} holds the rows of Fluss table id {found}, which was dropped;"
            f" the table is now id {claim.table_id}: drop or rename the lake table",
            table_id=claim.table_id,
        )


def _check_not_below(
    claim: Claim,
    ours: LakeSnapshot,
    offsets: dict[TableBucket, int],
    registered: LakeSnapshotInfo,
) -> None:
    for bucket, offset in registered.offsets.items():
        found = offsets.get(bucket)
        if found is None or found < offset:
            raise _rolled_back(
                claim,
                registered,
                f"its newest snapshot of ours, {ours.snapshot_id}, has bucket {bucket} at"
                f" {'no offset' if found is None else found} where Fluss has {offset}",
            )


def _rolled_back(claim: Claim, registered: LakeSnapshotInfo, what: str) -> LakeRolledBack:
    snapshot_id = registered.snapshot_id
    return LakeRolledBack(
        f"lake table {claim.path} is behind snapshot {snapshot_id} that Fluss has registered:"
        f" {what}. Bring the lake back to it, in Spark SQL with the name of your catalog:"
        f" CALL CATALOG.system.set_current_snapshot('{claim.path}', {snapshot_id})."
        " If that snapshot has expired, its rows are gone from the lake: drop the Fluss table and"
        " the lake table, and create the table again",
        table=str(claim.path),
        registered_snapshot_id=snapshot_id,
    )
