"""Encodes and decodes log batches in Fluss's Arrow layout.

See docs/fluss/log-batches.md#batch-header and docs/fluss/log-batches.md#arrow-records

No code here handles single rows: a batch is a header, optionally one change type per row, and one
Arrow message. Functions pass on views; only decoding may copy once, as documented.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache

import google_crc32c
import numpy as np
import pyarrow as pa

from sluice.errors import CorruptRecord, InvalidConfig, RecordTooLarge, UnsupportedType
from sluice.formats.log.arrow_message import inspect_message
from sluice.formats.log.lz4_frame import compress_message

Buffer = bytes | bytearray | memoryview

APPEND_ONLY = 1
"""Bit 0 of the attributes: every record is an append, and no change types are stored."""
LENGTH_OVERHEAD = 12
"""Bytes of a batch that its length field does not count."""
V0_HEADER_SIZE = 48
MAX_UNCOMPRESSED = 1 << 30
"""Default limit of the uncompressed columns of one batch, in bytes."""
ROW_BYTES = 8
"""Minimum bytes counted per row: columns may be bits, but each row has an offset."""
MAX_SIZE = 2**31 - 1
"""Maximum bytes of a batch, because its length field has 32 bits."""
MAX_CHANGE_TYPE = 4
COMPRESSIONS = ("ZSTD", "LZ4_FRAME", "NONE")

_LENGTH_AT = 8
_MAGIC_AT = 12
_TIMESTAMP_AT = 13
_LENGTH = struct.Struct("<i")
_I64 = struct.Struct("<q")
_V0 = struct.Struct("<qibqIhbiqii")
_V1 = struct.Struct("<qibqIhbiqiii")
_V2 = struct.Struct("<qibqiIhbiqiii")
_CRC_AT = (21, 21, 25)
_AFTER_CRC = struct.Struct("<hbiqii")
_BEFORE_CRC = struct.Struct("<qibqI")


@dataclass(frozen=True, slots=True)
class LogBatchHeader:
    """The header of a log batch; ``size`` is the size of the complete batch in bytes."""

    base_offset: int
    size: int
    magic: int
    timestamp_ms: int
    crc: int
    schema_id: int
    attributes: int
    last_offset_delta: int
    writer_id: int
    batch_sequence: int
    record_count: int
    statistics_length: int

    @property
    def next_offset(self) -> int:
        """The offset after the batch; an empty batch takes one offset too."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def append_only(self) -> bool:
        return bool(self.attributes & APPEND_ONLY)

    @property
    def records_at(self) -> int:
        """Position of the change types or, without them, of the Arrow message."""
        return (_V0.size, _V1.size, _V2.size)[self.magic] + self.statistics_length


def read_header(buf: Buffer, position: int = 0) -> LogBatchHeader:
    """Reads the header at ``position``; the batch after it may be incomplete.

    :raises CorruptRecord: too few bytes are left for a header, or a value in it is not valid.
    """
    left = len(buf) - position
    if left < V0_HEADER_SIZE:
        raise CorruptRecord(
            f"log batch at {position}: only {left} bytes are left, its header needs 48 or more"
        )
    magic = buf[position + _MAGIC_AT]
    if magic > 2:
        raise CorruptRecord(
            f"log batch at {position}: magic {magic} is not supported, only 0, 1 and 2"
        )
    layout = (_V0, _V1, _V2)[magic]
    if left < layout.size:
        raise CorruptRecord(
            f"log batch at {position}: only {left} bytes are left, its header needs {layout.size}"
        )
    fields = layout.unpack_from(buf, position)
    base_offset, length, _, timestamp_ms = fields[:4]
    rest = fields[5:] if magic == 2 else fields[4:]  # only version 2 has a leader epoch
    if magic == 0:
        rest = (*rest, 0)
    header = LogBatchHeader(base_offset, length + LENGTH_OVERHEAD, magic, timestamp_ms, *rest)
    _check_header(header, position)
    return header


