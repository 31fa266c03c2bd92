"""KV snapshots of a real server: taken while puts go on, incremental, read back, and recovery."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from sluice.errors import (
    InvalidUpdateVersion,
    KvSnapshotNotExist,
    NonPrimaryKeyTable,
    PartitionNotExists,
    StorageError,
    TableNotPartitioned,
    UnknownTableOrBucket,
)
from sluice.formats.kv.snapshot_metadata import kv_snapshot_from_json
from sluice.formats.kv.sst_table import FOOTER_SIZE
from sluice.model import TableBucket, TablePath
from sluice.server.storage.database import Database
from sluice.server.tablet.buckets.files import LogFiles
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from tests.unit.server.kv_support import KvCaller, replayed, row_count, snapshot_rows
from tests.unit.server.support import Caller, Node, give_up, to_pb

QUIET = {"kv_snapshot_interval_ms": 0}


@pytest.fixture
def node(start: Callable[..., Node]) -> Node:
    return start(**QUIET)


@pytest.fixture
def kv(node: Node) -> KvCaller:
    return KvCaller(node.caller)


def take(node: Node, kv: KvCaller, bucket: int = 0) -> int | None:
    """A snapshot of the bucket if it has changed; its id."""
    taken = node.cluster.take_kv_snapshots(kv.path)
    return taken.get(TableBucket(kv.table_id, None, bucket))


def metadata(kv: KvCaller, snapshot_id: int, bucket: int = 0) -> Any:
    request = pb.GetKvSnapshotMetadataRequest(
        table_id=kv.table_id, bucket_id=bucket, snapshot_id=snapshot_id
    )
    return kv.caller.call(apis.GET_KV_SNAPSHOT_METADATA, request)


def test_a_snapshot_holds_the_table_up_to_its_log_offset(
    node: Node, kv: KvCaller, tmp_path: Path
) -> None:
    assert take(node, kv) is None
    assert kv.snapshots() == {}
    kv.put(*((i, f"t{i}", i) for i in range(500)))
    kv.delete((7,), (8,))
    before = kv.table()
    assert take(node, kv) == 0
    assert take(node, kv) is None  # nothing has changed since
    kv.put((1, "later", None))
    assert kv.snapshots() == {0: (0, 502)}
    assert metadata(kv, 0).log_offset == 502
    assert snapshot_rows(kv, 0, tmp_path / "read") == before
    assert len(before) == 498
    # and with the log from there on, it is the table
    assert replayed(kv.changelog(offset=502), before) == kv.table()


@pytest.mark.parametrize("image", ["FULL", "WAL"])
def test_a_snapshot_says_how_many_rows_it_holds(start: Callable[..., Node], image: str) -> None:
    """Not with the image WAL, whose changelog does not tell a new row from a changed one."""
    node = start(kv_snapshot_interval_ms=0)
    kv = KvCaller(node.caller, properties={"table.changelog.image": image})

    def counted() -> int | None:
        newest = take(node, kv)
        assert newest is not None
        return row_count(kv, newest)

    def expected(rows: int) -> int | None:
        return rows if image == "FULL" else None

    kv.put(*((i, "t", i) for i in range(10)))
    kv.put((3, "again", 3), (3, "and again", 3), (10, "new", 1))
    kv.delete((1,), (99,))
    assert counted() == expected(10)
    kv.put((1, "t", None), targets=(0, 1))
    kv.delete((2,), targets=(0, 1))  # its other column stays
    assert counted() == expected(11)
    kv.delete((1,), targets=(0, 1))
    node.stop()
    shutil.rmtree(Path(node.cluster._config.data_dir) / "kv")  # from the snapshot and the log
    node.start()
    kv = KvCaller(node.caller, create=False)
    assert counted() == expected(10) == (len(kv.table()) if image == "FULL" else None)
    node.stop()
    for part in ("kv", f"remote/kv/db/kv-{kv.table_id}"):
        shutil.rmtree(Path(node.cluster._config.data_dir) / part)  # from the log alone
    node.start()
    kv = KvCaller(node.caller, create=False)
    kv.put((50, "t", 1))
    assert counted() == expected(11)


def test_its_files_lie_as_in_fluss(node: Node, kv: KvCaller, tmp_path: Path) -> None:
    kv.put((1, "a", 1))
    take(node, kv)
    remote = tmp_path / "data" / "remote" / "kv" / "db" / f"kv-{kv.table_id}" / "0"
    content = json.loads((remote / "snap-0" / "_METADATA").read_bytes())
    assert list(content) == [
        "version",
        "table_id",
        "bucket_id",
        "snapshot_id",
        "snapshot_location",
        "kv_snapshot_handle",
        "log_offset",
        "row_count",
    ]
    handle = content["kv_snapshot_handle"]
    private = {file["local_path"] for file in handle["private_file_handles"]}
    assert "CURRENT" in private
    assert any(name.startswith("MANIFEST-") for name in private)
    assert not any(name.endswith((".sst", ".json")) for name in private)
    shared = handle["shared_file_handles"]
    assert all(file["local_path"].endswith(".sst") for file in shared)
    names = {Path(urlsplit(file["kv_file_handle"]["path"]).path).name for file in shared}
    files = list((remote / "shared").iterdir())
    assert names == {path.name for path in files}
    # The RocksDB 6.20 of Fluss's clients reads no later format and no other new checksum.
    footers = [path.read_bytes()[-FOOTER_SIZE:] for path in files]
    assert {(footer[0], footer[-12:-8]) for footer in footers} == {(1, b"\x05\0\0\0")}
    answer = metadata(kv, 0)
    assert [file.local_file_name for file in answer.snapshot_files] == [
        *(file["local_path"] for file in handle["private_file_handles"]),
        *(file["local_path"] for file in shared),
    ]


def test_sst_files_are_brought_once(node: Node, kv: KvCaller, tmp_path: Path) -> None:
    kv.put(*((i, "x" * 200, i) for i in range(5000)))
    take(node, kv)
    kv.put((1, "b", 2))
    take(node, kv)
    node.restart()
    kv = KvCaller(node.caller, create=False)
    kv.put((2, "c", 3))
    take(node, kv)
    remote = tmp_path / "data" / "remote" / "kv" / "db" / f"kv-{kv.table_id}" / "0"
    second, third = (
        kv_snapshot_from_json((remote / f"snap-{n}" / "_METADATA").read_bytes()) for n in (1, 2)
    )
    big = max(second.shared, key=lambda file: file.size)
    assert big in third.shared
    assert big.size > 5 * third.incremental_size
    assert snapshot_rows(kv, 1, tmp_path / "r1") | {2: (2, "c", 3)} == snapshot_rows(
        kv, 2, tmp_path / "r2"
    )


def test_old_ones_go_and_their_files_with_them(node: Node, kv: KvCaller, tmp_path: Path) -> None:
    for n in range(5):
        kv.put((n, "x", n))
        assert take(node, kv) == n
    request = pb.ListKvSnapshotsRequest(table_id=kv.table_id)
    answer = kv.caller.call(apis.LIST_KV_SNAPSHOTS, request)
    assert [(s.bucket_id, s.snapshot_id) for s in answer.active_snapshots] == [(0, 3), (0, 4)]
    with pytest.raises(KvSnapshotNotExist, match="no KV snapshot 2"):
        metadata(kv, 2)
    remote = tmp_path / "data" / "remote" / "kv" / "db" / f"kv-{kv.table_id}" / "0"
    assert {path.name for path in remote.glob("snap-*")} == {"snap-3", "snap-4"}
    used = {
        Path(urlsplit(file.remote_path).path).name
        for n in (3, 4)
        for file in metadata(kv, n).snapshot_files
    }
    assert {path.name for path in (remote / "shared").iterdir()} <= used


def test_snapshots_are_taken_while_puts_go_on(start: Callable[..., Node], tmp_path: Path) -> None:
    node = start(kv_snapshot_interval_ms=20)
    kv = KvCaller(node.caller)
    put = {}
    newest = 0
    while newest < 5:
        for _ in range(20):
            number = len(put)
            kv.put((number, "t", number))
            put[number] = (number, "t", number)
        newest = kv.snapshots().get(0, (0, 0))[0]
    node.stop()
    node = start(kv_snapshot_interval_ms=0)
    kv = KvCaller(node.caller, create=False)
    snapshot_id, log_offset = kv.snapshots()[0]
    rows = snapshot_rows(kv, snapshot_id, tmp_path / "read")
    assert rows == {n: row for n, row in put.items() if n < log_offset}
    assert kv.table() == put


class SlowFiles(LogFiles):
    """The first file of a snapshot waits until it may go on."""

    def __init__(self) -> None:
        self.half_way, self.go_on = threading.Event(), threading.Event()

    def copy(self, source: Path, target: Path) -> None:
        self.half_way.set()
        assert self.go_on.wait(60)
        super().copy(source, target)


def test_a_put_does_not_wait_for_a_snapshot(start: Callable[..., Node]) -> None:
    files = SlowFiles()
    node = start(files=files, **QUIET)
    kv = KvCaller(node.caller)
    kv.put((1, "a", 1))
    taken: list[int | None] = []
    thread = threading.Thread(target=lambda: taken.append(take(node, kv)))
    thread.start()
    assert files.half_way.wait(60)
    assert kv.put((2, "b", 2)) == 2
    assert kv.lookup((2,)) == [(2, "b", 2)]
    files.go_on.set()
    thread.join(60)
    assert taken == [0]
    assert kv.snapshots() == {0: (0, 1)}


class FullFiles(LogFiles):
    """A disk that takes so many files of snapshots, and no more."""

    def __init__(self) -> None:
        self.room = 1000

    def copy(self, source: Path, target: Path) -> None:
        if not self.room:
            raise OSError(28, "No space left on device")
        self.room -= 1
        super().copy(source, target)


def test_a_snapshot_that_fails_leaves_nothing_and_the_next_one_succeeds(
    start: Callable[..., Node], tmp_path: Path
) -> None:
    files = FullFiles()
    node = start(files=files, **QUIET)
    kv = KvCaller(node.caller)
    kv.put((1, "a", 1))
    take(node, kv)
    kv.put((2, "b", 2))
    remote = tmp_path / "data" / "remote" / "kv" / "db" / f"kv-{kv.table_id}" / "0"
    before = sorted(path for path in remote.rglob("*") if path.is_file())
    files.room = 2
    with pytest.raises(StorageError, match="No space left"):
        take(node, kv)
    assert sorted(path for path in remote.rglob("*") if path.is_file()) == before
    assert kv.snapshots() == {0: (0, 1)}
    files.room = 1000
    assert take(node, kv) == 1
    assert snapshot_rows(kv, 1, tmp_path / "read") == kv.table()


def test_a_lost_store_comes_back_from_snapshot_and_log(
    node: Node, kv: KvCaller, tmp_path: Path
) -> None:
    writer = node.caller.init_writer()
    kv.send(kv.records([(1, "a", 1), (2, "b", 2)], writer_id=writer, sequence=0))
    take(node, kv)
    last = kv.records([(2, "c", 3), (3, "d", 4)], writer_id=writer, sequence=1)
    kv.send(last)
    kv.delete((1,))
    expected = kv.table()
    for lose_snapshot in (False, True):
        node.stop()
        shutil.rmtree(tmp_path / "data" / "kv")
        if lose_snapshot:  # then the log alone must do
            shutil.rmtree(tmp_path / "data" / "remote" / "kv")
        node.restart()
        kv = KvCaller(node.caller, create=False)
        assert kv.table() == expected == {2: (2, "c", 3), 3: (3, "d", 4)}
        assert kv.send(last) == 5  # and nothing is stored twice
        assert kv.end() == 6


def test_a_restored_store_takes_snapshots_that_build_on_the_old(
    node: Node, kv: KvCaller, tmp_path: Path
) -> None:
    kv.put(*((i, "x" * 100, i) for i in range(1000)))
    take(node, kv)
    node.stop()
    shutil.rmtree(tmp_path / "data" / "kv")
    node.restart()
    kv = KvCaller(node.caller, create=False)
    kv.put((1, "new", 1))
    take(node, kv)
    old, new = (
        {f.remote_path for f in metadata(kv, n).snapshot_files if "/shared/" in f.remote_path}
        for n in (0, 1)
    )
    assert old & new
    kv.put((2, "new", 2))
    take(node, kv)
    assert snapshot_rows(kv, 2, tmp_path / "read") == kv.table()


def test_a_damaged_store_is_made_anew(node: Node, kv: KvCaller, tmp_path: Path) -> None:
    kv.put((1, "a", 1), (2, "b", 2))
    take(node, kv)
    kv.put((3, "c", 3))
    expected = kv.table()
    node.stop()
    (tmp_path / "data" / "kv" / "db" / f"kv-{kv.table_id}" / "kv-0" / "db" / "CURRENT").write_text(
        "junk"
    )
    node.restart()
    kv = KvCaller(node.caller, create=False)
    assert kv.table() == expected
    kv.put((4, "d", 4))
    assert take(node, kv) == 1


def test_a_store_ahead_of_its_log_is_made_anew(node: Node, kv: KvCaller, tmp_path: Path) -> None:
    """As after a power loss, which may take the end of a log, but not RocksDB's synced files."""
    kv.put((1, "a", 1))
    log = next((tmp_path / "data" / "log").rglob("*.log"))
    size = log.stat().st_size
    kv.put((2, "b", 2), (1, "z", 9))
    node.stop()
    with log.open("r+b") as file:
        file.truncate(size)
    log.with_suffix(".index").unlink(missing_ok=True)
    database = Database(tmp_path / "data/metadata.sqlite")
    with database.transaction() as connection:  # it did not stop cleanly
        connection.execute("UPDATE log_ends SET end_offset = 1 << 28, is_exact = 0")
    database.close()
    node.restart()
    kv = KvCaller(node.caller, create=False)
    assert kv.end() == 1
    assert kv.table() == {1: (1, "a", 1)}
    kv.put((5, "e", 5))
    assert replayed(kv.changelog()) == kv.table() == {1: (1, "a", 1), 5: (5, "e", 5)}


