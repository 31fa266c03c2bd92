"""The end of a round: prepare the offsets, commit the lake on the planned base, commit Fluss.

The fence is the base (design: "What must always hold"): epochs only say whether the round is still
valid. ``ways_out`` says for each way in which a commit ends which files may be deleted. After an
unknown outcome the round searches for its commit, and deletes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

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
    TableNotExist,
)
from sluice.failpoints import failpoint
from sluice.model import Claim, TableBucket
from sluice.rounds.commit.files import RoundFiles
from sluice.rounds.commit.recover import (
    KEEP_ALL,
    OFFSETS_PATH_KEY,
    move_tag,
    register_unknown,
    registered_meanwhile,
    registered_since,
)
from sluice.rounds.commit.summary import attempt_summary
from sluice.rounds.commit.ways_out import WayOut, committed_since, is_nowhere, look_up, overtaken
from sluice.rounds.plan.bucket_repairs import BucketRepairs, done
from sluice.rounds.plan.plan import RoundPlan
from sluice.rounds.values.attempt import Attempt
from sluice.rounds.values.discard import NO_SUMMARY
from sluice.rounds.values.expiry import ROUND_MS_KEY
from sluice.rounds.values.note_lists import capped
from sluice.rounds.values.offsets import store_offsets
from sluice.rounds.values.ports import Cluster, LakeTable
from sluice.rounds.values.reasons import reason_of
from sluice.rounds.values.types import WRITE_ID_KEY, LakePart, LakeSnapshot

NO_FLOOR: Mapping[TableBucket, int] = MappingProxyType({})


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


@dataclass(frozen=True, slots=True)
class _Content:
    """What the round commits besides its files."""

    offsets: dict[TableBucket, int]
    """The complete offsets: the end of each bucket."""
    repairs: BucketRepairs
    created_again: Sequence[tuple[str, ...]]
    """The partitions whose earlier rows the commit deletes."""
    replaced: Sequence[LakePart]


def commit_round(
    attempt: Attempt,
    table: LakeTable,
    plan: RoundPlan,
    files: RoundFiles,
    write_id: str,
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
    claim, cluster, stored = attempt.claim, attempt.cluster, NO_SUMMARY
    try:
        if (earlier := committed_since(claim, table, plan.base)) is not None:
            return _by_earlier(attempt, table, earlier, files)
        content = _content(attempt, table, plan, files, floor)
        with attempt.phases("prepare"):
            path = cluster.prepare_lake_snapshot(claim.table_id, claim.path, content.offsets)
            stored = store_offsets(table, claim.table_id, content.offsets, write_id)
        if rewrite is not None:
            with attempt.phases("rewrite"):
                rewrite()
    except LakeCommitRefused:
        if (landed := _landed_meanwhile(attempt, table, plan, files, stored)) is None:
            raise
        return landed
    except BaseException:  # also Ctrl-C: nothing can reference the files before the lake commit
        WayOut.NOT_TRIED.leave(table, files, stored)
        raise
    summary = {
        OFFSETS_PATH_KEY: path,
        **attempt_summary(claim, write_id),
        **stored,
        **content.repairs.summary(),
        **plan.dropped_summary(content.offsets),
    }
    with attempt.phases("lake_commit"):
        committed = _commit_lake(attempt, table, plan, files, summary, content.replaced)
    if committed.by_earlier_attempt:
        return committed
    committed.created_again = _created_again(content.created_again)
    committed.notes += content.repairs.notes()
    committed.accepted, committed.offsets = content.repairs.accepted(), content.offsets
    committed.repaired_buckets = len(content.repairs)
    with attempt.phases("fluss_commit"):
        _commit_fluss(attempt, plan, files, content.offsets, path, committed)
    failpoint("round.unused_files.before")
    committed.notes += [*files.notes, *WayOut.COMMITTED.leave(table, files)]
    return committed


def _content(
    attempt: Attempt,
    table: LakeTable,
    plan: RoundPlan,
    files: RoundFiles,
    floor: Mapping[TableBucket, int],
) -> _Content:
    """What the round commits besides its files, after a check that it may.

    :raises LakeRolledBack, ClaimLost, LakeCommitRefused: see :func:`commit_round`.
    """
    claim, cluster, results = attempt.claim, attempt.cluster, files.results
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
    return _Content(offsets, repairs, again, replaced)


def _created_again(partitions: Iterable[tuple[str, ...]]) -> list[str]:
    return capped(
        [
            f"partition {'/'.join(values)} was dropped and created again: its old rows were deleted"
            for values in partitions
        ]
    )


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
    attempt: Attempt,
    table: LakeTable,
    plan: RoundPlan,
    files: RoundFiles,
    of_round: Mapping[str, str],
    replaced: Sequence[LakePart],
) -> CommitResult:
    write_id = of_round[WRITE_ID_KEY]
    while True:
        round_ms = {ROUND_MS_KEY: str(attempt.phases.elapsed_ms())}
        summary = {**of_round, **files.report().summary(), **files.compacted.summary(), **round_ms}
        try:
            return CommitResult(
                table.commit(files.files, plan.base, summary, replaced, files.positions)
            )
        except (LakeNotWritable, LakeTableMismatch):
            WayOut.NOT_WRITTEN.leave(table, files, summary)
            raise
        except LakeCommitOutcomeUnknown as unknown:
            if (found := look_up(attempt.claim, table, plan.base, write_id, unknown)) is not None:
                return CommitResult(found)
            WayOut.UNKNOWN.leave(table, files, summary)
            raise
        except LakeCommitRefused as refused:
            if (ended := _after_refusal(attempt, table, plan, files, summary, refused)) is not None:
                return ended
            why = reason_of(refused).text
        try:  # not in the handler above: its own errors have other causes
            files.look_up_again(table, why)  # if this commit is in main, the fence refuses the next
            check_claim(attempt.claim, attempt.cluster)
        except BaseException:
            WayOut.REFUSED.leave(table, files, summary)
            raise


def _after_refusal(
    attempt: Attempt,
    table: LakeTable,
    plan: RoundPlan,
    files: RoundFiles,
    summary: Mapping[str, str],
    refused: LakeCommitRefused,
) -> CommitResult | None:
    """The commit that the lake has in spite of the refusal; None: to be tried with other positions.

    :raises LakeCommitRefused: the refusal, if another try has no prospect.
    """
    claim, base, write_id = attempt.claim, plan.base, summary[WRITE_ID_KEY]
    if (found := look_up(claim, table, base, write_id, refused)) is not None:
        return CommitResult(found)
    way = WayOut.REFUSED if is_nowhere(table, base, write_id) else WayOut.MAY_BE_REFERENCED
    if way is WayOut.MAY_BE_REFERENCED:
        files.may_be_referenced = True
    if (earlier := committed_since(claim, table, base)) is not None:
        return _by_earlier(attempt, table, earlier, files, summary)
    if files.positions is None or not isinstance(refused, LakeFilesChanged):
        way.leave(table, files, summary)
        raise refused
    return None


def _by_earlier(
    attempt: Attempt,
    table: LakeTable,
    earlier: LakeSnapshot,
    files: RoundFiles,
    summary: Mapping[str, str] = NO_SUMMARY,
) -> CommitResult:
    """Ends the round with an earlier attempt's commit."""
    claim, cluster = attempt.claim, attempt.cluster
    notes = WayOut.EARLIER.leave(table, files, summary)
    registered = cluster.lake_snapshot(claim.path)  # first: so it cannot be newer than the lake's
    newest = table.newest_tiering_snapshot()
    register_unknown(claim, cluster, table, newest, registered)
    return CommitResult(
        earlier, by_earlier_attempt=True, notes=[*notes, *move_tag(table, newest or earlier)]
    )


