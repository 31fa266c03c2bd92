"""Hashes and compares the keys of all rows of an Arrow batch at once.

The 64-bit hash of a single column of at most eight bytes is a bijection: equal hashes mean equal
keys. Otherwise about one in 2**64 pairs of different keys shares a hash, so the caller must compare
the keys.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sluice.errors import CorruptRecord, UnsupportedType

_WORD_BYTES = 8
_LOOP_WORDS_MAX = 16
_M1 = np.uint64(0xBF58476D1CE4E5B9)
_M2 = np.uint64(0x94D049BB133111EB)
_STEP = 0x9E3779B97F4A7C15
_MASKS = np.array([(1 << 8 * n) - 1 for n in range(_WORD_BYTES + 1)], np.uint64)
_64_BITS = (1 << 64) - 1

assert sys.byteorder == "little"


class KeyColumns:
    """The key of a table's rows. Immutable."""

    def __init__(self, schema: pa.Schema, names: Sequence[str]) -> None:
        """:param names: the key columns, in the key's order.

        :raises UnsupportedType: for a column that no Fluss key can have.
        """
        self.names = tuple(names)
        fields = [schema.field(name) for name in self.names]
        for field in fields:
            if not _is_key_type(field.type):
                raise UnsupportedType(
                    f"key column {field.name}: type {field.type} is not supported in a primary key"
                )
        self.schema = pa.schema(fields)
        self.one_word = len(fields) == 1 and _words_of(fields[0].type) == 1
        """Whether equal hashes mean equal keys."""

    def of(self, rows: pa.RecordBatch) -> list[pa.Array]:
        """The key columns of a batch.

        :raises CorruptRecord: a key has a null.
        """
        columns = [rows.column(name) for name in self.names]
        for name, column in zip(self.names, columns, strict=True):
            if column.null_count:
                raise CorruptRecord(
                    f"key column {name}: {column.null_count} rows have a null in it"
                )
        return columns

    def hashes(self, columns: Sequence[pa.Array], seed: int = 0) -> np.ndarray:
        """One well-mixed uint64 per row; another seed gives unrelated hashes."""
        found: np.ndarray | None = None
        for number, column in enumerate(columns):
            salt = ((seed << 8) + number + 1) * _STEP & _64_BITS
            hashed = _column_hashes(column, salt)
            if found is None:
                found = hashed
            else:
                found *= _M1  # the order of columns matters
                found ^= hashed
                found = _mixed(found)
        assert found is not None, "a key has a column"
        return found


def same_values(left: Sequence[pa.Array], right: Sequence[pa.Array]) -> np.ndarray:
    """Whether the keys of two lists of columns are equal, row by row; bool array."""
    found = np.ones(len(left[0]), bool)
    for a, b in zip(left, right, strict=True):
        equal = pc.equal(_as_bits(a), _as_bits(b))
        found &= equal.to_numpy(zero_copy_only=False).astype(bool, copy=False)
    return found


def _is_key_type(kind: pa.DataType) -> bool:
    return (
        _is_bytes(kind)
        or pa.types.is_boolean(kind)
        or (pa.types.is_primitive(kind) and kind.bit_width % 8 == 0)
        or pa.types.is_decimal128(kind)
        or pa.types.is_fixed_size_binary(kind)
    )


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))


