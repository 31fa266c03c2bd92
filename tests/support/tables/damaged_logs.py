"""Logs of one bucket that are damaged on disk, and a check of what a server makes of them.

The check shares no code with a recovery: it knows what was acknowledged, and where each byte of it
was written, from the bytes that it sent. It parses what a reader gets by itself.
"""

from __future__ import annotations

import random
import struct
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import google_crc32c
import pyarrow as pa
from structlog.testing import capture_logs

from sluice.errors import CorruptRecord, DuplicateSequence, OutOfOrderSequence
from sluice.formats.log.batch import encode_log_batch, read_header
from sluice.server.tablet.buckets.files import LogFiles, Part
from sluice.server.tablet.logs.fetch import read_slice
from sluice.server.tablet.logs.log import BucketLog

HEADER = struct.Struct("<qibqIhbiqii")
"""Offset, length, magic, time, checksum, schema, attributes, delta, writer, sequence, count."""
HEADER_START = struct.Struct("<q")
LENGTH = range(8, 12)
TIME = range(13, 21)
"""Bytes of a header that have the time, which nothing but the index file has too."""


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
    writer_id: int
    sequence: int

    @property
    def stop(self) -> int:
        return self.base_offset + self.count

    @property
    def content(self) -> bytes:
        """What its checksum covers."""
        return self.sent[25:]

    def has(self, file: str, places: Sequence[int]) -> bool:
        end = self.position + len(self.sent)
        return self.file == file and any(self.position <= at < end for at in places)


@dataclass(slots=True)
class Written:
    """A folder as a server left it, and what was acknowledged."""

    folder: Path
    batches: list[Acknowledged] = field(default_factory=list)
    synced: int = 0
    """How many batches an index file names."""


def open_log(folder: Path, clock: Ticks | None = None, **more: Any) -> BucketLog:
    """Opens a log as the server does after a kill on a machine that ran on."""
    given = {"segment_bytes": 1 << 20, "is_same_boot": True} | more
    segment_bytes, files = given.pop("segment_bytes"), given.pop("files", LogFiles())
    return BucketLog("db.t 0", folder, files, segment_bytes, clock or Ticks(), **given)


def write(
    folder: Path, rng: random.Random, *, batches: int, segment_bytes: int, is_clean: bool
) -> Written:
    """Appends batches of several writers, some of the same size, and syncs now and then."""
    clock, made = Ticks(), Written(folder)
    log = open_log(folder, clock, segment_bytes=segment_bytes)
    sequences = dict.fromkeys((0, 1, 2), 0)
    sync_at = {rng.randrange(batches) for _ in range(2)} if rng.random() < 0.8 else set()
    file, position = "", 0
    for number in range(batches):
        writer = rng.choice((0, 1, 2, -1))
        sequence = sequences.get(writer, -1)
        sent = some_batch(rng, number, writer, sequence)
        if writer >= 0:
            sequences[writer] += 1
        clock.ms += rng.choice((0, 1, 7, 1_000))
        base = log.append(read_header(sent), sent)
        newest = max(path.name for path in folder.glob("*.log"))
        file, position = newest, position if newest == file else 0
        count = max(HEADER.unpack_from(sent)[-1], 1)
        made.batches.append(
            Acknowledged(base, count, sent, file, position, clock.ms, writer, sequence)
        )
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
    kinds = bytes(rng.choices((1, 3, 4), k=rows)) if rng.random() < 0.5 else None
    compression = rng.choice(("ZSTD", "NONE"))
    return encode_log_batch(
        data,
        1,
        writer_id=writer,
        batch_sequence=sequence,
        compression=compression,
        change_types=kinds,
    )


def as_an_earlier_version(written: Written) -> None:
    """Replaces the index files by those that versions without synced records wrote."""
    entry, footer = struct.Struct("<qqqqi"), struct.Struct("<qqqI")
    for index in written.folder.glob("*.index"):
        log = index.with_suffix(".log")
        found = [one for one in written.batches if one.file == log.name]
        if written.synced < len(written.batches) and found[-1] is written.batches[-1]:
            index.unlink()  # they had none of a segment that was not closed
            continue
        body = b"".join(
            entry.pack(one.base_offset, one.position, one.time_ms, one.writer_id, one.sequence)
            for one in found
        )
        end = footer.pack(log.stat().st_size, found[-1].stop, len(found), google_crc32c.value(body))
        index.write_bytes(b"SLIX\x01" + body + end)
    if written.synced < len(written.batches):
        names = [one.file for one in written.batches]
        written.synced = names.index(names[-1])


