"""The simulated lake as it is stored: its tables, and what other writers do to them at once."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from sluice.model import TableBucket, TableInfo, TablePath
from sluice.rounds.lake_files import DataFile, PositionCommit
from sluice.rounds.types import LakePart, LakeSnapshot
from sluice.testing.memory_lake import MemoryLakeTable
from sluice.testing.memory_writer import KeyedFile, Row

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
    rolled_back_at: int = -1
    """The number of actors started before the last rollback; -1 without a rollback."""

    @property
    def main(self) -> int | None:
        return self._main

    def holds(self, snapshot_id: int) -> bool:
        """Whether the snapshot exists, on main or not."""
        return snapshot_id in self._nodes

    def add_snapshot(
        self,
        files: Sequence[DataFile],
        summary: Mapping[str, str],
        replaced: Sequence[LakePart],
        positions: PositionCommit | None = None,
    ) -> LakeSnapshot:
        """Adds a snapshot of Sluice's on top of main, and moves the tag to it."""
        kept = self.kept_paths(replaced, positions)
        self.version += 1
        self.twice |= kept & {file.path for file in files}
        snapshot = self._put(frozenset(kept | {file.path for file in files}), summary)
        self.tagged = snapshot.snapshot_id
        self.on_snapshot(self)
        return snapshot

    def delete_files(self, paths: Sequence[str]) -> None:
        super().delete_files(paths)
        self.on_deleted()

    def tag(self, snapshot_id: int) -> None:
        super().tag(snapshot_id)
        self.version += 1

    def set_main(self, snapshot_id: int, expected: int | None) -> None:
        super().set_main(snapshot_id, expected)
        self.version += 1
        self.on_snapshot(self)

    # ---- other writers ----

    def compact(self, rng: random.Random) -> bool:
        """Compacts one bucket's files into one; returns False if it has fewer than two."""
        by_owner: dict[TableBucket, list[str]] = {}
        for path in sorted(self.paths(), key=list(self.files).index):
            if path in self.owners:
                by_owner.setdefault(self.owners[path], []).append(path)
        several = [owner for owner, paths in by_owner.items() if len(paths) > 1]
        if not several:
            return False
        owner = rng.choice(several)
        old = by_owner[owner]
        if old[0] in self.keyed:
            self._compact_keyed(owner, old)
            return True
        rows = [row for path in old for row in self.files[path]]
        self._replace(set(old), self._add_foreign(rows, owner), "replace")
        return True

    def _compact_keyed(self, owner: TableBucket, old: Sequence[str]) -> None:
        """Compacts files with their deletes into one file, which later deletes still apply to."""
        partition = self.keyed[old[0]].partition
        rows = [
            (key, row)
            for (values, key), row in self.keyed_rows().items()
            if (*values, str(row["__bucket"])) == partition
        ]
        offsets = [(partition[:-1], owner.bucket, row["__offset"]) for _, row in rows]
        path = self._add_foreign(offsets, owner)
        self.keyed[path] = KeyedFile(partition, tuple(rows))
        assert self._main is not None
        self._added[path] = self._nodes[self._main].snapshot.sequence_number
        self._replace(set(old), path, "replace")

    def append_foreign(self) -> None:
        """Another writer adds one row."""
        self._replace(set(), self._add_foreign([((FOREIGN,), 0, 0)], None), "append")

    def expire_snapshots(self, rng: random.Random) -> int:
        """Expires old snapshots except the tagged one and main, and deletes their own files."""
        kept = {self._main, self.tagged}
        old = [number for number in self._nodes if number not in kept]
        old = old[: rng.randint(0, len(old))]
        before = set().union(*(self._nodes[number].paths for number in old))
        if old:
            self.expire(*old)
            self.version += 1
        self.delete_files(sorted(before - self.referenced()[0]))
        return len(old)

    def roll_back(self, rng: random.Random, actors: int) -> bool:
        """A user sets main to one of its ancestors; returns False if there is none."""
        older = self.snapshots()[1:]
        if not older:
            return False
        self.rolled_back_at = actors
        self.version += 1
        self.roll_back_to(rng.choice(older).snapshot_id)
        self.on_snapshot(self)
        return True

    def _add_foreign(self, rows: list[Row], owner: TableBucket | None) -> str:
        path = f"{self.location}/{FOREIGN}-{len(self.files)}-{self.version}.parquet"
        self.files[path] = rows
        if owner is not None:
            self.owners[path] = owner
        return path

    def _replace(self, old: set[str], new: str, operation: str) -> None:
        self.version += 1
        self._put((self.paths() - old) | {new}, {"operation": operation})
        self.on_snapshot(self)


@dataclass
class _Folder:
    """The files in a table's location, which stay when the table is dropped."""

    files: dict[str, list[Row]] = field(default_factory=dict)
    keyed: dict[str, KeyedFile] = field(default_factory=dict)
    owners: dict[str, TableBucket] = field(default_factory=dict)


class SimLake:
    """The catalog, and tables that were removed from it."""

    def __init__(
        self, on_snapshot: Callable[[SimTable], None], on_deleted: Callable[[], None]
    ) -> None:
        self._on_snapshot, self._on_deleted = on_snapshot, on_deleted
        self.tables: dict[TablePath, SimTable] = {}
        self.renamed: list[SimTable] = []
        self._folders: dict[TablePath, _Folder] = {}
        self._created = 0

    def create(self, info: TableInfo) -> SimTable:
        """Creates a table in the folder of an earlier one of that name, with that one's files."""
        self._created += 1
        folder = self._folders.setdefault(info.path, _Folder())
        self.tables[info.path] = SimTable(
            f"mem:/{info.path}",
            f"{self._created:08x}-0000-4000-8000-000000000000",
            folder.files,
            folder.keyed,
            owners=folder.owners,
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
