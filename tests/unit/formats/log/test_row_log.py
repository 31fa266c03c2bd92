"""Log batches of rows against docs/fluss/test-vectors.md#rows-and-batches"""

from __future__ import annotations

import contextlib

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.errors import CorruptRecord
from sluice.formats.log.batch import check_crc, read_header
from sluice.formats.log.row_log import RowLog, build_row_log_batch, parse_row_log_batch
from tests.support.tables.row_by_row import row_log_batch

ROW = bytes.fromhex("00010161")
LOG_BATCH = bytes.fromhex(
    "0000000000000000 2D000000 00 0000000000000000 BC3CB246 0100 00 00000000"
    "FFFFFFFFFFFFFFFF FFFFFFFF 01000000 05000000 01 00010161"
)


def row_log(records: list[tuple[int, bytes]]) -> RowLog:
    rows = pa.array([row for _, row in records], pa.binary())
    return RowLog(np.array([change for change, _ in records], np.uint8), rows)


def test_the_row_log_batch_of_the_docs() -> None:
    assert row_log_batch(row_log([(1, ROW)]), 1) == LOG_BATCH
    header = read_header(LOG_BATCH)
    check_crc(LOG_BATCH, header)
    found = parse_row_log_batch(LOG_BATCH, header)
    assert (found.change_types.tolist(), found.rows.to_pylist()) == ([1], [ROW])


def test_the_batch_is_built_as_the_docs_have_it() -> None:
    assert build_row_log_batch(pa.array([ROW]), 1, change_types=b"\1") == LOG_BATCH
    empty = build_row_log_batch(pa.array([], pa.binary()), 1, change_types=b"")
    header = read_header(empty)
    assert (len(empty), header.record_count, header.append_only) == (48, 0, False)
    assert parse_row_log_batch(empty, header).rows.to_pylist() == []


@given(st.lists(st.tuples(st.integers(0, 4), st.binary())), st.booleans())
def test_row_logs_survive(records: list[tuple[int, bytes]], append_only: bool) -> None:
    """Built at once as one by one, and found again."""
    if append_only:
        records = [(0, row) for _, row in records]
    log = row_log(records)
    content = row_log_batch(log, 3, append_only=append_only, writer_id=5, batch_sequence=9)
    changes = None if append_only else log.change_types.tobytes()
    assert content == build_row_log_batch(
        log.rows, 3, writer_id=5, batch_sequence=9, change_types=changes
    )
    header = read_header(content)
    check_crc(content, header)
    assert (header.append_only, header.writer_id) == (append_only, 5)
    found = parse_row_log_batch(content, header)
    assert found.change_types.tolist() == log.change_types.tolist()
    assert found.rows.equals(log.rows)


@given(st.lists(st.binary(), min_size=1), st.integers(0, 5), st.integers(0, 5))
def test_a_slice_of_rows_is_built_like_the_rows_alone(
    rows: list[bytes], skipped: int, left_out: int
) -> None:
    part = pa.array(rows, pa.binary()).slice(skipped, max(len(rows) - skipped - left_out, 0))
    alone = pa.array(part.to_pylist(), pa.binary())
    assert build_row_log_batch(part, 1) == build_row_log_batch(alone, 1)


@given(st.lists(st.tuples(st.integers(0, 100), st.integers(0, 255)), max_size=4))
def test_broken_batches_are_corrupt_records_and_nothing_else(
    changes: list[tuple[int, int]],
) -> None:
    content = bytearray(LOG_BATCH)
    for at, value in changes:
        content[at % len(content)] = value
    with contextlib.suppress(CorruptRecord):
        parse_row_log_batch(content, read_header(content))


def test_broken_batches_say_what_is_wrong() -> None:
    unknown = row_log_batch(row_log([(1, b""), (9, b"")]), 1)
    with pytest.raises(CorruptRecord, match="record 1 has change type 9, which is not 0 to 4"):
        parse_row_log_batch(unknown, read_header(unknown))
    update = row_log_batch(row_log([(0, b""), (3, b"")]), 1, append_only=True)
    with pytest.raises(CorruptRecord, match="record 1 has change type 3, which is not 0 in a"):
        parse_row_log_batch(update, read_header(update))
    with pytest.raises(CorruptRecord, match="56 of 57 bytes"):
        parse_row_log_batch(LOG_BATCH[:-1], read_header(LOG_BATCH))
    empty = LOG_BATCH[:8] + b"\x28" + LOG_BATCH[9:48] + bytes(4)
    with pytest.raises(CorruptRecord, match="record 0 has 0 bytes, but needs at least 1"):
        parse_row_log_batch(empty, read_header(empty))
