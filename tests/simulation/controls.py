"""Faulty parts, which show that the simulation detects the damage that it looks for.

Each breaks one rule that the design relies on. A simulation with it must soon find a violation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sluice.errors import (
    LakeCommitOutcomeUnknown,
    LakeCommitRefused,
    LakeFilesChanged,
    PartitionNotExists,
)
from sluice.model import Partition, TableInfo, TablePath
from sluice.rounds.copy.parts import JoinedParts, Outcome, PartRules
from sluice.rounds.plan.bucket_repairs import GAPS_KEY, SKIPPED_KEY
from sluice.rounds.upkeep.conversion import ConvertedBucket
from sluice.rounds.values.expiry import ROUND_MS_KEY, ExpiryRule
from sluice.rounds.values.history import MAINTENANCE_KEY
from sluice.rounds.values.lake_files import (
    DataFile,
    FileContent,
    LiveFile,
    LiveFiles,
    PlannedCommit,
)
from sluice.rounds.values.types import LakePart, LakeSnapshot, Split
from tests.simulation.actors import Actor
from tests.simulation.fluss.cluster import SimCluster
from tests.simulation.fluss.network import SimAdmin, SimConnection
from tests.simulation.lake.context import LakeContext
from tests.simulation.lake.conversions import ConversionWriter, SimMaintenance
from tests.simulation.lake.lake import DriverLake, DriverTable
from tests.simulation.lake.stored_lake import SimTable
from tests.simulation.simulation import Variant
from tests.support.models.memory_writer import live_files_of

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation


class UnfencedTable(DriverTable):
    """Commits on top of the newest snapshot without checking the planned base."""

    def _validate(self, table: SimTable, base: LakeSnapshot | None) -> None:
        """Does not check the base."""


class RetriesUnknownCommits(DriverTable):
    """Repeats a commit, on the newest snapshot, when its outcome is unknown."""

    def commit(
        self, files: Sequence[DataFile], base: LakeSnapshot | None, *more: Any, **named: Any
    ) -> LakeSnapshot:
        try:
            return super().commit(files, base, *more, **named)
        except LakeCommitOutcomeUnknown:
            return super().commit(files, self.newest_tiering_snapshot(), *more, **named)


class DeletesUnknownCommits(DriverTable):
    """Deletes its files when the outcome of their commit is unknown; the commit may have landed."""

    def commit(
        self, files: Sequence[DataFile], base: LakeSnapshot | None, *more: Any, **named: Any
    ) -> LakeSnapshot:
        try:
            return super().commit(files, base, *more, **named)
        except LakeCommitOutcomeUnknown:
            self.delete_files([file.path for file in files])
            raise


class OmitsDeleteFiles(DriverTable):
    """Omits delete files from a commit."""

    def commit(
        self, files: Sequence[DataFile], base: LakeSnapshot | None, *more: Any, **named: Any
    ) -> LakeSnapshot:
        kept = [file for file in files if not file.deletes]
        return super().commit(kept, base, *more, **named)


class RecordsNoRepairs(DriverTable):
    """Omits from the summary what a user accepted as missing."""

    def commit(
        self,
        files: Sequence[DataFile],
        base: LakeSnapshot | None,
        summary: Mapping[str, str],
        *more: Any,
    ) -> LakeSnapshot:
        kept = {k: v for k, v in summary.items() if k not in (GAPS_KEY, SKIPPED_KEY)}
        return super().commit(files, base, kept, *more)


class KeepsRebuiltFiles(DriverTable):
    """Leaves the old files of a bucket that was rebuilt."""

    def commit(
        self,
        files: Sequence[DataFile],
        base: LakeSnapshot | None,
        summary: Mapping[str, str],
        replaced: Sequence[LakePart] = (),
        positions: PlannedCommit | None = None,
    ) -> LakeSnapshot:
        kept = [part for part in replaced if part.bucket is None]
        return super().commit(files, base, summary, kept, positions)


class TrustsPositions(DriverTable):
    """Commits positions without checking that their data files are still those of the table."""

    def _validate_positions(
        self, table: SimTable, files: Sequence[DataFile], positions: PlannedCommit
    ) -> None:
        """Checks nothing."""


class KeepsOldVectors(DriverTable):
    """Adds vectors beside the earlier ones of their data files."""

    def commit(
        self,
        files: Sequence[DataFile],
        base: LakeSnapshot | None,
        summary: Mapping[str, str],
        replaced: Sequence[LakePart] = (),
        positions: PlannedCommit | None = None,
    ) -> LakeSnapshot:
        if positions is not None:
            positions = replace(positions, replaced=())
        return super().commit(files, base, summary, replaced, positions)


class KeepsCompactedFiles(DriverTable):
    """Adds compacted files beside those whose rows they contain."""

    def commit(
        self,
        files: Sequence[DataFile],
        base: LakeSnapshot | None,
        summary: Mapping[str, str],
        replaced: Sequence[LakePart] = (),
        positions: PlannedCommit | None = None,
    ) -> LakeSnapshot:
        if positions is not None:
            positions = replace(positions, removed=())
        return super().commit(files, base, summary, replaced, positions)


class TrustsCompactions(DriverTable):
    """Commits compacted files without checking that others have left the old ones alone."""

    def _validate_positions(
        self, table: SimTable, files: Sequence[DataFile], positions: PlannedCommit
    ) -> None:
        if not positions.removed:
            super()._validate_positions(table, files, positions)


class LooksUpElsewhere(DriverTable):
    """Looks rows up in the files of an older snapshot than it says."""

    def live_files(self, splits: Sequence[Split]) -> LiveFiles:
        live = super().live_files(splits)
        older = self.stored.paths_before(live.snapshot_id)
        found = live_files_of(self.stored, older, None, splits)
        return replace(live, buckets=found.buckets)


class OmitsSpareDeletes(DriverTable):
    """Omits equality deletes after a commit with positions was refused."""

    _was_refused = False

    def commit(
        self, files: Sequence[DataFile], base: LakeSnapshot | None, *more: Any, **named: Any
    ) -> LakeSnapshot:
        if self._was_refused:
            files = [file for file in files if file.content is not FileContent.EQUALITY_DELETES]
        try:
            return super().commit(files, base, *more, **named)
        except LakeFilesChanged:
            self._was_refused = True
            raise


class StarvesRounds(DriverTable):
    """Does not say that a commit was refused because others have rewritten data files."""

    def commit(
        self, files: Sequence[DataFile], base: LakeSnapshot | None, *more: Any, **named: Any
    ) -> LakeSnapshot:
        try:
            return super().commit(files, base, *more, **named)
        except LakeFilesChanged as changed:
            raise LakeCommitRefused(str(changed)) from changed


class KeepsSpareDeletes(DriverTable):
    """Leaves equality deletes that no commit needs, as does its clean-up."""

    def delete_files(self, paths: Sequence[str]) -> None:
        super().delete_files([path for path in paths if not path.endswith("-deletes")])


class ExpiresTheTag(DriverTable):
    """Expires the tagged snapshot, as if the rule did not know the tag."""

    def _chosen(self, table: SimTable, rule: ExpiryRule) -> tuple[int, ...]:
        return () if table.tagged is None else (table.tagged,)


class ExpiresTooYoung(DriverTable):
    """Expires snapshots however long rounds take."""

    def _chosen(self, table: SimTable, rule: ExpiryRule) -> tuple[int, ...]:
        stored = table.stored_snapshots()
        plain = {
            key: replace(entry, summary={**entry.summary, ROUND_MS_KEY: "0"})
            for key, entry in stored.entries.items()
        }
        return replace(rule, round_ms=0).choose(replace(stored, entries=plain))


class KeepsAllParts(PartRules):
    """Commits the parts of a window that follow a gap, too."""

    def join(self, splits: Sequence[Split], outcomes: Sequence[Outcome]) -> JoinedParts:
        joined = super().join(splits, outcomes)
        if not joined.results:
            return joined
        first, *rest = joined.results
        first = replace(first, files=(*first.files, *joined.unused))
        return JoinedParts([first, *rest], joined.failures)


class UncheckedConversions(SimMaintenance):
    """Converts rows of data files without checking that these are still the table's."""

    def _conflict(
        self,
        table: SimTable,
        live: LiveFiles,
        files: Sequence[DataFile],
        gone: Set[str],
    ) -> str:
        return super()._conflict(table, live, (), gone)