def _check_header(header: LogBatchHeader, position: int) -> None:
    count = header.record_count
    problem = None
    if header.base_offset < 0:
        problem = f"base offset {header.base_offset}"
    elif count < 0 or header.last_offset_delta != max(count - 1, 0):
        problem = f"{count} records and last offset delta {header.last_offset_delta}"
    elif header.statistics_length < 0:
        problem = f"{header.statistics_length} bytes of statistics"
    elif header.size < header.records_at + (0 if header.append_only else count):
        problem = f"size {header.size} with {count} records"
    if problem:
        raise CorruptRecord(f"log batch at {position}: {problem} is not valid")


def iter_batches(buf: Buffer) -> Iterator[tuple[LogBatchHeader, memoryview]]:
    """Yields complete batches with their headers; an incomplete tail ends the iteration.

    :raises CorruptRecord: a value in a header is not valid.
    """
    view = memoryview(buf)
    position = 0
    while len(view) - position >= V0_HEADER_SIZE:
        size = _LENGTH.unpack_from(view, position + _LENGTH_AT)[0] + LENGTH_OVERHEAD
        if size >= V0_HEADER_SIZE and len(view) - position < size:
            return
        header = read_header(view, position)
        yield header, view[position : position + size]
        position += size


def complete_batches(
    buf: Buffer,
) -> tuple[list[tuple[LogBatchHeader, memoryview]], CorruptRecord | None]:
    """The complete batches before the first header that is not valid, and its error."""
    found: list[tuple[LogBatchHeader, memoryview]] = []
    try:
        found.extend(iter_batches(buf))  # keeps those before an error
    except CorruptRecord as error:
        return found, error
    return found, None


@dataclass(frozen=True, slots=True)
class BatchEnds:
    """Where a batch that may be damaged ends, by what is stored in it and after it."""

    own: int | None = None
    """By its header; None if that is not valid."""
    following: int | None = None
    """The base offset of the next batch; None if it was not found."""
    bytes_needed: int = 0
    """How many bytes show the next batch, if fewer were given."""


def batch_ends(buf: Buffer, base_offset: int) -> BatchEnds:
    """The ends of the batch at ``base_offset``, in bytes that begin with it or an earlier batch.

    No checksum covers lengths and base offsets, so neither end is certain. If the batch itself has
    another base offset, its ends count only if they are the same.
    """
    view = memoryview(buf)
    position = 0
    while len(view) - position >= LENGTH_OVERHEAD:
        base = _I64.unpack_from(view, position)[0]
        size = _LENGTH.unpack_from(view, position + _LENGTH_AT)[0] + LENGTH_OVERHEAD
        after = position + size
        if base < base_offset and size >= V0_HEADER_SIZE:
            position = after
            continue
        own = following = None
        with suppress(CorruptRecord):
            own = base_offset + read_header(view, position).last_offset_delta + 1
        if size >= V0_HEADER_SIZE and len(view) - after >= _I64.size:
            following = _I64.unpack_from(view, after)[0]
        if base != base_offset and own != following:
            return BatchEnds()
        needed = after + _I64.size if size >= V0_HEADER_SIZE and following is None else 0
        return BatchEnds(own, following, needed)
    return BatchEnds()


def check_crc(view: Buffer, header: LogBatchHeader) -> None:
    """Checks the checksum of a batch.

    Not for projected batches: the server removes columns and leaves the old checksum.

    :raises CorruptRecord: the batch is incomplete, or its checksum is wrong.
    """
    _check_whole(view, header)
    start = _CRC_AT[header.magic] + 4
    crc = crc32c(memoryview(view)[start : header.size])
    if crc != header.crc:
        raise CorruptRecord(
            f"log batch at offset {header.base_offset}: checksum {crc:08X}"
            f" differs from {header.crc:08X} in its header"
        )


