"""Encodes and decodes the KV batches of PUT_KV (docs/fluss/kv-batches.md#kv-batches)."""

from __future__ import annotations

import struct
from dataclasses import dataclass

import pyarrow as pa

from sluice.errors import CorruptRecord, RecordTooLarge
from sluice.formats.log.batch import MAX_SIZE, Buffer, crc32c
from sluice.formats.rows import records

_HEAD = struct.Struct("<ibI")
_TAIL = struct.Struct("<hbqii")
_RECORDS_AT = _HEAD.size + _TAIL.size
_LENGTH_OVERHEAD = 4


@dataclass(frozen=True, slots=True)
class KvBatch:
    """A KV batch: entry i of both arrays is a record; a null row deletes its key."""

    schema_id: int
    writer_id: int
    batch_sequence: int
    keys: pa.Array
    rows: pa.Array


def parse_kv_batch(view: Buffer) -> KvBatch:
    """Returns keys and rows, copied from ``view``; its length bounds the memory.

    :raises CorruptRecord: the bytes are not a KV batch, or fail their checksum.
    """
    view = memoryview(view)
    if len(view) < _RECORDS_AT:
        raise CorruptRecord(
            f"KV batch: it has {len(view)} bytes, but its header needs {_RECORDS_AT}"
        )
    length, magic, crc = _HEAD.unpack_from(view)
    if magic != 0:
        raise CorruptRecord(f"KV batch: magic {magic} is not supported, only 0")
    if length + _LENGTH_OVERHEAD != len(view):
        raise CorruptRecord(f"KV batch: it has {len(view)} of {length + _LENGTH_OVERHEAD} bytes")
    found = crc32c(view[_HEAD.size :])
    if found != crc:
        raise CorruptRecord(f"KV batch: checksum {found:08X} differs from {crc:08X} in its header")
    schema_id, _, writer_id, sequence, count = _TAIL.unpack_from(view, _HEAD.size)
    contents = records.find("KV batch", view[_RECORDS_AT:], count)
    keys, rows = records.split_keys(contents)
    return KvBatch(schema_id, writer_id, sequence, keys, rows)


def build_kv_batch(
    keys: pa.Array,
    rows: pa.Array,
    schema_id: int,
    writer_id: int = -1,
    batch_sequence: int = -1,
) -> bytes:
    """Builds a batch of upserts and deletes from binary arrays; a null row deletes its key.

    :raises RecordTooLarge: the batch has more than 2 GiB.
    """
    batch = records.join_keys(keys, rows, _RECORDS_AT)
    if len(batch) > MAX_SIZE:
        raise RecordTooLarge(
            f"a KV batch has {len(batch):,} bytes, more than 2 GiB: write fewer rows at once"
        )
    _TAIL.pack_into(batch, _HEAD.size, schema_id, 0, writer_id, batch_sequence, len(keys))
    length = len(batch) - _LENGTH_OVERHEAD
    _HEAD.pack_into(batch, 0, length, 0, crc32c(batch[_HEAD.size :]))
    return bytes(batch)
