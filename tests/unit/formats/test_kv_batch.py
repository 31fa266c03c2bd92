"""KV batches, value batches and row logs against the vectors of reference part 10.3."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.errors import CorruptRecord
from sluice.formats.kv_batch import (
    decode_kv_batch,
    decode_value,
    decode_value_batch,
    encode_kv_batch,
    encode_value,
    encode_value_batch,
)
from sluice.formats.log_batch import check_crc, read_header
from sluice.formats.row_log import decode_row_log_batch, encode_row_log_batch

ROW = bytes.fromhex("00010161")
VALUE_BATCH = bytes.fromhex("0F000000 00 01000000 06000000 0100 00010161")
KV_BATCH = bytes.fromhex(
    "28000000 00 81BE3E54 0100 00 FFFFFFFFFFFFFFFF FFFFFFFF 02000000"
    "06000000 01 01 00010161 02000000 01 01"
)
LOG_BATCH = bytes.fromhex(
    "0000000000000000 2D000000 00 0000000000000000 BC3CB246 0100 00 00000000"
    "FFFFFFFFFFFFFFFF FFFFFFFF 01000000 05000000 01 00010161"
)


def test_the_stored_value_of_the_reference() -> None:
    assert encode_value(1, ROW).hex() == "010000010161"
    assert decode_value(encode_value(1, ROW)) == (1, ROW)


def test_the_value_batch_of_the_reference() -> None:
    assert encode_value_batch([encode_value(1, ROW)]) == VALUE_BATCH
    assert decode_value_batch(VALUE_BATCH) == [(1, ROW)]


def test_the_kv_batch_of_the_reference() -> None:
    assert encode_kv_batch([(b"\x01", ROW), (b"\x01", None)], 1) == KV_BATCH
    batch = decode_kv_batch(KV_BATCH)
    assert (batch.schema_id, batch.writer_id, batch.batch_sequence) == (1, -1, -1)
    assert batch.records == ((b"\x01", ROW), (b"\x01", None))


def test_the_row_log_batch_of_the_reference() -> None:
    assert encode_row_log_batch([(1, ROW)], 1) == LOG_BATCH
    header = read_header(LOG_BATCH)
    check_crc(LOG_BATCH, header)
    assert decode_row_log_batch(LOG_BATCH, header) == [(1, ROW)]


RECORDS = st.lists(st.tuples(st.binary(max_size=200), st.none() | st.binary(min_size=1)))


@given(RECORDS, st.integers(-(2**15), 2**15 - 1), st.integers(-(2**63), 2**63 - 1))
def test_kv_batches_survive(
    records: list[tuple[bytes, bytes | None]], schema_id: int, writer_id: int
) -> None:
    content = encode_kv_batch(records, schema_id, writer_id=writer_id, batch_sequence=7)
    batch = decode_kv_batch(content)
    assert (batch.schema_id, batch.writer_id, batch.batch_sequence) == (schema_id, writer_id, 7)
    assert list(batch.records) == records


@given(st.lists(st.tuples(st.integers(0, 2**15 - 1), st.binary())))
def test_value_batches_survive(values: list[tuple[int, bytes]]) -> None:
    content = encode_value_batch([encode_value(*value) for value in values])
    assert decode_value_batch(memoryview(content)) == values


@given(st.lists(st.tuples(st.integers(0, 4), st.binary())), st.booleans())
def test_row_logs_survive(records: list[tuple[int, bytes]], append_only: bool) -> None:
    content = encode_row_log_batch(records, 3, append_only=append_only, writer_id=5)
    header = read_header(content)
    check_crc(content, header)
    assert (header.append_only, header.writer_id) == (append_only, 5)
    assert decode_row_log_batch(content, header) == records


@given(st.integers(0, len(KV_BATCH) * 8 - 1))
def test_every_flipped_bit_of_a_kv_batch_is_noticed(bit: int) -> None:
    content = bytearray(KV_BATCH)
    content[bit // 8] ^= 1 << bit % 8
    with pytest.raises(CorruptRecord):
        decode_kv_batch(content)


@pytest.mark.parametrize("cut", range(len(KV_BATCH)))
def test_cut_batches_are_refused(cut: int) -> None:
    with pytest.raises(CorruptRecord):
        decode_kv_batch(KV_BATCH[:cut])
    with pytest.raises(CorruptRecord):
        decode_value_batch(VALUE_BATCH[: cut % len(VALUE_BATCH)])


@given(st.lists(st.tuples(st.integers(0, 100), st.integers(0, 255)), max_size=4))
def test_broken_batches_are_corrupt_records_and_nothing_else(
    changes: list[tuple[int, int]],
) -> None:
    values, log = bytearray(VALUE_BATCH), bytearray(LOG_BATCH)
    for at, value in changes:
        values[at % len(values)] = value
        log[at % len(log)] = value
    with contextlib.suppress(CorruptRecord):
        decode_value_batch(values)
    with contextlib.suppress(CorruptRecord):
        decode_row_log_batch(log, read_header(log))


def test_broken_batches_say_what_is_wrong() -> None:
    with pytest.raises(CorruptRecord, match="magic 1"):
        decode_value_batch(VALUE_BATCH[:4] + b"\x01" + VALUE_BATCH[5:])
    with pytest.raises(CorruptRecord, match="-1 records"):
        decode_value_batch(VALUE_BATCH[:5] + b"\xff" * 4 + VALUE_BATCH[9:])
    with pytest.raises(CorruptRecord, match="20 of 19 bytes"):
        decode_value_batch(VALUE_BATCH + b"\0")
    unknown = encode_row_log_batch([(9, b"")], 1)
    with pytest.raises(CorruptRecord, match="no change type of 0 to 4"):
        decode_row_log_batch(unknown, read_header(unknown))
    with pytest.raises(CorruptRecord, match="56 of 57 bytes"):
        decode_row_log_batch(LOG_BATCH[:-1], read_header(LOG_BATCH))
