"""Rows to Arrow's buffers, as plain loops that numba compiles.

Nothing here runs as Python. Every argument is an int64: a count, or the address of memory that the
caller owns. Positions are addresses too; a value below zero is an error code of
``row_layout``. Each read of a row is checked against the row's end first.
"""

from __future__ import annotations

from numba.extending import register_jitable

from sluice.formats.kernels import memory_access as mem
from sluice.formats.kernels import row_layout as layout

Pair = tuple[int, int]


@register_jitable
def word(plan: int, name: int) -> int:
    """Returns a word of a column's plan."""
    return mem.load_i64(plan + 8 * name)


@register_jitable
def is_set(bits: int, index: int) -> bool:
    """A bit of a bitmap, counted from the lowest."""
    return (mem.load_u8(bits + (index >> 3)) >> (index & 7)) & 1 != 0


@register_jitable
def read_varint(at: int, end: int, bits: int) -> Pair:
    """Returns the value and the position after it."""
    value = 0
    shift = 0
    while shift < bits:
        if at >= end:
            return 0, layout.ENDS_EARLY
        byte = mem.load_u8(at)
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if bits == 32:
                value = (value << 32) >> 32
            return value, at
        shift += 7
    return 0, layout.VARINT_TOO_LONG


@register_jitable
def read_sized(at: int, end: int) -> Pair:
    """Returns the length of the bytes after a varint, and the position of the first."""
    size, at = read_varint(at, end, 32)
    if at < 0:
        return 0, at
    if size < 0:
        return 0, layout.BAD_LENGTH
    if size > end - at:
        return 0, layout.ENDS_EARLY
    return size, at


@register_jitable
def read_number(kind: int, at: int, end: int) -> Pair:
    """Returns a number of fixed width with its sign, and the position after it."""
    if kind == layout.ROW_8:
        if end - at < 1:
            return 0, layout.ENDS_EARLY
        return mem.load_u8(at), at + 1
    if kind == layout.ROW_16:
        if end - at < 2:
            return 0, layout.ENDS_EARLY
        return mem.load_i16(at), at + 2
    if kind == layout.ROW_32:
        if end - at < 4:
            return 0, layout.ENDS_EARLY
        return mem.load_i32(at), at + 4
    if end - at < 8:
        return 0, layout.ENDS_EARLY
    return mem.load_i64(at), at + 8


@register_jitable
def read_stamp(kind: int, at: int, end: int) -> tuple[int, int, int]:
    """Returns milliseconds, nanoseconds within the millisecond, and the position after them."""
    if kind == layout.ROW_STAMP:
        millis, at = read_number(layout.ROW_64, at, end)
        if at < 0:
            return 0, 0, at
        nanos, at = read_number(layout.ROW_32, at, end)
    else:
        millis, at = read_varint(at, end, 64)
        if at < 0:
            return 0, 0, at
        nanos, at = read_varint(at, end, 32)
    if at >= 0 and (nanos < 0 or nanos >= layout.NANOS_PER_MILLI):
        return 0, 0, layout.BAD_NANOS
    return millis, nanos, at


@register_jitable
def read_listed(at: int, end: int, lengths: int) -> Pair:
    """Returns the length of bytes that an IndexedRow lists, and the position of the first."""
    size = mem.load_i32(lengths)
    if size < 0:
        return 0, layout.BAD_LENGTH
    if size > end - at:
        return 0, layout.ENDS_EARLY
    return size, at


@register_jitable
def put_null(plan: int, row: int) -> None:
    """Marks a value as null; its bytes are already zero."""
    byte = word(plan, layout.VALID) + (row >> 3)
    mem.store_8(byte, mem.load_u8(byte) & ~(1 << (row & 7)))
    mem.store_64(plan + 8 * layout.NULLS, word(plan, layout.NULLS) + 1)
    if word(plan, layout.IN_ARROW) == layout.ARROW_BYTES:
        put_bytes(plan, row, 0, 0)


@register_jitable
def put_bytes(plan: int, row: int, at: int, size: int) -> None:
    """Stores the address of the content and its end offset; ``gather`` copies it."""
    end = word(plan, layout.CURSOR) + size
    mem.store_64(plan + 8 * layout.CURSOR, end)
    mem.store_32(word(plan, layout.OFFSETS) + 4 * row + 4, end)
    mem.store_64(word(plan, layout.VALUES) + 8 * row, at)


