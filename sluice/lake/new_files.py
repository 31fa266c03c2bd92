"""Describes new files to Iceberg: partitions, and statistics from the files' footers."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from sluice.lake.java import java_list
from sluice.rounds.types import DataFile

_THREADS = 8


@dataclass(frozen=True, slots=True)
class NewFiles:
    """Iceberg's objects for the files of one commit."""

    data: list[Any] = field(default_factory=list)
    deletes: list[Any] = field(default_factory=list)


def partition_of(gateway: Any, spec: Any, values: Sequence[str]) -> Any:
    """A partition of a spec from one text for each of its fields."""
    builder = gateway.jvm.org.apache.iceberg.DataFiles.builder(spec)
    builder = builder.withPath("unused").withFormat("parquet")
    builder = builder.withFileSizeInBytes(0).withRecordCount(0)
    return builder.withPartitionValues(java_list(gateway, values)).build().partition()


def to_iceberg_files(gateway: Any, table: Any, files: Sequence[DataFile]) -> NewFiles:
    """Makes Iceberg's objects for data files; reads the statistics in their footers in parallel.

    Java throws if a footer cannot be read.
    """
    if not files:
        return NewFiles()
    iceberg = gateway.jvm.org.apache.iceberg
    config = iceberg.MetricsConfig.forTable(table)
    io, spec = table.io(), table.spec()
    key_ids = list(table.schema().identifierFieldIds())
    ids = gateway.new_array(gateway.jvm.int, len(key_ids))
    for i, key_id in enumerate(sorted(key_ids)):
        ids[i] = key_id

    def one(file: DataFile) -> Any:
        source = io.newInputFile(file.path, file.size_bytes)
        metrics = iceberg.parquet.ParquetUtil.fileMetrics(source, config)
        if file.deletes:
            builder = iceberg.FileMetadata.deleteFileBuilder(spec).ofEqualityDeletes(ids)
            builder = builder.withPartition(partition_of(gateway, spec, file.partition))
        else:
            builder = iceberg.DataFiles.builder(spec)
            builder = builder.withPartitionValues(java_list(gateway, file.partition))
        return builder.withInputFile(source).withFormat("parquet").withMetrics(metrics).build()

    with ThreadPoolExecutor(min(_THREADS, len(files))) as pool:
        described = list(pool.map(one, files))
    found = NewFiles()
    for file, entry in zip(files, described, strict=True):
        (found.deletes if file.deletes else found.data).append(entry)
    return found
