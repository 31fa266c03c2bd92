"""Log files of which the disk cannot read a part."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pyarrow as pa
import pytest

from sluice.errors import CorruptRecord
from sluice.formats.log.batch import encode_log_batch, read_header
from sluice.server.tablet.buckets.files import LogFiles
from tests.support.tables.damaged_logs import batches_from, open_log

SEGMENT_BYTES = 1 << 24
ROWS = 20_000
BEHIND = 1 << 28


class BadDisk(LogFiles):
    """A disk that cannot read some bytes of log files; its error names none, as the system's."""

    def __init__(self, start: int, stop: int, number: int = errno.EIO) -> None:
        self.start, self.stop, self.number = start, stop, number

    def read_into(self, path: Path, position: int, target: memoryview) -> None:
        good = min(max(self.start - position, 0), len(target))
        if path.suffix != ".log" or position >= self.stop or good == len(target):
            super().read_into(path, position, target)
            return
        super().read_into(path, position, target[:good])
        raise OSError(self.number, "Input/output error")


class BadIndex(LogFiles):
    """A disk that can read no index file."""

    def read(self, path: Path) -> bytes:
        if path.suffix == ".index":
            raise OSError(errno.EIO, "Input/output error")
        return super().read(path)


def written(folder: Path, batches: int, *, is_synced: bool = False) -> int:
    """Appends equal batches, and returns how many bytes each has."""
    data = pa.record_batch({"n": pa.array(range(ROWS), pa.int64())})
    sent = encode_log_batch(data, 1, compression="NONE")
    log = open_log(folder, segment_bytes=SEGMENT_BYTES)
    for _ in range(batches):
        log.append(read_header(sent), sent)
    if is_synced:
        log.sync()
    return len(sent)


@pytest.mark.parametrize("is_same_boot", [True, False])
def test_a_bad_sector_refuses_the_log_until_the_disk_reads_it(
    tmp_path: Path, *, is_same_boot: bool
) -> None:
    """Also after a power loss: what cannot be read is not cut off."""
    size = written(tmp_path, 20)
    disk = BadDisk(12 * size + 50_000, 12 * size + 50_512)
    options = {"segment_bytes": SEGMENT_BYTES, "behind": BEHIND, "is_same_boot": is_same_boot}
    log = open_log(tmp_path, files=disk, **options)
    ((damage, text),) = log.damage()
    assert (damage.start, damage.stop) == (12 * ROWS, BEHIND)
    (path,) = tmp_path.glob("*.log")
    assert f"{path}, bytes {12 * size} to {20 * size - 1}: the disk cannot read it" in text
    with pytest.raises(CorruptRecord, match="refuses reads and writes"):
        next(batches_from(log, 0))
    again = open_log(tmp_path, **options)
    assert (again.damage(), again.end_offset) == ([], 20 * ROWS)


@pytest.mark.parametrize("is_short", [False, True])
def test_a_synced_batch_that_the_disk_cannot_read_is_damage(
    tmp_path: Path, *, is_short: bool
) -> None:
    """A reader finds it, as a start takes what was synced from the index. Later starts know it."""
    size = written(tmp_path, 5, is_synced=True)
    (path,) = tmp_path.glob("*.log")
    files = BadDisk(2 * size + 9, 2 * size + 10)
    log = open_log(tmp_path, segment_bytes=SEGMENT_BYTES, files=files)
    if is_short:
        log = open_log(tmp_path, segment_bytes=SEGMENT_BYTES)
        os.truncate(path, 2 * size + 9)
    assert log.damage() == []
    for _ in range(2):
        with pytest.raises(CorruptRecord, match="refuses reads and writes"):
            next(batches_from(log, 0))
        ((damage, text),) = log.damage()
        assert (damage.start, damage.stop) == (2 * ROWS, 3 * ROWS)
        assert f"{path}, bytes {2 * size} to {3 * size - 1}: " in text
        if is_short:
            return  # what a start makes of it shows test_damaged_logs
        log = open_log(tmp_path, segment_bytes=SEGMENT_BYTES, files=files)
        assert log.damage() == [(damage, text)], "also before anybody reads"
    assert open_log(tmp_path, segment_bytes=SEGMENT_BYTES).damage() == [], "it is read again"


def test_an_index_that_cannot_be_read_is_written_anew(tmp_path: Path) -> None:
    written(tmp_path, 3, is_synced=True)
    log = open_log(tmp_path, segment_bytes=SEGMENT_BYTES, files=BadIndex())
    assert (log.damage(), log.end_offset) == ([], 3 * ROWS)
    log.close()
    (path,) = tmp_path.glob("*.log")
    path.write_bytes(b"")  # only the index knows the end
    ((damage, _),) = open_log(tmp_path, segment_bytes=SEGMENT_BYTES, behind=3 * ROWS).damage()
    assert (damage.start, damage.stop) == (0, 3 * ROWS)


def test_an_error_that_is_not_of_the_disk_damages_nothing(tmp_path: Path) -> None:
    size = written(tmp_path, 3)
    with pytest.raises(OSError, match="Input"):
        open_log(tmp_path, files=BadDisk(size, size + 1, errno.EMFILE))
    assert open_log(tmp_path).end_offset == 3 * ROWS
