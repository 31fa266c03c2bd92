"""The simulated lake: what is stored, and each driver's own unreliable view of it.

A commit is what Iceberg makes of it: the table's metadata is read, our newest snapshot is compared
with the planned base, and the metadata is swapped if nobody has changed it since; else all is done
again. Between any two of these somebody else may act.
"""

# ruff: noqa: ARG002  (the ports give more than a model needs)
from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field

import pyarrow as pa

from sluice.errors import LakeCommitOutcomeUnknown, LakeCommitRefused, LakeNotWritable
from sluice.model import TableBucket, TableInfo, TablePath
from sluice.rounds.clean import References, StoredFile
from sluice.rounds.history import LakeHistory
from sluice.rounds.types import DataFile, LakeSnapshot, LogRecords, Split
from sluice.testing.memory_lake import KeyedFile, MemoryLakeTable, MemoryWriter, Row
from sluice.testing.simulation.actors import Actor
from sluice.testing.simulation.faults import Faults

_COMMIT_TRIES_MAX = 4
FOREIGN = "foreign"
"""How names of other writers' files begin."""


@dataclass
class SimTable(MemoryLakeTable):
    """One lake table as it is stored."""

    owners: dict[str, TableBucket] = field(default_factory=dict)
    """The bucket whose rows a data file has; other writers' rows have none."""
    twice: set[str] = field(default_factory=set)
    """Data files that main got a second time: their rows are read twice."""
    version: int = 0
    """Of the metadata: another one after each change."""
    on_snapshot: Callable[[SimTable], None] = lambda _: None
    on_deleted: Callable[[], None] = lambda: None
    rolled_back_at: int = -1
    """How many actors there had been when a user last rolled it back."""

    @property
    def main(self) -> int | None:
        return self._main

    def holds(self, snapshot_id: int) -> bool:
        """Whether there is such a snapshot, on main or not."""
        return snapshot_id in self._nodes

    def paths(self) -> frozenset[str]:
        """Data files of main."""
        return frozenset() if self._main is None else self._nodes[self._main].paths

    def add_snapshot(
        self,
        files: Sequence[DataFile],
        summary: Mapping[str, str],
        replaced: Sequence[tuple[str, ...]],
    ) -> LakeSnapshot:
        """A commit of ours, on main as it is now; the tag moves with it."""
        kept = {path for path in self.paths() if not self._is_in(path, replaced)}
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
        """One bucket's files become one; answers whether there were two at least."""
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
        """What the deletes leave becomes one file; deletes that come later still reach it."""
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
        """Another writer adds a row of its own."""
        self._replace(set(), self._add_foreign([((FOREIGN,), 0, 0)], None), "append")

    def expire_snapshots(self, rng: random.Random) -> int:
        """Old snapshots expire, the tagged one and main excepted, and files that only they had."""
        kept = {self._main, self.tagged}
        old = [number for number in self._nodes if number not in kept]
        old = old[: rng.randint(0, len(old))]
        before = set().union(*(self._nodes[number].paths for number in old))
        for number in old:
            self.expire(number)
        if old:
            self.version += 1
        self.delete_files(sorted(before - self.referenced()[0]))
        return len(old)

    def roll_back(self, rng: random.Random, actors: int) -> bool:
        """A user sets main to one of its ancestors; answers whether there is one."""
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
    """What lies where a table lies, and stays there when it is dropped."""

    files: dict[str, list[Row]] = field(default_factory=dict)
    keyed: dict[str, KeyedFile] = field(default_factory=dict)
    owners: dict[str, TableBucket] = field(default_factory=dict)


class SimLake:
    """The catalog, and tables that are no longer in it."""

    def __init__(
        self, on_snapshot: Callable[[SimTable], None], on_deleted: Callable[[], None]
    ) -> None:
        self._on_snapshot, self._on_deleted = on_snapshot, on_deleted
        self.tables: dict[TablePath, SimTable] = {}
        self.renamed: list[SimTable] = []
        self._folders: dict[TablePath, _Folder] = {}
        self._created = 0

    def create(self, info: TableInfo) -> SimTable:
        """In the same folder as one of that name before: what that one left lies there still."""
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


