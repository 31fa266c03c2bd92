"""Records of log batches in the INDEXED and COMPACTED log formats.

See docs/fluss/log-batches.md#row-records
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from sluice.errors import CorruptRecord
from sluice.formats.log.batch import APPEND_ONLY, MAX_CHANGE_TYPE, Buffer, LogBatchHeader, seal
from sluice.formats.rows import records


@dataclass(frozen=True, slots=True)
class RowLog:
    """The change type (uint8) and the row's bytes of each record."""

    change_types: np.ndarray
    rows: pa.Array


def parse_row_log_batch(view: Buffer, header: LogBatchHeader) -> RowLog:
    """Returns change types and rows, copied from ``view``.

    :raises CorruptRecord: the records do not fill the batch, or a change type is unknown, or not 0
        in a batch of appends.
    """
    if len(view) < header.size:
        raise CorruptRecord(f"log batch: it has {len(view)} of {header.size} bytes")
    what = f"log batch at offset {header.base_offset}"
    content = memoryview(view)[header.records_at : header.size]
    heads, rows = records.find(what, content, header.record_count).behind_heads(1)
    change_types = heads[:, 0]
    highest = 0 if header.append_only else MAX_CHANGE_TYPE
    unknown = np.nonzero(change_types > highest)[0]
    if len(unknown):
        allowed = "0 in a batch of appends" if header.append_only else "0 to 4"
        raise CorruptRecord(
            f"{what}: record {unknown[0]} has change type {change_types[unknown[0]]},"
            f" which is not {allowed}"
        )
    return RowLog(change_types, rows)


def build_row_log_batch(
    rows: pa.Array,
    schema_id: int,
    *,
    writer_id: int = -1,
    batch_sequence: int = -1,
    change_types: bytes | None = None,
) -> bytes:
    """Builds one batch with offset 0 and time 0, which the server then sets.

    :param rows: the bytes of each row (binary, no nulls).
    :param change_types: one for each row; None: all are appends.
    :raises RecordTooLarge: the batch has more than 2 GiB.
    """
    count = len(rows)
    kinds = np.zeros(count, np.uint8)
    if change_types is not None:
        kinds = np.frombuffer(change_types, np.uint8)
    parts = [pa.py_buffer(records.frame(rows, 0, kinds))] if count else []
    attributes = APPEND_ONLY if change_types is None else 0
    return seal(parts, schema_id, attributes, writer_id, batch_sequence, count)
