"""Damaged segments and index files: intact batches stay, damage is named, no offset is reused."""

from __future__ import annotations

import random
import shutil
import struct
import time
import tracemalloc
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import product
from pathlib import Path

import pyarrow as pa
import pytest

from sluice.errors import CorruptRecord, OutOfOrderSequence
from sluice.formats.log.batch import encode_log_batch, read_header, set_offset_and_timestamp
from sluice.server.tablet.buckets.files import LogFiles, Part
from sluice.server.tablet.logs.log import BucketLog
from tests.support.tables.damaged_logs import (
    Check,
    Damage,
    Ticks,
    Written,
    as_an_earlier_version,
    batches_from,
    cut_out,
    flip,
    flip_beside_a_length,
    open_log,
    tear,
    write,
    zero,
)
from tests.unit.server.support import batch

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


@pytest.mark.parametrize("place", [12, -1])
@pytest.mark.parametrize("is_closed", [False, True])
def test_a_repeated_batch_that_is_damaged_is_not_answered_as_stored(
    tmp_path: Path, *, is_closed: bool, place: int
) -> None:
    """Its writer may be the only one that still has the rows."""
    log = open_log(tmp_path)
    sent = [batch("x" * 20, writer_id=3, sequence=n) for n in range(4)]
    for one in sent:
        log.append(read_header(one), one)
    log.sync()  # the index file knows the writers from now on
    if is_closed:
        log.close()  # the next start trusts it and reads no batch
    (path,) = tmp_path.glob("*.log")
    content = bytearray(path.read_bytes())
    content[-len(sent[3]) * (place >= 0) + place] ^= 1
    path.write_bytes(content)
    again = open_log(tmp_path)
    assert [again.append(read_header(one), one) for one in sent[:3]] == [0, 1, 2]
    with pytest.raises(OutOfOrderSequence, match=r"batch 3 .* offset 3, .* damaged .* send"):
        again.append(read_header(sent[3]), sent[3])
    following = batch("y", writer_id=3, sequence=4)
    assert again.append(read_header(following), following) == 4


def test_the_rest_of_a_damaged_range_begins_with_the_log(tmp_path: Path) -> None:
    sent = batch("x" * 20)
    log = open_log(tmp_path, segment_bytes=2 * len(sent))
    for _ in range(5):
        log.append(read_header(sent), sent)
    first, second, _ = sorted(tmp_path.glob("*.log"))
    for path, end in ((first, 2), (second, 1)):  # the batches 1 and 2
        content = bytearray(path.read_bytes())
        content[end * len(sent) - 1] ^= 1
        path.write_bytes(content)
        path.with_suffix(".index").unlink()
    again = open_log(tmp_path)
    for offset in (1, 2):
        with pytest.raises(CorruptRecord, match="offsets 1 to 2 are damaged"):
            again.slice(offset, 1, min_one_batch=True)
    assert again.delete_before(2) == 1
    with pytest.raises(CorruptRecord, match="offsets 2 to 2 are damaged") as no:
        again.slice(2, 1, min_one_batch=True)
    assert no.value.details["base_offset"] == 2