def test_files_of_a_store_made_anew_are_not_taken_for_those_of_the_old_one(
    node: Node, kv: KvCaller, tmp_path: Path
) -> None:
    """RocksDB gives the same names to them; here they have the same size too."""
    kv.put((1, "a", 1))
    log = next((tmp_path / "data" / "log").rglob("*.log"))
    size = log.stat().st_size
    kv.put((2, "b", 2))
    assert take(node, kv) == 0
    node.stop()
    with log.open("r+b") as file:
        file.truncate(size)
    log.with_suffix(".index").unlink(missing_ok=True)
    node.restart()
    assert len(give_up(node.caller.address)) == 1
    kv = KvCaller(node.caller, create=False)
    kv.put((2, "c", 3))
    kv.put((2, "d", 4))
    assert take(node, kv) == 1
    assert snapshot_rows(kv, 1, tmp_path / "read") == {1: (1, "a", 1), 2: (2, "d", 4)}


def test_dropping_a_table_removes_its_rows_and_its_snapshots(
    node: Node, kv: KvCaller, tmp_path: Path
) -> None:
    kv.put((1, "a", 1))
    take(node, kv)
    kv.caller.drop_table(kv.path)
    for kind in ("kv", "remote/kv", "log"):
        assert list((tmp_path / "data" / kind / "db").glob("*")) == []
    with pytest.raises(KvSnapshotNotExist):
        metadata(kv, 0)
    with pytest.raises(UnknownTableOrBucket):
        kv.caller.call(apis.LIST_KV_SNAPSHOTS, pb.ListKvSnapshotsRequest(table_id=kv.table_id))


