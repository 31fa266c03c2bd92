"""Finds the positions of keys in data files, by reading their key columns. Runs on executors.

Memory: the keys, the key columns of one row group, and the positions, up to a limit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sluice.lake.iceberg.deletes.column_bounds import KeyBounds
from sluice.lake.iceberg.deletes.live_rows import names_by_id
from sluice.lake.parquet.reader import LakeReader
from sluice.rounds.copy.key_hashes import KeyColumns
from sluice.rounds.copy.key_runs import KeySet, find_runs
from sluice.rounds.values.lake_files import LiveFile

_BATCH_ROWS = 128 * 1024
_UNKNOWN = (None, None)
"""No limits of a column in a row group."""


@dataclass(slots=True)
class FoundPositions:
    """Where keys are."""

    by_file: dict[str, np.ndarray] = field(default_factory=dict)
    """Ascending positions (int64) by path; only files with a key."""
    files_read: int = 0
    bytes_read: int = 0
    """Bytes of the key columns of these files."""

    @property
    def count(self) -> int:
        return sum(len(positions) for positions in self.by_file.values())


class PositionFinder:
    """Looks up a set of keys in data files. Used by one thread."""

    def __init__(self, keys: Sequence[pa.Table], schema: pa.Schema, reader: LakeReader) -> None:
        """:param keys: distinct keys, in the lake's types.
        :param schema: of the key columns, with Iceberg's field ids.
        :raises ValueError: a key column is too long for one Arrow array.
        :raises CorruptRecord: a key has a null.
        """
        self._schema, self._reader = schema, reader
        [batch, *more] = pa.concat_tables(keys).combine_chunks().to_batches()
        if more:  # Arrow does not join texts of more than 2 GiB
            raise ValueError("the changed keys have columns of more than 2 GiB")
        key = KeyColumns(batch.schema, schema.names)
        columns = key.of(batch)
        runs = find_runs(key, [columns], [key.hashes(columns)], seed=0)
        self.keys = KeySet(key, runs)
        self._bounds = KeyBounds(columns)

    def may_have(self, file: LiveFile) -> bool:
        """Whether the bounds of a file allow that it has one of the keys."""
        return self._bounds.may_be_in(file.bounds)

    def find(self, files: Sequence[LiveFile], count_max: int) -> FoundPositions:
        """The positions of the keys in these files.

        :param count_max: positions; a few more are found if there are more, and no file after that.
        :raises OSError, ValueError, ImportError: a file cannot be opened.
        :raises LakeFileUnreadable: a file is damaged, or has a row without a key.
        :raises LakeTableMismatch: a file lacks a key column.
        """
        found = FoundPositions()
        for file, source in self._reader.open_all(files):
            ahead = not self._reader.is_local(file.path)
            with (
                self._reader.reading("data file", file.path),
                pq.ParquetFile(source, pre_buffer=ahead) as opened,
            ):
                positions = [*self._positions(file, opened)]
            if positions:
                found.by_file[file.path] = np.concatenate(positions)
            found.files_read += 1
            found.bytes_read += file.key_bytes
            if found.count > count_max:
                break
        return found

    def _positions(self, file: LiveFile, opened: pq.ParquetFile) -> Iterator[np.ndarray]:
        names = names_by_id(self._schema, opened.schema_arrow, file.path)
        start = 0
        for group in range(opened.num_row_groups):
            rows = opened.metadata.row_group(group).num_rows
            if opened.num_row_groups == 1 or self._may_be_in_group(opened, group, names):
                yield from self._positions_in_group(opened, group, names, start)
            start += rows

    def _positions_in_group(
        self, opened: pq.ParquetFile, group: int, names: Sequence[str], start: int
    ) -> Iterator[np.ndarray]:
        batches = opened.iter_batches(
            _BATCH_ROWS, row_groups=[group], columns=list(names), use_threads=False
        )
        for batch in batches:
            columns = [
                batch.column(name).cast(one.type)
                for name, one in zip(names, self._schema, strict=True)
            ]
            rows = pa.RecordBatch.from_arrays(columns, schema=self._schema)
            hits = np.flatnonzero(self.keys.has(rows))
            if len(hits):
                yield hits + start
            start += rows.num_rows

    def _may_be_in_group(self, opened: pq.ParquetFile, group: int, names: Sequence[str]) -> bool:
        metadata = opened.metadata.row_group(group)
        found = {}
        for place in range(metadata.num_columns):
            column = metadata.column(place)
            path = column.path_in_schema  # of a.b, and of b in the struct a, it is the same
            if path in found:
                found[path] = _UNKNOWN
            elif path in names:
                found[path] = _raw_limits(column)
        types = [opened.schema_arrow.field(name).type for name in names]
        limits = [
            found.get(name, _UNKNOWN) if _is_comparable(kind, one.type) else _UNKNOWN
            for name, kind, one in zip(names, types, self._schema, strict=True)
        ]
        return self._bounds.may_be_between([low for low, _ in limits], [high for _, high in limits])


def _raw_limits(column: pq.ColumnChunkMetaData) -> tuple[Any, Any]:
    """Not as Python's values, which have no dates after the year 9999."""
    if not column.is_stats_set or not column.statistics.has_min_max:
        return _UNKNOWN
    return column.statistics.min_raw, column.statistics.max_raw


def _is_comparable(found: pa.DataType, key: pa.DataType) -> bool:
    """Whether the raw values of a file's column mean the same as those of the keys."""
    if pa.types.is_integer(key):
        return bool(pa.types.is_signed_integer(found))
    if pa.types.is_decimal(key):
        return bool(pa.types.is_decimal(found) and found.scale == key.scale)
    if pa.types.is_temporal(key):
        return bool(found.id == key.id) and getattr(found, "unit", "") == getattr(key, "unit", "")
    return True
