"""Diagnoses a table whose lake table and registered snapshot disagree, and lists the repairs.

Diagnosis changes nothing. This module only moves main and the tag. Repairs that write offsets are
rounds (:class:`sluice.rounds.values.types.RepairMode`), with a claim and the fence of every round.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from sluice.errors import (
    LakeCommitOutcomeUnknown,
    LakeOffsetsLost,
    LakeTableMismatch,
    LakeTableMissing,
    LogBehindLake,
)
from sluice.failpoints import failpoint
from sluice.model import TableBucket, TableInfo, TablePath
from sluice.rounds.commit.recover import (
    LakeStatus,
    behind_text,
    check_owner,
    compare,
    missing_text,
    move_tag,
)
from sluice.rounds.plan.bucket_repairs import left_out_in
from sluice.rounds.plan.dropped import again_if_dropped
from sluice.rounds.plan.named_lake import lake_place
from sluice.rounds.plan.plan import check_lake_format, check_options
from sluice.rounds.repair.bucket_diagnoses import diagnose_gaps, rebuild_risks, rebuild_text
from sluice.rounds.repair.diagnosis import (
    LOST,
    NAMED_MAX,
    Diagnosis,
    RepairAction,
    TableState,
    described,
    only_tiering_wrote,
    unhealthy,
)
from sluice.rounds.repair.retier import RetierPlan, plan_retier
from sluice.rounds.repair.splits import log_gaps
from sluice.rounds.values.history import HistoryEntry
from sluice.rounds.values.note_lists import first_of
from sluice.rounds.values.offsets import offsets_of
from sluice.rounds.values.ports import Cluster, Lake, LakeTable
from sluice.rounds.values.types import LakeSnapshot, RepairMode

REGISTER, RESTORE, TAG = "register", "restore", "tag"
ADOPT, RETIER = RepairMode.ADOPT.value, RepairMode.RETIER.value
ACCEPT_GAP, SKIP = RepairMode.ACCEPT_GAP.value, RepairMode.SKIP.value
REBUILD = RepairMode.REBUILD.value


def read_table_state(path: TablePath, cluster: Cluster, lake: Lake) -> TableState:
    """Reads the state of a table in Fluss and in the lake; changes nothing.

    :raises TableNotExist: Fluss has no such table.
    :raises LakeNotWritable: the catalog or its storage cannot be read.
    """
    info = cluster.table_info(path)
    registered = cluster.lake_snapshot(path)
    table = lake.load(path)
    if table is None:
        return TableState(path, info, None, registered, where=lake_place(info, lake))
    ours = table.newest_tiering_snapshot()
    history = table.history(registered.snapshot_id if registered else None)
    observed = TableState(
        path, info, table, registered, ours, history, mismatch=_misfit(table, info)
    )
    try:
        return replace(observed, comparison=compare(path, info.table_id, table, ours, registered))
    except LakeOffsetsLost as lost:
        return replace(observed, error=_state(lost), offsets_lost=True)
    except LakeTableMismatch as mismatch:
        return replace(observed, error=str(mismatch))


def diagnose(observed: TableState, cluster: Cluster) -> Diagnosis:
    """Describes the state of a table and lists the possible repairs.

    :raises UnsupportedLakeOption: the table is of another lake format, or it was never tiered and
        rounds refuse one of its options.
    :raises FlussError: the cluster does not report the offsets of its logs.
    :raises ClaimLost: the table was dropped meanwhile.
    """
    check_lake_format(observed.info)  # the snapshots of such a table are in another lake
    if observed.registered is None:
        check_options(observed.info)
    if observed.table is None:
        return _without_table(observed, cluster)
    if observed.error:
        actions = [_restore(observed)] if observed.offsets_lost and _is_there(observed) else []
        advice = [] if actions or not observed.offsets_lost else [_OTHER_LAKE]
        error = LakeOffsetsLost if observed.offsets_lost else LakeTableMismatch
        return replace(unhealthy(observed, observed.error, actions, advice), error=error)
    status = observed.comparison.status
    if status is LakeStatus.BEHIND:
        return _behind(observed, cluster)
    if observed.mismatch:
        return _unfit(observed)
    if status is LakeStatus.AHEAD:
        return _not_registered(observed)
    if observed.registered is not None:
        gaps = log_gaps(observed.info, cluster, observed.registered.offsets)
        if gaps:
            return diagnose_gaps(observed, gaps)
    if (
        status is LakeStatus.SAME
        and observed.ours
        and observed.history.tagged != observed.ours.snapshot_id
    ):
        snapshot_id = observed.ours.snapshot_id
        effect = f"set the tag sluice-tiered to snapshot {snapshot_id}"
        state = (
            f"the tag sluice-tiered is not at the newest tiering snapshot, {snapshot_id}: expiry"
            " could delete it"
        )
        return unhealthy(
            observed,
            state,
            [RepairAction(TAG, effect)],
            ["the next commit does this automatically"],
        )
    texts = {
        LakeStatus.SAME: "Fluss has registered the newest tiering snapshot of the lake",
        LakeStatus.EMPTY: "the table was never tiered",
    }
    return replace(unhealthy(observed, texts[status], [], []), healthy=True)


def apply_action(action: RepairAction, observed: TableState) -> list[str]:
    """Sets main (``restore``) or the tag (``tag``) of the lake table; returns notes.

    :raises LakeCommitRefused: the lake table has changed since it was read; nothing was done.
    :raises LakeCommitOutcomeUnknown: whether main was set is unknown; diagnose the table again.
    """
    assert observed.table is not None
    if action.name == TAG:
        assert observed.ours is not None
        observed.table.tag(observed.ours.snapshot_id)
        return []
    assert action.name == RESTORE
    assert observed.registered is not None
    target = observed.registered.snapshot_id
    failpoint("repair.restore.before")
    try:
        observed.table.set_main(target, observed.history.main)
    except LakeCommitOutcomeUnknown:
        if observed.table.history().main != target:
            raise
    failpoint("repair.restore.after")
    ours = observed.table.newest_tiering_snapshot()
    return [] if ours is None else move_tag(observed.table, ours)


_OTHER_LAKE = (
    "tier to another lake, which gets what the logs still hold, and compare the rows of both; this"
    " lake table keeps its rows. `sluice repair` with the other lake's --warehouse or --config"
    " lists how"
)


def _misfit(table: LakeTable, info: TableInfo) -> str:
    """How the lake table's columns or partition fields do not fit; empty: they do."""
    try:
        table.check_layout(info)
    except LakeTableMismatch as mismatch:
        return str(mismatch)
    return ""