def test_what_is_registered_is_checked(node: Node, kv: KvCaller, tmp_path: Path) -> None:
    kv.put((1, "a", 1))
    take(node, kv)
    remote = tmp_path / "data" / "remote" / "kv" / "db" / f"kv-{kv.table_id}" / "0"
    content = (remote / "snap-0" / "_METADATA").read_bytes()
    assert node.cluster._parts is not None
    snapshots = node.cluster._parts._kv_snapshots
    snapshots.complete(kv_snapshot_from_json(content))  # the same one again
    with pytest.raises(StorageError):  # its files are not there
        snapshots.complete(
            kv_snapshot_from_json(content.replace(b'"snapshot_id":0', b'"snapshot_id":1'))
        )
    with pytest.raises(InvalidUpdateVersion):
        snapshots.complete(
            kv_snapshot_from_json(content.replace(b'"log_offset":1', b'"log_offset":0'))
        )
    assert kv.snapshots() == {0: (0, 1)}


def test_calls_on_tables_that_have_no_snapshots(caller: Caller, kv: KvCaller) -> None:
    def latest(path: Any, partition: str | None = None) -> Any:
        request = pb.GetLatestKvSnapshotsRequest(table_path=to_pb(path), partition_name=partition)
        return caller.call(apis.GET_LATEST_KV_SNAPSHOTS, request)

    table_id = caller.create_table()
    with pytest.raises(NonPrimaryKeyTable):
        latest(TablePath("db", "t"))
    with pytest.raises(NonPrimaryKeyTable):
        caller.call(apis.LIST_KV_SNAPSHOTS, pb.ListKvSnapshotsRequest(table_id=table_id))
    with pytest.raises(TableNotPartitioned):
        latest(kv.path, "x")
    with pytest.raises(PartitionNotExists):
        caller.call(
            apis.LIST_KV_SNAPSHOTS,
            pb.ListKvSnapshotsRequest(table_id=kv.table_id, partition_id=3),
        )
    with pytest.raises(KvSnapshotNotExist):
        metadata(kv, 0)
    with pytest.raises(KvSnapshotNotExist):
        metadata(kv, 0, bucket=9)