@dataclass(slots=True)
class Damage:
    """What was done to which files: the places of the bytes as they were written."""

    places: Mapping[str, Sequence[int]]
    text: str
    lost_bytes: bool = False
    """Whether bytes are missing, so that later ones have moved."""
    is_one_bit: bool = False

    def touches(self, one: Acknowledged) -> bool:
        return any(one.has(file, places) for file, places in self.places.items())


def flip(written: Written, rng: random.Random, bits: int = 1) -> Damage:
    """Flips bits of one file: anywhere, in a header, or in an index file."""
    files = sorted(path for path in written.folder.glob("*") if path.stat().st_size)
    logs = [path for path in files if path.suffix == ".log"]
    kind = rng.random()
    if kind < 0.5:
        one = rng.choice(written.batches)
        path, first, last = written.folder / one.file, one.position, one.position + 48
    else:
        path = rng.choice(logs if kind < 0.8 else files)
        first, last = 0, path.stat().st_size
    content, places = bytearray(path.read_bytes()), list[int]()
    for _ in range(bits):
        at, bit = rng.randrange(first, last), rng.randrange(8)
        content[at] ^= 1 << bit
        places.append(at)
    path.write_bytes(content)
    text = f"bits of {path.name} at bytes {places}"
    return Damage({path.name: places}, text, is_one_bit=bits == 1)


def flip_beside_a_length(written: Written, rng: random.Random) -> Damage:
    """Flips a bit of the length of a batch, and another one of the same batch."""
    one = rng.choice(written.batches)
    path = written.folder / one.file
    content = bytearray(path.read_bytes())
    end = one.position + len(one.sent)
    places = [one.position + rng.choice(LENGTH), rng.randrange(one.position, end)]
    for at in places:
        content[at] ^= 1 << rng.randrange(8)
    path.write_bytes(content)
    return Damage({path.name: places}, f"bits of {path.name} at bytes {places}")


def zero(written: Written, rng: random.Random, size: int = 256) -> Damage:
    """Zeroes a page of a segment."""
    one = rng.choice(written.batches)
    path = written.folder / one.file
    content = bytearray(path.read_bytes())
    start = rng.randrange(len(content))
    stop = min(start + size, len(content))
    places = [at for at in range(start, stop) if content[at]]
    content[start:stop] = bytes(stop - start)
    path.write_bytes(content)
    return Damage({path.name: places}, f"zeroes from {start} to {stop} of {path.name}")


def cut_out(written: Written, rng: random.Random) -> Damage:
    """Removes bytes from the middle of a segment, or its end."""
    one = rng.choice(written.batches)
    path = written.folder / one.file
    content = path.read_bytes()
    start = rng.randrange(len(content))
    stop = len(content) if rng.random() < 0.3 else min(start + rng.randrange(1, 400), len(content))
    path.write_bytes(content[:start] + content[stop:])
    text = f"bytes {start} to {stop} removed from {path.name}"
    return Damage({path.name: range(start, stop)}, text, lost_bytes=True)


def tear(written: Written, rng: random.Random) -> None:
    """Adds the beginning of an append, often with a row that has batches which would fit."""
    stop = written.batches[-1].stop
    inner = b""
    for number in range(rng.randrange(4)):
        forged = some_batch(rng, number, -1, -1)
        inner += HEADER_START.pack(stop + 2 + number) + forged[8:]
    data = pa.record_batch({"s": pa.array([b"y" * rng.randrange(64), inner], pa.binary())})
    sent = HEADER_START.pack(stop) + encode_log_batch(data, 1, compression="NONE")[8:]
    with (written.folder / written.batches[-1].file).open("ab") as file:
        file.write(sent[: rng.randrange(1, len(sent))])


