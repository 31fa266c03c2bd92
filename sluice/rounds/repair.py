"""What is wrong between a table, its lake and what Fluss has registered, and what can be done.

Looking changes nothing. Only moves of main are done here; actions that write offsets are rounds
(:class:`sluice.rounds.retier.RepairMode`), under a claim and the fence of every round.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sluice.errors import (
    LakeCommitOutcomeUnknown,
    LakeOffsetsLost,
    LakeRolledBack,
    LakeTableMismatch,
    LogBehindLake,
)
from sluice.failpoints import failpoint
from sluice.model import LakeSnapshotInfo, TableBucket, TableInfo, TablePath
from sluice.rounds.commit import move_tag
from sluice.rounds.history import HistoryEntry, LakeHistory
from sluice.rounds.offsets import offsets_of
from sluice.rounds.plan import check_options
from sluice.rounds.ports import Cluster, Lake, LakeTable
from sluice.rounds.recover import (
    LakeComparison,
    LakeStatus,
    behind_text,
    check_owner,
    compare,
    missing_text,
)
from sluice.rounds.retier import RepairMode, plan_retier
from sluice.rounds.types import LakeSnapshot

REGISTER, RESTORE, TAG = "register", "restore", "tag"
ADOPT, RETIER = RepairMode.ADOPT.value, RepairMode.RETIER.value
_NAMED_MAX = 5
_NO_HISTORY = LakeHistory(None, None, {})
_NOTHING = LakeComparison(LakeStatus.EMPTY)


@dataclass(frozen=True, slots=True)
class RepairAction:
    """One thing that can be done."""

    name: str
    effect: str
    risks: tuple[str, ...] = ()
    """What is lost by it, or not known; with none it may be done without asking twice."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What was found, in words, and the actions out, the best one first."""

    table: str
    healthy: bool
    state: str
    facts: Mapping[str, str]
    actions: tuple[RepairAction, ...] = ()
    advice: tuple[str, ...] = ()

    @property
    def recommended(self) -> RepairAction | None:
        """The action that loses nothing, if there is one."""
        return self.actions[0] if self.actions and not self.actions[0].risks else None

    def to_json(self) -> dict[str, Any]:
        best = self.recommended
        return {
            "table": self.table,
            "healthy": self.healthy,
            "state": self.state,
            "facts": dict(self.facts),
            "ways": [
                {"name": action.name, "does": action.effect, "risks": list(action.risks)}
                for action in self.actions
            ],
            "recommended": best.name if best else None,
            "advice": list(self.advice),
        }


@dataclass(frozen=True, slots=True)
class TableState:
    """Everything that was looked at, at one time."""

    path: TablePath
    info: TableInfo
    table: LakeTable | None
    registered: LakeSnapshotInfo | None
    ours: LakeSnapshot | None = None
    history: LakeHistory = _NO_HISTORY
    comparison: LakeComparison = _NOTHING
    error: str = ""
    """Why our newest snapshot could not be compared."""
    offsets_lost: bool = False
    where: str = ""
    """The lake that was looked at, for messages."""


def read_table_state(path: TablePath, cluster: Cluster, lake: Lake) -> TableState:
    """Reads cluster and lake; changes neither.

    :raises TableNotExist: Fluss has no such table.
    :raises LakeNotWritable: the catalog or its storage cannot be read.
    """
    info = cluster.table_info(path)
    registered = cluster.lake_snapshot(path)
    table = lake.load(path)
    if table is None:
        return TableState(path, info, None, registered, where=lake.where)
    ours = table.newest_tiering_snapshot()
    observed = TableState(path, info, table, registered, ours, table.history())
    try:
        return replace(observed, comparison=compare(path, info.table_id, table, ours, registered))
    except LakeOffsetsLost as lost:
        return replace(observed, error=_state(lost), offsets_lost=True)
    except LakeTableMismatch as mismatch:
        return replace(observed, error=str(mismatch))


