"""Reduces changes to one per key, in memory or, if they do not fit, in hash partitions on disk.

Blocks of changes are gathered. At the memory limit, each key is reduced to one change. If that does
not halve the blocks, they are written to a local file, partitioned by hash. In the end each
partition is reduced separately, and partitioned again if it is too large.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from sluice.rounds.copy.key_hashes import KeyColumns
from sluice.rounds.copy.key_runs import HashSlots, KeyRuns, KeySet, find_runs
from sluice.rounds.copy.spill import SpillFile, SpillFolder

PARTS = 32
_PART_SHIFT = np.uint64(64 - 5)
"""The upper five bits of a hash select the part."""
_DEPTH_MAX = 8
_SEEDS_PER_DEPTH = 16
_ROW_BYTES = 64
"""Memory per change for finding runs: hash, position, ends of runs."""
_KEY_COPIES = 2
_SLOTS_SHARE = 8

IS_ROW, BEGINS_NEW = 1, 2
"""Flags of a change, in a block's last column: a row exists after it; no row existed before it."""


@dataclass(frozen=True, slots=True)
class Block:
    """Changes in log order; the last column has their flags."""

    rows: pa.RecordBatch
    hashes: np.ndarray

    @property
    def flags(self) -> np.ndarray:
        found: np.ndarray = self.rows.column(self.rows.num_columns - 1).to_numpy()
        return found


@dataclass(frozen=True, slots=True)
class ReducedBlock:
    """A block after the reduction: which changes to keep, and their flags (uint8)."""

    rows: pa.RecordBatch
    keep: np.ndarray
    flags: np.ndarray


