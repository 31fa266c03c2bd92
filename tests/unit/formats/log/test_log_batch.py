"""Log batches: test vectors, round trips, cut tails and broken bytes.

See docs/fluss/test-vectors.md#rows-and-batches
"""

import contextlib
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sluice.errors import CorruptRecord, InvalidConfig, UnsupportedType
from sluice.formats.log.batch import (
    LogBatchHeader,
    change_types,
    check_crc,
    crc32c,
    decode_log_batch,
    encode_log_batch,
    iter_batches,
    read_header,
    set_offset_and_timestamp,
)
from tests.support.programs.arrow_memory import all_given_back
from tests.unit.formats.strategies import SCALARS, arrow_batches

EMPTY_AT_7 = bytes.fromhex(
    "0700000000000000 24000000 00 0000000000000000 1F2B1728 0100 00 00000000"
    "FFFFFFFFFFFFFFFF FFFFFFFF 00000000"
)
COMPACTED = bytes.fromhex(
    "0000000000000000 2D000000 00 0000000000000000 BC3CB246 0100 00 00000000"
    "FFFFFFFFFFFFFFFF FFFFFFFF 01000000 05000000 01 00010161"
)
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string())])
ROWS = pa.record_batch([pa.array(range(1000)), pa.array(["row"] * 1000)], schema=SCHEMA)
ENCODED = encode_log_batch(ROWS, 3, writer_id=9, batch_sequence=4)


def test_checksum_is_crc_32c_over_any_buffer() -> None:
    for buffer in (b"123456789", bytearray(b"123456789"), memoryview(b"0123456789")[1:]):
        assert crc32c(buffer) == 0xE3069283


def test_the_empty_batch_of_the_docs() -> None:
    header = read_header(EMPTY_AT_7)
    assert header == LogBatchHeader(7, 48, 0, 0, 0x28172B1F, 1, 0, 0, -1, -1, 0, 0)
    assert header.next_offset == 8
    check_crc(EMPTY_AT_7, header)
    assert decode_log_batch(EMPTY_AT_7, header, SCHEMA).num_rows == 0
    assert decode_log_batch(EMPTY_AT_7, header, SCHEMA).schema == SCHEMA
    encoded = bytearray(encode_log_batch(ROWS[:0], 1, change_types=b""))
    set_offset_and_timestamp(encoded, 7, 0)
    assert encoded == EMPTY_AT_7


def test_the_compacted_batch_of_the_docs() -> None:
    header = read_header(COMPACTED)
    check_crc(COMPACTED, header)
    assert (header.size, header.record_count, header.append_only) == (57, 1, False)
    assert [(h, bytes(v)) for h, v in iter_batches(COMPACTED + EMPTY_AT_7)] == [
        (header, COMPACTED),
        (read_header(EMPTY_AT_7), EMPTY_AT_7),
    ]


def test_a_batch_says_who_wrote_it_and_takes_its_offset_later() -> None:
    encoded = bytearray(ENCODED)
    set_offset_and_timestamp(memoryview(encoded), 500, 1_700_000_000_000)
    header = read_header(encoded)
    assert (header.base_offset, header.timestamp_ms) == (500, 1_700_000_000_000)
    assert (header.schema_id, header.writer_id, header.batch_sequence) == (3, 9, 4)
    assert (header.record_count, header.last_offset_delta, header.next_offset) == (1000, 999, 1500)
    check_crc(encoded, header)
    assert decode_log_batch(encoded, header, SCHEMA).equals(ROWS)


def change(types: pa.RecordBatch) -> bytes:
    return bytes(i % 5 for i in range(types.num_rows))


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(
    arrow_batches(),
    st.sampled_from(["ZSTD", "NONE", "LZ4_FRAME"]),
    st.booleans(),
    st.integers(0, 9),
)
def test_every_type_survives_every_compression(
    batch: pa.RecordBatch, compression: str, changelog: bool, shift: int
) -> None:
    types = change(batch) if changelog else None
    encoded = encode_log_batch(batch, 1, compression=compression, change_types=types)
    shifted = memoryview(bytes(shift) + encoded)[shift:]  # as it may lie in a message
    header = read_header(shifted)
    assert header.size == len(encoded)
    check_crc(shifted, header)
    decoded = decode_log_batch(shifted, header, batch.schema)
    assert decoded.schema == batch.schema
    assert decoded.equals(batch)
    assert change_types(shifted, header) == types


def test_all_scalar_types_are_among_those_tried() -> None:
    assert len(SCALARS) == 25


@pytest.mark.parametrize("offset", [0, 3, 997])
def test_slices_are_written_without_the_rest(offset: int) -> None:
    part = ROWS.slice(offset, 3)
    encoded = encode_log_batch(part, 1, compression="NONE")
    assert len(encoded) < 500
    assert decode_log_batch(encoded, read_header(encoded), SCHEMA).equals(part)


