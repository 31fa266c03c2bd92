"""What is wrong between a table, its lake and what Fluss has registered, and what can be done.

Looking changes nothing. Only moves of main are done here; ways that write offsets are rounds
(:class:`sluice.rounds.mend.Mend`), under a claim and the fence of every round.
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
from sluice.rounds.mend import Mend, rewind
from sluice.rounds.offsets import offsets_of
from sluice.rounds.plan import check_options
from sluice.rounds.ports import Cluster, Lake, LakeTable
from sluice.rounds.recover import (
    Comparison,
    Standing,
    behind,
    check_owner,
    compare,
    missing,
)
from sluice.rounds.types import LakeSnapshot

REGISTER, RESTORE, TAG = "register", "restore", "tag"
ADOPT, RETIER = Mend.ADOPT.value, Mend.RETIER.value
_NAMED_MAX = 5
_NO_HISTORY = LakeHistory(None, None, {})
_NOTHING = Comparison(Standing.EMPTY)


@dataclass(frozen=True, slots=True)
class Way:
    """One thing that can be done."""

    name: str
    does: str
    risks: tuple[str, ...] = ()
    """What is lost by it, or not known; with none it may be done without asking twice."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What was found, in words, and the ways out, the best one first."""

    table: str
    healthy: bool
    state: str
    facts: Mapping[str, str]
    ways: tuple[Way, ...] = ()
    advice: tuple[str, ...] = ()

    @property
    def recommended(self) -> Way | None:
        """The way that loses nothing, if there is one."""
        return self.ways[0] if self.ways and not self.ways[0].risks else None

    def to_json(self) -> dict[str, Any]:
        best = self.recommended
        return {
            "table": self.table,
            "healthy": self.healthy,
            "state": self.state,
            "facts": dict(self.facts),
            "ways": [{"name": w.name, "does": w.does, "risks": list(w.risks)} for w in self.ways],
            "recommended": best.name if best else None,
            "advice": list(self.advice),
        }


@dataclass(frozen=True, slots=True)
class Sight:
    """Everything that was looked at, at one time."""

    path: TablePath
    info: TableInfo
    table: LakeTable | None
    registered: LakeSnapshotInfo | None
    ours: LakeSnapshot | None = None
    history: LakeHistory = _NO_HISTORY
    found: Comparison = _NOTHING
    error: str = ""
    """Why our newest snapshot could not be compared."""
    offsets_lost: bool = False
    where: str = ""
    """The lake that was looked at, for messages."""


def look(path: TablePath, cluster: Cluster, lake: Lake) -> Sight:
    """Reads cluster and lake; changes neither.

    :raises TableNotExist: Fluss has no such table.
    :raises LakeNotWritable: the catalog or its storage cannot be read.
    """
    info = cluster.table_info(path)
    registered = cluster.lake_snapshot(path)
    table = lake.load(path)
    if table is None:
        return Sight(path, info, None, registered, where=lake.where)
    ours = table.newest_of_ours()
    seen = Sight(path, info, table, registered, ours, table.history())
    try:
        return replace(seen, found=compare(path, info.table_id, table, ours, registered))
    except LakeOffsetsLost as lost:
        return replace(seen, error=_state(lost), offsets_lost=True)
    except LakeTableMismatch as mismatch:
        return replace(seen, error=str(mismatch))


