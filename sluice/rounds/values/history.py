"""The history of a lake table: its snapshots, and the ancestry of its branch main."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from sluice.rounds.values.types import COMMIT_USER, COMMIT_USER_KEY

MAINTENANCE_KEY = "sluice.maintenance"
"""Key in the summary of a snapshot that maintenance has made: the id in its files' names."""


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """One snapshot of any branch, written by tiering or by another writer."""

    snapshot_id: int
    parent_id: int | None
    sequence_number: int
    summary: Mapping[str, str]
    timestamp_ms: int = 0
    """When it was committed, epoch milliseconds by its writer's clock."""

    @property
    def is_tiering(self) -> bool:
        return self.summary.get(COMMIT_USER_KEY) == COMMIT_USER

    @property
    def operation(self) -> str:
        """append, overwrite, delete or replace; a replace (compaction) changes no rows."""
        return self.summary.get("operation", "append")

    @property
    def changes_rows(self) -> bool:
        """Whether it is another writer's snapshot that changes rows; a compaction does not.

        Nor does maintenance: it writes the same deletes in another form.
        """
        is_maintenance = MAINTENANCE_KEY in self.summary
        return not (self.is_tiering or is_maintenance or self.operation == "replace")

    @property
    def total_rows(self) -> int | None:
        """Number of rows in the table at this snapshot; None if its writer did not record it."""
        text = self.summary.get("total-records", "")
        return int(text) if text.isdecimal() else None

    @property
    def rows_before(self) -> int | None:
        """Number of rows with which its commit began; None if its writer did not record them.

        Iceberg records no change of 0 rows. Earlier versions of DuckDB record no numbers at all.
        """
        changes = [self.summary.get(name, "0") for name in ("added-records", "deleted-records")]
        if self.total_rows is None or not all(one.isdecimal() for one in changes):
            return None
        added, deleted = map(int, changes)
        return self.total_rows - added + deleted


