"""Log files of which the disk cannot read a part."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from pathlib import Path
from random import randbytes

import pyarrow as pa
import pytest
from structlog.testing import capture_logs

from sluice.errors import CorruptRecord, LogStorageError
from sluice.formats.log.batch import encode_log_batch, read_header
from sluice.server.tablet.buckets.files import LogFiles
from sluice.server.tablet.logs.log import BucketLog
from tests.support.tables.damaged_logs import batches_from, open_log
from tests.unit.server.support import Node, batch

SEGMENT_BYTES = 1 << 24
PAGE = 4096


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
    data = pa.record_batch({"n": pa.array(range(20_000), pa.int64())})
    sent = encode_log_batch(data, 1, compression="NONE")
    log = open_log(folder, segment_bytes=SEGMENT_BYTES)
    for _ in range(batches):
        log.append(read_header(sent), sent)
    if is_synced:
        log.sync()
    return len(sent)


def served(log: BucketLog, batches: int) -> Sequence[int]:
    """The numbers of the batches of 20,000 rows that readers get."""
    found = list[int]()
    for number in range(batches):
        try:
            found += [number] * (next(batches_from(log, number * 20_000))[0] == number * 20_000)
        except CorruptRecord:
            continue
    return found


@pytest.mark.parametrize("is_synced", [False, True])
def test_a_bad_sector_takes_only_its_own_offsets(tmp_path: Path, is_synced: bool) -> None:
    size = written(tmp_path, 20, is_synced=is_synced)
    start = 12 * size + 50_000
    disk = BadDisk(start, start + 512)
    with capture_logs() as events:
        log = open_log(tmp_path, segment_bytes=SEGMENT_BYTES, files=disk)
    assert log.end_offset == 20 * 20_000
    assert served(log, 20) == [number for number in range(20) if number != 12]
    with pytest.raises(CorruptRecord, match="offsets 240000 to 259999 are damaged"):
        next(batches_from(log, 240_000))
    (event,) = (one for one in events if "disk" in one["event"])
    (path,) = tmp_path.glob("*.log")
    assert event["file"] == str(path)
    assert event["at_bytes"] == [start // PAGE * PAGE]
    assert log.append(read_header(one := batch("x")), one) == 20 * 20_000


def test_a_bad_sector_in_a_torn_append_does_not_stop_the_start(tmp_path: Path) -> None:
    size = written(tmp_path, 3)
    (path,) = tmp_path.glob("*.log")
    path.write_bytes(path.read_bytes()[:-100])
    disk = BadDisk(3 * size - 2_000, 3 * size - 1_488)
    log = open_log(tmp_path, segment_bytes=SEGMENT_BYTES, files=disk)
    assert log.end_offset == 2 * 20_000
    assert path.stat().st_size == 2 * size


def test_a_disk_that_reads_little_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    node = Node(tmp_path)
    info = node.caller.create_table()
    node.caller.produce(info, batch(*[randbytes(500).hex() for _ in range(1_000)]))
    node.stop()
    (index,) = tmp_path.glob("log/*/*/*/*.index")
    index.unlink()
    (path,) = tmp_path.glob("log/*/*/*/*.log")
    before = path.read_bytes()
    with pytest.raises(LogStorageError, match=r"262,144 bytes .* byte 4096: .*ddrescue") as no:
        Node(tmp_path, files=BadDisk(5_000, 1 << 20))
    assert str(path) in str(no.value)
    assert path.read_bytes() == before
    assert not index.exists()


def test_an_index_that_cannot_be_read_is_written_anew(tmp_path: Path) -> None:
    written(tmp_path, 3, is_synced=True)
    log = open_log(tmp_path, segment_bytes=SEGMENT_BYTES, files=BadIndex())
    assert served(log, 3) == [0, 1, 2]
    log.close()
    (path,) = tmp_path.glob("*.log")
    path.write_bytes(b"")  # only the index knows the end
    assert open_log(tmp_path, segment_bytes=SEGMENT_BYTES).end_offset == 3 * 20_000


def test_an_error_that_is_not_of_the_disk_damages_nothing(tmp_path: Path) -> None:
    size = written(tmp_path, 3)
    with pytest.raises(OSError, match="Input"):
        open_log(tmp_path, files=BadDisk(size, size + 1, errno.EMFILE))
    assert served(open_log(tmp_path), 3) == [0, 1, 2]
