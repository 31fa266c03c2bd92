"""XXH3, the checksum of SST blocks, in plain loops that numba compiles. See ``sst_kernels``."""

from __future__ import annotations

from numba.extending import register_jitable

from sluice.formats.kernels import memory_access as mem

_LOW = 0xFFFFFFFF
# XXH3's constants, as signed numbers of 64 bits
_PRIME32_1 = 0x9E3779B1
_PRIME32_2 = 0x85EBCA77
_PRIME32_3 = 0xC2B2AE3D
_PRIME64_1 = 0x9E3779B185EBCA87 - (1 << 64)
_PRIME64_2 = 0xC2B2AE3D27D4EB4F - (1 << 64)
_PRIME64_3 = 0x165667B19E3779F9
_PRIME64_4 = 0x85EBCA77C2B2AE63 - (1 << 64)
_PRIME64_5 = 0x27D4EB2F165667C5
_MIX_1 = 0x165667919E3779F9
_MIX_2 = 0x9FB21C651E98DF25 - (1 << 64)
_STRIPE = 64
_STRIPES = 16


@register_jitable
def _fold(a: int, b: int) -> int:
    """Returns both halves of the product of two unsigned numbers, combined by xor."""
    a_low, a_high = a & _LOW, mem.shift_right(a, 32)
    b_low, b_high = b & _LOW, mem.shift_right(b, 32)
    low = mem.multiply(a_low, b_low)
    middle = mem.multiply(a_high, b_low)
    cross = mem.add(mem.shift_right(low, 32) + (middle & _LOW), mem.multiply(a_low, b_high))
    high = mem.shift_right(middle, 32) + mem.shift_right(cross, 32)
    high = mem.add(high, mem.multiply(a_high, b_high))
    return high ^ ((cross << 32) | (low & _LOW))


@register_jitable
def _mix_16(data: int, secret: int) -> int:
    return _fold(
        mem.load_i64(data) ^ mem.load_i64(secret),
        mem.load_i64(data + 8) ^ mem.load_i64(secret + 8),
    )


@register_jitable
def _avalanche(value: int) -> int:
    value ^= mem.shift_right(value, 37)
    value = mem.multiply(value, _MIX_1)
    return value ^ mem.shift_right(value, 32)


@register_jitable
def _rotate(value: int, bits: int) -> int:
    return (value << bits) | mem.shift_right(value, 64 - bits)


@register_jitable
def _swap(value: int) -> int:
    """Returns a number with its bytes in reverse order."""
    value = (mem.shift_right(value, 8) & 0x00FF00FF00FF00FF) | ((value & 0x00FF00FF00FF00FF) << 8)
    value = (mem.shift_right(value, 16) & 0x0000FFFF0000FFFF) | ((value & 0x0000FFFF0000FFFF) << 16)
    return _rotate(value, 32)


@register_jitable
def _xxh3_to_16(data: int, size: int, secret: int) -> int:
    """Of 1 to 16 bytes."""
    if size > 8:
        low = mem.load_i64(data) ^ mem.load_i64(secret + 24) ^ mem.load_i64(secret + 32)
        high = mem.load_i64(data + size - 8)
        high ^= mem.load_i64(secret + 40) ^ mem.load_i64(secret + 48)
        return _avalanche(mem.add(mem.add(_swap(low), size), mem.add(high, _fold(low, high))))
    if size > 3:
        value = mem.load_u32(data + size - 4) | (mem.load_u32(data) << 32)
        value ^= mem.load_i64(secret + 8) ^ mem.load_i64(secret + 16)
        value ^= _rotate(value, 49) ^ _rotate(value, 24)
        value = mem.multiply(value, _MIX_2)
        value ^= mem.add(mem.shift_right(value, 35), size)
        value = mem.multiply(value, _MIX_2)
        return value ^ mem.shift_right(value, 28)
    value = mem.load_u8(data) << 16 | mem.load_u8(data + (size >> 1)) << 24
    value |= mem.load_u8(data + size - 1) | size << 8
    value ^= mem.load_u32(secret) ^ mem.load_u32(secret + 4)
    value ^= mem.shift_right(value, 33)
    value = mem.multiply(value, _PRIME64_2)
    value ^= mem.shift_right(value, 29)
    value = mem.multiply(value, _PRIME64_3)
    return value ^ mem.shift_right(value, 32)


