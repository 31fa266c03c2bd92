"""Reads a segment file batch by batch, after a kill or beside a damaged index.

Nothing here trusts a single field that no checksum covers. Base offset, length and time of a batch
must agree with the index file, or else with the batches around it: a batch begins where the one
before ends, in the file and in offsets. Where one of them alone is wrong and the checksum of the
rest is right, the batch is good, and the right value is known. Where a batch is not, the next good
one is searched for, and tells how many offsets were lost.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

import numpy as np

from sluice.formats.log.batch import LENGTH_OVERHEAD, V0_HEADER_SIZE, LogBatchHeader
from sluice.server.tablet.segments.batch import (
    I64,
    LENGTH,
    LENGTH_AT,
    START,
    TIMESTAMP_AT,
    checked,
    claims,
    counts,
    differences,
    is_as_written,
)
from sluice.server.tablet.segments.index import Columns, Entry, IndexContent
from sluice.server.tablet.segments.search import OFFSETS_MAX, Search, most_offsets


class _Named(NamedTuple):
    """A batch as its index names it."""

    entry: Entry
    next_offset: int
    stop: int


class _Names:
    """The batches that an index names, each made when it is needed: there may be millions."""

    def __init__(self, index: IndexContent) -> None:
        self._columns = index.columns
        self._end = (index.next_offset, index.size)

    def __len__(self) -> int:
        return len(self._columns)

    def __getitem__(self, number: int) -> _Named:
        columns, following = self._columns, number + 1
        if following < len(columns):
            end = columns.base_offset[following], columns.position[following]
        else:
            end = self._end
        return _Named(columns.entry(number), *end)

    def number_of(self, base_offset: int, first: int) -> int | None:
        """The number of the batch with that base offset, if it is not before the first."""
        offsets = self._columns.base_offset
        number = bisect_left(offsets, base_offset, first)
        return number if number < len(offsets) and offsets[number] == base_offset else None


@dataclass(slots=True)
class Contents:
    """What a segment file contains, from its first byte on without a gap."""

    columns: Columns = field(default_factory=Columns)
    """Batches and damaged ranges, in the order of the file; each ends where the next begins."""
    size: int = 0
    next_offset: int = 0
    problems: dict[int, str] = field(default_factory=dict)
    """By number of the batch: why its offsets are damaged, or which field of its header is."""
    torn: str = ""
    """What is wrong with the bytes after them, which a crash left; empty without any."""

    def stop(self, number: int) -> int:
        """The offset after the batch of that number."""
        offsets = self.columns.base_offset
        return offsets[number + 1] if number + 1 < len(offsets) else self.next_offset


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
    found = Contents(
        reader.columns, reader.position, reader.next_offset, reader.problems, reader.torn
    )
    _correct_times(found, reader.indexed, times)
    return found


def ends_at(content: memoryview, base_offset: int, timestamp_ms: int) -> int | None:
    """The offset after a batch in exactly these bytes; None if it is damaged."""
    header, _ = checked(content, base_offset, timestamp_ms)
    return None if header is None else header.next_offset


class _Reader:
    """The position in the file, and what was found before it."""

    def __init__(
        self, view: memoryview, base_offset: int, following: int | None, timestamp_ms: int
    ) -> None:
        self._view = view
        self.position = 0
        self.next_offset = base_offset
        self._following = following
        self._timestamp_ms = timestamp_ms
        self.columns = Columns()
        self.problems: dict[int, str] = {}
        self.indexed = 0
        self.torn = ""
        self._has_moved = False
        self._search = Search(view, following)

    # -- with an index

    def follow(self, index: IndexContent) -> None:
        """Checks the batches that the index names; their offsets are certain."""
        named = _Names(index)
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
                ahead = self._search_named(named, number, shift) or (len(named), shift)
            if ahead[0] < len(named):
                stop = named[ahead[0]].entry.position + ahead[1]
            else:
                stop = self._stop_before(index.next_offset, index.size + shift)
            stop = min(max(stop, self.position), len(self._view))
            for one in map(named.__getitem__, range(number, ahead[0])):
                self._lose(one.next_offset, stop, problem, one.entry)
            number, shift = ahead
        self.indexed = len(self.columns)

    def _stop_before(self, offset: int, expected: int) -> int:
        """Where the batch of that offset begins, which no index names: as expected, or moved."""
        first = (expected,) if expected < len(self._view) else ()
        for position in chain(first, self._search.plausible(self.position, self.next_offset)):
            if (
                self._search.offset_at(position) == offset
                and self._search.candidate(position, self.next_offset) is not None
            ):
                return position
        return expected

    def _has(self, named: _Names, ahead: tuple[int, int]) -> bool:
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
        header, problem = checked(content, entry.base_offset, entry.timestamp_ms)
        if header is None:
            return None, problem
        is_it = (
            header.next_offset == named.next_offset
            and header.writer_id == entry.writer_id
            and header.batch_sequence == entry.batch_sequence
        )
        if self._has_moved:  # another batch may be here, which is like this one
            is_it = is_it and len(differences(content, header)) <= 1
            is_it = is_it and self._may_be(content, header, stop)
        return (header, "") if is_it else (None, "it is another batch than its index names")

    def _search_named(self, named: _Names, first: int, shift: int) -> tuple[int, int] | None:
        """The next batch that the file has of those named, and how far it has moved."""
        if not self._has_moved:  # what is in its place is not looked for in rows
            for number in range(first + 1, len(named)):
                if self._is_named(named, (number, shift)):
                    return number, shift
        for position in self._search.plausible(self.position, self.next_offset):
            offset = self._search.offset_at(position)
            found = named.number_of(offset or 0, first + 1)
            if found is None:
                continue
            ahead = found, position - named[found].entry.position
            # Of a batch that has moved, nothing else is wrong: any value may look like an offset.
            time_ms = I64.unpack_from(self._view, position + TIMESTAMP_AT)[0]
            if time_ms == named[found].entry.timestamp_ms and self._is_named(named, ahead):
                return ahead
        return None

    def _is_named(self, named: _Names, ahead: tuple[int, int]) -> bool:
        """Whether a batch is there, with its own offset and length, if the search may look."""
        one = named[ahead[0]]
        start, size = one.entry.position + ahead[1], one.stop - one.entry.position
        if not 0 <= start <= len(self._view) - max(size, V0_HEADER_SIZE):
            return False
        right = (one.entry.base_offset, size - LENGTH_OVERHEAD)
        is_it = START.unpack_from(self._view, start) == right
        return is_it and self._search.may_check(size) and self._has(named, ahead)

    # -- without

    def read_on(self, *, is_same_boot: bool) -> None:
        """Reads the batches from the position on, which no index names."""
        view, limit = self._view, self._following
        while self.position < len(view) and (limit is None or self.next_offset < limit):
            header, problem = self._batch()
            if header is not None:
                self._take(header)
                continue
            header = self._with_another_length()
            if header is not None:
                self._take(header)
                continue
            after = self._search.next_good(self.position, self.next_offset)
            if after is None and limit is None:
                if self._end(problem, is_same_boot=is_same_boot):
                    continue
                return
            position, offset = after or (len(view), limit or 0)
            header = self._without_length(view[self.position : position])
            if header is not None and header.next_offset == offset:
                self._take(header)  # only its length is damaged
            else:
                self._lose(offset, position, problem)
        if limit is not None and self.next_offset < limit:
            self._lose(limit, len(view), f"the file ends before offset {limit}")

    def _batch(self) -> tuple[LogBatchHeader | None, str]:
        """The batch at the position by its own length, or what is wrong with it."""
        content = self._view[self.position :]
        if len(content) < V0_HEADER_SIZE:
            return None, f"{len(content)} bytes of a batch header"
        stored, length = START.unpack_from(content)
        size = length + LENGTH_OVERHEAD
        if not V0_HEADER_SIZE <= size <= len(content):
            return None, f"a batch of offset {stored} and length {length}"
        time_ms = I64.unpack_from(content, TIMESTAMP_AT)[0]
        header, problem = checked(content[:size], self.next_offset, time_ms)
        if header is None:
            return None, problem
        if stored != self.next_offset and self._begins_at(stored, header):
            lost = f"the batch after offset {self.next_offset} begins at offset {stored}"
            self._lose(stored, self.position, lost)
            header, problem = checked(content[:size], stored, time_ms)
        elif not self._may_be(content, header, self.position + size):
            return None, f"its base offset is {stored} instead of {self.next_offset}"
        if header and self._following is not None and header.next_offset > self._following:
            return None, f"it ends after offset {self._following}, where the next segment begins"
        return header, problem

    def _without_length(self, content: memoryview) -> LogBatchHeader | None:
        """The batch in exactly these bytes, whatever its length field says."""
        if len(content) < V0_HEADER_SIZE:
            return None
        time_ms = I64.unpack_from(content, TIMESTAMP_AT)[0]
        return checked(content, self.next_offset, time_ms)[0]

    def _begins_at(self, stored: int, header: LogBatchHeader) -> bool:
        """Whether the batch really has another offset than expected: batches before it are gone.

        The batch after it decides. Without one, a single wrong bit is the simpler explanation.
        """
        shift = stored - self.next_offset
        if not 0 < shift < OFFSETS_MAX:
            return False
        if self._following is not None and header.next_offset + shift > self._following:
            return False
        after = self.position + header.size
        if len(self._view) - after < I64.size:
            if self._following is not None:
                return header.next_offset + shift == self._following
            return (stored ^ self.next_offset).bit_count() > 1
        (base,) = I64.unpack_from(self._view, after)
        return bool(base == header.next_offset + shift)

    def _may_be(self, content: memoryview, header: LogBatchHeader, stop: int) -> bool:
        """Whether only its base offset can be wrong, if it is: by one bit, or by what follows."""
        stored = I64.unpack_from(content)[0]
        if (stored ^ header.base_offset).bit_count() <= 1:
            return True
        after = self._view[stop : stop + I64.size]
        return len(after) == I64.size and I64.unpack_from(after)[0] == header.next_offset

    def _with_another_length(self) -> LogBatchHeader | None:
        """The batch at the position, if its length is wrong and its checksum is not.

        Its records say the right one, or one bit is wrong.
        Tried before all else: a row may contain batches, and a wrong length may lead to them.
        """
        content = self._view[self.position :]
        if len(content) < V0_HEADER_SIZE:
            return None
        for size in claims(content).sizes[:-1]:
            if V0_HEADER_SIZE <= size <= len(content) and self._search.may_check(size):
                header = self._without_length(content[:size])
                if header is not None and self._may_be(content, header, self.position + size):
                    return header
        length = LENGTH.unpack_from(content, LENGTH_AT)[0] & 0xFFFF_FFFF
        ends = {I64.pack(self.next_offset + count)[: I64.size] for count in counts(content)}
        for size in sorted((length ^ 1 << bit) + LENGTH_OVERHEAD for bit in range(32)):
            if not V0_HEADER_SIZE <= size <= len(content):
                continue
            after = bytes(content[size : size + I64.size])
            if any(end.startswith(after) for end in ends) and self._search.may_check(size):
                header = self._without_length(content[:size])
                if header is not None and self._may_be(content, header, self.position + size):
                    return header
        return None

    def _end(self, problem: str, *, is_same_boot: bool) -> bool:
        """Decides what the last bytes are: batches, or what a crash left of one.

        Returns whether more may follow; else ``torn`` says what is left.
        """
        content = self._view[self.position :]
        is_torn = self._search.is_torn(self.position, self.next_offset)
        header = None if is_torn else self._without_length(content)
        if header is not None:  # only its length is damaged
            self._take(header)
            return False
        doubtful = self._search.doubtful_end(self.position, self.next_offset)
        if doubtful is not None:
            self._lose(doubtful[1], doubtful[0], problem)
            return True
        if is_same_boot and not is_torn:  # a kill leaves the beginning of an append, and all right
            size, count = self._claimed(content)
            self._lose(self.next_offset + count, self.position + size, problem)
            return True
        self.torn = problem
        return False

    def _claimed(self, content: memoryview) -> tuple[int, int]:
        """Bytes and offsets that a damaged batch at the end may have."""
        claimed = claims(content)
        sizes = [size for size in claimed.sizes if V0_HEADER_SIZE <= size <= len(content)]
        size = sizes[0] if sizes else len(content)
        if claimed.certain is not None:
            return size, claimed.certain
        following = (self._search.offset_at(self.position + size) or 0) - self.next_offset
        if following > 0 and following in claimed.lost:
            return size, following
        possible = [one for one in claimed.lost if 0 < one <= most_offsets(size)]
        is_one_bit = any(
            (one - 1 ^ other - 1).bit_count() == 1 for one in possible for other in claimed.lost
        )
        return size, max(possible) if is_one_bit else most_offsets(size)

    # -- results

    def _take(self, header: LogBatchHeader) -> None:
        size = min(header.size, len(self._view) - self.position)
        entry = Entry(
            header.base_offset,
            self.position,
            header.timestamp_ms,
            header.writer_id,
            header.batch_sequence,
        )
        problem = ""
        if not is_as_written(self._view[self.position :], header):
            problem = "; ".join(differences(self._view[self.position :], header))
        self._add(entry, header.next_offset, size, problem)

    def _lose(self, next_offset: int, stop: int, problem: str, known: Entry | None = None) -> None:
        """Adds a damaged range, whose bytes end at ``stop``."""
        if next_offset <= self.next_offset:
            return
        # Without an index its writer may be damaged too.
        entry = known or Entry(self.next_offset, self.position, self._timestamp_ms, -1, -1)
        entry = entry._replace(position=self.position, is_damaged=1)
        self._add(entry, next_offset, stop - self.position, problem)

    def _add(self, entry: Entry, next_offset: int, size: int, problem: str) -> None:
        if problem:
            self.problems[len(self.columns)] = problem
        self.columns.append(entry)
        self.position = entry.position + size
        self.next_offset = next_offset
        self._timestamp_ms = entry.timestamp_ms


def _correct_times(found: Contents, indexed: int, times: tuple[int, int]) -> None:
    """Replaces times that cannot be: those of batches that an index names are certain.

    The times of a log never fall. The longest series that does not fall is taken for right.
    """
    stored = found.columns.timestamp_ms
    last = stored[indexed - 1] if indexed else times[0]
    given = np.array(stored[indexed:], np.int64)
    bounds = np.concatenate(([last], given, [max(times[1], last)]))
    if bool((bounds[1:] >= bounds[:-1]).all()):
        return
    values = given.tolist()
    # Damaged headers come last: their time is kept only if it fits those of the others.
    sure = [last - 1 if indexed + at in found.problems else one for at, one in enumerate(values)]
    right = _longest_rise(sure, last, times[1])
    highest, most = list[int](), times[1]
    for number in range(len(values) - 1, -1, -1):
        most = values[number] if number in right else most
        highest.append(most)
    for number, (value, most) in enumerate(zip(values, reversed(highest), strict=True)):
        if number in right or last <= value <= most:
            last = value
            continue
        found.problems.setdefault(indexed + number, f"its time {value} is not possible")
        stored[indexed + number] = last


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
