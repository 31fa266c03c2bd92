"""Commits by hand to a table with a primary key, each with marks that no round would write."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sluice.lake.iceberg.catalog.java import iterate
from sluice.lake.iceberg.deletes.deletion_vectors import DeletionVector, write_vectors
from tests.support.lake.position_files import MARKS


@dataclass(frozen=True)
class DamagedLake:
    """One table, by Iceberg's own API.

    :param table: Iceberg's table object.
    """

    gateway: Any
    table: Any

    def tasks(self) -> list[Any]:
        """Data files of main with the deletes that apply to each; those with most rows first."""
        self.table.refresh()
        tasks = self.table.newScan().planFiles()
        try:
            found = [*iterate(tasks)]
        finally:
            tasks.close()
        return sorted(found, key=lambda task: -int(task.file().recordCount()))

    def add_position_file(self, task: Any, rows: Mapping[str, Sequence[int]]) -> None:
        """A position delete file in the folder and the partition of a task's data file."""
        path = self._beside(task, "damage.parquet")
        names = [name for name, positions in rows.items() for _ in positions]
        positions = [position for several in rows.values() for position in several]
        pq.write_table(pa.table([names, positions], MARKS), _local(path))
        builder = self._builder(task, path).withFormat("parquet").withRecordCount(len(names))
        self.table.newRowDelta().addDeletes(builder.build()).commit()

    def add_vector(self, task: Any, data_file: str, rows: Sequence[int]) -> str:
        """A deletion vector, whatever there is already; returns the path of its Puffin file."""
        path = self._beside(task, "damage.puffin")
        written = write_vectors({data_file: DeletionVector.of(np.array(rows))})
        _local(path).write_bytes(written.content)
        [vector] = written.vectors
        builder = self._builder(task, path).withFormat("puffin").withRecordCount(len(rows))
        builder = builder.withReferencedDataFile(data_file).withContentOffset(vector.offset)
        deletes = builder.withContentSizeInBytes(vector.size_bytes).build()
        planned = self.table.currentSnapshot().snapshotId()  # or Iceberg sees the earlier vector
        self.table.newRowDelta().addDeletes(deletes).validateFromSnapshot(planned).commit()
        return path

    def remove_deletes(self, task: Any) -> None:
        """Removes the marks of a data file."""
        delta = self.table.newRowDelta()
        for one in iterate(task.deletes()):
            delta.removeDeletes(one)
        delta.commit()

    def _beside(self, task: Any, name: str) -> str:
        folder = str(task.file().location()).rpartition("/")[0]
        return f"{folder}/{uuid.uuid4().hex}-{name}"

    def _builder(self, task: Any, path: str) -> Any:
        metadata = self.gateway.jvm.org.apache.iceberg.FileMetadata
        builder = metadata.deleteFileBuilder(task.spec()).withPartition(task.file().partition())
        builder = builder.ofPositionDeletes().withPath(path)
        return builder.withFileSizeInBytes(_local(path).stat().st_size)


def _local(path: str) -> Path:
    return Path(path.removeprefix("file:"))


def spelled_otherwise(path: str) -> str:
    """The same file in another spelling, which Iceberg takes for another one."""
    return path.removeprefix("file:") if path.startswith("file:") else f"file:{path}"
