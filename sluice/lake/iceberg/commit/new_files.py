"""Describes new files to Iceberg: partitions, and statistics from the files' footers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from sluice.lake.iceberg.catalog.loaded_table import LoadedTable
from sluice.lake.iceberg.commit.position_checks import position_files
from sluice.lake.iceberg.snapshots.part_files import partition_of
from sluice.rounds.values.lake_files import DataFile, FileContent, PlannedCommit
from sluice.rounds.values.types import LakePart

_THREADS = 8
_BATCH_FILES = 64
"""Files whose footers are read before it is looked whether keys are due."""
_POSITIONS = (FileContent.POSITION_DELETES, FileContent.DELETION_VECTORS)


@dataclass(frozen=True, slots=True)
class NewFiles:
    """Iceberg's objects for the files of one commit."""

    data: list[Any] = field(default_factory=list)
    deletes: list[Any] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class NewCommit:
    """What one commit adds and removes."""

    files: Sequence[DataFile]
    new: NewFiles
    """Iceberg's objects for the files."""
    summary: Mapping[str, str]
    replaced: Sequence[LakePart]
    positions: PlannedCommit | None

    @property
    def partitions(self) -> list[tuple[str, ...]]:
        """The partitions whose rows it removes."""
        return [part.partition_values for part in self.replaced if part.bucket is None]

    @property
    def buckets(self) -> list[LakePart]:
        """The buckets whose rows it removes."""
        return [part for part in self.replaced if part.bucket is not None]

    @property
    def method(self) -> str:
        """Iceberg's method of the update: an append; an overwrite to delete a partition's rows; a
        row delta for keys and buckets.
        """
        if self.new.deletes or self.buckets or self.positions is not None:
            return "newRowDelta"
        return "newOverwrite" if self.partitions else "newAppend"


def to_iceberg_files(
    gateway: Any, loaded: LoadedTable, files: Sequence[DataFile], spec: Any
) -> NewFiles:
    """Makes Iceberg's objects for data files; reads the statistics in their footers in parallel.

    Keys that are due are renewed before each batch of footers. Java throws if a footer cannot be
    read.

    :param spec: the partition spec by which the files were written.
    :raises LakeTableMismatch: another table has the name by now.
    """
    if not files:
        return NewFiles()
    iceberg = gateway.jvm.org.apache.iceberg
    table = loaded.java
    config = iceberg.MetricsConfig.forTable(table)
    key_ids = list(table.schema().identifierFieldIds())
    ids = gateway.new_array(gateway.jvm.int, len(key_ids))
    for i, key_id in enumerate(sorted(key_ids)):
        ids[i] = key_id

    def one(io: Any, file: DataFile) -> Any:
        source = io.newInputFile(file.path, file.size_bytes)
        metrics = iceberg.parquet.ParquetUtil.fileMetrics(source, config)
        if file.deletes:
            builder = iceberg.FileMetadata.deleteFileBuilder(spec).ofEqualityDeletes(ids)
        else:
            builder = iceberg.DataFiles.builder(spec)
        builder = builder.withPartition(partition_of(gateway, spec, file.partition))
        return builder.withInputFile(source).withFormat("parquet").withMetrics(metrics).build()

    of_positions = [file for file in files if file.content in _POSITIONS]
    others = [file for file in files if file.content not in _POSITIONS]
    found = NewFiles()
    if others:
        with ThreadPoolExecutor(min(_THREADS, len(others))) as pool:
            for start in range(0, len(others), _BATCH_FILES):
                batch = others[start : start + _BATCH_FILES]
                loaded.renew()
                described = pool.map(partial(one, loaded.java.io()), batch)
                for file, entry in zip(batch, described, strict=True):
                    (found.deletes if file.deletes else found.data).append(entry)
    found.deletes.extend(position_files(gateway, table, of_positions))
    return found
