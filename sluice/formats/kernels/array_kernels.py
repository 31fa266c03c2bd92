"""Converts BinaryArrays to the elements of Arrow lists and back, in loops for numba.

See docs/fluss/rows.md#binary-arrays

A BinaryArray is a count (i32), null bits in words of 32, one slot per element, then the content
that does not fit a slot, each at a multiple of 8. See ``row_kernels`` for the rules of these loops.
"""

from __future__ import annotations

from numba.extending import register_jitable

from sluice.formats.kernels import memory_access as mem
from sluice.formats.kernels import row_layout as layout
from sluice.formats.kernels.row_kernels import (
    is_set,
    put_content,
    put_decimal,
    put_null,
    put_number,
    put_stamp,
    read_number,
    word,
)
from sluice.formats.kernels.row_writers import content_of, decimal_bytes, stamp_of, write_field


@register_jitable
def header_size(count: int) -> int:
    return 4 + ((count + 31) >> 5) * 4


def count_elements(
    data: int, offsets: int, valid: int, rows: int, width: int, counts: int, where: int
) -> int:
    """Writes the list offsets (int32) of BinaryArrays; a null array has no elements."""
    total = 0
    mem.store_32(counts, 0)
    for row in range(rows):
        mem.store_64(where, row)
        if valid == 0 or is_set(valid, row):
            at = data + mem.load_i32(offsets + 4 * row)
            size = data + mem.load_i32(offsets + 4 * row + 4) - at
            if size < 4:
                return layout.ENDS_EARLY
            count = mem.load_i32(at)
            if count < 0:
                return layout.BAD_LENGTH
            if header_size(count) + count * width > size:
                return layout.ENDS_EARLY
            total += count
        mem.store_32(counts + 4 * row + 4, total)
    return 0


@register_jitable
def decode_slot(plan: int, element: int, kind: int, slot: int, base: int, size: int) -> int:
    """Reads an element after the slots, or in its slot; returns its bytes or an error code."""
    mark = mem.load_i64(slot)
    at = mem.shift_right(mark, 32)
    length = mark & 0xFFFFFFFF
    if kind == layout.SLOT_STAMP:
        if length >= layout.NANOS_PER_MILLI:
            return layout.BAD_NANOS
        if at + 8 > size:
            return layout.BAD_SLOT
        return put_stamp(plan, element, mem.load_i64(base + at), length)
    if kind == layout.SLOT_BYTES and mark < 0:
        length = mem.shift_right(mark, 56) & 0x7F
        if length > 7:
            return layout.BAD_SLOT
        problem = put_content(plan, element, slot, length)
        return problem if problem < 0 else length
    if at + length > size:
        return layout.BAD_SLOT
    if kind == layout.SLOT_DECIMAL:
        return put_decimal(plan, element, base + at, length)
    problem = put_content(plan, element, base + at, length)
    return problem if problem < 0 else length


@register_jitable
def decode_array(plan: int, first: int, count: int, width: int, base: int, size: int) -> int:
    """Decodes one array. Elements may not share bytes, so that small arrays cannot become large."""
    kind = word(plan, layout.IN_ROW)
    arrow = word(plan, layout.IN_ARROW)
    nulls = base + 4
    slot = base + header_size(count)
    left = size
    for index in range(count):
        element = first + index
        if is_set(nulls, index):
            put_null(plan, element)
        elif kind >= layout.SLOT_STAMP:
            taken = decode_slot(plan, element, kind, slot, base, size)
            if taken < 0:
                return taken
            left -= taken
            if left < 0:
                return layout.BAD_SLOT
        else:
            value, _ = read_number(kind, slot, slot + width)
            problem = put_number(plan, element, arrow, value)
            if problem < 0:
                return problem
        slot += width
    return 0


def decode_arrays(
    data: int, offsets: int, rows: int, width: int, counts: int, plan: int, where: int
) -> int:
    """Decodes the arrays that ``count_elements`` has counted; returns 0 or an error code."""
    for row in range(rows):
        first = mem.load_i32(counts + 4 * row)
        count = mem.load_i32(counts + 4 * row + 4) - first
        base = data + mem.load_i32(offsets + 4 * row)
        size = data + mem.load_i32(offsets + 4 * row + 4) - base
        problem = decode_array(plan, first, count, width, base, size)
        if problem < 0:
            mem.store_64(where, row)
            return problem
    return 0


@register_jitable
def put_behind(at: int, slot: int, base: int, source: int, size: int) -> int:
    """Writes content after the slots, padded; returns the position after it."""
    padded = (size + 7) & ~7
    mem.copy(at, source, size)
    mem.fill_zeros(at + size, padded - size)
    mem.store_64(slot, ((at - base) << 32) | size)
    return at + padded


@register_jitable
def encode_slot(plan: int, element: int, kind: int, slot: int, base: int, at: int) -> int:
    """Writes an element's slot and its content after the slots; returns the position after it."""
    if kind == layout.SLOT_STAMP:
        millis, nanos, fits = stamp_of(plan, element)
        if not fits:
            return layout.OUT_OF_RANGE
        mem.store_64(at, millis)
        mem.store_64(slot, ((at - base) << 32) | nanos)
        return at + 8
    if kind == layout.SLOT_DECIMAL:
        mem.fill_zeros(at, 16)
        size = decimal_bytes(plan, element, at)
        mem.store_64(slot, ((at - base) << 32) | size)
        return at + 16
    source, size = content_of(plan, element)
    if kind == layout.SLOT_BYTES and size <= 7:
        mem.copy(slot, source, size)
        mem.store_8(slot + 7, 0x80 | size)
        return at
    return put_behind(at, slot, base, source, size)


@register_jitable
def encode_array(plan: int, first: int, count: int, width: int, base: int) -> int:
    """Writes one array at ``base``; returns the position after it, or an element's error code."""
    kind = word(plan, layout.IN_ROW)
    valid = word(plan, layout.VALID)
    slot = base + header_size(count)
    at = base + ((header_size(count) + count * width + 7) & ~7)
    mem.fill_zeros(base, at - base)
    mem.store_32(base, count)
    for index in range(count):
        element = first + index
        if valid != 0 and not is_set(valid, word(plan, layout.BIT) + element):
            byte = base + 4 + (index >> 3)
            mem.store_8(byte, mem.load_u8(byte) | (1 << (index & 7)))
        elif kind >= layout.SLOT_STAMP:
            at = encode_slot(plan, element, kind, slot, base, at)
            if at < 0:
                return at
        else:
            after = write_field(plan, element, slot, 0)
            if after < 0:
                return after
        slot += width
    return at


def encode_arrays(
    rows: int,
    counts: int,
    first: int,
    valid: int,
    valid_from: int,
    width: int,
    plan: int,
    target: int,
    offsets: int,
    where: int,
) -> int:
    """Writes lists as consecutive arrays; returns their size, or the error code of a row.

    ``counts`` are the lists' offsets, ``first`` is the offset of the first element. A null list
    takes no bytes. ``offsets`` gets rows + 1 positions of 64 bits.
    """
    at = target
    mem.store_64(offsets, 0)
    for row in range(rows):
        if valid == 0 or is_set(valid, valid_from + row):
            begin = mem.load_i32(counts + 4 * row)
            count = mem.load_i32(counts + 4 * row + 4) - begin
            at = encode_array(plan, begin - first, count, width, at)
            if at < 0:
                mem.store_64(where, row)
                return at
        mem.store_64(offsets + 8 * row + 8, at - target)
    return at - target
