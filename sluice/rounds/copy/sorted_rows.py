"""Sorts more rows than fit into memory: sorted runs on disk, which are merged at the end.

Memory: at most the limit, for rows and their sorted copies. A merge holds a batch of each of a few
runs, and many runs are merged in several steps. The order is Arrow's, of the key columns one after
the other; rows with equal keys keep theirs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sluice.rounds.copy.spill import SpillFile, SpillFolder

_COPIES = 3
"""Rows are held once, copied to be contiguous, and copied in their order."""
_BATCH_ROWS_MAX = 64 * 1024
_RUNS = 16
"""So many runs are merged at a time. Each step of a merge sorts what it holds of all of them."""


class SortedRows:
    """Gathers rows and returns them sorted. A context manager, used by one thread.

    with SortedRows(schema, ("id",), memory_limit_bytes=n, spill_dir=folder) as rows:
        rows.add(batch)
        for table in rows.sorted(): ...
    """

    def __init__(
        self,
        schema: pa.Schema,
        key_names: Sequence[str],
        *,
        memory_limit_bytes: int,
        spill_dir: Path,
    ) -> None:
        """:param key_names: the columns to sort by; none: rows keep the order of their arrival.
        :param spill_dir: a local folder for what exceeds the limit; created when first needed.
        """
        self._schema, self._keys = schema, tuple(key_names)
        self._limit_bytes, self._spill_dir = max(1, memory_limit_bytes // _COPIES), spill_dir
        self._pending: list[pa.RecordBatch] = []
        self._pending_bytes = 0
        self._runs: list[SpillFile] = []
        self._folder: SpillFolder | None = None
        self.memory_bytes = 0
        """The most memory for rows until now."""
        self.spilled_bytes = 0

    def __enter__(self) -> SortedRows:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def add(self, rows: pa.RecordBatch) -> None:
        """Adds rows.

        :raises SpillFailed: the spill folder is full or not writable.
        """
        self._pending.append(rows)
        self._pending_bytes += rows.nbytes
        self.memory_bytes = max(self.memory_bytes, _COPIES * self._pending_bytes)
        if self._pending_bytes >= self._limit_bytes:
            self._spill(self._in_order())

    def sorted(self) -> Iterator[pa.Table]:
        """Yields all rows in their order, in tables of at most about 64 Ki rows; call once.

        :raises SpillFailed: a spill file cannot be written or read.
        """
        if not self._runs:
            yield from self._in_order()
            return
        if self._pending:
            self._spill(self._in_order())
        while len(self._runs) > _RUNS:
            runs, self._runs = self._runs, []
            for start in range(0, len(runs), _RUNS):
                merged = runs[start : start + _RUNS]
                self._spill(self._merged(merged))
                for run in merged:
                    run.remove()
        yield from self._merged(self._runs)

    def close(self) -> None:
        """Deletes all spill files."""
        self._pending.clear()
        if self._folder is not None:
            self._folder.close()
            self._folder = None

    def _in_order(self) -> Iterator[pa.Table]:
        """Yields the pending rows in their order, and forgets them."""
        table = pa.Table.from_batches(self._pending, self._schema).combine_chunks()
        self._pending.clear()
        self._pending_bytes = 0
        order = _order(table, self._keys) if self._keys else np.arange(table.num_rows)
        is_sorted = bool((order[1:] > order[:-1]).all())
        step = self._step(table)
        for start in range(0, table.num_rows, step):
            places = order[start : start + step]
            yield table.slice(start, step) if is_sorted else table.take(places)

    def _step(self, table: pa.Table) -> int:
        """Rows of one table: fewer if they are large, so that a merge of many runs fits."""
        row_bytes = max(1, table.nbytes // max(1, table.num_rows))
        return int(max(1, min(_BATCH_ROWS_MAX, self._limit_bytes // (_RUNS * row_bytes))))

    def _sliced(self, table: pa.Table) -> Iterator[pa.RecordBatch]:
        """The table in batches of which a merge can hold several."""
        step = self._step(table)
        for start in range(0, table.num_rows, step):
            yield from table.slice(start, step).combine_chunks().to_batches()

    def _spill(self, tables: Iterator[pa.Table]) -> None:
        """Stores tables in their order as one run."""
        if self._folder is None:
            self._folder = SpillFolder(self._spill_dir)
        batches = (batch for table in tables for batch in self._sliced(table))
        run = self._folder.write(self._schema, batches)
        self._runs.append(run)
        self.spilled_bytes += run.path.stat().st_size

    def _merged(self, files: Sequence[SpillFile]) -> Iterator[pa.Table]:
        """Merges runs.

        Each step sorts what it holds of all runs. All rows up to the first one that is the last of
        its run's batch are final: later batches begin behind it.
        """
        runs = [_Run(file) for file in files]
        if not self._keys:  # each run is in its order
            for run in runs:
                while run.fill():
                    yield run.take()
            return
        while True:
            held = [run for run in runs if run.fill()]
            if not held:
                return
            if len(held) == 1:
                yield held[0].take()
                continue
            table = pa.concat_tables([run.rows for run in held])
            self.memory_bytes = max(self.memory_bytes, _COPIES * table.nbytes)
            order = _order(table, self._keys)
            ends = np.cumsum([run.rows.num_rows for run in held])
            if any(run.has_more for run in held):
                at_end = [end - 1 for run, end in zip(held, ends, strict=True) if run.has_more]
                places = np.empty(len(order), np.int64)
                places[order] = np.arange(len(order))
                order = order[: int(places[at_end].min()) + 1]
            yield table.take(order)
            taken = np.bincount(np.searchsorted(ends, order, side="right"), minlength=len(held))
            for run, count in zip(held, taken, strict=True):
                run.drop(int(count))


class _Run:
    """One sorted run, of which a batch or less is held."""

    def __init__(self, file: SpillFile) -> None:
        self._file, self._next = file, 0
        self.rows = pa.table({})
        """The rows that are held."""

    @property
    def has_more(self) -> bool:
        """Whether rows follow those that are held."""
        return self._next < len(self._file.rows)

    def fill(self) -> bool:
        """Reads the next batch if nothing is held; returns False at the end."""
        while not self.rows.num_rows and self.has_more:
            batch = self._file.read(self._next)
            self._next += 1
            if batch is not None:
                self.rows = pa.Table.from_batches([batch])
        return bool(self.rows.num_rows)

    def drop(self, count: int) -> None:
        """Forgets the first rows."""
        self.rows = self.rows.slice(count)

    def take(self) -> pa.Table:
        """Returns and forgets what is held."""
        found = self.rows
        self.drop(found.num_rows)
        return found


def _order(table: pa.Table, keys: Sequence[str]) -> np.ndarray:
    """The places of the rows in their order (int64)."""
    chosen = table.select(list(keys)).combine_chunks()
    places = pc.sort_indices(chosen, sort_keys=[(name, "ascending") for name in keys])
    found: np.ndarray = places.to_numpy().astype(np.int64, copy=False)
    return found
