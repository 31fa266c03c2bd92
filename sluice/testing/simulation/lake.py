"""Each driver's own unreliable access to the simulated lake.

A commit works as in Iceberg. The driver reads the table's metadata, compares Sluice's newest
snapshot with the planned base, and swaps the metadata if nobody has changed it since; otherwise it
starts again. Other actors may run between any two of these steps.
"""

# ruff: noqa: ARG002  (the ports give more than a model needs)
from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

import pyarrow as pa

from sluice.errors import (
    LakeCommitOutcomeUnknown,
    LakeCommitRefused,
    LakeFilesChanged,
    LakeNotWritable,
)
from sluice.model import TableInfo, TablePath
from sluice.rounds.clean import References, StoredFile
from sluice.rounds.expiry import NOTHING_EXPIRED, Expired, ExpiryRule
from sluice.rounds.history import LakeHistory
from sluice.rounds.lake_files import (
    DataFile,
    FileContent,
    LiveFiles,
    PlannedCommit,
    WrittenCompaction,
    WrittenDeletes,
)
from sluice.rounds.limits import TimeLeft
from sluice.rounds.types import LakePart, LakeSnapshot, LogRecords, Split
from sluice.testing.memory_writer import KeyedFile, MemoryWriter
from sluice.testing.simulation.actors import Actor
from sluice.testing.simulation.faults import Faults
from sluice.testing.simulation.stored_lake import SimLake, SimTable

_COMMIT_TRIES_MAX = 4


@dataclass
class LakeContext:
    """The parts of the simulation that drivers' lakes use."""

    rng: random.Random
    lake: SimLake
    faults: Callable[[], Faults]
    note: Callable[[str], None]
    step: Callable[[Actor, str], None]
    send_late: Callable[[str, Callable[[], object]], None]
    on_commit: Callable[[Actor, TablePath], None]
    """Called just before each commit of Sluice's lands."""
    on_expiry: Callable[[Actor, TablePath, Sequence[int]], None]
    """Called just before snapshots expire after a round."""
    before_commit: Callable[[TablePath, Sequence[DataFile]], None] = lambda *_: None
    """Called before a commit of Sluice's is validated: others may be faster."""
    after_listing: Callable[[TablePath, LiveFiles], None] = lambda *_: None
    """Called when a round has listed live files, and has read none of them yet."""


class DriverLake:
    """Implements Lake for one driver."""

    where = "sim:/"

    def __init__(self, context: LakeContext, actor: Actor) -> None:
        self._context = context
        self._actor = actor

    def load(self, path: TablePath) -> DriverTable | None:
        self._context.step(self._actor, "load")
        found = self._context.lake.tables.get(path)
        return None if found is None else self._view(path, found)

    def create(self, info: TableInfo) -> DriverTable:
        self._context.step(self._actor, "create")
        if info.path in self._context.lake.tables:
            raise LakeNotWritable(f"lake table {info.path} was created by another writer")
        return self._view(info.path, self._context.lake.create(info))

    def _view(self, path: TablePath, table: SimTable) -> DriverTable:
        return DriverTable(self._context, self._actor, path, table)


