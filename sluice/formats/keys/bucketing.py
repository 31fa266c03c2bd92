"""Computes the buckets of all rows of a batch (docs/fluss/keys-and-buckets.md#bucketing).

Fluss itself computes a bucket by the table's lake format, so these rules are not the lake's.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from sluice.errors import UnsupportedLakeOption
from sluice.formats.keys.keys import encode_key
from sluice.formats.rows.field_bytes import binary_buffers
from sluice.model import TableInfo

Words = np.ndarray  # of uint32: arithmetic wraps, as it does in Java

_C1 = np.uint32(0xCC9E2D51)
_C2 = np.uint32(0x1B873593)
_FLUSS_SEED = 42
_FEW_ROWS = 16


def bucket_hashes(batch: pa.RecordBatch, info: TableInfo) -> np.ndarray | None:
    """Returns the hash of each row for :func:`numbered`; None if the table has no bucket key.

    :raises InvalidTable: a bucket key is null. :raises UnsupportedLakeOption: for Hudi.
    """
    columns = bucket_keys(info)
    if not columns:
        return None
    keys = encode_key(batch, columns, info.schema, info.datalake_format)
    return _hashes(keys, info.datalake_format)


def numbered(hashes: np.ndarray, count: int) -> np.ndarray:
    """Returns the bucket (int32) of each hash among ``count`` buckets."""
    if count < 1:
        raise ValueError(f"bucket count {count} must be 1 or more")
    return (hashes % hashes.dtype.type(count)).astype(np.int32, copy=False)


def bucket_keys(info: TableInfo) -> tuple[str, ...]:
    """Returns the bucket key; by default the primary key without the partition keys."""
    descriptor = info.descriptor
    return descriptor.bucket_keys or tuple(
        name for name in info.schema.primary_key if name not in descriptor.partition_keys
    )


def bucket_numbers(keys: pa.Array, count: int, lake_format: str | None) -> np.ndarray:
    """Returns the bucket (int32) of each encoded bucket key (binary, no nulls).

    :raises UnsupportedLakeOption: Sluice does not support the bucketing of this lake format.
    """
    return numbered(_hashes(keys, lake_format), count)


def _hashes(keys: pa.Array, lake_format: str | None) -> np.ndarray:
    """The hash of each encoded bucket key, never negative."""
    lake = (lake_format or "").lower()
    if lake in ("", "lance"):
        return murmur_int(hash_bytes(keys)).view(np.int32)
    if lake == "iceberg":
        return (murmur3_x86_32(keys) & np.uint32(0x7FFFFFFF)).view(np.int32)
    if lake == "paimon":
        # Java's remainder keeps the sign of the hash, abs drops it again
        return np.abs(hash_bytes(keys).view(np.int32).astype(np.int64))
    raise UnsupportedLakeOption(
        f"table.datalake.format {lake_format!r}: Sluice does not support its bucketing;"
        " use iceberg, paimon or lance"
    )


def hash_bytes(keys: pa.Array) -> Words:
    """Fluss's ``hashBytes``: murmur with seed 42; each remaining byte is mixed as its own word."""
    starts, lengths, data = binary_buffers(keys)
    hashes = _mix_words(starts, lengths, data, _FLUSS_SEED)
    leftover = lengths % 4
    ends = starts + lengths
    for i in range(3):
        rows = np.nonzero(leftover > i)[0]
        byte = data[ends[rows] - leftover[rows] + i].view(np.int8)
        hashes[rows] = _mix_h(hashes[rows], _mix_k(byte.astype(np.int32).view(np.uint32)))
    return _fmix(hashes ^ lengths.astype(np.uint32))


def murmur3_x86_32(keys: pa.Array) -> Words:
    """Standard murmur3 with seed 0, as Iceberg's bucket transform has it."""
    starts, lengths, data = binary_buffers(keys)
    hashes = _mix_words(starts, lengths, data, 0)
    leftover = lengths % 4
    ends = starts + lengths
    tail = np.zeros(len(hashes), np.uint32)
    for i in range(3):
        rows = np.nonzero(leftover > i)[0]
        byte = data[ends[rows] - leftover[rows] + i].astype(np.uint32)
        tail[rows] |= byte << np.uint32(8 * i)
    return _fmix(hashes ^ _mix_k(tail) ^ lengths.astype(np.uint32))


def murmur_int(words: Words) -> Words:
    """Fluss's ``murmurHash(int)``: never negative."""
    mixed = _mix_h(np.zeros_like(words), _mix_k(words)) ^ np.uint32(4)
    mixed = _fmix(mixed)
    negative = mixed >> np.uint32(31) == 1
    mixed[negative] = np.uint32(0) - mixed[negative]
    mixed[mixed == np.uint32(0x80000000)] = 0
    return mixed


def _mix_words(starts: np.ndarray, lengths: np.ndarray, data: np.ndarray, seed: int) -> Words:
    """Mixes the complete 4-byte words of every key, with one step per word index, not per row."""
    hashes = np.full(len(starts), seed, np.uint32)
    words = lengths // 4
    if not len(words) or not int(words.max()):
        return hashes
    # a word may start at any byte
    at = np.ndarray((len(data) - 3,), "<u4", data, strides=(1,))
    common = int(words.min())
    for index in range(common):
        hashes = _mix_h(hashes, _mix_k(at[starts + 4 * index]))
    rows = np.nonzero(words > common)[0]
    index = common
    while len(rows) > _FEW_ROWS:
        hashes[rows] = _mix_h(hashes[rows], _mix_k(at[starts[rows] + 4 * index]))
        index += 1
        rows = rows[words[rows] > index]
    for row in rows.tolist():  # a few very long keys
        start = int(starts[row]) + 4 * index
        rest = data[start : int(starts[row]) + 4 * int(words[row])].view("<u4")
        hashes[row] = _mix_rest(int(hashes[row]), _mix_k(rest))
    return hashes


def _mix_rest(seed: int, mixed: Words) -> int:
    for word in mixed.tolist():
        seed ^= word
        seed = ((seed << 13 | seed >> 19) * 5 + 0xE6546B64) & 0xFFFFFFFF
    return seed


def _mix_k(words: Words) -> Words:
    return _rotate(words * _C1, 15) * _C2


def _mix_h(hashes: Words, mixed: Words) -> Words:
    return _rotate(hashes ^ mixed, 13) * np.uint32(5) + np.uint32(0xE6546B64)


def _fmix(hashes: Words) -> Words:
    hashes = (hashes ^ hashes >> np.uint32(16)) * np.uint32(0x85EBCA6B)
    hashes = (hashes ^ hashes >> np.uint32(13)) * np.uint32(0xC2B2AE35)
    return hashes ^ hashes >> np.uint32(16)


def _rotate(words: Words, bits: int) -> Words:
    return words << np.uint32(bits) | words >> np.uint32(32 - bits)
