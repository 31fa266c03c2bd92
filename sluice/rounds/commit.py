"""The end of a round: prepare the offsets, commit the lake on the planned base, commit Fluss.

The fence is the base (design: "What must always hold"): epochs only say whether the work is still
wanted. Files are deleted only while no commit can have referenced them, or after the lake has
refused one and a look at it has not found this very try's snapshot. After an unknown outcome the
commit is looked up, and nothing is deleted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import sluice
from sluice.errors import (
    ClaimLost,
    FencedTieringEpoch,
    InvalidCoordinator,
    LakeCommitOutcomeUnknown,
    LakeCommitRefused,
    LakeNotWritable,
    LakeRolledBack,
    SluiceError,
)
from sluice.failpoints import failpoint
from sluice.model import Claim, TableBucket
from sluice.rounds.offsets import OFFSETS_FILE_KEY, TABLE_ID_KEY, store_offsets
from sluice.rounds.phases import Phases
from sluice.rounds.plan import RoundPlan
from sluice.rounds.ports import Cluster, LakeTable
from sluice.rounds.recover import KEEP_ALL, OFFSETS_PATH_KEY, register_unknown
from sluice.rounds.types import (
    COMMIT_USER,
    COMMIT_USER_KEY,
    WRITE_ID_KEY,
    DataFile,
    LakeSnapshot,
    SplitResult,
)

TIERING_EPOCH_KEY = "sluice.tiering-epoch"
COORDINATOR_EPOCH_KEY = "sluice.coordinator-epoch"
VERSION_KEY = "sluice.version"
NO_SUMMARY: Mapping[str, str] = MappingProxyType({})
NO_FLOOR: Mapping[TableBucket, int] = MappingProxyType({})


def round_identity(claim: Claim) -> dict[str, str]:
    """What the summary of this round's snapshot says of it, whichever try committed it."""
    return {
        TABLE_ID_KEY: str(claim.table_id),
        TIERING_EPOCH_KEY: str(claim.tiering_epoch),
        COORDINATOR_EPOCH_KEY: str(claim.coordinator_epoch),
    }


def committed_since(
    claim: Claim, table: LakeTable, base: LakeSnapshot | None
) -> LakeSnapshot | None:
    """This round's snapshot by another try of it, if one came after the planned base.

    Older ones do not count: epochs begin anew when tiering of a table is switched off and on.
    """
    found = table.find_tiering_snapshot(round_identity(claim))
    if found is None or (base is not None and found.sequence_number <= base.sequence_number):
        return None
    return found


@dataclass(slots=True)
class CommitResult:
    """A round's commit, by this try or an earlier one."""

    snapshot: LakeSnapshot
    by_earlier_attempt: bool = False
    notes: list[str] = field(default_factory=list)


def commit_round(
    claim: Claim,
    cluster: Cluster,
    table: LakeTable,
    plan: RoundPlan,
    results: Sequence[SplitResult],
    write_id: str,
    phases: Phases,
    floor: Mapping[TableBucket, int] = NO_FLOOR,
) -> CommitResult:
    """Commits what the splits have brought.

    :param floor: what Fluss has registered, where the round began below that to copy it again.
    :raises LakeRolledBack: the round has ended below the floor; nothing was committed.
    :raises ClaimLost: another round was begun; nothing of this one is in the lake.
    :raises LakeCommitRefused: another snapshot of ours came in between; this round's is not there.
    :raises LakeCommitOutcomeUnknown: the commit may land or not; the next round will see.
    """
    files = [file for result in results for file in result.files]
    try:
        if (earlier := committed_since(claim, table, plan.base)) is not None:
            return _landed_earlier(claim, cluster, table, earlier, files)
        offsets = {**plan.known, **{r.bucket: r.next_offset for r in results}}
        _check_floor(claim, offsets, floor)
        created = plan.created_again
        replaced = table.partitions_with_rows(created, plan.base) if created else []
        if not cluster.still_claimed(claim):
            raise ClaimLost(
                f"table {claim.path} is no longer ours: tiering epoch {claim.tiering_epoch} is"
                " over; nothing was committed"
            )
        with phases("prepare"):
            path = cluster.prepare_lake_snapshot(claim.table_id, claim.path, offsets)
            stored = store_offsets(table, claim.table_id, offsets, write_id)
    except SluiceError:
        discard(table, files)
        raise
    summary = {
        COMMIT_USER_KEY: COMMIT_USER,
        OFFSETS_PATH_KEY: path,
        **round_identity(claim),
        **stored,
        VERSION_KEY: sluice.__version__,
        WRITE_ID_KEY: write_id,
    }
    with phases("lake_commit"):
        landed = _commit_lake(claim, cluster, table, plan, files, summary, replaced)
    if landed.by_earlier_attempt:
        return landed
    landed.notes += [
        f"partition {'/'.join(values)} was dropped and created again: its old rows were removed"
        for values in replaced
    ]
    with phases("fluss_commit"):
        _commit_fluss(claim, cluster, plan, results, offsets, path, landed)
    return landed


def _check_floor(
    claim: Claim, offsets: Mapping[TableBucket, int], floor: Mapping[TableBucket, int]
) -> None:
    for bucket, registered in floor.items():
        if offsets.get(bucket, -1) < registered:
            raise LakeRolledBack(
                f"bucket {bucket} of table {claim.path} was copied again up to"
                f" {offsets.get(bucket, 'nothing')}, but Fluss has registered {registered}: nothing"
                " was committed",
                table=str(claim.path),
            )