def diagnose(seen: Sight, cluster: Cluster) -> Diagnosis:
    """Words and ways for what was seen.

    :raises UnsupportedLakeOption: nothing of it was ever tiered, and every round refuses it.
    :raises FlussError: the cluster cannot say what its logs hold.
    """
    if seen.registered is None:
        check_options(seen.info)
    if seen.table is None:
        return _without_table(seen, cluster)
    if seen.error:
        ways = [_restore(seen)] if seen.offsets_lost and _is_there(seen) else []
        advice = [] if ways or not seen.offsets_lost else [_START_ANEW]
        return _answer(seen, seen.error, ways, advice)
    standing = seen.found.standing
    if standing is Standing.BEHIND:
        assert seen.registered is not None
        ways, advice = _behind(seen, cluster)
        return _answer(seen, behind(seen.path, seen.registered, seen.found.why), ways, advice)
    if standing is Standing.AHEAD:
        assert seen.ours is not None
        does = (
            f"run a round, which first registers lake snapshot {seen.ours.snapshot_id} with Fluss"
        )
        state = f"lake snapshot {seen.ours.snapshot_id} is not registered with Fluss: a round died"
        return _answer(seen, state, [Way(REGISTER, does)], ["the next round does it by itself"])
    if standing is Standing.SAME and seen.ours and seen.history.tagged != seen.ours.snapshot_id:
        does = f"set the tag sluice-tiered to snapshot {seen.ours.snapshot_id}"
        state = "the tag that keeps our newest snapshot from expiry is not at it"
        return _answer(seen, state, [Way(TAG, does)], ["the next commit does it by itself"])
    said = {
        Standing.SAME: "Fluss knows our newest lake snapshot",
        Standing.EMPTY: "nothing tiered yet",
    }
    return replace(_answer(seen, said[standing], [], []), healthy=True)


def set_right(way: Way, seen: Sight) -> list[str]:
    """Moves main, or the tag, of the lake table as it was seen; answers notes.

    :raises LakeCommitRefused: the table has changed since; nothing was done.
    :raises LakeCommitOutcomeUnknown: main may have moved or not; look again.
    """
    assert seen.table is not None
    if way.name == TAG:
        assert seen.ours is not None
        seen.table.tag(seen.ours.snapshot_id)
        return []
    assert way.name == RESTORE
    assert seen.registered is not None
    target = seen.registered.snapshot_id
    failpoint("repair.restore.before")
    try:
        seen.table.set_main(target, seen.history.main)
    except LakeCommitOutcomeUnknown:
        if seen.table.history().main != target:
            raise
    failpoint("repair.restore.after")
    ours = seen.table.newest_of_ours()
    return [] if ours is None else move_tag(seen.table, ours)


def must_mend(mend: Mend, seen: Sight, cluster: Cluster) -> bool:
    """Whether a round has this to do; not where it can go on as it is.

    :raises LakeRolledBack: things are bad, and this is none of the ways out.
    """
    answer = diagnose(seen, cluster)
    names = {way.name for way in answer.ways}
    if mend.value in names:
        return True
    if answer.healthy or names & {REGISTER, TAG}:  # a round does these by itself
        return False
    raise LakeRolledBack(f"{mend.value} is no way out here: {answer.state}", table=answer.table)


_START_ANEW = (
    "Fluss has registered nothing, so the logs hold every row: drop the lake table, and the next"
    " round makes it anew"
)
_RENAME = (
    "or rename the lake table, so that its rows stay where they are, and tier into a new one:"
    " repair then finds the lake table missing"
)


def _behind(seen: Sight, cluster: Cluster) -> tuple[list[Way], list[str]]:
    ways = [_restore(seen)] if _is_there(seen) else []
    advice: list[str] = []
    if not ways and seen.registered is not None:
        advice.append(f"snapshot {seen.registered.snapshot_id} has expired in the lake")
    if seen.ours is None and not ways:
        ways.append(_adopt(seen))
    held, why = held_by(seen)
    if held is None:
        advice += [why, _RENAME]
    else:
        _add_retier(seen, cluster, held, ways, advice)
    return sorted(ways, key=lambda way: bool(way.risks)), advice


