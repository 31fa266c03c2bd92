"""Registers lake snapshots. See docs/fluss/lake-snapshots.md#commit"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sluice.client.admin.admin import Admin
from sluice.client.connection.connection import Connection
from sluice.client.connection.heartbeat_entries import only
from sluice.errors import NetworkError, RequestTimeOut
from sluice.model import Claim, LakeSnapshotInfo, TableBucket, TablePath
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from sluice.wire.error_codes import raise_in_body
from sluice.wire.messages.table_paths import table_path

_COMMIT_TRIES_MAX = 5


class LakeSnapshots:
    """The lake snapshots of a cluster's tables. Safe for use by many threads."""

    def __init__(self, connection: Connection, admin: Admin) -> None:
        self._connection = connection
        self._admin = admin

    def lake_snapshot(self, path: TablePath) -> LakeSnapshotInfo | None:
        return self._admin.lake_snapshot(path)

    def prepare_lake_snapshot(
        self, table_id: int, path: TablePath, offsets: Mapping[TableBucket, int]
    ) -> str:
        """Stores the complete offsets map; returns the path of the file that the cluster wrote."""
        table = pb.PbTableOffsets(table_id=table_id, table_path=table_path(path))
        for bucket, offset in sorted(offsets.items(), key=_bucket_order):
            table.bucket_offsets.add(
                partition_id=bucket.partition_id, bucket_id=bucket.bucket, log_end_offset=offset
            )
        request = pb.PrepareLakeTableSnapshotRequest(
            bucket_offsets=[table], ignore_previous_table_offsets=True
        )

        def unpack(reply: Any) -> str:
            entry = only(reply.prepare_lake_table_resp, f"PrepareLakeTableSnapshot of {path}")
            raise_in_body(entry)
            return str(entry.lake_table_offsets_path)

        return self._connection.call_coordinator(apis.PREPARE_LAKE_TABLE_SNAPSHOT, request, unpack)

    def commit_lake_snapshot(
        self,
        claim: Claim,
        snapshot_id: int,
        offsets_path: str,
        offsets: Mapping[TableBucket, int],
        max_timestamps_ms: Mapping[TableBucket, int],
        earliest_snapshot_id_to_keep: int,
    ) -> None:
        """Registers a lake snapshot whose offsets were prepared.

        After an unknown outcome (time-out, lost connection) the client queries the registered
        snapshot by this id before it sends the request again.

        :raises FencedTieringEpoch, InvalidCoordinator, TableNotExist: the claim is lost.
        """
        request = pb.CommitLakeTableSnapshotRequest()
        request.lake_table_snapshot_metadata.add(
            table_id=claim.table_id,
            snapshot_id=snapshot_id,
            tiered_bucket_offsets_file_path=offsets_path,
            readable_bucket_offsets_file_path=offsets_path,
            earliest_snapshot_id_to_keep=earliest_snapshot_id_to_keep,
            tiering_epoch=claim.tiering_epoch,
            coordinator_epoch=claim.coordinator_epoch,
        )
        table = request.tables_req.add(
            table_id=claim.table_id, snapshot_id=snapshot_id, table_path=table_path(claim.path)
        )
        for bucket, offset in sorted(offsets.items(), key=_bucket_order):
            table.buckets_req.add(
                partition_id=bucket.partition_id,
                bucket_id=bucket.bucket,
                log_end_offset=offset,
                max_timestamp=max_timestamps_ms.get(bucket),
            )
        for attempt in range(1, _COMMIT_TRIES_MAX + 1):
            try:
                self._send_commit(request, claim)
                return
            except (NetworkError, RequestTimeOut):
                # lake_snapshot retries until the cluster is back.
                if self._is_registered(claim, snapshot_id):
                    return
                if attempt == _COMMIT_TRIES_MAX:
                    raise

    def _send_commit(self, request: pb.CommitLakeTableSnapshotRequest, claim: Claim) -> None:
        def unpack(reply: Any) -> None:
            what = f"CommitLakeTableSnapshot of {claim.path}"
            raise_in_body(only(reply.table_resp, what))

        self._connection.call_coordinator(apis.COMMIT_LAKE_TABLE_SNAPSHOT, request, unpack)

    def _is_registered(self, claim: Claim, snapshot_id: int) -> bool:
        found = self._admin.lake_snapshot(claim.path, snapshot_id)
        return found is not None and found.table_id == claim.table_id


def _bucket_order(item: tuple[TableBucket, int]) -> tuple[int, int]:
    bucket = item[0]
    return (-1 if bucket.partition_id is None else bucket.partition_id), bucket.bucket
