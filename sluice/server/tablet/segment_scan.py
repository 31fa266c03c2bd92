"""Reads a segment file batch by batch, after a kill or beside a damaged index.

Nothing here trusts a single field that no checksum covers. Base offset, length and time of a batch
must agree with the index file, or else with the batches around it: a batch begins where the one
before ends, in the file and in offsets. Where one of them alone is wrong and the checksum of the
rest is right, the batch is good, and the right value is known. Where a batch is not, the next good
one is searched for, and tells how many offsets were lost.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sluice.errors import CorruptRecord
from sluice.formats.log_batch import (
    LENGTH_OVERHEAD,
    V0_HEADER_SIZE,
    LogBatchHeader,
    check_crc,
    read_header,
    set_offset_and_timestamp,
)
from sluice.server.tablet.segment_index import Entry, IndexContent

_START = struct.Struct("<qi")
_LENGTH = struct.Struct("<i")
_LENGTH_AT, _TIMESTAMP_AT = 8, 13
_HEADER_MAX = 64  # more than the header of any version
_WINDOW = 1 << 20  # bytes that are searched at once
_OFFSETS_MAX = 1 << 24  # offsets that damage may cover, as far as it is believed
_SEARCHED_MAX = 8  # bytes of checksums that all searches compute, per byte of the file
_I64 = struct.Struct("<q")


@dataclass(frozen=True, slots=True)
class Found:
    """A batch or a damaged range, in the order of the file."""

    entry: Entry
    next_offset: int
    size: int
    problem: str = ""
    """Why the offsets are damaged, or which field of the header is."""


class _Chain(NamedTuple):
    """Good batches that follow each other, which a search found."""

    position: int
    offset: int
    stop: int
    next_offset: int
    is_complete: bool
    """Whether the log can end after them."""

    def size(self) -> int:
        return self.stop - self.position

    def is_before(self, other: _Chain) -> bool:
        return self.stop <= other.position and self.next_offset <= other.offset


class _Named(NamedTuple):
    """A batch as its index names it."""

    entry: Entry
    next_offset: int
    stop: int


@dataclass(slots=True)
class Contents:
    """What a segment file contains, from its first byte on without a gap."""

    found: list[Found] = field(default_factory=list)
    torn: str = ""
    """What is wrong with the bytes after ``found``, which a crash left; empty without any."""


def scan(
    view: memoryview,
    base_offset: int,
    index: IndexContent,
    *,
    following: int | None,
    times: tuple[int, int],
    is_same_boot: bool,
) -> Contents:
    """Reads a complete segment file.

    :param index: what its index file says; it may describe a part of the file, or nothing.
    :param following: the base offset of the next segment, where this one must end; None: it is the
        last one.
    :param times: no batch is older or younger than these.
    :param is_same_boot: the machine has run since the file was written. So each complete batch at
        the end was acknowledged, and is not what a power loss left of it.
    """
    reader = _Reader(view, base_offset, following, times[0])
    reader.follow(index)
    reader.read_on(is_same_boot=is_same_boot)
    return Contents(_with_possible_times(reader.found, reader.indexed, times), reader.torn)


def ends_at(content: memoryview, base_offset: int, timestamp_ms: int) -> int | None:
    """The offset after a batch in exactly these bytes; None if it is damaged."""
    header, _ = _checked(content, base_offset, timestamp_ms)
    return None if header is None else header.next_offset


class _Reader:
    """The position in the file, and what was found before it."""

    def __init__(
        self, view: memoryview, base_offset: int, following: int | None, timestamp_ms: int
    ) -> None:
        self._view = view
        self._position = 0
        self._next = base_offset
        self._following = following
        self._timestamp_ms = timestamp_ms
        self.found: list[Found] = []
        self.indexed = 0
        self.torn = ""
        self._has_moved = False
        self._chains: deque[_Chain] | None = None
        self._left = _SEARCHED_MAX * len(view) + _WINDOW  # bytes of checksums

    # -- with an index

    def follow(self, index: IndexContent) -> None:
        """Checks the batches that the index names; their offsets are certain."""
        named = list(_named(index))
        self._has_moved = len(self._view) < index.size
        number, shift = 0, 0
        while number < len(named):
            header, problem = self._at(named[number], shift)
            if header is not None:
                self._take(header)
                number += 1
                continue
            ahead = number + 1, shift
            if not self._has(named, ahead):  # bytes may be missing, or there may be too many
                ahead = self._search_named(named, number) or (len(named), shift)
            if ahead[0] < len(named):
                stop = named[ahead[0]].entry.position + ahead[1]
            else:
                stop = self._stop_before(index.next_offset, index.size + shift)
            stop = min(max(stop, self._position), len(self._view))
            for one in named[number : ahead[0]]:
                self._lose(one.next_offset, stop, problem, one.entry)
            number, shift = ahead
        self.indexed = len(self.found)

    def _stop_before(self, offset: int, expected: int) -> int:
        """Where the batch of that offset begins, which no index names: as expected, or moved."""
        first = (expected,) if expected < len(self._view) else ()
        for position in chain(first, self._plausible(self._position)):
            if self._offset_at(position) == offset and self._candidate(position) is not None:
                return position
        return expected

    def _offset_at(self, position: int) -> int | None:
        """The base offset that is stored there."""
        if len(self._view) - position < _I64.size:
            return None
        return int(_I64.unpack_from(self._view, position)[0])

    def _has(self, named: Sequence[_Named], ahead: tuple[int, int]) -> bool:
        number, shift = ahead
        return number < len(named) and self._at(named[number], shift)[0] is not None

    def _at(self, named: _Named, shift: int) -> tuple[LogBatchHeader | None, str]:
        """The batch that the index names, that many bytes after its position there."""
        entry, start, stop = named.entry, named.entry.position + shift, named.stop + shift
        if entry.is_damaged:
            return None, "an earlier start found it damaged"
        if stop > len(self._view):
            return None, f"the file ends at byte {len(self._view)}, before byte {stop}"
        content = self._view[start:stop]
        header, problem = _checked(content, entry.base_offset, entry.timestamp_ms)
        if header is None:
            return None, problem
        is_it = (
            header.next_offset == named.next_offset
            and header.writer_id == entry.writer_id
            and header.batch_sequence == entry.batch_sequence
        )
        if self._has_moved:  # another batch may be here, which is like this one
            is_it = is_it and len(_differences(content, header)) <= 1
            is_it = is_it and self._may_be(content, header, stop)
        return (header, "") if is_it else (None, "it is another batch than its index names")

    def _search_named(self, named: Sequence[_Named], first: int) -> tuple[int, int] | None:
        """The next batch that the file has of those named, and how far it has moved."""
        numbers = {one.entry.base_offset: at for at, one in enumerate(named) if at > first}
        for position in self._plausible(self._position) if numbers else ():
            offset, length = _START.unpack_from(self._view, position)
            number = numbers.get(offset)
            if number is None:
                continue
            start, stop = named[number].entry.position, named[number].stop
            ahead = number, position - start
            # Of a batch that has moved, nothing else is wrong: any value may look like an offset.
            if length + LENGTH_OVERHEAD == stop - start and self._has(named, ahead):
                return ahead
        return None

    # -- without

    def read_on(self, *, is_same_boot: bool) -> None:
        """Reads the batches from the position on, which no index names."""
        view, limit = self._view, self._following
        while self._position < len(view) and (limit is None or self._next < limit):
            header, problem = self._batch()
            if header is not None:
                self._take(header)
                continue
            header = self._with_another_length()
            if header is not None:
                self._take(header)
                continue
            after = self._search()
            if after is None and limit is None:
                if self._end(problem, is_same_boot=is_same_boot):
                    continue
                return
            position, offset = after or (len(view), limit or 0)
            header = self._without_length(view[self._position : position])
            if header is not None and header.next_offset == offset:
                self._take(header)  # only its length is damaged
            else:
                self._lose(offset, position, problem)
        if limit is not None and self._next < limit:
            self._lose(limit, len(view), f"the file ends before offset {limit}")

    def _batch(self) -> tuple[LogBatchHeader | None, str]:
        """The batch at the position by its own length, or what is wrong with it."""
        content = self._view[self._position :]
        if len(content) < V0_HEADER_SIZE:
            return None, f"{len(content)} bytes of a batch header"
        stored, length = _START.unpack_from(content)
        size = length + LENGTH_OVERHEAD
        if not V0_HEADER_SIZE <= size <= len(content):
            return None, f"a batch of offset {stored} and length {length}"
        time_ms = _I64.unpack_from(content, _TIMESTAMP_AT)[0]
        header, problem = _checked(content[:size], self._next, time_ms)
        if header is None:
            return None, problem
        if stored != self._next and self._begins_at(stored, header):
            lost = f"the batch after offset {self._next} begins at offset {stored}"
            self._lose(stored, self._position, lost)
            header, problem = _checked(content[:size], stored, time_ms)
        elif not self._may_be(content, header, self._position + size):
            return None, f"its base offset is {stored} instead of {self._next}"
        if header and self._following is not None and header.next_offset > self._following:
            return None, f"it ends after offset {self._following}, where the next segment begins"
        return header, problem

    def _without_length(self, content: memoryview) -> LogBatchHeader | None:
        """The batch in exactly these bytes, whatever its length field says."""
        if len(content) < V0_HEADER_SIZE:
            return None
        time_ms = _I64.unpack_from(content, _TIMESTAMP_AT)[0]
        return _checked(content, self._next, time_ms)[0]

    def _begins_at(self, stored: int, header: LogBatchHeader) -> bool:
        """Whether the batch really has another offset than expected: batches before it are gone.

        The batch after it decides. Without one, a single wrong bit is the simpler explanation.
        """
        shift = stored - self._next
        if not 0 < shift < _OFFSETS_MAX:
            return False
        if self._following is not None and header.next_offset + shift > self._following:
            return False
        after = self._position + header.size
        if len(self._view) - after < _I64.size:
            if self._following is not None:
                return header.next_offset + shift == self._following
            return (stored ^ self._next).bit_count() > 1
        (base,) = _I64.unpack_from(self._view, after)
        return bool(base == header.next_offset + shift)

    def _may_be(self, content: memoryview, header: LogBatchHeader, stop: int) -> bool:
        """Whether only its base offset can be wrong, if it is: by one bit, or by what follows."""
        stored = _I64.unpack_from(content)[0]
        if (stored ^ header.base_offset).bit_count() <= 1:
            return True
        after = self._view[stop : stop + _I64.size]
        return len(after) == _I64.size and _I64.unpack_from(after)[0] == header.next_offset

    def _with_another_length(self) -> LogBatchHeader | None:
        """The batch at the position, if one bit of its length is wrong and its checksum is not.

        Tried before all else: a row may contain batches, and a wrong length may lead to them.
        """
        content = self._view[self._position :]
        if len(content) < V0_HEADER_SIZE:
            return None
        length = _LENGTH.unpack_from(content, _LENGTH_AT)[0] & 0xFFFF_FFFF
        ends = {_I64.pack(self._next + count)[: _I64.size] for count in _counts(content)}
        for size in sorted((length ^ 1 << bit) + LENGTH_OVERHEAD for bit in range(32)):
            if not V0_HEADER_SIZE <= size <= len(content):
                continue
            after = bytes(content[size : size + _I64.size])
            if any(end.startswith(after) for end in ends) and self._may_check(size):
                header = self._without_length(content[:size])
                if header is not None and self._may_be(content, header, self._position + size):
                    return header
        return None

    def _may_check(self, size: int) -> bool:
        """Whether a search may compute another checksum of that many bytes."""
        if size > self._left:
            return False
        self._left -= size
        return True

    def _is_torn(self) -> bool:
        """Whether the rest of the file is, by its header, a part of one batch.

        So it is an append that did not end. What looks like batches in it is content of a row.
        """
        rest = self._view[self._position :]
        if self._following is not None or len(rest) < _HEADER_MAX:
            return self._following is None
        try:
            header = read_header(rest)
        except CorruptRecord:
            return False  # damage, as the beginning of an append is right
        return header.base_offset == self._next and header.size > len(rest)

    def _search(self) -> tuple[int, int] | None:
        """Position and offset of the next good batch, or None.

        Rows may contain batches, with any offsets. So a batch is believed if the damaged header
        leads to it, in bytes and offsets, or if it fits what follows: the longest part of the log
        that nothing interrupts up to the end.
        """
        view, first = self._view, self._position
        if self._is_torn():
            return None
        counts = _counts(view[first:], is_any_version=True)
        if counts:  # most often only its content is damaged
            position = first + _START.unpack_from(view, first)[1] + LENGTH_OVERHEAD
            header = self._candidate(position) if first + V0_HEADER_SIZE <= position else None
            if header and header.base_offset - self._next in counts:
                return position, header.base_offset
        if self._chains is None:
            self._chains = deque(self._all_chains())
        while self._chains and self._chains[0].position <= first:
            self._chains.popleft()
        chains = [one for one in self._chains if 0 < one.offset - self._next <= _OFFSETS_MAX]
        last = max((one for one in chains if one.is_complete), key=_Chain.size, default=None)
        if last is not None:
            chains = [one for one in chains if one is last or one.is_before(last)]
        fitting = (one for one in chains if one.offset - self._next in counts)
        found = next(fitting, chains[0] if chains else None)
        return found and (found.position, found.offset)

    def _all_chains(self) -> Iterator[_Chain]:
        """The good batches from the position on that follow each other."""
        seen = set[int]()
        for position in self._plausible(self._position, is_followed=True):
            if position in seen:
                continue
            stop, offset = position, self._offset_at(position) or 0
            end = offset
            while stop not in seen and self._offset_at(stop) == end:
                seen.add(stop)
                header = self._candidate(stop)
                if header is None:
                    break
                stop, end = stop + header.size, header.next_offset
            if stop > position:
                yield _Chain(position, offset, stop, end, self._ends(stop, end))

    def _ends(self, position: int, offset: int) -> bool:
        """Whether the log can end there: with its last batch, or with a torn one."""
        if self._following is not None:
            return offset == self._following
        rest = self._view[position:]
        if len(rest) < _START.size:
            return _I64.pack(offset).startswith(bytes(rest[: _I64.size]))
        stored, length = _START.unpack_from(rest)
        return bool(stored == offset and length + LENGTH_OVERHEAD > len(rest))

    def _candidate(self, position: int) -> LogBatchHeader | None:
        content = self._view[position:]
        if len(content) < V0_HEADER_SIZE:
            return None
        offset, length = _START.unpack_from(content)
        size = length + LENGTH_OVERHEAD
        if not (self._next < offset < self._highest() and V0_HEADER_SIZE <= size <= len(content)):
            return None
        header, _ = _checked(content[:size], offset, 0) if self._may_check(size) else (None, "")
        if header is None or header.next_offset > self._highest():
            return None
        return header

    def _highest(self) -> int:
        return (1 << 62) if self._following is None else self._following

    def _plausible(self, start: int, *, is_followed: bool = False) -> Iterator[int]:
        """Positions whose bytes may be the header of a batch, in order.

        :param is_followed: only those after which the log goes on, by the next base offset.
        """
        last = len(self._view) - V0_HEADER_SIZE + 1
        for begin in range(start, last, _WINDOW):
            count = min(_WINDOW, last - begin)

            def column(kind: str, at: int, begin: int = begin, count: int = count) -> Any:
                return np.ndarray((count,), kind, self._view, begin + at, (1,))

            offsets, lengths = column("<i8", 0), column("<i4", _LENGTH_AT)
            room = len(self._view) - LENGTH_OVERHEAD - begin - np.arange(count)
            maybe = (column("u1", 12) <= 2) & (offsets > self._next) & (lengths <= room)
            maybe &= (offsets < self._highest()) & (lengths >= V0_HEADER_SIZE - LENGTH_OVERHEAD)
            found = np.flatnonzero(maybe)
            if is_followed:
                is_v2 = column("u1", 12)[found] == 2
                deltas = np.where(is_v2, column("<i4", 32)[found], column("<i4", 28)[found])
                ends = begin + found + lengths[found] + LENGTH_OVERHEAD
                found = found[self._goes_on(ends, offsets[found] + deltas + 1)]
            yield from (found + begin).tolist()

    def _goes_on(self, ends: npt.NDArray[Any], offsets: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Where the file ends, or has those base offsets, but for one wrong bit."""
        last = len(self._view) - _I64.size
        if last < 0:
            return np.ones(len(ends), bool)
        stored = np.ndarray((last + 1,), "<i8", self._view, 0, (1,))[np.minimum(ends, last)]
        wrong = stored ^ offsets
        found: npt.NDArray[Any] = (ends > last) | (wrong & (wrong - 1) == 0)
        return found

    def _end(self, problem: str, *, is_same_boot: bool) -> bool:
        """Decides what the last bytes are: batches, or what a crash left of one.

        Returns whether more may follow; else ``torn`` says what is left.
        """
        content = self._view[self._position :]
        header = None if self._is_torn() else self._without_length(content)
        if header is not None:  # only its length is damaged
            self._take(header)
            return False
        counts = _counts(content)
        size = _START.unpack_from(content)[1] + LENGTH_OVERHEAD if counts else 0
        if is_same_boot and V0_HEADER_SIZE <= size <= len(content):
            count = max((one for one in counts if one <= _OFFSETS_MAX), default=1)
            self._lose(self._next + max(count, 1), self._position + size, problem)
            if len(content) == size or self._offset_at(self._position) == self._next:
                return True
            problem = f"{len(content) - size} bytes after a damaged batch"
        self.torn = problem
        return False

    # -- results

    def _take(self, header: LogBatchHeader) -> None:
        content = self._view[self._position :]
        size = min(header.size, len(content))
        entry = Entry(
            header.base_offset,
            self._position,
            header.timestamp_ms,
            header.writer_id,
            header.batch_sequence,
        )
        self._add(entry, header.next_offset, size, "; ".join(_differences(content, header)))

    def _lose(self, next_offset: int, stop: int, problem: str, known: Entry | None = None) -> None:
        """Adds a damaged range, whose bytes end at ``stop``."""
        if next_offset <= self._next:
            return
        # Without an index its writer may be damaged too.
        entry = known or Entry(self._next, self._position, self._timestamp_ms, -1, -1)
        entry = entry._replace(position=self._position, is_damaged=1)
        self._add(entry, next_offset, stop - self._position, problem)

    def _add(self, entry: Entry, next_offset: int, size: int, problem: str) -> None:
        self.found.append(Found(entry, next_offset, size, problem))
        self._position = entry.position + size
        self._next = next_offset
        self._timestamp_ms = entry.timestamp_ms


