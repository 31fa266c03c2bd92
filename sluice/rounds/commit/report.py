"""The result of a round, from what it has copied and committed."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sluice.errors import ClaimLost, FencedTieringEpoch, InvalidCoordinator
from sluice.model import LakeSnapshotInfo
from sluice.rounds.commit.commit import CommitResult
from sluice.rounds.commit.files import RoundFiles
from sluice.rounds.plan.bucket_repairs import accepted_in
from sluice.rounds.plan.dropped import table_dropped
from sluice.rounds.plan.plan import RoundPlan
from sluice.rounds.records.result import RoundResult
from sluice.rounds.values.attempt import Attempt
from sluice.rounds.values.lake_size import lake_size, size_of_main
from sluice.rounds.values.note_lists import capped
from sluice.rounds.values.offsets import offsets_for_result
from sluice.rounds.values.ports import LakeTable
from sluice.rounds.values.reasons import reason_of
from sluice.rounds.values.types import LakeSnapshot

NO_FACTS: Mapping[str, object] = {}


def ended(attempt: Attempt, work: Callable[[], RoundResult]) -> RoundResult:
    """The result of this work; a lost claim or a dropped table is an outcome, not an error."""
    try:
        return work()
    except (FencedTieringEpoch, InvalidCoordinator) as fenced:
        why = f"another round of the table was started: {reason_of(fenced).text}"
        return attempt.result("claim_lost", notes=(why,))
    except ClaimLost as lost:  # after the lake commit, if it names a snapshot
        return attempt.result(
            "claim_lost",
            lake_snapshot_id=lost.details.get("snapshot_id"),
            notes=(reason_of(lost).text,),
            repaired_buckets=lost.details.get("repaired_buckets", 0),
        )
    except Exception as error:
        if why := table_dropped(error, attempt.cluster, attempt.claim):
            return attempt.result("claim_lost", notes=(why,))
        attempt.phases.attach_to(error)
        raise


def already_landed(
    attempt: Attempt, landed: LakeSnapshot, registered: LakeSnapshotInfo | None
) -> RoundResult:
    """:param landed: the snapshot that another attempt of this round committed."""
    return attempt.result(
        "already_landed",
        offsets=offsets_for_result(registered.offsets if registered else {}),
        lake_snapshot_id=landed.snapshot_id,
        notes=tuple(attempt.notes),
        accepted=accepted_in(attempt.claim.table_id, landed),
        **lake_size(landed.summary),
    )


def committed_earlier(attempt: Attempt, committed: CommitResult) -> RoundResult:
    """The result of an attempt that found its commit in the lake, with the offsets in Fluss."""
    registered = attempt.cluster.lake_snapshot(attempt.claim.path)
    return already_landed(attempt, committed.snapshot, registered)


def nothing_committed(
    attempt: Attempt,
    plan: RoundPlan,
    table: LakeTable,
    outcome: str = "nothing_new",
    facts: Mapping[str, object] = NO_FACTS,
    *,
    left_out: int = 0,
    is_rewritten: bool = False,
) -> RoundResult:
    """The result of a round that had nothing to commit.

    :param left_out: about the number of offsets that it left to the next round.
    :param is_rewritten: it has compacted files of a log table.
    """
    return attempt.result(
        outcome,
        offsets=offsets_for_result(plan.known),
        lake_snapshot_id=plan.registered.snapshot_id if plan.registered else None,
        lag_rows_before=plan.offsets,
        lag_rows_after=left_out,
        notes=tuple(attempt.notes),
        history_notes=plan.not_tiered,
        **size_of_main(table, plan.base, is_changed=is_rewritten),
        **facts,
    )


def note_commit(
    attempt: Attempt, plan: RoundPlan, files: RoundFiles, committed: CommitResult
) -> None:
    """Notes what the commit has to say."""
    attempt.notes += [*plan.notes, *plan.not_tiered, *committed.created_again, *committed.notes]
    attempt.notes += capped([note for result in files.results for note in result.notes])


def committed_result(
    attempt: Attempt,
    plan: RoundPlan,
    table: LakeTable,
    files: RoundFiles,
    committed: CommitResult,
    facts: Mapping[str, object] = NO_FACTS,
    *,
    left: int,
    expired_notes: tuple[str, ...] = (),
) -> RoundResult:
    """The result of a round that has committed.

    :param left: about the number of offsets that it left to the next round.
    :param facts: what steps say that not every round has.
    """
    results, deletes = files.results, files.report()
    return attempt.result(
        "committed",
        rows=sum(r.rows for r in results),
        deletes=sum(r.deleted.keys for r in results),
        deletes_as=str(deletes),
        lookup_files=deletes.files_read,
        lookup_bytes=deletes.bytes_read,
        lookup_ms=round(deletes.seconds * 1000),
        bytes_read=sum(r.bytes_read for r in results),
        bytes_written=sum(f.size_bytes for r in results for f in r.files),
        files=sum(len(r.files) for r in results),
        offsets=offsets_for_result(committed.offsets),
        lake_snapshot_id=committed.snapshot.snapshot_id,
        lag_rows_before=plan.offsets,
        lag_rows_after=left,
        notes=tuple(attempt.notes),
        history_notes=(*plan.not_tiered, *committed.created_again, *expired_notes),
        accepted=committed.accepted,
        repaired_buckets=committed.repaired_buckets,
        **lake_size(committed.snapshot.summary),
        lake_layout=table.layout.value,
        **facts,
    )
