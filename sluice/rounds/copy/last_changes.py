"""Finds the last change of each key in a range of a changelog. Runs on executors.

An equality delete affects only rows of earlier lake commits. So a round may write at most one row
and one delete per key, whatever happened to the key in between. Of a snapshot that it reads in
addition to the log, it may write only the rows whose keys the log does not change.

Memory: the limit, plus one batch of the log while changes are added. The limit counts Arrow's
buffers and, per row, the memory of the reduction. Parts that were yielded do not count.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from sluice.errors import CorruptRecord
from sluice.model import CHANGE_TYPE, COMMIT_TIMESTAMP, LOG_OFFSET, ChangeType
from sluice.rounds.copy.change_partitions import BEGINS_NEW, IS_ROW, ChangePartitions, ReducedBlock
from sluice.rounds.copy.key_hashes import KeyColumns, same_values
from sluice.rounds.copy.spill import SpillFolder
from sluice.rounds.values.types import LogRecords

_MEMORY_MAX_BYTES = 1 << 30
_BLOCK_ROWS = 64 * 1024
_BLOCK_BYTES = 4 * 1024 * 1024
_BLOCK_SHARE = 16
"""A block is at most 1/16 of the limit, because making one needs twice its memory."""
_SYSTEM = (
    pa.field(LOG_OFFSET, pa.int64(), nullable=False),
    pa.field(COMMIT_TIMESTAMP, pa.timestamp("us", tz="UTC"), nullable=False),
    pa.field(CHANGE_TYPE, pa.uint8(), nullable=False),
)
_FLAGS = np.zeros(len(ChangeType), np.uint8)
_FLAGS[[ChangeType.APPEND_ONLY, ChangeType.UPDATE_AFTER]] = IS_ROW
_FLAGS[ChangeType.INSERT] = IS_ROW | BEGINS_NEW


@dataclass(frozen=True, slots=True)
class ChangedKeys:
    """The rows and deletes for some keys of a log range; the parts of a range share no key."""

    upserts: pa.Table
    """Rows of the keys whose last change is a row, in log order: the columns of the schema, then
    ``_log_offset`` (int64) and ``_commit_timestamp`` (timestamp[us, UTC]) of that change."""
    delete_keys: pa.Table
    """The key columns, in the key's order, of each key that may already have a row in the lake: its
    first change is not an insert. Includes keys that also have an upsert."""


class LastChanges:
    """Reduces a range of one bucket's changelog. A context manager, used by one thread.

        with LastChanges(schema, ("id",), memory_limit_bytes=n, spill_dir=folder) as changes:
            for records in source.read(split):
                changes.add(records)
            for part in changes.parts():  # write part.upserts, part.delete_keys
            for rows in changes.unchanged_rows(snapshot):  # write rows

    Keys are compared as values, floating-point numbers as bits.
    """

    def __init__(
        self,
        schema: pa.Schema,
        key_columns: Sequence[str],
        *,
        memory_limit_bytes: int,
        spill_dir: Path,
        known_empty: bool = False,
    ) -> None:
        """:param schema: the schema of all rows that are added.

        :param key_columns: the columns of the primary key, in its order.
        :param memory_limit_bytes: memory for Arrow data and its reduction. More than 1 GiB is not
            used, because offsets of Arrow's strings have 31 bits.
        :param spill_dir: a local folder for what exceeds the limit; created when first needed.
        :param known_empty: the lake has no row of the bucket yet, so no key needs a delete.
        :raises UnsupportedType: a key column has a type that Fluss does not allow in keys.
        """
        self._key = KeyColumns(schema, key_columns)
        self._schema = pa.schema([*schema, *_SYSTEM])
        self._limit_bytes = min(memory_limit_bytes, _MEMORY_MAX_BYTES)
        self._block_bytes = min(_BLOCK_BYTES, self._limit_bytes // _BLOCK_SHARE)
        self._spill_dir = spill_dir
        self._known_empty = known_empty
        self._folder: SpillFolder | None = None
        self._changes = ChangePartitions(
            self._key, self._schema, self._limit_bytes, self._spill_folder
        )
        self._pending: list[pa.RecordBatch] = []
        self._pending_rows = self._pending_bytes = 0

    def __enter__(self) -> LastChanges:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def add(self, records: LogRecords) -> None:
        """Adds the next batch of the log, in the order of its offsets.

        :raises CorruptRecord: the batch has an unknown change type or none, or a null in a key.
        :raises SpillFailed: the spill folder is full or not writable.
        """
        if not records.batch.num_rows:
            return
        kinds = _change_types(records)
        rows = pa.RecordBatch.from_arrays(
            [*records.batch.columns, *_system_columns(records, kinds)], schema=self._schema
        )
        replaced = self._replaced(rows, kinds)
        if replaced is not None:
            rows = rows.filter(pa.array(~replaced))
        self._pending.append(rows)
        self._pending_rows += rows.num_rows
        self._pending_bytes += rows.nbytes
        if (
            self._pending_rows >= _BLOCK_ROWS
            or self._pending_bytes >= self._block_bytes
            or self._pending_bytes + self._changes.size_bytes > self._limit_bytes
        ):
            self._gather()

    def parts(self) -> Generator[ChangedKeys, None, None]:
        """Yields all changed keys, in parts that fit the limit; call once, after the last ``add``.

        There is one part if nothing was spilled, and none if no key has a row or a delete. Drop a
        part before requesting the next one.

        :raises SpillFailed: a spill file cannot be read.
        """
        self._gather()
        for blocks in self._changes.parts():
            part = self._changed_keys(blocks)
            if part.upserts.num_rows or part.delete_keys.num_rows:
                yield part

    def unchanged_rows(self, snapshot: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yields the rows of a snapshot whose keys were not changed; call after the last ``add``.

        It can be called before or after ``parts``.

        :param snapshot: batches of the same schema, which are read one at a time.
        :raises SpillFailed: a spill file cannot be written or read.
        :raises CorruptRecord: a null in a key.
        """
        self._gather()
        yield from self._changes.unchanged_rows(snapshot)

    def close(self) -> None:
        """Deletes all spill files."""
        if self._folder is not None:
            self._folder.close()
            self._folder = None

    def _spill_folder(self) -> SpillFolder:
        if self._folder is None:
            self._folder = SpillFolder(self._spill_dir)
        return self._folder

    def _gather(self) -> None:
        """Combines pending batches into one block, because every block has a fixed cost."""
        if self._pending:
            pending, self._pending = self._pending, []
            self._pending_rows = self._pending_bytes = 0
            self._changes.add(pending[0] if len(pending) == 1 else pa.concat_batches(pending))

    def _replaced(self, rows: pa.RecordBatch, kinds: np.ndarray) -> np.ndarray | None:
        """Which rows are a -U directly followed by the +U of the same key; None without such rows.

        A put writes updates in this form. Dropping these rows halves a changelog with old rows.
        """
        pairs = kinds[:-1] == ChangeType.UPDATE_BEFORE
        pairs &= kinds[1:] == ChangeType.UPDATE_AFTER
        if not pairs.any():
            return None
        columns = self._key.of(rows)
        pairs &= same_values([c[:-1] for c in columns], [c[1:] for c in columns])
        return np.append(pairs, False)

    def _changed_keys(self, blocks: Iterator[ReducedBlock]) -> ChangedKeys:
        key_columns = [self._schema.get_field_index(name) for name in self._key.names]
        row_columns = range(len(self._schema) - 1)
        upserts, deletes = [], []
        for block in blocks:
            upsert = block.keep & (block.flags & IS_ROW != 0)
            upserts.append(_chosen(block.rows.select(row_columns), upsert))
            if not self._known_empty:
                delete = block.keep & (block.flags & BEGINS_NEW == 0)
                deletes.append(_chosen(block.rows.select(key_columns), delete))
        return ChangedKeys(
            pa.Table.from_batches(upserts), pa.Table.from_batches(deletes, self._key.schema)
        )


def _chosen(rows: pa.RecordBatch, chosen: np.ndarray) -> pa.RecordBatch:
    return rows if chosen.all() else rows.filter(pa.array(chosen))


def _change_types(records: LogRecords) -> np.ndarray:
    """uint8 numbers of the rows' change types."""
    where = f"the batch at offset {records.base_offset}"
    if records.change_types is None or len(records.change_types) != records.batch.num_rows:
        raise CorruptRecord(
            f"{where} does not have a change type for each of its {records.batch.num_rows} rows"
        )
    kinds: np.ndarray = records.change_types.to_numpy()
    if int(kinds.max()) >= len(ChangeType):
        raise CorruptRecord(f"{where} has the unknown change type {kinds.max()}")
    return kinds


def _system_columns(records: LogRecords, kinds: np.ndarray) -> list[pa.Array]:
    count = records.batch.num_rows
    offsets = np.arange(records.base_offset, records.base_offset + count, dtype=np.int64)
    stamps = np.full(count, records.timestamp_ms * 1000, np.int64)
    return [
        pa.array(offsets),
        pa.array(stamps).view(_SYSTEM[1].type),
        pa.array(_FLAGS[kinds]),
    ]
