"""KV batches against docs/fluss/test-vectors.md#rows-and-batches"""

from __future__ import annotations

import struct

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.errors import CorruptRecord
from sluice.formats.kv.kv_batch import build_kv_batch, parse_kv_batch
from sluice.formats.log.batch import crc32c
from tests.support.tables.row_by_row import sized

ROW = bytes.fromhex("00010161")
KV_BATCH = bytes.fromhex(
    "28000000 00 81BE3E54 0100 00 FFFFFFFFFFFFFFFF FFFFFFFF 02000000"
    "06000000 01 01 00010161 02000000 01 01"
)


def binary(values: list[bytes | None]) -> pa.Array:
    return pa.array(values, pa.binary())


def sealed(records: bytes, count: int) -> bytes:
    """Records as a batch with a right checksum."""
    body = struct.pack("<hbqii", 1, 0, -1, -1, count) + records
    return struct.pack("<ibI", 5 + len(body), 0, crc32c(body)) + body


def test_the_kv_batch_of_the_docs() -> None:
    assert build_kv_batch(binary([b"\x01"] * 2), binary([ROW, None]), 1) == KV_BATCH
    batch = parse_kv_batch(KV_BATCH)
    assert (batch.schema_id, batch.writer_id, batch.batch_sequence) == (1, -1, -1)
    assert batch.keys.to_pylist() == [b"\x01", b"\x01"]
    assert batch.rows.to_pylist() == [ROW, None]


RECORDS = st.lists(st.tuples(st.binary(max_size=200), st.none() | st.binary(min_size=1)))


@given(
    RECORDS,
    st.integers(-(2**15), 2**15 - 1),
    st.integers(-(2**63), 2**63 - 1),
    st.integers(0, 2),
)
def test_kv_batches_survive(
    records: list[tuple[bytes, bytes | None]], schema_id: int, writer_id: int, skip: int
) -> None:
    keys = binary([key for key, _ in records]).slice(skip)
    rows = binary([row for _, row in records]).slice(skip)
    content = build_kv_batch(keys, rows, schema_id, writer_id, 7)
    parts = [sized(key) + (row or b"") for key, row in records[skip:]]
    assert content[28:] == b"".join(struct.pack("<i", len(part)) + part for part in parts)
    batch = parse_kv_batch(memoryview(content))
    assert (batch.schema_id, batch.writer_id, batch.batch_sequence) == (schema_id, writer_id, 7)
    assert batch.keys.equals(keys)
    assert batch.rows.equals(rows)
    batch.rows.validate(full=True)


@given(st.integers(0, len(KV_BATCH) * 8 - 1))
def test_every_flipped_bit_is_noticed(bit: int) -> None:
    content = bytearray(KV_BATCH)
    content[bit // 8] ^= 1 << bit % 8
    with pytest.raises(CorruptRecord):
        parse_kv_batch(content)


@pytest.mark.parametrize("cut", range(len(KV_BATCH)))
def test_cut_batches_are_refused(cut: int) -> None:
    with pytest.raises(CorruptRecord, match="KV batch"):
        parse_kv_batch(KV_BATCH[:cut])


@given(st.binary(max_size=60), st.integers(-2, 20))
def test_records_of_any_bytes_are_read_or_refused(records: bytes, count: int) -> None:
    try:
        batch = parse_kv_batch(sealed(records, count))
    except CorruptRecord as error:
        assert "KV batch: " in str(error)
    else:
        assert len(batch.keys) == len(batch.rows) == count


@pytest.mark.parametrize(
    ("records", "count", "reason"),
    [
        ("", -1, "-1 records do not fit into 0 bytes"),
        ("00000000", 2, "2 records do not fit into 4 bytes"),
        ("02000000 0161 00", 1, "record 1: there are extra bytes at the end"),
        ("02000000 0161 0000", 1, "record 1: there are extra bytes at the end"),
        ("02000000 0161 FFFFFFFF", 2, "record 1: a length is negative"),
        ("02000000 0161 01000000", 2, "record 1: it ends early"),
        ("02000000 0161 00000000", 2, "record 1: it ends early"),
        ("02000000 0261", 1, "record 0: it ends early"),
        ("05000000 FFFFFFFF0F", 1, "record 0: a length is negative"),
        ("06000000 808080808000", 1, "record 0: a varint is longer"),
    ],
)
def test_broken_records_say_which_and_what(records: str, count: int, reason: str) -> None:
    with pytest.raises(CorruptRecord, match=f"KV batch: {reason}"):
        parse_kv_batch(sealed(bytes.fromhex(records), count))


def test_what_does_not_belong_together_is_refused() -> None:
    with pytest.raises(ValueError, match="1 keys with 0 nulls for 2 rows"):
        build_kv_batch(binary([b"a"]), binary([b"b", b"c"]), 1)
    with pytest.raises(ValueError, match="1 keys with 1 nulls"):
        build_kv_batch(binary([None]), binary([b"b"]), 1)