def _named(index: IndexContent) -> Iterator[_Named]:
    entries = list(index.columns.entries())
    ends = [(entry.base_offset, entry.position) for entry in entries[1:]]
    ends.append((index.next_offset, index.size))
    for entry, end in zip(entries, ends, strict=False):
        yield _Named(entry, *end)


def _checked(
    content: memoryview, base_offset: int, timestamp_ms: int
) -> tuple[LogBatchHeader | None, str]:
    """The header of a batch in exactly these bytes, if all that its checksum covers is right.

    The header gets the given offset and time, and the length of the bytes.
    """
    head = bytearray(content[:_HEADER_MAX])
    if len(head) < V0_HEADER_SIZE:
        return None, f"{len(head)} bytes of a batch header"
    set_offset_and_timestamp(head, base_offset, timestamp_ms)
    _LENGTH.pack_into(head, _LENGTH_AT, len(content) - LENGTH_OVERHEAD)
    try:
        header = read_header(head)
        check_crc(content, header)
    except CorruptRecord as error:
        return None, str(error)
    return header, ""


def _differences(content: memoryview, header: LogBatchHeader) -> list[str]:
    """The fields that no checksum covers and that differ from what the header should have."""
    offset, length = _START.unpack_from(content)
    time_ms = _I64.unpack_from(content, _TIMESTAMP_AT)[0]
    return [
        f"its {name} is {stored} instead of {right}"
        for name, stored, right in (
            ("base offset", offset, header.base_offset),
            ("length", length, header.size - LENGTH_OVERHEAD),
            ("time", time_ms, header.timestamp_ms),
        )
        if stored != right
    ]


