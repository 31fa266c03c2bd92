"""Reads blocks of RocksDB's SST files and merges files, in plain loops that numba compiles.

As in ``row_kernels``, every argument is a count or the address of memory that the caller owns, and
each read of a block is checked against its end first. Results below zero are error codes.
"""

from __future__ import annotations

from numba.extending import register_jitable

from sluice.formats.kernels import memory_access as mem
from sluice.formats.kernels import sst_layout as layout

_TRAILER = 8
"""Bytes after a user's key: type, then sequence number, little endian."""
_DELETION = 0
_VALUE = 1
_SINGLE_DELETION = 7

_FAR = 1 << 48
"""No file is as long."""


@register_jitable
def _lz4_length(at: int, end: int, length: int) -> tuple[int, int]:
    """Returns a length whose first four bits are known, and the position after the rest of it."""
    if length == 15:
        more = 255
        while more == 255:
            if at >= end:
                return 0, layout.ENDS_EARLY
            more = mem.load_u8(at)
            at += 1
            length += more
    return length, at


@register_jitable
def _lz4_size(at: int, end: int) -> int:
    """Returns how many bytes an LZ4 block becomes, or an error code.

    A token has the lengths of the literals and of the match that follow it; the last one has no
    match. See https://github.com/lz4/lz4/blob/dev/doc/lz4_Block_format.md
    """
    total = 0
    while at < end:
        token = mem.load_u8(at)
        literals, at = _lz4_length(at + 1, end, mem.shift_right(token, 4))
        if at < 0 or literals > end - at:
            return layout.ENDS_EARLY
        at += literals
        total += literals
        if at < end:
            matched, at = _lz4_length(at + 2, end, token & 15)
            if at < 0:
                return layout.ENDS_EARLY
            total += matched + 4
    return total


def check_lz4(data: int, starts: int, sizes: int, wholes: int, count: int) -> int:
    """Returns the number of LZ4 blocks, from the first on, that become the given numbers of bytes.

    ``starts`` and ``sizes`` (i64) are relative to ``data``; ``wholes`` (i64) are the numbers.
    """
    for block in range(count):
        at = data + mem.load_i64(starts + 8 * block)
        end = at + mem.load_i64(sizes + 8 * block)
        if _lz4_size(at, end) != mem.load_i64(wholes + 8 * block):
            return block
    return count


@register_jitable
def _number(at: int, end: int, bits: int) -> tuple[int, int]:
    """Returns an unsigned varint and the position after it; an error code if there is none."""
    value = 0
    shift = 0
    while shift < bits and at < end:
        byte = mem.load_u8(at)
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value < 0:
                return 0, layout.NO_ENTRY
            return value, at
        shift += 7
    return 0, layout.ENDS_EARLY


@register_jitable
def _entry_head(at: int, end: int) -> tuple[int, int, int, int]:
    """Returns the key bytes that an entry shares with the previous one, its other key bytes, the
    size of its value, and the position after these numbers."""
    if end - at >= 3:  # usually each takes one byte
        shared, own, size = mem.load_u8(at), mem.load_u8(at + 1), mem.load_u8(at + 2)
        if shared | own | size < 0x80:
            return shared, own, size, at + 3
    shared, at = _number(at, end, 35)
    own = size = 0
    if at >= 0:
        own, at = _number(at, end, 35)
    if at >= 0:
        size, at = _number(at, end, 35)
    return shared, own, size, at


@register_jitable
def _entries_size(block: int, size: int) -> int:
    """Returns the bytes before the restart positions (u32) and their count, or an error code."""
    if size < 4:
        return layout.NO_ENTRY
    # a block that is searched by hash has a higher count
    restarts = mem.load_u32(block + size - 4)
    return size - 4 - 4 * restarts


