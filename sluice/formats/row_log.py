"""Records of log batches in the INDEXED and COMPACTED log formats.

See docs/fluss/log-batches.md#row-records
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from sluice.errors import CorruptRecord
from sluice.formats import records
from sluice.formats.log_batch import MAX_CHANGE_TYPE, Buffer, LogBatchHeader


@dataclass(frozen=True, slots=True)
class RowLog:
    """The change type (uint8) and the row's bytes of each record."""

    change_types: np.ndarray
    rows: pa.Array


def parse_row_log_batch(view: Buffer, header: LogBatchHeader) -> RowLog:
    """Returns change types and rows, copied from ``view``.

    :raises CorruptRecord: the records do not fill the batch, or a change type is unknown.
    """
    if len(view) < header.size:
        raise CorruptRecord(f"log batch: it has {len(view)} of {header.size} bytes")
    what = f"log batch at offset {header.base_offset}"
    content = memoryview(view)[header.records_at : header.size]
    heads, rows = records.find(what, content, header.record_count).behind_heads(1)
    change_types = heads[:, 0]
    unknown = np.nonzero(change_types > MAX_CHANGE_TYPE)[0]
    if len(unknown):
        raise CorruptRecord(
            f"{what}: record {unknown[0]} has change type {change_types[unknown[0]]},"
            " which is not 0 to 4"
        )
    return RowLog(change_types, rows)
