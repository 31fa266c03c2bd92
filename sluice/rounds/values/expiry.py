"""Decides which snapshots of a lake table expire after a round.

Iceberg's table properties and the settings of branches and tags decide first, as in Iceberg's own
expiry. On top of them, a snapshot stays as long as somebody may still need it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass

from sluice.model import TableInfo
from sluice.rounds.values.history import HistoryEntry
from sluice.rounds.values.offsets import OFFSETS_FILE_KEY

AUTO_EXPIRE = "table.datalake.auto-expire-snapshot"
ROUND_MS_KEY = "sluice.round-ms"
"""Key in a snapshot's summary: the milliseconds from the start of its round to the lake commit."""
MAIN, TAG = "main", "sluice-tiered"
GOING_MIN, GOING_MAX = 5, 200
"""The least and the largest number of snapshots that expire together after a round."""
STAYING_PER_GOING = 10
"""Snapshots expire if there is at least one of them for so many that stay. An expiry reads the
manifest list of each snapshot that stays."""
_ROUNDS = 2
"""A snapshot stays for so many times the longest round."""
_FOREVER_MS = (1 << 63) - 1
_MAX_AGE_MS, _MAX_AGE_DEFAULT_MS = "history.expire.max-snapshot-age-ms", 5 * 24 * 3_600_000
_MIN_KEPT, _MIN_KEPT_DEFAULT = "history.expire.min-snapshots-to-keep", 1
_MAX_REF_AGE_MS = "history.expire.max-ref-age-ms"


def is_expired_after_rounds(info: TableInfo, all_tables: bool) -> bool:
    """Whether the rounds of a table expire its old lake snapshots.

    :param all_tables: the setting ``tiering.auto_expire_snapshot``.
    """
    return all_tables or info.descriptor.properties.get(AUTO_EXPIRE, "").lower() == "true"


@dataclass(frozen=True, slots=True)
class Reference:
    """A branch or a tag, with its own settings. None: those of the table."""

    snapshot_id: int
    is_branch: bool = False
    max_ref_age_ms: int | None = None
    max_snapshot_age_ms: int | None = None
    min_snapshots_to_keep: int | None = None


@dataclass(frozen=True, slots=True)
class StoredSnapshots:
    """The snapshots in one metadata file of a lake table."""

    entries: Mapping[int, HistoryEntry]
    references: Mapping[str, Reference]
    properties: Mapping[str, str]

    def ancestors(self, snapshot_id: int | None) -> Iterator[HistoryEntry]:
        """A snapshot and its ancestors, the newest first, until one has expired."""
        entry = None if snapshot_id is None else self.entries.get(snapshot_id)
        while entry is not None:
            yield entry
            entry = None if entry.parent_id is None else self.entries.get(entry.parent_id)

    def of(self, name: str) -> int | None:
        """The snapshot of a branch or tag; None if there is no such one."""
        found = self.references.get(name)
        return None if found is None else found.snapshot_id

    def offsets_files_of_only(self, going: tuple[int, ...]) -> list[str]:
        """The offsets files that are named by these snapshots and by no other."""
        named = {key: e.summary.get(OFFSETS_FILE_KEY, "") for key, e in self.entries.items()}
        found = {named.pop(key) for key in going}
        return sorted(found - {*named.values(), ""})

    def number(self, name: str, default: int) -> int:
        """A table property.

        :raises ValueError: it is not a whole number.
        """
        text = self.properties.get(name, str(default))
        try:
            return int(text)
        except ValueError:
            raise ValueError(f"table property {name}={text!r} is not a whole number") from None


@dataclass(frozen=True, slots=True)
class Expired:
    """What the expiry after a round did."""

    snapshots: int = 0
    files: int = 0
    """Files that were deleted: data, deletes, manifests, manifest lists and offsets files."""
    notes: tuple[str, ...] = ()


NOTHING_EXPIRED = Expired()


