"""The simulated lake as it is stored: its tables, and what other writers do to them at once."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from sluice.iceberg_rules.layout import Layout
from sluice.model import LOG_OFFSET, TableBucket, TableInfo, TablePath
from sluice.rounds.upkeep.orphans import StoredFile
from sluice.rounds.values.lake_files import DataFile, PlannedCommit
from sluice.rounds.values.types import LakePart, LakeSnapshot
from tests.support.models.memory_lake import MemoryLakeTable
from tests.support.models.memory_writer import BUCKET, KeyedFile, Row

_NO_PROPERTIES: Mapping[str, str] = MappingProxyType({})
FOREIGN = "foreign"
"""The name prefix of other writers' files."""


@dataclass
class SimTable(MemoryLakeTable):
    """The stored state of one lake table."""

    owners: dict[str, TableBucket] = field(default_factory=dict)
    """The bucket of each data file; other writers' files have none."""
    twice: set[str] = field(default_factory=set)
    """Data files that were added to main twice, so readers see their rows twice."""
    version: int = 0
    """The version of the metadata, which every change replaces."""
    on_snapshot: Callable[[SimTable], None] = lambda _: None
    on_deleted: Callable[[], None] = lambda: None
    written_ms: dict[str, int] = field(default_factory=dict)
    """When files of maintenance were written, epoch milliseconds."""
    rolled_back_at: int = -1
    """The number of actors started before the last rollback; -1 without a rollback."""
    disturbed: int = 0
    """How often something happened that refuses a round: all but rewrites and foreign rows."""
    _foreign_files: int = 0

    @property
    def main(self) -> int | None:
        return self._main

    @property
    def main_number(self) -> int:
        """The sequence number of main; 0 without a snapshot."""
        return 0 if self._main is None else self._nodes[self._main].snapshot.sequence_number

    def paths_before(self, snapshot_id: int | None) -> frozenset[str]:
        """The files of the snapshot's parent; none if it has none."""
        node = self._nodes.get(snapshot_id or -1)
        return frozenset() if node is None else self.paths_at(node.parent)

    def made_ms(self, snapshot_id: int) -> int:
        """When a snapshot was committed, epoch milliseconds."""
        return self._nodes[snapshot_id].made_ms

    def took_ms(self) -> list[int]:
        """How long the rounds took whose snapshots exist, as far as these say."""
        texts = (node.snapshot.summary.get("sluice.round-ms") for node in self._nodes.values())
        return [int(text) for text in texts if text is not None]

    def holds(self, snapshot_id: int) -> bool:
        """Whether the snapshot exists, on main or not."""
        return snapshot_id in self._nodes

    def add_snapshot(
        self,
        files: Sequence[DataFile],
        summary: Mapping[str, str],
        replaced: Sequence[LakePart],
        positions: PlannedCommit | None = None,
    ) -> LakeSnapshot:
        """Adds a snapshot of Sluice's on top of main, and moves the tag to it."""
        kept = self.kept_paths(replaced, positions)
        self.version += 1
        self.disturbed += 1
        self.twice |= kept & {file.path for file in files}
        snapshot = self._put(frozenset(kept | {file.path for file in files}), summary)
        self.tagged = snapshot.snapshot_id
        self.on_snapshot(self)
        return snapshot

    def delete_files(self, paths: Sequence[str]) -> None:
        super().delete_files(paths)
        self.on_deleted()

    def stored_files(self) -> Iterator[StoredFile]:
        for file in super().stored_files():
            yield replace(file, modified_ms=self.written_ms.get(file.path))

    def tag(self, snapshot_id: int) -> None:
        super().tag(snapshot_id)
        self.version += 1

    def set_main(self, snapshot_id: int, expected: int | None) -> None:
        super().set_main(snapshot_id, expected)
        self.version += 1
        self.disturbed += 1
        self.on_snapshot(self)

    # ---- other writers ----

    def compact(self, rng: random.Random) -> bool:
        """Compacts one bucket's files into one; returns False if it has fewer than two.

        Of a clean log table, those of one partition.
        """
        by_owner: dict[TableBucket, list[str]] = {}
        for path in sorted(self.paths(), key=list(self.files).index):
            if path in self.owners:
                shares = self.layout is Layout.CLEAN and path not in self.keyed
                owner = replace(self.owners[path], bucket=0) if shares else self.owners[path]
                by_owner.setdefault(owner, []).append(path)
        several = [owner for owner, paths in by_owner.items() if len(paths) > 1]
        if not several:
            return False
        owner = rng.choice(several)
        old = by_owner[owner]
        if old[0] in self.keyed:
            self._compact_keyed(owner, old)
            return True
        rows = [row for path in old for row in self.files[path]]
        self.change_files(set(old), {self.add_foreign(rows, owner)}, "replace")
        return True

    def _compact_keyed(self, owner: TableBucket, old: Sequence[str]) -> None:
        """Compacts files with their deletes into one file, which later deletes still apply to."""
        partition = self.keyed[old[0]].partition
        rows = [
            (key, row)
            for (values, key), row in self.keyed_rows().items()
            if (*values, str(row[BUCKET])) == partition
        ]
        offsets = [(partition[:-1], owner.bucket, row[LOG_OFFSET]) for _, row in rows]
        path = self.add_foreign(offsets, owner, KeyedFile(partition, tuple(rows)), self.main_number)
        self.change_files(set(old), {path}, "replace")

    def append_foreign(self) -> None:
        """Another writer adds one row."""
        self.change_files(set(), {self.add_foreign([((FOREIGN,), 0, 0)], None)}, "append")

    def expire_snapshots(self, rng: random.Random) -> int:
        """Expires old snapshots, and deletes their own files; returns how many."""
        old = self.old_snapshots()
        old = old[: rng.randint(0, len(old))]
        self.delete_files(self.expired_files(old))
        return len(old)

    def old_snapshots(self) -> list[int]:
        """The snapshots that may expire, oldest first: all but the tagged one and main."""
        kept = {self._main, self.tagged}
        return [number for number in self._nodes if number not in kept]

    def expired_files(self, old: Sequence[int]) -> list[str]:
        """Expires snapshots; returns the files that no other snapshot references."""
        before = set().union(*(self._nodes[number].paths for number in old))
        if old:
            base = self.newest_tiering_snapshot()
            self.expire(*old)
            self.version += 1
            self.disturbed += base != self.newest_tiering_snapshot()
        return sorted(before - self.referenced()[0])

    def upgrade(self) -> None:
        """Somebody upgrades the table to the format that has deletion vectors."""
        self.as_vectors = True
        self.version += 1
        self.disturbed += 1

    def roll_back(self, rng: random.Random, actors: int) -> bool:
        """A user sets main to one of its ancestors; returns False if there is none.

        Not to one that came from a tiering snapshot that has expired: a driver that was planned
        before the first tiering snapshot would take it for a table without any. Rounds that expire
        snapshots keep it.
        """
        older = [one for one in self.snapshots()[1:] if self._has_base(one.snapshot_id)]
        if not older:
            return False
        self.rolled_back_at = actors
        self.version += 1
        self.disturbed += 1
        self.roll_back_to(rng.choice(older).snapshot_id)
        self.on_snapshot(self)
        return True

    def _has_base(self, snapshot_id: int) -> bool:
        """Whether the snapshot's newest tiering ancestor still exists, or it surely has none."""
        history = replace(self.whole_history(), main=snapshot_id)
        newest = history.newest_tiering_snapshot()
        return history.is_complete() if newest is None else self.holds(newest.snapshot_id)

    def add_foreign(
        self,
        rows: list[Row],
        owner: TableBucket | None,
        keyed: KeyedFile | None = None,
        number: int | None = None,
    ) -> str:
        """Another writer writes a file, which no snapshot references yet.

        :param number: the sequence number that its commit gives to it. None: the commit's own.
        """
        self._foreign_files += 1
        path = f"{self.location}/{FOREIGN}-{self.uuid[:8]}-{self._foreign_files}.parquet"
        self.files[path] = rows
        if owner is not None:
            self.owners[path] = owner
        if keyed is not None:
            self.keyed[path] = keyed
        if number is not None:
            self._added[path] = number
        return path

    def change_files(
        self,
        old: Set[str],
        new: Set[str],
        operation: str,
        summary: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Another writer commits. Vectors of data files that it removes go with them."""
        kept = self.paths() - old
        keyed = {path: self.keyed[path] for path in kept & self.keyed.keys()}
        kept -= {path for path, one in keyed.items() if one.vector and one.marks.keys() <= old}
        self.version += 1
        self._put(kept | new, {**summary, "operation": operation})
        self.on_snapshot(self)


@dataclass
class _Folder:
    """The files in a table's location, which stay when the table is dropped."""

    files: dict[str, list[Row]] = field(default_factory=dict)
    keyed: dict[str, KeyedFile] = field(default_factory=dict)
    owners: dict[str, TableBucket] = field(default_factory=dict)
    written_ms: dict[str, int] = field(default_factory=dict)


class SimLake:
    """The catalog, and tables that were removed from it."""

    def __init__(
        self,
        on_snapshot: Callable[[SimTable], None],
        on_deleted: Callable[[], None],
        *,
        as_vectors: bool = False,
        properties: Mapping[str, str] = _NO_PROPERTIES,
        now_ms: Callable[[], int] = lambda: 0,
    ) -> None:
        """:param as_vectors: whether new tables have deletion vectors.
        :param properties: of new tables. :param now_ms: the clock of commits.
        """
        self._properties, self.now_ms = properties, now_ms
        self._on_snapshot, self._on_deleted = on_snapshot, on_deleted
        self._as_vectors = as_vectors
        self.tables: dict[TablePath, SimTable] = {}
        self.renamed: list[SimTable] = []
        self._folders: dict[TablePath, _Folder] = {}
        self._created = 0

    def create(self, info: TableInfo, layout: Layout = Layout.CLEAN) -> SimTable:
        """Creates a table in the folder of an earlier one of that name, with that one's files."""
        self._created += 1
        folder = self._folders.setdefault(info.path, _Folder())
        self.tables[info.path] = SimTable(
            f"mem:/{info.path}",
            f"{self._created:08x}-0000-4000-8000-000000000000",
            folder.files,
            folder.keyed,
            layout=layout,
            as_vectors=self._as_vectors,
            properties=dict(self._properties),
            now_ms=self.now_ms,
            owners=folder.owners,
            written_ms=folder.written_ms,
            on_snapshot=self._on_snapshot,
            on_deleted=self._on_deleted,
        )
        return self.tables[info.path]

    def drop(self, path: TablePath, *, rename: bool) -> None:
        table = self.tables.pop(path)
        if rename:
            self.renamed.append(table)

    def all(self) -> list[SimTable]:
        return [*self.tables.values(), *self.renamed]