def _unfit(observed: TableState) -> Diagnosis:
    """Another engine has changed the lake table, so no round can write to it."""
    then = (
        "once the lake table fits again, the next round goes on;"
        f" `sluice retry {observed.path}` makes it due at once"
    )
    return replace(unhealthy(observed, observed.mismatch, [], [then]), error=LakeTableMismatch)


def _not_registered(observed: TableState) -> Diagnosis:
    assert observed.ours is not None
    snapshot_id = observed.ours.snapshot_id
    effect = f"run a round, which first registers lake snapshot {snapshot_id} with Fluss"
    state = (
        f"lake snapshot {snapshot_id} is not registered with Fluss: a round died after its lake"
        " commit"
    )
    actions = [RepairAction(REGISTER, effect)]
    return unhealthy(observed, state, actions, ["the next round does this automatically"])


def _behind(observed: TableState, cluster: Cluster) -> Diagnosis:
    registered = observed.registered
    assert registered is not None
    actions = [_restore(observed)] if _is_there(observed) else []
    advice: list[str] = []
    if not actions:
        advice.append(f"the registered snapshot {registered.snapshot_id} has expired in the lake")
    if observed.ours is None and not actions:
        actions.append(_adopt(observed))
    held, why = offsets_in_lake(observed)
    if held is None:
        advice += [why, _OTHER_LAKE]
    else:
        _add_retier(observed, cluster, held, actions, advice)
    if observed.mismatch:
        advice.append(observed.mismatch)
    actions.sort(key=lambda action: bool(action.risks))
    state = behind_text(observed.path, registered, observed.comparison.why)
    return unhealthy(observed, state, actions, advice)