@dataclass(frozen=True, slots=True)
class ExpiryRule:
    """Chooses the snapshots that expire after one round."""

    now_ms: int
    """Epoch milliseconds."""
    round_ms: int
    """Milliseconds: the limit of this round, or what it has taken until now if that is more."""
    base: int | None
    """The snapshot that the round was planned from; None: there was none."""
    kept: frozenset[int]
    """Snapshots that stay in any case: this round's, and the registered one."""
    going_max: int = GOING_MAX
    """How many expire together."""

    def choose(self, stored: StoredSnapshots) -> tuple[int, ...]:
        """The ids of the snapshots to expire, the oldest first; none if it is not worth it yet.

        :raises ValueError: a table property is not a whole number.
        """
        staying = self._by_settings(stored) | self._in_use(stored)
        staying |= _tiering_snapshots_below(stored, staying)
        going = [entry for key, entry in stored.entries.items() if key not in staying]
        if len(going) < GOING_MIN or len(going) * STAYING_PER_GOING < len(staying):
            return ()
        going.sort(key=lambda entry: (entry.sequence_number, entry.timestamp_ms))
        return tuple(entry.snapshot_id for entry in going[: self.going_max])

    def keeps_reference(self, stored: StoredSnapshots, name: str) -> bool:
        """Whether a branch or tag stays. Sluice's tag does, however old it is."""
        reference = stored.references[name]
        entry = stored.entries.get(reference.snapshot_id)
        if name in (MAIN, TAG) or entry is None:
            return entry is not None
        age_ms = reference.max_ref_age_ms
        if age_ms is None:
            age_ms = stored.number(_MAX_REF_AGE_MS, _FOREVER_MS)
        return self.now_ms - entry.timestamp_ms <= age_ms

    def _by_settings(self, stored: StoredSnapshots) -> set[int]:
        """What Iceberg's own expiry keeps."""
        since_ms = self.now_ms - stored.number(_MAX_AGE_MS, _MAX_AGE_DEFAULT_MS)
        least = stored.number(_MIN_KEPT, _MIN_KEPT_DEFAULT)
        kept, reachable = set[int](), set[int]()
        for name, reference in stored.references.items():
            if not self.keeps_reference(stored, name):
                continue
            kept.add(reference.snapshot_id)
            reachable.add(reference.snapshot_id)
            if reference.is_branch:
                reachable.update(e.snapshot_id for e in stored.ancestors(reference.snapshot_id))
                kept |= self._of_branch(stored, reference, since_ms, least)
        unreachable = (e for key, e in stored.entries.items() if key not in reachable)
        return kept | {e.snapshot_id for e in unreachable if e.timestamp_ms >= since_ms}

    def _of_branch(
        self, stored: StoredSnapshots, branch: Reference, since_ms: int, least: int
    ) -> set[int]:
        if branch.max_snapshot_age_ms is not None:
            since_ms = self.now_ms - branch.max_snapshot_age_ms
        if branch.min_snapshots_to_keep is not None:
            least = branch.min_snapshots_to_keep
        kept = set[int]()
        for entry in stored.ancestors(branch.snapshot_id):
            if len(kept) >= least and entry.timestamp_ms < since_ms:
                break
            kept.add(entry.snapshot_id)
        return kept

    def _in_use(self, stored: StoredSnapshots) -> set[int]:
        """Snapshots that a round, or a writer or reader of about its length, may still need.

        They are younger than twice the longest round, or were main's within that time. Main's
        snapshots back to the base stay too: rounds find their base by this way.
        """
        since_ms = self.now_ms - _ROUNDS * self._longest_ms(stored)
        found = {*self.kept, *filter(None, (self.base, stored.of(TAG)))}
        found.update(e.snapshot_id for e in stored.entries.values() if e.timestamp_ms >= since_ms)
        met_base = False
        for entry in stored.ancestors(stored.of(MAIN)):
            found.add(entry.snapshot_id)
            met_base = met_base or entry.snapshot_id == self.base
            if met_base and entry.timestamp_ms <= since_ms:  # it was main's at that time
                break
        return found

    def _longest_ms(self, stored: StoredSnapshots) -> int:
        """The longest round that is known, in milliseconds."""
        texts = (e.summary.get(ROUND_MS_KEY, "") for e in stored.entries.values() if e.is_tiering)
        return max(self.round_ms, *(int(text) for text in texts if text.isdecimal()), 0)


def _tiering_snapshots_below(stored: StoredSnapshots, staying: Set[int]) -> set[int]:
    """The newest tiering snapshot from which each of these descends, and those between.

    It says which offsets the other one has. A lake that was rolled back is repaired by it.
    """
    found = set[int]()
    for one in staying:
        way = set[int]()  # without it, the next expiry would not find the tiering snapshot
        for entry in stored.ancestors(one):
            way.add(entry.snapshot_id)
            if entry.is_tiering:
                found |= way
                break
    return found