class DriverTable:
    """Implements LakeTable and TableFiles for one driver."""

    def __init__(
        self, context: LakeContext, actor: Actor, path: TablePath, table: SimTable
    ) -> None:
        self._context = context
        self._actor = actor
        self._path = path
        self._stored = table
        self.location = table.location
        self.uuid = table.uuid

    @property
    def stored(self) -> SimTable:
        return self._stored

    # ---- the LakeTable port ----

    def add_missing_columns(self, info: TableInfo) -> None:
        self._look("add_missing_columns")

    def newest_tiering_snapshot(self) -> LakeSnapshot | None:
        return self._look("newest_tiering_snapshot").newest_tiering_snapshot()

    def find_tiering_snapshot(
        self, summary: Mapping[str, str], since: int = 0
    ) -> LakeSnapshot | None:
        return self._look("find_tiering_snapshot").find_tiering_snapshot(summary, since)

    def is_ancestor(self, snapshot_id: int) -> bool:
        return self._look("is_ancestor").is_ancestor(snapshot_id)

    def live_files(self, splits: Sequence[Split]) -> LiveFiles:
        live = self._look("live_files").live_files(splits)
        self._context.after_listing(self._path, live)
        return live

    def has_rows(self, partition_values: Sequence[str]) -> bool:
        return self._look("has_rows").has_rows(partition_values)

    def partitions_with_rows(
        self, partitions: Sequence[tuple[str, ...]], base: LakeSnapshot | None
    ) -> list[tuple[str, ...]]:
        return self._look("partitions_with_rows").partitions_with_rows(partitions, base)

    def history(self, registered_id: int | None = None) -> LakeHistory:
        return self._look("history").history(registered_id)

    def read_metadata_file(self, location: str, bytes_max: int) -> bytes | None:
        return self._look("read_metadata_file").read_metadata_file(location, bytes_max)

    def write_metadata_file(self, name: str, content: bytes) -> str:
        return self._look("write_metadata_file").write_metadata_file(name, content)

    def writer_factory(self, write_id: str, splits: Sequence[Split]) -> Callable[..., DriverWriter]:
        table = self._look("writer_factory")

        def make(split: Split, task: int = 0) -> DriverWriter:
            name = f"{write_id}-{task}-{split.bucket}{split.file_suffix}.parquet"
            path = f"{table.location}/{name}"
            return DriverWriter(self._context, self._actor, table, split, path)

        return make

    def commit(
        self,
        files: Sequence[DataFile],
        base: LakeSnapshot | None,
        summary: Mapping[str, str],
        replaced: Sequence[LakePart] = (),
        positions: PlannedCommit | None = None,
    ) -> LakeSnapshot:
        table = self._look("commit")
        missing = [file.path for file in files if file.path not in table.files]
        if missing:
            raise LakeNotWritable(f"no such file: {missing[0]}")
        self._context.before_commit(self._path, files)
        for _ in range(_COMMIT_TRIES_MAX):
            seen = self._look("commit validates").version
            self._validate(table, base)
            table.check_format(files)
            if positions is not None:
                self._validate_positions(table, files, positions)
            self._step("commit swaps")
            if not self._is_there():
                raise LakeCommitRefused(f"lake table {self._path} is gone")
            if table.version == seen:
                return self._swap(files, summary, replaced, positions)
            self._context.note("lake commit met another writer")
        self._actor.lake_faults.add("others were faster")
        raise LakeCommitRefused("others were faster each time")

    def rewrite(
        self,
        files: Sequence[DataFile],
        base: LakeSnapshot | None,
        summary: Mapping[str, str],
        planned: PlannedCommit,
    ) -> None:
        """Asks the catalog once. The answer may be lost, or come late, as that of a commit."""
        table = self._look("rewrite")
        missing = [file.path for file in files if file.path not in table.files]
        if missing:
            raise LakeNotWritable(f"no such file: {missing[0]}")
        seen = self._look("rewrite validates").version
        self._validate(table, base)
        if gone := set(planned.removed) - table.paths():
            raise LakeFilesChanged(f"missing data files: {sorted(gone)}")
        self._step("rewrite swaps")
        if not self._is_there() or table.version != seen:
            raise LakeCommitRefused("another writer was faster")
        faults, roll = self._context.faults(), self._context.rng.random

        def land() -> None:
            self._context.note("log table compacted")
            new = {file.path for file in files}
            table.change_files(set(planned.removed), new, "replace", summary)

        if roll() < faults.commit_lost:
            raise LakeCommitOutcomeUnknown("no answer")
        if roll() < faults.commit_late:
            self._context.send_late(
                "rewrite arrived",
                lambda: land() if table.version == seen and self._is_there() else None,
            )
            raise LakeCommitOutcomeUnknown("no answer")
        land()
        self._step("rewrite answered")
        if roll() < faults.commit_unknown:
            raise LakeCommitOutcomeUnknown("no answer")
        if roll() < faults.commit_misnamed:
            raise LakeCommitRefused("conflict")

    def _validate(self, table: SimTable, base: LakeSnapshot | None) -> None:
        newest = table.newest_tiering_snapshot()
        if newest != base:
            raise LakeCommitRefused(f"our newest snapshot is {newest}, planned was {base}")

    def _validate_positions(
        self, table: SimTable, files: Sequence[DataFile], positions: PlannedCommit
    ) -> None:
        try:
            table.check_positions(files, positions)
        except LakeFilesChanged:
            self._context.note("lake commit met rewritten data files")
            raise

    def _swap(
        self,
        files: Sequence[DataFile],
        summary: Mapping[str, str],
        replaced: Sequence[LakePart],
        positions: PlannedCommit | None,
    ) -> LakeSnapshot:
        """Requests the catalog to accept the new metadata; request or response may be lost."""
        table, context = self._stored, self._context
        faults, roll = context.faults(), context.rng.random
        if roll() < faults.commit_refused:
            self._fault("lake commit refused")
            raise LakeCommitRefused("the catalog had a conflict")
        if roll() < faults.commit_lost:
            context.note("lake commit unknown, not landed")
            raise LakeCommitOutcomeUnknown("no answer")
        if roll() < faults.commit_late:
            seen = table.version

            def arrive() -> None:
                if table.version == seen and self._is_there():
                    context.note("late lake commit landed")
                    self._add_snapshot(files, summary, replaced, positions)

            context.note("lake commit unknown, landing late")
            context.send_late("lake commit arrived", arrive)
            raise LakeCommitOutcomeUnknown("no answer")
        context.on_commit(self._actor, self._path)
        snapshot = self._add_snapshot(files, summary, replaced, positions)
        self._step("commit answered")
        if roll() < context.faults().commit_unknown:
            context.note("lake commit unknown, landed")
            raise LakeCommitOutcomeUnknown("no answer")
        if roll() < context.faults().commit_misnamed:
            self._fault("lake commit landed and called refused")
            # Iceberg validates again, and may find its own files to be in the way.
            raise LakeFilesChanged("conflict") if positions else LakeCommitRefused("conflict")
        return snapshot

    def _add_snapshot(
        self,
        files: Sequence[DataFile],
        summary: Mapping[str, str],
        replaced: Sequence[LakePart],
        positions: PlannedCommit | None,
    ) -> LakeSnapshot:
        """Lands a commit, and counts how it deletes rows."""
        note, contents = self._context.note, {file.content for file in files}
        by_key = FileContent.EQUALITY_DELETES in contents
        is_marked = not contents.isdisjoint(
            (FileContent.POSITION_DELETES, FileContent.DELETION_VECTORS)
        )
        if is_marked or (positions is not None and not positions.removed and not by_key):
            note("commit by position and equality" if by_key else "commit by position")
        elif by_key:
            note("commit by equality")
        if positions is not None and positions.removed:
            note("compaction committed")
        if positions is not None and positions.replaced:
            note("vectors replaced" if self._stored.as_vectors else "marks merged")
        return self._stored.add_snapshot(files, summary, replaced, positions)

    def tag(self, snapshot_id: int) -> None:
        self._look("tag").tag(snapshot_id)

    def expire_by(self, rule: ExpiryRule) -> Expired:
        for _ in range(_COMMIT_TRIES_MAX):
            table = self._look("expire reads")
            seen, going = table.version, self._chosen(table, rule)
            if not going:
                return NOTHING_EXPIRED
            self._step("expire swaps")
            if not self._is_there():
                raise LakeCommitRefused(f"lake table {self._path} is gone")
            if table.version == seen:
                return self._expire(going)
            self._context.note("expiry met another writer")
        raise LakeCommitRefused("others were faster each time")

    def _chosen(self, table: SimTable, rule: ExpiryRule) -> tuple[int, ...]:
        return rule.choose(table.stored_snapshots())

    def _expire(self, going: Sequence[int]) -> Expired:
        """Requests the catalog to expire snapshots; request or response may be lost."""
        table, context = self._stored, self._context
        faults, roll = context.faults(), context.rng.random
        if roll() < faults.commit_refused:
            raise LakeCommitRefused("the catalog had a conflict")
        if roll() < faults.commit_late:
            seen = table.version

            def arrive() -> None:
                if table.version == seen and self._is_there():
                    table.expired_files(going)

            context.send_late("late expiry arrived", arrive)
            raise LakeCommitOutcomeUnknown("no answer")
        context.on_expiry(self._actor, self._path, going)
        files = table.expired_files(going)
        context.note("snapshots expired after a round")
        self._step("expired")
        if roll() < context.faults().commit_unknown:
            context.note("expiry unknown, landed")
            raise LakeCommitOutcomeUnknown("no answer")
        for path in files:
            self._step("expired file")
            table.delete_files([path])
        return Expired(len(going), len(files))

    def set_main(self, snapshot_id: int, expected: int | None) -> None:
        table = self._look("set_main")
        table.set_main(snapshot_id, expected)
        self._step("set_main answered")
        if self._context.rng.random() < self._context.faults().commit_unknown:
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
            self._context.note("clean-up removed files")
        return {}

    # ---- inside ----

    def _step(self, name: str) -> None:
        self._context.step(self._actor, name)

    def _fault(self, kind: str) -> None:
        self._context.note(kind)
        self._actor.lake_faults.add(kind)

    def _is_there(self) -> bool:
        return self._context.lake.tables.get(self._path) is self._stored

    def _look(self, name: str) -> SimTable:
        """Reads the stored table.

        :raises LakeNotWritable: catalog or storage do not respond, or the table was replaced.
        """
        self._step(name)
        if not self._is_there():
            raise LakeNotWritable(f"lake table {self._path} is gone, or another of that name")
        if self._context.rng.random() < self._context.faults().lake_read:
            self._fault("lake read failed")
            raise LakeNotWritable(f"{name}: the catalog does not answer")
        return self._stored


