"""How the commit of an attempt ends, and which of its files may be deleted then.

A file is deleted only if no snapshot can reference it. After a refusal that takes a look at the
lake: a catalog whose first answer was lost may report a successful commit as a conflict.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from sluice.errors import ClaimLost, LakeCommitOutcomeUnknown, SluiceError
from sluice.model import Claim
from sluice.rounds.commit.files import RoundFiles
from sluice.rounds.commit.summary import round_identity
from sluice.rounds.plan.bucket_repairs import accepted_in, repairs_in
from sluice.rounds.values.discard import NO_SUMMARY, discard
from sluice.rounds.values.ports import LakeTable
from sluice.rounds.values.types import WRITE_ID_KEY, LakeSnapshot


class Deletable(Enum):
    """Files of an attempt that it deletes at its end. `sluice clean` finds what it leaves."""

    ALL = "all of them"
    UNUSED = "those that its commit does not reference"
    NONE = "none"


class WayOut(Enum):
    """How the commit of an attempt ends: what has happened, and what it may delete then.

    Any other error, such as one of the network in Fluss's commit, deletes nothing either.
    """

    NOT_TRIED = "an error came before the lake commit", Deletable.ALL
    NOT_WRITTEN = "the lake has committed nothing, because it could not be written", Deletable.ALL
    REFUSED = "the lake has refused the commit, and no snapshot can have its files", Deletable.ALL
    MAY_BE_REFERENCED = "the lake has refused it, but a snapshot may have them", Deletable.NONE
    UNKNOWN = "whether the lake has committed is unknown", Deletable.NONE
    EARLIER = "an earlier attempt of the round has committed", Deletable.ALL
    COMMITTED = "both commits are done", Deletable.UNUSED

    def __init__(self, what: str, deletable: Deletable) -> None:
        self.what, self.deletable = what, deletable

    def leave(
        self, table: LakeTable, files: RoundFiles, summary: Mapping[str, str] = NO_SUMMARY
    ) -> list[str]:
        """Deletes what may be deleted; returns notes about failures.

        Nothing is deleted after a refusal of these files that a snapshot may reference.

        :param summary: of the commit that did not succeed: it names its offsets file, if it has
            one.
        """
        if self.deletable is Deletable.NONE or files.may_be_referenced:
            return []
        if self.deletable is Deletable.ALL:
            return discard(table, files.all, summary)
        return discard(table, files.unused)


def committed_since(
    claim: Claim, table: LakeTable, base: LakeSnapshot | None
) -> LakeSnapshot | None:
    """The snapshot that another attempt of this round committed after the planned base, if any.

    Older ones do not count: epochs start again from 1 when tiering of a table is disabled and
    enabled.
    """
    since = base.sequence_number if base else 0
    found = table.find_tiering_snapshot(round_identity(claim), since)
    if found is None or (base is not None and found.sequence_number <= since):
        return None  # in Iceberg's first format all sequence numbers are 0
    return found


def is_nowhere(table: LakeTable, base: LakeSnapshot | None, write_id: str) -> bool:
    """Whether no snapshot can reference this attempt's files, after its commit was refused.

    Checking main's ancestors is not enough. If the commit succeeded after all, its snapshot may
    have been rolled back, or have expired under a later one that still references its files, in
    main or in another branch. Its parent would be the base, so main and all newer snapshots must be
    known back to the base.
    """
    try:
        history = table.history()
    except SluiceError:
        return False
    entries = (*history.snapshots.values(), *history.expired.values())
    if any(entry.summary.get(WRITE_ID_KEY) == write_id for entry in entries):
        return False
    if not history.is_known_since(base.sequence_number if base else 0):
        return False
    return base is None or base.snapshot_id in history.ancestors(history.main)


def look_up(
    claim: Claim, table: LakeTable, base: LakeSnapshot | None, write_id: str, error: SluiceError
) -> LakeSnapshot | None:
    """This attempt's commit, if it succeeded in spite of the error; None if it did not.

    :raises LakeCommitOutcomeUnknown: the table cannot be read.
    :raises ClaimLost: the commit succeeded, and another round has committed on top of it since.
    """
    try:
        found = table.find_tiering_snapshot(
            {WRITE_ID_KEY: write_id}, base.sequence_number if base else 0
        )
        newest = table.newest_tiering_snapshot() if found else None
    except SluiceError as unseen:
        raise LakeCommitOutcomeUnknown(
            f"{error}. Whether the commit succeeded is unknown, because the table cannot be read:"
            f" {unseen}"
        ) from error
    if found is None:
        return None
    if newest is not None and newest.snapshot_id != found.snapshot_id:
        raise overtaken(
            claim,
            found,
            f"table {claim.path}: lake snapshot {found.snapshot_id} was committed, and another"
            f" round has committed snapshot {newest.snapshot_id} on top of it since",
        )
    return found


def overtaken(claim: Claim, snapshot: LakeSnapshot, text: str) -> ClaimLost:
    """The error of a claim that was lost after its lake commit, with what the commit repaired."""
    accepted = accepted_in(claim.table_id, snapshot)
    return ClaimLost(
        f"{text}. Missing in the lake, as accepted: {accepted}" if accepted else text,
        snapshot_id=snapshot.snapshot_id,
        repaired_buckets=len(repairs_in(claim.table_id, snapshot)),
    )
