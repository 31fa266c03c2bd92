"""Idempotent writers of one bucket: a batch that is sent again is stored once.

See docs/fluss/messages.md#idempotent-writers
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import NamedTuple

from sluice.errors import DuplicateSequence, OutOfOrderSequence

RETAINED_BATCHES = 5
"""How many batches of a writer are remembered: so many may be under way at once."""

WRITERS_MAX = 10_000
"""Most writers of one bucket; the one that was silent longest is forgotten first."""

EXPIRATION_MS = 7 * 24 * 60 * 60 * 1000
"""A writer that was silent for so long is forgotten."""

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
    """The last sequences of each writer. The log's lock guards it."""

    def __init__(self) -> None:
        self._writers: OrderedDict[int, _Writer] = OrderedDict()

    def __len__(self) -> int:
        return len(self._writers)

    def check(self, writer_id: int, sequence: int) -> int | None:
        """None if the batch is the writer's next, or the base offset under which it is stored.

        :raises OutOfOrderSequence: batches between are missing.
        :raises DuplicateSequence: stored before, too long ago to know its offset.
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
                f"writer {writer_id}: sequence {sequence} is stored already; the last one is {last}"
            )
        raise OutOfOrderSequence(
            f"writer {writer_id}: sequence {sequence}, but {expected} comes next"
        )

    def record(self, writer_id: int, sequence: int, base_offset: int, timestamp_ms: int) -> None:
        """Notes a batch that has been stored."""
        writer = self._writers.setdefault(writer_id, _Writer())
        writer.batches.append(_Batch(sequence, base_offset))
        writer.last_ms = timestamp_ms
        self._writers.move_to_end(writer_id)
        if len(self._writers) > WRITERS_MAX:
            self._writers.popitem(last=False)

    def expire(self, now_ms: int) -> None:
        """Forgets writers that were silent too long."""
        while self._writers:
            writer = next(iter(self._writers.values()))
            if now_ms - writer.last_ms < EXPIRATION_MS:
                return
            self._writers.popitem(last=False)