class ConvertsHalf(SimMaintenance):
    """Removes all equality deletes of a bucket, also those that were not converted."""

    def _removed(self, converted: Sequence[ConvertedBucket], live: LiveFiles) -> set[str]:
        keys = {key for one in converted for key in one.keys}
        found = super()._removed(converted, live)
        for bucket in live.buckets.values():
            if not keys.isdisjoint(bucket.keys):
                found |= {key.path for key in bucket.keys}
        return found


class DeletesNewerRows(ConversionWriter):
    """Takes an equality delete for one of all data files, whatever their sequence numbers."""

    def _applies(self, number: int, file: LiveFile) -> bool:
        return True


class ConvertsNewerRows(SimMaintenance):
    """Deletes rows that are newer than the equality deletes."""

    make_writer = DeletesNewerRows


class TrustsShortLists(SimMaintenance):
    """Takes deletes for useless that apply to data files which it has not listed."""

    def _useless(self, deletes: Set[str], live: LiveFiles) -> set[str]:
        return set(deletes) - {one.path for files in live.buckets.values() for one in files.keys}


class ForgetsItsCommit(SimMaintenance):
    """Deletes the files of a conversion that was called refused, and has landed."""

    def _has_landed(self, *_: object) -> bool:
        return False


class DeletesAllOldFiles(SimMaintenance):
    """Takes all old files of maintenance for orphans."""

    def _known(self, names: Set[str]) -> Set[str]:
        return frozenset()