def crc32c(view: Buffer) -> int:
    """CRC-32C (Castagnoli) of a view, without a copy."""
    # the C code refuses memoryview and bytearray, but takes an array over the same memory
    return int(google_crc32c.value(np.frombuffer(view, np.uint8)))


def set_offset_and_timestamp(
    buf: bytearray | memoryview, base_offset: int, timestamp_ms: int
) -> None:
    """Sets both in the header in place; the checksum does not cover them."""
    _I64.pack_into(buf, 0, base_offset)
    _I64.pack_into(buf, _TIMESTAMP_AT, timestamp_ms)


def encode_log_batch(
    batch: pa.RecordBatch,
    schema_id: int,
    *,
    writer_id: int = -1,
    batch_sequence: int = -1,
    compression: str = "ZSTD",
    level: int = 3,
    change_types: bytes | None = None,
) -> bytes:
    """Encodes rows as one batch with offset 0 and time 0, which the server then sets.

    ``batch`` has the types of ``arrow_schema``; use ``conform`` for other data. ``compression``
    must be the table's: a server that projects columns assumes the table's codec, and would corrupt
    a batch with another.

    :raises UnsupportedType: a column is a dictionary. :raises InvalidConfig: unknown compression.
    """
    rows = batch.num_rows
    if change_types is not None and len(change_types) != rows:
        raise ValueError(f"{len(change_types)} change types for {rows} rows")
    parts: list[bytes | pa.Buffer] = []
    if rows:
        if change_types is not None:
            parts.append(change_types)
        parts += _arrow_message(batch, compression, level)
    attributes = APPEND_ONLY if change_types is None else 0
    return seal(parts, schema_id, attributes, writer_id, batch_sequence, rows)


def seal(
    parts: Sequence[bytes | pa.Buffer],
    schema_id: int,
    attributes: int,
    writer_id: int,
    batch_sequence: int,
    record_count: int,
) -> bytes:
    """Joins a header of version 0 and the parts of a batch, in one copy."""
    delta = max(record_count - 1, 0)
    tail = _AFTER_CRC.pack(schema_id, attributes, delta, writer_id, batch_sequence, record_count)
    crc = google_crc32c.value(tail)
    size = V0_HEADER_SIZE
    for part in parts:
        crc = google_crc32c.extend(crc, part)
        size += len(part)
    if size > MAX_SIZE:
        raise RecordTooLarge(
            f"a log batch has {size:,} bytes, more than 2 GiB: write fewer rows at once"
        )
    head = _BEFORE_CRC.pack(0, size - LENGTH_OVERHEAD, 0, 0, crc)
    return b"".join((head, tail, *parts))


def decode_log_batch(
    view: Buffer,
    header: LogBatchHeader,
    schema: pa.Schema,
    *,
    max_uncompressed: int = MAX_UNCOMPRESSED,
) -> pa.RecordBatch:
    """Decodes the columns of a batch in ARROW format; an empty batch has no rows.

    Uncompressed columns share ``view``'s memory and keep it alive. The Arrow part is copied once if
    it does not start at a multiple of 8 in memory. Every value is checked to be in its buffer.

    :raises CorruptRecord: the bytes are not a batch of this schema, or they or their offsets would
        take more than ``max_uncompressed`` bytes.
    """
    _check_whole(view, header)
    count = header.record_count
    if count == 0:
        return pa.record_batch([pa.array([], field.type) for field in schema], schema=schema)
    start = header.records_at + (0 if header.append_only else count)
    message = memoryview(view)[start : header.size]
    info = inspect_message(message, max_uncompressed)
    if count * ROW_BYTES > max_uncompressed:
        raise CorruptRecord(
            f"log batch at offset {header.base_offset}: {count} rows with at least {ROW_BYTES}"
            f" bytes each exceed {max_uncompressed} bytes"
        )
    if info.rows != count:
        raise CorruptRecord(
            f"log batch at offset {header.base_offset}: its Arrow part has {info.rows} rows,"
            f" its header {count}"
        )
    buffer = pa.py_buffer(message)
    if buffer.address % 8:
        buffer = pa.py_buffer(bytes(message))
    try:
        batch = pa.ipc.read_record_batch(buffer, schema)
        batch.validate(full=True)
    except (pa.ArrowException, OSError) as error:
        raise CorruptRecord(
            f"log batch at offset {header.base_offset} does not have the columns"
            f" {', '.join(schema.names)}: {error}"
        ) from error
    return batch


