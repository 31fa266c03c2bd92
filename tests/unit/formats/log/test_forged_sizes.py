"""Sizes in Arrow messages that are not those of their buffers: refused, whatever they say."""

from __future__ import annotations

import struct

import pyarrow as pa
import pytest

from sluice.errors import CorruptRecord
from sluice.formats.log.arrow_message import read_layout
from sluice.formats.log.batch import decode_log_batch, encode_log_batch, iter_batches

SCHEMA = pa.schema([("id", pa.int64()), ("text", pa.string())])
ROWS = pa.record_batch([range(2_000), [f"x{n}" for n in range(2_000)]], schema=SCHEMA)


@pytest.mark.parametrize("compression", ["LZ4_FRAME", "ZSTD"])
@pytest.mark.parametrize("forged", ["one more", "one less", "a gibibyte", "terabytes"])
def test_a_forged_size_of_a_buffer_is_refused(compression: str, forged: str) -> None:
    batch = bytearray(encode_log_batch(ROWS, 1, compression=compression))
    [(header, _)] = iter_batches(bytes(batch))
    layout = read_layout(memoryview(bytes(batch))[header.records_at :])
    first = next(int(offset) for offset, length in layout.buffers if length)
    at = header.records_at + layout.body_start + first
    [size] = struct.unpack_from("<q", batch, at)
    said = {"one more": size + 1, "one less": size - 1, "a gibibyte": 1 << 30, "terabytes": 1 << 42}
    struct.pack_into("<q", batch, at, said[forged])
    [(header, view)] = iter_batches(bytes(batch))
    with pytest.raises(CorruptRecord):
        decode_log_batch(view, header, SCHEMA)
