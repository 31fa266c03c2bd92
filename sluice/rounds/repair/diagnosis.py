"""The state of a table in Fluss and in the lake, and what a diagnosis says about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sluice.errors import LakeRolledBack, SluiceError
from sluice.model import LakeSnapshotInfo, TableBucket, TableInfo, TablePath
from sluice.quantities import counted
from sluice.rounds.commit.recover import LakeComparison, LakeStatus
from sluice.rounds.values.history import HistoryEntry, LakeHistory
from sluice.rounds.values.ports import LakeTable
from sluice.rounds.values.types import LakeSnapshot, OffsetRange, RepairMode

LOST = "lost for good: "
"""The beginning of a risk that names an offset range."""
NAMED_MAX = 5
"""How many buckets, snapshots or partitions a text names."""
_NO_HISTORY = LakeHistory(None, None, {})
_NOTHING = LakeComparison(LakeStatus.EMPTY)


@dataclass(frozen=True, slots=True)
class RepairAction:
    """One repair of a table."""

    name: str
    effect: str
    risks: tuple[str, ...] = ()
    """What it loses or may lose; empty: it is safe to apply without asking."""
    ranges: tuple[OffsetRange, ...] = ()
    """The offsets that the lake will lack. For ``rebuild``, the gaps of the buckets to rebuild."""
    seen_main: int | None = None
    """The snapshot of main that its risks are about, if it removes files. None: it removes none."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The state of a table in words, and the possible repairs, the best one first."""

    table: str
    healthy: bool
    state: str
    facts: Mapping[str, str]
    actions: tuple[RepairAction, ...] = ()
    advice: tuple[str, ...] = ()
    last_failure: str = ""
    """Why the last round of a healthy lake failed, in words; empty if it did not fail."""
    batch: str = ""
    """BUCKET:OFFSET, if the repairs are of a batch that cannot be read."""
    error: type[SluiceError] = LakeRolledBack
    """What a repair raises that cannot be chosen or does not fit this state."""

    @property
    def unnamed(self) -> RepairAction | None:
        """The action that runs without ``--by``: it loses nothing, or is the batch's only one."""
        if not self.batch:
            return self.recommended
        names = [action.name for action in self.actions]
        return self.actions[0] if names == [RepairMode.SKIP.value] else None

    def commands(self) -> str:
        """The command of each action."""
        batch = f" --skip {self.batch}" if self.batch else ""
        unnamed = self.unnamed
        names = ["" if action is unnamed else f" --by {action.name}" for action in self.actions]
        return " or ".join(f"`sluice repair {self.table}{batch}{name} --yes`" for name in names)

    @property
    def recommended(self) -> RepairAction | None:
        """The action that ``--yes`` alone runs: it loses nothing, and repairs no batch."""
        if self.batch or not self.actions or self.actions[0].risks:
            return None
        return self.actions[0]

    def to_json(self) -> dict[str, Any]:
        best = self.recommended
        return {
            "table": self.table,
            "healthy": self.healthy,
            "state": self.state,
            "last_failure": self.last_failure or None,
            "batch": self.batch or None,
            "facts": dict(self.facts),
            "repairs": [
                {"name": action.name, "effect": action.effect, "risks": list(action.risks)}
                for action in self.actions
            ],
            "recommended": best.name if best else None,
            "advice": list(self.advice),
        }


@dataclass(frozen=True, slots=True)
class TableState:
    """The state of one table in Fluss and in the lake, read at one time."""

    path: TablePath
    info: TableInfo
    table: LakeTable | None
    registered: LakeSnapshotInfo | None
    ours: LakeSnapshot | None = None
    history: LakeHistory = _NO_HISTORY
    comparison: LakeComparison = _NOTHING
    error: str = ""
    """Why the newest tiering snapshot could not be compared with what Fluss has registered."""
    offsets_lost: bool = False
    mismatch: str = ""
    """How another engine has changed the lake table so that no round can write to it."""
    where: str = ""
    """The name of the lake, for messages."""
    unreadable: OffsetRange | None = None
    """A batch that cannot be read and that a user named: ``retier`` is to leave it out."""


def only_tiering_wrote(observed: TableState) -> bool:
    """Whether tiering wrote all rows of main."""
    history = observed.history
    entries = [history.entry(one) for one in history.ancestors(history.main)]
    return all(entry is not None and not entry.changes_rows for entry in entries)


def unhealthy(
    observed: TableState, state: str, actions: Sequence[RepairAction], advice: Sequence[str]
) -> Diagnosis:
    """The diagnosis of a table that is not healthy."""
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
    facts["main of the lake"] = "no snapshot" if main is None else described(main)
    facts["newest tiering snapshot on main"] = "none"
    if ours is not None:
        offsets = observed.comparison.offsets
        held = "" if offsets is None else f", {_size(offsets)}"
        facts["newest tiering snapshot on main"] = f"snapshot {ours.snapshot_id}{held}"
    tagged = f"snapshot {history.tagged}" if history.tagged else "none"
    by_property = ", by a property: the catalog keeps no tags" if history.is_noted else ""
    facts["tag sluice-tiered"] = tagged + by_property
    return facts


def _size(offsets: Mapping[TableBucket, int]) -> str:
    return f"{counted(sum(offsets.values()), 'offset')} in {counted(len(offsets), 'bucket')}"


def described(entry: HistoryEntry) -> str:
    """A snapshot in words."""
    whose = "tiering" if entry.is_tiering else "another writer's"
    rows = [
        f"{sign}{entry.summary[key]} rows"
        for sign, key in (("+", "added-records"), ("-", "deleted-records"))
        if entry.summary.get(key, "0") != "0"
    ]
    return f"snapshot {entry.snapshot_id} ({', '.join([whose, entry.operation, *rows])})"