def diagnose(observed: TableState, cluster: Cluster) -> Diagnosis:
    """Words and actions for what was observed.

    :raises UnsupportedLakeOption: nothing of it was ever tiered, and every round refuses it.
    :raises FlussError: the cluster cannot say what its logs hold.
    """
    if observed.registered is None:
        check_options(observed.info)
    if observed.table is None:
        return _without_table(observed, cluster)
    if observed.error:
        actions = [_restore(observed)] if observed.offsets_lost and _is_there(observed) else []
        advice = [] if actions or not observed.offsets_lost else [_START_ANEW]
        return _answer(observed, observed.error, actions, advice)
    status = observed.comparison.status
    if status is LakeStatus.BEHIND:
        assert observed.registered is not None
        actions, advice = _behind(observed, cluster)
        return _answer(
            observed,
            behind_text(observed.path, observed.registered, observed.comparison.why),
            actions,
            advice,
        )
    if status is LakeStatus.AHEAD:
        assert observed.ours is not None
        snapshot_id = observed.ours.snapshot_id
        effect = f"run a round, which first registers lake snapshot {snapshot_id} with Fluss"
        state = (
            f"lake snapshot {snapshot_id} is not registered with Fluss: a round died after its lake"
            " commit"
        )
        return _answer(
            observed, state, [RepairAction(REGISTER, effect)], ["the next round does it by itself"]
        )
    if (
        status is LakeStatus.SAME
        and observed.ours
        and observed.history.tagged != observed.ours.snapshot_id
    ):
        effect = f"set the tag sluice-tiered to snapshot {observed.ours.snapshot_id}"
        state = "the tag that keeps our newest snapshot from expiry is not at it"
        return _answer(
            observed, state, [RepairAction(TAG, effect)], ["the next commit does it by itself"]
        )
    texts = {
        LakeStatus.SAME: "Fluss knows our newest lake snapshot",
        LakeStatus.EMPTY: "nothing tiered yet",
    }
    return replace(_answer(observed, texts[status], [], []), healthy=True)


