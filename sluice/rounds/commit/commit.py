"""The end of a round: prepare the offsets, commit the lake on the planned base, commit Fluss.

The fence is the base (design: "What must always hold"): epochs only say whether the round is still
valid. Files are deleted only while no commit can reference them, or after the lake has refused a
commit and a check has not found this attempt's snapshot. After an unknown outcome the round
searches for its commit, and deletes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import sluice
from sluice.errors import (
    ClaimLost,
    FencedTieringEpoch,
    InvalidCoordinator,
    LakeCommitOutcomeUnknown,
    LakeCommitRefused,
    LakeFilesChanged,
    LakeNotWritable,
    LakeRolledBack,
    LakeTableMismatch,
    SluiceError,
    TableNotExist,
)
from sluice.failpoints import failpoint
from sluice.model import Claim, TableBucket
from sluice.rounds.commit.files import RoundFiles
from sluice.rounds.commit.recover import (
    KEEP_ALL,
    OFFSETS_PATH_KEY,
    register_unknown,
    registered_meanwhile,
    registered_since,
)
from sluice.rounds.plan.bucket_repairs import accepted_in, done, repairs_in
from sluice.rounds.plan.plan import RoundPlan
from sluice.rounds.values.discard import NO_SUMMARY, discard
from sluice.rounds.values.expiry import ROUND_MS_KEY
from sluice.rounds.values.lake_files import DataFile
from sluice.rounds.values.note_lists import capped
from sluice.rounds.values.offsets import TABLE_ID_KEY, store_offsets
from sluice.rounds.values.phases import Phases
from sluice.rounds.values.ports import Cluster, LakeTable
from sluice.rounds.values.reasons import reason_of
from sluice.rounds.values.types import (
    COMMIT_USER,
    COMMIT_USER_KEY,
    WRITE_ID_KEY,
    LakePart,
    LakeSnapshot,
    SplitResult,
)

TIERING_EPOCH_KEY = "sluice.tiering-epoch"
COORDINATOR_EPOCH_KEY = "sluice.coordinator-epoch"
VERSION_KEY = "sluice.version"
NO_FLOOR: Mapping[TableBucket, int] = MappingProxyType({})


def round_identity(claim: Claim) -> dict[str, str]:
    """The summary entries that identify a round, the same for all of its attempts."""
    return {
        TABLE_ID_KEY: str(claim.table_id),
        TIERING_EPOCH_KEY: str(claim.tiering_epoch),
        COORDINATOR_EPOCH_KEY: str(claim.coordinator_epoch),
    }


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


@dataclass(slots=True)
class CommitResult:
    """The lake commit of a round, by this attempt or an earlier one."""

    snapshot: LakeSnapshot
    by_earlier_attempt: bool = False
    notes: list[str] = field(default_factory=list)
    created_again: list[str] = field(default_factory=list)
    """Notes on partitions that were dropped and created again, whose old rows were deleted."""
    accepted: str = ""
    """Offset ranges that a user accepted as missing from the lake."""
    offsets: Mapping[TableBucket, int] = field(default_factory=dict)
    """The end offset of each bucket after the round; empty if an earlier attempt committed."""
    repaired_buckets: int = 0


def commit_round(
    claim: Claim,
    cluster: Cluster,
    table: LakeTable,
    plan: RoundPlan,
    files: RoundFiles,
    write_id: str,
    phases: Phases,
    floor: Mapping[TableBucket, int] = NO_FLOOR,
    rewrite: Callable[[], None] | None = None,
) -> CommitResult:
    """Commits the files of all splits to the lake, then registers the snapshot with Fluss.

    :param files: of the splits that were copied; a failed split moves no offset. Its deletes may be
        replaced.
    :param floor: registered offsets, if the round started below them to copy rows again.
    :param rewrite: commits rewritten files of a log table, right before the lake commit.
    :raises LakeRolledBack: the round has ended below the floor; nothing was committed.
    :raises ClaimLost: another round was started; nothing of this one is in the lake.
    :raises LakeCommitRefused: another tiering snapshot came in between, or was registered with
        Fluss, or Iceberg's checks failed; this round has none.
    :raises LakeCommitOutcomeUnknown: the commit may have succeeded; the next round finds out.
    """
    results, stored = files.results, NO_SUMMARY
    try:
        if (earlier := committed_since(claim, table, plan.base)) is not None:
            return _committed_earlier(claim, cluster, table, earlier, files.all)
        repairs = done(plan.repairs, plan.splits, results)
        copied = {result.bucket: result.next_offset for result in results}
        offsets = {**plan.known, **repairs.offsets(), **copied}
        _check_floor(claim, offsets, floor)
        created = plan.created_again_in(offsets)
        again = table.partitions_with_rows(created, plan.base) if created else []
        replaced = [LakePart(values, seen_main=repairs.seen_main) for values in again]
        replaced += repairs.replaced(plan.splits)
        check_claim(claim, cluster)
        _check_registered(cluster, plan)
        with phases("prepare"):
            path = cluster.prepare_lake_snapshot(claim.table_id, claim.path, offsets)
            stored = store_offsets(table, claim.table_id, offsets, write_id)
        if rewrite is not None:
            with phases("rewrite"):
                rewrite()
    except LakeCommitRefused:
        if (landed := _landed_meanwhile(claim, cluster, table, plan, files, stored)) is None:
            raise
        return landed
    except BaseException:  # also Ctrl-C: nothing can reference the files before the lake commit
        discard(table, files.all, stored)
        raise
    summary = {
        OFFSETS_PATH_KEY: path,
        **_summary(claim, write_id),
        **stored,
        **repairs.summary(),
        **plan.dropped_summary(offsets),
    }
    with phases("lake_commit"):
        committed = _commit_lake(claim, cluster, table, plan, files, summary, replaced, phases)
    if committed.by_earlier_attempt:
        return committed
    committed.created_again = _created_again(again)
    committed.notes += repairs.notes()
    committed.accepted, committed.offsets = repairs.accepted(), offsets
    committed.repaired_buckets = len(repairs)
    with phases("fluss_commit"):
        _commit_fluss(claim, cluster, plan, files.results, offsets, path, committed)
    failpoint("round.unused_files.before")
    committed.notes += [*files.notes, *discard(table, files.unused)]
    return committed


def _created_again(partitions: Iterable[tuple[str, ...]]) -> list[str]:
    return capped(
        [
            f"partition {'/'.join(values)} was dropped and created again: its old rows were deleted"
            for values in partitions
        ]
    )


def _summary(claim: Claim, write_id: str) -> dict[str, str]:
    """The entries that all attempts of a round have, and this attempt's own."""
    return {
        COMMIT_USER_KEY: COMMIT_USER,
        **round_identity(claim),
        VERSION_KEY: sluice.__version__,
        WRITE_ID_KEY: write_id,
    }