def held_by(seen: Sight) -> tuple[Mapping[TableBucket, int] | None, str]:
    """Up to where main holds each bucket, by the newest snapshot of ours that it came from.

    That one may have expired: what is left of main is still made of it. None, and why, where
    nobody can tell.
    """
    if seen.ours is not None:
        return (
            seen.found.offsets,
            "Fluss's own tiering wrote our newest snapshot: it says no offsets",
        )
    last = seen.history.newest_of_ours()
    if last is None and seen.history.is_whole():
        return {}, ""
    if last is None or seen.table is None:
        return None, "the beginning of main has expired: nobody can tell what it holds"
    entry = LakeSnapshot(last.snapshot_id, last.sequence_number, last.summary)
    try:
        check_owner(seen.path, seen.info.table_id, entry)
        offsets = offsets_of(seen.path, seen.table, entry)
    except (LakeOffsetsLost, LakeTableMismatch) as error:
        return None, _state(error)
    return offsets, f"snapshot {last.snapshot_id}, from which main came, says no offsets"


def _without_table(seen: Sight, cluster: Cluster) -> Diagnosis:
    if seen.registered is None:
        answer = _answer(seen, "no lake table yet: the first round makes it", [], [])
        return replace(answer, healthy=True)
    ways: list[Way] = []
    advice = [
        "check that the catalog settings name the lake that the table was tiered to",
        "a table that only the catalog has lost comes back from its newest metadata file, in Spark"
        f" SQL: CALL CATALOG.system.register_table('{seen.path}', 'METADATA_FILE')",
    ]
    _add_retier(seen, cluster, {}, ways, advice)
    return _answer(seen, missing(seen.path, seen.registered, seen.where), ways, advice)


def _state(error: LakeOffsetsLost | LakeTableMismatch) -> str:
    """Without the advice to run this very command."""
    return str(error.details.get("state", error))


def _is_there(seen: Sight) -> bool:
    registered = seen.registered
    return registered is not None and registered.snapshot_id in seen.history.snapshots


def _restore(seen: Sight) -> Way:
    assert seen.registered is not None
    target = seen.registered.snapshot_id
    does = f"set main of the lake table to snapshot {target} again"
    leaving = seen.history.leaving(target)
    if leaving is None:
        risk = "main loses what it has now, and nobody can tell what that is: its beginning expired"
        return Way(RESTORE, does, (risk,))
    # Rows of ours are in the logs from Fluss's offsets on.
    risks = [f"main loses {_described(entry)}" for entry in leaving if _changes_rows(entry)]
    risks += [
        f"main gets back {_described(entry)}, which it was perhaps to lose"
        for entry in seen.history.coming(target)
        if _changes_rows(entry)
    ]
    risks = _revived(seen, leaving) + risks
    more = [f"and {len(risks) - _NAMED_MAX} more such snapshots"] if len(risks) > _NAMED_MAX else []
    return Way(RESTORE, does, (*risks[:_NAMED_MAX], *more))


def _revived(seen: Sight, leaving: Sequence[HistoryEntry]) -> list[str]:
    """Where main goes back behind a snapshot of ours, rounds of its new base may commit again.

    Clean-up took that snapshot for proof that they never do, so their files may be gone.
    """
    assert seen.registered is not None
    target = seen.history.snapshots[seen.registered.snapshot_id]
    newer = [one for one in leaving if one.is_ours and one.sequence_number > target.sequence_number]
    if not newer:
        return []
    return [
        f"main goes back behind snapshot {newer[-1].snapshot_id} of ours: a driver that was planned"
        f" from snapshot {target.snapshot_id} and still stands could then commit files that"
        " `sluice clean` has taken since; end such drivers first"
    ]


def _changes_rows(entry: HistoryEntry) -> bool:
    """Whether another writer has changed rows by it: a compaction does not."""
    return not entry.is_ours and entry.operation != "replace"


def _adopt(seen: Sight) -> Way:
    assert seen.registered is not None
    target = seen.registered.snapshot_id
    does = "mark main by an empty commit as holding what Fluss has registered, and register that"
    last = seen.history.newest_of_ours()
    if last is not None and last.snapshot_id == target:
        return Way(ADOPT, does)
    told = "main came from" if last is None else f"main came from {last.snapshot_id}, not from"
    risk = (
        f"{'no metadata file tells that ' if last is None else ''}{told} snapshot {target}: rows"
        " that it lacks are never copied"
    )
    return Way(ADOPT, does, (risk,))


