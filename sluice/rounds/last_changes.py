"""The last change of each key in a window of a changelog, on an executor.

An equality delete reaches only rows of earlier lake commits. So a round may write one row and one
delete for a key at most, whatever happened to it in between, and of the snapshot that it reads
beside the log only the rows whose keys the log does not change.

Memory: the limit, and one batch of the log more, while changes come. The limit counts Arrow's
buffers, and for each row what the reduction takes. A part that was given away counts no more.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import numpy as np
import pyarrow as pa

from sluice.errors import CorruptRecord
from sluice.model import ChangeType
from sluice.rounds.key_hashes import KeyColumns, same_values
from sluice.rounds.key_parts import BEGINS_NEW, IS_ROW, KeyParts, Reduced
from sluice.rounds.spill import SpillFolder
from sluice.rounds.types import LogRecords

_MEMORY_MAX_BYTES = 1 << 30
_BLOCK_ROWS = 64 * 1024
_BLOCK_BYTES = 4 * 1024 * 1024
_BLOCK_SHARE = 16
"""A block is at most this part of the limit: while one is made, its rows are there twice."""
_SYSTEM = (
    pa.field("__offset", pa.int64(), nullable=False),
    pa.field("__timestamp", pa.timestamp("us", tz="UTC"), nullable=False),
    pa.field("_change_type", pa.uint8(), nullable=False),  # no user column has this name
)
_FLAGS = np.zeros(len(ChangeType), np.uint8)
_FLAGS[[ChangeType.APPEND_ONLY, ChangeType.UPDATE_AFTER]] = IS_ROW
_FLAGS[ChangeType.INSERT] = IS_ROW | BEGINS_NEW


@dataclass(frozen=True, slots=True)
class ChangedKeys:
    """What a window did to some of its keys; the parts of one window have no key in common."""

    upserts: pa.Table
    """Rows of the keys whose last change is a row, in log order: the columns of the schema, then
    ``__offset`` (int64) and ``__timestamp`` (timestamp[us, UTC]) of that change."""
    delete_keys: pa.Table
    """The key columns, in the key's order, of each key that may have a row in the lake from before
    the window: its first change is not an insert. Also where its last change is a row."""


class LastChanges:
    """Reduces one bucket's window of a changelog. Used by one thread, as a context manager.

        with LastChanges(schema, ("id",), memory_limit_bytes=n, spill_dir=folder) as changes:
            for records in source.read(split):
                changes.add(records)
            for part in changes.parts():  # write part.upserts, part.delete_keys
            for rows in changes.without(snapshot):  # write rows

    Keys are compared as values, floating point numbers as bits.
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
        """:param schema: of all rows that are added.

        :param key_columns: the primary key, in its order.
        :param memory_limit_bytes: of Arrow data and of what the reduction needs beside it; more
            than 1 GiB is not used, because offsets of Arrow's strings have 31 bits.
        :param spill_dir: a local folder for what goes beyond; made when it is first needed.
        :param known_empty: the bucket has no row in the lake yet: no key needs a delete.
        :raises UnsupportedType: for a key column that no Fluss key can have.
        """
        self._key = KeyColumns(schema, key_columns)
        self._schema = pa.schema([*schema, *_SYSTEM])
        self._limit_bytes = min(memory_limit_bytes, _MEMORY_MAX_BYTES)
        self._block_bytes = min(_BLOCK_BYTES, self._limit_bytes // _BLOCK_SHARE)
        self._spill_dir = spill_dir
        self._known_empty = known_empty
        self._folder: SpillFolder | None = None
        self._changes = KeyParts(self._key, self._schema, self._limit_bytes, self._spill_folder)
        self._pending: list[pa.RecordBatch] = []
        self._pending_rows = self._pending_bytes = 0

    def __enter__(self) -> LastChanges:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def add(self, records: LogRecords) -> None:
        """Takes the next batch of the log, in the order of its offsets.

        :raises CorruptRecord: a change type that is not known, or none at all; a null in a key.
        :raises SpillFailed: the spill folder is full, or refuses.
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
        """After the last ``add``, and once: all keys of the window, in parts that fit the limit.

        One part where nothing was spilled; none where no key has a row or a delete. Let a part go
        before asking for the next one.

        :raises SpillFailed: what was spilled cannot be read.
        """
        self._gather()
        for blocks in self._changes.parts():
            part = self._changed_keys(blocks)
            if part.upserts.num_rows or part.delete_keys.num_rows:
                yield part

    def without(self, snapshot: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """After the last ``add``: the rows of a snapshot whose key the window does not change.

        May come before ``parts`` or after it.

        :param snapshot: batches of the same schema, any number of them; taken one at a time.
        :raises SpillFailed: as ``add`` and ``parts``. :raises CorruptRecord: a null in a key.
        """
        self._gather()
        yield from self._changes.without(snapshot)

    def close(self) -> None:
        """Removes all spill files."""
        if self._folder is not None:
            self._folder.close()
            self._folder = None

    def _spill_folder(self) -> SpillFolder:
        if self._folder is None:
            self._folder = SpillFolder(self._spill_dir)
        return self._folder

    def _gather(self) -> None:
        """Makes one block of the batches that came: small ones cost as much as large ones."""
        if self._pending:
            pending, self._pending = self._pending, []
            self._pending_rows = self._pending_bytes = 0
            self._changes.add(pending[0] if len(pending) == 1 else pa.concat_batches(pending))

    def _replaced(self, rows: pa.RecordBatch, kinds: np.ndarray) -> np.ndarray | None:
        """Each -U with the +U of its key right behind it, which says the same; None without any.

        That is how a put writes an update. It halves what is kept of a changelog with old rows.
        """
        pairs = kinds[:-1] == ChangeType.UPDATE_BEFORE
        pairs &= kinds[1:] == ChangeType.UPDATE_AFTER
        if not pairs.any():
            return None
        columns = self._key.of(rows)
        pairs &= same_values([c[:-1] for c in columns], [c[1:] for c in columns])
        return np.append(pairs, False)

    def _changed_keys(self, blocks: Iterator[Reduced]) -> ChangedKeys:
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
            f"{where} does not say what became of its {records.batch.num_rows} rows"
        )
    kinds: np.ndarray = records.change_types.to_numpy()
    if int(kinds.max()) >= len(ChangeType):
        raise CorruptRecord(f"{where} has change type {kinds.max()}, which is not known")
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
