"""Tablets behind a real server: puts that fail half way, many buckets, closing and opening."""

from __future__ import annotations

import hashlib
import shutil
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sluice import failpoints
from sluice.errors import KvStorageError, LogStorageError, UnknownServerError
from sluice.model import TableBucket, TablePath
from sluice.server.tablet.buckets.files import LogFiles, Part
from sluice.server.tablet.kv.store import KvResources, KvStore, KvStoreCorrupt, checkpoint_progress
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from tests.support.harness.findings import finding
from tests.support.programs.driver_process import DriverProcess
from tests.unit.server.kv_support import KvCaller, replayed
from tests.unit.server.support import Caller, Node


def open_files(folder: Path) -> list[str]:
    """Files below a folder that this process holds open."""
    found = []
    for link in Path("/proc/self/fd").iterdir():
        try:
            target = str(link.readlink())
        except FileNotFoundError:
            continue
        if target.startswith(str(folder)):
            found.append(target)
    return found


@pytest.mark.parametrize("step", ["server.put_kv.before_log", "server.put_kv.after_log"])
def test_a_put_that_fails_half_way_is_stored_once_when_sent_again(
    caller: Caller, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    kv = KvCaller(caller)
    writer = caller.init_writer()
    kv.send(kv.records([(1, "a", 1)], writer_id=writer, sequence=0))
    records = kv.records([(1, "b", 2), (2, "c", 3)], writer_id=writer, sequence=1)
    monkeypatch.setitem(failpoints._armed, step, ("raise", 1))
    monkeypatch.setattr(failpoints, "_passages", {})
    with pytest.raises(UnknownServerError, match="failpoint"):
        kv.send(records)
    assert kv.send(records) == 4
    assert kv.table() == {1: (1, "b", 2), 2: (2, "c", 3)}
    assert replayed(kv.changelog()) == kv.table()
    assert kv.end() == 4


class FullLog(LogFiles):
    """A disk that takes no more of any log while ``full``."""

    full = False

    def append(self, path: Path, position: int, parts: Any) -> None:
        if self.full:
            raise OSError(28, "No space left on device")
        super().append(path, position, parts)


def test_a_log_that_cannot_be_written_leaves_the_store_as_it_was(
    start: Callable[..., Node],
) -> None:
    files = FullLog()
    kv = KvCaller(start(files=files).caller)
    writer = kv.caller.init_writer()
    kv.send(kv.records([(1, "a", 1)], writer_id=writer, sequence=0))
    files.full = True
    records = kv.records([(1, "b", 2)], writer_id=writer, sequence=1)
    with pytest.raises(LogStorageError, match="No space left"):
        kv.send(records)
    assert kv.lookup((1,)) == [(1, "a", 1)]
    files.full = False
    assert kv.send(records) == 3
    assert kv.table() == {1: (1, "b", 2)}


def test_a_store_that_fails_is_opened_again(node: Node) -> None:
    kv = KvCaller(node.caller)
    kv.put((1, "a", 1))
    assert node.cluster._parts is not None
    tablets = node.cluster._parts._kv
    with tablets.leading(TableBucket(kv.table_id, None, 0)) as tablet:
        assert tablet._store is not None
        tablet._store.close()  # as if RocksDB had given up
    with pytest.raises(KvStorageError, match="cannot be read"):
        kv.put((2, "b", 2))
    assert kv.put((2, "b", 2)) == 2
    assert kv.table() == {1: (1, "a", 1), 2: (2, "b", 2)}


def test_no_more_stores_are_open_than_may_be(start: Callable[..., Node], tmp_path: Path) -> None:
    node = start(kv_max_open_tablets=3, kv_snapshot_interval_ms=0)
    kv = KvCaller(node.caller, bucket_count=12)
    for _ in range(2):
        for bucket in range(12):
            kv.put((bucket, "t", bucket), bucket=bucket)
    locks = [name for name in open_files(tmp_path / "data" / "kv") if name.endswith("LOCK")]
    assert 1 <= len(locks) <= 3
    for bucket in range(12):
        assert kv.table(bucket) == {bucket: (bucket, "t", bucket)}
    assert len(node.cluster.take_kv_snapshots(kv.path)) == 12
    locks = [name for name in open_files(tmp_path / "data" / "kv") if name.endswith("LOCK")]
    assert 1 <= len(locks) <= 3


def locks(folder: Path) -> set[str]:
    """The buckets whose stores are open."""
    return {Path(n).parts[-3] for n in open_files(folder / "data/kv") if n.endswith("LOCK")}


def test_a_pinned_store_stays_open_until_it_is_released_or_lost(
    start: Callable[..., Node], tmp_path: Path
) -> None:
    node = start(kv_max_open_tablets=2, kv_snapshot_interval_ms=0)
    kv = KvCaller(node.caller, bucket_count=6)
    assert node.cluster._parts is not None
    tablets, pinned = node.cluster._parts._kv, TableBucket(kv.table_id, None, 0)
    closing: list[TableBucket] = []
    tablets.on_closing(closing.append)

    def use_all() -> None:
        for bucket in range(6):
            kv.put((bucket, "t", bucket), bucket=bucket)

    use_all()
    closing.clear()
    with tablets.leading(pinned) as tablet:
        pins = [tablets.pin(pinned), tablets.pin(pinned)]
    use_all()
    pins[0].release()
    pins[0].release()  # does nothing
    use_all()
    assert locks(tmp_path) == {"kv-0", "kv-4", "kv-5"}
    with tablets.leading(pinned) as now:
        assert now is tablet
    assert pinned not in closing
    pins[1].release()
    use_all()
    assert locks(tmp_path) == {"kv-4", "kv-5"}
    assert pinned in closing
    closing.clear()
    with tablets.leading(pinned):
        pin = tablets.pin(pinned)
    node.caller.drop_table(kv.path)
    assert closing.count(pinned) == 1
    assert locks(tmp_path) == set()
    pin.release()


def test_everything_is_closed_in_the_end(start: Callable[..., Node], tmp_path: Path) -> None:
    node = start()
    kv = KvCaller(node.caller, bucket_count=4)
    for bucket in range(4):
        kv.put((1, "t", 1), bucket=bucket)
        kv.scan(bucket=bucket)
    node.cluster.take_kv_snapshots(kv.path)
    assert open_files(tmp_path / "data" / "kv")
    dropped = KvCaller(node.caller, TablePath("db", "other"))
    dropped.put((1, "t", 1))
    node.caller.drop_table(dropped.path)
    with finding():
        assert not [name for name in open_files(tmp_path / "data" / "kv") if "other" in name]
    node.stop()
    with finding():
        assert open_files(tmp_path / "data") == []


def test_many_threads_put_and_read_at_once(node: Node) -> None:
    kv = KvCaller(node.caller, bucket_count=2)
    failures: list[BaseException] = []

    def work(thread: int) -> None:
        try:
            for number in range(25):
                key = thread * 100 + number
                kv.put((key, "t", number), bucket=thread % 2)
                assert kv.lookup((key,), bucket=thread % 2) == [(key, "t", number)]
                if number % 5 == 4:
                    kv.delete((key,), bucket=thread % 2)
        except BaseException as error:  # shown by the test's own thread
            failures.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert failures == []
    for bucket in (0, 1):
        assert replayed(kv.changelog(bucket)) == kv.table(bucket)
        assert len(kv.table(bucket)) == 40


class SlowLog(LogFiles):
    """An append waits until it may go on."""

    def __init__(self) -> None:
        self.wait = False
        self.half_way, self.go_on = threading.Event(), threading.Event()

    def append(self, path: Path, position: int, parts: list[Part]) -> None:  # type: ignore[override]
        if self.wait:
            self.half_way.set()
            assert self.go_on.wait(60)
        super().append(path, position, parts)


def test_a_drop_waits_for_the_put_on_its_way(start: Callable[..., Node]) -> None:
    files = SlowLog()
    node = start(files=files)
    kv = KvCaller(node.caller)
    kv.put((1, "a", 1))
    files.wait = True
    ends: list[int] = []
    put = threading.Thread(target=lambda: ends.append(kv.put((2, "b", 2))))
    put.start()
    assert files.half_way.wait(60)
    drop = threading.Thread(target=lambda: node.caller.drop_table(kv.path))
    drop.start()
    drop.join(0.2)
    assert drop.is_alive()
    files.go_on.set()
    for thread in (put, drop):
        thread.join(60)
    assert ends == [2]
    tables = node.caller.call(apis.LIST_TABLES, pb.ListTablesRequest(database_name="db"))
    assert tables.table_name == []


# -- the store alone


@pytest.fixture
def resources() -> KvResources:
    return KvResources(block_cache_bytes=1 << 20, write_buffer_bytes=1 << 20, open_max=4)


def test_rows_and_offset_survive_together_or_not_at_all(
    tmp_path: Path, resources: KvResources
) -> None:
    store = KvStore(tmp_path / "db", resources)
    assert store.log_offset == 0
    store.write([(b"a", b"1"), (b"b", b"2")], [], 2)
    store.write([(b"c", b"3")], [b"a"], 4)
    store.checkpoint(tmp_path / "copy")
    store.write([(b"d", b"4")], [], 5)
    assert store.get([b"a", b"b", b"c", b"d"]) == [None, b"2", b"3", b"4"]
    store.close()
    assert checkpoint_progress(tmp_path / "copy", resources).log_offset == 4
    copy = KvStore(tmp_path / "copy", resources)
    assert (copy.log_offset, copy.first(9, 99)) == (4, [b"2", b"3"])
    copy.close()


KEYS = [b"%05d" % number for number in range(3000)]
WRITER = """
import os, random, signal, sys
from pathlib import Path
from sluice.server.tablet.kv.store import KvResources, KvStore

resources = KvResources(block_cache_bytes=1 << 20, write_buffer_bytes=1 << 20, open_max=4)
store = KvStore(Path(sys.argv[1]), resources)
value = random.Random(1).randbytes(400)
for number in range(3000):
    store.write([(b"%05d" % number, value)], [], number + 1)
    if number % 300 == 299:
        os.kill(os.getpid(), signal.SIGSTOP)
store.close()
"""


def test_files_as_a_kill_leaves_them_hold_what_their_offset_says(
    tmp_path: Path, resources: KvResources
) -> None:
    """Memory is full again and again; the files of a stopped process are what a kill leaves.

    Those of one that goes on would be copied each at another moment.
    """
    keys = KEYS
    offsets = set()
    writer = DriverProcess([sys.executable, "-c", WRITER, str(tmp_path / "db")], tmp_path, {})
    try:
        for number in range(len(keys) // 300):
            writer.wait_until_stopped()
            copy = tmp_path / f"copy{number}"
            shutil.copytree(tmp_path / "db", copy)
            left = KvStore(copy, resources)
            rows = [row is not None for row in left.get(keys)]
            assert rows == [n < left.log_offset for n in range(len(keys))]
            offsets.add(left.log_offset)
            left.close()
            writer.go_on()
        assert writer.wait() == 0
    finally:
        writer.kill()
    assert len(offsets) > 3
    store = KvStore(tmp_path / "db", resources)
    assert store.log_offset == len(keys)
    assert None not in store.get(keys)
    store.close()


def test_a_damaged_block_never_makes_a_shorter_answer(
    tmp_path: Path, resources: KvResources
) -> None:
    store = KvStore(tmp_path / "db", resources)
    values = [hashlib.sha256(bytes([n % 256, n >> 8])).digest() for n in range(20_000)]
    store.write(((b"k%05d" % n, value) for n, value in enumerate(values)), (), 1)
    store.close()
    sst = max((tmp_path / "db").glob("*.sst"), key=lambda path: path.stat().st_size)
    content = bytearray(sst.read_bytes())
    content[len(content) // 2] ^= 0xFF
    sst.write_bytes(content)
    store = KvStore(tmp_path / "db", resources)
    assert store.first(100, 1 << 30) == values[:100]
    for read in (lambda: store.first(20_000, 1 << 30), lambda: store.prefix(b"k", 1 << 30)):
        with pytest.raises(KvStorageError, match="Corruption: block checksum mismatch"):
            read()
    store.close()


def test_a_prefix_of_the_largest_bytes(tmp_path: Path, resources: KvResources) -> None:
    store = KvStore(tmp_path / "db", resources)
    keys = [b"", b"\x00", b"a", b"a\xff", b"a\xff\xff", b"b", b"\xff", b"\xff\xff\x01"]
    store.write([(key, b"v" + key) for key in keys], [], 1)
    for prefix in (b"", b"a", b"a\xff", b"\xff", b"\xff\xff", b"c"):
        expected = [b"v" + key for key in sorted(keys) if key.startswith(prefix)]
        assert store.prefix(prefix, 1000) == expected
    store.close()


def test_what_is_no_store_is_told_from_what_cannot_be_opened(
    tmp_path: Path, resources: KvResources
) -> None:
    store = KvStore(tmp_path / "db", resources)
    with pytest.raises(KvStorageError, match="lock") as caught:
        KvStore(tmp_path / "db", resources)
    assert not isinstance(caught.value, KvStoreCorrupt)
    store.write([(b"a", b"1")], [], 1)
    store.close()
    sst = next((tmp_path / "db").glob("*.sst"))
    sst.write_bytes(sst.read_bytes()[:-10])
    with pytest.raises(KvStoreCorrupt):
        store = KvStore(tmp_path / "db", resources)
        store.get([b"a"])