class _SteppedReferences:
    """Implements References; other actors may run between two calls."""

    def __init__(self, table: DriverTable, references: References) -> None:
        self._table, self._references = table, references

    def read(self) -> Set[str]:
        self._table._look("references")
        return self._references.read()


class DriverWriter(MemoryWriter):
    """Implements SplitWriter; its file appears when it is closed."""

    def __init__(
        self, context: LakeContext, actor: Actor, table: SimTable, split: Split, path: str
    ) -> None:
        super().__init__(table, split, path)
        self._context, self._actor = context, actor
        self._owners = table.owners

    def write(self, records: LogRecords) -> None:
        self._context.step(self._actor, "write")
        super().write(records)

    def upsert(self, rows: pa.Table) -> None:
        self._context.step(self._actor, "write")
        super().upsert(rows)

    def close(self) -> tuple[DataFile, ...]:
        self._context.step(self._actor, "close")
        files = super().close()
        for file in files:
            self._owners[file.path] = self._split.bucket
        self._context.step(self._actor, "closed")
        return files

    def compact(self, own: Sequence[DataFile], time_left: TimeLeft) -> WrittenCompaction:
        self._context.step(self._actor, "compact")
        written = super().compact(own, time_left)
        for file in written.files:
            self._owners[file.path] = self._split.bucket
        if written.removed:
            self._context.note("bucket compacted")
        elif written.why_not:
            self._context.note("compaction left out")
        self._context.step(self._actor, "compacted")
        return written

    def close_deletes(self) -> WrittenDeletes:
        deleted = super().close_deletes()
        for file in (*deleted.files, *deleted.spare):
            self._owners[file.path] = self._split.bucket
        return deleted

    def _read(self, path: str) -> KeyedFile:
        self._context.step(self._actor, "look up")
        return super()._read(path)

    def abort(self) -> None:
        self._context.step(self._actor, "abort")
        super().abort()
