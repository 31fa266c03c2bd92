"""Logs of one bucket that are damaged on disk, and a check of what a server makes of them.

The check knows what was acknowledged, and where each byte of it was written, from the bytes that it
sent. It parses what a reader gets by itself.
"""

from __future__ import annotations

import random
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import google_crc32c
import pyarrow as pa

from sluice.errors import CorruptRecord
from sluice.formats.log.batch import encode_log_batch, read_header
from sluice.server.tablet.buckets.files import LogFiles
from sluice.server.tablet.logs.log import BucketLog

HEADER = struct.Struct("<qibqIhbiqii")
"""Offset, length, magic, time, checksum, schema, attributes, delta, writer, sequence, count."""
TIME = range(13, 21)
"""Bytes of a header that have the time, which nothing but the index file has too."""
RESERVED = 1_000
"""How far behind its end the metadata say that a log may be."""


class Ticks:
    """A clock that a test moves; only its time of day."""

    def __init__(self) -> None:
        self.ms = 1_700_000_000_000

    def now_ms(self) -> int:
        return self.ms

    def monotonic_s(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        raise AssertionError("nobody sleeps here")


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """A batch that a writer knows to be stored."""

    base_offset: int
    count: int
    sent: bytes
    file: str
    position: int
    time_ms: int

    @property
    def stop(self) -> int:
        return self.base_offset + self.count

    @property
    def end(self) -> int:
        """The byte after it."""
        return self.position + len(self.sent)


@dataclass(slots=True)
class Written:
    """A folder as a server left it, and what was acknowledged."""

    folder: Path
    is_clean: bool
    batches: list[Acknowledged] = field(default_factory=list)
    synced: int = 0
    """How many batches an index file names."""

    @property
    def behind(self) -> int:
        """What the metadata say of the end of the log."""
        return self.batches[-1].stop + RESERVED * (not self.is_clean)

    def open(self, **more: Any) -> BucketLog:
        return open_log(self.folder, behind=self.behind, **more)


def open_log(folder: Path, clock: Ticks | None = None, **more: Any) -> BucketLog:
    """Opens a log as the server does after a kill on a machine that ran on."""
    given = {"segment_bytes": 1 << 20, "is_same_boot": True} | more
    segment_bytes, files = given.pop("segment_bytes"), given.pop("files", LogFiles())
    return BucketLog("db.t 0", folder, files, segment_bytes, clock or Ticks(), **given)


def write(
    folder: Path, rng: random.Random, *, batches: int, segment_bytes: int, is_clean: bool
) -> Written:
    """Appends batches of several writers, some of the same size, and syncs now and then."""
    clock, made = Ticks(), Written(folder, is_clean)
    log = open_log(folder, clock, segment_bytes=segment_bytes)
    sequences = dict.fromkeys((0, 1, 2), 0)
    sync_at = {rng.randrange(batches) for _ in range(2)} if rng.random() < 0.8 else set()
    file, position = "", 0
    for number in range(batches):
        writer = rng.choice((0, 1, 2, -1))
        sent = some_batch(rng, number, writer, sequences.get(writer, -1))
        if writer >= 0:
            sequences[writer] += 1
        clock.ms += rng.choice((0, 1, 7, 1_000))
        base = log.append(read_header(sent), sent)
        newest = max(path.name for path in folder.glob("*.log"))
        file, position = newest, position if newest == file else 0
        count = max(HEADER.unpack_from(sent)[-1], 1)
        made.batches.append(Acknowledged(base, count, sent, file, position, clock.ms))
        position += len(sent)
        if number in sync_at:
            log.sync()
            made.synced = number + 1
    first = [one.file for one in made.batches].index(made.batches[-1].file)
    made.synced = max(made.synced, first)
    if is_clean:
        log.close()
        made.synced = batches
    return made


def some_batch(rng: random.Random, number: int, writer: int, sequence: int) -> bytes:
    rows = rng.choice((0 if writer >= 0 else 1, 1, 1, 2, 8, 8, 8, 40))
    data = pa.RecordBatch.from_pydict(
        {"n": pa.array(range(rows), pa.int64()), "s": [f"{number:04d}"] * rows},
        schema=pa.schema([("n", pa.int64()), ("s", pa.string())]),
    )
    return encode_log_batch(
        data,
        1,
        writer_id=writer,
        batch_sequence=sequence,
        compression=rng.choice(("ZSTD", "NONE")),
        change_types=bytes(rng.choices((1, 3, 4), k=rows)) if rng.random() < 0.5 else None,
    )


class Check:
    """Opens a damaged log and compares it with what was acknowledged."""

    def __init__(self, written: Written, what: str, *, may_lack: int = 1 << 62) -> None:
        """:param may_lack: batches from this number on may be missing, and their offsets anew."""
        self._written, self._what = written, what
        self._by_offset = {one.base_offset: one for one in written.batches}
        self._may_lack = may_lack
        self.was_refused = False

    def run(self) -> None:
        """Starts the log, gives up what is damaged, and starts it again."""
        log = self._written.open()
        served = self._served(log)
        while served is None:
            self.was_refused = True
            if not self._give_up(log):
                return
            served = self._served(log)
        kept = self._written.batches[: self._may_lack]
        fresh = some_batch(random.Random(1), 9_999, -1, -1)
        base = log.append(read_header(fresh), fresh)
        assert base >= max((one.stop for one in kept), default=0), self._why("reused an offset")
        for is_clean in (False, True):
            log = self._written.open()
            again = self._served(log, base)
            assert again == served, self._why("a later start serves other batches")
            if is_clean:
                log.close()

    def _give_up(self, log: BucketLog) -> bool:
        """Checks a refusal; False if nothing can be given up."""
        (damage, text), *_ = log.damage()
        assert str(self._written.folder) in text, self._why(f"names no file: {text}")
        one = some_batch(random.Random(1), 9_999, -1, -1)
        for call in (lambda: log.append(read_header(one), one), lambda: next(batches_from(log, 0))):
            try:
                call()
            except CorruptRecord as error:
                assert str(error) == text, self._why(str(error))
            else:
                raise AssertionError(self._why("a damaged log is used"))
        assert damage.stop is not None, self._why("the end is in the metadata")
        assert f"`sluice skip-damaged db.t 0:{damage.start}`" in text
        log.give_up(damage.start, damage.stop)
        return True

    def _served(self, log: BucketLog, until: int | None = None) -> set[int] | None:
        """The base offsets of what readers get, and nothing else; None if the log is refused."""
        found, missing = set[int](), set(self._by_offset)
        offset, end = 0, log.end_offset if until is None else until
        while offset < end:
            try:
                for base, stop, content, time_ms in batches_from(log, offset):
                    if base >= end:
                        return found
                    self._check_batch(base, stop, content, time_ms)
                    found.add(base)
                    offset = stop
            except CorruptRecord as error:
                if "next_offset" not in error.details:
                    return None
                lost = range(error.details["base_offset"], error.details["next_offset"])
                assert offset in lost, self._why(f"{lost} does not hold offset {offset}")
                missing -= set(lost)
                offset = lost.stop
        missing -= {one.base_offset for one in self._written.batches[self._may_lack :]}
        assert missing <= found, self._why(f"the batches at {missing - found} are missing")
        return found

    def _check_batch(self, base: int, stop: int, content: bytes, time_ms: int) -> None:
        one = self._by_offset.get(base)
        assert one is not None, self._why(f"nobody wrote a batch at {base}")
        assert (content, stop) == (one.sent[25:], one.stop), self._why(f"{base} has other rows")
        is_synced = self._written.batches.index(one) < self._written.synced
        assert time_ms == one.time_ms or not is_synced, self._why(f"{base} has another time")

    def _why(self, text: str) -> str:
        return f"{text}, after {self._what}"


def batches_from(log: BucketLog, offset: int) -> Iterator[tuple[int, int, bytes, int]]:
    """Base offset, next offset, content and time of the batches that one fetch returns.

    :raises CorruptRecord: the log is damaged, or a user has given the offset up.
    """
    found = log.slice(offset, 1 << 20, min_one_batch=True)
    assert found is not None
    content = bytearray(found.length)
    log.read(found, memoryview(content))
    position = 0
    while position < len(content):
        base, length, _, time_ms, crc, *_, count = HEADER.unpack_from(content, position)
        end = position + 12 + length
        assert end <= len(content), "a batch is cut"
        covered = bytes(content[position + 25 : end])
        assert google_crc32c.value(covered) == crc, "a reader gets a damaged batch"
        yield base, base + max(count, 1), covered, time_ms
        position = end
