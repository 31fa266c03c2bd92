"""Which rows the table of a benchmark has, without Sluice: the truth for every reader.

Row N is row N of ``bench.data.batches`` under another key. A table begins with row N under key N,
as ``bench.rounds.keyed.load_snapshots`` makes it. Each change has a row that was not there before.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np
import pyarrow as pa

from bench import data

DISTINCT_ROWS = data.BODIES * data.BATCH_ROWS


class Truth(Protocol):
    """What is known of a table's rows without Sluice."""

    @property
    def keys(self) -> int:
        """Its number of rows; their ids are the numbers from 0."""

    def totals(self) -> list[int]:
        """The number of rows, and the sums of keys and of amounts; amounts in cents."""

    def amount(self, key: int) -> int:
        """The amount of a key in cents."""


class Replay:
    """A table with the keys from 0; it knows the row of each of them."""

    def __init__(self, keys: int) -> None:
        self.keys = keys
        self._rows = np.arange(keys)
        self._pool = _Pool(keys)

    def change(self, count: int, number: int) -> Iterator[pa.RecordBatch]:
        """Changes ``count`` different keys, drawn uniformly; yields their new rows.

        :param number: of the round, from 0; each has its own keys and rows.
        """
        chosen = np.random.default_rng(number).permutation(self.keys)[:count]
        self._rows[chosen] = self.keys + number * count + np.arange(count)
        return self._batches(chosen)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The complete table as it is now."""
        return self._batches(np.arange(self.keys))

    def totals(self) -> list[int]:
        """The number of rows, and the sums of keys and of amounts; amounts in cents."""
        ids = np.arange(self.keys)
        return [self.keys, int(ids.sum()), int(self._pool.cents(self._rows).sum())]

    def amount(self, key: int) -> int:
        """The amount of a key in cents."""
        return int(self._pool.cents(self._rows[[key]])[0])

    def _batches(self, ids: np.ndarray) -> Iterator[pa.RecordBatch]:
        for first in range(0, len(ids), data.BATCH_ROWS):
            keys = ids[first : first + data.BATCH_ROWS]
            yield from self._pool.batches(keys, self._rows[keys])


class Appended:
    """A log table whose row N is row N of ``bench.data.batches``."""

    def __init__(self, rows_max: int) -> None:
        """:param rows_max: how many rows it may get."""
        self.keys = 0
        self._pool = _Pool(rows_max)

    def append(self, count: int) -> pa.Table:
        """The next rows."""
        rows = np.arange(self.keys, self.keys + count)
        self.keys += count
        return self._table(rows)

    def table(self) -> pa.Table:
        """All rows that it has now."""
        return self._table(np.arange(self.keys))

    def totals(self) -> list[int]:
        """The number of rows, and the sums of ids and of amounts; amounts in cents."""
        rows = np.arange(self.keys)
        return [self.keys, int(rows.sum()), int(self._pool.cents(rows).sum())]

    def amount(self, key: int) -> int:
        """The amount of the row with this id in cents."""
        return int(self._pool.cents(np.array([key]))[0])

    def _table(self, rows: np.ndarray) -> pa.Table:
        return pa.Table.from_batches(self._pool.batches(rows, rows))


class _Pool:
    """The distinct rows of ``bench.data.batches``."""

    def __init__(self, rows_max: int) -> None:
        self._rows = pa.Table.from_batches(data.batches(min(rows_max, DISTINCT_ROWS)))
        self._cents = _cents(self._rows["amount"])

    def cents(self, rows: np.ndarray) -> np.ndarray:
        """The amounts of rows by their numbers."""
        found: np.ndarray = self._cents[rows % len(self._cents)]
        return found

    def batches(self, keys: np.ndarray, rows: np.ndarray) -> Iterator[pa.RecordBatch]:
        """Rows by their numbers, under these keys."""
        found = self._rows.take(pa.array(rows % len(self._cents)))
        for name, values in (("id", keys), ("ts", data.times(rows))):
            at = found.schema.get_field_index(name)
            found = found.set_column(at, found.schema.field(at), pa.array(values))
        yield from found.combine_chunks().to_batches()


def _cents(amounts: pa.ChunkedArray) -> np.ndarray:
    """The cents of amounts below 2**63: the lower half of each value."""
    parts = [
        np.frombuffer(a.buffers()[1], "<i8")[::2][a.offset :][: len(a)] for a in amounts.chunks
    ]
    return np.concatenate(parts)
