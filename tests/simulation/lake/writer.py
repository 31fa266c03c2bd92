"""A driver's writer of files in the simulated lake: other actors run between its steps."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from sluice.rounds.values.lake_files import DataFile, WrittenCompaction, WrittenDeletes
from sluice.rounds.values.limits import TimeLeft
from sluice.rounds.values.types import LogRecords, Split
from tests.simulation.actors import Actor
from tests.simulation.lake.context import LakeContext
from tests.simulation.lake.stored_lake import SimTable
from tests.support.models.memory_writer import KeyedFile, MemoryWriter


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