@register_jitable
def scaled(millis: int, part: int, times: int, highest: int, rest: int) -> tuple[int, bool]:
    """Returns ``millis * times + part``, and whether it fits 64 bits.

    The compiler assumes that no product wraps, so none may. ``highest`` and ``rest`` are the
    quotient and remainder of the largest number of 64 bits by ``times``.
    """
    if millis >= 0:
        fits = millis < highest or (millis == highest and part <= rest)
        return (millis * times + part if fits else 0), fits
    part -= times
    millis += 1
    fits = millis > -highest or (millis == -highest and part >= -rest - 1)
    return (millis * times + part if fits else 0), fits


@register_jitable
def put_stamp(plan: int, row: int, millis: int, nanos: int) -> int:
    """Stores a timestamp in the column's unit."""
    times = word(plan, layout.TIMES)
    value = millis
    fits = True
    if times == 1000:
        value, fits = scaled(millis, nanos // 1000, 1000, layout.MAX_MILLIS_US, layout.REST_US)
    elif times == 1000000:
        value, fits = scaled(millis, nanos, 1000000, layout.MAX_MILLIS_NS, layout.REST_NS)
    elif word(plan, layout.BY) == 1000:
        value = millis // 1000
    if not fits:
        return layout.OUT_OF_RANGE
    mem.store_64(word(plan, layout.VALUES) + 8 * row, value)
    return 0


@register_jitable
def put_time(plan: int, row: int, millis: int, kind: int) -> int:
    if millis < 0 or millis >= layout.MILLIS_PER_DAY:
        return layout.OUT_OF_RANGE
    if kind == layout.ARROW_TIME64:
        mem.store_64(word(plan, layout.VALUES) + 8 * row, millis * word(plan, layout.TIMES))
    elif word(plan, layout.BY) == 1000:
        mem.store_32(word(plan, layout.VALUES) + 4 * row, millis // 1000)
    else:
        mem.store_32(word(plan, layout.VALUES) + 4 * row, millis)
    return 0


@register_jitable
def put_number(plan: int, row: int, kind: int, value: int) -> int:
    values = word(plan, layout.VALUES)
    if kind == layout.ARROW_32:
        mem.store_32(values + 4 * row, value)
    elif kind == layout.ARROW_64:
        mem.store_64(values + 8 * row, value)
    elif kind == layout.ARROW_8:
        mem.store_8(values + row, value)
    elif kind == layout.ARROW_16:
        mem.store_16(values + 2 * row, value)
    elif kind == layout.ARROW_BIT:
        if value != 0:
            byte = values + (row >> 3)
            mem.store_8(byte, mem.load_u8(byte) | (1 << (row & 7)))
    elif kind == layout.ARROW_STAMP:
        return put_stamp(plan, row, value, 0)
    elif kind == layout.ARROW_DECIMAL64:
        limit = word(plan, layout.LIMIT)
        if value >= limit or value <= -limit:
            return layout.OUT_OF_RANGE
        mem.store_64(values + 16 * row, value)
        mem.store_64(values + 16 * row + 8, value >> 63)
    else:
        return put_time(plan, row, value, kind)
    return 0


@register_jitable
def put_decimal(plan: int, row: int, at: int, size: int) -> int:
    """Converts big-endian two's complement of up to 16 bytes to Arrow's little-endian 16."""
    if size > 16:
        return layout.TOO_LONG
    low = 0
    high = 0
    if size > 0 and mem.load_u8(at) >= 0x80:
        low = -1
        high = -1
    for index in range(size):
        high = (high << 8) | mem.shift_right(low, 56)
        low = (low << 8) | mem.load_u8(at + index)
    values = word(plan, layout.VALUES) + 16 * row
    mem.store_64(values, low)
    mem.store_64(values + 8, high)
    return 0


@register_jitable
def put_content(plan: int, row: int, at: int, size: int) -> int:
    """Stores ``size`` bytes at ``at``: text, bytes, a nested value or a large DECIMAL."""
    kind = word(plan, layout.IN_ARROW)
    if kind == layout.ARROW_BYTES:
        put_bytes(plan, row, at, size)
        return 0
    if kind == layout.ARROW_DECIMAL128:
        return put_decimal(plan, row, at, size)
    width = word(plan, layout.SIZE)
    if size > width:
        return layout.TOO_LONG
    mem.copy(word(plan, layout.VALUES) + width * row, at, size)
    return 0


@register_jitable
def trimmed(at: int, size: int) -> int:
    """Returns the size without zeros at the end."""
    while size > 0 and mem.load_u8(at + size - 1) == 0:
        size -= 1
    return size


@register_jitable
def decode_field(plan: int, row: int, at: int, end: int, lengths: int) -> int:
    """Reads one value of a row into its column; returns the position after it."""
    kind = word(plan, layout.IN_ROW)
    if kind >= layout.ROW_SIZED:
        if kind == layout.ROW_SIZED:
            size, at = read_sized(at, end)
        elif kind == layout.ROW_LISTED:
            size, at = read_listed(at, end, lengths)
        else:
            size = word(plan, layout.SIZE)
            if size > end - at:
                return layout.ENDS_EARLY
            problem = put_content(plan, row, at, trimmed(at, size))
            return problem if problem < 0 else at + size
        if at < 0:
            return at
        problem = put_content(plan, row, at, size)
        return problem if problem < 0 else at + size
    if kind == layout.ROW_STAMP or kind == layout.ROW_STAMP_VARINT:
        millis, nanos, at = read_stamp(kind, at, end)
        if at < 0:
            return at
        problem = put_stamp(plan, row, millis, nanos)
        return problem if problem < 0 else at
    if kind == layout.ROW_VARINT32:
        value, at = read_varint(at, end, 32)
    elif kind == layout.ROW_VARINT64:
        value, at = read_varint(at, end, 64)
    else:
        value, at = read_number(kind, at, end)
    if at < 0:
        return at
    problem = put_number(plan, row, word(plan, layout.IN_ARROW), value)
    return problem if problem < 0 else at


@register_jitable
def decode_row(
    at: int, end: int, row: int, plan: int, columns: int, null_bytes: int, listed: int, where: int
) -> int:
    """Decodes one row; returns 0 or an error code, with the column's number at ``where``."""
    mem.store_64(where, 0)
    nulls = at
    lengths = at + null_bytes
    at = lengths + 4 * listed
    if at > end:
        return layout.ENDS_EARLY
    for column in range(columns):
        words = plan + 8 * layout.WORDS * column
        if is_set(nulls, column):
            put_null(words, row)
            continue
        at = decode_field(words, row, at, end, lengths)
        if at < 0:
            mem.store_64(where, column)
            return at
        if word(words, layout.IN_ROW) == layout.ROW_LISTED:
            lengths += 4
    mem.store_64(where, columns)
    return 0 if at == end else layout.BYTES_LEFT


def decode_rows(
    data: int,
    offsets: int,
    valid: int,
    valid_from: int,
    rows: int,
    skipped: int,
    plan: int,
    columns: int,
    null_bytes: int,
    listed: int,
    where: int,
) -> int:
    """Decodes all rows of a binary array; returns 0 or an error, with row and column at ``where``.

    ``skipped`` bytes before each row are not read. A row that is not ``valid`` is null in each
    column.
    """
    for row in range(rows):
        if valid != 0 and not is_set(valid, valid_from + row):
            for column in range(columns):
                put_null(plan + 8 * layout.WORDS * column, row)
            continue
        at = data + mem.load_i32(offsets + 4 * row)
        end = data + mem.load_i32(offsets + 4 * row + 4)
        problem = decode_row(at + skipped, end, row, plan, columns, null_bytes, listed, where + 8)
        if problem < 0:
            mem.store_64(where, row)
            return problem
    return 0


def gather(sources: int, offsets: int, rows: int, target: int) -> int:
    """Copies content from the source address of each row to the position of its offset."""
    first = mem.load_i32(offsets)
    for row in range(rows):
        end = mem.load_i32(offsets + 4 * row + 4)
        if end > first:
            mem.copy(target + first, mem.load_i64(sources + 8 * row), end - first)
        first = end
    return 0