MORE = [
    pytest.param(zero, id="a zeroed page"),
    pytest.param(cut_out, id="a truncated middle"),
    pytest.param(lambda written, rng: flip(written, rng, bits=3), id="several bits"),
    pytest.param(flip_beside_a_length, id="a bit and a length"),
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


def carrier(first: int, pairs: int = 2) -> bytes:
    """A batch of two rows, one of which has the bytes of other batches from that offset on."""
    inner = bytearray()
    for number in range(pairs):
        rows = pa.record_batch({"n": pa.array([number, 7], pa.int64())})
        one = bytearray(encode_log_batch(rows, 1, compression="NONE"))
        set_offset_and_timestamp(one, first + 2 * number, 1_700_000_000_000)
        inner += one
    data = pa.record_batch({"s": pa.array([bytes(inner), b"x" * 500], pa.binary())})
    return encode_log_batch(data, 1, compression="NONE")


@pytest.mark.parametrize("is_same_boot", [True, False])
@pytest.mark.parametrize("forged", [5, 1 << 23, 1 << 39])
def test_batches_in_a_row_of_a_torn_append_are_not_believed(
    tmp_path: Path, is_same_boot: bool, forged: int
) -> None:
    log = open_log(tmp_path)
    appended(log, [1, 1, 1])
    log.sync()
    torn = bytearray(carrier(forged))
    set_offset_and_timestamp(torn, 3, 1_700_000_000_000)
    (path,) = tmp_path.glob("*.log")
    whole = path.read_bytes()
    for cut in (100, len(torn) - torn.index(b"x" * 500), 700, len(torn) - 40):
        path.write_bytes(whole + bytes(torn[:-cut]))
        again = open_log(tmp_path, is_same_boot=is_same_boot)
        assert (bases(again), again.end_offset) == ([0, 1, 2], 3), cut


@pytest.mark.parametrize("forged", [5, 6, 1 << 23, 1 << 39])
def test_batches_in_a_row_are_not_believed_for_one_wrong_length(
    tmp_path: Path, forged: int
) -> None:
    log = open_log(tmp_path / "log")
    appended(log, [1, 1, 1])
    (path,) = (tmp_path / "log").glob("*.log")
    place = path.stat().st_size
    sent = carrier(forged)
    assert log.append(read_header(sent), sent) == 3
    appended(log, [1] * 5)
    torn = bytearray(carrier(12))
    set_offset_and_timestamp(torn, 10, 1_700_000_000_000)
    written = path.read_bytes() + torn[:-100]
    for bit in range(32):
        content = bytearray(written)
        content[place + 8 + bit // 8] ^= 1 << bit % 8
        folder = tmp_path / f"{bit}"
        folder.mkdir()
        (folder / path.name).write_bytes(content)
        again = open_log(folder)
        assert (bases(again), again.end_offset) == ([0, 1, 2, 3, 5, 6, 7, 8, 9], 10), bit


def test_a_forged_offset_does_not_move_the_end_past_a_damaged_row(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    appended(log, [1, 1, 1])
    (path,) = tmp_path.glob("*.log")
    place = path.stat().st_size
    sent = carrier(1 << 39)
    log.append(read_header(sent), sent)
    appended(log, [1] * 5)
    content = bytearray(path.read_bytes())
    content[place : place + 60] = bytes(60)
    path.write_bytes(content)
    again = open_log(tmp_path)
    assert (bases(again, 5), again.end_offset) == ([5, 6, 7, 8, 9], 10)
    with pytest.raises(CorruptRecord, match="offsets 3 to 4 are damaged"):
        bases(again, 3)


def test_a_far_offset_in_the_last_row_does_not_become_the_end(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    appended(log, [1, 1, 1])
    (path,) = tmp_path.glob("*.log")
    place = path.stat().st_size
    sent = carrier(1 << 39)
    log.append(read_header(sent), sent)
    content = bytearray(path.read_bytes())
    content[place : place + 60] = bytes(60)
    path.write_bytes(content)
    assert open_log(tmp_path).end_offset < 1 << 24


def test_the_search_costs_little_more_than_reading_the_file(tmp_path: Path) -> None:
    data = pa.record_batch({"n": pa.array(range(1 << 20, (1 << 20) + 12_500), pa.int64())})
    sent = encode_log_batch(data, 1, compression="NONE")  # its numbers look like lengths
    log = open_log(tmp_path, segment_bytes=1 << 24)
    for _ in range(40):
        log.append(read_header(sent), sent)
    (path,) = tmp_path.glob("*.log")
    spent = []
    for places in ((), (11,), (0, 8, 11)):  # bytes of a header
        content = bytearray(path.read_bytes())
        for place in places:
            content[len(sent) + place] ^= 0x40
        path.write_bytes(content)
        before = time.process_time()
        again = open_log(tmp_path, segment_bytes=1 << 24)
        spent.append(time.process_time() - before)
        assert again.end_offset == 40 * 12_500
    assert max(spent[1:]) < 10 * spent[0] + 0.5


@pytest.mark.parametrize("is_synced", [False, True])
def test_a_start_keeps_few_bytes_for_each_batch(tmp_path: Path, is_synced: bool) -> None:
    log, one = open_log(tmp_path, segment_bytes=1 << 24), batch("x")
    for _ in range(8_000):
        log.append(read_header(one), one)
    if is_synced:
        log.sync()
    tracemalloc.start()
    try:
        again = open_log(tmp_path, segment_bytes=1 << 24)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert again.end_offset == 8_000
    assert peak < 8_000 * 100 + (1 << 20)


@pytest.mark.parametrize("is_longer", [False, True])
def test_a_wrong_end_in_an_earlier_index_takes_no_batch(tmp_path: Path, is_longer: bool) -> None:
    rng = random.Random(7)
    written = write(tmp_path, rng, batches=4, segment_bytes=1 << 20, is_clean=True)
    as_an_earlier_version(written)
    (index,) = tmp_path.glob("*.index")
    if is_longer:  # by appends that no sync recorded
        kept = index.read_bytes()
        appended(open_log(tmp_path), [1, 1])
        index.write_bytes(kept)
    expected = bases(open_log(tmp_path))
    content = index.read_bytes()
    for place, bit in product(range(-28, 0), (0, 6)):
        wrong = bytearray(content)
        wrong[place] ^= 1 << bit
        index.write_bytes(wrong)
        assert bases(open_log(tmp_path)) == expected, (place, bit)


class Killed(LogFiles):
    """Files of a process that dies within its write of that number."""

    def __init__(self, number: int) -> None:
        self.left = number

    def write(self, handle: int, position: int, parts: Sequence[Part]) -> None:
        self.left -= 1
        if not self.left:
            super().write(handle, position, [b"".join(parts)[:-10]])
            raise KeyboardInterrupt
        super().write(handle, position, parts)


def test_a_kill_within_a_start_leaves_an_index(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    appended(log, [4, 4])
    log.sync()
    (path,) = tmp_path.glob("*.log")
    content = bytearray(path.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 60] = bytes(60)
    path.write_bytes(content)
    with pytest.raises(KeyboardInterrupt):
        BucketLog("db.t 0", tmp_path, Killed(1), 1 << 20, Ticks(), is_same_boot=True)
    again = open_log(tmp_path)
    assert again.end_offset == 8
    with pytest.raises(CorruptRecord, match="offsets 4 to 7 are damaged"):
        bases(again, 4)


class Ordered(LogFiles):
    """Files that tell which sizes of logs are on disk, and refuse an index that knows more."""

    def __init__(self) -> None:
        self.on_disk: dict[Path, int] = {}
        self.names: dict[Path, int] = {}
        self.replaced = 0
        self.records = 0

    def sync(self, path: Path, folders: Sequence[Path] = ()) -> None:
        super().sync(path, folders)
        self.on_disk[path] = path.stat().st_size

    def sync_names(self, folder: Path) -> None:
        super().sync_names(folder)
        for path in folder.iterdir():
            with suppress(FileNotFoundError):  # pytest's own link in the folder above
                self.names[path] = path.stat().st_ino

    def replace(self, path: Path, parts: Sequence[Part]) -> None:
        super().replace(path, parts)
        written = self.on_disk.pop(path.with_name(path.name + ".tmp"), None)
        assert written == path.stat().st_size, "the name may be on disk before the content"
        assert self.names.get(path) == path.stat().st_ino, "the old file may come back"
        self.replaced += 1

    def write(self, handle: int, position: int, parts: Sequence[Part]) -> None:
        path = Path(f"/proc/self/fd/{handle}").readlink()
        if ".index" in path.name:
            log = path.with_name(path.name.split(".")[0] + ".log")
            assert self.on_disk.get(log) == log.stat().st_size, "the index knows of unsynced bytes"
            self.records += 1
        super().write(handle, position, parts)


def test_an_index_names_only_what_is_on_disk(tmp_path: Path) -> None:
    files = Ordered()
    log = BucketLog("db.t 0", tmp_path, files, 1_000, Ticks())
    appended(log, [1])
    log.sync()
    appended(log, [1] * 8)  # begins new segments
    path = max(tmp_path.glob("*.log"))
    written = files.records
    assert written >= 3
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 10)  # torn
    files.on_disk.clear()
    log = BucketLog("db.t 0", tmp_path, files, 1_000, Ticks())
    assert files.on_disk[path] == path.stat().st_size, "what was cut may come back"
    appended(log, [1])
    log.close()
    written, content = files.records, bytearray(path.read_bytes())
    path.with_suffix(".index").unlink()
    content[-1] ^= 1
    path.write_bytes(content)
    files.on_disk.clear()
    log = BucketLog("db.t 0", tmp_path, files, 1_000, Ticks(), is_same_boot=True)
    assert files.records > written
    assert log.end_offset == 9


def test_a_damaged_index_is_replaced_durably(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    appended(log, [4, 4])
    log.sync()
    (path,) = tmp_path.glob("*.index")
    path.write_bytes(path.read_bytes()[:-1])
    files = Ordered()
    BucketLog("db.t 0", tmp_path, files, 1 << 20, Ticks(), is_same_boot=True)
    assert files.replaced == 1


@pytest.mark.parametrize("length_bit", [None, 4, 20])
@pytest.mark.parametrize("has_torn", [False, True])
def test_two_damaged_batches_at_the_end_keep_their_offsets(
    tmp_path: Path, length_bit: int | None, has_torn: bool
) -> None:
    log = open_log(tmp_path)
    appended(log, [2] * 6)
    (path,) = tmp_path.glob("*.log")
    content = bytearray(path.read_bytes())
    size = len(content) // 6
    content[5 * size - 1] ^= 1
    if length_bit is None:
        content[6 * size - 1] ^= 1
    else:
        content[5 * size + 8 + length_bit // 8] ^= 1 << length_bit % 8
    torn = bytearray(content[:size])
    set_offset_and_timestamp(torn, 12, 1_700_000_000_000)
    path.write_bytes(content + torn[: size - 20] * has_torn)
    again = open_log(tmp_path)
    assert again.end_offset == 12
    assert bases(again) == [0, 2, 4, 6]
    assert appended(again, [1]) == [12]


def torn(tmp_path: Path, seed: int, kind: tuple[bool, int, bool]) -> None:
    """Writes a log, flips bits of one batch, tears an append, and lets starts die."""
    _, segment_bytes, is_old = kind
    rng = random.Random(seed)
    folder = tmp_path / f"{seed}"
    written = write(folder, rng, batches=20, segment_bytes=segment_bytes, is_clean=False)
    if is_old:
        as_an_earlier_version(written)
    made = flip(written, rng) if rng.random() < 0.5 else flip_beside_a_length(written, rng)
    tear(written, rng)
    Check(written, made).run(rng, deaths=rng.randrange(3))
    shutil.rmtree(folder)


@pytest.mark.parametrize("kind", [pytest.param(one.values, id=one.id) for one in KINDS[4:]])
def test_flips_a_torn_append_and_a_kill_within_the_start(
    tmp_path: Path, kind: tuple[bool, int, bool]
) -> None:
    for seed in range(8):
        torn(tmp_path, seed, kind)


@pytest.mark.long
@pytest.mark.parametrize("kind", [pytest.param(one.values, id=one.id) for one in KINDS[4:]])
def test_a_thousand_torn_logs(tmp_path: Path, kind: tuple[bool, int, bool]) -> None:
    for seed in range(3_000, 3_250):
        torn(tmp_path, seed, kind)


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