@register_jitable
def _next_entry(source: int) -> int:
    """Moves a source to its next entry; returns 1, 0 if it needs blocks, or an error code."""
    at = mem.load_i64(source + 8 * layout.AT)
    end = mem.load_i64(source + 8 * layout.END)
    first = False
    while at >= end:
        block = mem.load_i64(source + 8 * layout.NEXT_BLOCK)
        if block >= mem.load_i64(source + 8 * layout.BLOCK_COUNT):
            return 0
        mem.store_64(source + 8 * layout.NEXT_BLOCK, block + 1)
        where = mem.load_i64(source + 8 * layout.BLOCKS) + 16 * block
        at = mem.load_i64(where)
        end = at + _entries_size(at, mem.load_i64(where + 8))
        if end < at:
            return layout.NO_ENTRY
        mem.store_64(source + 8 * layout.END, end)
        first = True
    shared, own, size, at = _entry_head(at, end)
    if at < 0:
        return at
    known = 0 if first else mem.load_i64(source + 8 * layout.KEY_SIZE)
    if shared > known or own > end - at or size > end - at - own or shared + own < _TRAILER:
        return layout.NO_ENTRY
    if shared + own > mem.load_i64(source + 8 * layout.KEY_CAPACITY):
        return layout.KEY_TOO_LONG
    mem.copy(mem.load_i64(source + 8 * layout.KEY) + shared, at, own)
    mem.store_64(source + 8 * layout.KEY_SIZE, shared + own)
    mem.store_64(source + 8 * layout.VALUE, at + own)
    mem.store_64(source + 8 * layout.VALUE_SIZE, size)
    mem.store_64(source + 8 * layout.AT, at + own + size)
    mem.store_64(source + 8 * layout.READ, mem.load_i64(source + 8 * layout.READ) + 1)
    return 1


@register_jitable
def _compare(a: int, a_size: int, b: int, b_size: int) -> int:
    """Returns a number below, at or above zero, by the order of unsigned bytes."""
    both = min(a_size, b_size)
    at = 0
    while at + 8 <= both and mem.load_i64(a + at) == mem.load_i64(b + at):
        at += 8
    while at < both:
        difference = mem.load_u8(a + at) - mem.load_u8(b + at)
        if difference != 0:
            return difference
        at += 1
    return a_size - b_size


@register_jitable
def _is_before(a: int, b: int) -> bool:
    """Whether a source's entry comes before another's: by key, the newest of a key first."""
    a_key, b_key = mem.load_i64(a + 8 * layout.KEY), mem.load_i64(b + 8 * layout.KEY)
    a_size = mem.load_i64(a + 8 * layout.KEY_SIZE) - _TRAILER
    b_size = mem.load_i64(b + 8 * layout.KEY_SIZE) - _TRAILER
    order = _compare(a_key, a_size, b_key, b_size)
    if order != 0:
        return order < 0
    a_number = mem.shift_right(mem.load_i64(a_key + a_size), 8)
    return a_number > mem.shift_right(mem.load_i64(b_key + b_size), 8)


@register_jitable
def _sift(sources: int, state: int, live: int) -> None:
    """Moves the first of the sources that have an entry to its position in their order."""
    order = state + 8 * layout.MERGE_WORDS
    moved = mem.load_i64(order)
    at = 0
    while at + 1 < live:
        other = mem.load_i64(order + 8 * (at + 1))
        if not _is_before(
            sources + 8 * layout.SOURCE_WORDS * other, sources + 8 * layout.SOURCE_WORDS * moved
        ):
            break
        mem.store_64(order + 8 * at, other)
        at += 1
    mem.store_64(order + 8 * at, moved)


def enter(sources: int, state: int, index: int) -> int:
    """Adds a source with blocks to a merge; returns 1, 0 if it has no entry, or an error code."""
    found = _next_entry(sources + 8 * layout.SOURCE_WORDS * index)
    if found <= 0:
        return found
    live = mem.load_i64(state + 8 * layout.LIVE)
    order = state + 8 * layout.MERGE_WORDS
    for place in range(live, 0, -1):
        mem.store_64(order + 8 * place, mem.load_i64(order + 8 * (place - 1)))
    mem.store_64(order, index)
    mem.store_64(state + 8 * layout.LIVE, live + 1)
    _sift(sources, state, live + 1)
    return 1


