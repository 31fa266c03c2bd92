"""Segments on disk: what a start finds, rebuilds, cuts or refuses; and disks that are full."""

from __future__ import annotations

import errno
import os
import re
import shutil
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from sluice.errors import (
    CorruptRecord,
    DataDirError,
    LakeSnapshotNotExist,
    LogOffsetOutOfRange,
    LogStorageError,
    OutOfOrderSequence,
    StorageError,
)
from sluice.formats.log.batch import iter_batches
from sluice.model import TablePath
from sluice.server.tablet.buckets.files import LogFiles, Part
from sluice.server.tablet.logs.synced_batches import read_index
from tests.support.programs.processes import wait_for
from tests.unit.server.coordinator.calls.test_catalog_calls import (
    PARTITIONED,
    create_partition,
    drop_partition,
    partitions,
)
from tests.unit.server.coordinator.tiering.test_lake_snapshots import commit, file_of, get, prepare
from tests.unit.server.support import PATH, Caller, Node, batch, give_up


def fill(caller: Caller, count: int = 10, size: int = 100) -> int:
    table = caller.create_table()
    writer = caller.init_writer()
    for n in range(count):
        caller.produce(table, batch(str(n) * size, "x", writer_id=writer, sequence=n))
    return table


def folder_of(tmp_path: Path, table: int) -> Path:
    return tmp_path / f"data/log/db/t-{table}/log-0"


def names(folder: Path, suffix: str) -> list[str]:
    return sorted(path.name for path in folder.glob(f"*{suffix}"))


def crash_copy(tmp_path: Path, start: Callable[..., Node], **settings: Any) -> Node:
    """A server on a copy of the data directory as it is this moment, as after a kill."""
    shutil.copytree(tmp_path / "data", tmp_path / "crashed/data")
    return Node(tmp_path / "crashed/data", **settings)


def test_segments_roll_and_come_back(start: Callable[..., Node], tmp_path: Path) -> None:
    node = start(segment_bytes=1_300)
    table = fill(node.caller)
    folder = folder_of(tmp_path, table)
    before = node.caller.read_all(table)
    assert [offset for offset, _ in before] == list(range(0, 20, 2))
    logs = names(folder, ".log")
    assert len(logs) > 2
    assert len(names(folder, ".index")) == len(logs) - 1
    node.stop()
    assert len(names(folder, ".index")) == len(logs)
    node.restart()
    assert node.caller.read_all(table) == before
    assert node.caller.produce(table, batch("y")) == 20
    other = crash_copy(tmp_path, start)  # the last index file lacks what came since
    try:
        assert other.caller.read_all(table)[:-1] == before
        assert other.caller.produce(table, batch("z")) == 21
    finally:
        other.stop()
    node.restart()
    assert node.caller.read_all(table)[:-1] == before


def test_indexes_are_rebuilt(start: Callable[..., Node], tmp_path: Path) -> None:
    node = start(segment_bytes=1_300)
    table = fill(node.caller)
    before = node.caller.read_all(table)
    node.stop()
    indexes = sorted(folder_of(tmp_path, table).glob("*.index"))
    indexes[0].unlink()
    indexes[1].write_bytes(indexes[1].read_bytes()[:-3])
    flipped = bytearray(indexes[2].read_bytes())
    flipped[20] ^= 1
    indexes[2].write_bytes(flipped)
    node.restart()
    assert node.caller.read_all(table) == before
    with pytest.raises(OutOfOrderSequence, match="expected sequence 10, got 11"):
        node.caller.produce(table, batch("x", writer_id=0, sequence=11))
    assert node.caller.produce(table, batch("x", writer_id=0, sequence=9)) == 18
    assert node.caller.offsets(table, kind=2, startTimestamp=0) == [0]


