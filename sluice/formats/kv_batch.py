"""KV batches of PUT_KV, value batches of scans, and stored values (reference parts 4.4, 4.5)."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import google_crc32c
import pyarrow as pa

from sluice.errors import CorruptRecord, RecordTooLarge
from sluice.formats import records
from sluice.formats.log_batch import Buffer, crc32c
from sluice.formats.row_values import Reader, sized

_LENGTH = struct.Struct("<i")
_KV_HEAD = struct.Struct("<ibI")
_KV_TAIL = struct.Struct("<hbqii")
_RECORDS_AT = _KV_HEAD.size + _KV_TAIL.size
_VALUE_HEAD = struct.Struct("<ibi")
_SCHEMA_ID = struct.Struct("<h")
_LENGTH_OVERHEAD = 4
_MAX_SIZE = 2**31 - 1


@dataclass(frozen=True, slots=True)
class KvBatch:
    """A KV batch: entry i of both arrays is a record; a null row deletes its key."""

    schema_id: int
    writer_id: int
    batch_sequence: int
    keys: pa.Array
    rows: pa.Array


@dataclass(frozen=True, slots=True)
class KvRecords:
    """A KV batch; each record is a key and its row, without a row if the key is deleted."""

    schema_id: int
    writer_id: int
    batch_sequence: int
    records: tuple[tuple[memoryview, memoryview | None], ...]


def parse_kv_batch(view: Buffer) -> KvBatch:
    """Keys and rows, copied from ``view``; its own length bounds the memory.

    :raises CorruptRecord: if the bytes are no KV batch, or fail their checksum.
    """
    view = memoryview(view)
    if len(view) < _RECORDS_AT:
        raise CorruptRecord(f"KV batch: {len(view)} bytes, its header takes {_RECORDS_AT}")
    length, magic, crc = _KV_HEAD.unpack_from(view)
    _check_start("KV batch", view, length, magic)
    found = crc32c(view[_KV_HEAD.size :])
    if found != crc:
        raise CorruptRecord(f"KV batch: checksum {found:08X}, its header says {crc:08X}")
    schema_id, _, writer_id, sequence, count = _KV_TAIL.unpack_from(view, _KV_HEAD.size)
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
    """Upserts and deletes as one batch; both arrays are binary, a null row deletes its key.

    :raises RecordTooLarge: if it takes more than 2 GiB.
    """
    batch = records.join_keys(keys, rows, _RECORDS_AT)
    length = _check_size(len(batch)) - _LENGTH_OVERHEAD
    _KV_TAIL.pack_into(batch, _KV_HEAD.size, schema_id, 0, writer_id, batch_sequence, len(keys))
    _KV_HEAD.pack_into(batch, 0, length, 0, crc32c(batch[_KV_HEAD.size :]))
    return bytes(batch)


def encode_kv_batch(
    records: Sequence[tuple[bytes, bytes | None]],
    schema_id: int,
    *,
    writer_id: int = -1,
    batch_sequence: int = -1,
) -> bytes:
    """Upserts (key, row) and deletes (key, None) as one batch."""
    parts = [_KV_TAIL.pack(schema_id, 0, writer_id, batch_sequence, len(records))]
    for key, row in records:
        content = sized(key) + (row or b"")
        parts += (_LENGTH.pack(len(content)), content)
    body = b"".join(parts)
    length = _check_size(_KV_HEAD.size + len(body)) - _LENGTH_OVERHEAD
    return _KV_HEAD.pack(length, 0, google_crc32c.value(body)) + body


def decode_kv_batch(view: Buffer) -> KvRecords:
    """:raises CorruptRecord: if the bytes are no KV batch, or fail their checksum."""
    view = memoryview(view)
    reader = Reader(view)
    length, magic, crc = _KV_HEAD.unpack(reader.take(_KV_HEAD.size))
    _check_start("KV batch", view, length, magic)
    found = crc32c(view[_KV_HEAD.size :])
    if found != crc:
        raise CorruptRecord(f"KV batch: checksum {found:08X}, its header says {crc:08X}")
    schema_id, _, writer_id, sequence, count = _KV_TAIL.unpack(reader.take(_KV_TAIL.size))
    records = []
    for content in _records(reader, count):
        record = Reader(content)
        key = record.sized()
        row = content[record.position :]
        records.append((key, row if len(row) else None))
    return KvRecords(schema_id, writer_id, sequence, tuple(records))


def encode_value(schema_id: int, row: bytes) -> bytes:
    """A value as the KV store holds it and LOOKUP answers it."""
    return _SCHEMA_ID.pack(schema_id) + row


def decode_value(view: Buffer) -> tuple[int, memoryview]:
    """Schema id and row bytes. :raises CorruptRecord: if there are fewer than two bytes."""
    reader = Reader(memoryview(view))
    return reader.number(_SCHEMA_ID), reader.view[reader.position :]


def encode_value_batch(values: Sequence[bytes]) -> bytes:
    """Stored values as one batch; it has neither checksum nor keys."""
    parts = [part for value in values for part in (_LENGTH.pack(len(value)), value)]
    size = _check_size(_VALUE_HEAD.size + sum(map(len, parts)))
    return b"".join((_VALUE_HEAD.pack(size - _LENGTH_OVERHEAD, 0, len(values)), *parts))


def decode_value_batch(view: Buffer) -> list[tuple[int, memoryview]]:
    """Schema id and row bytes of each value. :raises CorruptRecord: if it is no value batch."""
    view = memoryview(view)
    reader = Reader(view)
    length, magic, count = _VALUE_HEAD.unpack(reader.take(_VALUE_HEAD.size))
    _check_start("value batch", view, length, magic)
    return [decode_value(content) for content in _records(reader, count)]


def _records(reader: Reader, count: int) -> list[memoryview]:
    if count < 0:
        raise CorruptRecord(f"a batch of {count} records")
    records = [reader.take(reader.number(_LENGTH)) for _ in range(count)]
    reader.end()
    return records


def _check_start(what: str, view: memoryview, length: int, magic: int) -> None:
    if magic != 0:
        raise CorruptRecord(f"{what}: magic {magic}, known is 0")
    if length + _LENGTH_OVERHEAD != len(view):
        raise CorruptRecord(f"{what}: {len(view)} of {length + _LENGTH_OVERHEAD} bytes")


def _check_size(size: int) -> int:
    if size > _MAX_SIZE:
        raise RecordTooLarge(f"a batch of {size} bytes: write fewer rows at once")
    return size
