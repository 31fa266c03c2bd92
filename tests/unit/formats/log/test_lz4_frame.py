"""LZ4 frames: an independent reader takes them, and their blocks are independent."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.formats.log.batch import decode_log_batch, encode_log_batch, read_header
from sluice.formats.log.lz4_frame import compress

MEGABYTE = 1 << 20


@given(st.binary(max_size=2000), st.integers(0, 50))
def test_pyarrow_reads_frames(data: bytes, times: int) -> None:
    content = data * times
    found = pa.Codec("lz4").decompress(compress(content), len(content))
    assert found.to_pybytes() == content


@pytest.mark.parametrize("size", [4 * MEGABYTE - 1, 4 * MEGABYTE, 4 * MEGABYTE + 1, 9 * MEGABYTE])
def test_frames_of_several_blocks(size: int) -> None:
    content = (b"Schleuse " * (size // 9 + 1))[:size]
    frame = compress(content)
    assert pa.Codec("lz4").decompress(frame, size).to_pybytes() == content
    assert len(frame) < size // 50


def test_frame_says_that_its_blocks_are_independent() -> None:
    """Bit 5 of the flags; Java's LZ4FrameInputStream refuses frames without."""
    assert compress(b"x")[4] & 0b0010_0000


def test_batches_of_all_sizes_decode() -> None:
    schema = pa.schema([("a", pa.int64()), ("b", pa.string()), ("c", pa.bool_())])
    for rows in (1, 7, 8, 1000):
        batch = pa.record_batch(
            [
                pa.array(range(rows)),
                pa.array([None if n % 3 else f"value {n % 10}" for n in range(rows)], pa.string()),
                pa.array([n % 2 == 0 for n in range(rows)]),
            ],
            schema=schema,
        )
        encoded = encode_log_batch(batch, 1, compression="LZ4_FRAME")
        assert rows < 1000 or b"\x04\x22\x4d\x18" in encoded
        assert decode_log_batch(encoded, read_header(encoded), schema).equals(batch)