def _landed_meanwhile(
    attempt: Attempt,
    table: LakeTable,
    plan: RoundPlan,
    files: RoundFiles,
    stored: Mapping[str, str],
) -> CommitResult | None:
    """Ends a round that was refused before its lake commit; None: no other attempt has committed.

    Nothing references the files of this attempt.
    """
    earlier = None
    try:
        earlier = committed_since(attempt.claim, table, plan.base)
    finally:
        if earlier is None:
            WayOut.NOT_TRIED.leave(table, files, stored)
    if earlier is None:
        return None
    return _by_earlier(attempt, table, earlier, files, stored)


def _commit_fluss(
    attempt: Attempt,
    plan: RoundPlan,
    files: RoundFiles,
    offsets: dict[TableBucket, int],
    path: str,
    committed: CommitResult,
) -> None:
    """:raises ClaimLost: another round has the table by now."""
    claim, cluster = attempt.claim, attempt.cluster
    stamps = {r.bucket: r.max_timestamp_ms for r in files.results if r.max_timestamp_ms >= 0}
    keep = plan.registered.snapshot_id if plan.registered else KEEP_ALL
    snapshot_id = committed.snapshot.snapshot_id
    text = (
        f"table {claim.path}: lake snapshot {snapshot_id} was committed, but another round started"
        " before it was registered with Fluss; that round registers it"
    )
    # Apache Fluss accepts a late commit of any round, and would return to these offsets.
    if not cluster.still_claimed(claim):
        raise overtaken(claim, committed.snapshot, text)
    try:
        cluster.commit_lake_snapshot(claim, snapshot_id, path, offsets, stamps, keep)
    except (FencedTieringEpoch, InvalidCoordinator, TableNotExist) as error:
        raise overtaken(claim, committed.snapshot, f"{text} ({error})") from error
