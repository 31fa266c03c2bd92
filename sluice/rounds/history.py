"""The snapshots that a lake table has, and how its main came about, as one value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sluice.rounds.types import COMMIT_USER, COMMIT_USER_KEY


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """One snapshot, on main or not, ours or another writer's."""

    snapshot_id: int
    parent_id: int | None
    sequence_number: int
    committed_ms: int
    """Epoch milliseconds."""
    summary: Mapping[str, str]

    @property
    def is_tiering(self) -> bool:
        return self.summary.get(COMMIT_USER_KEY) == COMMIT_USER

    @property
    def operation(self) -> str:
        """append, overwrite, delete or replace; a replace (compaction) changes no rows."""
        return self.summary.get("operation", "append")

    @property
    def total_rows(self) -> int | None:
        """Rows of the whole table at this snapshot, if its writer has said so."""
        text = self.summary.get("total-records", "")
        return int(text) if text.isdecimal() else None


@dataclass(frozen=True, slots=True)
class LakeHistory:
    """All snapshots that are there, and the parents of those that were."""

    main: int | None
    """The current snapshot of main; None: there is none yet."""
    tagged: int | None
    """Where the tag ``sluice-tiered`` is."""
    snapshots: Mapping[int, HistoryEntry]
    expired: Mapping[int, HistoryEntry] = field(default_factory=dict)
    """Snapshots that have expired, where earlier metadata files still tell of them."""

    def ancestors(self, snapshot_id: int | None) -> list[int]:
        """That snapshot and what it came from, expired ones included, as far as is known."""
        found: dict[int, None] = {}
        while snapshot_id is not None and snapshot_id not in found:
            found[snapshot_id] = None
            entry = self.entry(snapshot_id)
            snapshot_id = None if entry is None else entry.parent_id
        return list(found)

    def entry(self, snapshot_id: int | None) -> HistoryEntry | None:
        """What is known of a snapshot, expired or not."""
        if snapshot_id is None:
            return None
        return self.snapshots.get(snapshot_id) or self.expired.get(snapshot_id)

    def is_complete(self) -> bool:
        """Whether main is known back to its first snapshot."""
        return all(self.entry(one) is not None for one in self.ancestors(self.main))

    def newest_tiering_snapshot(self) -> HistoryEntry | None:
        """The newest snapshot of ours that main came from, expired or not, as far as is known."""
        entries = map(self.entry, self.ancestors(self.main))
        return next((entry for entry in entries if entry is not None and entry.is_tiering), None)

    def removed_by(self, snapshot_id: int) -> list[HistoryEntry] | None:
        """Snapshots of main that it would no longer have if it were set there, oldest first.

        Expired ones count: their rows may be there. None where main's beginning has expired, and
        with it what the two have in common.
        """
        gone = self._beyond(self.main, snapshot_id)
        return None if gone is None else [one for one in map(self.entry, gone) if one is not None]

    def added_by(self, snapshot_id: int) -> list[HistoryEntry]:
        """Snapshots that main lacks and would have if it were set there, as far as is known."""
        new = self._beyond(snapshot_id, self.main) or []
        return [one for one in map(self.entry, new) if one is not None]

    def _beyond(self, snapshot_id: int | None, other: int | None) -> list[int] | None:
        """What one came from and the other did not, oldest first."""
        chain, kept = self.ancestors(snapshot_id), set(self.ancestors(other))
        if chain and not kept.intersection(chain) and self.entry(chain[-1]) is None:
            return None
        return [one for one in reversed(chain) if one not in kept]