def _counts(content: memoryview, *, is_any_version: bool = False) -> tuple[int, ...]:
    """How many offsets a batch has, by fields that may be damaged; none without a header.

    :param is_any_version: the version may be damaged too, which says where the fields are.
    """
    if len(content) < V0_HEADER_SIZE + 4:
        return ()
    places = (28, 32) if is_any_version else (32,) if content[12] == 2 else (28,)
    fields = [_LENGTH.unpack_from(content, at + more)[0] for at in places for more in (0, 16)]
    deltas, counts = fields[::2], fields[1::2]  # only version 2 has an epoch before
    return (*(delta + 1 for delta in deltas), *(count or 1 for count in counts))


def _with_possible_times(found: list[Found], indexed: int, times: tuple[int, int]) -> list[Found]:
    """Replaces times that cannot be: those of batches that an index names are certain.

    The times of a log never fall. The longest series that does not fall is taken for right.
    """
    earliest = found[indexed - 1].entry.timestamp_ms if indexed else times[0]
    given = [one.entry.timestamp_ms for one in found[indexed:]]
    if all(a <= b for a, b in pairwise((earliest, *given, max(times[1], earliest)))):
        return found
    right = _longest_rise(given, earliest, times[1])
    result, last = found[:indexed], earliest
    for number, one in enumerate(found[indexed:]):
        if number in right:
            last = one.entry.timestamp_ms
            result.append(one)
            continue
        problem = one.problem or f"its time {one.entry.timestamp_ms} is not possible"
        entry = one.entry._replace(timestamp_ms=last)
        result.append(Found(entry, one.next_offset, one.size, problem))
    return result


def _longest_rise(values: Sequence[int], low: int, high: int) -> set[int]:
    """The positions of the longest series within the bounds that does not fall."""
    ends: list[int] = []  # the smallest last value of a series of each length
    at: list[int] = []
    before: list[int] = []
    for number, value in enumerate(values):
        if not low <= value <= high:
            before.append(-1)
            continue
        length = bisect_right(ends, value)
        before.append(at[length - 1] if length else -1)
        ends[length:] = [value, *ends[length + 1 :]]
        at[length:] = [number, *at[length + 1 :]]
    found, number = set[int](), at[-1] if at else -1
    while number >= 0:
        found.add(number)
        number = before[number]
    return found