def offsets_in_lake(observed: TableState) -> tuple[Mapping[TableBucket, int] | None, str]:
    """The end offset of each bucket in main, and the reason if it is unknown.

    The offsets come from the newest tiering snapshot in main's ancestry. That snapshot may have
    expired: main still holds its rows.

    :returns: offsets and an empty text; or None and why the offsets are unknown.
    """
    if observed.ours is not None:
        return (
            observed.comparison.offsets,
            "Fluss's own tiering service wrote the newest tiering snapshot, which names no offsets",
        )
    last = observed.history.newest_tiering_snapshot()
    if last is None and observed.history.is_complete():
        return {}, ""
    if last is None or observed.table is None:
        return (
            None,
            "the oldest snapshots of main have expired, or the catalog hides them: the offsets that"
            " main holds are unknown",
        )
    entry = LakeSnapshot(last.snapshot_id, last.sequence_number, last.summary)
    try:
        check_owner(observed.path, observed.info.table_id, entry)
        offsets = offsets_of(observed.path, observed.table, entry)
    except (LakeOffsetsLost, LakeTableMismatch) as error:
        return None, _state(error)
    return offsets, f"snapshot {last.snapshot_id}, an ancestor of main, names no offsets"


def _without_table(observed: TableState, cluster: Cluster) -> Diagnosis:
    if observed.registered is None:
        answer = unhealthy(
            observed, "there is no lake table yet: the first round creates it", [], []
        )
        return replace(answer, healthy=True)
    actions: list[RepairAction] = []
    advice = [
        "check that the catalog settings name the lake that the table was tiered to",
        "if only the catalog has lost the table, register its newest metadata file again, in Spark"
        f" SQL: CALL CATALOG.system.register_table('{observed.path}', 'METADATA_FILE')",
    ]
    _add_retier(observed, cluster, {}, actions, advice)
    state = missing_text(observed.path, observed.registered, observed.where)
    return replace(unhealthy(observed, state, actions, advice), error=LakeTableMissing)


def _state(error: LakeOffsetsLost | LakeTableMismatch) -> str:
    """The text of an error without the advice to run `sluice repair`."""
    return str(error.details.get("state", error))


def _is_there(observed: TableState) -> bool:
    registered = observed.registered
    return registered is not None and registered.snapshot_id in observed.history.snapshots


def _restore(observed: TableState) -> RepairAction:
    assert observed.registered is not None
    target = observed.registered.snapshot_id
    effect = f"set main of the lake table to snapshot {target} again"
    leaving = observed.history.removed_by(target)
    if leaving is None:
        risk = (
            "main loses its present rows; which ones is unknown, because its oldest snapshots have"
            " expired"
        )
        return RepairAction(RESTORE, effect, (risk,))
    # The logs still have the rows of later tiering snapshots, from the registered offsets on.
    risks = [f"main loses {described(entry)}" for entry in leaving if entry.changes_rows]
    risks += [
        f"main gets back {described(entry)}, which may have been rolled back on purpose"
        for entry in observed.history.added_by(target)
        if entry.changes_rows
    ]
    risks = _revived(observed, leaving) + risks
    more = [f"and {len(risks) - NAMED_MAX} more such snapshots"] if len(risks) > NAMED_MAX else []
    return RepairAction(RESTORE, effect, (*risks[:NAMED_MAX], *more))


def _revived(observed: TableState, leaving: Sequence[HistoryEntry]) -> list[str]:
    """The risk that dead rounds can commit again, if main moves back past a tiering snapshot.

    `sluice clean` took that snapshot as proof that they never commit, and may have deleted their
    files.
    """
    assert observed.registered is not None
    target = observed.history.snapshots[observed.registered.snapshot_id]
    newer = [
        one for one in leaving if one.is_tiering and one.sequence_number > target.sequence_number
    ]
    if not newer:
        return []
    return [
        f"main moves back past tiering snapshot {newer[-1].snapshot_id}: a driver that planned"
        f" its round from snapshot {target.snapshot_id} and is still running could commit files"
        " that `sluice clean` has deleted. End such drivers first"
    ]