def check_claim(claim: Claim, cluster: Cluster) -> None:
    """:raises ClaimLost: another round has the table by now."""
    if not cluster.still_claimed(claim):
        raise ClaimLost(
            f"table {claim.path}: this round lost its claim: tiering epoch {claim.tiering_epoch} is"
            " no longer valid. Nothing was committed"
        )


def _check_registered(cluster: Cluster, plan: RoundPlan) -> None:
    """Checks, after all rows were read, that Fluss still names the snapshot of the plan.

    An older round may register its snapshot late. Fluss may then delete the rows that it names from
    the logs, or a user its partitions. If main is rolled back below it, the base is what it was
    before. This round would register a snapshot without those rows, and no later round would notice
    that they are gone. Fluss deletes only after a registration, so one look after the copy sees it.
    Any other snapshot counts, an older one too: it may have been registered after a dangerous one.

    :raises LakeCommitRefused: Fluss has registered another snapshot since the round was planned.
    """
    path = plan.info.path
    if (other := registered_since(path, cluster, plan.registered)) is not None:
        raise registered_meanwhile(path, other)


def _check_floor(
    claim: Claim, offsets: Mapping[TableBucket, int], floor: Mapping[TableBucket, int]
) -> None:
    for bucket, registered in floor.items():
        if offsets.get(bucket, -1) < registered:
            raise LakeRolledBack(
                f"bucket {bucket} of table {claim.path} was copied again only up to offset"
                f" {offsets.get(bucket, 'none')}, but Fluss has registered offset {registered}."
                " Nothing was committed",
                table=str(claim.path),
            )


def _commit_lake(
    claim: Claim,
    cluster: Cluster,
    table: LakeTable,
    plan: RoundPlan,
    files: RoundFiles,
    summary: dict[str, str],
    replaced: Sequence[LakePart],
    phases: Phases,
) -> CommitResult:
    of_round = summary
    while True:
        round_ms = {ROUND_MS_KEY: str(phases.elapsed_ms())}
        reports = files.report().summary() | files.compacted.summary()
        summary = {**of_round, **reports, **round_ms}
        try:
            return CommitResult(
                table.commit(files.files, plan.base, summary, replaced, files.positions)
            )
        except (LakeNotWritable, LakeTableMismatch):  # before anything was committed
            _discard_all(table, files, summary)
            raise
        except LakeCommitOutcomeUnknown as unknown:
            if (committed := _look_up(claim, table, plan.base, summary, unknown)) is not None:
                return committed
            raise
        except LakeCommitRefused as refused:
            # If the catalog's first answer was lost, it may report a successful commit as a
            # conflict: only the table itself shows whether it references these files.
            if (committed := _look_up(claim, table, plan.base, summary, refused)) is not None:
                return committed
            if not _is_nowhere(table, plan.base, summary[WRITE_ID_KEY]):
                files.may_be_referenced = True
            if (earlier := committed_since(claim, table, plan.base)) is not None:
                unused = () if files.may_be_referenced else (files.all, summary)
                return _committed_earlier(claim, cluster, table, earlier, *unused)
            if files.positions is None or not isinstance(refused, LakeFilesChanged):
                _discard_all(table, files, summary)
                raise
            why = reason_of(refused).text
        try:  # not in the handler above: its own errors have other causes
            files.look_up_again(table, why)  # if this commit is in main, the fence refuses the next
            check_claim(claim, cluster)
        except BaseException:
            _discard_all(table, files, summary)
            raise