@register_jitable
def _xxh3_to_240(data: int, size: int, secret: int) -> int:
    """Of 17 to 240 bytes."""
    total = mem.multiply(size, _PRIME64_1)
    if size <= 128:
        for pair in range((size - 1) // 32, -1, -1):
            total = mem.add(total, _mix_16(data + 16 * pair, secret + 32 * pair))
            total = mem.add(total, _mix_16(data + size - 16 * (pair + 1), secret + 32 * pair + 16))
        return _avalanche(total)
    for part in range(8):
        total = mem.add(total, _mix_16(data + 16 * part, secret + 16 * part))
    total = _avalanche(total)
    for part in range(8, size // 16):
        total = mem.add(total, _mix_16(data + 16 * part, secret + 16 * (part - 8) + 3))
    return _avalanche(mem.add(total, _mix_16(data + size - 16, secret + 136 - 17)))


Lanes = tuple[int, int]


@register_jitable
def _two_lanes(a: int, b: int, data: int, secret: int) -> Lanes:
    """Adds 16 more bytes to two adjacent lanes."""
    first = mem.load_i64(data)
    second = mem.load_i64(data + 8)
    x = first ^ mem.load_i64(secret)
    y = second ^ mem.load_i64(secret + 8)
    x = mem.add(mem.multiply(x & _LOW, mem.shift_right(x, 32)), second)
    y = mem.add(mem.multiply(y & _LOW, mem.shift_right(y, 32)), first)
    return mem.add(a, x), mem.add(b, y)


@register_jitable
def _scramble(a: int, b: int, secret: int) -> Lanes:
    a ^= mem.shift_right(a, 47) ^ mem.load_i64(secret)
    b ^= mem.shift_right(b, 47) ^ mem.load_i64(secret + 8)
    return mem.multiply(a, _PRIME32_1), mem.multiply(b, _PRIME32_1)


@register_jitable
def _xxh3_long(data: int, size: int, secret: int) -> int:
    """XXH3 of more than 240 bytes."""
    a, b, c, d = _PRIME32_3, _PRIME64_1, _PRIME64_2, _PRIME64_3
    e, f, g, h = _PRIME64_4, _PRIME32_2, _PRIME64_5, _PRIME32_1
    within = secret
    ends = secret + 8 * _STRIPES
    for at in range(data, data + size - 1 - (size - 1) % _STRIPE, _STRIPE):
        a, b = _two_lanes(a, b, at, within)
        c, d = _two_lanes(c, d, at + 16, within + 16)
        e, f = _two_lanes(e, f, at + 32, within + 32)
        g, h = _two_lanes(g, h, at + 48, within + 48)
        within += 8
        if within == ends:
            within = secret
            a, b = _scramble(a, b, ends)
            c, d = _scramble(c, d, ends + 16)
            e, f = _scramble(e, f, ends + 32)
            g, h = _scramble(g, h, ends + 48)
    at = data + size - _STRIPE
    ends -= 7
    a, b = _two_lanes(a, b, at, ends)
    c, d = _two_lanes(c, d, at + 16, ends + 16)
    e, f = _two_lanes(e, f, at + 32, ends + 32)
    g, h = _two_lanes(g, h, at + 48, ends + 48)
    within = secret + 11
    total = mem.multiply(size, _PRIME64_1)
    total = mem.add(total, _fold(a ^ mem.load_i64(within), b ^ mem.load_i64(within + 8)))
    total = mem.add(total, _fold(c ^ mem.load_i64(within + 16), d ^ mem.load_i64(within + 24)))
    total = mem.add(total, _fold(e ^ mem.load_i64(within + 32), f ^ mem.load_i64(within + 40)))
    total = mem.add(total, _fold(g ^ mem.load_i64(within + 48), h ^ mem.load_i64(within + 56)))
    return _avalanche(total)


@register_jitable
def _xxh3(data: int, size: int, secret: int) -> int:
    """XXH3 of 64 bits without a seed, of one byte or more."""
    if size <= 16:
        return _xxh3_to_16(data, size, secret)
    if size <= 240:
        return _xxh3_to_240(data, size, secret)
    return _xxh3_long(data, size, secret)


def check_xxh3(
    data: int, starts: int, sizes: int, count: int, origin: int, base: int, secret: int
) -> int:
    """Returns the number of blocks, from the first on, whose checksum matches.

    ``starts`` and ``sizes`` (i64) are relative to ``data``. A type byte and a checksum follow each
    block. ``data`` is position ``origin`` of its file; ``base`` is from the file's footer.
    """
    for block in range(count):
        start = mem.load_i64(starts + 8 * block)
        size = mem.load_i64(sizes + 8 * block)
        at = data + start
        found = 0
        if size > 0:
            found = _xxh3(at, size, secret) & _LOW
        found ^= (mem.load_u8(at + size) * 0x6B9083D9) & _LOW
        if base != 0:
            position = origin + start
            found += base ^ (((position & _LOW) + mem.shift_right(position, 32)) & _LOW)
        if found & _LOW != mem.load_u32(at + size + 1):
            return block
    return count
