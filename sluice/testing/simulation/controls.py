"""Faulty parts, which show that the simulation sees what it is there to see.

Each breaks one rule that the design relies on; a simulation with it has to find the damage soon.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from sluice.errors import LakeCommitOutcomeUnknown
from sluice.model import TablePath
from sluice.rounds.types import DataFile, LakeSnapshot
from sluice.testing.simulation.actors import Actor
from sluice.testing.simulation.lake import DriverLake, DriverTable, LakeWorld, SimTable
from sluice.testing.simulation.simulation import Variant

if TYPE_CHECKING:
    from sluice.testing.simulation.simulation import Simulation


class UnfencedTable(DriverTable):
    """Commits on whatever is the newest snapshot."""

    def _validate(self, table: SimTable, base: LakeSnapshot | None) -> None:
        """No look at the base."""


class BlindTable(DriverTable):
    """Sends a commit again, on the newest snapshot, when its outcome is unknown."""

    def commit(
        self,
        files: Sequence[DataFile],
        base: LakeSnapshot | None,
        summary: Mapping[str, str],
        replaced: Sequence[tuple[str, ...]] = (),
    ) -> LakeSnapshot:
        try:
            return super().commit(files, base, summary, replaced)
        except LakeCommitOutcomeUnknown:
            return super().commit(files, self.newest_tiering_snapshot(), summary, replaced)


class HastyTable(DriverTable):
    """Deletes its files when the outcome of their commit is unknown."""

    def commit(
        self,
        files: Sequence[DataFile],
        base: LakeSnapshot | None,
        summary: Mapping[str, str],
        replaced: Sequence[tuple[str, ...]] = (),
    ) -> LakeSnapshot:
        try:
            return super().commit(files, base, summary, replaced)
        except LakeCommitOutcomeUnknown:
            self.delete_files([file.path for file in files])
            raise


class ForgetfulTable(DriverTable):
    """Leaves the files of deletes out of a commit."""

    def commit(
        self,
        files: Sequence[DataFile],
        base: LakeSnapshot | None,
        summary: Mapping[str, str],
        replaced: Sequence[tuple[str, ...]] = (),
    ) -> LakeSnapshot:
        kept = [file for file in files if not file.deletes]
        return super().commit(kept, base, summary, replaced)


def _lake_of(table_class: type[DriverTable]) -> Callable[[LakeWorld, Actor], DriverLake]:
    class FaultyLake(DriverLake):
        def _view(self, path: TablePath, table: SimTable) -> DriverTable:
            return table_class(self._world, self._actor, path, table)

    return FaultyLake


def _naive_cleaner(simulation: Simulation, path: TablePath) -> Callable[[Actor], None]:
    """Removes whatever no snapshot references."""

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


CONTROLS: Mapping[str, Variant] = {
    "no fence": Variant(make_lake=_lake_of(UnfencedTable)),
    "blind repetition": Variant(make_lake=_lake_of(BlindTable)),
    "hasty deletion": Variant(make_lake=_lake_of(HastyTable)),
    "naive clean-up": Variant(cleaner=_naive_cleaner),
    "no clean-up": Variant(cleaner=_idle_cleaner),
    "trusting coordinator": Variant(trusting=True),
    "no deletes": Variant(make_lake=_lake_of(ForgetfulTable), keyed=True),
}