def test_lz4_is_read_as_pyarrow_writes_it() -> None:
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, SCHEMA, options=options) as writer:
        writer.write_batch(ROWS)
    stream = sink.getvalue().to_pybytes()
    (skip,) = struct.unpack_from("<i", stream, 4)
    message = stream[8 + skip : -8]
    header = read_header(ENCODED)
    length = 48 - 12 + len(message)
    batch = struct.pack("<qi", 0, length) + ENCODED[12:48] + message
    assert decode_log_batch(batch, read_header(batch), SCHEMA).equals(ROWS)
    assert header.record_count == 1000


@pytest.mark.parametrize("magic", [1, 2])
def test_newer_headers_are_read_and_their_statistics_skipped(magic: int) -> None:
    tail = struct.pack("<hbiqiii", 3, 1, 999, 9, 4, 1000, 5) + b"stats" + ENCODED[48:]
    epoch = b"\x07\0\0\0" if magic == 2 else b""
    size = 25 + len(epoch) + len(tail)
    head = struct.pack("<qibq", 80, size - 12, magic, 99) + epoch
    batch = head + struct.pack("<I", crc32c(tail)) + tail
    header = read_header(batch)
    assert (header.statistics_length, header.base_offset, header.timestamp_ms) == (5, 80, 99)
    assert (header.size, header.writer_id, header.schema_id) == (size, 9, 3)
    check_crc(batch, header)
    assert decode_log_batch(batch, header, SCHEMA).equals(ROWS)
    with pytest.raises(CorruptRecord, match="its header needs"):
        read_header(batch[:48])


def test_a_cut_tail_ends_the_iteration() -> None:
    whole = EMPTY_AT_7 + ENCODED
    for cut in (0, 1, 47, 48, 49, len(whole) - 1):
        sizes = [header.size for header, _ in iter_batches(whole[:cut])]
        assert sizes == ([48] if cut >= 48 else []), cut


def test_views_share_the_memory_they_were_cut_from() -> None:
    memory = bytearray(ENCODED)
    ((_, view),) = iter_batches(memory)
    memory[0] = 77
    assert view[0] == 77


def test_decoding_aligned_uncompressed_bytes_copies_nothing() -> None:
    encoded = encode_log_batch(ROWS, 1, compression="NONE")
    start = pa.py_buffer(encoded).address
    decoded = decode_log_batch(encoded, read_header(encoded), SCHEMA)
    assert start <= decoded.column(0).buffers()[1].address < start + len(encoded)


def patched(at: int, layout: str, value: int) -> bytes:
    content = bytearray(ENCODED)
    struct.pack_into(layout, content, at, value)
    return bytes(content)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (ENCODED[:47], "47 bytes"),
        (b"", "0 bytes"),
        (patched(0, "<q", -1), "base offset -1"),
        (patched(8, "<i", 35), "size 47"),
        (patched(8, "<i", -1), "size 11"),
        (patched(12, "<b", 3), "magic 3"),
        (patched(12, "<b", -1), "magic 255"),
        (patched(28, "<i", 1000), "1000 records and last offset delta 1000"),
        (patched(44, "<i", -1), "-1 records"),
    ],
)
def test_a_header_that_cannot_be_is_refused(content: bytes, reason: str) -> None:
    with pytest.raises(CorruptRecord, match=reason):
        read_header(content)


def test_more_change_types_than_bytes_are_refused() -> None:
    content = bytearray(EMPTY_AT_7)
    struct.pack_into("<i", content, 28, 2**31 - 2)
    struct.pack_into("<i", content, 44, 2**31 - 1)
    with pytest.raises(CorruptRecord, match="size 48"):
        read_header(content)


def test_a_wrong_checksum_and_a_short_view_are_refused() -> None:
    header = read_header(ENCODED)
    with pytest.raises(CorruptRecord, match="checksum"):
        check_crc(patched(100, "<b", 1), header)
    for check in (check_crc, change_types, lambda v, h: decode_log_batch(v, h, SCHEMA)):
        with pytest.raises(CorruptRecord, match=f"{len(ENCODED) - 1} of {len(ENCODED)} bytes"):
            check(ENCODED[:-1], header)


def test_an_unknown_change_type_is_refused() -> None:
    encoded = encode_log_batch(ROWS[:2], 1, change_types=b"\x01\x05")
    with pytest.raises(CorruptRecord, match="change type 5"):
        change_types(encoded, read_header(encoded))