@pytest.mark.parametrize("kept", [0.01, 0.3, 0.999])
def test_a_torn_tail_is_cut(start: Callable[..., Node], tmp_path: Path, kept: float) -> None:
    node = start()
    table = fill(node.caller)
    before = node.caller.read_all(table)
    log = folder_of(tmp_path, table) / f"{0:020d}.log"
    torn = batch("torn", writer_id=0, sequence=10)
    with log.open("ab") as file:
        appended = struct.pack("<q", 20) + torn[8:]  # the server sets the offset before it writes
        file.write(appended[: max(1, int(len(torn) * kept))])
    other = crash_copy(tmp_path, start)
    try:
        assert other.caller.read_all(table) == before
        assert other.caller.produce(table, torn) == 20
        assert other.caller.produce(table, torn) == 20
        assert len(other.caller.read_all(table)) == 11
    finally:
        other.stop()


@pytest.mark.parametrize("power_was_lost", [True, False])
def test_a_bad_checksum_at_the_end_is_cut_only_after_a_power_loss(
    start: Callable[..., Node], tmp_path: Path, *, power_was_lost: bool
) -> None:
    node = start(sync_interval_ms=3_600_000)
    table = fill(node.caller)
    log = folder_of(tmp_path, table) / f"{0:020d}.log"
    content = bytearray(log.read_bytes())
    content[-1] ^= 1
    log.write_bytes(content)
    if power_was_lost:
        process, boot = (tmp_path / "data/LOCK").read_text().splitlines()
        (tmp_path / "data/LOCK").write_text(f"{process}\n{boot[::-1]}\n")
    other = crash_copy(tmp_path, start)
    folder = tmp_path / f"crashed/data/log/db/t-{table}/log-0"
    try:
        if power_was_lost:
            assert [offset for offset, _ in other.caller.read_all(table)] == list(range(0, 18, 2))
            assert other.caller.produce(table, batch("x", writer_id=0, sequence=9)) == 18
            (torn,) = folder.glob("*.torn-at-18")
            assert torn.read_bytes() == content[-torn.stat().st_size :]
        else:  # it was complete, so it was acknowledged
            for call in (other.caller.read_all, lambda t: other.caller.produce(t, batch("x"))):
                with pytest.raises(CorruptRecord, match=r"refuses .*\.log, bytes .* offset 18"):
                    call(table)
            assert not list(folder.glob("*.torn*"))
    finally:
        other.stop()