class ChangePartitions:
    """Gathers changes and returns one for each key. Used by one thread."""

    def __init__(
        self,
        key: KeyColumns,
        schema: pa.Schema,
        limit_bytes: int,
        folder: Callable[[], SpillFolder],
        depth: int = 0,
    ) -> None:
        """:param schema: of the blocks.

        :param limit_bytes: limit of the blocks in memory, including what their reduction needs.
        :param folder: returns the spill folder, which is created by the first call.
        :param depth: how many times these changes were partitioned before.
        """
        self._key = key
        self._schema = schema
        self._limit_bytes = limit_bytes
        self._folder = folder
        self._depth = depth
        self._seed = depth * _SEEDS_PER_DEPTH
        self._blocks: list[Block] = []
        self._runs: KeyRuns | None = None
        self._files: list[SpillFile] = []
        self.size_bytes = 0
        """Size of the blocks in memory."""

    def add(self, rows: pa.RecordBatch) -> None:
        """Adds the next changes.

        :raises SpillFailed: the spill folder is full or not writable.
        :raises CorruptRecord: a key has a null.
        """
        if not rows.num_rows:
            return
        self._blocks.append(self._block(rows))
        self.size_bytes += self._size_bytes(rows)
        self._runs = None
        if self.size_bytes > self._limit_bytes:
            self._shrink()

    def parts(self) -> Iterator[Iterator[ReducedBlock]]:
        """Yields one change for each key, in log order, in parts of disjoint keys; call it once.

        Read a part to its end before the next one. Blocks that were read are freed.

        :raises SpillFailed: a spill file cannot be read.
        """
        if self._files:
            for part in range(PARTS):
                with self._child(part) as child:
                    yield from child.parts()
        elif self._blocks:
            yield self._reduced()

    def unchanged_rows(self, snapshot: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows of a snapshot whose keys have no change.

        :raises SpillFailed: a spill file cannot be written or read.
        """
        if self._files:
            yield from self._unchanged_rows_spilled(snapshot)
            return
        keys = KeySet(self._key, runs) if (runs := self._find_runs()) else None
        for rows in snapshot:
            yield from _kept(rows, None if keys is None else ~keys.has(rows))

    def close(self) -> None:
        """Deletes the spill files."""
        for file in self._files:
            file.remove()
        self._files.clear()
        self._blocks.clear()
        self._runs = None

    def _block(self, rows: pa.RecordBatch) -> Block:
        return Block(rows, self._key.hashes(self._key.of(rows), self._seed))

    def _size_bytes(self, rows: pa.RecordBatch) -> int:
        """Bytes of a block and of its reduction, which copies the keys in order to compare them."""
        size_bytes = int(rows.nbytes) + _ROW_BYTES * int(rows.num_rows)
        if not self._key.one_word:
            size_bytes += _KEY_COPIES * sum(int(column.nbytes) for column in self._key.of(rows))
        return size_bytes

    # ---- in memory ----

    def _find_runs(self) -> KeyRuns | None:
        """The runs of equal keys; None without changes. Kept after the blocks are freed."""
        if self._runs is None and self._blocks:
            keys = [] if self._key.one_word else [self._key.of(b.rows) for b in self._blocks]
            hashes = [block.hashes for block in self._blocks]
            self._runs = find_runs(self._key, keys, hashes, self._seed)
        return self._runs

    def _kept_changes(self, runs: KeyRuns) -> tuple[np.ndarray, np.ndarray]:
        """Whether each change is the last of its key, and its flags combined with the first's."""
        before = np.concatenate([block.flags for block in self._blocks])
        keep, flags = np.zeros(len(before), bool), np.zeros(len(before), np.uint8)
        keep[runs.last] = True
        flags[runs.last] = (before[runs.last] & IS_ROW) | (before[runs.first] & BEGINS_NEW)
        return keep, flags

    def _reduced(self) -> Iterator[ReducedBlock]:
        """Yields one change for each key; frees each block once it was yielded."""
        runs = self._find_runs()
        assert runs is not None, "there are blocks"
        keep, flags = self._kept_changes(runs)
        blocks, self._blocks, self.size_bytes = self._blocks, [], 0
        blocks.reverse()
        start = 0
        while blocks:
            rows = blocks.pop().rows
            end = start + rows.num_rows
            yield ReducedBlock(rows, keep[start:end], flags[start:end])
            start = end

    def _shrink(self) -> None:
        """Reduces the blocks to half of the limit, or spills them."""
        runs = self._find_runs()
        assert runs is not None, "there are blocks"
        changes = sum(block.rows.num_rows for block in self._blocks)
        keys = len(runs.last)
        if (
            keys > 1
            and self._depth < _DEPTH_MAX
            and self.size_bytes * keys > changes * self._limit_bytes // 2
        ):
            self._spill()
            return
        self._blocks = [
            self._block(rows)
            for found in self._reduced()
            for rows in _kept(_with_flags(found.rows, found.flags), found.keep)
        ]
        self._runs = None
        self.size_bytes = sum(self._size_bytes(block.rows) for block in self._blocks)

    # ---- on disk ----

    def _spill(self) -> None:
        runs = self._find_runs()
        assert runs is not None, "there are blocks"
        keep, flags = self._kept_changes(runs)
        self._runs = None
        start, kept = 0, []
        for block in self._blocks:
            end = start + block.rows.num_rows
            rows = _with_flags(block.rows, flags[start:end])
            kept.append(_PartitionedBlock(rows, block.hashes, np.flatnonzero(keep[start:end])))
            start = end
        self._files.append(self._folder().write(self._schema, _by_part(self._schema, kept)))
        self._blocks, self.size_bytes = [], 0

    @contextlib.contextmanager
    def _child(self, part: int) -> Iterator[ChangePartitions]:
        """The changes of one part, from all files."""
        if self._blocks:
            self._spill()
        child = ChangePartitions(
            self._key, self._schema, self._limit_bytes, self._folder, self._depth + 1
        )
        try:
            for file in self._files:
                if (rows := file.read(part)) is not None:
                    child.add(rows)
            yield child
        finally:
            child.close()

    def _unchanged_rows_spilled(
        self, snapshot: Iterable[pa.RecordBatch]
    ) -> Iterator[pa.RecordBatch]:
        """Spills rows that may have a changed key as well, and compares part by part."""
        slots = self._slots()
        files: list[SpillFile] = []
        maybe: list[_PartitionedBlock] = []
        schema, size_bytes = None, 0
        try:
            for rows in snapshot:
                schema = rows.schema
                hashes = self._key.hashes(self._key.of(rows), self._seed)
                known = slots.has(hashes)
                yield from _kept(rows, ~known)
                for some in _kept(rows, known):
                    maybe.append(_PartitionedBlock(some, hashes[known], np.arange(some.num_rows)))
                    size_bytes += self._size_bytes(some)
                if size_bytes > self._limit_bytes // 2:
                    files.append(self._folder().write(schema, _by_part(schema, maybe)))
                    maybe, size_bytes = [], 0
            if maybe:
                files.append(self._folder().write(schema, _by_part(schema, maybe)))
            del maybe, slots
            for part in range(PARTS):
                with self._child(part) as child:
                    found = (file.read(part) for file in files)
                    yield from child.unchanged_rows(rows for rows in found if rows is not None)
        finally:
            for file in files:
                file.remove()

    def _slots(self) -> HashSlots:
        """The hashes of all spilled keys."""
        if self._blocks:
            self._spill()
        slots = HashSlots(self._limit_bytes // _SLOTS_SHARE // 2 + 1)
        columns = [self._schema.get_field_index(name) for name in self._key.names]
        for file in self._files:
            for part in range(PARTS):
                if (rows := file.read(part, columns)) is not None:
                    slots.add(self._key.hashes(self._key.of(rows), self._seed))
        return slots


@dataclass(frozen=True, slots=True)
class _PartitionedBlock:
    """Rows and which of them to write to a spill file, each in the part of its hash."""

    rows: pa.RecordBatch
    hashes: np.ndarray
    chosen: np.ndarray


def _by_part(schema: pa.Schema, blocks: Sequence[_PartitionedBlock]) -> Iterator[pa.RecordBatch]:
    """One batch for each part."""
    divided = []
    for block in blocks:
        parts = (block.hashes[block.chosen] >> _PART_SHIFT).astype(np.uint8)
        order = np.argsort(parts, kind="stable")
        bounds = np.searchsorted(parts[order], np.arange(PARTS + 1))
        divided.append((block.rows, block.chosen[order], bounds))
    for part in range(PARTS):
        pieces = [
            rows.take(pa.array(chosen[bounds[part] : bounds[part + 1]]))
            for rows, chosen, bounds in divided
            if bounds[part] < bounds[part + 1]
        ]
        empty = pa.RecordBatch.from_pylist([], schema=schema)
        yield pa.concat_batches(pieces) if pieces else empty


def _with_flags(rows: pa.RecordBatch, flags: np.ndarray) -> pa.RecordBatch:
    last = rows.num_columns - 1
    return rows.set_column(last, rows.schema.field(last), pa.array(flags))


def _kept(rows: pa.RecordBatch, keep: np.ndarray | None) -> Iterator[pa.RecordBatch]:
    """Yields the rows to keep (``keep`` None: all of them), unless there are none."""
    if keep is not None and not keep.all():
        rows = rows.filter(pa.array(keep))
    if rows.num_rows:
        yield rows
