"""What a writer has sent and what of it is stored, for itself and for whoever goes on after it."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from typing import Protocol

from sluice.model import TableBucket


@dataclass(frozen=True, slots=True)
class WriterStart:
    """What the batches of a writer depend on, beside the rows that it is given."""

    writer_id: int
    next_bucket: int
    """Where the round of the buckets begins, if the table has no bucket key."""
    batch_bytes: int
    schema_id: int
    """Of the table as it was then: columns may have come since."""


@dataclass(frozen=True, slots=True)
class RowRange:
    """The rows of a batch: so many, from the ``first`` on.

    They are counted in each bucket, or in each partition where the writer chooses the buckets. Two
    writers that are given the same rows and cut them alike make the same batches.
    """

    first: int
    rows: int


class WriterJournal(Protocol):
    """Remembers what a writer sends, so that another process can go on exactly there.

    The second writer is given the same rows from the first on, and sends with the id and the
    sequences of the first. What the journal knows to be stored it leaves out. A batch whose outcome
    is unknown it sends again: the server stores each sequence of a writer once.
    """

    @property
    def start(self) -> WriterStart | None:
        """Of the writer that goes on here; None before the first batch of all."""

    def begin(self, start: WriterStart) -> None:
        """Called once, before the first batch is sent."""

    def known(self, bucket: TableBucket) -> list[RowRange]:
        """The batches of a bucket by sequence. All but the last are stored; the last may be."""

    def sending(self, bucket: TableBucket, cut: RowRange, stored_rows: int) -> None:
        """Called before a batch is sent for the first time, when those before it are stored.

        Of several buckets at once, from several threads. An error ends the writer.

        :param stored_rows: so many rows, from the first on, are stored without a gap.
        """


@dataclass(frozen=True, slots=True)
class PendingBatch:
    """A batch that is on its way, or will be."""

    mark: int
    """All rows of this batch come after so many that the writer was given, maybe more."""
    cut: RowRange
    again: bool = False
    """Whether the journal has it: another process has sent it before."""


class PendingBatches:
    """The batches of each bucket that are not stored yet, in order. Its lock guards all."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._batches: dict[TableBucket, deque[PendingBatch]] = {}
        self._floor = 0

    def add(self, bucket: TableBucket, batch: PendingBatch) -> None:
        with self._lock:
            self._batches.setdefault(bucket, deque()).append(batch)

    def first(self, bucket: TableBucket) -> PendingBatch:
        """The one under way: of a bucket there is one at a time."""
        with self._lock:
            return self._batches[bucket][0]

    def stored(self, bucket: TableBucket) -> None:
        """Takes the first one of a bucket out."""
        with self._lock:
            batches = self._batches[bucket]
            batches.popleft()
            if not batches:
                del self._batches[bucket]

    def raise_floor(self, rows: int) -> None:
        """The first so many rows are in batches by now, stored or added here."""
        with self._lock:
            self._floor = rows

    @property
    def stored_rows(self) -> int:
        """So many rows, from the first on, are stored without a gap."""
        with self._lock:
            marks = [batch.mark for batches in self._batches.values() for batch in batches]
            return min([self._floor, *marks])
