"""The coordinator's KV snapshot lease calls (docs/fluss/leases.md#lease-calls)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sluice.errors import NonPrimaryKeyTable, UnknownServerError, UnknownTableOrBucket
from sluice.leases import (
    PLAIN,
    BucketKey,
    Lease,
    SnapshotsByBucket,
    SnapshotsByTable,
    bucket_of,
)
from sluice.model.leases import sum_if_known
from sluice.server.coordinator.catalog.catalog import Catalog
from sluice.server.coordinator.leases.kv_snapshots import Completed, KvSnapshots
from sluice.server.coordinator.leases.leases import KvSnapshotLeases
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from sluice.wire.apis import Api
from sluice.wire.listeners.handlers import Handler, caller
from sluice.wire.messages.table_paths import bucket_ids, bucket_in, table_path

TABLES_PER_LEASE_MAX = 100
TABLES_MAX = 10_000
"""Most tables of one answer."""


_NONE: Mapping[int, Completed] = {}


@dataclass(frozen=True, slots=True)
class LeaseSize:
    """How large a lease is."""

    buckets: int
    created_ms: int
    held_bytes: int | None


@dataclass(frozen=True, slots=True)
class _Held:
    """What a lease holds of one table."""

    table_id: int
    buckets: int
    oldest_snapshot_id: int
    oldest_key: BucketKey
    held_bytes: int | None
    freed_bytes: int | None


class LeaseService:
    """Handlers of the lease calls. Stateless."""

    def __init__(self, catalog: Catalog, leases: KvSnapshotLeases, snapshots: KvSnapshots) -> None:
        self._catalog = catalog
        self._leases = leases
        self._snapshots = snapshots

    def handlers(self) -> Mapping[Api, Handler]:
        return {
            apis.ACQUIRE_KV_SNAPSHOT_LEASE: self.acquire,
            apis.RENEW_KV_SNAPSHOT_LEASE: self.renew,
            apis.RELEASE_KV_SNAPSHOT_LEASE: self.release,
            apis.DROP_KV_SNAPSHOT_LEASE: self.drop,
            apis.LIST_KV_SNAPSHOT_LEASES: self.list_leases,
        }

    def acquire(
        self, request: pb.AcquireKvSnapshotLeaseRequest
    ) -> pb.AcquireKvSnapshotLeaseResponse:
        """Leases snapshots; a request without buckets renews, as in Fluss's own client.

        An unknown table (error 21) or a log table (20) fails the request. An unknown bucket is
        returned as unavailable.
        """
        wanted: dict[int, dict[BucketKey, int]] = {}
        for table in request.snapshots_to_lease:
            self._check_table(table.table_id)
            holds = wanted.setdefault(table.table_id, {})
            for entry in table.bucket_snapshots:
                partition_id = entry.partition_id if entry.HasField("partition_id") else PLAIN
                holds[partition_id, entry.bucket_id] = entry.snapshot_id
            _check_kinds(table.table_id, holds)
        unavailable = self._leases.acquire(
            request.lease_id, request.lease_duration_ms, wanted, self._snapshots, caller()
        )
        return _unavailable(unavailable)

    def renew(self, request: pb.RenewKvSnapshotLeaseRequest) -> pb.RenewKvSnapshotLeaseResponse:
        self._leases.renew(request.lease_id, request.lease_duration_ms, caller())
        return pb.RenewKvSnapshotLeaseResponse()

    def release(
        self, request: pb.ReleaseKvSnapshotLeaseRequest
    ) -> pb.ReleaseKvSnapshotLeaseResponse:
        """Releases buckets; ignores buckets that are not leased, also of dropped tables."""
        buckets = {bucket_in(entry) for entry in request.buckets_to_release}
        self._leases.release(request.lease_id, buckets, caller())
        return pb.ReleaseKvSnapshotLeaseResponse()

    def drop(self, request: pb.DropKvSnapshotLeaseRequest) -> pb.DropKvSnapshotLeaseResponse:
        self._leases.drop(request.lease_id, caller())
        return pb.DropKvSnapshotLeaseResponse()

    def list_leases(
        self, request: pb.ListKvSnapshotLeasesRequest
    ) -> pb.ListKvSnapshotLeasesResponse:
        now_ms, leases = self._leases.all()
        response = pb.ListKvSnapshotLeasesResponse(current_time=now_ms)
        only = request.table_id if request.HasField("table_id") else None
        places = TABLES_MAX
        for lease in leases:
            if only is None or only in lease.held:
                answer = response.leases.add()
                self._describe(lease, answer, only, min(places, TABLES_PER_LEASE_MAX))
                places -= len(answer.tables)
        return response

    def sizes(self) -> tuple[int, list[LeaseSize]]:
        """The current time in epoch milliseconds, and the size of each lease."""
        now_ms, leases = self._leases.all()
        return now_ms, [
            LeaseSize(
                lease.buckets,
                lease.created_ms,
                sum_if_known(self._held(*one).held_bytes for one in lease.held.items()),
            )
            for lease in leases
        ]

    def _describe(
        self, lease: Lease, answer: pb.PbKvSnapshotLease, only: int | None, tables_max: int
    ) -> None:
        tables = [self._held(table_id, holds) for table_id, holds in lease.held.items()]
        oldest = min(tables, key=lambda one: (one.oldest_snapshot_id, one.table_id))
        bucket = bucket_of(oldest.table_id, oldest.oldest_key)
        answer.lease_id = lease.lease_id
        answer.bucket_count = lease.buckets
        answer.created_time = lease.created_ms
        answer.renewed_time = lease.renewed_ms
        answer.expiration_time = lease.expires_ms
        answer.oldest_snapshot_id = oldest.oldest_snapshot_id
        if lease.owner:
            answer.owner = lease.owner
        answer.oldest_bucket.CopyFrom(pb.PbTableBucket(**bucket_ids(bucket)))
        path = self._path(oldest.table_id)
        if path is not None:
            answer.oldest_table_path.CopyFrom(path)
        _put_bytes(
            answer,
            sum_if_known(one.held_bytes for one in tables),
            sum_if_known(one.freed_bytes for one in tables),
        )
        answer.table_count = len(tables)
        tables.sort(key=lambda one: (-(one.held_bytes or 0), one.table_id))
        shown = [one for one in tables if only in (None, one.table_id)]
        for one in shown[:tables_max]:
            entry = answer.tables.add(
                table_id=one.table_id,
                bucket_count=one.buckets,
                oldest_snapshot_id=one.oldest_snapshot_id,
                table_path=self._path(one.table_id),
            )
            _put_bytes(entry, one.held_bytes, one.freed_bytes)

    def _held(self, table_id: int, holds: SnapshotsByBucket) -> _Held:
        """What a lease holds of one table. A lease may have 100,000 buckets, so it is one loop."""
        held: int | None = 0
        freed: int | None = 0
        there, holders = self._snapshots.of_table(table_id), self._leases.holders
        oldest_id, oldest_key = next((found, key) for key, found in holds.items())
        for key, snapshot_id in holds.items():
            if snapshot_id <= oldest_id:
                oldest_id, oldest_key = min((snapshot_id, key), (oldest_id, oldest_key))
            snapshot = there.get(key, _NONE).get(snapshot_id)
            if snapshot is None:
                continue  # deleted in the meantime
            size, own = snapshot.size_bytes, snapshot.own_bytes
            held = None if held is None or size is None else held + size
            if own != 0 and holders(table_id, key, snapshot_id) == 1:
                freed = None if freed is None or own is None else freed + own
        return _Held(table_id, len(holds), oldest_id, oldest_key, held, freed)

    def _path(self, table_id: int) -> pb.PbTablePath | None:
        entry = self._catalog.find(table_id)
        return None if entry is None else table_path(entry.info.path)

    def _check_table(self, table_id: int) -> None:
        entry = self._catalog.find(table_id)
        if entry is None:
            raise UnknownTableOrBucket(f"no table has the id {table_id}: was it dropped?")
        if not entry.info.has_primary_key:
            raise NonPrimaryKeyTable(
                f"table {entry.info.path} is a log table, which has no KV snapshots to lease"
            )


def _check_kinds(table_id: int, holds: Iterable[BucketKey]) -> None:
    """Checks that either all buckets of a table have a partition, or none.

    :raises UnknownServerError: as Fluss, which has no error code for this.
    """
    if len({partition_id == PLAIN for partition_id, _ in holds}) > 1:
        raise UnknownServerError(
            f"table id {table_id}: the request mixes buckets with and without a partition id; a"
            " table has one kind only"
        )


def _unavailable(snapshots: SnapshotsByTable) -> pb.AcquireKvSnapshotLeaseResponse:
    response = pb.AcquireKvSnapshotLeaseResponse()
    for table_id, holds in snapshots.items():
        table = response.unavailable_snapshots.add(table_id=table_id)
        for (partition_id, bucket), snapshot_id in holds.items():
            table.bucket_snapshots.add(
                partition_id=None if partition_id == PLAIN else partition_id,
                bucket_id=bucket,
                snapshot_id=snapshot_id,
            )
    return response


def _put_bytes(
    answer: pb.PbKvSnapshotLease | pb.PbLeasedTable, held: int | None, freed: int | None
) -> None:
    if held is not None:
        answer.held_bytes = held
    if freed is not None:
        answer.freed_bytes = freed