def _adopt(observed: TableState) -> RepairAction:
    assert observed.registered is not None
    target = observed.registered.snapshot_id
    effect = (
        "mark main with an empty commit as holding what Fluss has registered, and register that"
        " commit"
    )
    last = observed.history.newest_tiering_snapshot()
    if last is not None and last.snapshot_id == target:
        return RepairAction(ADOPT, effect)
    if last is None:
        ancestry = "no metadata file shows that main descends from"
    else:
        ancestry = f"main descends from snapshot {last.snapshot_id}, not from"
    risk = f"{ancestry} snapshot {target}: if main lacks rows, no later round copies them"
    return RepairAction(ADOPT, effect, (risk,))


def _add_retier(
    observed: TableState,
    cluster: Cluster,
    held: Mapping[TableBucket, int],
    actions: list[RepairAction],
    advice: list[str],
) -> None:
    try:
        start = retier_plan(observed, cluster, held)
    except LogBehindLake as behind:
        advice.append(f"the logs no longer hold what the lake lacks: {behind}")
        return
    if not start.repeated_offsets and not start.lost:
        return  # the lake lacks nothing
    risks = [f"{LOST}{text}" for text in start.lost_texts[:NAMED_MAX]]
    if len(start.lost) > NAMED_MAX:
        risks.append(f"and {len(start.lost) - NAMED_MAX} more buckets")
    again = [one for one in start.skipped if one != observed.unreadable]
    if len(again) < len(start.skipped):
        risks.append(f"{LOST}{observed.unreadable} (the batch cannot be read)")
    main = observed.history.snapshots.get(observed.history.main or -1)
    if observed.table is None:
        risks.append("if the lake table exists in another lake, this creates a second one")
    elif not held and main is not None and main.total_rows != 0:
        risks.append(
            f"main holds {main.total_rows or 'some'} rows of other writers: if they are copies of"
            " this table's rows, they will be there twice"
        )
    risks += [*_replaced(observed, start.new_partitions), *rebuild_risks(observed, start.rebuilt)]
    effect = (
        f"run a round that copies {start.repeated_offsets} offsets from the logs again,"
        f" {'into a new lake table' if observed.table is None else 'on top of main'}"
    )
    if again:
        named = first_of([str(one) for one in again], limit=NAMED_MAX)
        effect += f". It leaves out what was skipped before: {named}"
    if start.rebuilt:
        effect += f". It {rebuild_text(start.rebuilt)}"
    seen_main = observed.history.main if start.rebuilt or start.new_partitions else None
    actions.append(RepairAction(RETIER, effect, tuple(risks), start.lost, seen_main))


def retier_plan(
    observed: TableState, cluster: Cluster, held: Mapping[TableBucket, int]
) -> RetierPlan:
    """Plans ``retier`` without what earlier rounds left out, and without the batch of the user.

    :param held: end offset of each bucket in the lake.
    :raises LogBehindLake: a log ends before its registered offset.
    :raises ClaimLost: the table was dropped.
    """
    info, registered = observed.info, observed.registered
    assert registered is not None
    left_out = left_out_in(info.table_id, observed.history)
    if observed.unreadable is not None:
        left_out = sorted({*left_out, observed.unreadable}, key=lambda one: one.start)
    return again_if_dropped(
        info, cluster, lambda: plan_retier(info, cluster, held, registered, left_out)
    )


def _replaced(observed: TableState, partitions: Mapping[int, tuple[str, ...]]) -> list[str]:
    """The risk that rows of other writers are deleted in partitions that start from scratch."""
    table = observed.table
    if table is None or only_tiering_wrote(observed):
        return []
    found = ["/".join(values) for values in partitions.values() if table.has_rows(values)]
    if not found:
        return []
    more = f" and {len(found) - NAMED_MAX} more" if len(found) > NAMED_MAX else ""
    named = ", ".join(found[:NAMED_MAX]) + more
    return [f"main loses all its rows of partition {named}, including other writers' rows"]
