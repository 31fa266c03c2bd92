"""Administration of a cluster: databases, tables, partitions, offsets and lake snapshots."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal

from sluice.catalog_options import LAYOUT
from sluice.client.admin.missing_leaders import await_leaders, tables_without_leaders
from sluice.client.connection.connection import Connection
from sluice.errors import (
    CorruptMessage,
    DatabaseNotExist,
    InvalidTimestamp,
    LakeSnapshotNotExist,
    NetworkError,
    PartitionSpecInvalid,
    RequestTimeOut,
    UnsupportedVersion,
)
from sluice.formats.types.descriptors import (
    data_type_to_json,
    descriptor_from_json,
    descriptor_to_json,
    schema_from_json,
)
from sluice.iceberg_rules.layout import Layout
from sluice.masking import mask
from sluice.model import (
    Bucketed,
    Column,
    LakeSnapshotInfo,
    Partition,
    Schema,
    ServerInfo,
    TableBucket,
    TableDescriptor,
    TableInfo,
    TablePath,
    bucket_count_in,
)
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from sluice.wire.error_codes import raise_in_body
from sluice.wire.messages import values
from sluice.wire.messages.table_paths import bucket_in, path_of, table_path

_LOG = logging.getLogger(__name__)
_SINCE_1_0 = 1
"""The version of AlterTable that came with Fluss 1.0 (docs/fluss/rpc.md#api-keys)."""
_DESCRIBED_MAX = 200
"""Most tables of one metadata request."""


class Admin:
    """Administration of one cluster. Safe for use by many threads."""

    def __init__(self, connection: Connection) -> None:
        self._connection, self._ask = connection, connection.ask_coordinator

    def servers(self) -> list[ServerInfo]:
        """Returns the servers of the cluster with version and missing calls, coordinator first.

        :raises FlussError: a server cannot be reached.
        """
        return self._connection.describe()

    # ---- databases ----

    def create_database(self, name: str, ignore_if_exists: bool = False) -> None:
        """Creates a database.

        :raises DatabaseAlreadyExist: it exists, and ``ignore_if_exists`` is not set.
        """
        request = pb.CreateDatabaseRequest(database_name=name, ignore_if_exists=ignore_if_exists)
        self._ask(apis.CREATE_DATABASE, request, idempotent=ignore_if_exists)

    def drop_database(
        self, name: str, cascade: bool = False, ignore_if_not_exists: bool = False
    ) -> None:
        """Drops a database.

        :param cascade: drop its tables too.
        :raises DatabaseNotEmpty: it has tables, and ``cascade`` is not set.
        :raises DatabaseNotExist: unless ``ignore_if_not_exists`` is set.
        """
        request = pb.DropDatabaseRequest(
            database_name=name, ignore_if_not_exists=ignore_if_not_exists, cascade=cascade
        )
        self._ask(apis.DROP_DATABASE, request, idempotent=ignore_if_not_exists)

    def list_databases(self) -> list[str]:
        """Returns the names of all databases."""
        reply = self._ask(apis.LIST_DATABASES, pb.ListDatabasesRequest())
        return list(reply.database_name)

    def database_exists(self, name: str) -> bool:
        """Returns whether a database of this name exists."""
        reply = self._ask(apis.DATABASE_EXISTS, pb.DatabaseExistsRequest(database_name=name))
        return bool(reply.exists)

    # ---- tables ----

    def create_table(
        self, path: TablePath, descriptor: TableDescriptor, ignore_if_exists: bool = False
    ) -> None:
        """Creates a table.

        :raises TableAlreadyExist: unless ``ignore_if_exists`` is set.
        :raises DatabaseNotExist: the database does not exist.
        :raises InvalidTable: the message names the part of the descriptor that is not valid.
        """
        request = pb.CreateTableRequest(
            table_path=table_path(path),
            table_json=descriptor_to_json(descriptor),
            ignore_if_exists=ignore_if_exists,
        )
        self._ask(apis.CREATE_TABLE, request, idempotent=ignore_if_exists)

    def drop_table(self, path: TablePath, ignore_if_not_exists: bool = False) -> None:
        """Drops a table.

        :raises TableNotExist: unless ``ignore_if_not_exists`` is set.
        """
        request = pb.DropTableRequest(
            table_path=table_path(path), ignore_if_not_exists=ignore_if_not_exists
        )
        self._ask(apis.DROP_TABLE, request, idempotent=ignore_if_not_exists)

    def table_exists(self, path: TablePath) -> bool:
        """Returns whether a table exists at this path."""
        reply = self._ask(apis.TABLE_EXISTS, pb.TableExistsRequest(table_path=table_path(path)))
        return bool(reply.exists)

    def list_tables(self, database: str) -> list[str]:
        """Returns the names of the tables of a database.

        :raises DatabaseNotExist: the database does not exist.
        """
        reply = self._ask(apis.LIST_TABLES, pb.ListTablesRequest(database_name=database))
        return list(reply.table_name)

    def all_tables(self) -> list[TablePath]:
        """Returns the paths of the tables of all databases, sorted."""
        found = []
        for database in sorted(self.list_databases()):
            with suppress(DatabaseNotExist):  # dropped since it was listed
                found += [TablePath(database, name) for name in sorted(self.list_tables(database))]
        return found

    def table_info(self, path: TablePath) -> TableInfo:
        """Returns the description of a table.

        :raises TableNotExist: the table does not exist.
        """
        reply = self._ask(apis.GET_TABLE_INFO, pb.GetTableInfoRequest(table_path=table_path(path)))
        return _table_info(path, reply)

    def table_infos(self, paths: Sequence[TablePath]) -> dict[TablePath, TableInfo]:
        """Returns the descriptions of several tables, by one call; learns the leaders, too.

        Apache Fluss leaves the options of the lake itself (``table.datalake.iceberg.*``) out.

        :raises FlussError: for all of them, if one of them does not exist.
        """
        found = {}
        for reply in self._connection.describe_tables(paths).table_metadata:
            path = path_of(reply.table_path)
            found[path] = _table_info(path, reply)
        return found

    def known_infos(
        self, paths: Sequence[TablePath], *, must_answer: bool = False
    ) -> dict[TablePath, TableInfo]:
        """Returns the descriptions of those tables that can be described, by few calls.

        A call fails if one of its tables was dropped, or has a descriptor that this version cannot
        read. It is then repeated for each half, unless the cluster did not answer.

        :param must_answer: raise the error if it did not; else its tables are left out, too.
        """
        found: dict[TablePath, TableInfo] = {}
        for at in range(0, len(paths), _DESCRIBED_MAX):
            found |= self._known_infos(paths[at : at + _DESCRIBED_MAX], must_answer)
        return found

    def _known_infos(
        self, paths: Sequence[TablePath], must_answer: bool
    ) -> dict[TablePath, TableInfo]:
        try:
            return self.table_infos(paths)
        except Exception as error:
            is_away = isinstance(error, (NetworkError, RequestTimeOut))
            if is_away and must_answer:
                raise
            if is_away or len(paths) < 2:
                _LOG.info("table %s cannot be described: %s", paths[0], mask(str(error)))
                return {}
        half = len(paths) // 2
        return self._known_infos(paths[:half], must_answer) | self._known_infos(
            paths[half:], must_answer
        )

    def without_leaders(self, infos: Sequence[TableInfo], *, may_be_missed: bool) -> dict[int, str]:
        """The tables without leaders: see :func:`tables_without_leaders`."""
        return tables_without_leaders(self._connection, infos, may_be_missed=may_be_missed)

    def await_leaders(self, info: TableInfo, *, is_new: bool = True) -> str | None:
        """Waits until a table has its leaders, ten seconds at most.

        :return: what an old table lacks after this time, and the next step; None: nothing.
        :raises LeaderNotAvailable: a new table has none after this time, or it was missed.
        """
        return await_leaders(self._connection, info, is_new=is_new)

    def lake_layout(self) -> Layout:
        """Returns the layout of the lake tables that the cluster makes.

        Apache Fluss makes clean ones from 1.0 on, which is the first version with AlterTable 1. An
        embedded server makes clean ones unless its setting says otherwise.
        """
        reply = self._connection.coordinator_versions()
        newest = {one.api_key: one.max_version for one in reply.api_versions}
        is_sluice = reply.HasField("server_version")
        if is_sluice and apis.DESCRIBE_CLUSTER_CONFIGS.key in newest:
            told = self._ask(apis.DESCRIBE_CLUSTER_CONFIGS, pb.DescribeClusterConfigsRequest())
            settings = {one.config_key: one.config_value for one in told.configs}
            return Layout(settings.get(f"datalake.iceberg.{LAYOUT}", Layout.CLEAN.value).lower())
        is_clean = is_sluice or newest.get(apis.ALTER_TABLE.key, 0) >= _SINCE_1_0
        return Layout.CLEAN if is_clean else Layout.LEGACY

    def schema(self, path: TablePath, schema_id: int | None = None) -> Schema:
        """Returns a schema of a table, by default the latest.

        :raises SchemaNotExist: the table never had a schema of that id.
        """
        request = pb.GetTableSchemaRequest(table_path=table_path(path), schema_id=schema_id)
        return schema_from_json(self._ask(apis.GET_TABLE_SCHEMA, request).schema_json)

    def add_columns(self, path: TablePath, columns: Sequence[Column]) -> None:
        """Adds nullable columns after the existing ones; the server assigns their ids.

        :raises InvalidAlterTable: the table cannot be altered like this.
        """
        request = pb.AlterTableRequest(table_path=table_path(path), ignore_if_not_exists=False)
        for column in columns:
            request.add_columns.add(
                column_name=column.name,
                data_type_json=json.dumps(data_type_to_json(column.data_type)).encode(),
                comment=column.comment,
                column_position_type=values.POSITION_LAST,
            )
        self._ask(apis.ALTER_TABLE, request)

    def set_options(self, path: TablePath, options: Mapping[str, str | None]) -> None:
        """Sets options of a table, all or none; None resets an option to its default.

        :raises InvalidConfig, InvalidAlterTable: an option cannot be changed like this.
        :raises LakeTableAlreadyExist: tiering is turned on, but the existing lake table does not
            match.
        """
        request = pb.AlterTableRequest(table_path=table_path(path), ignore_if_not_exists=False)
        for key, value in options.items():
            kind = values.ALTER_SET if value is not None else values.ALTER_DELETE
            request.config_changes.add(config_key=key, config_value=value, op_type=kind)
        self._ask(apis.ALTER_TABLE, request)

    def set_bucket_count(self, path: TablePath, count: int) -> None:
        """Sets the number of buckets of the partitions that are created from now on.

        :raises UnsupportedVersion: the server does not know it; Fluss knows it since 1.0.
        :raises InvalidAlterTable: the table has no partitions, or is tiered.
        """
        if not self._connection.coordinator_offers(apis.ALTER_TABLE, _SINCE_1_0):
            raise UnsupportedVersion(
                f"table {path}: this cluster cannot alter the number of buckets of a table; Fluss"
                " can since version 1.0"
            )
        request = pb.AlterTableRequest(table_path=table_path(path), ignore_if_not_exists=False)
        request.modify_bucket_count.new_bucket_count = count
        self._ask(apis.ALTER_TABLE, request)

    # ---- partitions ----

    def create_partition(
        self, path: TablePath, values: Mapping[str, str], ignore_if_exists: bool = False
    ) -> None:
        """Creates a partition.

        :param values: the text of each partition key, see docs/fluss/messages.md#partition-names
        """
        request = pb.CreatePartitionRequest(
            table_path=table_path(path),
            partition_spec=_spec(values),
            ignore_if_not_exists=ignore_if_exists,  # Fluss's name; it means "if it exists"
        )
        self._ask(apis.CREATE_PARTITION, request, idempotent=ignore_if_exists)

    def drop_partition(
        self, path: TablePath, values: Mapping[str, str], ignore_if_not_exists: bool = False
    ) -> None:
        request = pb.DropPartitionRequest(
            table_path=table_path(path),
            partition_spec=_spec(values),
            ignore_if_not_exists=ignore_if_not_exists,
        )
        self._ask(apis.DROP_PARTITION, request, idempotent=ignore_if_not_exists)

    def partitions(self, path: TablePath) -> list[Partition]:
        """Returns the partitions of a table, ordered by id.

        :raises TableNotPartitioned: the table has no partition keys.
        """
        return self.partitions_of(self.table_info(path))

    def partitions_of(self, info: TableInfo) -> list[Partition]:
        """Returns the partitions of a table whose description the caller has, ordered by id."""
        request = pb.ListPartitionInfosRequest(table_path=table_path(info.path))
        reply = self._ask(apis.LIST_PARTITION_INFOS, request)
        keys = info.descriptor.partition_keys
        return _by_id(_partition(entry, keys) for entry in reply.partitions_info)

    def partition_counts(self, path: TablePath, table: Bucketed) -> dict[int, int]:
        """Returns the bucket count of each partition of a partitioned table by id, sorted."""
        request = pb.ListPartitionInfosRequest(table_path=table_path(path))
        reply = self._ask(apis.LIST_PARTITION_INFOS, request)
        found = [_partition(entry, ()) for entry in reply.partitions_info]
        return {one.partition_id: bucket_count_in(table, one) for one in _by_id(found)}

    # ---- offsets and lake snapshots ----

    def list_offsets(
        self,
        path: TablePath,
        buckets: Sequence[int] | None = None,
        partition_id: int | None = None,
        timestamp_ms: int | Literal["earliest", "latest"] | None = None,
        *,
        table_id: int | None = None,
    ) -> dict[int, int]:
        """Returns one log offset for each bucket.

        :param buckets: all buckets by default.
        :param timestamp_ms: ``latest`` (the default) is the exclusive end, ``earliest`` the start;
            epoch milliseconds give the first offset committed at or after that time.
        :param table_id: saves one request; the call fails if the path has another table now.
        :raises TableNotExist, PartitionNotExists, UnknownTableOrBucket:
        """
        if table_id is None or buckets is None:
            info = self.table_info(path)
            table_id = info.table_id if table_id is None else table_id
            buckets = self._all_buckets(info, partition_id) if buckets is None else buckets
        request = pb.ListOffsetsRequest(
            follower_server_id=-1,
            offset_type=values.OFFSET_LATEST,
            table_id=table_id,
            partition_id=partition_id,
        )
        if timestamp_ms == "earliest":
            request.offset_type = values.OFFSET_EARLIEST
        elif isinstance(timestamp_ms, int):
            request.offset_type = values.OFFSET_BY_TIMESTAMP
            request.startTimestamp = timestamp_ms
        elif timestamp_ms not in (None, "latest"):
            raise InvalidTimestamp(
                f"offsets of {path}: {timestamp_ms!r} is not a timestamp: use 'earliest', 'latest'"
                " or epoch milliseconds"
            )
        offsets: dict[int, int] = {}
        left = [TableBucket(table_id, partition_id, bucket) for bucket in buckets]
        while left:
            # One request covers all buckets with the same known leader. Leaders are read once here,
            # because other threads update them concurrently.
            leaders = [self._connection.known_leader(bucket) for bucket in left]
            together = [b for b, leader in zip(left, leaders, strict=True) if leader == leaders[0]]
            offsets.update(self._offsets_of(path, request, together))
            left = [bucket for bucket in left if bucket.bucket not in offsets]
        return {bucket: offsets[bucket] for bucket in buckets}

    def table_offsets(
        self, info: TableInfo, timestamp_ms: int | Literal["earliest", "latest"] | None = None
    ) -> dict[TableBucket, int]:
        """Returns one log offset for each bucket of a table, in all partitions that exist now.

        :param timestamp_ms: as of :meth:`list_offsets`.
        :raises TableNotExist, PartitionNotExists, UnknownTableOrBucket: the table or a partition
            was dropped meanwhile.
        """
        partitions: list[Partition | None] = [None]
        if info.is_partitioned:
            partitions = [*self.partitions_of(info)]
            if ids := [one.partition_id for one in partitions if one is not None]:
                self._connection.describe_tables([info.path], ids)  # learns all leaders at once
        found: dict[TableBucket, int] = {}
        for partition in partitions:
            partition_id = None if partition is None else partition.partition_id
            offsets = self.list_offsets(
                info.path,
                range(bucket_count_in(info, partition)),
                partition_id,
                timestamp_ms,
                table_id=info.table_id,
            )
            for number, offset in offsets.items():
                found[TableBucket(info.table_id, partition_id, number)] = offset
        return found

    def lake_snapshot(
        self, path: TablePath, snapshot_id: int | None = None
    ) -> LakeSnapshotInfo | None:
        """Returns a lake snapshot registered in Fluss, by default the latest; None if none exists.

        :raises TableNotExist: the table does not exist.
        """
        request = pb.GetLakeSnapshotRequest(table_path=table_path(path), snapshot_id=snapshot_id)
        try:
            reply = self._ask(apis.GET_LAKE_SNAPSHOT, request)
        except LakeSnapshotNotExist:
            return None
        offsets = {
            bucket_in(entry, reply.table_id): entry.log_offset
            for entry in reply.bucket_snapshots
            if entry.HasField("log_offset")
        }
        return LakeSnapshotInfo(reply.table_id, reply.snapshotId, offsets)

    def _all_buckets(self, info: TableInfo, partition_id: int | None) -> range:
        """The buckets of a partition, or of a table without partitions."""
        partition: Partition | None = None
        if info.is_partitioned and partition_id is not None:
            of_id = {one.partition_id: one for one in self.partitions_of(info)}
            partition = of_id.get(partition_id)  # None: dropped, which the call itself finds
        return range(bucket_count_in(info, partition))

    def _offsets_of(
        self, path: TablePath, request: pb.ListOffsetsRequest, buckets: Sequence[TableBucket]
    ) -> dict[int, int]:
        """Returns the offsets of the first bucket and of the others with the same leader."""
        del request.bucket_id[:]
        request.bucket_id.extend(bucket.bucket for bucket in buckets)

        def unpack(reply: Any) -> dict[int, int]:
            entries = {entry.bucket_id: entry for entry in reply.buckets_resp}
            if buckets[0].bucket not in entries:
                raise CorruptMessage(
                    f"ListOffsets of {path}: the server returned no offset for bucket {buckets[0]}"
                )
            raise_in_body(entries[buckets[0].bucket])
            return {b: e.offset for b, e in entries.items() if not e.error_code}

        return self._connection.call_leader(path, buckets[0], apis.LIST_OFFSETS, request, unpack)


def _table_info(path: TablePath, reply: Any) -> TableInfo:
    """The table that a response describes."""
    return TableInfo(
        path=path,
        table_id=reply.table_id,
        schema_id=reply.schema_id,
        descriptor=descriptor_from_json(reply.table_json),
        created_ms=reply.created_time,
        modified_ms=reply.modified_time,
    )


def _spec(values: Mapping[str, str]) -> pb.PbPartitionSpec:
    pairs = [pb.PbKeyValue(key=key, value=value) for key, value in values.items()]
    return pb.PbPartitionSpec(partition_key_values=pairs)


def _by_id(partitions: Iterable[Partition]) -> list[Partition]:
    return sorted(partitions, key=lambda partition: partition.partition_id)


def _partition(entry: Any, keys: Sequence[str]) -> Partition:
    values = {pair.key: pair.value for pair in entry.partition_spec.partition_key_values}
    try:
        found = tuple(values[key] for key in keys)
    except KeyError as error:
        raise PartitionSpecInvalid(
            f"partition {entry.partition_id} has values for {sorted(values)} only: the table's"
            f" partition key {error} is missing"
        ) from None
    return Partition(entry.partition_id, found, entry.bucket_count or None)