class DyingFiles(LogFiles):
    """Files of a process that dies before, within or after one of its writes and syncs."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._left = rng.randrange(1, 5)

    def write(self, handle: int, position: int, parts: Sequence[Part]) -> None:
        content = b"".join(parts)
        if self._is_last():
            super().write(handle, position, [content[: self._rng.randrange(len(content) + 1)]])
            raise KeyboardInterrupt
        super().write(handle, position, [content])

    def sync(self, path: Path, folders: Sequence[Path] = ()) -> None:
        if self._is_last():
            raise KeyboardInterrupt
        super().sync(path, folders)

    def _is_last(self) -> bool:
        self._left -= 1
        return not self._left


def start_and_die(written: Written, rng: random.Random) -> list[Any]:
    """Starts the log of a process that may die in it; returns the warnings that it logged."""
    with capture_logs() as events, suppress(KeyboardInterrupt):
        open_log(written.folder, files=DyingFiles(rng))
    return [event for event in events if event["log_level"] in ("warning", "error")]


class Check:
    """Opens a damaged log and compares it with what was acknowledged."""

    def __init__(self, written: Written, damage: Damage, **options: Any) -> None:
        self.written, self.damage, self.options = written, damage, options
        self.hurt = [one for one in written.batches if damage.touches(one)]
        self.whole = {one.base_offset: one for one in written.batches if not damage.touches(one)}
        self._served: set[int] = set()
        self._first_end = 1 << 62

    def run(self, rng: random.Random, deaths: int = 0) -> None:
        """Starts the log three times: at once, after another kill, and after a clean stop.

        :param deaths: starts before that do not end.
        """
        dead = [event for _ in range(deaths) for event in start_and_die(self.written, rng)]
        log, events = self._opened()
        events = dead + events
        with capture_logs() as more:
            unreadable = self._read(log)
        end = self._first_end = log.end_offset
        self._check_reported([*events, *more], unreadable)
        assert end >= self._end_known(), self._why(f"the log ends at {end}")
        for _ in range(rng.randrange(3)):  # kills before anything is appended
            log, _ = self._opened()
            assert log.end_offset == end, self._why(f"a second start ends at {log.end_offset}")
        assert self._read(log) == unreadable, self._why("a second start reads other batches")
        stored = self._send_again(log, rng)
        fresh = some_batch(rng, 9_999, -1, -1)
        assert log.append(read_header(fresh), fresh) >= end, self._why("an offset was given twice")
        self._read(log, stored)
        for is_clean in (False, True, True):
            if is_clean:
                log.close()
            log, _ = self._opened()
            again = self._read(log, stored)
            assert _offsets(again, end) == _offsets(unreadable, end), self._why("it changed")
        log.close()

    def _end_known(self) -> int:
        """The end of what was acknowledged, as far as the damage leaves a trace of it."""
        batches = self.written.batches
        if not self.damage.lost_bytes and not self._like_a_torn_end():
            return batches[-1].stop
        named = batches[: self.written.synced]
        return max((one.stop for one in (*named, *self.whole.values())), default=0)

    def _opened(self) -> tuple[BucketLog, list[Any]]:
        with capture_logs() as events:
            log = open_log(self.written.folder, **self.options)
        return log, [event for event in events if event["log_level"] in ("warning", "error")]

    def _why(self, text: str) -> str:
        return f"{text}, after {self.damage.text}"

    def _read(self, log: BucketLog, stored: Sequence[bytes] = ()) -> list[tuple[int, int]]:
        """Reads everything as a reader does, and returns the ranges that it could not read."""
        unreadable, seen, offset = list[tuple[int, int]](), dict[int, bytes](), log.start_offset
        while offset < log.end_offset:
            try:
                for base, stop, content, time_ms in batches_from(log, offset):
                    assert base == offset, self._why(f"offset {offset} is missing, {base} follows")
                    offset = stop
                    self._check_served(base, content, time_ms, stored)
                    assert content not in seen.values() or not content, self._why("it is doubled")
                    seen[base] = content
                    self._served.add(base)
            except CorruptRecord as error:
                assert error.details["base_offset"] <= offset < error.details["next_offset"]
                unreadable.append((offset, error.details["next_offset"]))
                offset = error.details["next_offset"]
        missing = self.whole.keys() - seen.keys()
        missing -= self._like_a_torn_end()
        assert not missing, self._why(f"the intact batches at {sorted(missing)} are lost")
        return unreadable

    def _like_a_torn_end(self) -> set[int]:
        """Batches that no start can tell from a row of a torn append; the first begins it.

        Nothing synced names them. Both fields that say how long the first is say that it is longer
        than the file: the length, and the one of its Arrow message. Batches in a row of a torn
        append would look the same, so readers must not get them.
        """
        for one in self.hurt:
            places = {at - one.position for at in self.damage.places[one.file]}
            message = 48 + (0 if one.sent[27] & 1 else one.count)
            is_unsynced = self.written.batches.index(one) >= self.written.synced
            if is_unsynced and places & set(LENGTH) and places & set(range(message, message + 8)):
                return {base for base in self.whole if base > one.base_offset} | {one.base_offset}
        return set()

    def _check_served(
        self, base: int, content: bytes, time_ms: int, stored: Sequence[bytes]
    ) -> None:
        one = next((one for one in self.written.batches if one.base_offset == base), None)
        if base >= self._first_end:
            return  # stored since
        if one is None and not self.damage.is_one_bit:  # it may have got an offset at random
            one = next((one for one in self.hurt if one.content == content), None)
        assert one is not None, self._why(f"nobody wrote a batch at {base}")
        assert content == one.content, self._why(f"offset {base} has other rows")
        if one.base_offset in self.whole:
            why = self._why(f"offset {base} has the time {time_ms}")
            assert time_ms == one.time_ms or self._may_be_its_time(one, time_ms), why

    def _may_be_its_time(self, one: Acknowledged, time_ms: int) -> bool:
        """Whether the time of the next batch is wrong, and too low.

        Without an index file, the time of this one could as well be too high.
        """
        number = self.written.batches.index(one)
        before_ms = self.written.batches[number - 1].time_ms if number else 0
        following = self.written.batches[number + 1 : number + 2]
        return (
            number >= self.written.synced
            and any(next_one in self.hurt for next_one in following)
            and all(map(self._only_time_is_hurt, following))
            and before_ms <= time_ms <= one.time_ms
        )

    def _check_reported(self, events: list[Any], unreadable: list[tuple[int, int]]) -> None:
        """Each hurt batch is named: in the log, by an error, or by readers' own checks."""
        named = [*_ranges(events), *unreadable]
        for one in self.hurt:
            if any(start <= one.base_offset < stop for start, stop in named):
                continue
            if self.damage.lost_bytes and (
                one.base_offset in self._served or one.base_offset >= self._first_end
            ):
                continue  # the bytes that went were the same as others, or all that nobody recorded
            assert self._only_time_is_hurt(one), self._why(f"nobody reports {one.base_offset}")
        if not self.hurt and self.damage.is_one_bit:
            assert events, self._why("nobody reports it")

    def _only_time_is_hurt(self, one: Acknowledged) -> bool:
        """Whether only the time of a batch that no index file names is wrong."""
        number = self.written.batches.index(one)
        places = self.damage.places.get(one.file, ())
        mine = [at - one.position for at in places if one.has(one.file, [at])]
        return number >= self.written.synced and all(at in TIME for at in mine)

    def _send_again(self, log: BucketLog, rng: random.Random) -> list[bytes]:
        """Sends batches again, as writers do that got no answer; returns those stored anew."""
        stored: list[bytes] = []
        for one in self.written.batches[-12:]:
            if one.writer_id < 0 or rng.random() < 0.3:
                continue
            is_served = one.base_offset in self._served
            try:
                base = log.append(read_header(one.sent), one.sent)
            except OutOfOrderSequence:
                assert not is_served, self._why(f"the writer of {one.base_offset} is unknown")
                continue
            except DuplicateSequence:
                later = sum(
                    other.writer_id == one.writer_id and other.sequence > one.sequence
                    for other in self.written.batches
                )
                assert later >= 5 or not is_served, self._why(
                    f"the offset of {one.base_offset} is forgotten"
                )
                continue
            if base != one.base_offset:
                assert not is_served, self._why(f"offset {one.base_offset} is stored twice")
                stored.append(one.content)
        return stored


