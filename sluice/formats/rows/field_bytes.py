"""Encodes key fields of all rows at once; each function returns one binary entry per row.

Loops run over byte positions, never over rows.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sluice.errors import RecordTooLarge, UnsupportedType
from sluice.model import DataType

_MAX_BYTES = 2**31 - 1
_MILLIS_OF_DAY = {"s": (1000, 1), "ms": (1, 1), "us": (1, 1000), "ns": (1, 1_000_000)}
_PER_MILLI = {"us": 1000, "ns": 1_000_000}


def binary_buffers(array: pa.Array) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns start and length of each entry (int64), and the bytes that contain them."""
    _, offsets, data = array.buffers()
    count = len(array)
    if offsets is None or not count:
        empty = np.zeros(count, np.int64)
        return empty, empty, np.empty(0, np.uint8)
    bounds = np.frombuffer(offsets, np.int32, count + 1, 4 * array.offset).astype(np.int64)
    content = np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    return bounds[:-1], np.diff(bounds), content


def numbers(array: pa.Array) -> np.ndarray:
    """Returns the values of a fixed-width array without a copy; null values are undefined."""
    width = array.type.bit_width // 8
    kind = "f" if pa.types.is_floating(array.type) else "i"
    _, data = array.buffers()
    if data is None:
        return np.empty(0, f"<{kind}{width}")
    return np.frombuffer(data, f"<{kind}{width}", len(array), width * array.offset)


def integers(array: pa.Array) -> np.ndarray:
    """Returns integers of any width, and DATE in days, as int64."""
    return numbers(array).astype(np.int64)


def booleans(array: pa.Array) -> np.ndarray:
    """0 and 1 as uint8."""
    return numbers(pc.fill_null(array, False).cast(pa.int8())).view(np.uint8)


def millis_of_day(array: pa.Array) -> np.ndarray:
    """Returns TIME in Fluss's form: milliseconds of the day, for every precision."""
    times, by = _MILLIS_OF_DAY[array.type.unit]
    return numbers(array).astype(np.int64) * times // by


def epoch_millis(array: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Both TIMESTAMPs as epoch milliseconds and nanoseconds within the millisecond."""
    values = numbers(array)
    unit = array.type.unit
    if unit in ("s", "ms"):
        return values * (1000 if unit == "s" else 1), np.zeros(len(values), np.int64)
    per_milli = _PER_MILLI[unit]
    millis = values // per_milli
    return millis, (values - millis * per_milli) * (1_000_000 // per_milli)


def unscaled_low(array: pa.Array) -> np.ndarray:
    """Unscaled DECIMAL values of precision 18 at most, as int64."""
    return _decimal_words(array)[:, 0]


def unscaled_big_endian(array: pa.Array) -> pa.Array:
    """Unscaled DECIMAL values as shortest big-endian two's complement, 1 to 16 bytes."""
    words = np.ascontiguousarray(_decimal_words(array))
    matrix = words.view(np.uint8).reshape(-1, 16)[:, ::-1]
    sign = np.where(matrix[:, :1] & 0x80, 0xFF, 0).astype(np.uint8)
    # a leading byte can be dropped if it only repeats the sign of the next byte
    needless = (matrix[:, :15] == sign) & ((matrix[:, 1:] ^ sign) & 0x80 == 0)
    lengths = 16 - np.logical_and.accumulate(needless, axis=1).sum(axis=1)
    return from_matrix(matrix, lengths, at_end=True)


def _decimal_words(array: pa.Array) -> np.ndarray:
    _, data = array.buffers()
    if data is None:
        return np.empty((0, 2), np.int64)
    count = len(array)
    return np.frombuffer(data, "<i8", 2 * count, 16 * array.offset).reshape(-1, 2)


def as_binary(array: pa.Array) -> pa.Array:
    """Text and bytes of any kind as binary."""
    return array if pa.types.is_binary(array.type) else array.cast(pa.binary())


def fixed(values: np.ndarray) -> pa.Array:
    """Numbers as their little-endian bytes."""
    width = values.dtype.itemsize
    content = np.ascontiguousarray(values)
    bounds = np.arange(len(values) + 1, dtype=np.int64) * width
    return _binary_array(bounds, content.view(np.uint8).reshape(-1))


def varint(values: np.ndarray) -> pa.Array:
    """Unsigned LEB128 of 64-bit numbers; mask 32-bit ones before (-1 takes 5 bytes, not 10)."""
    rest = values.astype(np.int64).view(np.uint64)
    lengths = np.ones(len(rest), np.int64)
    for shift in range(7, 64, 7):
        longer = rest >> np.uint64(shift) != 0
        if not longer.any():
            break
        lengths += longer
    width = int(lengths.max(initial=1))
    matrix = np.empty((len(rest), width), np.uint8)
    for index in range(width):
        more = (lengths > index + 1).astype(np.uint8) << 7
        matrix[:, index] = (rest >> np.uint64(7 * index)).astype(np.uint8) & 0x7F | more
    return from_matrix(matrix, lengths)


def varint32(values: np.ndarray) -> pa.Array:
    """Unsigned LEB128 of the 32-bit pattern."""
    return varint(values & 0xFFFFFFFF)


def with_length(array: pa.Array) -> pa.Array:
    """Returns each entry preceded by its length as a varint."""
    _, lengths, _ = binary_buffers(array)
    return join([varint(lengths), array])


def join(parts: list[pa.Array]) -> pa.Array:
    """Entries of several arrays joined row by row."""
    if len(parts) == 1:
        return parts[0]
    if sum(part.nbytes for part in parts) > _MAX_BYTES:
        raise RecordTooLarge("the keys of one batch have more than 2 GiB: write smaller batches")
    return pc.binary_join_element_wise(*parts, b"")


def from_matrix(matrix: np.ndarray, lengths: np.ndarray, *, at_end: bool = False) -> pa.Array:
    """The first (or last) ``lengths[i]`` bytes of each row of a uint8 matrix."""
    width = matrix.shape[1]
    columns = np.arange(width)
    first, last = (width - lengths, width) if at_end else (0, lengths)
    wanted = (columns >= np.reshape(first, (-1, 1))) & (columns < np.reshape(last, (-1, 1)))
    bounds = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=bounds[1:])
    return _binary_array(bounds, matrix[wanted])


def _binary_array(bounds: np.ndarray, content: np.ndarray) -> pa.Array:
    if int(bounds[-1]) > _MAX_BYTES:
        raise RecordTooLarge("the keys of one batch have more than 2 GiB: write smaller batches")
    buffers = [None, pa.py_buffer(bounds.astype(np.int32)), pa.py_buffer(content)]
    return pa.Array.from_buffers(pa.binary(), len(bounds) - 1, buffers)


def refuse(data_type: DataType, where: str, encoder: str) -> UnsupportedType:
    """Returns the error for a key column whose type the encoder does not support."""
    return UnsupportedType(
        f"column {where!r}: type {data_type} is not supported in a key with {encoder} encoding"
    )
