"""Converts Arrow's buffers to rows, in plain loops that numba compiles; see ``row_kernels``.

The target has memory for the largest possible rows, so no write needs a check.
"""

from __future__ import annotations

from numba.extending import register_jitable

from sluice.formats.kernels import memory_access as mem
from sluice.formats.kernels import row_layout as layout
from sluice.formats.kernels.row_kernels import is_set, word


@register_jitable
def write_varint(at: int, value: int, bits: int) -> int:
    """Writes the number as unsigned LEB128; returns the position after it."""
    if bits == 32:
        value &= 0xFFFFFFFF
    while value > 0x7F or value < 0:
        mem.store_8(at, (value & 0x7F) | 0x80)
        value = mem.shift_right(value, 7)
        at += 1
    mem.store_8(at, value)
    return at + 1


@register_jitable
def number_of(plan: int, row: int, kind: int) -> int:
    """Returns a number from a column, TIME in milliseconds."""
    values = word(plan, layout.VALUES)
    if kind == layout.ARROW_32:
        return mem.load_i32(values + 4 * row)
    if kind == layout.ARROW_64:
        return mem.load_i64(values + 8 * row)
    if kind == layout.ARROW_8:
        return mem.load_u8(values + row)
    if kind == layout.ARROW_16:
        return mem.load_i16(values + 2 * row)
    if kind == layout.ARROW_BIT:
        return 1 if is_set(values, word(plan, layout.BIT) + row) else 0
    if kind == layout.ARROW_DECIMAL64:
        return mem.load_i64(values + 16 * row)
    if kind == layout.ARROW_TIME32:
        return mem.load_i32(values + 4 * row) * word(plan, layout.BY)
    value = mem.load_i64(values + 8 * row)
    if word(plan, layout.TIMES) == 1000:
        return value // 1000
    return value // 1000000


@register_jitable
def stamp_of(plan: int, row: int) -> tuple[int, int, bool]:
    """Returns milliseconds, nanoseconds within the millisecond, and whether they fit 64 bits."""
    value = mem.load_i64(word(plan, layout.VALUES) + 8 * row)
    times = word(plan, layout.TIMES)
    if times == 1000:
        millis = value // 1000
        return millis, (value - millis * 1000) * 1000, True
    if times == 1000000:
        millis = value // 1000000
        return millis, value - millis * 1000000, True
    if word(plan, layout.BY) == 1000:
        if value > layout.MAX_MILLIS_US or value < -layout.MAX_MILLIS_US:
            return 0, 0, False
        return value * 1000, 0, True
    return value, 0, True


@register_jitable
def write_stamp(plan: int, row: int, at: int, kind: int) -> int:
    """Writes milliseconds, then the nanoseconds within the millisecond if the precision has any."""
    millis, nanos, fits = stamp_of(plan, row)
    if not fits:
        return layout.OUT_OF_RANGE
    if kind == layout.ROW_VARINT64:
        return write_varint(at, millis, 64)
    if kind == layout.ROW_STAMP_VARINT:
        return write_varint(write_varint(at, millis, 64), nanos, 32)
    mem.store_64(at, millis)
    if kind == layout.ROW_64:
        return at + 8
    mem.store_32(at + 8, nanos)
    return at + 12


@register_jitable
def big_endian_size(low: int, high: int) -> int:
    """Returns the bytes of the shortest two's complement of a number of 128 bits."""
    size = 16
    while size > 1:
        bit = 8 * (size - 1) - 1  # the sign that one byte less would have
        if bit >= 64:
            rest = high >> (bit - 64)
        else:
            if high != (low >> 63):
                return size
            rest = low >> bit
        if rest != 0 and rest != -1:
            return size
        size -= 1
    return size


@register_jitable
def decimal_bytes(plan: int, row: int, at: int) -> int:
    """Writes the unscaled number in the fewest big-endian bytes; returns their number."""
    values = word(plan, layout.VALUES) + 16 * row
    low = mem.load_i64(values)
    high = mem.load_i64(values + 8)
    size = big_endian_size(low, high)
    for index in range(size):
        bit = 8 * (size - 1 - index)
        byte = high >> (bit - 64) if bit >= 64 else low >> bit
        mem.store_8(at + index, byte)
    return size


