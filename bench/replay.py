"""Which row each key of a changed table has, without Sluice: the truth for every reader.

Row N is row N of ``bench.data.batches`` under another key. A table begins with row N under key N,
as ``bench.keyed.load_snapshots`` makes it. Each change has a row that was not there before.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from bench import data

DISTINCT_ROWS = data.BODIES * data.BATCH_ROWS


class Replay:
    """A table with the keys from 0; it knows the row of each of them."""

    def __init__(self, keys: int) -> None:
        self.keys = keys
        self._rows = np.arange(keys)
        self._pool = pa.Table.from_batches(data.batches(min(keys, DISTINCT_ROWS)))
        self._cents = _cents(self._pool["amount"])

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
        return [self.keys, int(ids.sum()), int(self._amounts(ids).sum())]

    def amount(self, key: int) -> int:
        """The amount of a key in cents."""
        return int(self._amounts(np.array([key]))[0])

    def _amounts(self, ids: np.ndarray) -> np.ndarray:
        found: np.ndarray = self._cents[self._rows[ids] % len(self._cents)]
        return found

    def _batches(self, ids: np.ndarray) -> Iterator[pa.RecordBatch]:
        for first in range(0, len(ids), data.BATCH_ROWS):
            keys = ids[first : first + data.BATCH_ROWS]
            rows = self._rows[keys]
            found = self._pool.take(pa.array(rows % len(self._cents)))
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