@dataclass
class LakeWorld:
    """What drivers' views need of the simulation."""

    rng: random.Random
    lake: SimLake
    faults: Callable[[], Faults]
    note: Callable[[str], None]
    step: Callable[[Actor, str], None]
    send_late: Callable[[str, Callable[[], object]], None]
    on_commit: Callable[[Actor, TablePath], None]
    """Told of each commit of ours just before it lands."""


class DriverLake:
    """The Lake port of one driver."""

    where = "sim:/"

    def __init__(self, world: LakeWorld, actor: Actor) -> None:
        self._world = world
        self._actor = actor

    def load(self, path: TablePath) -> DriverTable | None:
        self._world.step(self._actor, "load")
        found = self._world.lake.tables.get(path)
        return None if found is None else self._view(path, found)

    def create(self, info: TableInfo) -> DriverTable:
        self._world.step(self._actor, "create")
        if info.path in self._world.lake.tables:
            raise LakeNotWritable(f"lake table {info.path} was created meanwhile")
        return self._view(info.path, self._world.lake.create(info))

    def _view(self, path: TablePath, table: SimTable) -> DriverTable:
        return DriverTable(self._world, self._actor, path, table)


class DriverTable:
    """The LakeTable port and the TableFiles port of one driver."""

    def __init__(self, world: LakeWorld, actor: Actor, path: TablePath, table: SimTable) -> None:
        self._world = world
        self._actor = actor
        self._path = path
        self._stored = table
        self.location = table.location
        self.uuid = table.uuid

    @property
    def stored(self) -> SimTable:
        return self._stored

    # ---- the LakeTable port ----

    def check(self, info: TableInfo) -> None:
        self._look("check")

    def newest_tiering_snapshot(self) -> LakeSnapshot | None:
        return self._look("newest_tiering_snapshot").newest_tiering_snapshot()

    def find_tiering_snapshot(self, summary: Mapping[str, str]) -> LakeSnapshot | None:
        return self._look("find_tiering_snapshot").find_tiering_snapshot(summary)

    def is_ancestor(self, snapshot_id: int) -> bool:
        return self._look("is_ancestor").is_ancestor(snapshot_id)

    def has_rows(self, partition_values: Sequence[str]) -> bool:
        return self._look("has_rows").has_rows(partition_values)

    def partitions_with_rows(
        self, partitions: Sequence[tuple[str, ...]], base: LakeSnapshot | None
    ) -> list[tuple[str, ...]]:
        return self._look("partitions_with_rows").partitions_with_rows(partitions, base)

    def history(self) -> LakeHistory:
        return self._look("history").history()

    def read_metadata_file(self, location: str, bytes_max: int) -> bytes | None:
        return self._look("read_metadata_file").read_metadata_file(location, bytes_max)

    def write_metadata_file(self, name: str, content: bytes) -> str:
        return self._look("write_metadata_file").write_metadata_file(name, content)

    def writer_factory(
        self, info: TableInfo, write_id: str, splits: Sequence[Split]
    ) -> Callable[..., DriverWriter]:
        table = self._look("writer_factory")

        def make(split: Split, task: int = 0) -> DriverWriter:
            path = f"{table.location}/{write_id}-{task}-{split.bucket}.parquet"
            return DriverWriter(self._world, self._actor, table, split, path)

        return make

    def commit(
        self,
        files: Sequence[DataFile],
        base: LakeSnapshot | None,
        summary: Mapping[str, str],
        replaced: Sequence[tuple[str, ...]] = (),
    ) -> LakeSnapshot:
        table = self._look("commit")
        missing = [file.path for file in files if file.path not in table.files]
        if missing:
            raise LakeNotWritable(f"no such file: {missing[0]}")
        for _ in range(_COMMIT_TRIES_MAX):
            seen = self._look("commit validates").version
            self._validate(table, base)
            self._step("commit swaps")
            if not self._is_there():
                raise LakeCommitRefused(f"lake table {self._path} is gone")
            if table.version == seen:
                return self._swap(files, summary, replaced)
            self._world.note("lake commit met another writer")
        raise LakeCommitRefused("others were faster each time")

    def _validate(self, table: SimTable, base: LakeSnapshot | None) -> None:
        newest = table.newest_tiering_snapshot()
        if newest != base:
            raise LakeCommitRefused(f"our newest snapshot is {newest}, planned was {base}")

    def _swap(
        self,
        files: Sequence[DataFile],
        summary: Mapping[str, str],
        replaced: Sequence[tuple[str, ...]],
    ) -> LakeSnapshot:
        """The catalog is asked to take the new metadata; it may be heard or not."""
        table, world = self._stored, self._world
        faults, roll = world.faults(), world.rng.random
        if roll() < faults.commit_refused:
            world.note("lake commit refused")
            raise LakeCommitRefused("the catalog had a conflict")
        if roll() < faults.commit_lost:
            world.note("lake commit unknown, not landed")
            raise LakeCommitOutcomeUnknown("no answer")
        if roll() < faults.commit_late:
            seen = table.version

            def arrive() -> None:
                if table.version == seen and self._is_there():
                    world.note("late lake commit landed")
                    table.add_snapshot(files, summary, replaced)

            world.note("lake commit unknown, landing late")
            world.send_late("lake commit arrived", arrive)
            raise LakeCommitOutcomeUnknown("no answer")
        world.on_commit(self._actor, self._path)
        snapshot = table.add_snapshot(files, summary, replaced)
        self._step("commit answered")
        if roll() < world.faults().commit_unknown:
            world.note("lake commit unknown, landed")
            raise LakeCommitOutcomeUnknown("no answer")
        if roll() < world.faults().commit_misnamed:
            world.note("lake commit landed and called refused")
            raise LakeCommitRefused("conflict")
        return snapshot

    def tag(self, snapshot_id: int) -> None:
        self._look("tag").tag(snapshot_id)

    def set_main(self, snapshot_id: int, expected: int | None) -> None:
        table = self._look("set_main")
        table.set_main(snapshot_id, expected)
        self._step("set_main answered")
        if self._world.rng.random() < self._world.faults().commit_unknown:
            raise LakeCommitOutcomeUnknown("no answer")

    def delete_files(self, paths: Sequence[str]) -> None:
        for path in paths:
            self._step("delete")
            self._stored.delete_files([path])

    # ---- the TableFiles port ----

    def stored_files(self) -> Iterator[StoredFile]:
        self._look("stored_files")
        found = list(self._stored.stored_files())
        self._step("stored_files answered")
        yield from found

    def references(self, names: Set[str]) -> References:
        return _SteppedReferences(self, self._stored.references(names))

    def remove(self, paths: Sequence[str]) -> dict[str, str]:
        self._step("remove")
        self.delete_files(paths)
        if paths:
            self._world.note("clean-up removed files")
        return {}

    # ---- inside ----

    def _step(self, name: str) -> None:
        self._world.step(self._actor, name)

    def _is_there(self) -> bool:
        return self._world.lake.tables.get(self._path) is self._stored

    def _look(self, name: str) -> SimTable:
        """:raises LakeNotWritable: catalog or storage do not answer; or the table is another."""
        self._step(name)
        if not self._is_there():
            raise LakeNotWritable(f"lake table {self._path} is gone, or another of that name")
        if self._world.rng.random() < self._world.faults().lake_read:
            self._world.note("lake read failed")
            raise LakeNotWritable(f"{name}: the catalog does not answer")
        return self._stored


class _SteppedReferences:
    """The References port: others act between two looks."""

    def __init__(self, table: DriverTable, references: References) -> None:
        self._table, self._references = table, references

    def read(self) -> Set[str]:
        self._table._look("references")
        return self._references.read()


class DriverWriter(MemoryWriter):
    """The SplitWriter port: its file appears when it is closed."""

    def __init__(
        self, world: LakeWorld, actor: Actor, table: SimTable, split: Split, path: str
    ) -> None:
        super().__init__(table, split, path)
        self._world, self._actor = world, actor
        self._owners = table.owners

    def write(self, records: LogRecords) -> None:
        self._world.step(self._actor, "write")
        super().write(records)

    def upsert(self, rows: pa.Table) -> None:
        self._world.step(self._actor, "write")
        super().upsert(rows)

    def close(self) -> tuple[DataFile, ...]:
        self._world.step(self._actor, "close")
        files = super().close()
        for file in files:
            self._owners[file.path] = self._split.bucket
        self._world.step(self._actor, "closed")
        return files

    def abort(self) -> None:
        self._world.step(self._actor, "abort")
        super().abort()
