"""Memory of Arrow columns for the compiled kernels, and the texts of the kernels' errors."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pyarrow as pa

from sluice.errors import CorruptRecord
from sluice.formats.kernels import row_layout as layout
from sluice.formats.rows.plan import NESTED, arrow_width
from sluice.formats.types.types import arrow_type
from sluice.model import DataType

PROBLEMS = {
    layout.ENDS_EARLY: "it ends early",
    layout.VARINT_TOO_LONG: "a varint is longer than its type",
    layout.BAD_LENGTH: "a length is negative",
    layout.BAD_NANOS: "the nanoseconds within the millisecond are not 0 to 999999",
    layout.OUT_OF_RANGE: "the value is out of its type's range",
    layout.TOO_LONG: "the value is longer than its type",
    layout.BYTES_LEFT: "there are extra bytes at the end",
    layout.BAD_SLOT: "an element is outside of its array, or overlaps another",
}
"""Error texts by the kernels' error codes."""


class InvalidValue(CorruptRecord):
    """A value that is not valid, with its row in the current column."""

    def __init__(self, row: int, reason: str) -> None:
        super().__init__(f"row {row}: {reason}")
        self.row = row
        self.reason = reason


def load_kernels() -> ModuleType:
    """Returns the compiled kernels; the first call loads or compiles them."""
    from sluice.formats.kernels import compiled as kernels

    return kernels


class NewColumn:
    """Memory for a column that a kernel fills; writes its addresses into the plan ``words``."""

    def __init__(self, words: np.ndarray, rows: int) -> None:
        self._words = words
        self._rows = rows
        self._valid = np.full((rows + 7) // 8, 0xFF, np.uint8)
        self._offsets: np.ndarray | None = None
        kind = words[layout.IN_ARROW]
        if kind == layout.ARROW_BYTES:
            # the kernel stores the address and length of content; gather copies it
            self._offsets = np.zeros(rows + 1, np.int32)
            self._values = np.empty(8 * rows, np.uint8)
            words[layout.OFFSETS] = self._offsets.ctypes.data
        elif kind == layout.ARROW_BIT:
            self._values = np.zeros((rows + 7) // 8, np.uint8)
        else:
            self._values = np.zeros(arrow_width(words) * rows, np.uint8)
        words[layout.VALID], words[layout.VALUES] = (
            self._valid.ctypes.data,
            self._values.ctypes.data,
        )

    def finish(self, data_type: DataType) -> pa.Array:
        """The filled column in its Arrow type; that of a nested type as binary.

        :raises InvalidValue: text is not UTF-8, or a DECIMAL has too many digits.
        """
        nulls = int(self._words[layout.NULLS])
        bits = pa.py_buffer(self._valid) if nulls else None
        kind = pa.binary() if data_type.root in NESTED else arrow_type(data_type)
        if self._offsets is None:
            buffers = [bits, pa.py_buffer(self._values)]
        else:
            content = gather(self._values, self._offsets)
            buffers = [bits, pa.py_buffer(self._offsets), content]
        array = pa.Array.from_buffers(kind, self._rows, buffers, nulls)
        if pa.types.is_string(kind) or self._words[layout.IN_ARROW] == layout.ARROW_DECIMAL128:
            _check_values(array)
        return array


def point_to(words: np.ndarray, array: pa.Array, validity: pa.Array) -> int:
    """Puts the addresses of a column's buffers into its plan; returns its bytes of varying length.

    ``validity`` is the array with the null bits, usually ``array`` itself.
    """
    bits = validity.buffers()[0]
    words[layout.VALID] = bits.address if bits is not None and validity.null_count else 0
    words[layout.BIT] = validity.offset
    buffers = array.buffers()
    data = buffers[-1].address if buffers[-1] is not None else 0
    if words[layout.IN_ARROW] == layout.ARROW_BIT:
        # one position serves both bitmaps: values start at the position of validity
        assert array.offset == validity.offset
    words[layout.VALUES] = data + arrow_width(words) * array.offset
    if words[layout.IN_ARROW] != layout.ARROW_BYTES or not len(array):
        return 0
    bounds = np.frombuffer(buffers[1], np.int32, len(array) + 1, 4 * array.offset)
    words[layout.OFFSETS] = bounds.ctypes.data
    return int(bounds[-1]) - int(bounds[0])


def gather(sources: np.ndarray, offsets: np.ndarray) -> pa.Buffer:
    """Joins content: entry i is at address ``sources[i]``, with the length in ``offsets``."""
    content = pa.allocate_buffer(int(offsets[-1]))
    load_kernels().gather(sources, offsets, len(offsets) - 1, content)
    return content


def binary_array(
    offsets: np.ndarray, content: pa.Buffer, valid: pa.Buffer | None = None
) -> pa.Array:
    """int32 offsets, joined content and validity bits as an array."""
    buffers = [valid, pa.py_buffer(offsets), content]
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers)


def addresses(array: pa.Array) -> tuple[int, int]:
    """Returns the addresses of a binary array's bytes and of its first entry's offset."""
    _, offsets, data = array.buffers()
    return (
        data.address if data is not None else 0,
        offsets.address + 4 * array.offset if offsets is not None else 0,
    )


def bounds_of(array: pa.Array) -> np.ndarray:
    """Returns the offsets of a binary or list array, int32; one more than its entries."""
    offsets = array.buffers()[1]
    if offsets is None or not len(array):
        return np.zeros(len(array) + 1, np.int32)
    return np.frombuffer(offsets, np.int32, len(array) + 1, 4 * array.offset)


def content_size(array: pa.Array) -> int:
    """Bytes of all entries of a binary array."""
    bounds = bounds_of(array)
    return int(bounds[-1]) - int(bounds[0])


def _check_values(array: pa.Array) -> None:
    """Checks UTF-8 text and DECIMAL digits; finds the row, which Arrow does not report."""
    try:
        array.validate(full=True)
    except pa.ArrowInvalid as error:
        raise InvalidValue(_first_invalid(array), str(error)) from error


def _first_invalid(array: pa.Array) -> int:
    """Finds the first row that Arrow refuses, by bisection."""
    good, bad = 0, len(array)
    while bad - good > 1:
        middle = (good + bad) // 2
        try:
            array.slice(0, middle).validate(full=True)
            good = middle
        except pa.ArrowInvalid:
            bad = middle
    return good
