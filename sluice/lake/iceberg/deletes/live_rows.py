"""Reads the live rows of data files, in the lake's columns and types. Runs on executors.

A row is dead if its position is marked as deleted, or if an equality delete that is newer than its
file has its key. Memory: the dead positions of these files, the keys of the equality deletes, and
one batch of rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sluice.errors import LakeTableMismatch
from sluice.lake.iceberg.deletes.earlier_marks import Positions, read_earlier_marks
from sluice.lake.parquet.reader import LakeReader
from sluice.rounds.copy.key_hashes import KeyColumns
from sluice.rounds.copy.key_runs import KeySet, find_runs
from sluice.rounds.values.lake_files import BucketFiles, LiveFile, StoredKeys

_BATCH_ROWS = 64 * 1024
_FIELD_ID = b"PARQUET:field_id"
ROW_ID, LAST_UPDATED = "_row_id", "_last_updated_sequence_number"
LINEAGE = (
    pa.field(ROW_ID, pa.int64(), True, {_FIELD_ID: "2147483540"}),
    pa.field(LAST_UPDATED, pa.int64(), True, {_FIELD_ID: "2147483539"}),
)
"""Columns that a file has if its rows come from other files, with the ids that Iceberg reserves
(table specification of format version 3, row lineage)."""


@dataclass(slots=True)
class ReadCounts:
    """What was read."""

    rows: int = 0
    dead_rows: int = 0


class DeadRows:
    """Which rows of some data files are dead. Used by one thread."""

    def __init__(
        self, positions: Positions, deletes: EqualityDeletes | None, changed: KeySet | None = None
    ) -> None:
        """:param changed: keys whose rows are dead in all files, because the round changes them."""
        self._positions, self._deletes, self._changed = positions, deletes, changed

    def of(self, file: LiveFile, start: int, rows: pa.RecordBatch) -> np.ndarray | None:
        """The dead rows of a batch as a bool array; None if there are none.

        :param start: the position of the first row.
        """
        dead = np.zeros(rows.num_rows, bool)
        if (found := self._positions.get(file.path)) is not None:
            first, last = np.searchsorted(found, (start, start + rows.num_rows))
            dead[found[first:last] - start] = True
        if self._changed is not None:
            dead |= self._changed.has(rows)
        if self._deletes is not None:
            dead |= self._deletes.has(file, rows)
        return dead if dead.any() else None


class EqualityDeletes:
    """The keys of equality deletes, each with the newest commit that deletes it. Immutable."""

    def __init__(self, files: Sequence[StoredKeys], schema: pa.Schema, reader: LakeReader) -> None:
        """:param files: not empty.
        :param schema: of the key columns, with Iceberg's field ids.
        :raises OSError, ValueError, ImportError: a file cannot be opened.
        :raises LakeFileUnreadable: a file is damaged.
        :raises LakeTableMismatch: a file lacks a key column.
        """
        tables = []
        for one in files:
            source = reader.open(one.path, one.size_bytes)
            with reader.reading("equality delete file", one.path), pq.ParquetFile(source) as opened:
                names = names_by_id(schema, opened.schema_arrow, one.path)
                columns = opened.read(columns=names, use_threads=False).select(names)
                tables.append(columns.rename_columns(schema.names).cast(schema))
        key = KeyColumns(schema, schema.names)
        batches = [one.combine_chunks().to_batches() for one in tables]
        columns = [key.of(batch) for [batch] in batches]
        runs = find_runs(key, columns, [key.hashes(one) for one in columns], seed=0)
        self._keys = KeySet(key, runs)
        numbers = np.repeat([one.sequence for one in files], [one.num_rows for one in tables])
        # the files are in the order of their sequence numbers, so the last change is the newest
        self._newest = numbers[runs.last]

    def has(self, file: LiveFile, rows: pa.RecordBatch) -> np.ndarray:
        """Whether each row of a data file is deleted; bool array."""
        places = self._keys.places(rows)
        found = places >= 0
        found[found] = self._newest[places[found]] > file.sequence
        return found


class LiveRows:
    """The live rows of data files of one bucket. Used by one thread."""

    def __init__(
        self,
        schema: pa.Schema,
        key_names: Sequence[str],
        reader: LakeReader,
        with_default: Set[int] = frozenset(),
    ) -> None:
        """:param schema: the lake's columns, with Iceberg's field ids, and ``LINEAGE`` if rows keep
            their ids.
        :param key_names: the key columns; none for a log table.
        :param with_default: field ids of columns that have another value than null where a file
            lacks them. Such files are refused.
        """
        self._schema, self._reader, self._with_default = schema, reader, with_default
        self._keys = pa.schema([schema.field(name) for name in key_names])
        self.counts = ReadCounts()

    def dead_rows(
        self, files: Sequence[LiveFile], bucket: BucketFiles, changed: KeySet | None
    ) -> DeadRows:
        """Reads which rows of these files the bucket's delete files delete.

        :raises OSError, ValueError, ImportError: a file cannot be opened.
        :raises LakeFileUnreadable: a file is damaged.
        """
        paths = {file.path for file in files}
        positions = read_earlier_marks(bucket.marks, paths, self._reader)
        oldest = min(file.sequence for file in files)
        applied = [one for one in bucket.keys if one.sequence > oldest]
        deletes = EqualityDeletes(applied, self._keys, self._reader) if applied else None
        return DeadRows(positions, deletes, changed)

    def read(self, files: Sequence[LiveFile], dead: DeadRows | None) -> Iterator[pa.RecordBatch]:
        """Yields the live rows, file by file in this order.

        :raises OSError, ValueError, ImportError: a file cannot be opened.
        :raises LakeFileUnreadable: a file is damaged.
        :raises LakeTableMismatch: a file lacks a required column, or has a column of another type.
        """
        for file, source in self._reader.open_all(files):
            with self._reader.reading("data file", file.path), pq.ParquetFile(source) as opened:
                start = 0
                columns = _Columns(self._schema, opened.schema_arrow, file.path, self._with_default)
                for batch in opened.iter_batches(
                    _BATCH_ROWS, columns=columns.names, use_threads=False
                ):
                    rows = _with_lineage(columns.of(batch), file, start)
                    gone = None if dead is None else dead.of(file, start, rows)
                    start += rows.num_rows
                    self.counts.rows += rows.num_rows
                    if gone is not None:
                        self.counts.dead_rows += int(gone.sum())
                        rows = rows.filter(pa.array(~gone))
                    if rows.num_rows:
                        yield rows


class _Columns:
    """Turns the rows of one file into the lake's columns, which it finds by their field ids."""

    def __init__(
        self, schema: pa.Schema, found: pa.Schema, path: str, with_default: Set[int]
    ) -> None:
        self._schema, self._path = schema, path
        by_id = ids_in(found, path)
        self._names = [by_id.get(_id_of(one)) for one in schema]
        for one, name in zip(schema, self._names, strict=True):
            if name is None and (not one.nullable or _id_of(one) in with_default):
                raise LakeTableMismatch(
                    f"data file {path} lacks column {one.name}, which is required or has a default"
                )
            if name is not None and pa.types.is_nested(one.type):
                self._check_nested(one, found.field(name))
        self.names = [name for name in self._names if name is not None]

    def of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = []
        for one, name in zip(self._schema, self._names, strict=True):
            if name is None:
                columns.append(pa.nulls(batch.num_rows, one.type))
            else:
                column = batch.column(name)
                columns.append(column if column.type.equals(one.type) else column.cast(one.type))
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _check_nested(self, wanted: pa.Field, found: pa.Field) -> None:
        """Checks the ids and names inside a column: Arrow matches its fields by their names."""
        if _fields_inside(wanted.type) != _fields_inside(found.type):
            raise LakeTableMismatch(
                f"data file {self._path} has other fields in column {wanted.name} than the table"
            )


