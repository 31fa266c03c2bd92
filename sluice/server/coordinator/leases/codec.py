"""Encodes a lease: a head of fixed size, and one block of numbers for each table.

A block contains a table's buckets in order, column by column, as differences of variable length,
which takes three or four bytes per bucket. Head and block start with a version and a CRC over owner
and content, so that damaged or misplaced ones are detected.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator

from sluice.leases import BucketKey, Lease, SnapshotsByBucket, SnapshotsByTable

VERSION = 1
_PREFIX = struct.Struct(">BI")  # version, CRC-32
_TIMES = struct.Struct(">qqqI")  # created, renewed, expires; number of tables
_OWNER = struct.Struct(">q")  # table id, in the CRC


class Unreadable(Exception):
    """The bytes are not a head or block of the lease; the message has the reason."""


def encode_head(lease: Lease) -> bytes:
    times = _TIMES.pack(lease.created_ms, lease.renewed_ms, lease.expires_ms, len(lease.held))
    return _sealed(times, lease.lease_id.encode())


def decode_head(lease_id: str, head: bytes, held: SnapshotsByTable) -> Lease:
    """Decodes a head.

    :raises Unreadable: the head is damaged, or was stored with other tables.
    """
    times = _opened(head, lease_id.encode(errors="replace"))
    if len(times) != _TIMES.size:
        raise Unreadable(f"its head has {len(times)} bytes, not {_TIMES.size}")
    created_ms, renewed_ms, expires_ms, tables = _TIMES.unpack(times)
    if tables != len(held):
        raise Unreadable(f"it has buckets of {tables} tables, but those of {len(held)} are stored")
    return Lease(lease_id, created_ms, renewed_ms, expires_ms, held)


def encode_holds(lease_id: str, table_id: int, holds: SnapshotsByBucket) -> bytes:
    """Encodes the leased snapshots of one table."""
    keys = sorted(holds)
    columns = (
        [key[0] for key in keys],
        [key[1] for key in keys],
        [holds[key] for key in keys],
    )
    content = bytearray()
    _put(content, [len(keys)])
    for column in columns:
        _put(content, map(_zigzag, _differences(column)))
    return _sealed(bytes(content), lease_id.encode() + _OWNER.pack(table_id))


def decode_holds(lease_id: str, table_id: int, block: bytes) -> SnapshotsByBucket:
    """Decodes a block.

    :raises Unreadable: the block is damaged, or belongs to another lease or table.
    """
    content = _opened(block, lease_id.encode(errors="replace") + _OWNER.pack(table_id))
    numbers = list(_numbers(content))
    count = numbers[0] if numbers else 0
    if count < 1 or len(numbers) != 1 + 3 * count:
        raise Unreadable(f"the block of table {table_id} has {len(numbers)} numbers")
    partitions, buckets, snapshots = (
        _sums(numbers[1 + column * count : 1 + (column + 1) * count]) for column in range(3)
    )
    keys: Iterable[BucketKey] = zip(partitions, buckets, strict=True)
    return dict(zip(keys, snapshots, strict=True))


def _sealed(content: bytes, owner: bytes) -> bytes:
    return _PREFIX.pack(VERSION, zlib.crc32(content, zlib.crc32(owner))) + content


def _opened(sealed: bytes, owner: bytes) -> bytes:
    if len(sealed) < _PREFIX.size:
        raise Unreadable(f"it has only {len(sealed)} bytes")
    version, crc = _PREFIX.unpack_from(sealed)
    if version != VERSION:
        raise Unreadable(
            f"it has version {version}, but this version of Sluice reads only {VERSION}"
        )
    content = sealed[_PREFIX.size :]
    if zlib.crc32(content, zlib.crc32(owner)) != crc:
        raise Unreadable("its checksum does not match")
    return content


def _differences(column: list[int]) -> Iterator[int]:
    before = 0
    for value in column:
        yield value - before
        before = value


def _sums(zigzags: list[int]) -> Iterator[int]:
    value = 0
    for number in zigzags:
        value += (number >> 1) ^ -(number & 1)
        yield value


def _zigzag(value: int) -> int:
    return value << 1 if value >= 0 else (-value << 1) - 1


def _put(out: bytearray, numbers: Iterable[int]) -> None:
    for number in numbers:
        while number > 0x7F:
            out.append(number & 0x7F | 0x80)
            number >>= 7
        out.append(number)


def _numbers(content: bytes) -> Iterator[int]:
    value = shift = 0
    for byte in content:
        value |= (byte & 0x7F) << shift
        if byte & 0x80:
            shift += 7
            continue
        yield value
        value = shift = 0
    if shift:
        raise Unreadable("its last number is truncated")
