"""Damaged files of a log: it serves what was acknowledged, or refuses calls and names the file."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from sluice.errors import CorruptRecord, LogOffsetOutOfRange, OutOfOrderSequence
from sluice.formats.log.batch import read_header
from sluice.server.tablet.buckets.files import LogFiles, Part
from sluice.server.tablet.logs.damage import LogDamage
from sluice.server.tablet.logs.log import BucketLog
from tests.support.tables.damaged_logs import Check, Ticks, Written, batches_from, open_log, write
from tests.unit.server.support import batch

KINDS = [
    pytest.param(is_clean, segment_bytes, id=f"{stop}-{segments}")
    for is_clean, stop in ((True, "clean"), (False, "killed"))
    for segment_bytes, segments in ((1 << 20, "one"), (1_500, "several"))
]


def copies(tmp_path: Path, seed: int, is_clean: bool, segment_bytes: int) -> Iterator[Written]:
    """The same log in a new folder, again and again."""
    rng = random.Random(seed)
    made = write(tmp_path / "made", rng, batches=12, segment_bytes=segment_bytes, is_clean=is_clean)
    while True:
        shutil.rmtree(tmp_path / "copy", ignore_errors=True)
        shutil.copytree(made.folder, tmp_path / "copy")
        yield Written(tmp_path / "copy", is_clean, made.batches, made.synced)


def flip(tmp_path: Path, kind: tuple[bool, int], seed: int, step: int) -> set[bool]:
    """Flips one bit in each ``step``-th byte of each file; whether the log was refused then."""
    rng, refused = random.Random(seed), set[bool]()
    logs = copies(tmp_path, seed, *kind)
    for name in sorted(path.name for path in next(logs).folder.iterdir()):
        for at in range(rng.randrange(step), (tmp_path / "made" / name).stat().st_size, step):
            written, bit = next(logs), rng.randrange(8)
            content = bytearray((written.folder / name).read_bytes())
            content[at] ^= 1 << bit
            (written.folder / name).write_bytes(content)
            check = Check(written, f"bit {bit} of byte {at} of {name} was flipped")
            check.run()
            refused.add(check.was_refused)
    return refused


def truncate(tmp_path: Path, kind: tuple[bool, int], seed: int, step: int) -> set[bool]:
    """Truncates each file at each ``step``-th byte; whether the log was refused then."""
    rng, refused = random.Random(seed), set[bool]()
    logs = copies(tmp_path, seed, *kind)
    for name in sorted(path.name for path in next(logs).folder.iterdir()):
        for size in range(rng.randrange(step), (tmp_path / "made" / name).stat().st_size, step):
            written = next(logs)
            with (written.folder / name).open("r+b") as file:
                file.truncate(size)
            # What no sync has recorded is like an append that a crash has torn.
            cut = [
                n for n, one in enumerate(written.batches) if one.file == name and one.end > size
            ]
            lacks = cut[0] if cut and cut[0] >= written.synced else 1 << 62
            check = Check(written, f"{name} was truncated at byte {size}", may_lack=lacks)
            check.run()
            refused.add(check.was_refused)
    return refused


@pytest.mark.parametrize(("is_clean", "segment_bytes"), KINDS)
def test_a_flipped_bit_loses_and_renumbers_nothing(
    tmp_path: Path, is_clean: bool, segment_bytes: int
) -> None:
    assert flip(tmp_path, (is_clean, segment_bytes), 7, 29) == {True, False}


@pytest.mark.parametrize(("is_clean", "segment_bytes"), KINDS)
def test_a_truncated_file_loses_and_renumbers_nothing(
    tmp_path: Path, is_clean: bool, segment_bytes: int
) -> None:
    assert truncate(tmp_path, (is_clean, segment_bytes), 7, 29) == {True, False}


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("is_clean", "segment_bytes"), KINDS)
def test_a_bit_of_each_byte(tmp_path: Path, is_clean: bool, segment_bytes: int, seed: int) -> None:
    flip(tmp_path, (is_clean, segment_bytes), seed, 3)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("is_clean", "segment_bytes"), KINDS)
def test_each_place_to_truncate_at(
    tmp_path: Path, is_clean: bool, segment_bytes: int, seed: int
) -> None:
    truncate(tmp_path, (is_clean, segment_bytes), seed, 3)


def appended(log: BucketLog, rows: Sequence[int]) -> list[int]:
    """Appends batches of that many rows, all with the same text; their base offsets."""
    sent = [batch(*["x" * 20] * count) for count in rows]
    return [log.append(read_header(one), one) for one in sent]


def bases(log: BucketLog, offset: int = 0) -> list[int]:
    return [base for base, *_ in batches_from(log, offset)]


def change(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("is_closed", [False, True])
def test_a_damaged_batch_of_an_index_costs_only_its_own_offsets(
    tmp_path: Path, *, is_closed: bool
) -> None:
    log = open_log(tmp_path)
    appended(log, [2] * 6)
    log.sync()
    if is_closed:
        log.close()
    (path,) = tmp_path.glob("*.log")
    size = path.stat().st_size // 6
    change(path, 3 * size - 1)
    change(path, 5 * size - 1)
    log = open_log(tmp_path)
    assert log.damage() == [], "a start does not read what was synced"
    for start in (4, 8):
        with pytest.raises(CorruptRecord) as told:
            bases(log, start)
        assert f"{path}, bytes {start // 2 * size} to {start // 2 * size + size - 1}: " in str(
            told.value
        )
        with pytest.raises(CorruptRecord, match=f"up: `sluice skip-damaged db.t 0:{start}`"):
            appended(log, [1])
        log.give_up(start, start + 2)
    for _ in range(2):
        assert (bases(log), bases(log, 6), bases(log, 10)) == ([0, 2], [6], [10])
        with pytest.raises(CorruptRecord, match="offsets 4 to 5 are lost.*on at offset 6") as lost:
            bases(log, 5)
        assert (lost.value.details["base_offset"], lost.value.details["next_offset"]) == (4, 6)
        log = open_log(tmp_path)
    assert appended(log, [1]) == [12]


def test_ranges_that_touch_become_one(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    appended(log, [1] * 4)
    log.close()
    (path,) = tmp_path.glob("*.log")
    size = path.stat().st_size // 4
    change(path, 2 * size - 1)
    change(path, 3 * size - 1)
    log = open_log(tmp_path)
    for start in (1, 2):
        with pytest.raises(CorruptRecord, match="refuses"):
            bases(log, start)
        log.give_up(start, start + 1)
    for _ in range(2):
        for offset in (1, 2):
            with pytest.raises(CorruptRecord, match="offsets 1 to 2 are lost"):
                bases(log, offset)
        log = open_log(tmp_path)


def test_only_what_is_damaged_can_be_given_up(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    appended(log, [2] * 3)
    with pytest.raises(LogOffsetOutOfRange, match="offsets 2 to 3 are not damaged"):
        log.give_up(2, 4)
    assert bases(log) == [0, 2, 4]


@pytest.mark.parametrize("behind", [None, 40])
def test_a_damaged_end_goes_on_only_where_storage_says(tmp_path: Path, behind: int | None) -> None:
    """No sync has recorded the batches, so none of them says how many were acknowledged."""
    appended(open_log(tmp_path), [2] * 6)
    (path,) = tmp_path.glob("*.log")
    change(path, path.stat().st_size // 2 - 1)
    log = open_log(tmp_path, behind=behind)
    ((damage, text),) = log.damage()
    assert (damage.start, damage.stop) == (4, behind)
    assert str(path) in text
    if behind is None:
        assert "no file tells where the log goes on" in text
        for _ in range(2):
            with pytest.raises(CorruptRecord, match="refuses reads and writes"):
                appended(log, [1])
            log = open_log(tmp_path)
        return
    log.give_up(4, behind)
    assert (bases(log), appended(log, [1])) == ([0, 2], [40])
    again = open_log(tmp_path)
    assert (bases(again), bases(again, 40)) == ([0, 2], [40])


def test_the_end_of_a_damaged_log_is_kept_from_reuse(tmp_path: Path) -> None:
    appended(open_log(tmp_path), [2] * 6)
    (path,) = tmp_path.glob("*.log")
    change(path, path.stat().st_size - 1)
    log = open_log(tmp_path, behind=40)
    assert (log.end_offset, log.is_end_exact) == (40, False), "no stop stores it as the end"
    assert not open_log(tmp_path).is_end_exact


def test_a_lost_index_leaves_a_damaged_segment_up_to_the_next_one(tmp_path: Path) -> None:
    one = len(batch("x" * 20))
    log = open_log(tmp_path, segment_bytes=3 * one)
    appended(log, [1] * 7)
    log.close()
    first, *_ = sorted(tmp_path.glob("*.log"))
    first.with_suffix(".index").unlink()
    change(first, 2 * one - 1)
    log = open_log(tmp_path)
    ((damage, _),) = log.damage()
    assert (damage.start, damage.stop) == (1, 3)
    log.give_up(1, 3)
    assert (bases(log), bases(log, 3), bases(log, 6)) == ([0], [3, 4, 5], [6])


def test_a_repeated_batch_that_was_given_up_is_not_answered_as_stored(tmp_path: Path) -> None:
    """Its writer may be the only one that still has the rows."""
    log = open_log(tmp_path)
    sent = [batch("x" * 20, writer_id=3, sequence=n) for n in range(4)]
    for one in sent:
        log.append(read_header(one), one)
    log.close()
    (path,) = tmp_path.glob("*.log")
    change(path, path.stat().st_size - 1)
    again = open_log(tmp_path)
    with pytest.raises(CorruptRecord, match="refuses"):
        bases(again)
    again.give_up(3, 4)
    assert [again.append(read_header(one), one) for one in sent[:3]] == [0, 1, 2]
    with pytest.raises(OutOfOrderSequence, match=r"batch 3 .* offset 3, .* given it up: send"):
        again.append(read_header(sent[3]), sent[3])
    following = batch("y", writer_id=3, sequence=4)
    assert again.append(read_header(following), following) == 4


@pytest.mark.parametrize("latest_first", [False, True])
def test_ranges_are_given_up_in_any_order(tmp_path: Path, *, latest_first: bool) -> None:
    one = len(batch("x" * 20))
    log = open_log(tmp_path, segment_bytes=2 * one)
    appended(log, [1] * 12)
    log.close()
    for base in (2, 6):
        for path in tmp_path.glob(f"{base:020d}.*"):
            path.unlink()
    log = open_log(tmp_path, segment_bytes=2 * one)
    found = [(damage.start, damage.stop) for damage, _ in log.damage()]
    assert found == [(2, 4), (6, 8)]
    first, last = sorted(found, reverse=latest_first)
    log.give_up(*first)
    assert [(damage.start, damage.stop) for damage, _ in log.damage()] == [last]
    with pytest.raises(CorruptRecord, match="refuses reads and writes"):
        appended(log, [1])
    log.give_up(*last)
    for start in (2, 6):
        with pytest.raises(CorruptRecord, match=f"offsets {start} to {start + 1} are lost"):
            bases(log, start)
    assert appended(log, [1]) == [12]


def killed(*_: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("is_repeated", [False, True])
def test_retention_keeps_the_segment_after_a_removed_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_repeated: bool
) -> None:
    """Also where a giving up was killed after the name of that segment, and is repeated."""
    clock = Ticks()
    if is_repeated:
        appended(open_log(tmp_path, clock), [2] * 10)
        (path,) = tmp_path.glob("*.log")
        change(path, path.stat().st_size // 2 - 1)
        log = open_log(tmp_path, clock, behind=20)
        with monkeypatch.context() as patch:
            patch.setattr(LogDamage, "give_up", killed)
            with pytest.raises(KeyboardInterrupt):
                log.give_up(8, 20)
        options = {"behind": 20}
    else:
        options = {"given": 20, "behind": 20}
    log = open_log(tmp_path, clock, **options)
    ((damage, _),) = log.damage()
    assert damage.stop == 20
    log.give_up(damage.start, 20)
    assert appended(log, [1, 1]) == [20, 21]
    clock.ms += 1_000_000
    log.delete_before(log.expired_end(clock.ms - 1_000))
    assert bases(log, 20) == [20, 21]
    assert bases(open_log(tmp_path, clock), 20) == [20, 21]


def test_retention_forgets_damage_with_its_segment(tmp_path: Path) -> None:
    sent = batch("x" * 20)
    log = open_log(tmp_path, segment_bytes=2 * len(sent))
    for _ in range(5):
        log.append(read_header(sent), sent)
    first, second, _ = sorted(tmp_path.glob("*.log"))
    change(first, 2 * len(sent) - 1)
    change(second, len(sent) - 1)
    log = open_log(tmp_path)
    for start in (1, 2):
        with pytest.raises(CorruptRecord, match="refuses"):
            bases(log, start)
        log.give_up(start, start + 1)
    assert log.delete_before(2) == 1
    for _ in range(2):
        with pytest.raises(CorruptRecord, match="offsets 2 to 2 are lost") as no:
            bases(log, 2)
        assert no.value.details["base_offset"] == 2
        log = open_log(tmp_path)


def test_files_that_overlap_refuse_only_their_bucket(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    appended(log, [4, 4])
    log.close()
    (tmp_path / f"{3:020d}.log").touch()
    log = open_log(tmp_path, behind=8)
    assert not log.is_end_exact
    with pytest.raises(CorruptRecord, match="at offset 8, and the next one begins at offset 3"):
        appended(log, [1])


def test_a_batch_is_checked_once(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    appended(log, [1] * 6)
    log.close()
    log = open_log(tmp_path)
    assert bases(log) == list(range(6))
    found = log.slice(0, 1 << 20, min_one_batch=True)
    assert found is not None
    assert not found.segment.must_check(found)
    appended(log, [1])
    found = log.slice(6, 1 << 20, min_one_batch=True)
    assert found is not None
    assert not found.segment.must_check(found), "an append was checked when it came"


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
    assert files.records > written


def test_a_damaged_index_is_replaced_durably(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    appended(log, [4, 4])
    log.sync()
    (path,) = tmp_path.glob("*.index")
    path.write_bytes(path.read_bytes()[:-1])
    files = Ordered()
    BucketLog("db.t 0", tmp_path, files, 1 << 20, Ticks(), is_same_boot=True)
    assert files.replaced == 1
