"""Records of batches as binary arrays and back, all at once.

Lengths are untrusted: each is checked against the available bytes before it is used.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from sluice.errors import CorruptRecord, RecordTooLarge
from sluice.formats.rows.column_memory import (
    PROBLEMS,
    addresses,
    binary_array,
    content_size,
    gather,
    load_kernels,
)

_MAX_BYTES = 2**31 - 1
_MAX_VARINT = 5
_LENGTH = 4


@dataclass(frozen=True, slots=True)
class Contents:
    """Positions of records in bytes that ``view`` keeps alive."""

    what: str
    view: np.ndarray
    sources: np.ndarray
    """The address of each record's first byte, int64."""
    offsets: np.ndarray
    """The offset of each record if they were joined (int32), plus the end."""

    def joined(self) -> pa.Array:
        """Returns the records as a binary array, copied."""
        return binary_array(self.offsets, gather(self.sources, self.offsets))

    def behind_heads(self, size: int) -> tuple[np.ndarray, pa.Array]:
        """Returns the first ``size`` bytes of each record, shape (n, size), and the rest.

        :raises CorruptRecord: names a record that is shorter.
        """
        lengths = np.diff(self.offsets) - size
        short = np.nonzero(lengths < 0)[0]
        if len(short):
            raise CorruptRecord(
                f"{self.what}: record {short[0]} has {lengths[short[0]] + size} bytes,"
                f" but needs at least {size}"
            )
        starts = self.sources - self.view.ctypes.data
        heads = self.view[starts[:, None] + np.arange(size)]
        offsets = np.zeros(len(lengths) + 1, np.int32)
        np.cumsum(lengths, out=offsets[1:])
        return heads, binary_array(offsets, gather(self.sources + size, offsets))


def find(what: str, view: memoryview, count: int) -> Contents:
    """Finds ``count`` records, each after its length (i32), that fill ``view``.

    :raises CorruptRecord: if they do not; ``what`` is the batch's name there.
    """
    if not 0 <= count <= len(view) // _LENGTH:
        raise CorruptRecord(f"{what}: {count} records do not fit into {len(view)} bytes")
    data = np.frombuffer(view, np.uint8)
    sources, offsets = np.empty(count, np.int64), np.empty(count + 1, np.int32)
    where = np.zeros(1, np.int64)
    problem = load_kernels().find_records(data, len(data), count, sources, offsets, where)
    if problem < 0:
        raise _corrupt(what, problem, where)
    return Contents(what, data, sources, offsets)


def split_keys(contents: Contents) -> tuple[pa.Array, pa.Array]:
    """Splits records of a KV batch into keys and rows; a record that ends with its key has no row.

    :raises CorruptRecord: names the record whose key ends outside of it.
    """
    count = len(contents.sources)
    sources = contents.sources.copy()
    key_sources, key_offsets = np.empty(count, np.int64), np.empty(count + 1, np.int32)
    row_offsets = np.empty(count + 1, np.int32)
    valid = np.zeros((count + 7) // 8, np.uint8)
    where = np.zeros(1, np.int64)
    deletes = load_kernels().split_keys(
        count, sources, contents.offsets, key_sources, key_offsets, row_offsets, valid, where
    )
    if deletes < 0:
        raise _corrupt(contents.what, deletes, where)
    keys = binary_array(key_offsets, gather(key_sources, key_offsets))
    rows = binary_array(
        row_offsets, gather(sources, row_offsets), pa.py_buffer(valid) if deletes else None
    )
    return keys, rows


def join_keys(keys: pa.Array, rows: pa.Array, head: int) -> memoryview:
    """The inverse of ``find`` and ``split_keys``; starts with ``head`` empty bytes."""
    count = len(keys)
    if len(rows) != count or keys.null_count:
        raise ValueError(f"{count} keys with {keys.null_count} nulls for {len(rows)} rows")
    capacity = head + count * (_LENGTH + _MAX_VARINT) + content_size(keys) + content_size(rows)
    target = pa.allocate_buffer(capacity)
    key_data, key_offsets = addresses(keys)
    row_data, row_offsets = addresses(rows)
    valid = rows.buffers()[0] if rows.null_count else None
    end = load_kernels().join_records(
        count,
        key_data,
        key_offsets,
        row_data,
        row_offsets,
        valid,
        rows.offset,
        target.address + head,
    )
    return memoryview(target)[: end - target.address]


def frame(values: pa.Array, head: int, marks: np.ndarray | None = None) -> memoryview:
    """Joins entries, each after its length (i32); starts with ``head`` empty bytes.

    :param marks: one byte for each entry, which its length counts and which precedes it.
    """
    count = len(values)
    if values.null_count:
        raise ValueError(f"{values.null_count} nulls among the values of a batch")
    mark = 0 if marks is None else 1
    if marks is not None and (marks.dtype != np.uint8 or len(marks) != count):
        raise ValueError(f"{len(marks)} marks of {marks.dtype} for {count} values")
    size = head + (_LENGTH + mark) * count + content_size(values)
    if size > _MAX_BYTES:
        raise RecordTooLarge(
            f"a batch has {size:,} bytes, more than 2 GiB: write fewer rows at once"
        )
    target = pa.allocate_buffer(size)
    marks = None if marks is None else np.ascontiguousarray(marks)
    load_kernels().frame_records(count, *addresses(values), mark, marks, target.address + head)
    return memoryview(target)


def _corrupt(what: str, problem: int, where: np.ndarray) -> CorruptRecord:
    return CorruptRecord(f"{what}: record {int(where[0])}: {PROBLEMS[problem]}")