class TagsConversions(SimMaintenance):
    """Moves the tag to its snapshots, as rounds do."""

    def _land(self, table: SimTable, gone: Set[str], new: Set[str], write_id: str) -> None:
        before = set(table.stored_snapshots().entries)
        table.on_snapshot, check = (lambda _: None), table.on_snapshot
        super()._land(table, gone, new, write_id)
        table.on_snapshot = check
        [table.tagged] = set(table.stored_snapshots().entries) - before
        check(table)


class ClaimsConversions(SimMaintenance):
    """Commits as if it were a round."""

    def _land(self, table: SimTable, gone: Set[str], new: Set[str], write_id: str) -> None:
        ours = table.newest_tiering_snapshot()
        summary = {} if ours is None else ours.summary
        table.change_files(gone, new, "delete", {**summary, MAINTENANCE_KEY: write_id})


def _lake_of(table_class: type[DriverTable]) -> Callable[[LakeContext, Actor], DriverLake]:
    class FaultyLake(DriverLake):
        def _view(self, path: TablePath, table: SimTable) -> DriverTable:
            return table_class(self._context, self._actor, path, table)

    return FaultyLake


def _maintained_by(
    maintenance: type[SimMaintenance],
) -> Callable[[LakeContext, Actor], DriverLake]:
    class FaultyTable(DriverTable):
        maintenance_class = maintenance

    return _lake_of(FaultyTable)


def _naive_cleaner(simulation: Simulation, path: TablePath) -> Callable[[Actor], None]:
    """Removes every file that no snapshot references, including those of running rounds."""

    def body(actor: Actor) -> None:
        simulation.note("clean-up")
        table = simulation.lake.tables.get(path)
        simulation.step(actor, "stored_files")
        if table is not None:
            table.delete_files(sorted(table.unreferenced_files()))

    return body