def test_another_schema_is_refused() -> None:
    schema = pa.schema([pa.field("id", pa.int64()), pa.field("x", pa.list_(pa.int64()))])
    with pytest.raises(CorruptRecord, match="id, x"):
        decode_log_batch(ENCODED, read_header(ENCODED), schema)


def test_a_claim_of_much_memory_is_refused_before_it_is_taken() -> None:
    header = read_header(ENCODED)
    with pytest.raises(CorruptRecord, match="bytes uncompressed"):
        decode_log_batch(ENCODED, header, SCHEMA, max_uncompressed=10_000)
    content = bytearray(ENCODED)
    at = ENCODED.index(struct.pack("<q", 8000))  # uncompressed length of the ids
    struct.pack_into("<q", content, at, 1 << 40)
    with pytest.raises(CorruptRecord, match="1099511"):
        decode_log_batch(content, header, SCHEMA)


def test_rows_of_single_bits_count_as_what_is_made_of_them() -> None:
    """A kilobyte could say two billion rows, each of which gets an offset of eight bytes."""
    schema = pa.schema([("flag", pa.bool_())])
    rows = pa.record_batch([pa.array([False] * 100_000)], schema=schema)
    encoded = encode_log_batch(rows, 1)
    header = read_header(encoded)
    assert decode_log_batch(encoded, header, schema, max_uncompressed=800_000).equals(rows)
    with pytest.raises(CorruptRecord, match="100000 rows with at least 8 bytes each"):
        decode_log_batch(encoded, header, schema, max_uncompressed=799_999)


@pytest.mark.parametrize("compression", ["ZSTD", "LZ4_FRAME"])
@pytest.mark.parametrize("said", [-2, 1, 8_000_001, 1 << 29])
def test_a_buffer_that_becomes_more_or_less_than_it_says_is_refused(
    compression: str, said: int
) -> None:
    """Eight megabytes of zeros in a kilobyte, and another number of bytes before them."""
    rows = pa.record_batch([pa.array(np.zeros(1_000_000, np.int64))], ["id"])
    content = bytearray(encode_log_batch(rows, 1, compression=compression))
    assert len(content) < 40_000
    struct.pack_into("<q", content, content.index(struct.pack("<q", 8_000_000)), said)
    with all_given_back(), pytest.raises(CorruptRecord):
        decode_log_batch(content, read_header(content), rows.schema, max_uncompressed=1 << 28)


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(InvalidConfig, match="'GZIP'"):
        encode_log_batch(ROWS, 1, compression="GZIP")
    with pytest.raises(InvalidConfig, match="level"):
        encode_log_batch(ROWS, 1, level=99)
    with pytest.raises(ValueError, match="1 change types for 1000 rows"):
        encode_log_batch(ROWS, 1, change_types=b"\x01")
    for odd in (
        pa.array(["a"]).dictionary_encode(),
        pa.StructArray.from_arrays([pa.array(["a"]).dictionary_encode()], ["x"]),
    ):
        with pytest.raises(UnsupportedType, match="'odd'"):
            encode_log_batch(pa.record_batch([odd], ["odd"]), 1)


SEEDS = [
    ENCODED,
    encode_log_batch(ROWS[:3], 1, compression="NONE", change_types=b"\x01\x02\x03"),
    encode_log_batch(ROWS[:50], 1, compression="ZSTD"),
]


def read_all(content: bytes) -> None:
    for header, view in iter_batches(content):
        change_types(view, header)
        decode_log_batch(view, header, SCHEMA)


def only_refused(call: Callable[[Any], None], content: Any) -> None:
    with contextlib.suppress(CorruptRecord):
        call(content)


@settings(max_examples=400, deadline=None)
@given(
    st.sampled_from(SEEDS),
    st.lists(st.tuples(st.integers(0, 1200), st.integers(0, 255)), min_size=1, max_size=4),
    st.integers(0, 60),
)
def test_broken_bytes_are_corrupt_records_and_nothing_else(
    seed: bytes, changes: list[tuple[int, int]], cut: int
) -> None:
    content = bytearray(seed)
    for at, value in changes:
        content[at % len(content)] = value
    only_refused(read_all, bytes(content[: len(content) - cut]))


@given(st.binary(max_size=300))
def test_any_bytes_are_corrupt_records_and_nothing_else(content: bytes) -> None:
    only_refused(read_all, content)
    only_refused(read_all, ENCODED[:48] + content.ljust(len(ENCODED) - 48, b"\0"))


@given(st.integers(0, len(ENCODED) * 8 - 1))
def test_every_flipped_bit_behind_the_checksum_is_noticed(bit: int) -> None:
    content = bytearray(ENCODED)
    content[bit // 8] ^= 1 << bit % 8
    if bit // 8 < 21:
        return
    with pytest.raises(CorruptRecord):
        header = read_header(content)
        check_crc(content, header)
