"""Finds the positions of keys in data files, by reading their key columns. Runs on executors.

Memory: the keys, and the key columns of one row group.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sluice.errors import LakeTableMismatch
from sluice.lake.column_bounds import KeyBounds
from sluice.lake.lake_reader import LakeReader
from sluice.rounds.key_hashes import KeyColumns
from sluice.rounds.key_runs import KeySet, find_runs
from sluice.rounds.lake_files import LiveFile

_BATCH_ROWS = 128 * 1024
_FIELD_ID = b"PARQUET:field_id"


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
        """
        self._schema, self._reader = schema, reader
        self._ids = [_id_of(one) for one in schema]
        whole = pa.concat_tables(keys).combine_chunks()
        batch = whole.to_batches()[0]
        key = KeyColumns(batch.schema, schema.names)
        columns = key.of(batch)
        runs = find_runs(key, [columns], [key.hashes(columns)], seed=0)
        self._keys = KeySet(key, runs)
        self._bounds = KeyBounds(columns)

    def may_have(self, file: LiveFile) -> bool:
        """Whether the bounds of a file allow that it has one of the keys."""
        return self._bounds.may_be_in(file.bounds)

    def find(self, files: Sequence[LiveFile]) -> FoundPositions:
        """The positions of the keys in these files.

        :raises OSError, pyarrow.ArrowException, ValueError, ImportError: a file cannot be read.
        :raises LakeTableMismatch: a file lacks a key column.
        """
        found = FoundPositions()
        for file, source in self._reader.open_all(files):
            with pq.ParquetFile(source, pre_buffer=not self._reader.is_local(file.path)) as opened:
                positions = [*self._positions(file, opened)]
            if positions:
                found.by_file[file.path] = np.concatenate(positions)
            found.files_read += 1
            found.bytes_read += file.key_bytes
        return found

    def _positions(self, file: LiveFile, opened: pq.ParquetFile) -> Iterator[np.ndarray]:
        names = self._names_in(file, opened)
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
            hits = np.flatnonzero(self._keys.has(rows))
            if len(hits):
                yield hits + start
            start += rows.num_rows

    def _names_in(self, file: LiveFile, opened: pq.ParquetFile) -> list[str]:
        """The names that the key columns have in a file: they may have been renamed since."""
        by_id = {_id_of(one): one.name for one in opened.schema_arrow}
        if by_id.keys() == {None}:  # written without ids: Iceberg then goes by names, too
            by_id = {
                one: name
                for one, name in zip(self._ids, self._schema.names, strict=True)
                if name in opened.schema_arrow.names
            }
        missing = [
            name
            for one, name in zip(self._ids, self._schema.names, strict=True)
            if one not in by_id
        ]
        if missing:
            raise LakeTableMismatch(f"data file {file.path} lacks key columns {missing}")
        return [by_id[one] for one in self._ids]

    def _may_be_in_group(self, opened: pq.ParquetFile, group: int, names: Sequence[str]) -> bool:
        metadata = opened.metadata.row_group(group)
        found = {}
        for place in range(metadata.num_columns):
            column = metadata.column(place)
            if column.path_in_schema in names and column.is_stats_set:
                statistics = column.statistics
                if statistics.has_min_max:
                    found[column.path_in_schema] = (statistics.min, statistics.max)
        limits = [found.get(name, (None, None)) for name in names]
        return self._bounds.may_be_between([low for low, _ in limits], [high for _, high in limits])


def _id_of(column: pa.Field) -> int | None:
    text = (column.metadata or {}).get(_FIELD_ID)
    return None if text is None else int(text)
