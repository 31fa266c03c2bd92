"""The batches of a writer that are not stored yet, and how many of its rows are."""

from __future__ import annotations

import threading
from collections import deque

from sluice.model import TableBucket


class PendingBatches:
    """A mark for each batch that is queued or being sent, in order. One lock guards all.

    A mark is a lower bound on the number of given rows before the batch.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._marks: dict[TableBucket, deque[int]] = {}
        self._floor = 0

    def add(self, bucket: TableBucket, mark: int) -> None:
        with self._lock:
            self._marks.setdefault(bucket, deque()).append(mark)

    def stored(self, bucket: TableBucket) -> None:
        """Removes the first batch of a bucket."""
        with self._lock:
            marks = self._marks[bucket]
            marks.popleft()
            if not marks:
                del self._marks[bucket]

    def raise_floor(self, rows: int) -> None:
        """Notes that the first ``rows`` rows are in batches, stored or pending."""
        with self._lock:
            self._floor = rows

    @property
    def stored_rows(self) -> int:
        """The number of rows, from the first, that are stored without a gap."""
        with self._lock:
            marks = [mark for marks in self._marks.values() for mark in marks]
            return min([self._floor, *marks])