def batches_from(log: BucketLog, offset: int) -> Iterator[tuple[int, int, bytes, int]]:
    """Base offset, next offset, content and time of the batches that one fetch returns.

    :raises CorruptRecord: the server knows that the offset is damaged, or a checksum is wrong.
    """
    found = log.slice(offset, 1 << 20, min_one_batch=True)
    assert found is not None
    content = bytearray(found.length)
    read_slice(LogFiles(), found, memoryview(content))
    position = 0
    while position < len(content):
        base, length, _, time_ms, crc, *_, count = HEADER.unpack_from(content, position)
        end = position + 12 + length
        assert end <= len(content), "a batch is cut"
        covered = bytes(content[position + 25 : end])
        stop = base + max(count, 1)
        if content[position + 12] != 0 or google_crc32c.value(covered) != crc:
            following = struct.unpack_from("<q", content, end)[0] if end < len(content) else None
            stop = following or _next_slice(log, found.path, base, stop)
            raise CorruptRecord("checksum", base_offset=base, next_offset=stop)
        yield base, stop, covered, time_ms
        position = end


def _next_slice(log: BucketLog, path: Path, base: int, guess: int) -> int:
    """The offset after a batch, by the log's own next batch."""
    for segment in log._segments:
        if segment.path == path:
            return segment.end_of(base)
    return guess


def _offsets(ranges: Sequence[tuple[int, int]], end: int) -> set[int]:
    return {offset for start, stop in ranges for offset in range(start, min(stop, end))}


def _ranges(events: Sequence[Any]) -> list[tuple[int, int]]:
    """The offsets that lines of the log name."""
    found: list[tuple[int, int]] = []
    for event in events:
        if " to " in str(event.get("offsets", "")):
            start, stop = event["offsets"].split(" to ")
            found.append((int(start), int(stop) + 1))
        if "next_offset" in event:  # of a torn end
            found.append((event["next_offset"], 1 << 62))
        found += [(base, base + 1) for base in event.get("base_offsets", ())]
    return found
