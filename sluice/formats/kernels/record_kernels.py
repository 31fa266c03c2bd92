"""Finds and joins the parts of a batch's records, in plain loops that numba compiles."""

from __future__ import annotations

from sluice.formats.kernels import memory_access as mem
from sluice.formats.kernels import row_layout as layout
from sluice.formats.kernels.row_kernels import read_sized
from sluice.formats.kernels.row_writers import write_varint


def find_records(data: int, size: int, count: int, sources: int, offsets: int, where: int) -> int:
    """Finds records after their length (i32): their addresses, and offsets as if they were joined.

    Returns 0, or the error code of the record at ``where``.
    """
    at = data
    end = data + size
    total = 0
    mem.store_32(offsets, 0)
    for record in range(count):
        mem.store_64(where, record)
        if end - at < 4:
            return layout.ENDS_EARLY
        length = mem.load_i32(at)
        at += 4
        if length < 0:
            return layout.BAD_LENGTH
        if length > end - at:
            return layout.ENDS_EARLY
        mem.store_64(sources + 8 * record, at)
        total += length
        mem.store_32(offsets + 4 * record + 4, total)
        at += length
    mem.store_64(where, count)
    return 0 if at == end else layout.BYTES_LEFT


def split_keys(
    count: int,
    sources: int,
    offsets: int,
    key_sources: int,
    key_offsets: int,
    row_offsets: int,
    valid: int,
    where: int,
) -> int:
    """Splits the records of a KV batch into keys and rows; ``sources`` gets the starts of the rows.

    A record without a row keeps its bit in ``valid`` unset. Returns the number of records without a
    row, or an error code.
    """
    deletes = 0
    keys = 0
    rows = 0
    mem.store_32(key_offsets, 0)
    mem.store_32(row_offsets, 0)
    for record in range(count):
        mem.store_64(where, record)
        at = mem.load_i64(sources + 8 * record)
        length = mem.load_i32(offsets + 4 * record + 4) - mem.load_i32(offsets + 4 * record)
        end = at + length
        size, at = read_sized(at, end)
        if at < 0:
            return at
        mem.store_64(key_sources + 8 * record, at)
        keys += size
        mem.store_32(key_offsets + 4 * record + 4, keys)
        at += size
        mem.store_64(sources + 8 * record, at)
        if end == at:
            deletes += 1
        else:
            rows += end - at
            byte = valid + (record >> 3)
            mem.store_8(byte, mem.load_u8(byte) | (1 << (record & 7)))
        mem.store_32(row_offsets + 4 * record + 4, rows)
    return deletes


def join_records(
    count: int,
    keys: int,
    key_offsets: int,
    rows: int,
    row_offsets: int,
    valid: int,
    valid_from: int,
    target: int,
) -> int:
    """Writes keys and rows as records of a KV batch; returns the position after the last."""
    at = target
    for record in range(count):
        first = mem.load_i32(key_offsets + 4 * record)
        size = mem.load_i32(key_offsets + 4 * record + 4) - first
        start = at + 4
        at = write_varint(start, size, 32)
        mem.copy(at, keys + first, size)
        at += size
        bit = valid_from + record
        if valid == 0 or (mem.load_u8(valid + (bit >> 3)) >> (bit & 7)) & 1 != 0:
            first = mem.load_i32(row_offsets + 4 * record)
            size = mem.load_i32(row_offsets + 4 * record + 4) - first
            mem.copy(at, rows + first, size)
            at += size
        mem.store_32(start - 4, at - start)
    return at


def frame_records(count: int, data: int, offsets: int, head: int, heads: int, target: int) -> int:
    """Writes entries, each after its length (i32) and ``head`` bytes; returns the end."""
    at = target
    for record in range(count):
        first = mem.load_i32(offsets + 4 * record)
        size = mem.load_i32(offsets + 4 * record + 4) - first
        mem.store_32(at, head + size)
        at += 4
        mem.copy(at, heads + head * record, head)
        at += head
        mem.copy(at, data + first, size)
        at += size
    return at