def apply_action(action: RepairAction, observed: TableState) -> list[str]:
    """Moves main, or the tag, of the lake table as it was state; answers notes.

    :raises LakeCommitRefused: the table has changed since; nothing was done.
    :raises LakeCommitOutcomeUnknown: main may have moved or not; look again.
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


def needs_repair_round(repair_mode: RepairMode, observed: TableState, cluster: Cluster) -> bool:
    """Whether a round has this to do; not where it can go on as it is.

    :raises LakeRolledBack: things are bad, and this is none of the actions out.
    """
    answer = diagnose(observed, cluster)
    names = {action.name for action in answer.actions}
    if repair_mode.value in names:
        return True
    if answer.healthy or names & {REGISTER, TAG}:  # a round does these by itself
        return False
    raise LakeRolledBack(
        f"{repair_mode.value} is no action out here: {answer.state}", table=answer.table
    )


_START_ANEW = (
    "Fluss has registered nothing, so the logs hold every row: drop the lake table, and the next"
    " round makes it anew"
)
_RENAME = (
    "or rename the lake table, so that its rows stay where they are, and tier into a new one:"
    " repair then finds the lake table missing"
)


def _behind(observed: TableState, cluster: Cluster) -> tuple[list[RepairAction], list[str]]:
    actions = [_restore(observed)] if _is_there(observed) else []
    advice: list[str] = []
    if not actions and observed.registered is not None:
        advice.append(f"snapshot {observed.registered.snapshot_id} has expired in the lake")
    if observed.ours is None and not actions:
        actions.append(_adopt(observed))
    held, why = offsets_in_lake(observed)
    if held is None:
        advice += [why, _RENAME]
    else:
        _add_retier(observed, cluster, held, actions, advice)
    return sorted(actions, key=lambda action: bool(action.risks)), advice


def offsets_in_lake(observed: TableState) -> tuple[Mapping[TableBucket, int] | None, str]:
    """Up to where main holds each bucket, by the newest snapshot of ours that it came from.

    That one may have expired: what is left of main is still made of it. None, and why, where
    nobody can tell.
    """
    if observed.ours is not None:
        return (
            observed.comparison.offsets,
            "Fluss's own tiering wrote our newest snapshot: it says no offsets",
        )
    last = observed.history.newest_tiering_snapshot()
    if last is None and observed.history.is_complete():
        return {}, ""
    if last is None or observed.table is None:
        return None, "the beginning of main has expired: nobody can tell what it holds"
    entry = LakeSnapshot(last.snapshot_id, last.sequence_number, last.summary)
    try:
        check_owner(observed.path, observed.info.table_id, entry)
        offsets = offsets_of(observed.path, observed.table, entry)
    except (LakeOffsetsLost, LakeTableMismatch) as error:
        return None, _state(error)
    return offsets, f"snapshot {last.snapshot_id}, from which main came, says no offsets"


def _without_table(observed: TableState, cluster: Cluster) -> Diagnosis:
    if observed.registered is None:
        answer = _answer(observed, "no lake table yet: the first round makes it", [], [])
        return replace(answer, healthy=True)
    actions: list[RepairAction] = []
    advice = [
        "check that the catalog settings name the lake that the table was tiered to",
        "a table that only the catalog has lost comes back from its newest metadata file, in Spark"
        f" SQL: CALL CATALOG.system.register_table('{observed.path}', 'METADATA_FILE')",
    ]
    _add_retier(observed, cluster, {}, actions, advice)
    return _answer(
        observed, missing_text(observed.path, observed.registered, observed.where), actions, advice
    )


def _state(error: LakeOffsetsLost | LakeTableMismatch) -> str:
    """Without the advice to run this very command."""
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
        risk = "main loses what it has now, and nobody can tell what that is: its beginning expired"
        return RepairAction(RESTORE, effect, (risk,))
    # Rows of ours are in the logs from Fluss's offsets on.
    risks = [f"main loses {_described(entry)}" for entry in leaving if _changes_rows(entry)]
    risks += [
        f"main gets back {_described(entry)}, which it was perhaps to lose"
        for entry in observed.history.added_by(target)
        if _changes_rows(entry)
    ]
    risks = _revived(observed, leaving) + risks
    more = [f"and {len(risks) - _NAMED_MAX} more such snapshots"] if len(risks) > _NAMED_MAX else []
    return RepairAction(RESTORE, effect, (*risks[:_NAMED_MAX], *more))


def _revived(observed: TableState, leaving: Sequence[HistoryEntry]) -> list[str]:
    """Where main goes back behind a snapshot of ours, rounds of its new base may commit again.

    Clean-up took that snapshot for proof that they never do, so their files may be gone.
    """
    assert observed.registered is not None
    target = observed.history.snapshots[observed.registered.snapshot_id]
    newer = [
        one for one in leaving if one.is_tiering and one.sequence_number > target.sequence_number
    ]
    if not newer:
        return []
    return [
        f"main goes back behind snapshot {newer[-1].snapshot_id} of ours: a driver that was planned"
        f" from snapshot {target.snapshot_id} and still stands could then commit files that"
        " `sluice clean` has taken since; end such drivers first"
    ]


def _changes_rows(entry: HistoryEntry) -> bool:
    """Whether another writer has changed rows by it: a compaction does not."""
    return not entry.is_tiering and entry.operation != "replace"


def _adopt(observed: TableState) -> RepairAction:
    assert observed.registered is not None
    target = observed.registered.snapshot_id
    effect = "mark main by an empty commit as holding what Fluss has registered, and register that"
    last = observed.history.newest_tiering_snapshot()
    if last is not None and last.snapshot_id == target:
        return RepairAction(ADOPT, effect)
    told = "main came from" if last is None else f"main came from {last.snapshot_id}, not from"
    risk = (
        f"{'no metadata file tells that ' if last is None else ''}{told} snapshot {target}: rows"
        " that it lacks are never copied"
    )
    return RepairAction(ADOPT, effect, (risk,))


def _add_retier(
    observed: TableState,
    cluster: Cluster,
    held: Mapping[TableBucket, int],
    actions: list[RepairAction],
    advice: list[str],
) -> None:
    assert observed.registered is not None
    try:
        start = plan_retier(observed.info, cluster, held, observed.registered)
    except LogBehindLake as behind:
        advice.append(f"the logs cannot give it again: {behind}")
        return
    if not start.again and not start.lost:
        return  # the lake holds it all
    risks = [f"lost for good: {text}" for text in start.lost[:_NAMED_MAX]]
    if len(start.lost) > _NAMED_MAX:
        risks.append(f"and {len(start.lost) - _NAMED_MAX} more buckets")
    main = observed.history.snapshots.get(observed.history.main or -1)
    if observed.table is None:
        risks.append("where the lake table lies elsewhere, this makes a second one")
    elif not held and main is not None and main.total_rows != 0:
        risks.append(
            f"main holds {main.total_rows or 'some'} rows of other writers: those that are a copy"
            " of this table's are doubled"
        )
    risks += _replaced(observed, start.anew)
    effect = (
        f"run a round that copies {start.again} offsets from the logs again, and what is new, on"
        f" {'a new lake table' if observed.table is None else 'main as it is'}"
    )
    actions.append(RepairAction(RETIER, effect, tuple(risks)))


def _replaced(observed: TableState, partitions: Sequence[tuple[str, ...]]) -> list[str]:
    """Rows in partitions that begin anew go, as those of dropped partitions of the same name."""
    table, history = observed.table, observed.history
    entries = [history.entry(one) for one in history.ancestors(history.main)]
    if table is None or all(entry is not None and not _changes_rows(entry) for entry in entries):
        return []  # they are ours
    found = ["/".join(values) for values in partitions if table.has_rows(values)]
    if not found:
        return []
    more = f" and {len(found) - _NAMED_MAX} more" if len(found) > _NAMED_MAX else ""
    named = ", ".join(found[:_NAMED_MAX]) + more
    return [f"main loses the rows that it has in partition {named}, whoever wrote them"]


def _answer(
    observed: TableState, state: str, actions: list[RepairAction], advice: list[str]
) -> Diagnosis:
    return Diagnosis(
        str(observed.path), False, state, _facts(observed), tuple(actions), tuple(advice)
    )


def _facts(observed: TableState) -> dict[str, str]:
    registered, ours, history = observed.registered, observed.ours, observed.history
    facts = {"Fluss table id": str(observed.info.table_id)}
    facts["registered with Fluss"] = (
        "nothing"
        if registered is None
        else f"snapshot {registered.snapshot_id}, {_size(registered.offsets)}"
    )
    if observed.table is None:
        return {**facts, "lake table": "missing"}
    main = history.snapshots.get(history.main or -1)
    facts["main of the lake"] = "no snapshot" if main is None else _described(main)
    facts["newest of ours on main"] = "none"
    if ours is not None:
        offsets = observed.comparison.offsets
        held = "" if offsets is None else f", {_size(offsets)}"
        facts["newest of ours on main"] = f"snapshot {ours.snapshot_id}{held}"
    facts["tag sluice-tiered"] = f"snapshot {history.tagged}" if history.tagged else "none"
    return facts


def _size(offsets: Mapping[TableBucket, int]) -> str:
    return f"{sum(offsets.values())} offsets in {len(offsets)} buckets"


def _described(entry: HistoryEntry) -> str:
    whose = "ours" if entry.is_tiering else "another writer's"
    rows = [
        f"{sign}{entry.summary[key]} rows"
        for sign, key in (("+", "added-records"), ("-", "deleted-records"))
        if entry.summary.get(key, "0") != "0"
    ]
    return f"snapshot {entry.snapshot_id} ({', '.join([whose, entry.operation, *rows])})"
