"""Collects rows into batches of about a given size: Arrow slices per bucket."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import pyarrow as pa

K = TypeVar("K", bound=Hashable)

BATCH_ROWS_MAX = 256 * 1024
"""Maximum rows in one batch, however narrow they are; servers have a limit too."""


@dataclass(slots=True)
class _Buffer:
    slices: list[pa.RecordBatch] = field(default_factory=list)
    rows: int = 0
    size_bytes: int = 0
    mark: int = 0


class RowBuffers(Generic[K]):
    """Buffered rows by key (a bucket, or a partition whose bucket is chosen later)."""

    def __init__(self, batch_bytes: int, total_bytes_max: int) -> None:
        """:param total_bytes_max: above this total size, the largest buffers are emitted."""
        self._batch_bytes = max(1, batch_bytes)
        self._total_bytes_max = total_bytes_max
        self._buffers: dict[K, _Buffer] = {}
        self._total_bytes = 0

    def add(
        self, key: K, rows: pa.RecordBatch, mark: int = 0, *, in_order: bool = False
    ) -> Iterator[tuple[K, pa.RecordBatch, int]]:
        """Buffers rows and yields the batches that are full now, each with its lowest mark.

        :param mark: the caller's number for these rows, never lower than in earlier calls.
        :param in_order: ``mark`` is the number of the first row, and each row adds one.
        """
        while rows.num_rows:
            buffer = self._buffers.setdefault(key, _Buffer(mark=mark))
            size = rows.nbytes
            room = self._batch_bytes - buffer.size_bytes
            count = rows.num_rows
            if size > room:
                # An estimate: rows differ in size.
                count = max(count * max(room, 0) // size, 0 if buffer.rows else 1)
            count = min(count, BATCH_ROWS_MAX - buffer.rows)
            if count == 0:
                yield key, *self._take(key)
                continue
            part = rows.slice(0, count)
            size = size if count == rows.num_rows else part.nbytes
            while count > 1 and size > 2 * self._batch_bytes:  # a few of them are very large
                count //= 2
                part = rows.slice(0, count)
                size = part.nbytes
            buffer.slices.append(part)
            buffer.rows += count
            buffer.size_bytes += size
            self._total_bytes += size
            rows = rows.slice(count)
            mark += count if in_order else 0
            if rows.num_rows or buffer.size_bytes >= self._batch_bytes:
                yield key, *self._take(key)
        yield from self._shrink()

    def take_all(self) -> Iterator[tuple[K, pa.RecordBatch, int]]:
        """Yields all buffered rows, in full batches or not."""
        for key in list(self._buffers):
            yield key, *self._take(key)

    @property
    def lowest_mark(self) -> int | None:
        """The lowest mark of the buffered rows; None if there are none."""
        first = next(
            iter(self._buffers.values()), None
        )  # marks never decrease, so the first buffer has it
        return None if first is None else first.mark

    def _shrink(self) -> Iterator[tuple[K, pa.RecordBatch, int]]:
        if self._total_bytes <= self._total_bytes_max:
            return
        for key in sorted(self._buffers, key=lambda k: -self._buffers[k].size_bytes):
            if self._total_bytes <= self._total_bytes_max // 2:
                return
            yield key, *self._take(key)

    def _take(self, key: K) -> tuple[pa.RecordBatch, int]:
        buffer = self._buffers.pop(key)
        self._total_bytes -= buffer.size_bytes
        if len(buffer.slices) == 1:
            return buffer.slices[0], buffer.mark
        (batch,) = pa.Table.from_batches(buffer.slices).combine_chunks().to_batches()
        return batch, buffer.mark