def merge(sources: int, state: int, offsets: int, rows_max: int, data: int, capacity: int) -> int:
    """Writes values in key order: the newest of each key, unless that is a deletion.

    Continues after the rows and bytes that ``state`` counts as written. Returns DONE, FULL,
    NEEDS_BLOCKS, or an error code.
    """
    rows = mem.load_i64(state + 8 * layout.ROWS)
    size = mem.load_i64(state + 8 * layout.BYTES)
    live = mem.load_i64(state + 8 * layout.LIVE)
    order = state + 8 * layout.MERGE_WORDS
    last = mem.load_i64(state + 8 * layout.LAST)
    last_size = mem.load_i64(state + 8 * layout.LAST_SIZE)
    answer = layout.DONE
    while live > 0:
        index = mem.load_i64(order)
        source = sources + 8 * layout.SOURCE_WORDS * index
        key = mem.load_i64(source + 8 * layout.KEY)
        key_size = mem.load_i64(source + 8 * layout.KEY_SIZE) - _TRAILER
        compared = 1
        if last_size >= 0:
            compared = _compare(key, key_size, last, last_size)
            if compared < 0:
                answer = layout.BAD_ORDER
                break
        kind = mem.load_u8(key + key_size)
        if kind != _VALUE and kind != _DELETION and kind != _SINGLE_DELETION:
            answer = layout.UNKNOWN_TYPE
            break
        if compared > 0:
            if kind == _VALUE:
                length = mem.load_i64(source + 8 * layout.VALUE_SIZE)
                if rows == rows_max or length > capacity - size:
                    answer = layout.FULL
                    break
                mem.copy(data + size, mem.load_i64(source + 8 * layout.VALUE), length)
                size += length
                rows += 1
                mem.store_32(offsets + 4 * rows, size)
            mem.copy(last, key, key_size)
            last_size = key_size
        found = _next_entry(source)
        if found == 1:
            _sift(sources, state, live)
            continue
        if found < 0:
            answer = found
            break
        live -= 1
        for place in range(live):
            mem.store_64(order + 8 * place, mem.load_i64(order + 8 * (place + 1)))
        mem.store_64(state + 8 * layout.EMPTY, index)
        answer = layout.NEEDS_BLOCKS
        break
    mem.store_64(state + 8 * layout.ROWS, rows)
    mem.store_64(state + 8 * layout.BYTES, size)
    mem.store_64(state + 8 * layout.LIVE, live)
    mem.store_64(state + 8 * layout.LAST_SIZE, last_size)
    return answer


@register_jitable
def _handle(at: int, end: int, start: int, size: int, is_change: bool) -> tuple[int, int, int]:
    """Returns a block's start, size and next position; ``start``, ``size``: previous block."""
    if is_change:
        change, at = _number(at, end, 49)
        return start + size + 5, size + (mem.shift_right(change, 1) ^ -(change & 1)), at
    start, at = _number(at, end, 49)
    if at >= 0:
        size, at = _number(at, end, 49)
    return start, size, at


def read_index(data: int, size: int, deltas: int, starts: int, sizes: int, capacity: int) -> int:
    """Reads the block positions of an index block, in order; returns their count or an error code.

    ``deltas``: 1 if an entry may contain only the difference between its block's size and the
    previous one.
    """
    at = data
    end = data + size
    count = 0
    start = 0
    length = 0
    while at < end:
        shared, at = _number(at, end, 35)
        if at >= 0:
            own, at = _number(at, end, 35)
        if at >= 0 and deltas == 0:
            _, at = _number(at, end, 35)
        if at < 0:
            return at
        if own > end - at or count == capacity:
            return layout.NO_HANDLE
        start, length, at = _handle(at + own, end, start, length, deltas != 0 and shared != 0)
        if at < 0:
            return at
        if start < 0 or length < 0 or start > _FAR:
            return layout.NO_HANDLE
        mem.store_64(starts + 8 * count, start)
        mem.store_64(sizes + 8 * count, length)
        count += 1
    return count
