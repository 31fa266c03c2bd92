"""KV snapshots of a table with a primary key, and leases that keep them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from sluice.client.connection.connection import Connection
from sluice.model import BucketSnapshot, TableBucket
from sluice.model import types as t
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from sluice.wire.apis import Api
from tests.conformance.scenario import NOT_THERE, ScenarioContext, done, scenario

MINUTE_MS = 60_000
SNAPSHOT_WAIT_S = 60.0
NEWER = 4
"""The number of later snapshots after which a snapshot without a lease is deleted."""


class Keyed:
    """A primary-key table with one bucket, with direct calls to its coordinator.

    Sluice's client would add its own checks and work around calls that Apache Fluss lacks.
    """

    def __init__(self, context: ScenarioContext, connection: Connection) -> None:
        self._context, self._connection = context, connection
        self.path = context.create("t", {"id": t.BIGINT.not_null(), "v": t.STRING}, key=("id",))
        self.bucket = TableBucket(context.client.admin.table_info(self.path).table_id, None, 0)
        self.lease_id = f"{context.database}-lease"
        self._keys = 0

    def put(self, key: int, value: str) -> None:
        with self._context.client.kv_writer(self.path) as writer:
            writer.upsert(pa.table({"id": [key], "v": [value]}))

    def newer(self) -> BucketSnapshot:
        """Puts another row and waits for the snapshot that contains it."""
        self._keys += 1
        self.put(self._keys, "new")
        deadline = time.monotonic() + SNAPSHOT_WAIT_S
        while (newest := self.newest()) is None or newest.log_offset < self._keys:
            if time.monotonic() > deadline:
                raise TimeoutError(f"no KV snapshot of {self.path} in {SNAPSHOT_WAIT_S:.0f} s")
            time.sleep(0.1)
        return newest

    def newest(self) -> BucketSnapshot | None:
        return self._context.client.leases.latest(self.path).snapshots.get(self.bucket)

    def call(self, api: Api, request: Any) -> Any:
        return self._connection.call_coordinator(api, request, lambda reply: reply)

    def metadata(self, snapshot_id: int, bucket: TableBucket | None = None) -> Any:
        asked = bucket or self.bucket
        return self.call(
            apis.GET_KV_SNAPSHOT_METADATA,
            pb.GetKvSnapshotMetadataRequest(
                table_id=asked.table_id, bucket_id=asked.bucket, snapshot_id=snapshot_id
            ),
        )

    def acquire(
        self,
        snapshot_id: int,
        *,
        table_id: int | None = None,
        bucket: int = 0,
        lease_id: str | None = None,
        duration_ms: int = MINUTE_MS,
    ) -> Callable[[], list[int]]:
        """A call that returns the buckets that were not leased."""
        request = pb.AcquireKvSnapshotLeaseRequest(
            lease_id=self.lease_id if lease_id is None else lease_id, lease_duration_ms=duration_ms
        )
        table = request.snapshots_to_lease.add(table_id=table_id or self.bucket.table_id)
        table.bucket_snapshots.add(bucket_id=bucket, snapshot_id=snapshot_id)

        def asked() -> list[int]:
            answer = self.call(apis.ACQUIRE_KV_SNAPSHOT_LEASE, request)
            return [b.bucket_id for u in answer.unavailable_snapshots for b in u.bucket_snapshots]

        return asked

    def acquire_nothing(self, lease_id: str) -> Callable[[], str]:
        request = pb.AcquireKvSnapshotLeaseRequest(lease_id=lease_id, lease_duration_ms=MINUTE_MS)
        return done(lambda: self.call(apis.ACQUIRE_KV_SNAPSHOT_LEASE, request))

    def renew(self, lease_id: str) -> Callable[[], str]:
        request = pb.RenewKvSnapshotLeaseRequest(lease_id=lease_id, lease_duration_ms=MINUTE_MS)
        return done(lambda: self.call(apis.RENEW_KV_SNAPSHOT_LEASE, request))

    def release(self, lease_id: str) -> Callable[[], str]:
        request = pb.ReleaseKvSnapshotLeaseRequest(lease_id=lease_id)
        request.buckets_to_release.add(table_id=self.bucket.table_id, bucket_id=0)
        return done(lambda: self.call(apis.RELEASE_KV_SNAPSHOT_LEASE, request))

    def drop(self, lease_id: str) -> Callable[[], str]:
        request = pb.DropKvSnapshotLeaseRequest(lease_id=lease_id)
        return done(lambda: self.call(apis.DROP_KV_SNAPSHOT_LEASE, request))


@contextmanager
def _keyed(context: ScenarioContext) -> Iterator[Keyed]:
    with closing(Connection(context.client.config)) as connection:
        yield Keyed(context, connection)


@scenario
def kv_snapshots(context: ScenarioContext) -> None:
    leases = context.client.leases
    with _keyed(context) as keyed:
        context.expect_call("newest at first", keyed.newest, None)
        first = keyed.newer()
        context.expect("log offset", first.log_offset, 1)
        context.expect_call(
            "log offset by metadata", lambda: keyed.metadata(first.snapshot_id).log_offset, 1
        )
        context.expect_call(
            "files",
            lambda: _kinds(keyed.metadata(first.snapshot_id)),
            [".sst", "CURRENT", "MANIFEST", "OPTIONS"],
        )
        second = keyed.newer()
        context.expect("ids rise", second.snapshot_id > first.snapshot_id, True)
        context.expect_call(
            "rows", lambda: _rows(context, keyed, second), [{"id": n, "v": "new"} for n in (1, 2)]
        )
        listed = pb.ListKvSnapshotsRequest(table_id=keyed.bucket.table_id)
        context.expect_call(
            "listed",
            lambda: (
                second.snapshot_id
                in [
                    s.snapshot_id
                    for s in keyed.call(apis.LIST_KV_SNAPSHOTS, listed).active_snapshots
                ]
            ),
            "UnsupportedVersion",
        )
        context.expect_call(
            "one that never was", lambda: keyed.metadata(NOT_THERE), "KvSnapshotNotExist"
        )
        no_bucket = TableBucket(keyed.bucket.table_id, None, 7)
        context.expect_call(
            "of no bucket", lambda: keyed.metadata(0, no_bucket), "KvSnapshotNotExist"
        )
        no_table = TableBucket(NOT_THERE, None, 0)
        context.expect_call(
            "of no table", lambda: keyed.metadata(0, no_table), "KvSnapshotNotExist"
        )
        log = context.create("log", {"id": t.BIGINT})
        context.expect_call(
            "newest of a log table", lambda: leases.latest(log), "NonPrimaryKeyTable"
        )
        gone = context.path("gone")
        context.expect_call(
            "newest of a missing table", lambda: leases.latest(gone), "TableNotExist"
        )


def _kinds(metadata: Any) -> list[str]:
    """The kinds of RocksDB files in a snapshot."""
    names = [file.local_file_name for file in metadata.snapshot_files]
    return sorted({Path(name).suffix or name.split("-")[0] for name in names})


def _rows(context: ScenarioContext, keyed: Keyed, snapshot: BucketSnapshot) -> list[dict[str, Any]]:
    client, path = context.client, keyed.path
    with client.kv_snapshot(path, snapshot.bucket, snapshot.snapshot_id) as reader:
        return [row for batch in reader.batches() for row in batch.to_pylist()]


@scenario
def lease_calls(context: ScenarioContext) -> None:
    """What each call returns for existing and missing snapshots and leases."""
    with _keyed(context) as keyed:
        there = keyed.newer().snapshot_id
        lease, other = keyed.lease_id, f"{keyed.lease_id}-2"
        context.expect_call("acquire", keyed.acquire(there), [])
        context.expect_call("again", keyed.acquire(there), [])
        context.expect_call("by another lease too", keyed.acquire(there, lease_id=other), [])
        context.expect_call("what never was", keyed.acquire(NOT_THERE, lease_id=other), [])
        context.expect_call("of no bucket", keyed.acquire(there, bucket=7, lease_id=other), [])
        context.expect_call(
            "of no table",
            keyed.acquire(there, table_id=NOT_THERE, lease_id=other),
            "UnknownTableOrBucket",
        )
        log = context.create("log", {"id": t.BIGINT})
        log_id = context.client.admin.table_info(log).table_id
        context.expect_call(
            "of a log table",
            keyed.acquire(there, table_id=log_id, lease_id=other),
            "NonPrimaryKeyTable",
        )
        context.expect_call("for no time", keyed.acquire(there, lease_id=other, duration_ms=0), [])
        context.expect_call("under a name of spaces", keyed.acquire(there, lease_id="   "), [])
        context.expect_call("renew by acquiring nothing", keyed.acquire_nothing(lease), "done")
        context.expect_call("renew by its own call", keyed.renew(lease), "UnsupportedVersion")
        context.expect_call(
            "listed",
            lambda: lease in [each.lease_id for each in context.client.leases.all()],
            "UnsupportedVersion",
        )
        context.expect_call("release", keyed.release(lease), "done")
        context.expect_call("release again", keyed.release(lease), "done")
        context.expect_call("renew what holds nothing", keyed.acquire_nothing(lease), "done")
        context.expect_call("drop", keyed.drop(other), "done")
        context.expect_call("drop again", keyed.drop(other), "done")
        context.expect_call("release of what is dropped", keyed.release(other), "done")
        context.expect_call("renew what is dropped", keyed.acquire_nothing(other), "done")
        for each in (lease, other, "   "):
            keyed.drop(each)()


@scenario
def leased_snapshots(context: ScenarioContext) -> None:
    """A leased snapshot is kept, however many follow it, and deleted once released."""
    with _keyed(context) as keyed:
        for name, end in (("released", keyed.release), ("dropped", keyed.drop)):
            held, lease = keyed.newer(), f"{keyed.lease_id}-{name}"
            acquire = keyed.acquire(held.snapshot_id, lease_id=lease)
            context.expect_call(f"acquire what will be {name}", acquire, [])
            for _ in range(NEWER):
                keyed.newer()
            read = partial(_log_offset, keyed, held)
            context.expect_call(f"read before it is {name}", read, held.log_offset)
            end(lease)()

            def read_later(read: Callable[[], int] = read) -> int:
                keyed.newer()  # a real Fluss deletes when it completes the next
                return read()

            context.expect_eventually(f"read when it is {name}", read_later, "KvSnapshotNotExist")


def _log_offset(keyed: Keyed, snapshot: BucketSnapshot) -> int:
    return int(keyed.metadata(snapshot.snapshot_id).log_offset)