def read_around(caller: Caller, table: int) -> tuple[list[tuple[int, bytes]], list[range]]:
    """All batches that can be read, and the numbers of those between them, by the errors."""
    found: list[tuple[int, bytes]] = []
    errors: list[range] = []
    offset, end = 0, caller.offsets(table)[0]
    while offset < end:
        try:
            for header, view in iter_batches(caller.fetch(table, offset).records):
                found.append((header.base_offset, bytes(view[25:])))
                offset = header.next_offset
        except CorruptRecord as error:
            named = re.search(r"offsets (\d+) to (\d+) are lost", str(error))
            assert named is not None
            errors.append(range(int(named[1]) // 2, (int(named[2]) + 1) // 2))
            offset = int(named[2]) + 1
    return found, errors


def given_up(caller: Caller, table: int) -> tuple[list[tuple[int, bytes]], list[range]]:
    """As ``read_around``; gives up each range for which the server refuses calls."""
    while True:
        try:
            return read_around(caller, table)
        except AssertionError:
            assert len(give_up(caller.address)) == 1


@pytest.mark.parametrize("damaged", [(0,), (4,), (4, 5), (2, 7)])
def test_a_damaged_batch_takes_no_later_batch_with_it(
    start: Callable[..., Node], tmp_path: Path, damaged: tuple[int, ...]
) -> None:
    node = start(sync_interval_ms=20)
    table = fill(node.caller)
    before = node.caller.read_all(table)
    index = folder_of(tmp_path, table) / f"{0:020d}.index"
    wait_for(
        "a sync of all", lambda: index.exists() and len(read_index(index, LogFiles()).columns) == 10
    )
    log = index.with_suffix(".log")
    content = bytearray(log.read_bytes())
    size = len(content) // 10
    for number in damaged:
        content[(number + 1) * size - 1] ^= 1
    log.write_bytes(content + b"torn")
    other = crash_copy(tmp_path, start)
    try:
        found, errors = given_up(other.caller, table)
        assert found == [one for one in before if one[0] // 2 not in damaged]
        assert {number for one in errors for number in one} == set(damaged)
        assert other.caller.produce(table, batch("x", writer_id=0, sequence=10)) == 20
    finally:
        other.stop()


def test_a_start_after_a_clean_stop_checks_no_batch(
    start: Callable[..., Node], tmp_path: Path
) -> None:
    node = start()
    table = fill(node.caller)
    before = node.caller.read_all(table)
    node.stop()
    log = folder_of(tmp_path, table) / f"{0:020d}.log"
    content = bytearray(log.read_bytes())
    content[len(content) // 2 - 1] ^= 1
    content[-1] ^= 1  # the last batch, which a start after a kill removes
    log.write_bytes(content)
    with capture_logs() as events:
        node.restart()
    logged = [event for event in events if event["log_level"] != "info"]
    assert events
    assert logged == []
    found, errors = given_up(node.caller, table)
    assert found == [one for one in before if one[0] not in (8, 18)]
    assert errors == [range(4, 5), range(9, 10)]


def test_a_hole_in_the_log_is_named_and_stays(start: Callable[..., Node], tmp_path: Path) -> None:
    node = start(segment_bytes=1_300)
    table = fill(node.caller)
    before = node.caller.read_all(table)
    node.stop()
    folder = folder_of(tmp_path, table)
    first, second, third = sorted(folder.glob("*.log"))[:3]
    good = second.read_bytes()
    content = bytearray(second.read_bytes())
    content[-1] ^= 1
    second.write_bytes(content)
    second.with_suffix(".index").unlink()
    node.restart()
    last = int(third.stem) // 2 - 1
    assert given_up(node.caller, table) == (
        [one for one in before if one[0] != 2 * last],
        [range(last, last + 1)],
    )
    node.stop()
    second.unlink()
    with capture_logs() as events:
        node.restart()
    assert any("the next one begins at offset 12" in str(one.get("problem")) for one in events)
    with pytest.raises(CorruptRecord, match="refuses reads and writes"):
        node.caller.produce(table, batch("y"))
    node.stop()
    second.write_bytes(good)  # from a backup
    node.restart()
    assert read_around(node.caller, table) == (
        [one for one in before if one[0] != 2 * last],
        [range(last, last + 1)],
    ), "what was given up stays lost"
    node.stop()
    second.unlink()
    node.restart()
    assert given_up(node.caller, table)[1] == [range(int(second.stem) // 2, last + 1)]
    assert node.caller.produce(table, batch("y")) == 20
    assert first.exists()


def test_logs_of_dropped_tables_do_not_stay(start: Callable[..., Node], tmp_path: Path) -> None:
    node = start()
    table = fill(node.caller, 1)
    folder = folder_of(tmp_path, table).parent
    shutil.copytree(folder, tmp_path / "kept")
    node.caller.drop_table(PATH)
    assert not folder.exists()
    shutil.copytree(tmp_path / "kept", folder)  # as if the process had died in between
    foreign = folder.with_name("my-notes")
    foreign.mkdir()
    node.restart()
    assert not folder.exists()
    assert foreign.exists()


def test_logs_of_dropped_partitions_do_not_stay(start: Callable[..., Node], tmp_path: Path) -> None:
    node = start()
    table = node.caller.create_table(descriptor=PARTITIONED)
    for value in ("a", "b"):
        create_partition(node.caller, value)
    ids = partitions(node.caller)
    for partition_id in ids.values():
        node.caller.produce(table, batch("x"), partition_id=partition_id)
    folders = {
        value: folder_of(tmp_path, table).with_name(f"{value}-p{ids[value]}") for value in ids
    }
    shutil.copytree(folders["a"], tmp_path / "kept")
    drop_partition(node.caller, "a")
    shutil.copytree(tmp_path / "kept", folders["a"])
    node.restart()
    assert not folders["a"].exists()
    assert (folders["b"] / "log-0").exists()
    node.stop()
    unknown = folders["b"].with_name(f"c-p{ids['b'] + 1}")
    unknown.mkdir()
    with pytest.raises(DataDirError, match=f"{unknown.name}.*restore"):
        node.cluster.start()
    assert unknown.exists()


# -- metadata that is lost


def test_logs_without_their_metadata_are_never_deleted(
    start: Callable[..., Node], tmp_path: Path
) -> None:
    node = start()
    table = fill(node.caller, 1)
    node.stop()
    log = folder_of(tmp_path, table) / f"{0:020d}.log"
    content = log.read_bytes()
    database = tmp_path / "data/metadata.sqlite"
    kept = database.read_bytes()
    database.unlink()
    for _ in range(2):  # a refused start does not make the next one pass
        with pytest.raises(DataDirError, match=r"metadata\.sqlite is missing.*restore"):
            node.cluster.start()
        assert log.read_bytes() == content
    other = Node(tmp_path / "other")
    other.stop()
    shutil.copy(tmp_path / "other/metadata.sqlite", database)  # of a server without tables
    for _ in range(2):
        with pytest.raises(DataDirError, match=rf"t-{table}.*restore"):
            node.cluster.start()
        assert log.read_bytes() == content
    database.write_bytes(kept)
    node.restart()
    assert len(node.caller.read_all(table)) == 1


def test_metadata_older_than_the_logs_is_refused(
    start: Callable[..., Node], tmp_path: Path
) -> None:
    node = start()
    fill(node.caller, 1)
    node.stop()
    database = tmp_path / "data/metadata.sqlite"
    kept = database.read_bytes()
    node.restart()
    later = node.caller.create_table(TablePath("db", "later"))
    node.caller.produce(later, batch("x"))
    node.stop()
    database.write_bytes(kept)
    with pytest.raises(DataDirError, match=rf"later-{later}.*restore"):
        node.cluster.start()
    assert (tmp_path / f"data/log/db/later-{later}/log-0").exists()


# -- a log that ends before what the lake has


@pytest.mark.parametrize("kept", ["none", "some", "only the folder", "nothing"])
def test_a_log_never_goes_on_below_what_the_lake_has(
    start: Callable[..., Node], tmp_path: Path, kept: str
) -> None:
    node = start(segment_bytes=1_300)
    table = fill(node.caller)
    commit(node.caller, table, 1, prepare(node.caller, table, {0: 20}))
    node.stop()
    folder = folder_of(tmp_path, table)
    for index in folder.glob("*.index"):
        index.unlink()
    logs = sorted(folder.glob("*.log"))
    assert len(logs) > 2
    if kept == "nothing":
        shutil.rmtree(folder.parent)
    else:
        for log in logs[1 if kept == "some" else 0 :]:
            os.truncate(log, 0) if kept == "none" and log is logs[0] else log.unlink()
    with capture_logs() as events:
        node.restart()
    (told,) = (one for one in events if one["log_level"] == "warning" and "lake_offset" in one)
    assert told["event"] == (
        "the log ends before its lake offset: its files were removed or replaced, or the disk lost"
        " rows. Only the lake has these rows, and reads of the log begin after them"
    )
    for _ in range(2):  # the second start finds what the first one has made
        node.restart()
        assert node.caller.offsets(table, kind=0) == [20]
        assert node.caller.offsets(table, kind=1) == [20]
        assert node.caller.offsets(table, kind=2, startTimestamp=0) == [20]
        assert node.caller.read_all(table) == []
        with pytest.raises(LogOffsetOutOfRange, match="outside the log, .* 20 to 20"):
            node.caller.fetch(table, 2)
    if kept == "some":  # set aside, not deleted
        assert (folder / f"{0:020d}.log.aside").stat().st_size
    assert node.caller.produce(table, batch("new")) == 20
    for _ in range(2):
        assert [offset for offset, _ in node.caller.read_all(table)] == [20]
        answer = node.caller.fetch(table, 20)
        assert (answer.log_start_offset, answer.high_watermark) == (20, 21)
        assert node.caller.offsets(table, kind=2, startTimestamp=0) == [20]
        node.restart()


def test_a_log_that_reaches_what_the_lake_has_is_left_alone(
    start: Callable[..., Node], tmp_path: Path
) -> None:
    node = start()
    table = fill(node.caller)
    before = node.caller.read_all(table)
    commit(node.caller, table, 1, prepare(node.caller, table, {0: 20}))
    node.restart()
    assert node.caller.read_all(table) == before
    assert not list(folder_of(tmp_path, table).glob("*.aside"))


def test_a_log_of_a_partition_that_is_lost_goes_on_where_the_lake_ends(
    start: Callable[..., Node], tmp_path: Path
) -> None:
    node = start()
    table = node.caller.create_table(descriptor=PARTITIONED)
    create_partition(node.caller, "a")
    partition_id = partitions(node.caller)["a"]
    node.caller.produce(table, batch("x", "y"), partition_id=partition_id)
    path = prepare(node.caller, table, {0: 2}, partition_id=partition_id)
    commit(node.caller, table, 1, path)
    node.stop()
    shutil.rmtree(tmp_path / "data/log/db")
    node.restart()
    assert node.caller.produce(table, batch("z"), partition_id=partition_id) == 2


def test_offsets_of_the_lake_that_cannot_be_read_stop_the_start(
    start: Callable[..., Node], tmp_path: Path
) -> None:
    node = start()
    table = fill(node.caller, 1)
    path = file_of(prepare(node.caller, table, {0: 2}))
    commit(node.caller, table, 1, path.as_uri())
    node.stop()
    content = path.read_bytes()
    path.unlink()
    with pytest.raises(StorageError, match=rf"db\.t.*{path.name}.*restore"):
        node.cluster.start()
    path.write_bytes(content)
    node.restart()
    assert len(node.caller.read_all(table)) == 1


# -- a full disk


class FullDisk(LogFiles):
    """Real files on a disk that takes ``left`` more bytes, as the kernel would do it."""

    def __init__(self) -> None:
        self.left = 1 << 30
        self.truncate_fails = False

    def write(self, handle: int, position: int, parts: Sequence[Part]) -> None:
        data = b"".join(parts)
        os.pwrite(handle, data[: self.left], position)
        if len(data) > self.left:
            self.left = 0
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.left -= len(data)


def test_a_full_disk_is_a_typed_error_and_nothing_is_lost(
    start: Callable[..., Node], tmp_path: Path
) -> None:
    disk = FullDisk()
    node = start(files=disk)
    table = fill(node.caller)
    before = node.caller.read_all(table)
    log = folder_of(tmp_path, table) / f"{0:020d}.log"
    size = log.stat().st_size
    disk.left = 60
    more = batch("more", writer_id=0, sequence=10)
    for _ in range(3):
        with pytest.raises(LogStorageError, match=r"db\.t .*No space left on device"):
            node.caller.produce(table, more)
        assert log.stat().st_size == size
        assert node.caller.read_all(table) == before
    disk.left = 1 << 30
    assert node.caller.produce(table, more) == 20
    node.restart()
    assert len(node.caller.read_all(table)) == 11


def test_what_a_failed_write_left_is_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_bytes(b"good" + b"left behind by a write whose clean-up failed too")
    LogFiles().append(path, 4, [b"ne", bytearray(b"w")])
    assert path.read_bytes() == b"goodnew"


def test_a_disk_full_of_metadata(
    start: Callable[..., Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    node = start()
    node.caller.create_table()
    database = node.cluster._parts._database  # type: ignore[union-attr]
    database.query("PRAGMA max_page_count = 1")  # SQLite's own way to be full
    with pytest.raises(StorageError, match="full; nothing was changed"):
        for n in range(1_000):
            node.caller.create_database(f"database-{n}-{'x' * 150}")
    database.query("PRAGMA max_page_count = 1000000")
    node.caller.create_database("again")
    names_before = [entry.name for entry in node.cluster._parts.catalog.databases()]  # type: ignore[union-attr]
    node.restart()
    assert [e.name for e in node.cluster._parts.catalog.databases()] == names_before  # type: ignore[union-attr]


class Watched(LogFiles):
    """Real files; notes what has been made to last."""

    def __init__(self) -> None:
        self.synced: list[Path] = []

    def sync(self, path: Path, folders: Sequence[Path] = ()) -> None:
        super().sync(path, folders)
        self.synced += [path, path.parent, *folders]


def test_appends_are_synced_after_an_interval(start: Callable[..., Node], tmp_path: Path) -> None:
    files = Watched()
    node = start(files=files, sync_interval_ms=1)
    table = fill(node.caller, 1)
    folder = folder_of(tmp_path, table)
    wait_for("sync", lambda: files.synced)
    # the file, its name, and the names of the folders above that were made for it
    expected = {folder / f"{0:020d}.log", folder, folder.parent, folder.parent.parent}
    assert expected <= set(files.synced)


class Failing(Watched):
    """Real files on a disk that may refuse to sync."""

    def __init__(self) -> None:
        super().__init__()
        self.fails = False

    def sync(self, path: Path, folders: Sequence[Path] = ()) -> None:
        if self.fails:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        super().sync(path, folders)


def test_logs_are_synced_before_the_lake_offsets_are_registered(
    start: Callable[..., Node], tmp_path: Path
) -> None:
    files = Failing()
    node = start(files=files, sync_interval_ms=3_600_000)
    table = fill(node.caller, 1)
    log = folder_of(tmp_path, table) / f"{0:020d}.log"
    path = prepare(node.caller, table, {0: 2})
    files.fails = True
    with pytest.raises(LogStorageError, match=r"db\.t .*cannot sync.*Input/output error"):
        commit(node.caller, table, 1, path)
    with pytest.raises(LakeSnapshotNotExist):
        get(node.caller)
    assert not files.synced
    files.fails = False
    commit(node.caller, table, 1, path)
    assert {log, log.parent, log.parent.parent} <= set(files.synced)
    assert get(node.caller) == (1, {0: 2})


def test_what_a_kill_left_unsynced_is_synced_before_lake_offsets(
    start: Callable[..., Node], tmp_path: Path
) -> None:
    node = start(sync_interval_ms=3_600_000)
    table = fill(node.caller, 1)
    files = Watched()
    other = crash_copy(tmp_path, start, files=files, sync_interval_ms=3_600_000)
    try:
        log = tmp_path / f"crashed/data/log/db/t-{table}/log-0/{0:020d}.log"
        assert not files.synced
        commit(other.caller, table, 1, prepare(other.caller, table, {0: 2}))
        assert {log, *list(log.parents)[:4]} <= set(files.synced)
    finally:
        other.stop()


def test_a_clean_stop_syncs(start: Callable[..., Node], tmp_path: Path) -> None:
    files = Watched()
    node = start(files=files, sync_interval_ms=3_600_000, segment_bytes=1_300)
    table = fill(node.caller)
    logs = set(folder_of(tmp_path, table).glob("*.log"))
    assert len(logs) > 2
    assert logs & set(files.synced) == logs - {max(logs)}  # each as the next one began
    node.stop()
    assert logs <= set(files.synced)
