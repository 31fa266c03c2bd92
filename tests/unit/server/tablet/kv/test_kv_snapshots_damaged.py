"""One damaged file takes a store or its snapshot, never both; if all are, the error says so."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from sluice.errors import CorruptRecord, KvStorageError
from sluice.formats.kv.snapshot_metadata import METADATA_FILE, kv_snapshot_from_json
from sluice.server.tablet.buckets.files import LogFiles
from sluice.server.tablet.kv.files import KvFolder
from sluice.server.tablet.kv.sst_check import check_sst
from sluice.server.tablet.kv.store import KvStoreCorrupt
from sluice.server.tablet.kv.tablet import REFUSED_S
from tests.unit.server.kv_support import KvCaller, snapshot_rows
from tests.unit.server.support import Node, OwnedClock
from tests.unit.server.tablet.logs.test_retention import HOUR_MS, QUIET, check

ROWS = 300
REFUSED_MS = int(REFUSED_S * 1000) + 1_000


@pytest.fixture
def node(start: Callable[..., Node], clock: OwnedClock) -> Node:
    return start(clock=clock, **QUIET | {"segment_bytes": 1_300})


def filled(node: Node) -> KvCaller:
    kv = KvCaller(node.caller, properties={"table.log.ttl": "1h"})
    put(kv, 0)
    return kv


def put(kv: KvCaller, first: int) -> None:
    for key in range(first, first + ROWS, 100):
        kv.put(*((one, f"{one * 7919 % 10_007:0100}", one) for one in range(key, key + 100)))


def expire(node: Node, clock: OwnedClock) -> None:
    """Deletes the log of what the snapshots have."""
    clock.ms += HOUR_MS + 1
    assert check(node) > 0


def largest(folder: Path, pattern: str = "*") -> Path:
    return max(folder.rglob(pattern), key=lambda p: p.stat().st_size)


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def stores(folder: Path) -> Path:
    return folder / "data/kv"


def shared(folder: Path) -> Path:
    (found,) = (folder / "data/remote/kv").rglob("shared")
    return found


def manifests(own: Path) -> list[Path]:
    """RocksDB's MANIFEST among the files of a snapshot; its OPTIONS are text."""
    name = b"leveldb.BytewiseComparator"
    contents = {path: path.read_bytes() for path in own.iterdir()}
    return [path for path, one in contents.items() if name in one and b"[Version]" not in one]


def test_a_flipped_bit_of_a_store_leaves_its_snapshot(
    node: Node, clock: OwnedClock, tmp_path: Path
) -> None:
    kv = filled(node)
    node.cluster.take_kv_snapshots(kv.path)
    expected = kv.table()
    expire(node, clock)
    for _ in range(2):  # also after the store was made from the snapshot
        node.stop()
        flip(largest(stores(tmp_path), "*.sst"))
        node.start()
        kv = KvCaller(node.caller, create=False)
        with pytest.raises(KvStorageError, match="Corruption"):
            kv.table()
        assert kv.table() == expected
    assert snapshot_rows(kv, 0, tmp_path / "read") == expected


def test_a_flipped_bit_of_a_snapshot_leaves_the_store(
    node: Node, clock: OwnedClock, tmp_path: Path
) -> None:
    kv = filled(node)
    node.cluster.take_kv_snapshots(kv.path)
    expected = kv.table()
    expire(node, clock)
    node.stop()
    flip(largest(shared(tmp_path)))
    node.start()
    assert KvCaller(node.caller, create=False).table() == expected


@pytest.mark.parametrize("place", ["rows", "MANIFEST", "missing", "shorter"])
def test_if_no_copy_is_left_the_error_names_the_file_and_what_to_do(
    node: Node, clock: OwnedClock, tmp_path: Path, place: str
) -> None:
    kv = filled(node)
    node.cluster.take_kv_snapshots(kv.path)
    expected = kv.table()
    expire(node, clock)
    node.stop()
    shutil.rmtree(stores(tmp_path))
    damaged = largest(shared(tmp_path))
    if place == "MANIFEST":
        (damaged,) = manifests(shared(tmp_path).parent / "snap-0")
    content = damaged.read_bytes()
    if place == "missing":
        damaged.unlink()
    elif place == "shorter":
        damaged.write_bytes(content[:-1])
    else:
        flip(damaged)
    node.start()
    kv = KvCaller(node.caller, create=False)
    for call in (kv.table, lambda: kv.put((1, "x", 1))):
        with pytest.raises(CorruptRecord) as told:
            call()
        text = str(told.value)
        assert "bucket db.kv" in text
        assert "KV snapshot 0" in text
        assert "while the server is stopped" in text
        if place == "MANIFEST":
            assert str(damaged.parent) in text
        else:
            assert str(damaged) in text
    damaged.write_bytes(content)
    clock.ms += REFUSED_MS
    assert kv.table() == expected


def test_an_older_snapshot_stands_in_for_the_newest(
    node: Node, clock: OwnedClock, tmp_path: Path
) -> None:
    kv = filled(node)
    node.cluster.take_kv_snapshots(kv.path)
    before = set(shared(tmp_path).iterdir())
    put(kv, ROWS)
    node.cluster.take_kv_snapshots(kv.path)
    put(kv, 2 * ROWS)
    expected = kv.table()
    expire(node, clock)
    assert kv.caller.offsets(kv.table_id, kind=0) > [0]
    node.stop()
    shutil.rmtree(stores(tmp_path))
    for path in set(shared(tmp_path).iterdir()) - before:
        flip(path)
    node.start()
    assert KvCaller(node.caller, create=False).table() == expected


