"""The calls about leases on a real server, with real KV snapshots and their deletion."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from sluice.errors import (
    InvalidLease,
    KvSnapshotNotExist,
    LeaseNotExist,
    NonPrimaryKeyTable,
    StorageError,
    UnknownServerError,
    UnknownTableOrBucket,
)
from sluice.model import TablePath
from sluice.server.coordinator.calls.lease_calls import TABLES_PER_LEASE_MAX
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from tests.support.programs.processes import wait_for
from tests.support.statuses.lease_parts import ManualClock
from tests.unit.server.kv_support import KvCaller
from tests.unit.server.support import LOG_TABLE, Node, to_pb

HOUR = 3_600_000
QUIET = {"kv_snapshot_interval_ms": 0, "kv_snapshot_lease_check_interval_ms": 10}


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def node(start: Callable[..., Node], clock: ManualClock) -> Node:
    return start(clock=clock, **QUIET)


@pytest.fixture
def kv(node: Node) -> KvCaller:
    return KvCaller(node.caller)


def take(node: Node, kv: KvCaller) -> int:
    """A row more and a snapshot of it; its id."""
    kv.put((1, "text", 1))
    [snapshot_id] = node.cluster.take_kv_snapshots(kv.path).values()
    return snapshot_id


def acquire(
    node: Node, table_id: int, *snapshots: tuple[int | None, int, int], lease_id: str = "a"
) -> list[tuple[int | None, int, int]]:
    """What is unavailable; a snapshot is (partition id, bucket, snapshot id)."""
    request = pb.AcquireKvSnapshotLeaseRequest(lease_id=lease_id, lease_duration_ms=HOUR)
    if snapshots:
        table = request.snapshots_to_lease.add(table_id=table_id)
        for partition_id, bucket, snapshot_id in snapshots:
            table.bucket_snapshots.add(
                partition_id=partition_id, bucket_id=bucket, snapshot_id=snapshot_id
            )
    reply = node.caller.call(apis.ACQUIRE_KV_SNAPSHOT_LEASE, request)
    return [
        (b.partition_id if b.HasField("partition_id") else None, b.bucket_id, b.snapshot_id)
        for t in reply.unavailable_snapshots
        for b in t.bucket_snapshots
    ]


def release(node: Node, table_id: int, bucket: int = 0, lease_id: str = "a") -> None:
    request = pb.ReleaseKvSnapshotLeaseRequest(lease_id=lease_id)
    request.buckets_to_release.add(table_id=table_id, bucket_id=bucket)
    node.caller.call(apis.RELEASE_KV_SNAPSHOT_LEASE, request)


def drop(node: Node, lease_id: str = "a") -> None:
    request = pb.DropKvSnapshotLeaseRequest(lease_id=lease_id)
    node.caller.call(apis.DROP_KV_SNAPSHOT_LEASE, request)


def renew(node: Node, lease_id: str = "a", duration_ms: int = HOUR) -> None:
    request = pb.RenewKvSnapshotLeaseRequest(lease_id=lease_id, lease_duration_ms=duration_ms)
    node.caller.call(apis.RENEW_KV_SNAPSHOT_LEASE, request)


def listed(node: Node) -> dict[str, pb.PbKvSnapshotLease]:
    reply = node.caller.call(apis.LIST_KV_SNAPSHOT_LEASES, pb.ListKvSnapshotLeasesRequest())
    return {lease.lease_id: lease for lease in reply.leases}


def lasting(node: Node) -> dict[str, pb.PbKvSnapshotLease]:
    """The leases without bytes, which change with newer snapshots and are read after a start."""
    found = listed(node)
    for lease in found.values():
        for part in (lease, *lease.tables):
            part.ClearField("held_bytes")
            part.ClearField("freed_bytes")
    return found


def files(node: Node, kv: KvCaller, snapshot_id: int) -> list[Path]:
    request = pb.GetKvSnapshotMetadataRequest(
        table_id=kv.table_id, bucket_id=0, snapshot_id=snapshot_id
    )
    reply = node.caller.call(apis.GET_KV_SNAPSHOT_METADATA, request)
    return [Path(urlsplit(file.remote_path).path) for file in reply.snapshot_files]


def test_a_leased_snapshot_stays_until_its_release(node: Node, kv: KvCaller) -> None:
    first = take(node, kv)
    assert acquire(node, kv.table_id, (None, 0, first)) == []
    paths = files(node, kv, first)
    for _ in range(4):
        take(node, kv)
    assert files(node, kv, first) == paths
    assert all(path.is_file() for path in paths)
    release(node, kv.table_id)
    assert listed(node) == {}
    take(node, kv)
    with pytest.raises(KvSnapshotNotExist):
        files(node, kv, first)
    assert not all(path.is_file() for path in paths)


def test_what_is_gone_or_unknown_is_told(node: Node, kv: KvCaller) -> None:
    ids = [take(node, kv) for _ in range(4)]
    wanted = [(None, 0, ids[0]), (None, 7, 0), (5, 0, 0)]
    assert acquire(node, kv.table_id, *wanted[:2]) == wanted[:2]
    assert listed(node) == {}
    assert acquire(node, kv.table_id, (None, 0, ids[-1])) == []
    assert acquire(node, kv.table_id, wanted[2]) == [wanted[2]]
    assert listed(node)["a"].bucket_count == 1


def test_refused_whole_and_nothing_is_changed(node: Node, kv: KvCaller) -> None:
    snapshot = take(node, kv)
    log_table = node.caller.create_table(descriptor=LOG_TABLE)
    request = pb.AcquireKvSnapshotLeaseRequest(lease_id="a", lease_duration_ms=HOUR)
    good = request.snapshots_to_lease.add(table_id=kv.table_id)
    good.bucket_snapshots.add(bucket_id=0, snapshot_id=snapshot)
    bad = request.snapshots_to_lease.add(table_id=log_table)
    bad.bucket_snapshots.add(bucket_id=0, snapshot_id=0)
    for table_id, error in ((log_table, NonPrimaryKeyTable), (999, UnknownTableOrBucket)):
        bad.table_id = table_id
        with pytest.raises(error):
            node.caller.call(apis.ACQUIRE_KV_SNAPSHOT_LEASE, request)
    with pytest.raises(UnknownServerError, match="buckets with and without a partition"):
        acquire(node, kv.table_id, (None, 0, snapshot), (3, 0, snapshot))
    with pytest.raises(InvalidLease, match="lease id 'a b'"):
        acquire(node, kv.table_id, (None, 0, snapshot), lease_id="a b")
    with pytest.raises(InvalidLease, match="invalid duration 5 ms"):
        renew(node, duration_ms=5)
    assert listed(node) == {}


def test_a_drop_is_final(node: Node, kv: KvCaller) -> None:
    acquire(node, kv.table_id, (None, 0, take(node, kv)))
    renew(node)
    drop(node)
    drop(node)
    with pytest.raises(LeaseNotExist, match="lease a does not exist"):
        renew(node)
    with pytest.raises(LeaseNotExist):
        acquire(node, kv.table_id)
    release(node, 999)
    assert listed(node) == {}


def test_what_people_see(node: Node, clock: ManualClock) -> None:
    kv = KvCaller(node.caller, bucket_count=2)
    kv.put((1, "a", 1), bucket=0)
    kv.put((2, "b", 2), bucket=1)
    node.cluster.take_kv_snapshots(kv.path)
    kv.put((3, "c", 3), bucket=1)
    node.cluster.take_kv_snapshots(kv.path)
    begun = clock.ms
    acquire(node, kv.table_id, (None, 0, 0), (None, 1, 1), lease_id="job-1")
    clock.ms += 500
    renew(node, "job-1")
    lease = listed(node)["job-1"]
    assert lease.bucket_count == 2
    assert (lease.created_time, lease.renewed_time) == (begun, begun + 500)
    assert lease.expiration_time == begun + 500 + HOUR
    assert lease.oldest_snapshot_id == 0
    assert lease.oldest_bucket == pb.PbTableBucket(table_id=kv.table_id, bucket_id=0)
    assert lease.oldest_table_path == to_pb(kv.path)


def test_the_bytes_that_a_drop_frees(node: Node, kv: KvCaller, tmp_path: Path) -> None:
    """Of a lease that is the only one to keep a snapshot; the disk agrees."""

    def stored() -> int:
        found = (tmp_path / "data/remote/kv").rglob("*")
        return sum(p.stat().st_size for p in found if p.is_file() and p.name != "_METADATA")

    first = take(node, kv)
    acquire(node, kv.table_id, (None, 0, first))
    whole = sum(path.stat().st_size for path in files(node, kv, first))
    assert (listed(node)["a"].held_bytes, listed(node)["a"].freed_bytes) == (whole, 0)
    for _ in range(3):
        take(node, kv)
    lease = listed(node)["a"]
    assert lease.held_bytes == whole
    assert 0 < lease.freed_bytes < whole, "the newer ones share a file of it"
    [table] = lease.tables
    assert (table.table_id, table.table_path) == (kv.table_id, to_pb(kv.path))
    assert (table.bucket_count, table.oldest_snapshot_id) == (1, first)
    assert (table.held_bytes, table.freed_bytes) == (lease.held_bytes, lease.freed_bytes)
    acquire(node, kv.table_id, (None, 0, first), lease_id="b")
    assert {one.freed_bytes for one in listed(node).values()} == {0}, "the other one keeps it"
    drop(node, "b")
    node.stop()
    node.start()
    wait_for(
        "the sizes, which the server reads after its start", lambda: listed(node) == {"a": lease}
    )
    before = stored()
    drop(node)
    wait_for("the deletion", lambda: stored() == before - lease.freed_bytes)


@pytest.mark.slow
def test_an_answer_has_a_limited_number_of_tables(node: Node) -> None:
    paths = [TablePath("db", f"t{number}") for number in range(TABLES_PER_LEASE_MAX + 2)]
    tables = [KvCaller(node.caller, path) for path in paths]
    request = pb.AcquireKvSnapshotLeaseRequest(lease_id="a", lease_duration_ms=HOUR)
    for table in tables:
        table.put((1, "text" * (500 if table is tables[-1] else 1), 1))
        [snapshot_id] = node.cluster.take_kv_snapshots(table.path).values()
        held = request.snapshots_to_lease.add(table_id=table.table_id)
        held.bucket_snapshots.add(bucket_id=0, snapshot_id=snapshot_id)
    node.caller.call(apis.ACQUIRE_KV_SNAPSHOT_LEASE, request)
    lease = listed(node)["a"]
    assert (lease.table_count, len(lease.tables)) == (len(tables), TABLES_PER_LEASE_MAX)
    assert lease.tables[0].table_id == tables[-1].table_id, "the largest first"
    only = pb.ListKvSnapshotLeasesRequest(table_id=tables[-2].table_id)
    [one] = node.caller.call(apis.LIST_KV_SNAPSHOT_LEASES, only).leases
    assert [table.table_id for table in one.tables] == [tables[-2].table_id]
    assert (one.table_count, one.held_bytes) == (len(tables), lease.held_bytes)
    nobody = pb.ListKvSnapshotLeasesRequest(table_id=999)
    assert not node.caller.call(apis.LIST_KV_SNAPSHOT_LEASES, nobody).leases


def test_dropping_a_table_lets_go_of_it(node: Node, kv: KvCaller) -> None:
    acquire(node, kv.table_id, (None, 0, take(node, kv)))
    node.caller.drop_table(kv.path)
    assert listed(node) == {}


def test_a_lease_survives_a_restart_and_expires_ten_minutes_after_it(
    node: Node, kv: KvCaller, clock: ManualClock
) -> None:
    first = take(node, kv)
    acquire(node, kv.table_id, (None, 0, first))
    before = lasting(node)
    node.stop()  # so that nobody sees the clock move
    clock.ms += 2 * HOUR
    node.start()
    assert lasting(node) == before
    kv = KvCaller(node.caller, create=False)
    for _ in range(3):
        take(node, kv)
    assert files(node, kv, first)
    clock.ms += 10 * 60 * 1000 - 1
    assert lasting(node) == before
    clock.ms += 1

    def is_gone() -> bool:
        try:
            files(node, kv, first)
        except KvSnapshotNotExist:
            return True
        return False

    wait_for("the check, which comes every 10 ms, to delete what it has freed", is_gone)
    assert listed(node) == {}


def test_a_lease_that_cannot_be_read_stops_the_start(
    node: Node, kv: KvCaller, tmp_path: Path
) -> None:
    acquire(node, kv.table_id, (None, 0, take(node, kv)), lease_id="job-9")
    node.cluster.stop()
    with closing(sqlite3.connect(tmp_path / "data/metadata.sqlite")) as connection:
        connection.execute("UPDATE kv_snapshot_lease_tables SET holds = x'00'")
        connection.commit()
    with pytest.raises(StorageError, match=r"lease 'job-9' cannot be read.*leases drop 'job-9'"):
        node.cluster.start()
    with closing(sqlite3.connect(tmp_path / "data/metadata.sqlite")) as connection:
        connection.execute("DELETE FROM kv_snapshot_leases")
        connection.commit()
    node.cluster.start()
