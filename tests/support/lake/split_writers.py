"""Factories of a split's writer without a catalog."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from sluice.iceberg_rules.layout import Layout, part_fields
from sluice.iceberg_rules.matched_schema import LakeSide, match
from sluice.lake.iceberg.schema import schema_json
from sluice.lake.iceberg.write.split_writer import BucketPlace, ParquetWriterFactory
from sluice.lake.parquet.writer import WriteOptions
from sluice.lake.storage.file_systems import FileSystems
from sluice.model import TableInfo
from sluice.rounds.values.types import Split


def writer_factory(
    info: TableInfo,
    splits: Sequence[Split],
    folder: Path | str,
    options: WriteOptions,
    *,
    layout: Layout = Layout.CLEAN,
    files: FileSystems | None = None,
) -> ParquetWriterFactory:
    """A factory whose files of all splits are in one folder."""
    fields = part_fields(info, layout)
    places = {
        one.bucket: BucketPlace(
            str(folder), fields.partition(one.partition_values, one.bucket.bucket)
        )
        for one in splits
    }
    schema = schema_json(info, layout)
    columns = match(info, LakeSide(schema)).columns
    text = json.dumps(schema)
    return ParquetWriterFactory(text, columns, places, "w1", options, files or FileSystems())
