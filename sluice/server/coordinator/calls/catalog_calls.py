"""The coordinator's own calls: changes to the catalog, tiering, lake snapshots.

See docs/fluss/messages.md#catalog-changes and docs/fluss/messages.md#lake-calls
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import structlog
from google.protobuf.unknown_fields import UnknownFieldSet

from sluice.errors import (
    CorruptMessage,
    DatabaseNotExist,
    FlussError,
    InvalidAlterTable,
    InvalidDatabase,
    PartitionNotExists,
    TableNotExist,
)
from sluice.formats.types.descriptors import data_type_from_json, descriptor_from_json
from sluice.model import DataType, TableBucket, TableInfo, TablePath
from sluice.server.coordinator.catalog.bucket_count_rules import with_bucket_count
from sluice.server.coordinator.catalog.catalog import Catalog
from sluice.server.coordinator.catalog.descriptor_rules import (
    Defaults,
    complete,
    partition_values,
    with_columns,
    with_options,
)
from sluice.server.coordinator.catalog.lake_rules import check_change, with_format
from sluice.server.coordinator.tiering.auto_partitioner import AutoPartitioner
from sluice.server.coordinator.tiering.lake_snapshots import LakeSnapshots, Registered
from sluice.server.coordinator.tiering.tiering import Tiering
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from sluice.wire.apis import Api
from sluice.wire.error_codes import errors_into
from sluice.wire.listeners.handlers import Handler
from sluice.wire.messages import values
from sluice.wire.messages.table_paths import bucket_in, path_of

_log = structlog.get_logger("sluice.catalog")


@dataclass(frozen=True, slots=True)
class CoordinatorService:
    """Handlers of catalog changes and lake snapshots. Stateless."""

    _catalog: Catalog
    _tiering: Tiering
    _lake: LakeSnapshots
    _drop_data: Callable[[TableInfo, int | None], None]
    """Deletes what is stored of a dropped table or partition."""
    _sync_logs: Callable[[Iterable[TableBucket]], None]
    _defaults: Defaults
    _auto_partitions: AutoPartitioner

    def handlers(self) -> Mapping[Api, Handler]:
        return {
            apis.CREATE_DATABASE: self.create_database,
            apis.ALTER_DATABASE: self.alter_database,
            apis.DROP_DATABASE: self.drop_database,
            apis.CREATE_TABLE: self.create_table,
            apis.DROP_TABLE: self.drop_table,
            apis.ALTER_TABLE: self.alter_table,
            apis.CREATE_PARTITION: self.create_partition,
            apis.DROP_PARTITION: self.drop_partition,
            apis.PREPARE_LAKE_TABLE_SNAPSHOT: self.prepare_lake_table_snapshot,
            apis.COMMIT_LAKE_TABLE_SNAPSHOT: self.commit_lake_table_snapshot,
        }

    # -- databases, tables, partitions

    def create_database(self, request: pb.CreateDatabaseRequest) -> pb.CreateDatabaseResponse:
        self._catalog.create_database(
            request.database_name, request.database_json, request.ignore_if_exists
        )
        return pb.CreateDatabaseResponse()

    def alter_database(self, request: pb.AlterDatabaseRequest) -> pb.AlterDatabaseResponse:
        """Changes custom properties and the comment of a database."""
        options = [
            _option_change(change, InvalidDatabase, f"database {request.database_name!r}, ")
            for change in request.config_changes
        ]
        comment = request.comment if request.HasField("comment") else None
        try:
            changed = self._catalog.alter_database(request.database_name, options, comment)
        except DatabaseNotExist:
            if not request.ignore_if_not_exists:
                raise
            return pb.AlterDatabaseResponse()
        if changed:
            _log.info("database altered", database=request.database_name)
        return pb.AlterDatabaseResponse()

    def drop_database(self, request: pb.DropDatabaseRequest) -> pb.DropDatabaseResponse:
        try:
            with self._tiering.catalog_change() as tiering:
                dropped = self._catalog.drop_database(
                    request.database_name, cascade=request.cascade
                )
                for info in dropped:
                    tiering.dropped(info.table_id)
        except DatabaseNotExist:
            if not request.ignore_if_not_exists:
                raise
            return pb.DropDatabaseResponse()
        for info in dropped:
            self._clean_up(info)
        return pb.DropDatabaseResponse()

    def create_table(self, request: pb.CreateTableRequest) -> pb.CreateTableResponse:
        path = path_of(request.table_path)

        def completed() -> TableInfo:
            given = descriptor_from_json(request.table_json)
            return TableInfo(path, -1, 1, complete(path, given, self._defaults), 0, 0)

        with self._tiering.catalog_change() as tiering:
            info = self._catalog.create_table(
                path, completed, request.ignore_if_exists, tiering.changed
            )
        if info is not None:
            _log.info("table created", table=str(path), table_id=info.table_id)
            self._auto_partitions.create_missing(info)
        return pb.CreateTableResponse()

    def drop_table(self, request: pb.DropTableRequest) -> pb.DropTableResponse:
        try:
            with self._tiering.catalog_change() as tiering:
                info = self._catalog.drop_table(path_of(request.table_path))
                tiering.dropped(info.table_id)
        except TableNotExist:
            if not request.ignore_if_not_exists:
                raise
            return pb.DropTableResponse()
        self._clean_up(info)
        return pb.DropTableResponse()

    def _clean_up(self, info: TableInfo) -> None:
        self._drop_data(info, None)
        self._lake.drop_table(info)
        _log.info("table dropped", table=str(info.path), table_id=info.table_id)

    def alter_table(self, request: pb.AlterTableRequest) -> pb.AlterTableResponse:
        """Adds columns and changes options in one transaction."""
        path = path_of(request.table_path)
        _check_complete(request)
        if request.drop_columns or request.rename_columns or request.modify_columns:
            raise InvalidAlterTable(
                f"table {path}: columns cannot be dropped, renamed or modified, only added at the"
                " end"
            )
        if request.HasField("modify_bucket_count"):
            return self._alter_bucket_count(path, request)
        added = [_added_column(column) for column in request.add_columns]
        options = [_option_change(change) for change in request.config_changes]

        def change(info: TableInfo) -> TableInfo:
            schema = with_columns(info, added)
            properties, custom = with_options(info, options)
            descriptor = replace(
                info.descriptor, schema=schema, properties=properties, custom_properties=custom
            )
            after = with_format(replace(info, descriptor=descriptor), self._defaults.lake)
            changed = {key for key, _ in options}
            partitions = self._catalog.table(path).partitions.values()
            check_change(info, after, changed, self._defaults.lake, partitions)
            return after

        return self._altered(path, change, request)

    def _alter_bucket_count(
        self, path: TablePath, request: pb.AlterTableRequest
    ) -> pb.AlterTableResponse:
        """Changes the number of buckets of the partitions to come."""
        if request.config_changes or request.add_columns:
            raise InvalidAlterTable(
                f"table {path}: bucket.num cannot be altered together with columns or other"
                " options: send two requests"
            )
        count = request.modify_bucket_count.new_bucket_count
        return self._altered(path, lambda info: with_bucket_count(info, count), request)

    def _altered(
        self,
        path: TablePath,
        change: Callable[[TableInfo], TableInfo],
        request: pb.AlterTableRequest,
    ) -> pb.AlterTableResponse:
        try:
            with self._tiering.catalog_change() as tiering:
                before, after = self._catalog.alter_table(path, change, tiering.changed)
        except TableNotExist:
            if not request.ignore_if_not_exists:
                raise
            return pb.AlterTableResponse()
        if after is not before:
            _log.info("table altered", table=str(path), schema_id=after.schema_id)
        return pb.AlterTableResponse()

    def create_partition(self, request: pb.CreatePartitionRequest) -> pb.CreatePartitionResponse:
        path = path_of(request.table_path)
        values = self._values(request.table_path, request.partition_spec)
        # Fluss's field has the wrong name: it means "ignore if it exists".
        self._catalog.create_partition(path, values, request.ignore_if_not_exists)
        return pb.CreatePartitionResponse()

    def drop_partition(self, request: pb.DropPartitionRequest) -> pb.DropPartitionResponse:
        path = path_of(request.table_path)
        values = self._values(request.table_path, request.partition_spec)
        try:
            partition = self._catalog.drop_partition(path, values)
        except PartitionNotExists:
            if not request.ignore_if_not_exists:
                raise
            return pb.DropPartitionResponse()
        info = self._catalog.table(path).info
        self._drop_data(info, partition.partition_id)
        return pb.DropPartitionResponse()

    def _values(self, path: pb.PbTablePath, spec: pb.PbPartitionSpec) -> tuple[str, ...]:
        info = self._catalog.require_partitioned(path_of(path)).info
        return partition_values(info, {p.key: p.value for p in spec.partition_key_values})

    # -- lake snapshots

    def prepare_lake_table_snapshot(
        self, request: pb.PrepareLakeTableSnapshotRequest
    ) -> pb.PrepareLakeTableSnapshotResponse:
        response = pb.PrepareLakeTableSnapshotResponse()
        for table in request.bucket_offsets:
            answer = response.prepare_lake_table_resp.add(table_id=table.table_id)
            with errors_into(answer):
                info = self._info(table.table_id)
                if info.path != path_of(table.table_path):
                    raise TableNotExist(
                        f"table {path_of(table.table_path)} does not have the id {table.table_id}"
                    )
                answer.lake_table_offsets_path = self._lake.prepare(
                    info,
                    _offsets(table.table_id, table.bucket_offsets),
                    ignore_previous=request.ignore_previous_table_offsets,
                )
        return response

    def commit_lake_table_snapshot(
        self, request: pb.CommitLakeTableSnapshotRequest
    ) -> pb.CommitLakeTableSnapshotResponse:
        """Registers snapshots by their offsets files, or by offsets for an old client."""
        response = pb.CommitLakeTableSnapshotResponse()
        for metadata in request.lake_table_snapshot_metadata:
            answer = response.table_resp.add(table_id=metadata.table_id)
            with errors_into(answer):
                self._commit(metadata)
        if not request.lake_table_snapshot_metadata:
            for table in request.tables_req:
                answer = response.table_resp.add(table_id=table.table_id)
                with errors_into(answer):
                    self._commit_offsets(table)
        return response

    def _commit(self, metadata: pb.PbLakeTableSnapshotMetadata) -> None:
        def given(field: str) -> int | None:
            return getattr(metadata, field) if metadata.HasField(field) else None

        readable = metadata.readable_bucket_offsets_file_path
        self._lake.commit(
            self._info(metadata.table_id),
            Registered(
                metadata.snapshot_id, metadata.tiered_bucket_offsets_file_path, readable or None
            ),
            given("earliest_snapshot_id_to_keep"),
            lambda: self._tiering.check_round(
                metadata.table_id, given("coordinator_epoch"), given("tiering_epoch")
            ),
            self._sync_logs,
        )

    def _commit_offsets(self, table: pb.PbLakeTableSnapshotInfo) -> None:
        info = self._info(table.table_id)
        offsets = _offsets(table.table_id, table.buckets_req)
        path = self._lake.prepare(info, offsets, ignore_previous=False)
        registered = Registered(table.snapshot_id, path, path)
        self._lake.commit(info, registered, -1, lambda: None, self._sync_logs)

    def _info(self, table_id: int) -> TableInfo:
        entry = self._catalog.find(table_id)
        if entry is None:
            raise TableNotExist(f"no table has the id {table_id}: was it dropped?")
        return entry.info


def _check_complete(request: pb.AlterTableRequest) -> None:
    """Refuses what this server would leave undone, because its fields are from a later version.

    :raises InvalidAlterTable: names the fields.
    """
    fields = UnknownFieldSet(request)
    unknown = sorted({fields[at].field_number for at in range(len(fields))})
    if unknown:
        numbers = ", ".join(map(str, unknown))
        raise InvalidAlterTable(
            f"table {path_of(request.table_path)}: the request has changes that this server does"
            f" not know (fields {numbers}); nothing was changed"
        )


def _offsets(table_id: int, buckets: Iterable[Any]) -> dict[TableBucket, int]:
    return {
        bucket_in(entry, table_id): entry.log_end_offset
        for entry in buckets
        if entry.HasField("log_end_offset")
    }


def _added_column(column: pb.PbAddColumn) -> tuple[str, DataType, str | None]:
    if column.column_position_type != values.POSITION_LAST:
        raise InvalidAlterTable(f"column {column.column_name!r} can only be added at the end")
    try:
        node = json.loads(column.data_type_json)
    except (ValueError, RecursionError) as error:
        raise CorruptMessage(f"column {column.column_name!r}: its type is not JSON") from error
    comment = column.comment if column.HasField("comment") else None
    return column.column_name, data_type_from_json(node), comment


def _option_change(
    change: pb.PbAlterConfig, refused: type[FlussError] = InvalidAlterTable, where: str = ""
) -> tuple[str, str | None]:
    """:param refused: the error for a change of another kind; ``where`` begins its message."""
    if change.op_type == values.ALTER_DELETE:
        return change.config_key, None
    if change.op_type != values.ALTER_SET or not change.HasField("config_value"):
        raise refused(
            f"{where}{change.config_key}: invalid op_type {change.op_type}; send SET (0) with a"
            " value, or DELETE (1)"
        )
    return change.config_key, change.config_value