def _discard_all(table: LakeTable, files: RoundFiles, summary: Mapping[str, str]) -> None:
    """Deletes the files of a commit; `sluice clean` does it if a snapshot may reference them."""
    if not files.may_be_referenced:
        discard(table, files.all, summary)


def _is_nowhere(table: LakeTable, base: LakeSnapshot | None, write_id: str) -> bool:
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


def _look_up(
    claim: Claim,
    table: LakeTable,
    base: LakeSnapshot | None,
    summary: dict[str, str],
    error: SluiceError,
) -> CommitResult | None:
    """This attempt's commit, if it succeeded in spite of the error; None if it did not.

    :raises LakeCommitOutcomeUnknown: the table cannot be read.
    :raises ClaimLost: the commit succeeded, and another round has committed on top of it since.
    """
    try:
        found = table.find_tiering_snapshot(
            {WRITE_ID_KEY: summary[WRITE_ID_KEY]}, base.sequence_number if base else 0
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
        raise _lost_after(
            claim,
            found,
            f"table {claim.path}: lake snapshot {found.snapshot_id} was committed, and another"
            f" round has committed snapshot {newest.snapshot_id} on top of it since",
        )
    return CommitResult(found)


def _committed_earlier(
    claim: Claim,
    cluster: Cluster,
    table: LakeTable,
    earlier: LakeSnapshot,
    files: Sequence[DataFile] = (),
    summary: Mapping[str, str] = NO_SUMMARY,
) -> CommitResult:
    """Ends the round with an earlier attempt's commit; deletes the files of this attempt."""
    notes = discard(table, files, summary)
    registered = cluster.lake_snapshot(claim.path)  # first: so it cannot be newer than the lake's
    newest = table.newest_tiering_snapshot()
    register_unknown(claim, cluster, table, newest, registered)
    return CommitResult(
        earlier, by_earlier_attempt=True, notes=[*notes, *move_tag(table, newest or earlier)]
    )


def _landed_meanwhile(
    claim: Claim,
    cluster: Cluster,
    table: LakeTable,
    plan: RoundPlan,
    files: RoundFiles,
    stored: Mapping[str, str],
) -> CommitResult | None:
    """Ends a round that was refused before its lake commit; None: no other attempt has committed.

    Nothing references the files of this attempt: they are deleted.
    """
    earlier = None
    try:
        earlier = committed_since(claim, table, plan.base)
    finally:
        if earlier is None:
            discard(table, files.all, stored)
    if earlier is None:
        return None
    return _committed_earlier(claim, cluster, table, earlier, files.all, stored)


def _commit_fluss(
    claim: Claim,
    cluster: Cluster,
    plan: RoundPlan,
    results: Sequence[SplitResult],
    offsets: dict[TableBucket, int],
    path: str,
    committed: CommitResult,
) -> None:
    stamps = {r.bucket: r.max_timestamp_ms for r in results if r.max_timestamp_ms >= 0}
    keep = plan.registered.snapshot_id if plan.registered else KEEP_ALL
    snapshot_id = committed.snapshot.snapshot_id
    overtaken = (
        f"table {claim.path}: lake snapshot {snapshot_id} was committed, but another round started"
        " before it was registered with Fluss; that round registers it"
    )
    # Apache Fluss accepts a late commit of any round, and would return to these offsets.
    if not cluster.still_claimed(claim):
        raise _lost_after(claim, committed.snapshot, overtaken)
    try:
        cluster.commit_lake_snapshot(claim, snapshot_id, path, offsets, stamps, keep)
    except (FencedTieringEpoch, InvalidCoordinator, TableNotExist) as error:
        raise _lost_after(claim, committed.snapshot, f"{overtaken} ({error})") from error


def _lost_after(claim: Claim, snapshot: LakeSnapshot, text: str) -> ClaimLost:
    """The error of a claim that was lost after its lake commit, with what the commit repaired."""
    accepted = accepted_in(claim.table_id, snapshot)
    return ClaimLost(
        f"{text}. Missing in the lake, as accepted: {accepted}" if accepted else text,
        snapshot_id=snapshot.snapshot_id,
        repaired_buckets=len(repairs_in(claim.table_id, snapshot)),
    )


def move_tag(table: LakeTable, snapshot: LakeSnapshot) -> list[str]:
    """Moves the tag ``sluice-tiered``; the commit is done, so a failure is only a note."""
    failpoint("round.tag.before")
    try:
        table.tag(snapshot.snapshot_id)
    except SluiceError as error:
        why = reason_of(error).text
        return [f"lake snapshot {snapshot.snapshot_id} could not be tagged sluice-tiered: {why}"]
    return []