def change_types(view: Buffer, header: LogBatchHeader) -> bytes | None:
    """Returns one change type (0 to 4) per record; None if all are appends.

    :raises CorruptRecord: the batch is incomplete, or a change type is unknown.
    """
    _check_whole(view, header)
    if header.append_only:
        return None
    start = header.records_at
    types = bytes(memoryview(view)[start : start + header.record_count])
    highest = int(np.frombuffer(types, np.uint8).max(initial=0))
    if highest > MAX_CHANGE_TYPE:
        raise CorruptRecord(
            f"log batch at offset {header.base_offset}: change type {highest} is not 0 to 4"
        )
    return types


def _check_whole(view: Buffer, header: LogBatchHeader) -> None:
    if len(view) < header.size:
        raise CorruptRecord(
            f"log batch at offset {header.base_offset}: it has {len(view)} of {header.size} bytes"
        )


class _Parts:
    """A file object that keeps the written buffers without a copy."""

    closed = False

    def __init__(self) -> None:
        self.parts: list[bytes | pa.Buffer] = []

    def write(self, part: bytes | pa.Buffer) -> int:
        self.parts.append(part)
        return len(part)

    def tell(self) -> int:
        return 0

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass


def _arrow_message(batch: pa.RecordBatch, compression: str, level: int) -> list[bytes | pa.Buffer]:
    """Returns the parts of the message; ``RecordBatch.serialize`` cannot compress."""
    _refuse_dictionaries(batch.schema)
    sink = _Parts()
    frames = compression == "LZ4_FRAME"
    options = _options("NONE" if frames else compression, level)
    with_schema = pa.ipc.new_stream(sink, batch.schema, options=options)
    with_schema.write_batch(batch)
    # the stream starts with the schema, which Fluss omits: prefix and length, then metadata
    parts, taken = sink.parts, 0
    skip = 8 + _LENGTH.unpack(b"".join(map(bytes, parts[:2]))[4:8])[0]
    for index, part in enumerate(parts):
        if taken == skip:
            message = parts[index:]
            return compress_message(memoryview(b"".join(message))) if frames else message
        taken += len(part)
    raise AssertionError("the schema message does not end with a write")


@lru_cache(maxsize=64)
def _options(compression: str, level: int) -> pa.ipc.IpcWriteOptions:
    if compression not in COMPRESSIONS:
        raise InvalidConfig(f"compression {compression!r}: use one of {', '.join(COMPRESSIONS)}")
    if compression == "NONE":
        return pa.ipc.IpcWriteOptions(use_threads=False)
    if not 1 <= level <= 22:
        raise InvalidConfig(f"zstd level {level}: use 1 to 22")
    codec = pa.Codec("zstd", compression_level=level)
    return pa.ipc.IpcWriteOptions(compression=codec, use_threads=False)


@lru_cache(maxsize=256)
def _refuse_dictionaries(schema: pa.Schema) -> None:
    for field in schema:
        if _has_dictionary(field.type):
            raise UnsupportedType(
                f"column {field.name!r} is {field.type}: the log has no dictionaries, cast it"
            )


def _has_dictionary(data_type: pa.DataType) -> bool:
    if pa.types.is_dictionary(data_type):
        return True
    children = (data_type.field(i).type for i in range(data_type.num_fields))
    return any(_has_dictionary(child) for child in children)
