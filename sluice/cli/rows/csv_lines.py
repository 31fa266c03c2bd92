"""The rows of a CSV file as bytes, to find the line of a wrong row.

Arrow reads the good files. This is for bad ones: it finds rows and their lines in the bytes, by the
rules that Arrow's parser has (a quote opens a field only at its start, ``""`` within is a quote).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

BOM = b"\xef\xbb\xbf"
_PIECE_BYTES = 4 * 1024 * 1024
_LF, _CR, _QUOTE = 10, 13, 34
_BEFORE_A_FIELD = np.frombuffer(b',\r\n"', np.uint8)
_FIELD = rb'(?:"(?:[^"]++|"")*+"[^,\r\n]*+|[^",\r\n][^,\r\n]*+|)'
_COMPLETE_FIELD = re.compile(_FIELD)
_ROW = re.compile(_FIELD + rb"(?:," + _FIELD + rb")*+(?:\r\n|\r|\n)")


@dataclass(frozen=True)
class Lines:
    """Complete rows of a file. The header is row -1. Empty lines are not rows, unless requested."""

    data: bytes
    bounds: np.ndarray
    """Where each row starts in ``data``, and where the last one ends (int64)."""
    first_row: int
    first_line: int
    """The line on which ``data`` starts, counted from 1."""
    first_byte: int
    """The position of ``data`` in the file."""
    is_open: bool = False
    """Whether the only row here has no end: it is too long, or its quote is never closed."""

    @property
    def count(self) -> int:
        return len(self.bounds) - 1

    def text(self, start: int, count: int) -> bytes:
        """Some rows from ``start`` on, counted here, with the empty lines among them."""
        return self.data[int(self.bounds[start]) : int(self.bounds[start + count])]

    def line(self, row: int) -> int:
        """The line on which a row of the file starts."""
        before = self.data[: int(self.bounds[row - self.first_row])]
        return self.first_line + _line_ends(before)


def first_open_field(row: bytes) -> tuple[int, bytes]:
    """The field whose quote is not closed: its number from 0, and the text after the quote."""
    number, at = 0, 0
    while (found := _COMPLETE_FIELD.match(row, at)) and row[found.end() : found.end() + 1] == b",":
        number, at = number + 1, found.end() + 1
    return number, row[at:].lstrip(b'"')


def lines_of(path: Path, row_bytes_max: int, *, empty_rows: bool = False) -> Iterator[Lines]:
    """The complete file, in pieces of complete rows. Memory holds a piece and the longest row.

    :param row_bytes_max: a longer row is the last piece, cut off at this length.
    :param empty_rows: whether an empty line after the header is a row.
    """
    with path.open("rb") as file:
        rest, row, line = file.read(len(BOM)).removeprefix(BOM), -1, 1
        at = file.tell() - len(rest)
        while more := file.read(_PIECE_BYTES):
            data = rest + more
            ended = data.removesuffix(b"\r")  # the next byte may be the \n of a \r\n
            found = _lines(ended, _row_ends(ended), (row, line, at), empty_rows)
            if found.count:
                yield found
            row, line = row + found.count, line + _line_ends(found.data)
            at += len(found.data)
            rest = data[len(found.data) :]
            if len(rest) > row_bytes_max:
                break
        else:
            found = _lines(rest, _row_ends(rest + b"\n"), (row, line, at), empty_rows)
            if found.count:
                yield found
            row, line = row + found.count, line + _line_ends(found.data)
            at += len(found.data)
            rest = rest[len(found.data) :]
        if rest:
            yield Lines(rest, np.array([0, len(rest)]), row, line, at, is_open=True)


def _lines(data: bytes, ends: np.ndarray, first: tuple[int, int, int], empty_rows: bool) -> Lines:
    """The rows that end in ``data``. An empty line that is not a row belongs to the row before it.

    :param first: row, line and byte of the file at the start of ``data``.
    """
    ends = np.minimum(ends, len(data))
    rows = data[: int(ends[-1])] if len(ends) else b""
    starts = np.append(0, ends[:-1])[: len(ends)]
    starts = starts[starts < len(rows)]
    octets = np.frombuffer(rows, np.uint8)[starts]
    is_row = (octets != _LF) & (octets != _CR)
    if empty_rows:
        is_row = np.logical_or.accumulate(is_row) if first[0] < 0 else np.ones_like(is_row)
    return Lines(rows, np.append(starts[is_row], len(rows)), *first)


def _row_ends(data: bytes) -> np.ndarray:
    """The position after each line end outside of quotes."""
    octets = np.frombuffer(data, np.uint8)
    breaks = np.flatnonzero((octets == _LF) | (octets == _CR))
    follows = octets[np.minimum(breaks + 1, len(octets) - 1)]
    breaks = breaks[(octets[breaks] == _LF) | (follows != _LF)]  # \r\n is one
    quotes = np.flatnonzero(octets == _QUOTE)
    opening = quotes[::2]
    if np.isin(octets[opening[opening > 0] - 1], _BEFORE_A_FIELD).all():
        # each quote opens or closes: after an even number of them nothing is open
        is_outside = np.searchsorted(quotes, breaks) % 2 == 0
        return np.asarray(breaks[is_outside] + 1)
    ends, at = [], 0
    while found := _ROW.match(data, at):  # quotes within fields
        at = found.end()
        ends.append(at)
    return np.array(ends, np.int64)


def _line_ends(data: bytes) -> int:
    """The number of line ends, including those within quotes."""
    octets = np.frombuffer(data, np.uint8)
    count, returns = np.count_nonzero(octets == _LF), np.count_nonzero(octets == _CR)
    return int(count + returns - (data.count(b"\r\n") if returns else 0))
