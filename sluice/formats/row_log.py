"""Records of log batches in the INDEXED and COMPACTED log formats (reference part 4.2)."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from sluice.errors import CorruptRecord
from sluice.formats.log_batch import MAX_CHANGE_TYPE, Buffer, LogBatchHeader, seal
from sluice.formats.row_values import Reader

_LENGTH = struct.Struct("<i")
_HEAD = struct.Struct("<ib")


def encode_row_log_batch(
    records: Sequence[tuple[int, bytes]],
    schema_id: int,
    *,
    append_only: bool = False,
    writer_id: int = -1,
    batch_sequence: int = -1,
) -> bytes:
    """Change types and rows (already bytes) as one log batch at offset 0."""
    parts = [_HEAD.pack(1 + len(row), change) + row for change, row in records]
    return seal(parts, schema_id, int(append_only), writer_id, batch_sequence, len(records))


def decode_row_log_batch(view: Buffer, header: LogBatchHeader) -> list[tuple[int, memoryview]]:
    """Change type and row bytes of each record.

    :raises CorruptRecord: if the records do not fill the batch, or a change type is unknown.
    """
    if len(view) < header.size:
        raise CorruptRecord(f"log batch: {len(view)} of {header.size} bytes")
    reader = Reader(memoryview(view)[header.records_at : header.size])
    records: list[tuple[int, memoryview]] = []
    for _ in range(header.record_count):
        record = reader.take(reader.number(_LENGTH))
        if not record or record[0] > MAX_CHANGE_TYPE:
            raise CorruptRecord(
                f"log batch at offset {header.base_offset}: record {len(records)} has no change"
                " type of 0 to 4"
            )
        records.append((record[0], record[1:]))
    reader.end()
    return records
