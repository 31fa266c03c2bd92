"""Idempotent writers of one bucket: a repeated batch is stored once.

See docs/fluss/messages.md#idempotent-writers
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import NamedTuple

from sluice.errors import DuplicateSequence, OutOfOrderSequence

RETAINED_BATCHES = 5
"""Number of remembered batches per writer, and so the maximum of batches in flight."""

WRITERS_MAX = 10_000
"""Maximum number of writers per bucket; the one idle longest is forgotten first."""

EXPIRATION_MS = 7 * 24 * 60 * 60 * 1000
"""A writer that has been idle for this long is forgotten."""

_SEQUENCE_MAX = 2**31 - 1


class _Batch(NamedTuple):
    sequence: int
    base_offset: int


class _Writer:
    __slots__ = ("batches", "last_ms")

    def __init__(self) -> None:
        self.batches: deque[_Batch] = deque(maxlen=RETAINED_BATCHES)
        self.last_ms = -1


class WriterStates:
    """The last batch sequences of each writer. Guarded by the log's lock."""

    def __init__(self) -> None:
        self._writers: OrderedDict[int, _Writer] = OrderedDict()

    def __len__(self) -> int:
        return len(self._writers)

    def check(self, writer_id: int, sequence: int) -> int | None:
        """Returns None for the writer's next batch, or the base offset of a stored one.

        :raises OutOfOrderSequence: earlier batches are missing.
        :raises DuplicateSequence: the batch is stored, but its offset is no longer known.
        """
        writer = self._writers.get(writer_id)
        if writer is None:
            if sequence == 0:
                return None
            raise OutOfOrderSequence(
                f"writer {writer_id}: its first batch here has sequence {sequence}, not 0"
            )
        for batch in writer.batches:
            if batch.sequence == sequence:
                return batch.base_offset
        last = writer.batches[-1].sequence
        expected = 0 if last == _SEQUENCE_MAX else last + 1
        if sequence == expected:
            return None
        if sequence < writer.batches[0].sequence:
            raise DuplicateSequence(
                f"writer {writer_id}: sequence {sequence} is already stored; the last one is {last}"
            )
        raise OutOfOrderSequence(
            f"writer {writer_id}: expected sequence {expected}, got {sequence}"
        )

    def record(self, writer_id: int, sequence: int, base_offset: int, timestamp_ms: int) -> None:
        """Records a stored batch."""
        writer = self._writers.setdefault(writer_id, _Writer())
        writer.batches.append(_Batch(sequence, base_offset))
        writer.last_ms = timestamp_ms
        self._writers.move_to_end(writer_id)
        if len(self._writers) > WRITERS_MAX:
            self._writers.popitem(last=False)

    def expire(self, now_ms: int) -> None:
        """Forgets writers that have been idle too long."""
        while self._writers:
            writer = next(iter(self._writers.values()))
            if now_ms - writer.last_ms < EXPIRATION_MS:
                return
            self._writers.popitem(last=False)
