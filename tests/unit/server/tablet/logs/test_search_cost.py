"""A start with damaged logs takes little longer if their rows look like batches."""

from __future__ import annotations

import random
import struct
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from sluice.formats.log.batch import encode_log_batch, read_header, set_offset_and_timestamp
from sluice.server.tablet.logs.log import BucketLog
from tests.support.tables.damaged_logs import Ticks, batches_from, open_log

I32 = struct.Struct("<i")
I64 = struct.Struct("<q")
SEGMENT_BYTES = 1 << 24


def rows_of(content: bytes, rows: int = 1) -> bytes:
    """A batch whose first row has that content; the others are empty."""
    data = pa.record_batch({"s": pa.array([content, *[b""] * (rows - 1)], pa.binary())})
    return encode_log_batch(data, 1, compression="NONE")


def at_offset(sent: bytes, offset: int) -> bytearray:
    """The batch as the server stores it there."""
    one = bytearray(sent)
    set_offset_and_timestamp(one, offset, Ticks().ms)
    return one


SMALL = rows_of(b"x" * 400)
EMPTY = encode_log_batch(pa.record_batch({"s": pa.array([], pa.binary())}), 1, compression="NONE")


def written(folder: Path, *batches: bytes) -> BucketLog:
    log = open_log(folder, segment_bytes=SEGMENT_BYTES)
    for one in batches:
        log.append(read_header(one), one)
    return log


def damage(folder: Path, *places: int, lost: int = 0) -> None:
    """Zeroes 60 bytes of the segment at each place, and removes some bytes of its end."""
    (path,) = folder.glob("*.log")
    content = bytearray(path.read_bytes())
    for place in places:
        content[place : place + 60] = bytes(60)
    path.write_bytes(content[: len(content) - lost])


def opened(folder: Path) -> tuple[BucketLog, float]:
    """The log, and the seconds of CPU that its start took."""
    before = time.process_time()
    log = open_log(folder, segment_bytes=SEGMENT_BYTES)
    return log, time.process_time() - before


@pytest.mark.parametrize("lost", [0, 1])
def test_headers_in_a_row_that_an_index_names_cost_few_checksums(tmp_path: Path, lost: int) -> None:
    last = rows_of(random.Random(1).randbytes(1 << 21))
    header = at_offset(last, 3)[:48]
    header[21:25] = bytes(4)  # the checksum
    written(tmp_path, SMALL, SMALL, rows_of(bytes(header) * (len(last) // 48)), last).sync()
    damage(tmp_path, 0, len(SMALL), 2 * len(SMALL), lost=lost)
    again, spent_s = opened(tmp_path)
    assert spent_s < 8
    assert again.end_offset == 4
    if not lost:
        assert [base for base, *_ in batches_from(again, 3)] == [3]


def test_a_batch_in_its_place_comes_before_a_copy_in_a_row(tmp_path: Path) -> None:
    real, copy = rows_of(b"y" * 64), at_offset(rows_of(b"n" * 64), 3)
    written(tmp_path, SMALL, SMALL, rows_of(bytes(copy)), real).sync()
    damage(tmp_path, 0, len(SMALL), 2 * len(SMALL))
    again, _ = opened(tmp_path)
    ((base, _, content, _),) = batches_from(again, 3)
    assert (base, content) == (3, real[25:])


def chains(number: int) -> tuple[bytes, int]:
    """Good batches, after each of which the log seems to go on."""
    units = (
        at_offset(EMPTY, 10 + 2 * one) + I64.pack(11 + 2 * one) + b"\xff" * 8
        for one in range(number)
    )
    return b"".join(units), 3 * number + 100


def long_rows(number: int) -> tuple[bytes, int]:
    """Good batches, each before the header of many rows that leads to the same rows."""
    rows = number * 20 + 10
    inner, size = bytearray(), number * 100
    for one in range(number):
        offset = 10 + one * (rows + 5)
        header = at_offset(EMPTY, offset + 1)
        I32.pack_into(header, 8, 1 << 30)
        I32.pack_into(header, 28, rows - 1)
        I32.pack_into(header, 44, rows)
        inner += at_offset(EMPTY, offset) + header
        inner += I32.pack(max(1, size - len(inner) - 4))
    return bytes(inner) + (I32.pack(1) + b"\x07") * (rows - 10) + bytes(16), 3 * number + 100


@pytest.mark.parametrize(("payload", "number"), [(chains, 8_000), (long_rows, 2_000)])
def test_rows_that_look_like_a_log_cost_little(
    tmp_path: Path, payload: Callable[[int], tuple[bytes, int]], number: int
) -> None:
    written(tmp_path, SMALL, rows_of(*payload(number)), *[SMALL] * 5)
    damage(tmp_path, len(SMALL))
    _, spent_s = opened(tmp_path)
    assert spent_s < 8