def test_a_damaged_file_of_a_store_becomes_no_file_of_a_snapshot(
    node: Node, tmp_path: Path
) -> None:
    """The log still has its rows, so they come back at once."""
    kv = filled(node)
    expected = kv.table()
    node.restart()  # writes the store's files
    kv = KvCaller(node.caller, create=False)
    flip(largest(stores(tmp_path), "*.sst"))
    with pytest.raises(KvStoreCorrupt, match="damaged"):
        node.cluster.take_kv_snapshots(kv.path)
    assert not list(shared(tmp_path).iterdir())
    assert kv.table() == expected
    assert list(node.cluster.take_kv_snapshots(kv.path).values()) == [0]
    assert snapshot_rows(kv, 0, tmp_path / "read") == expected


def test_hard_links_of_an_earlier_version_become_copies(node: Node, tmp_path: Path) -> None:
    kv = filled(node)
    node.cluster.take_kv_snapshots(kv.path)
    store, remote = largest(stores(tmp_path), "*.sst"), largest(shared(tmp_path))
    remote.unlink()
    remote.hardlink_to(store)
    put(kv, ROWS)
    node.cluster.take_kv_snapshots(kv.path)
    expected = kv.table()
    flip(store)
    assert snapshot_rows(kv, 1, tmp_path / "read") == expected


def test_each_snapshot_replaces_one_damaged_file_of_earlier_ones(
    node: Node, tmp_path: Path
) -> None:
    kv = filled(node)
    node.cluster.take_kv_snapshots(kv.path)
    damaged = sorted(shared(tmp_path).iterdir())
    for path in damaged:
        flip(path)
    kv.put((-1, "x", 1))
    node.cluster.take_kv_snapshots(kv.path)
    content = (shared(tmp_path).parent / "snap-1" / METADATA_FILE).read_bytes()
    used = {Path(file.path).name for file in kv_snapshot_from_json(content).shared}
    assert len(used) == 2 * len(damaged)
    assert len(used - {path.name for path in damaged}) == len(damaged) + 1
    for path in shared(tmp_path).iterdir():
        if path not in damaged:
            check_sst(path)


def test_the_last_copy_of_a_damaged_store_is_kept(
    node: Node, clock: OwnedClock, tmp_path: Path
) -> None:
    kv = filled(node)
    node.cluster.take_kv_snapshots(kv.path)
    expected = kv.table()
    expire(node, clock)
    node.stop()
    remote = largest(shared(tmp_path))
    content = remote.read_bytes()
    flip(remote)
    flip(largest(stores(tmp_path), "*.sst"))
    node.start()
    kv = KvCaller(node.caller, create=False)
    with pytest.raises(KvStorageError, match="Corruption"):
        kv.table()
    for _ in range(2):
        with pytest.raises(CorruptRecord, match="its key-value store is lost or damaged"):
            kv.table()
    (aside,) = stores(tmp_path).rglob(KvFolder.DAMAGED)
    assert list(aside.glob("*.sst"))
    remote.write_bytes(content)
    clock.ms += REFUSED_MS
    assert kv.table() == expected
    assert not aside.exists()


class HeldCopies(LogFiles):
    """Copies of snapshot files wait for the test, once it says so."""

    def __init__(self) -> None:
        self.began, self.may_go_on = threading.Event(), threading.Event()
        self.may_go_on.set()

    def copy(self, source: Path, target: Path) -> None:
        self.began.set()
        assert self.may_go_on.wait(60)
        super().copy(source, target)


def test_a_store_that_is_lost_refuses_calls_at_once(
    start: Callable[..., Node], clock: OwnedClock, tmp_path: Path
) -> None:
    """Each attempt reads and copies whole snapshots, so calls must not repeat it."""
    files = HeldCopies()
    node = start(clock=clock, files=files, **QUIET | {"segment_bytes": 1_300})
    kv = filled(node)
    node.cluster.take_kv_snapshots(kv.path)
    expire(node, clock)
    node.stop()
    shutil.rmtree(stores(tmp_path))
    flip(*manifests(shared(tmp_path).parent / "snap-0"))
    node.start()
    kv = KvCaller(node.caller, create=False)

    def refused(calls: int) -> None:
        for _ in range(calls):
            with pytest.raises(CorruptRecord, match="its key-value store is lost or damaged"):
                kv.lookup((1,))

    with capture_logs() as events:
        together = [threading.Thread(target=refused, args=(1,)) for _ in range(4)]
        for each in together:
            each.start()
        for each in together:
            each.join()
        refused(3)
        assert [one["event"] for one in events].count("a KV snapshot is damaged") == 1
        clock.ms += REFUSED_MS
        files.began.clear()
        files.may_go_on.clear()
        trying = threading.Thread(target=refused, args=(1,))
        trying.start()
        assert files.began.wait(60)
        refused(3)  # while another caller tries it again
        files.may_go_on.set()
        trying.join()
        refused(3)
    assert [one["event"] for one in events].count("a KV snapshot is damaged") == 2


def test_a_new_table_rebuilds_nothing(node: Node) -> None:
    with capture_logs() as events:
        kv = filled(node)
        kv.lookup((1,))
    assert [one for one in events if one["log_level"] != "info"] == []