def _with_lineage(rows: pa.RecordBatch, file: LiveFile, start: int) -> pa.RecordBatch:
    """Rows with their ids, if they are asked for. Without a column, an id follows from the place.

    :param start: the position of the first row.
    """
    if ROW_ID not in rows.schema.names or file.first_row_id is None:
        return rows
    first = file.first_row_id + start
    ids = pa.array(np.arange(first, first + rows.num_rows))
    columns = {
        ROW_ID: pc.coalesce(rows.column(ROW_ID), ids),
        LAST_UPDATED: pc.coalesce(rows.column(LAST_UPDATED), pa.scalar(file.sequence, pa.int64())),
    }
    arrays = [columns.get(one.name, rows.column(one.name)) for one in rows.schema]
    return pa.RecordBatch.from_arrays(arrays, schema=rows.schema)


def names_by_id(wanted: pa.Schema, found: pa.Schema, path: str) -> list[str]:
    """The names that columns have in a file: they may have been renamed since.

    :raises LakeTableMismatch: the file lacks a column, or has no field ids.
    """
    by_id = ids_in(found, path)
    missing = [one.name for one in wanted if _id_of(one) not in by_id]
    if missing:
        raise LakeTableMismatch(f"data file {path} lacks key columns {missing}")
    return [by_id[_id_of(one)] for one in wanted]


def ids_in(schema: pa.Schema, path: str) -> dict[int | None, str]:
    """The names of a file's columns by their field ids.

    :raises LakeTableMismatch: it has none: a table property tells Iceberg the columns' order.
    """
    by_id = {_id_of(one): one.name for one in schema}
    if by_id.keys() == {None}:
        raise LakeTableMismatch(f"data file {path} has no field ids")
    return by_id


def _fields_inside(kind: pa.DataType) -> list[tuple[int | None, str]]:
    found = []
    for place in range(kind.num_fields):
        one = kind.field(place)
        name = one.name if pa.types.is_struct(kind) else ""  # writers name elements as they like
        found += [(_id_of(one), name), *_fields_inside(one.type)]
    return found


def _id_of(column: pa.Field) -> int | None:
    text = (column.metadata or {}).get(_FIELD_ID)
    return None if text is None else int(text)
