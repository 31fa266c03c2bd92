"""Searches a segment file for the next good batch, after one that is damaged."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sluice.errors import CorruptRecord
from sluice.formats.log.batch import (
    LENGTH_OVERHEAD,
    V0_HEADER_SIZE,
    LogBatchHeader,
    read_header,
)
from sluice.server.tablet.segments.batch import (
    HEADER_MAX,
    I64,
    LENGTH_AT,
    START,
    checked,
    claims,
    is_cut,
)

OFFSETS_MAX = 1 << 24
"""Offsets that damage may cover, as far as it is believed."""
_ROWS_PER_BYTE = 1024
"""A batch has fewer, as far as it is believed: one ZSTD column of 250,000 equal values needs 250
bytes, and 250,000 is what fits into a Java writer's buffer."""
_WINDOW = 1 << 20  # bytes that are searched at once
_CHAINS_MIN = 64  # that each search may look at, however many there are
_SEARCHED_MAX = 8  # bytes of checksums that all searches compute, per byte of the file


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


def most_offsets(size: int) -> int:
    """How many offsets batches of that many bytes may have."""
    return min(_ROWS_PER_BYTE * size, OFFSETS_MAX)


class Search:
    """Searches the bytes of one segment file. Its methods take the offset that is expected next."""

    def __init__(self, view: memoryview, following: int | None) -> None:
        """:param following: the base offset of the next segment; None: it is the last one."""
        self._view = view
        self._following = following
        self._chains: deque[_Chain] | None = None
        self._left = _SEARCHED_MAX * len(view) + _WINDOW  # bytes of checksums
        self._rows_left = len(view) + _WINDOW  # rows that it may walk over
        self._chains_left = (len(view) + _WINDOW) // V0_HEADER_SIZE  # chains that it may compare

    def next_good(self, first: int, base_offset: int) -> tuple[int, int] | None:
        """Position and offset of the next good batch, or None.

        :param first: where the damaged one begins, which should have ``base_offset``.

        Rows may contain batches, with any offsets. So a batch is believed if the damaged header
        leads to it, in bytes and offsets, or if it fits what follows: the longest part of the log
        that nothing interrupts up to the end.
        """
        if self.is_torn(first, base_offset):
            return None
        claimed = claims(self._view[first:])
        for size in claimed.sizes:  # most often only its content is damaged
            if size >= V0_HEADER_SIZE:
                stored = (self.offset_at(first + size) or 0) - base_offset
                count = stored if stored in claimed.lost else claimed.certain or 0
                if count > 0 and self._begins(first + size, base_offset + count):
                    return first + size, base_offset + count
        inside = first + self._least_size(first, claimed.sizes)
        chains = [
            one
            for one in self._chains_from(first, base_offset)
            if one.stop > inside
            and (claimed.certain or 1)
            <= one.offset - base_offset
            <= most_offsets(one.position - first)
        ]
        last = max(chains, key=lambda one: (one.is_complete, one.size()), default=None)
        if last is not None:
            chains = [one for one in chains if one is last or one.is_before(last)]
        fitting = (one for one in chains if one.offset - base_offset in claimed.lost)
        found = next(fitting, chains[0] if chains else None)
        return found and (found.position, found.offset)

    def _begins(self, position: int, offset: int) -> bool:
        """Whether a good batch or a torn append is there; one bit of its offset may be wrong."""
        stored = self.offset_at(position)
        if stored is None or (stored ^ offset).bit_count() > 1 or offset >= self._highest():
            return False
        if self.is_torn(position, offset):
            return True
        content = self._view[position:]
        if len(content) < V0_HEADER_SIZE:
            return False
        size = START.unpack_from(content)[1] + LENGTH_OVERHEAD
        if not V0_HEADER_SIZE <= size <= len(content) or not self.may_check(size):
            return False
        header, _ = checked(content[:size], offset, 0)
        return header is not None and header.next_offset <= self._highest()

    def _least_size(self, first: int, sizes: Sequence[int]) -> int:
        """The bytes that certainly are of the damaged batch; 0: its records do not tell."""
        if len(sizes) < 2:
            return 0
        room = len(self._view) - first
        return min((size for size in sizes if V0_HEADER_SIZE <= size <= room), default=0)

    def doubtful_end(self, first: int, base_offset: int) -> tuple[int, int] | None:
        """Position and offset at which the log may end, if its end cannot be known.

        The batch looks like a torn append, but what would prove it is missing. Batches follow that
        fit it: they are content of a row, or were acknowledged.
        """
        header = self._cut_header(first, base_offset)
        if header is None or self._is_cut(first, header) is not None:
            return None
        for one in self._chains_from(first, base_offset):
            if one.offset == header.next_offset and one.is_complete:
                return one.stop, one.next_offset
        return None

    def _chains_from(self, first: int, base_offset: int) -> Sequence[_Chain]:
        """The chains behind that position, which never falls; only the next after many looks."""
        if self._chains is None:
            self._chains = deque(self._all_chains(first, base_offset))
        while self._chains and self._chains[0].position <= first:
            self._chains.popleft()
        if len(self._chains) > self._chains_left:
            return list(islice(self._chains, _CHAINS_MIN))
        self._chains_left -= len(self._chains)
        return self._chains

    def _all_chains(self, first: int, base_offset: int) -> Iterator[_Chain]:
        """The good batches from the position on that follow each other."""
        seen = set[int]()
        for position in self.plausible(first, base_offset, is_followed=True):
            if position in seen:
                continue
            stop, offset = position, self.offset_at(position) or 0
            end = offset
            while stop not in seen and self.offset_at(stop) == end:
                seen.add(stop)
                header = self.candidate(stop, base_offset)
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
        if len(rest) < HEADER_MAX:
            return I64.pack(offset).startswith(bytes(rest[: I64.size]))
        header = self._cut_header(position, offset)
        return header is not None and self._is_cut(position, header) is not False

    def is_torn(self, position: int, base_offset: int) -> bool:
        """Whether the rest of the file is, by its header and records, a part of one batch.

        So it is an append that did not end. What looks like batches in it is content of a row.
        """
        rest = self._view[position:]
        if self._following is not None or len(rest) < V0_HEADER_SIZE:
            return self._following is None
        header = self._cut_header(position, base_offset)
        return header is not None and self._is_cut(position, header) is not False

    def _is_cut(self, position: int, header: LogBatchHeader) -> bool | None:
        """Whether the batch that begins there is cut; None: it cannot be known.

        A search walks over a limited number of rows: they may have such headers, and lead to rows.
        """
        rest = self._view[position:]
        cut, walked = is_cut(rest, header, self._rows_left)
        self._rows_left -= walked
        return cut

    def _cut_header(self, position: int, base_offset: int) -> LogBatchHeader | None:
        """The header there, if its batch fits and is longer than the file; it may be damaged."""
        rest = self._view[position:]
        try:
            header = read_header(bytes(rest[:HEADER_MAX]).ljust(HEADER_MAX, b"\0"))
        except CorruptRecord:
            return None  # damage, as the beginning of an append is right
        return header if header.base_offset == base_offset and header.size > len(rest) else None

    def candidate(self, position: int, base_offset: int) -> LogBatchHeader | None:
        """The batch that begins there, if it is good and has a higher offset than that."""
        content = self._view[position:]
        if len(content) < V0_HEADER_SIZE:
            return None
        offset, length = START.unpack_from(content)
        size = length + LENGTH_OVERHEAD
        if not (base_offset < offset < self._highest() and V0_HEADER_SIZE <= size <= len(content)):
            return None
        header, _ = checked(content[:size], offset, 0) if self.may_check(size) else (None, "")
        if header is None or header.next_offset > self._highest():
            return None
        return header

    def plausible(
        self, start: int, base_offset: int, *, is_followed: bool = False
    ) -> Iterator[int]:
        """Positions whose bytes may be the header of a batch with a higher offset.

        :param is_followed: only those after which the log goes on, by the next base offset.
        """
        last = len(self._view) - V0_HEADER_SIZE + 1
        for begin in range(start, last, _WINDOW):
            count = min(_WINDOW, last - begin)

            def column(kind: str, at: int, begin: int = begin, count: int = count) -> Any:
                return np.ndarray((count,), kind, self._view, begin + at, (1,))

            offsets, lengths = column("<i8", 0), column("<i4", LENGTH_AT)
            room = len(self._view) - LENGTH_OVERHEAD - begin - np.arange(count)
            maybe = (column("u1", 12) <= 2) & (offsets > base_offset) & (lengths <= room)
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
        last = len(self._view) - I64.size
        if last < 0:
            return np.ones(len(ends), bool)
        stored = np.ndarray((last + 1,), "<i8", self._view, 0, (1,))[np.minimum(ends, last)]
        wrong = stored ^ offsets
        found: npt.NDArray[Any] = (ends > last) | (wrong & (wrong - 1) == 0)
        return found

    def offset_at(self, position: int) -> int | None:
        """The base offset that is stored there."""
        if len(self._view) - position < I64.size:
            return None
        return int(I64.unpack_from(self._view, position)[0])

    def may_check(self, size: int) -> bool:
        """Whether a search may compute another checksum of that many bytes."""
        if size > self._left:
            return False
        self._left -= size
        return True

    def _highest(self) -> int:
        return (1 << 62) if self._following is None else self._following