@dataclass(frozen=True, slots=True)
class LakeHistory:
    """The existing snapshots of a lake table, and expired ones as far as known."""

    main: int | None
    """The current snapshot of main; None: there is none yet."""
    tagged: int | None
    """The snapshot of the tag ``sluice-tiered``; None: there is no such tag."""
    snapshots: Mapping[int, HistoryEntry]
    expired: Mapping[int, HistoryEntry] = field(default_factory=dict)
    """Expired snapshots that earlier metadata files still describe."""
    is_noted: bool = False
    """Whether a property of the table stands for the tag, because the catalog keeps none."""

    def ancestors(self, snapshot_id: int | None) -> list[int]:
        """A snapshot and its ancestors, expired ones included, as far as known."""
        found: dict[int, None] = {}
        while snapshot_id is not None and snapshot_id not in found:
            found[snapshot_id] = None
            entry = self.entry(snapshot_id)
            snapshot_id = None if entry is None else entry.parent_id
        return list(found)

    def entry(self, snapshot_id: int | None) -> HistoryEntry | None:
        """A snapshot by its id, expired or not; None if it is unknown."""
        if snapshot_id is None:
            return None
        return self.snapshots.get(snapshot_id) or self.expired.get(snapshot_id)

    def is_complete(self) -> bool:
        """Whether all ancestors of main are known, back to one that began with an empty table.

        They are not if the catalog hides them: then the oldest one has no parent, but had rows.
        """
        entries = [self.entry(one) for one in self.ancestors(self.main)]
        oldest = entries[-1] if entries else None
        if oldest is None:
            return not entries
        before = oldest.rows_before
        return before <= 0 if before is not None else oldest.sequence_number <= 1

    def began_with_hidden_rows(self) -> HistoryEntry | None:
        """The oldest known ancestor of main, if the catalog hides its parent, which had rows."""
        oldest = self.entry(self.ancestors(self.main)[-1]) if self.main is not None else None
        is_hidden = oldest is not None and oldest.parent_id is None and not self.is_complete()
        return oldest if is_hidden else None

    def is_known_since(self, sequence_number: int) -> bool:
        """Whether no ancestor is unknown of any existing snapshot that is newer than this number.

        A snapshot of another branch may have files of an expired ancestor. Iceberg's first format
        has no numbers: all of them are 0, and each snapshot must be known back to its first
        ancestor. A later snapshot without a parent has one that the catalog hides.
        """
        known = set[int]()
        for entry in self.snapshots.values():
            while entry.snapshot_id not in known:
                known.add(entry.snapshot_id)
                if 0 < entry.sequence_number <= sequence_number:
                    break
                if entry.parent_id is None:
                    if entry.sequence_number > sequence_number + 1:
                        return False
                    break
                parent = self.entry(entry.parent_id)
                if parent is None:
                    return False
                entry = parent
        return True

    def newest_tiering_snapshot(self) -> HistoryEntry | None:
        """The newest tiering snapshot among the known ancestors of main, expired or not."""
        entries = map(self.entry, self.ancestors(self.main))
        return next((entry for entry in entries if entry is not None and entry.is_tiering), None)

    def knows_way_to(self, snapshot_id: int) -> bool:
        """Whether a snapshot is known, with all of its ancestors that main lacks."""
        return self._beyond(snapshot_id, self.main) is not None

    def removed_by(self, snapshot_id: int) -> list[HistoryEntry] | None:
        """The snapshots that main loses if it is set to this one, oldest first.

        Expired ones count, because main may still have their rows. None: the common ancestor has
        expired, so they are unknown.
        """
        gone = self._beyond(self.main, snapshot_id)
        return None if gone is None else [one for one in map(self.entry, gone) if one is not None]

    def added_by(self, snapshot_id: int) -> list[HistoryEntry]:
        """The known snapshots that main gains if it is set to this one."""
        new = self._beyond(snapshot_id, self.main) or []
        return [one for one in map(self.entry, new) if one is not None]

    def changed_since(self, snapshot_id: int) -> str:
        """How other writers have changed rows of main since a snapshot; empty if they have not."""
        chain = self.ancestors(self.main)
        if snapshot_id not in chain:
            return f"main no longer descends from snapshot {snapshot_id}"
        for one in chain[: chain.index(snapshot_id)]:
            entry = self.entry(one)
            if entry is None or entry.changes_rows:
                return f"another writer has committed snapshot {one}"
        return ""

    def _beyond(self, snapshot_id: int | None, other: int | None) -> list[int] | None:
        """Ancestors of the first snapshot that are not ancestors of the other, oldest first."""
        chain, kept = self.ancestors(snapshot_id), set(self.ancestors(other))
        if chain and not kept.intersection(chain) and self.entry(chain[-1]) is None:
            return None
        return [one for one in reversed(chain) if one not in kept]


def with_expired(
    history: LakeHistory,
    earlier: Iterator[Iterable[HistoryEntry]],
    registered_id: int | None = None,
) -> LakeHistory:
    """The history with the expired snapshots of earlier metadata files, as far as they are needed.

    Main must be known back to a tiering snapshot or to its first snapshot.

    :param earlier: the snapshots of each earlier file, the newest file first. No more are read than
        needed.
    :param registered_id: the snapshot that Fluss has registered, if it must be known how it
        descends from an ancestor of main; None: it need not be known.
    """
    expired = dict(history.expired)
    history = replace(history, expired=expired)
    while not _is_enough(history, registered_id):
        entries = next(earlier, None)
        if entries is None:
            break
        for entry in entries:
            if entry.snapshot_id not in history.snapshots:
                expired[entry.snapshot_id] = entry
    return history


def _is_enough(history: LakeHistory, registered_id: int | None) -> bool:
    if registered_id is not None and not history.knows_way_to(registered_id):
        return False
    return history.newest_tiering_snapshot() is not None or history.is_complete()
