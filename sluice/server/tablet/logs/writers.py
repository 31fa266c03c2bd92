"""Idempotent writers of one bucket: a repeated batch is stored once.

See docs/fluss/messages.md#idempotent-writers
"""

from __future__ import annotations

import json
import zlib
from collections import OrderedDict, deque
from pathlib import Path
from typing import NamedTuple

import structlog

from sluice.errors import DuplicateSequence, OutOfOrderSequence

RETAINED_BATCHES = 5
"""Number of remembered batches per writer, and so the maximum of batches in flight."""

WRITERS_MAX = 10_000
"""Maximum number of writers per bucket; the one idle longest is forgotten first."""

EXPIRATION_MS = 7 * 24 * 60 * 60 * 1000
"""A writer that has been idle for this long is forgotten."""

WRITERS_FILE = "writers"
"""File in a log's folder: the writers whose last batch was in segments that are deleted."""

_SEQUENCE_MAX = 2**31 - 1

_log = structlog.get_logger("sluice.log")


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

    @property
    def highest_id(self) -> int:
        """The highest id of a writer, or -1."""
        return max(self._writers, default=-1)

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

    def encode(self, before: int) -> bytes:
        """The writers whose last batch has an offset below ``before``, as the content of a file."""
        found = [
            [writer_id, writer.last_ms, [list(batch) for batch in writer.batches]]
            for writer_id, writer in self._writers.items()
            if writer.batches[-1].base_offset < before
        ]
        body = json.dumps(found, separators=(",", ":")).encode()
        return b"%08x\n%s\n" % (zlib.crc32(body), body)

    def recall(self, path: Path) -> None:
        """Records the writers of such a file, if there is one, before those of the log.

        :raises OSError: it cannot be read.
        """
        try:
            self._load(path.read_bytes())
        except FileNotFoundError:
            pass
        except ValueError as error:
            _log.warning(
                "the file of old writers is damaged; those that were idle since must begin anew",
                file=str(path),
                error=str(error),
            )

    def _load(self, content: bytes) -> None:
        """:raises ValueError: the content is damaged."""
        crc, _, body = content.removesuffix(b"\n").partition(b"\n")
        if int(crc, 16) != zlib.crc32(body):
            raise ValueError("its checksum is wrong")
        for writer_id, last_ms, batches in json.loads(body):
            for sequence, base_offset in batches:
                self.record(writer_id, sequence, base_offset, last_ms)

    def expire(self, now_ms: int) -> None:
        """Forgets writers that have been idle too long."""
        while self._writers:
            writer = next(iter(self._writers.values()))
            if now_ms - writer.last_ms < EXPIRATION_MS:
                return
            self._writers.popitem(last=False)