def _add_retier(
    seen: Sight,
    cluster: Cluster,
    held: Mapping[TableBucket, int],
    ways: list[Way],
    advice: list[str],
) -> None:
    assert seen.registered is not None
    try:
        start = rewind(seen.info, cluster, held, seen.registered)
    except LogBehindLake as behind:
        advice.append(f"the logs cannot give it again: {behind}")
        return
    if not start.again and not start.lost:
        return  # the lake holds it all
    risks = [f"lost for good: {text}" for text in start.lost[:_NAMED_MAX]]
    if len(start.lost) > _NAMED_MAX:
        risks.append(f"and {len(start.lost) - _NAMED_MAX} more buckets")
    main = seen.history.snapshots.get(seen.history.main or -1)
    if seen.table is None:
        risks.append("where the lake table lies elsewhere, this makes a second one")
    elif not held and main is not None and main.total_rows != 0:
        risks.append(
            f"main holds {main.total_rows or 'some'} rows of other writers: those that are a copy"
            " of this table's are doubled"
        )
    risks += _replaced(seen, start.anew)
    does = (
        f"run a round that copies {start.again} offsets from the logs again, and what is new, on"
        f" {'a new lake table' if seen.table is None else 'main as it is'}"
    )
    ways.append(Way(RETIER, does, tuple(risks)))


def _replaced(seen: Sight, partitions: Sequence[tuple[str, ...]]) -> list[str]:
    """Rows in partitions that begin anew go, as those of dropped partitions of the same name."""
    table, history = seen.table, seen.history
    entries = [history.entry(one) for one in history.ancestors(history.main)]
    if table is None or all(entry is not None and not _changes_rows(entry) for entry in entries):
        return []  # they are ours
    found = ["/".join(values) for values in partitions if table.has_rows(values)]
    if not found:
        return []
    more = f" and {len(found) - _NAMED_MAX} more" if len(found) > _NAMED_MAX else ""
    named = ", ".join(found[:_NAMED_MAX]) + more
    return [f"main loses the rows that it has in partition {named}, whoever wrote them"]


def _answer(seen: Sight, state: str, ways: list[Way], advice: list[str]) -> Diagnosis:
    return Diagnosis(str(seen.path), False, state, _facts(seen), tuple(ways), tuple(advice))


def _facts(seen: Sight) -> dict[str, str]:
    registered, ours, history = seen.registered, seen.ours, seen.history
    facts = {"Fluss table id": str(seen.info.table_id)}
    facts["registered with Fluss"] = (
        "nothing"
        if registered is None
        else f"snapshot {registered.snapshot_id}, {_size(registered.offsets)}"
    )
    if seen.table is None:
        return {**facts, "lake table": "missing"}
    main = history.snapshots.get(history.main or -1)
    facts["main of the lake"] = "no snapshot" if main is None else _described(main)
    facts["newest of ours on main"] = "none"
    if ours is not None:
        offsets = seen.found.offsets
        held = "" if offsets is None else f", {_size(offsets)}"
        facts["newest of ours on main"] = f"snapshot {ours.snapshot_id}{held}"
    facts["tag sluice-tiered"] = f"snapshot {history.tagged}" if history.tagged else "none"
    return facts


def _size(offsets: Mapping[TableBucket, int]) -> str:
    return f"{sum(offsets.values())} offsets in {len(offsets)} buckets"


def _described(entry: HistoryEntry) -> str:
    whose = "ours" if entry.is_ours else "another writer's"
    rows = [
        f"{sign}{entry.summary[key]} rows"
        for sign, key in (("+", "added-records"), ("-", "deleted-records"))
        if entry.summary.get(key, "0") != "0"
    ]
    return f"snapshot {entry.snapshot_id} ({', '.join([whose, entry.operation, *rows])})"