def _words_of(kind: pa.DataType) -> int | None:
    """The number of 8-byte words of a value; None for types of variable length."""
    if _is_bytes(kind):
        return None
    return -(-int(kind.bit_width) // (8 * _WORD_BYTES))


def _as_bits(column: pa.Array) -> pa.Array:
    """Floating-point columns as integers of the same bits, so that a NaN equals itself."""
    if pa.types.is_floating(column.type):
        return column.view({16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[column.type.bit_width])
    return column


def _column_hashes(column: pa.Array, salt: int) -> np.ndarray:
    kind, count = column.type, len(column)
    if _is_bytes(kind):
        return _bytes_hashes(*_bounds(column), salt)
    if pa.types.is_boolean(kind):
        column = column.cast(pa.uint8())
        kind = column.type
    width = kind.bit_width // 8
    data = column.buffers()[1]
    if data is None or not count:
        return np.zeros(count, np.uint64)
    if width < _WORD_BYTES and width & (width - 1) == 0:
        words = np.frombuffer(data, f"<u{width}", count, width * column.offset)
        return _mixed(words.astype(np.uint64) ^ np.uint64(salt))
    if width % _WORD_BYTES == 0:
        per_row = width // _WORD_BYTES
        flat = np.frombuffer(data, "<u8", count * per_row, width * column.offset)
        words = flat.reshape(count, per_row)
        found = _mixed(words[:, 0] ^ np.uint64(salt))
        for i in range(1, per_row):
            found += _mixed(words[:, i] ^ _salted(salt, i))
        return found if per_row == 1 else _mixed(found)
    content = np.frombuffer(data, np.uint8)
    starts = width * (column.offset + np.arange(count, dtype=np.int64))
    return _bytes_hashes(starts, np.full(count, width, np.int64), content, salt)


def _bounds(column: pa.Array) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Start and length of each value (int64), and the buffer with their bytes."""
    _, offsets, data = column.buffers()
    count = len(column)
    if offsets is None or not count:
        return np.zeros(count, np.int64), np.zeros(count, np.int64), np.empty(0, np.uint8)
    bounds = np.frombuffer(offsets, np.int32, count + 1, 4 * column.offset).astype(np.int64)
    content = np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    return bounds[:-1], np.diff(bounds), content


def _bytes_hashes(
    starts: np.ndarray, lengths: np.ndarray, content: np.ndarray, salt: int
) -> np.ndarray:
    """Sums all words of each value, each mixed with its position; the last word may be short."""
    found = lengths.astype(np.uint64)
    found *= _M2
    found += np.uint64(salt)
    if not len(starts) or not len(content):
        return _mixed(found)
    if len(content) < _WORD_BYTES:
        content = np.pad(content, (0, _WORD_BYTES - len(content)))
    counts = -(-lengths // _WORD_BYTES)
    common = min(int(counts.min()), _LOOP_WORDS_MAX)
    for i in range(common):
        words = _words_at(content, starts, lengths, i)
        words ^= _salted(salt, i)
        found += _mixed(words)
    rows = np.flatnonzero(counts > common)
    if len(rows):
        left = counts[rows] - common
        ends = np.cumsum(left)
        places = np.arange(int(ends[-1])) - np.repeat(ends - left, left) + common
        of_rows = np.repeat(rows, left)
        words = _words_at(content, starts[of_rows], lengths[of_rows], places)
        words ^= _salted(salt, places)
        found[rows] += np.add.reduceat(_mixed(words), ends - left)
    return _mixed(found)


def _words_at(
    content: np.ndarray, starts: np.ndarray, lengths: np.ndarray, place: int | np.ndarray
) -> np.ndarray:
    """The word at ``place`` of each value; bytes after the value's end are zero."""
    # words start at any byte; a last word is read from an earlier byte, to stay in the buffer
    at = np.ndarray((len(content) - _WORD_BYTES + 1,), "<u8", content, strides=(1,))
    begin = starts + _WORD_BYTES * place
    inside = np.minimum(begin, len(at) - 1)
    words: np.ndarray = at[inside]
    if len(begin) and int(begin.max()) >= len(at):
        words >>= (8 * (begin - inside)).astype(np.uint64)
    rest = lengths - _WORD_BYTES * place
    if int(rest.min()) < _WORD_BYTES:
        words &= _MASKS[np.minimum(rest, _WORD_BYTES)]
    return words


def _salted(salt: int, place: int | np.ndarray) -> np.ndarray:
    """A mixed salt for each word position."""
    places = np.atleast_1d(np.asarray(place, np.uint64))
    return _mixed(places * np.uint64(_STEP) + np.uint64(salt))


def _mixed(words: np.ndarray) -> np.ndarray:
    """Mixes each word; a bijection in which every input bit affects every output bit."""
    words = np.asarray(words ^ (words >> np.uint64(30)))
    words *= _M1
    words ^= words >> np.uint64(27)
    words *= _M2
    words ^= words >> np.uint64(31)
    return words
