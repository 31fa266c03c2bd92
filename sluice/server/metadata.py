"""Handlers of read calls that both the coordinator and the tablet server support.

See docs/fluss/rpc.md#servers-of-each-call and docs/fluss/messages.md#metadata
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sluice import __version__
from sluice.errors import (
    PartitionNotExists,
    PartitionSpecInvalid,
    UnknownServerError,
)
from sluice.model import Partition, TablePath, bucket_count_in
from sluice.server.coordinator.catalog.catalog import Catalog
from sluice.server.coordinator.catalog.entries import TableEntry
from sluice.server.coordinator.tiering.lake_options import described
from sluice.server.coordinator.tiering.lake_snapshots import LakeSnapshots
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from sluice.wire.apis import Api, Role
from sluice.wire.listeners.handlers import Handler
from sluice.wire.messages.table_paths import path_of, table_path

NODE_ID = 0
"""The id of the only tablet server."""


@dataclass(frozen=True, slots=True)
class Servers:
    """Host and port at which clients reach each role."""

    coordinator: tuple[str, int]
    tablet: tuple[str, int]


@dataclass(frozen=True, slots=True)
class MetadataService:
    """Handlers of read calls. Stateless. ``servers`` returns the addresses that clients receive."""

    _catalog: Catalog
    _lake: LakeSnapshots
    _leader_epoch: int
    """Of every bucket, since the server leads all of them."""
    _remote_dir: str
    """As a URI."""
    _servers: Callable[[], Servers]
    _lake_options: Mapping[str, str]
    """What is added to the properties of tiered tables."""

    def handlers(self) -> Mapping[Api, Handler]:
        return {
            apis.LIST_DATABASES: self.list_databases,
            apis.GET_DATABASE_INFO: self.get_database_info,
            apis.DATABASE_EXISTS: self.database_exists,
            apis.LIST_TABLES: self.list_tables,
            apis.GET_TABLE_INFO: self.get_table_info,
            apis.GET_TABLE_SCHEMA: self.get_table_schema,
            apis.TABLE_EXISTS: self.table_exists,
            apis.GET_METADATA: self.get_metadata,
            apis.LIST_PARTITION_INFOS: self.list_partition_infos,
            apis.GET_LAKE_SNAPSHOT: self.get_lake_snapshot,
            apis.GET_FILESYSTEM_SECURITY_TOKEN: self.get_filesystem_security_token,
        }

    def list_databases(self, request: pb.ListDatabasesRequest) -> pb.ListDatabasesResponse:
        response = pb.ListDatabasesResponse()
        for entry in self._catalog.databases():
            if not request.include_summary:
                response.database_name.append(entry.name)
                continue
            response.database_summary.add(
                database_name=entry.name,
                created_time=entry.created_ms,
                table_count=len(self._catalog.tables(entry.name)),
            )
        return response

    def get_database_info(self, request: pb.GetDatabaseInfoRequest) -> pb.GetDatabaseInfoResponse:
        entry = self._catalog.database(request.database_name)
        return pb.GetDatabaseInfoResponse(
            database_json=entry.json,
            created_time=entry.created_ms,
            modified_time=entry.modified_ms,
        )

    def database_exists(self, request: pb.DatabaseExistsRequest) -> pb.DatabaseExistsResponse:
        return pb.DatabaseExistsResponse(exists=self._catalog.has_database(request.database_name))

    def list_tables(self, request: pb.ListTablesRequest) -> pb.ListTablesResponse:
        entries = self._catalog.tables(request.database_name)
        return pb.ListTablesResponse(table_name=[entry.info.path.table for entry in entries])

    def get_table_info(self, request: pb.GetTableInfoRequest) -> pb.GetTableInfoResponse:
        entry = self._catalog.table(path_of(request.table_path))
        return pb.GetTableInfoResponse(
            table_id=entry.info.table_id,
            schema_id=entry.info.schema_id,
            table_json=described(entry, self._lake_options),
            created_time=entry.info.created_ms,
            modified_time=entry.info.modified_ms,
            remote_data_dir=self._remote_dir,
            bucket_count_epoch=entry.bucket_count_epoch,
        )

    def get_table_schema(self, request: pb.GetTableSchemaRequest) -> pb.GetTableSchemaResponse:
        wanted = request.schema_id if request.HasField("schema_id") else None
        schema_id, content = self._catalog.schema_json(path_of(request.table_path), wanted)
        return pb.GetTableSchemaResponse(schema_id=schema_id, schema_json=content)

    def table_exists(self, request: pb.TableExistsRequest) -> pb.TableExistsResponse:
        return pb.TableExistsResponse(exists=self._catalog.has_table(path_of(request.table_path)))

    def get_metadata(self, request: pb.MetadataRequest) -> pb.MetadataResponse:
        """Returns the servers, and the buckets of the requested tables and partitions."""
        servers = self._servers()
        response = pb.MetadataResponse(tablet_servers=[_node(servers.tablet)])
        response.coordinator_server.CopyFrom(_node(servers.coordinator))
        entries = [self._catalog.table(path_of(path)) for path in request.table_path]
        for entry in entries:
            table = response.table_metadata.add(
                table_path=table_path(entry.info.path),
                table_id=entry.info.table_id,
                schema_id=entry.info.schema_id,
                table_json=described(entry, self._lake_options),
                created_time=entry.info.created_ms,
                modified_time=entry.info.modified_ms,
                remote_data_dir=self._remote_dir,
                bucket_count_epoch=entry.bucket_count_epoch,
            )
            if not entry.info.is_partitioned:
                self._put_buckets(table.bucket_metadata, entry)
        for wanted in request.partitions_path:
            entry = self._catalog.table(TablePath(wanted.database_name, wanted.table_name))
            partition = entry.partition_named(tuple(wanted.partition_name.split("$")))
            if partition is None:
                raise PartitionNotExists(
                    f"table {entry.info.path} has no partition {wanted.partition_name!r}"
                )
            self._put_partition(response, entry, partition)
        for partition_id in request.partitions_id:
            entry, partition = self._partition(partition_id)
            self._put_partition(response, entry, partition)
        return response

    def _put_partition(
        self, response: pb.MetadataResponse, entry: TableEntry, partition: Partition
    ) -> None:
        answer = response.partition_metadata.add(
            table_id=entry.info.table_id,
            partition_name=partition.name,
            partition_id=partition.partition_id,
            bucket_count=bucket_count_in(entry.info, partition),
        )
        self._put_buckets(answer.bucket_metadata, entry, partition.partition_id)

    def _put_buckets(self, target: Any, entry: TableEntry, partition_id: int | None = None) -> None:
        for number in range(entry.bucket_count(partition_id)):
            target.add(
                bucket_id=number,
                replica_id=[NODE_ID],
                leader_id=NODE_ID,
                leader_epoch=self._leader_epoch,
            )

    def _partition(self, partition_id: int) -> tuple[TableEntry, Partition]:
        for entry in self._catalog.tables():
            partition = entry.partitions.get(partition_id)
            if partition is not None:
                return entry, partition
        raise PartitionNotExists(f"no table has a partition with the id {partition_id}")

    def list_partition_infos(
        self, request: pb.ListPartitionInfosRequest
    ) -> pb.ListPartitionInfosResponse:
        entry = self._catalog.require_partitioned(path_of(request.table_path))
        keys = entry.info.descriptor.partition_keys
        wanted = {
            pair.key: pair.value for pair in request.partial_partition_spec.partition_key_values
        }
        for key in wanted:
            if key not in keys:
                raise PartitionSpecInvalid(
                    f"table {entry.info.path}: {key!r} is not a partition key;"
                    f" the keys are {', '.join(keys)}"
                )
        # Of system partitions, this server has none: docs/fluss/messages.md#historical-partitions
        response = pb.ListPartitionInfosResponse()
        if request.include_system_partitions:
            response.system_partitions_included = True
        for partition in sorted(entry.partitions.values(), key=lambda p: p.partition_id):
            values = dict(zip(keys, partition.values, strict=True))
            if wanted.items() <= values.items():
                spec = response.partitions_info.add(
                    partition_id=partition.partition_id,
                    remote_data_dir=self._remote_dir,
                    bucket_count=bucket_count_in(entry.info, partition),
                ).partition_spec
                for key, value in values.items():
                    spec.partition_key_values.add(key=key, value=value)
        return response

    def get_lake_snapshot(self, request: pb.GetLakeSnapshotRequest) -> pb.GetLakeSnapshotResponse:
        info = self._catalog.table(path_of(request.table_path)).info
        snapshot_id = request.snapshot_id if request.HasField("snapshot_id") else None
        if snapshot_id is not None and request.readable:
            raise UnknownServerError("request either a snapshot_id or readable, not both")
        found = self._lake.get(info, snapshot_id, readable=request.readable)
        response = pb.GetLakeSnapshotResponse(table_id=info.table_id, snapshotId=found.snapshot_id)
        for bucket, offset in found.offsets.items():
            response.bucket_snapshots.add(
                partition_id=bucket.partition_id, bucket_id=bucket.bucket, log_offset=offset
            )
        return response

    def get_filesystem_security_token(
        self,
        request: pb.GetFileSystemSecurityTokenRequest,  # noqa: ARG002
    ) -> pb.GetFileSystemSecurityTokenResponse:
        """Returns an empty token: remote data is stored in local files, which need none."""
        return pb.GetFileSystemSecurityTokenResponse(schema="file", token=b"")


def api_versions(role: Role, offered: Iterable[Api]) -> Handler:
    """The ApiVersions handler of a server that offers these calls and ApiVersions."""
    response = pb.ApiVersionsResponse(server_type=role.value, server_version=__version__)
    for api in sorted((apis.API_VERSIONS, *offered), key=lambda api: api.key):
        response.api_versions.add(api_key=api.key, min_version=0, max_version=api.max_version)
    return lambda request: response  # noqa: ARG005 - every client gets the same response


def _node(address: tuple[str, int]) -> pb.PbServerNode:
    host, port = address
    return pb.PbServerNode(node_id=NODE_ID, host=host, port=port)
