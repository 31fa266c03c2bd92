"""The coordinator's KV snapshot lease calls (docs/fluss/leases.md#lease-calls)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sluice.errors import NonPrimaryKeyTable, UnknownServerError, UnknownTableOrBucket
from sluice.leases import PLAIN, BucketKey, Lease, SnapshotsByTable, bucket_of
from sluice.server.coordinator.catalog import Catalog
from sluice.server.coordinator.leases import KvSnapshotLeases, Snapshots
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from sluice.wire.apis import Api
from sluice.wire.handlers import Handler, caller
from sluice.wire.table_paths import bucket_ids, bucket_in, table_path


class LeaseService:
    """Handlers of the lease calls. Stateless."""

    def __init__(self, catalog: Catalog, leases: KvSnapshotLeases, snapshots: Snapshots) -> None:
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
        del request
        now_ms, leases = self._leases.all()
        response = pb.ListKvSnapshotLeasesResponse(current_time=now_ms)
        for lease in leases:
            self._describe(lease, response.leases.add())
        return response

    def _describe(self, lease: Lease, answer: pb.PbKvSnapshotLease) -> None:
        snapshot_id, table_id, key = lease.oldest()
        bucket, entry = bucket_of(table_id, key), self._catalog.find(table_id)
        answer.lease_id = lease.lease_id
        answer.bucket_count = lease.buckets
        answer.created_time = lease.created_ms
        answer.renewed_time = lease.renewed_ms
        answer.expiration_time = lease.expires_ms
        answer.oldest_snapshot_id = snapshot_id
        if lease.owner:
            answer.owner = lease.owner
        answer.oldest_bucket.CopyFrom(pb.PbTableBucket(**bucket_ids(bucket)))
        if entry is not None:
            answer.oldest_table_path.CopyFrom(table_path(entry.info.path))

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