@register_jitable
def write_decimal(plan: int, row: int, at: int, kind: int, lengths: int) -> int:
    if kind == layout.ROW_SIZED:
        size = decimal_bytes(plan, row, at + 1)
        mem.store_8(at, size)
        return at + 1 + size
    size = decimal_bytes(plan, row, at)
    mem.store_32(lengths, size)
    return at + size


@register_jitable
def content_of(plan: int, row: int) -> tuple[int, int]:
    """Returns the address and size of text, bytes or a nested value."""
    if word(plan, layout.IN_ARROW) == layout.ARROW_FIXED:
        size = word(plan, layout.SIZE)
        return word(plan, layout.VALUES) + size * row, size
    offsets = word(plan, layout.OFFSETS) + 4 * row
    first = mem.load_i32(offsets)
    return word(plan, layout.VALUES) + first, mem.load_i32(offsets + 4) - first


@register_jitable
def write_content(plan: int, row: int, at: int, kind: int, lengths: int) -> int:
    """Writes text, bytes or a nested value."""
    source, size = content_of(plan, row)
    if kind == layout.ROW_SIZED:
        at = write_varint(at, size, 32)
    elif kind == layout.ROW_LISTED:
        mem.store_32(lengths, size)
    else:
        width = word(plan, layout.SIZE)
        if size > width:
            return layout.TOO_LONG
        mem.copy(at, source, size)
        mem.fill_zeros(at + size, width - size)
        return at + width
    mem.copy(at, source, size)
    return at + size


@register_jitable
def write_field(plan: int, row: int, at: int, lengths: int) -> int:
    """Writes one value; returns the position after it, or an error code."""
    kind = word(plan, layout.IN_ROW)
    arrow = word(plan, layout.IN_ARROW)
    if arrow == layout.ARROW_STAMP:
        return write_stamp(plan, row, at, kind)
    if kind >= layout.ROW_SIZED:
        if arrow == layout.ARROW_DECIMAL128:
            return write_decimal(plan, row, at, kind, lengths)
        return write_content(plan, row, at, kind, lengths)
    value = number_of(plan, row, arrow)
    if kind == layout.ROW_VARINT32:
        return write_varint(at, value, 32)
    if kind == layout.ROW_VARINT64:
        return write_varint(at, value, 64)
    if kind == layout.ROW_8:
        mem.store_8(at, value)
        return at + 1
    if kind == layout.ROW_16:
        mem.store_16(at, value)
        return at + 2
    if kind == layout.ROW_32:
        mem.store_32(at, value)
        return at + 4
    mem.store_64(at, value)
    return at + 8


def encode_rows(
    rows: int,
    plan: int,
    columns: int,
    null_bytes: int,
    listed: int,
    target: int,
    offsets: int,
    where: int,
) -> int:
    """Writes all rows of a batch consecutively; returns their size, or an error code.

    ``offsets`` gets rows + 1 positions of 64 bits; ``where`` the row and column of a problem.
    """
    at = target
    mem.store_64(offsets, 0)
    for row in range(rows):
        nulls = at
        lengths = at + null_bytes
        at = lengths + 4 * listed
        mem.fill_zeros(nulls, at - nulls)
        for column in range(columns):
            words = plan + 8 * layout.WORDS * column
            valid = word(words, layout.VALID)
            if valid != 0 and not is_set(valid, word(words, layout.BIT) + row):
                byte = nulls + (column >> 3)
                mem.store_8(byte, mem.load_u8(byte) | (1 << (column & 7)))
                continue
            at = write_field(words, row, at, lengths)
            if at < 0:
                mem.store_64(where, row)
                mem.store_64(where + 8, column)
                return at
            if word(words, layout.IN_ROW) == layout.ROW_LISTED:
                lengths += 4
        mem.store_64(offsets + 8 * row + 8, at - target)
    return at - target
