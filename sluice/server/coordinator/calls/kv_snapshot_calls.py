"""The coordinator's KV snapshot calls.

See docs/fluss/messages.md#kv-snapshot-calls
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sluice.errors import (
    NonPrimaryKeyTable,
    PartitionNotExists,
    TableNotPartitioned,
    UnknownTableOrBucket,
)
from sluice.model import TableBucket
from sluice.server.coordinator.catalog.catalog import Catalog
from sluice.server.coordinator.catalog.entries import TableEntry
from sluice.server.coordinator.leases.kv_snapshots import KvSnapshots
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from sluice.wire.apis import Api
from sluice.wire.listeners.handlers import Handler
from sluice.wire.messages.table_paths import bucket_in, path_of


@dataclass(frozen=True, slots=True)
class KvSnapshotService:
    """Handlers of the KV snapshot calls. Stateless."""

    _catalog: Catalog
    _snapshots: KvSnapshots

    def handlers(self) -> Mapping[Api, Handler]:
        """The handlers of both roles."""
        return {
            apis.GET_LATEST_KV_SNAPSHOTS: self.get_latest_kv_snapshots,
            apis.GET_KV_SNAPSHOT_METADATA: self.get_kv_snapshot_metadata,
        }

    def coordinator_handlers(self) -> Mapping[Api, Handler]:
        return {apis.LIST_KV_SNAPSHOTS: self.list_kv_snapshots}

    def get_latest_kv_snapshots(
        self, request: pb.GetLatestKvSnapshotsRequest
    ) -> pb.GetLatestKvSnapshotsResponse:
        """Returns one entry per bucket, without an id if the bucket has no snapshot."""
        entry = self._catalog.table(path_of(request.table_path))
        name = request.partition_name if request.HasField("partition_name") else None
        partition_id = _partition_id(_with_key(entry), name)
        response = pb.GetLatestKvSnapshotsResponse(
            table_id=entry.info.table_id, partition_id=partition_id
        )
        for number in range(entry.bucket_count(partition_id)):
            answer = response.latest_snapshots.add(bucket_id=number)
            found = self._snapshots.latest(TableBucket(entry.info.table_id, partition_id, number))
            if found is not None:
                answer.snapshot_id, answer.log_offset = found.snapshot_id, found.log_offset
        return response

    def get_kv_snapshot_metadata(
        self, request: pb.GetKvSnapshotMetadataRequest
    ) -> pb.GetKvSnapshotMetadataResponse:
        """Returns the files of a snapshot.

        :raises KvSnapshotNotExist: for any reason, as in Fluss.
        """
        snapshot = self._snapshots.metadata(bucket_in(request), request.snapshot_id)
        response = pb.GetKvSnapshotMetadataResponse(log_offset=snapshot.log_offset)
        for file in snapshot.files:
            response.snapshot_files.add(remote_path=file.path, local_file_name=file.local_name)
        return response

    def list_kv_snapshots(self, request: pb.ListKvSnapshotsRequest) -> pb.ListKvSnapshotsResponse:
        """Returns every existing snapshot, retained or leased."""
        partition_id = request.partition_id if request.HasField("partition_id") else None
        entry = self._catalog.find(request.table_id)
        if entry is None:
            raise UnknownTableOrBucket(f"no table has the id {request.table_id}")
        if not _with_key(entry).has_bucket(partition_id, 0):
            raise PartitionNotExists(
                f"table {entry.info.path} has no partition with the id {partition_id}"
            )
        response = pb.ListKvSnapshotsResponse(table_id=request.table_id, partition_id=partition_id)
        for number in range(entry.bucket_count(partition_id)):
            for found in self._snapshots.all(TableBucket(request.table_id, partition_id, number)):
                response.active_snapshots.add(bucket_id=number, snapshot_id=found.snapshot_id)
        return response


def _with_key(entry: TableEntry) -> TableEntry:
    if not entry.info.has_primary_key:
        raise NonPrimaryKeyTable(
            f"table {entry.info.path} is a log table, which has no KV snapshots"
        )
    return entry


def _partition_id(entry: TableEntry, name: str | None) -> int | None:
    """:raises PartitionNotExists: missing, or not given. :raises TableNotPartitioned: given."""
    path = entry.info.path
    if not entry.info.is_partitioned:
        if name is not None:
            raise TableNotPartitioned(f"table {path} is not partitioned: omit partition {name!r}")
        return None
    if name is None:
        raise PartitionNotExists(f"table {path} is partitioned: specify the partition")
    partition = entry.partition_named(tuple(name.split("$")))
    if partition is None:
        raise PartitionNotExists(f"table {path} has no partition {name!r}")
    return partition.partition_id
