"""Two faults in one batch of a log: what cannot be known costs no offset and no forged row."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pyarrow as pa
import pytest

from sluice.errors import CorruptRecord
from sluice.formats.log.batch import encode_log_batch, read_header, set_offset_and_timestamp
from sluice.formats.log.row_log import build_row_log_batch
from sluice.server.tablet.logs.log import BucketLog
from tests.support.tables.damaged_logs import batches_from, open_log
from tests.unit.server.support import batch


def flipped(content: bytes, *bits: tuple[int, int]) -> bytes:
    """The content with some bits flipped, each given as its byte and its number there."""
    wrong = bytearray(content)
    for at, bit in bits:
        wrong[at + bit // 8] ^= 1 << bit % 8
    return bytes(wrong)


ROWS = [
    pytest.param(lambda: batch("x" * 20, "y"), id="arrow"),
    pytest.param(
        lambda: build_row_log_batch(pa.array([b"x" * 40, b"y" * 20], pa.binary()), 1),
        id="rows",
    ),
]


@pytest.mark.parametrize("number", [5, 11])
@pytest.mark.parametrize("sent", ROWS)
def test_a_second_fault_beside_a_length_takes_nothing_behind(
    tmp_path: Path, sent: Callable[[], bytes], number: int
) -> None:
    one = sent()
    log = open_log(tmp_path / "log")
    for _ in range(12):
        log.append(read_header(one), one)
    (path,) = (tmp_path / "log").glob("*.log")
    written, size = path.read_bytes(), len(one)
    # What says the size, besides the length; for rows also the length of each.
    unsure = [*range(52, 56)] if one[48] == 0xFF else [*range(48, 52), *range(93, 97)]
    folder = tmp_path / "again"
    places = [(place, place % 8) for place in range(21, size, 5)]
    if one[48] == 0xFF:
        places += [(51, 7), (53, 0)]
    for length_bit, (place, bit) in product((12, 30), places):
        folder.mkdir()
        begin = number * size
        content = flipped(written, (begin + 8, length_bit), (begin + place, bit))
        (folder / path.name).write_bytes(content)
        again = open_log(folder)
        if place not in unsure or number < 11:
            assert 24 <= again.end_offset < 24 + 1024 * size, (length_bit, place)
        found = [base for base in range(0, 24, 2) if is_read(again, base)]
        intact = [base for base in range(0, 24, 2) if base != 2 * number]
        if place in unsure:
            intact = intact[:number]
        assert set(intact) <= set(found), (length_bit, place)
        shutil.rmtree(folder)


def is_read(log: BucketLog, offset: int) -> bool:
    try:
        return offset < log.end_offset and next(batches_from(log, offset))[0] == offset
    except CorruptRecord:
        return False


def carrier(*, first: int, pairs: int, rows: int = 2, end: bytes = b"") -> bytes:
    """A batch of rows, of which one has the bytes of other batches from that offset on."""
    inner = bytearray()
    for number in range(pairs):
        inner += at_offset(batch("forged", f"{number}"), first + 2 * number)
    texts = [bytes(inner) + end, *[b"x" * 8] * (rows - 1)]
    data = pa.record_batch({"s": pa.array(texts[::-1], pa.binary())})
    return encode_log_batch(data, 1, compression="NONE")


def at_offset(sent: bytes, offset: int) -> bytes:
    one = bytearray(sent)
    set_offset_and_timestamp(one, offset, 1_700_000_000_000)
    return bytes(one)


def destroyed(folder: Path, *batches: bytes, number: int, size: int = 60) -> BucketLog:
    """Appends batches after three of one row, zeroes the head of one, and opens the log again."""
    log, position = open_log(folder), 0
    for at, one in enumerate((*[batch("x")] * 3, *batches)):
        if at == 3 + number:
            (path,) = folder.glob("*.log")
            position = path.stat().st_size
        log.append(read_header(one), one)
    (path,) = folder.glob("*.log")
    content = bytearray(path.read_bytes())
    content[position : position + size] = bytes(size)
    path.write_bytes(content)
    return open_log(folder)


def readable(log: BucketLog, stop: int) -> list[int]:
    return [offset for offset in range(stop) if is_read(log, offset)]


@pytest.mark.parametrize("size", [28, 48, 60, 150])
def test_a_destroyed_batch_at_the_end_keeps_all_of_its_offsets(tmp_path: Path, size: int) -> None:
    again = destroyed(tmp_path, batch(*"x" * 40), number=0, size=size)
    if size <= 48:  # its Arrow message knows how many there are
        assert again.end_offset == 43
    assert 43 <= again.end_offset < 1 << 20
    sent = batch("y")
    assert again.append(read_header(sent), sent) == again.end_offset - 1
    assert readable(again, 43) == [0, 1, 2]


@pytest.mark.parametrize("first", [6, 1 << 15, 1 << 22, 1 << 23])
def test_batches_in_a_destroyed_row_are_not_believed(tmp_path: Path, first: int) -> None:
    sent = carrier(first=first, pairs=1)
    for size in (28, 48):  # the Arrow message is whole, and tells size and offsets
        again = destroyed(tmp_path / f"{size}", batch("x"), sent, number=1, size=size)
        assert (readable(again, 20), again.end_offset) == ([0, 1, 2, 3], 6), size
    if first > 1 << 20:  # no batch of so few bytes has so many offsets
        again = destroyed(tmp_path / "all", batch("x"), sent, number=1, size=60)
        assert (readable(again, 20), again.end_offset <= 4 + 1024 * len(sent)) == (
            [0, 1, 2, 3],
            True,
        )


def test_an_interrupted_chain_is_not_believed_before_one_that_reaches_the_end(
    tmp_path: Path,
) -> None:
    sent = carrier(first=40, pairs=9)  # more bytes than all that follow
    again = destroyed(tmp_path, sent, batch("x"), batch("x"), number=0)
    assert (readable(again, 60), again.end_offset) == ([0, 1, 2, 5, 6], 7)


def test_a_row_that_looks_torn_does_not_end_the_log(tmp_path: Path) -> None:
    torn = at_offset(b"".join((batch("x")[:8], b"\x00\x00\x00\x40", batch("x")[12:])), 58)
    sent = carrier(first=40, pairs=9, end=torn)
    again = destroyed(tmp_path, sent, batch("x"), batch("x"), number=0)
    assert (readable(again, 60), again.end_offset) == ([0, 1, 2, 5, 6], 7)


def test_a_longer_chain_is_believed_before_a_shorter_one_in_a_row(tmp_path: Path) -> None:
    sent = carrier(first=40, pairs=2)
    again = destroyed(tmp_path, sent, *[batch("x")] * 9, number=0)
    (path,) = tmp_path.glob("*.log")
    path.write_bytes(flipped(path.read_bytes(), (path.stat().st_size - 1, 0)))  # so none ends it
    again = open_log(tmp_path)
    assert (readable(again, 60), again.end_offset) == ([0, 1, 2, *range(5, 13)], 14)


def test_all_that_no_checksum_covers_may_be_wrong_in_the_last_batch(tmp_path: Path) -> None:
    sent = carrier(first=1 << 15, pairs=1)
    again = destroyed(tmp_path, batch("x"), sent, number=1, size=21)
    assert (readable(again, 20), again.end_offset) == ([0, 1, 2, 3, 4], 6)


def test_a_wrong_length_beside_another_damaged_batch_hides_none(tmp_path: Path) -> None:
    sent = carrier(first=1 << 15, pairs=1)
    following = batch("y", "z")
    destroyed(tmp_path, batch("x"), sent, following, batch("x"), number=1, size=21)
    (path,) = tmp_path.glob("*.log")
    end = len(batch("x")) * 4 + len(sent) + len(following)
    path.write_bytes(flipped(path.read_bytes(), (end - 1, 0)))
    again = open_log(tmp_path)
    assert (readable(again, 20), again.end_offset) == ([0, 1, 2, 3, 4, 8], 9)


def reopened(folder: Path, sent: bytes, *bits: tuple[int, int], more: bytes = b"") -> BucketLog:
    """Appends a batch twice, flips bits of the second, adds bytes, and opens the log again."""
    log = open_log(folder)
    for _ in range(2):
        log.append(read_header(sent), sent)
    (path,) = folder.glob("*.log")
    damaged = flipped(path.read_bytes(), *((len(sent) + at, bit) for at, bit in bits))
    path.write_bytes(damaged + more)
    return open_log(folder)


def rows(*texts: bytes) -> bytes:
    return build_row_log_batch(pa.array(texts, pa.binary()), 1)


def test_one_wrong_bit_of_a_count_costs_few_offsets(tmp_path: Path) -> None:
    assert reopened(tmp_path, rows(b"x", b"y"), (28, 3), (57, 0)).end_offset == 2 + 10


def test_a_torn_append_tells_the_end_of_the_damaged_batch_before(tmp_path: Path) -> None:
    sent = rows(b"x", b"y")
    torn = at_offset(rows(b"z" * 80), 4)[:-10]
    again = reopened(tmp_path, sent, (28, 3), (28, 5), (57, 0), more=torn)
    assert (readable(again, 4), again.end_offset) == ([0], 4)
    assert [path.read_bytes() for path in tmp_path.glob("*.torn-at-4")] == [torn]


def test_an_empty_batch_at_the_end_keeps_its_offset(tmp_path: Path) -> None:
    again = reopened(tmp_path, build_row_log_batch(pa.array([], pa.binary()), 1), (33, 0))
    assert (readable(again, 2), again.end_offset) == ([0], 2)


def test_a_torn_append_may_end_within_its_header(tmp_path: Path) -> None:
    sent = at_offset(batch("x", "y"), 2)
    torn = sent[:12] + b"\1" + sent[13:48] + bytes(4) + sent[48:]  # version 1, without statistics
    for size in (1, 11, 47, 48, 50, 53):
        again = reopened(tmp_path / f"{size}", batch("x"), more=torn[:size])
        assert (readable(again, 2), again.end_offset) == ([0, 1], 2), size


@pytest.mark.parametrize("is_known", [False, True])
def test_a_batch_in_a_row_is_not_believed_before_one_that_fits_a_count(
    tmp_path: Path, is_known: bool
) -> None:
    inner = b"".join(at_offset(batch("a", f"{at}"), 45 + 2 * at) for at in range(2))
    sent, more = rows(inner, *[b"x"] * 39), [at_offset(batch("b"), 80 + at) for at in range(4)]
    count = (28, 0)
    if is_known:  # so the next batch is damaged too
        count, more[0] = (len(sent) - 1, 0), flipped(more[0], (len(more[0]) - 1, 0))
    again = reopened(tmp_path, sent, (8, 3), (8, 4), (8, 5), count, more=b"".join(more))
    assert (readable(again, 84), again.end_offset) == ([0, *range(80 + is_known, 84)], 84)


def test_a_row_of_a_torn_append_behind_a_damaged_batch_is_not_believed(tmp_path: Path) -> None:
    torn = at_offset(carrier(first=6, pairs=3), 4)[:-20]
    sent = batch("x", "y")
    again = reopened(tmp_path, sent, (8, 18), (len(sent) - 1, 0), more=torn)
    assert (readable(again, 9), again.end_offset) == ([0], 4)


def test_an_empty_batch_with_a_wrong_length_is_read(tmp_path: Path) -> None:
    torn = at_offset(carrier(first=4, pairs=3), 2)[:-20]
    sent = build_row_log_batch(pa.array([], pa.binary()), 1)
    again = reopened(tmp_path, sent, (8, 3), (8, 27), more=torn)
    assert (readable(again, 9), again.end_offset) == ([0, 1], 2)


@pytest.mark.parametrize("bit", [5, 42])
def test_a_wrong_offset_behind_a_damaged_batch_hides_nothing(tmp_path: Path, bit: int) -> None:
    sent = batch("x", "y")
    behind = [at_offset(sent, 4), at_offset(sent, 6), at_offset(sent, 8)]
    more = flipped(b"".join(behind), (0, bit))
    again = reopened(tmp_path, sent, (len(sent) - 1, 0), more=more)
    assert (readable(again, 10), again.end_offset) == ([0, 4, 6, 8], 10)


def test_a_damaged_header_does_not_decide_which_time_is_right(tmp_path: Path) -> None:
    again = reopened(tmp_path, batch("x"), (8, 18), (13, 13))
    assert [time_ms for *_, time_ms in batches_from(again, 0)] == [1_700_000_000_000] * 2
