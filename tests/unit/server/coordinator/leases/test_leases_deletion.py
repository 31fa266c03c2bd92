"""Deletion at full speed while somebody reads slowly: with a lease, and without one as control."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from sluice.client import Client, connect
from sluice.errors import StorageError
from sluice.leases import Change, Leases, key_of
from sluice.model import BucketSnapshot, TableBucket
from sluice.server.coordinator.leases.leases import KvSnapshotLeases
from sluice.server.coordinator.leases.store import LeaseStore, SqliteLeaseStore
from sluice.server.storage.database import Database
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from tests.support.statuses.lease_parts import FaultyStore, ManualClock, MemorySnapshots
from tests.unit.server.kv_support import KvCaller
from tests.unit.server.support import Caller, Node

NEWER_PER_FILE = 2
"""So many snapshots are completed, and the ones before deleted, between two files of the reader."""


class Deleter:
    """Puts and snapshots as fast as it goes; each snapshot deletes the one before if it may."""

    def __init__(self, node: Node, kv: KvCaller) -> None:
        self._node, self._kv = node, kv
        self._changed = threading.Condition()
        self.completed = 0
        self._over = False
        self._thread = threading.Thread(target=self._run)

    @contextmanager
    def running(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self._over = True
            self._thread.join(60)

    def wait_for_more(self) -> None:
        with self._changed:
            goal = self.completed + NEWER_PER_FILE
            assert self._changed.wait_for(lambda: self.completed >= goal, 60)

    def _run(self) -> None:
        number = 0
        while not self._over:
            number += 1
            self._kv.put((number % 10, "text" * 100, number))
            taken = self._node.cluster.take_kv_snapshots(self._kv.path)
            with self._changed:
                self.completed += len(taken)
                self._changed.notify_all()


@pytest.fixture
def node(start: Callable[..., Node]) -> Node:
    return start(kv_snapshot_interval_ms=0, kv_snapshot_num_retained=1)


def files(caller: Caller, snapshot: BucketSnapshot) -> dict[Path, int]:
    bucket = snapshot.bucket
    request = pb.GetKvSnapshotMetadataRequest(
        table_id=bucket.table_id, bucket_id=bucket.bucket, snapshot_id=snapshot.snapshot_id
    )
    reply = caller.call(apis.GET_KV_SNAPSHOT_METADATA, request)
    paths = [Path(urlsplit(file.remote_path).path) for file in reply.snapshot_files]
    return {path: path.stat().st_size for path in paths}


def read_slowly(sizes: dict[Path, int], deleter: Deleter) -> int:
    """Reads the files one by one; how many. :raises FileNotFoundError: one was deleted."""
    for path, size in sizes.items():
        deleter.wait_for_more()
        assert len(path.read_bytes()) == size
    return len(sizes)


def deleted(node: Node, kv: KvCaller, deleter: Deleter) -> int:
    """How many of the snapshots that were completed are gone."""
    request = pb.ListKvSnapshotsRequest(table_id=kv.table_id)
    there = node.caller.call(apis.LIST_KV_SNAPSHOTS, request).active_snapshots
    return deleter.completed - len(there)


@pytest.fixture
def client(node: Node) -> Iterator[Client]:
    with connect(node.cluster.address) as client:
        yield client


def begun(node: Node) -> KvCaller:
    kv = KvCaller(node.caller)
    kv.put((1, "text", 1))
    node.cluster.take_kv_snapshots(kv.path)
    return kv


def test_with_a_lease_no_file_is_ever_missing(node: Node, client: Client) -> None:
    kv = begun(node)
    deleter = Deleter(node, kv)
    with deleter.running():
        deleter.wait_for_more()
        # Between looking and leasing, too, snapshots go: the lease takes newer ones then.
        with client.snapshot_lease("job", kv.path) as lease:
            leased = files(node.caller, lease.snapshots[bucket_of(kv)])
            assert read_slowly(leased, deleter) > 3
    assert deleted(node, kv, deleter) > 3 * NEWER_PER_FILE


def test_without_a_lease_the_reader_misses_a_file(node: Node, client: Client) -> None:
    """The control: without a lease the very same read fails."""
    kv = begun(node)
    deleter = Deleter(node, kv)
    newest = files(node.caller, client.leases.latest(kv.path).snapshots[bucket_of(kv)])
    with deleter.running(), pytest.raises(FileNotFoundError):
        read_slowly(newest, deleter)
    assert deleted(node, kv, deleter) >= 1


def bucket_of(kv: KvCaller) -> TableBucket:
    return TableBucket(kv.table_id, None, 0)


class PushyStore(FaultyStore):
    """While a lease is written, somebody tries to delete what is not leased."""

    def __init__(self, store: LeaseStore, snapshots: MemorySnapshots) -> None:
        super().__init__(store)
        self._snapshots = snapshots

    def write(self, changes: Sequence[Change]) -> None:
        deleting = threading.Thread(target=self._delete)
        deleting.start()
        deleting.join()
        super().write(changes)

    def _delete(self) -> None:
        if self._snapshots.lock.acquire(blocking=False):  # what really deletes waits for it
            self._snapshots.retain()
            self._snapshots.lock.release()


def test_no_deletion_gets_between_looking_and_holding(tmp_path: Path) -> None:
    bucket, snapshots = TableBucket(1, None, 0), MemorySnapshots()
    first = snapshots.complete(bucket)
    snapshots.complete(bucket)
    with closing(Database(tmp_path / "metadata.sqlite")) as database:
        store = PushyStore(SqliteLeaseStore(database), snapshots)
        leases = KvSnapshotLeases(store, ManualClock(), lambda *_: True)
        snapshots.is_leased = leases.is_leased
        leases.start(86_400_000)
        assert leases.acquire("job", 60_000, {1: {key_of(bucket): first}}, snapshots) == {}
        snapshots.retain()
        assert snapshots.exists(bucket, first)
        leases.stop()


def test_a_lease_that_is_made_sure_of_is_not_denied_for_a_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket, snapshots = TableBucket(1, None, 0), MemorySnapshots()
    wanted = {1: {key_of(bucket): snapshots.complete(bucket)}}
    with closing(Database(tmp_path / "metadata.sqlite")) as database:
        store = FaultyStore(SqliteLeaseStore(database))
        leases = KvSnapshotLeases(store, ManualClock(), lambda *_: True)
        leases.start(86_400_000)
        store.fault, store.unreadable = "after", True
        with pytest.raises(StorageError):
            leases.acquire("job", 60_000, wanted, snapshots)
        looked_up = Leases.is_leased

        def and_then_the_disk_is_back(self: Leases, bucket: TableBucket, snapshot: int) -> bool:
            answer = looked_up(self, bucket, snapshot)
            store.unreadable = False
            leases.check()
            return answer

        monkeypatch.setattr(Leases, "is_leased", and_then_the_disk_is_back)
        assert leases.is_leased(bucket, wanted[1][key_of(bucket)])
        leases.stop()