def _idle_cleaner(simulation: Simulation, path: TablePath) -> Callable[[Actor], None]:
    """Removes nothing."""

    def body(actor: Actor) -> None:
        simulation.step(actor, f"no clean-up of {path}")

    return body


class BelievesTablets(SimAdmin):
    """Takes a partition for dropped if a tablet server does not know it."""

    def __init__(self, connection: SimConnection, cluster: SimCluster) -> None:
        super().__init__(connection, cluster)
        self._denied: set[int | None] = set()

    def list_offsets(
        self,
        path: TablePath,
        buckets: Sequence[int],
        partition_id: int | None,
        kind: str,
        *,
        table_id: int,
    ) -> dict[int, int]:
        try:
            return super().list_offsets(path, buckets, partition_id, kind, table_id=table_id)
        except PartitionNotExists:
            self._denied.add(partition_id)
            raise

    def partitions_of(self, info: TableInfo) -> list[Partition]:
        return [p for p in super().partitions_of(info) if p.partition_id not in self._denied]


CONTROLS: Mapping[str, Variant] = {
    "no fence": Variant(make_lake=_lake_of(UnfencedTable)),
    "blind repetition": Variant(make_lake=_lake_of(RetriesUnknownCommits)),
    "hasty deletion": Variant(make_lake=_lake_of(DeletesUnknownCommits)),
    "naive clean-up": Variant(cleaner=_naive_cleaner),
    "no clean-up": Variant(cleaner=_idle_cleaner),
    "trusting coordinator": Variant(trusting=True, more={"request_late": 0.2}),
    "believed tablets": Variant(make_admin=BelievesTablets),
    "no record of repairs": Variant(make_lake=_lake_of(RecordsNoRepairs)),
    "rebuilt beside": Variant(make_lake=_lake_of(KeepsRebuiltFiles), keyed=True),
    "expired tag": Variant(make_lake=_lake_of(ExpiresTheTag)),
    "young snapshots": Variant(make_lake=_lake_of(ExpiresTooYoung)),
    "parts after a gap": Variant(part_rules=KeepsAllParts),
    "unchecked positions": Variant(make_lake=_lake_of(TrustsPositions), keyed=True),
    "second vectors": Variant(make_lake=_lake_of(KeepsOldVectors), keyed=True),
    "stale look-ups": Variant(make_lake=_lake_of(LooksUpElsewhere), keyed=True),
    "no spare deletes": Variant(make_lake=_lake_of(OmitsSpareDeletes), keyed=True),
    "starved rounds": Variant(make_lake=_lake_of(StarvesRounds), keyed=True),
    "spare deletes left": Variant(make_lake=_lake_of(KeepsSpareDeletes), keyed=True),
    "old files kept": Variant(make_lake=_lake_of(KeepsCompactedFiles), keyed=True),
    "unchecked compactions": Variant(make_lake=_lake_of(TrustsCompactions), keyed=True),
    "unchecked conversions": Variant(make_lake=_maintained_by(UncheckedConversions), keyed=True),
    "half conversions": Variant(make_lake=_maintained_by(ConvertsHalf), keyed=True),
    "newer rows converted": Variant(make_lake=_maintained_by(ConvertsNewerRows), keyed=True),
    "short lists": Variant(make_lake=_maintained_by(TrustsShortLists), keyed=True),
    "forgotten conversions": Variant(
        make_lake=_maintained_by(ForgetsItsCommit), keyed=True, more={"commit_misnamed": 0.4}
    ),
    "orphans by age alone": Variant(make_lake=_maintained_by(DeletesAllOldFiles), keyed=True),
    "tagged conversions": Variant(make_lake=_maintained_by(TagsConversions), keyed=True),
    "conversions as rounds": Variant(make_lake=_maintained_by(ClaimsConversions), keyed=True),
    "no deletes": Variant(make_lake=_lake_of(OmitsDeleteFiles), keyed=True),
}
