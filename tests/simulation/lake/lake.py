"""Each driver's own unreliable access to the simulated lake.

A commit works as in Iceberg. The driver reads the table's metadata, compares Sluice's newest
snapshot with the planned base, and swaps the metadata if nobody has changed it since; otherwise it
starts again. Other actors may run between any two of these steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set

from sluice.errors import (
    LakeCommitOutcomeUnknown,
    LakeCommitRefused,
    LakeFilesChanged,
    LakeNotWritable,
)
from sluice.iceberg_rules.layout import Layout
from sluice.model import TableInfo, TablePath
from sluice.rounds.upkeep.orphans import References, StoredFile
from sluice.rounds.values.expiry import NOTHING_EXPIRED, Expired, ExpiryRule
from sluice.rounds.values.history import LakeHistory
from sluice.rounds.values.lake_files import (
    DataFile,
    FileContent,
    LiveFiles,
    PlannedCommit,
)
from sluice.rounds.values.types import LakePart, LakeSnapshot, Split
from tests.simulation.actors import Actor, Killed
from tests.simulation.lake.context import LakeContext
from tests.simulation.lake.conversions import SimMaintenance
from tests.simulation.lake.stored_lake import SimTable
from tests.simulation.lake.writer import DriverWriter

_COMMIT_TRIES_MAX = 4
LIFE_MS = 120_000
"""A process of maintenance commits nothing if it is older."""


class DriverLake:
    """Implements Lake for one driver."""

    where = "sim:/"

    def __init__(self, context: LakeContext, actor: Actor) -> None:
        self._context = context
        self._actor = actor
        self.options: Mapping[str, str] = {}

    def load(self, path: TablePath) -> DriverTable | None:
        self._context.step(self._actor, "load")
        found = self._context.lake.tables.get(path)
        return None if found is None else self._view(path, found)

    def create(self, info: TableInfo, layout: Layout = Layout.CLEAN) -> DriverTable:
        self._context.step(self._actor, "create")
        if info.path in self._context.lake.tables:
            raise LakeNotWritable(f"lake table {info.path} was created by another writer")
        return self._view(info.path, self._context.lake.create(info, layout))

    def _view(self, path: TablePath, table: SimTable) -> DriverTable:
        return DriverTable(self._context, self._actor, path, table)


class DriverTable:
    """Implements LakeTable, TableFiles and MaintainedTable for one driver."""

    maintenance_class: type[SimMaintenance] = SimMaintenance

    def __init__(
        self, context: LakeContext, actor: Actor, path: TablePath, table: SimTable
    ) -> None:
        self._context = context
        self._actor = actor
        self._path = path
        self._stored = table
        self.location = table.location
        self.uuid = table.uuid
        self._loaded_ms = table.now_ms()
        self._maintenance: SimMaintenance | None = None

    @property
    def stored(self) -> SimTable:
        return self._stored

    # ---- the LakeTable port ----

    @property
    def layout(self) -> Layout:
        return self.stored.layout

    def add_missing_columns(self, info: TableInfo, *, as_read: bool = False) -> Sequence[str]:
        return self.look("add_missing_columns").add_missing_columns(info, as_read=as_read)

    def check_layout(self, info: TableInfo) -> None:
        self.look("check_layout").check_layout(info)

    def newest_tiering_snapshot(self, *, as_read: bool = False) -> LakeSnapshot | None:
        return self.look("newest_tiering_snapshot").newest_tiering_snapshot()

    def find_tiering_snapshot(
        self, summary: Mapping[str, str], since: int = 0
    ) -> LakeSnapshot | None:
        return self.look("find_tiering_snapshot").find_tiering_snapshot(summary, since)

    def is_ancestor(self, snapshot_id: int) -> bool:
        return self.look("is_ancestor").is_ancestor(snapshot_id)

    def live_files(self, splits: Sequence[Split]) -> LiveFiles:
        live = self.look("live_files").live_files(splits)
        self.listed(live)
        return live

    def listed(self, live: LiveFiles) -> None:
        """Called when files are listed, and none is read yet."""
        self._context.after_listing(self._path, live)

    def has_rows(self, partition_values: Sequence[str]) -> bool:
        return self.look("has_rows").has_rows(partition_values)

    def partitions_with_rows(
        self, partitions: Sequence[tuple[str, ...]], base: LakeSnapshot | None
    ) -> list[tuple[str, ...]]:
        return self.look("partitions_with_rows").partitions_with_rows(partitions, base)

    def history(self, registered_id: int | None = None) -> LakeHistory:
        return self.look("history").history(registered_id)

    def read_metadata_file(self, location: str, bytes_max: int) -> bytes | None:
        return self.look("read_metadata_file").read_metadata_file(location, bytes_max)

    def write_metadata_file(self, name: str, content: bytes) -> str:
        return self.look("write_metadata_file").write_metadata_file(name, content)

    def writer_factory(self, write_id: str, splits: Sequence[Split]) -> Callable[..., DriverWriter]:
        table = self.look("writer_factory")

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
        table = self.look("commit")
        missing = [file.path for file in files if file.path not in table.files]
        if missing:
            raise LakeNotWritable(f"no such file: {missing[0]}")
        self.committing(files)
        for _ in range(_COMMIT_TRIES_MAX):
            seen = self.look("commit validates").version
            self._validate(table, base)
            table.check_format(files)
            if positions is not None:
                self._validate_positions(table, files, positions)
            self.step("commit swaps")
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
        table = self.look("rewrite")
        missing = [file.path for file in files if file.path not in table.files]
        if missing:
            raise LakeNotWritable(f"no such file: {missing[0]}")
        seen = self.look("rewrite validates").version
        self._validate(table, base)
        if gone := set(planned.removed) - table.paths():
            raise LakeFilesChanged(f"missing data files: {sorted(gone)}")

        def land() -> None:
            self.note("log table compacted")
            new = {file.path for file in files}
            table.change_files(set(planned.removed), new, "replace", summary)

        self.ask_once("rewrite", seen, land)

    def ask_once(
        self,
        what: str,
        seen: int,
        land: Callable[[], None],
        before: Callable[[], None] = lambda: None,
    ) -> None:
        """Asks the catalog once to replace a version of the metadata.

        The request or its answer may be lost, or come late.

        :param before: called last, when no other actor may run any more.
        :raises LakeCommitRefused, LakeCommitOutcomeUnknown: as from a catalog.
        """
        table, context = self._stored, self._context
        self.step(f"{what} swaps")
        if not self._is_there() or table.version != seen:
            raise LakeCommitRefused("another writer was faster")
        before()
        faults, roll = context.faults(), context.rng.random
        if roll() < faults.commit_lost:
            raise LakeCommitOutcomeUnknown("no answer")
        if roll() < faults.commit_late:
            context.send_late(
                f"{what} arrived",
                lambda: land() if table.version == seen and self._is_there() else None,
            )
            raise LakeCommitOutcomeUnknown("no answer")
        land()
        self.step(f"{what} answered")
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
        self.step("commit answered")
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
        self.look("tag").tag(snapshot_id)

    def expire_by(self, rule: ExpiryRule) -> Expired:
        decided_ms = self._context.lake.now_ms()
        for _ in range(_COMMIT_TRIES_MAX):
            table = self.look("expire reads")
            seen, going = table.version, self._chosen(table, rule)
            if not going:
                return NOTHING_EXPIRED
            self.step("expire swaps")
            if not self._is_there():
                raise LakeCommitRefused(f"lake table {self._path} is gone")
            if table.version == seen:
                return self._expire(going, decided_ms)
            self._context.note("expiry met another writer")
        raise LakeCommitRefused("others were faster each time")

    def _chosen(self, table: SimTable, rule: ExpiryRule) -> tuple[int, ...]:
        return rule.choose(table.stored_snapshots())

    def _expire(self, going: Sequence[int], decided_ms: int) -> Expired:
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
        context.on_expiry(self._actor, self._path, going, decided_ms)
        files = table.expired_files(going)
        context.note("snapshots expired after a round")
        self.step("expired")
        if roll() < context.faults().commit_unknown:
            context.note("expiry unknown, landed")
            raise LakeCommitOutcomeUnknown("no answer")
        for path in files:
            self.step("expired file")
            table.delete_files([path])
        return Expired(len(going), len(files))

    def set_main(self, snapshot_id: int, expected: int | None) -> None:
        table = self.look("set_main")
        table.set_main(snapshot_id, expected)
        self.step("set_main answered")
        if self._context.rng.random() < self._context.faults().commit_unknown:
            raise LakeCommitOutcomeUnknown("no answer")

    def delete_files(self, paths: Sequence[str]) -> None:
        for path in paths:
            self.step("delete")
            self._stored.delete_files([path])

    # ---- the TableFiles port ----

    def stored_files(self) -> Iterator[StoredFile]:
        self.look("stored_files")
        found = list(self._stored.stored_files())
        self.step("stored_files answered")
        yield from found

    def references(self, names: Set[str]) -> References:
        return _SteppedReferences(self, self._stored.references(names))

    def remove(self, paths: Sequence[str]) -> dict[str, str]:
        self.step("remove")
        self.delete_files(paths)
        if paths:
            self._context.note("clean-up removed files")
        return {}

    # ---- the MaintainedTable port ----

    def maintenance(self) -> SimMaintenance:
        if self._maintenance is None:
            self._maintenance = self.maintenance_class(self, self._context.rng.getrandbits)
        return self._maintenance

    def committing(self, files: Sequence[DataFile]) -> None:
        """Called before a commit is validated: others may be faster."""
        self._context.before_commit(self._path, files)

    def check_age(self) -> None:
        """:raises Killed: the process is so old that its files may be deleted as orphans."""
        if self._stored.now_ms() - self._loaded_ms > LIFE_MS:
            self.note("process ended before a late commit")
            raise Killed

    # ---- inside ----

    def step(self, name: str) -> None:
        self._context.step(self._actor, name)

    def note(self, kind: str) -> None:
        """Counts an event."""
        self._context.note(kind)

    def _fault(self, kind: str) -> None:
        self._context.note(kind)
        self._actor.lake_faults.add(kind)

    def _is_there(self) -> bool:
        return self._context.lake.tables.get(self._path) is self._stored

    def look(self, name: str) -> SimTable:
        """Reads the stored table.

        :raises LakeNotWritable: catalog or storage do not respond, or the table was replaced.
        """
        self.step(name)
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
        self._table.look("references")
        return self._references.read()
