"""Damaged segments and index files: intact batches stay, damage is named, no offset is reused."""

from __future__ import annotations

import random
import shutil
import struct
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from sluice.errors import CorruptRecord
from sluice.formats.log_batch import read_header
from sluice.server.tablet.log import BucketLog
from tests.support.damaged_logs import (
    Check,
    Damage,
    Ticks,
    Written,
    as_an_earlier_version,
    batches_from,
    cut_out,
    flip,
    open_log,
    write,
    zero,
)

from .support import batch

KINDS = [
    pytest.param(is_clean, segment_bytes, is_old, id=f"{stop}-{segments}{old}")
    for is_clean, stop in ((True, "clean"), (False, "killed"))
    for segment_bytes, segments in ((1 << 20, "one"), (1_500, "several"))
    for is_old, old in ((False, ""), (True, "-old"))
]


def damaged(
    tmp_path: Path,
    seed: int,
    kind: tuple[bool, int, bool],
    damage: Callable[[Written, random.Random], Damage],
) -> Check:
    """Writes a log, damages it, and checks what becomes of it."""
    is_clean, segment_bytes, is_old = kind
    rng = random.Random(seed)
    folder = tmp_path / f"{seed}"
    written = write(folder, rng, batches=20, segment_bytes=segment_bytes, is_clean=is_clean)
    if is_old:
        as_an_earlier_version(written)
    check = Check(written, damage(written, rng))
    check.run(rng)
    shutil.rmtree(folder)
    return check


@pytest.mark.parametrize(("is_clean", "segment_bytes", "is_old"), KINDS)
def test_a_flipped_bit_takes_no_intact_batch_with_it(
    tmp_path: Path, is_clean: bool, segment_bytes: int, is_old: bool
) -> None:
    for seed in range(8):
        damaged(tmp_path, seed, (is_clean, segment_bytes, is_old), flip)


def test_a_repeated_batch_is_recognised_though_it_is_damaged(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    sent = [batch("x" * 20, writer_id=3, sequence=n) for n in range(4)]
    for one in sent:
        log.append(read_header(one), one)
    log.sync()  # the index file knows the writers from now on
    (path,) = tmp_path.glob("*.log")
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    again = open_log(tmp_path)
    assert [again.append(read_header(one), one) for one in sent] == [0, 1, 2, 3]
    following = batch("y", writer_id=3, sequence=4)
    assert again.append(read_header(following), following) == 4


MORE = [
    pytest.param(zero, id="a zeroed page"),
    pytest.param(cut_out, id="a truncated middle"),
    pytest.param(lambda written, rng: flip(written, rng, bits=3), id="several bits"),
]


@pytest.mark.parametrize("damage", MORE)
def test_larger_damage_takes_no_intact_batch_with_it(
    tmp_path: Path, damage: Callable[[Written, random.Random], Damage]
) -> None:
    for seed, kind in enumerate(KINDS):
        for more in (0, 100):
            damaged(tmp_path, seed + more, kind.values, damage)


def appended(log: BucketLog, rows: Sequence[int]) -> list[int]:
    """Appends batches of that many rows, all with the same text; their base offsets."""
    sent = [batch(*["x" * 20] * count) for count in rows]
    return [log.append(read_header(one), one) for one in sent]


def bases(log: BucketLog, offset: int = 0) -> list[int]:
    return [base for base, *_ in batches_from(log, offset)]


@pytest.mark.parametrize("bit", range(32))
def test_a_length_that_ends_at_a_later_batch_hides_none(tmp_path: Path, bit: int) -> None:
    log = open_log(tmp_path)
    appended(log, [1] * 12)
    (path,) = tmp_path.glob("*.log")
    content = bytearray(path.read_bytes())
    size = len(content) // 12
    content[3 * size + 8 + bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)
    assert bases(open_log(tmp_path)) == list(range(12))


def test_a_length_that_says_two_batches_hides_none(tmp_path: Path) -> None:
    appended(open_log(tmp_path), [1] * 12)
    (path,) = tmp_path.glob("*.log")
    content = bytearray(path.read_bytes())
    size = len(content) // 12
    struct.pack_into("<i", content, 3 * size + 8, 2 * size - 12)
    path.write_bytes(content)
    assert bases(open_log(tmp_path)) == list(range(12))


def test_the_name_of_a_new_segment_keeps_offsets_from_reuse(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    appended(log, [4, 4])
    log.sync()
    (path,) = tmp_path.glob("*.log")
    path.write_bytes(b"")  # all that was synced is lost
    assert appended(open_log(tmp_path), [2]) == [8]
    for index in tmp_path.glob("*.index"):
        index.unlink()
    again = open_log(tmp_path)
    assert bases(again, 8) == [8]
    with pytest.raises(CorruptRecord, match="offsets 0 to 7 are damaged"):
        bases(again)
    assert appended(again, [1]) == [10]


def test_retention_after_starts_without_an_append_keeps_the_last_segment(tmp_path: Path) -> None:
    clock = Ticks()
    log = open_log(tmp_path, clock)
    appended(log, [4, 4])
    log.sync()
    (path,) = tmp_path.glob("*.log")
    content = bytearray(path.read_bytes())
    content[-1] ^= 1  # the new segment begins after the damaged batch
    path.write_bytes(content)
    for _ in range(3):
        log = open_log(tmp_path, clock)
    clock.ms += 1_000_000
    assert appended(log, [1, 1]) == [8, 9]
    assert log.delete_before(log.expired_end(clock.ms - 1_000)) == 1
    assert bases(log, log.start_offset) == [8, 9]
    assert bases(open_log(tmp_path, clock), 8) == [8, 9]


@pytest.mark.long
@pytest.mark.parametrize("damage", MORE)
def test_much_larger_damage(
    tmp_path: Path, damage: Callable[[Written, random.Random], Damage]
) -> None:
    for number, kind in enumerate(KINDS):
        for seed in range(2_000 + 50 * number, 2_050 + 50 * number):
            damaged(tmp_path, seed, kind.values, damage)


@pytest.mark.long
@pytest.mark.parametrize(("is_clean", "segment_bytes", "is_old"), KINDS)
def test_a_thousand_flipped_bits(
    tmp_path: Path, is_clean: bool, segment_bytes: int, is_old: bool
) -> None:
    for seed in range(1_000, 1_125):  # 1,000 in all kinds
        damaged(tmp_path, seed, (is_clean, segment_bytes, is_old), flip)
