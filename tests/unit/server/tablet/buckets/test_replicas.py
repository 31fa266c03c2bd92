"""The locks of buckets: what a drop and a closing store wait for, and what waits for them."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from sluice.errors import UnknownTableOrBucket
from sluice.model import TableBucket, TableInfo, TablePath
from sluice.server.tablet.buckets.replicas import ReadWriteLock, Replicas
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from tests.unit.server.kv_support import KvCaller
from tests.unit.server.support import LOG_TABLE, Caller, Node, to_pb

BUCKET = TableBucket(0, None, 0)
INFO = TableInfo(TablePath("db", "t"), BUCKET.table_id, 1, LOG_TABLE, 0, 0)


def epochs(caller: Caller, path: TablePath) -> list[tuple[int, int]]:
    """Leader and leader epoch of each bucket, as clients are told."""
    [table] = caller.call(
        apis.GET_METADATA, pb.MetadataRequest(table_path=[to_pb(path)])
    ).table_metadata
    return [(b.leader_id, b.leader_epoch) for b in table.bucket_metadata]


def test_each_start_is_an_election(node: Node) -> None:
    kv = KvCaller(node.caller)
    assert epochs(node.caller, kv.path) == [(0, 1)]
    node.restart()
    assert epochs(node.caller, kv.path) == [(0, 2)]
    assert KvCaller(node.caller, create=False).put((1, "a", 1)) == 1


@pytest.fixture
def replicas(node: Node) -> Replicas:
    node.caller.create_table()
    assert node.cluster._parts is not None
    return Replicas(node.cluster._parts.catalog)


def test_a_drop_waits_for_operations_and_is_told_once(node: Node, replicas: Replicas) -> None:
    told: list[TableBucket] = []
    replicas.on_lost(told.append)
    waits, dropped = threading.Event(), threading.Event()

    def drop() -> None:
        replicas.drop_table(INFO)
        dropped.set()

    def late() -> None:
        with pytest.raises(UnknownTableOrBucket), replicas.leading(BUCKET):
            raise AssertionError("dropped while it waited")
        waits.set()

    with replicas.leading(BUCKET):
        lock = replicas._lock_of(BUCKET)
        threads = [threading.Thread(target=drop), threading.Thread(target=late)]
        node.caller.drop_table(TablePath("db", "t"))
        for thread in threads:
            thread.start()
        while not lock._writers_waiting:
            pass
        assert not dropped.wait(0.2)
        assert told == []
    assert dropped.wait(60)
    assert waits.wait(60)
    for thread in threads:
        thread.join(60)
    assert told == [BUCKET]
    replicas.drop_table(INFO)
    assert told == [BUCKET]


def test_many_read_at_once_one_writes_alone_and_a_writer_goes_first() -> None:
    lock = ReadWriteLock()
    order: list[str] = []
    inside = threading.Barrier(3)

    def read() -> None:
        with lock.reading():
            inside.wait(60)  # both at once, or this never ends

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    inside.wait(60)
    for reader in readers:
        reader.join(60)

    def write() -> None:
        with lock.writing():
            order.append("writer")

    def late() -> None:
        with lock.reading():
            order.append("reader")

    with lock.reading():
        writer = threading.Thread(target=write)
        writer.start()
        while not lock._writers_waiting:
            pass
        reader = threading.Thread(target=late)
        reader.start()
        reader.join(0.2)
        assert order == []
    for thread in (writer, reader):
        thread.join(60)
    assert order == ["writer", "reader"]


def test_puts_from_many_threads_while_the_store_is_closed_again_and_again(
    start: Callable[..., Node],
) -> None:
    """Every put that was acknowledged is there in the end, once."""
    node = start(kv_snapshot_interval_ms=0)
    kv = KvCaller(node.caller)
    acknowledged: list[int] = []
    stopping = threading.Event()
    assert node.cluster._parts is not None
    replicas, stores = node.cluster._parts._replicas, node.cluster._parts._kv

    def put(first: int) -> None:
        number = first
        while not stopping.is_set():
            kv.put((number, "t", number))
            acknowledged.append(number)
            number += 4

    threads = [threading.Thread(target=put, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(14):
        with replicas.exclusive(TableBucket(kv.table_id, None, 0)):
            stores._lost(TableBucket(kv.table_id, None, 0))
    stopping.set()
    for thread in threads:
        thread.join(60)
    assert sorted(kv.table()) == sorted(acknowledged)
    assert [kind for kind, _ in kv.changelog()] == ["+I"] * len(acknowledged)