def _commit_lake(
    claim: Claim,
    cluster: Cluster,
    table: LakeTable,
    plan: RoundPlan,
    files: Sequence[DataFile],
    summary: dict[str, str],
    replaced: Sequence[tuple[str, ...]],
) -> CommitResult:
    try:
        return CommitResult(table.commit(files, plan.base, summary, replaced))
    except LakeNotWritable:  # before anything was committed
        discard(table, files, summary)
        raise
    except LakeCommitOutcomeUnknown as unknown:
        if (landed := _look_up(claim, table, summary, unknown)) is not None:
            return landed
        raise
    except LakeCommitRefused as refused:
        # The catalog may have answered a commit that landed as a conflict, after its first answer
        # was lost: only a look at the table tells whether it names our files.
        if (landed := _look_up(claim, table, summary, refused)) is not None:
            return landed
        if not _is_nowhere(table, plan.base, summary[WRITE_ID_KEY]):
            files, summary = (), {}  # `sluice clean` removes them, if they are nobody's
        if (earlier := committed_since(claim, table, plan.base)) is not None:
            return _landed_earlier(claim, cluster, table, earlier, files, summary)
        discard(table, files, summary)
        raise


def _is_nowhere(table: LakeTable, base: LakeSnapshot | None, write_id: str) -> bool:
    """Whether no snapshot can have this try's files, after its commit was refused.

    Main's ancestors alone do not tell: if the commit landed all the same, its snapshot may have
    been rolled back since, or have expired under a later one that still has its files. It would
    have followed the base, so main has to be known back to there.
    """
    try:
        history = table.history()
    except SluiceError:
        return False
    entries = (*history.snapshots.values(), *history.expired.values())
    if any(entry.summary.get(WRITE_ID_KEY) == write_id for entry in entries):
        return False
    if base is None:
        return history.is_complete()
    return base.snapshot_id in history.ancestors(history.main)


def _look_up(
    claim: Claim, table: LakeTable, summary: dict[str, str], error: SluiceError
) -> CommitResult | None:
    """This very try's commit, if it has landed in spite of the error.

    :raises LakeCommitOutcomeUnknown: the table cannot be looked at.
    :raises ClaimLost: it has landed, and another round has built on it since.
    """
    try:
        found = table.find_tiering_snapshot({WRITE_ID_KEY: summary[WRITE_ID_KEY]})
        newest = table.newest_tiering_snapshot() if found else None
    except SluiceError as unseen:
        raise LakeCommitOutcomeUnknown(
            f"{error}; whether it has landed cannot be seen either: {unseen}"
        ) from error
    if found is None:
        return None
    if newest is not None and newest.snapshot_id != found.snapshot_id:
        raise ClaimLost(
            f"table {claim.path}: lake snapshot {found.snapshot_id} landed, and another round has"
            f" built snapshot {newest.snapshot_id} on it since",
            snapshot_id=found.snapshot_id,
        )
    return CommitResult(found)


def _landed_earlier(
    claim: Claim,
    cluster: Cluster,
    table: LakeTable,
    earlier: LakeSnapshot,
    files: Sequence[DataFile],
    summary: Mapping[str, str] = NO_SUMMARY,
) -> CommitResult:
    """An earlier try of this round has committed: its files count, not ours."""
    notes = discard(table, files, summary)
    registered = cluster.lake_snapshot(claim.path)  # first: so it cannot be newer than the lake's
    newest = table.newest_tiering_snapshot()
    register_unknown(claim, cluster, table, newest, registered)
    return CommitResult(
        earlier, by_earlier_attempt=True, notes=[*notes, *move_tag(table, newest or earlier)]
    )


def _commit_fluss(
    claim: Claim,
    cluster: Cluster,
    plan: RoundPlan,
    results: Sequence[SplitResult],
    offsets: dict[TableBucket, int],
    path: str,
    landed: CommitResult,
) -> None:
    stamps = {r.bucket: r.max_timestamp_ms for r in results if r.max_timestamp_ms >= 0}
    keep = plan.registered.snapshot_id if plan.registered else KEEP_ALL
    snapshot_id = landed.snapshot.snapshot_id
    overtaken = (
        f"table {claim.path}: lake snapshot {snapshot_id} landed, but another round was begun"
        " before Fluss heard of it; that one registers it"
    )
    # A real Fluss takes a commit from whoever sends one, and would go back to these offsets.
    if not cluster.still_claimed(claim):
        raise ClaimLost(overtaken, snapshot_id=snapshot_id)
    try:
        cluster.commit_lake_snapshot(claim, snapshot_id, path, offsets, stamps, keep)
    except (FencedTieringEpoch, InvalidCoordinator) as error:
        raise ClaimLost(f"{overtaken} ({error})", snapshot_id=snapshot_id) from error


def move_tag(table: LakeTable, snapshot: LakeSnapshot) -> list[str]:
    """Moves the tag; the commit has landed, so that a failure here is only a note."""
    failpoint("round.tag.before")
    try:
        table.tag(snapshot.snapshot_id)
    except SluiceError as error:
        return [f"snapshot {snapshot.snapshot_id} could not be tagged: {error}"]
    return []


def discard(
    table: LakeTable, files: Sequence[DataFile], summary: Mapping[str, str] = NO_SUMMARY
) -> list[str]:
    """Deletes one's own files that no commit references; notes what could not be deleted.

    :param summary: of the commit that was refused; it names its offsets file, if there is one.
    """
    paths = [file.path for file in files]
    if OFFSETS_FILE_KEY in summary:
        paths.append(summary[OFFSETS_FILE_KEY])
    try:
        table.delete_files(paths)
    except (SluiceError, OSError) as error:
        return [f"not all of {len(files)} files of no use could be deleted: {error}"]
    return []
