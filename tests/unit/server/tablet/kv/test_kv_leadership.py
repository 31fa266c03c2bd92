"""Leadership of replicas: who may write and read, what a change of it waits for, and epochs."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from sluice.errors import (
    FencedLeaderEpoch,
    IneligibleReplica,
    InvalidCoordinator,
    NotLeaderOrFollower,
    UnknownTableOrBucket,
)
from sluice.model import TableBucket, TableInfo, TablePath
from sluice.server.tablet.buckets.replicas import ReadWriteLock, Replicas
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from sluice.wire.error_codes import raise_in_body
from tests.unit.server.kv_support import KvCaller
from tests.unit.server.support import LOG_TABLE, Caller, Node, batch, to_pb

OTHER = 7


def epochs(caller: Caller, path: TablePath) -> list[tuple[int | None, int]]:
    """Leader and leader epoch of each bucket, as clients are told."""
    [table] = caller.call(
        apis.GET_METADATA, pb.MetadataRequest(table_path=[to_pb(path)])
    ).table_metadata
    return [
        (b.leader_id if b.HasField("leader_id") else None, b.leader_epoch)
        for b in table.bucket_metadata
    ]


def notify(
    caller: Caller, table_id: int, leader: int, leader_epoch: int, coordinator_epoch: int = 1
) -> None:
    request = pb.NotifyLeaderAndIsrRequest(coordinator_epoch=coordinator_epoch)
    request.notify_buckets_leader_req.add(
        physical_table_path=pb.PbPhysicalTablePath(database_name="db", table_name="kv"),
        table_bucket=pb.PbTableBucket(table_id=table_id, bucket_id=0),
        leader=leader,
        leader_epoch=leader_epoch,
        bucket_epoch=0,
    )
    [answer] = caller.call(apis.NOTIFY_LEADER_AND_ISR, request).notify_buckets_leader_resp
    raise_in_body(answer)


def stop(
    caller: Caller,
    table_id: int,
    leader_epoch: int,
    *,
    delete: bool = False,
    coordinator_epoch: int = 1,
) -> None:
    request = pb.StopReplicaRequest(coordinator_epoch=coordinator_epoch)
    request.stop_replicas_req.add(
        table_bucket=pb.PbTableBucket(table_id=table_id, bucket_id=0),
        leader_epoch=leader_epoch,
        delete=delete,
    )
    [answer] = caller.call(apis.STOP_REPLICA, request).stop_replicas_resp
    raise_in_body(answer)


@pytest.fixture
def kv(caller: Caller) -> KvCaller:
    return KvCaller(caller)


def test_who_leads_no_more_refuses_everything_and_nothing_is_lost(
    kv: KvCaller, caller: Caller
) -> None:
    kv.put((1, "a", 1))
    [(leader, epoch)] = epochs(caller, kv.path)
    assert (leader, epoch) == (0, 1)
    notify(caller, kv.table_id, OTHER, epoch + 1)
    assert epochs(caller, kv.path) == [(OTHER, epoch + 1)]
    for call in (
        lambda: kv.put((2, "b", 2)),
        lambda: kv.lookup((1,)),
        lambda: kv.prefix_lookup(b""),
        kv.scan,
        kv.end,
        lambda: caller.fetch(kv.table_id, 0),
    ):
        with pytest.raises(NotLeaderOrFollower, match="leader is server 7, leader epoch 2"):
            call()
    notify(caller, kv.table_id, 0, epoch + 2)
    assert kv.table() == {1: (1, "a", 1)}
    assert kv.put((2, "b", 2)) == 2


def test_a_stopped_replica_leads_again_only_under_a_newer_epoch(
    kv: KvCaller, caller: Caller
) -> None:
    kv.put((1, "a", 1))
    stop(caller, kv.table_id, 1)
    stop(caller, kv.table_id, 1)
    assert epochs(caller, kv.path) == [(None, 1)]
    with pytest.raises(NotLeaderOrFollower, match="its leader is none"):
        kv.lookup((1,))
    with pytest.raises(FencedLeaderEpoch):
        notify(caller, kv.table_id, 0, 1)
    notify(caller, kv.table_id, 0, 2)
    notify(caller, kv.table_id, 0, 2)
    assert kv.lookup((1,)) == [(1, "a", 1)]
    with pytest.raises(FencedLeaderEpoch):
        stop(caller, kv.table_id, 1)


def test_orders_of_another_coordinator_are_refused(kv: KvCaller, caller: Caller) -> None:
    for epoch in (0, 2):
        with pytest.raises(InvalidCoordinator):
            notify(caller, kv.table_id, OTHER, 5, coordinator_epoch=epoch)
        with pytest.raises(InvalidCoordinator):
            stop(caller, kv.table_id, 5, coordinator_epoch=epoch)
    assert kv.put((1, "a", 1)) == 1


def test_the_only_replica_of_a_living_bucket_is_not_deleted(kv: KvCaller, caller: Caller) -> None:
    kv.put((1, "a", 1))
    with pytest.raises(IneligibleReplica, match="drop the table"):
        stop(caller, kv.table_id, 1, delete=True)
    assert kv.lookup((1,)) == [(1, "a", 1)]
    caller.drop_table(kv.path)
    stop(caller, kv.table_id, 1, delete=True)  # it is gone already
    with pytest.raises(UnknownTableOrBucket):
        notify(caller, kv.table_id, 0, 2)


def test_a_log_table_has_a_leader_too(caller: Caller) -> None:
    path = TablePath("db", "log")
    table_id = caller.create_table(path, LOG_TABLE)
    caller.produce(table_id, batch("a"))
    notify(caller, table_id, OTHER, 2)
    for call in (
        lambda: caller.produce(table_id, batch("b")),
        lambda: caller.fetch(table_id, 0),
        lambda: caller.offsets(table_id),
    ):
        with pytest.raises(NotLeaderOrFollower):
            call()


def test_each_start_is_an_election(node: Node) -> None:
    kv = KvCaller(node.caller)
    notify(node.caller, kv.table_id, OTHER, 2)
    node.restart()
    assert epochs(node.caller, kv.path) == [(0, 2)]
    assert KvCaller(node.caller, create=False).put((1, "a", 1)) == 1


@pytest.fixture
def replicas(node: Node) -> Replicas:
    node.caller.create_table()
    assert node.cluster._parts is not None
    return Replicas(0, node.cluster._parts.catalog, lambda: 1)


BUCKET = TableBucket(0, None, 0)


def test_a_change_waits_for_operations_and_they_for_it(replicas: Replicas) -> None:
    told: list[TableBucket] = []
    replicas.on_lost(told.append)
    changed = threading.Event()

    def change() -> None:
        replicas.set_leader(1, BUCKET, OTHER, 2)
        changed.set()

    with replicas.leading(BUCKET) as epoch:
        assert epoch == 1
        thread = threading.Thread(target=change)
        thread.start()
        assert not changed.wait(0.2)
        assert told == []
    assert changed.wait(60)
    thread.join(60)
    assert told == [BUCKET]
    with pytest.raises(NotLeaderOrFollower), replicas.leading(BUCKET):
        raise AssertionError("not led any more")
    replicas.set_leader(1, BUCKET, OTHER, 3)
    assert told == [BUCKET]  # it was lost once only


def test_who_listens_hears_of_a_drop(replicas: Replicas) -> None:
    told: list[TableBucket] = []
    replicas.on_lost(told.append)
    with replicas.leading(BUCKET):
        pass
    info = TableInfo(TablePath("db", "t"), BUCKET.table_id, 1, LOG_TABLE, 0, 0)
    replicas.drop_table(info)
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


def test_puts_from_many_threads_while_leadership_comes_and_goes(
    start: Callable[..., Node],
) -> None:
    """Every put that was acknowledged is there in the end, once."""
    node = start(kv_snapshot_interval_ms=0)
    kv = KvCaller(node.caller)
    acknowledged: list[int] = []
    stopping = threading.Event()

    def put(first: int) -> None:
        number = first
        while not stopping.is_set():
            try:
                kv.put((number, "t", number))
            except NotLeaderOrFollower:
                continue
            acknowledged.append(number)
            number += 4

    threads = [threading.Thread(target=put, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for epoch in range(2, 30, 2):
        notify(node.caller, kv.table_id, OTHER, epoch)
        notify(node.caller, kv.table_id, 0, epoch + 1)
    stopping.set()
    for thread in threads:
        thread.join(60)
    assert sorted(kv.table()) == sorted(acknowledged)
    assert [kind for kind, _ in kv.changelog()] == ["+I"] * len(acknowledged)
