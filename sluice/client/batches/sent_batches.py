"""Sent and stored batches of a writer, for itself and for a process that resumes it."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from typing import Protocol

from sluice.model import TableBucket


@dataclass(frozen=True, slots=True)
class WriterStart:
    """The settings that determine a writer's batches, in addition to its rows."""

    writer_id: int
    next_bucket: int
    """The first bucket to use, if the table has no bucket key."""
    batch_bytes: int
    schema_id: int
    """The schema of the table at that time; columns may have been added since."""


@dataclass(frozen=True, slots=True)
class RowRange:
    """The rows of a batch: ``rows`` rows, starting with number ``first``.

    Rows are numbered per bucket, or per partition if the writer chooses the buckets. Two writers
    with the same rows and the same ranges build the same batches.
    """

    first: int
    rows: int


class WriterJournal(Protocol):
    """Records what a writer sends, so that another process can resume it.

    The second writer gets the same rows from the first one on, and uses the writer id and sequence
    numbers of the first writer. It skips batches that are stored according to the journal. It sends
    a batch with an unknown outcome again: the server stores each sequence number once.
    """

    @property
    def start(self) -> WriterStart | None:
        """The settings of the writer to resume; None before the first batch."""

    def begin(self, start: WriterStart) -> None:
        """Called once, before the first batch is sent."""

    def known(self, bucket: TableBucket) -> list[RowRange]:
        """Returns a bucket's sent batches by sequence. All but the last are certainly stored."""

    def sending(self, bucket: TableBucket, cut: RowRange, stored_rows: int) -> None:
        """Called before a batch is first sent, after the earlier batches of its bucket are stored.

        Several threads call it at once for different buckets. An error ends the writer.

        :param stored_rows: the number of rows, from the first, that are stored without a gap.
        """


@dataclass(frozen=True, slots=True)
class PendingBatch:
    """A batch that is queued or being sent."""

    mark: int
    """A lower bound on the number of given rows before this batch."""
    cut: RowRange
    again: bool = False
    """Whether another process sent this batch before, according to the journal."""


class PendingBatches:
    """The batches of each bucket that are not stored yet, in order. One lock guards all."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._batches: dict[TableBucket, deque[PendingBatch]] = {}
        self._floor = 0

    def add(self, bucket: TableBucket, batch: PendingBatch) -> None:
        with self._lock:
            self._batches.setdefault(bucket, deque()).append(batch)

    def first(self, bucket: TableBucket) -> PendingBatch:
        """Returns the batch of a bucket that is being sent; there is at most one."""
        with self._lock:
            return self._batches[bucket][0]

    def stored(self, bucket: TableBucket) -> None:
        """Removes the first batch of a bucket."""
        with self._lock:
            batches = self._batches[bucket]
            batches.popleft()
            if not batches:
                del self._batches[bucket]

    def raise_floor(self, rows: int) -> None:
        """Notes that the first ``rows`` rows are in batches, stored or pending."""
        with self._lock:
            self._floor = rows

    @property
    def stored_rows(self) -> int:
        """The number of rows, from the first, that are stored without a gap."""
        with self._lock:
            marks = [batch.mark for batches in self._batches.values() for batch in batches]
            return min([self._floor, *marks])
