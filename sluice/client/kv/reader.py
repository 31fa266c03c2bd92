"""Reads rows of a primary-key table from the cluster: by key, by key prefix, or the first ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from sluice.client.admin.admin import Admin
from sluice.client.admin.schemas import TableSchemas
from sluice.client.connection.connection import Connection
from sluice.errors import (
    CorruptMessage,
    InvalidScanRequest,
    InvalidTable,
    NonPrimaryKeyTable,
    PartitionNotExists,
    RecordTooLarge,
)
from sluice.formats.keys.bucketing import bucket_hashes, bucket_keys, numbered
from sluice.formats.keys.keys import encode_key
from sluice.formats.keys.partitions import partition_values
from sluice.formats.keys.primary_keys import key_format, physical_primary_key, primary_keys
from sluice.formats.kv.value_batch import decode_values, values_of
from sluice.formats.types.conform import conform
from sluice.formats.types.types import arrow_schema
from sluice.model import Partition, Schema, TableBucket, TableInfo, TablePath, bucket_count_in
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from sluice.wire.apis import Api
from sluice.wire.error_codes import raise_in_body
from sluice.wire.messages.table_paths import bucket_ids

T = TypeVar("T")

_KEYS_MAX = 4096
"""Maximum keys in one request; it is halved while the rows do not fit into one response."""
_PREFIXES_MAX = 64
_LIMIT_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class _BucketKeys:
    """Keys of one bucket, and the row of the caller's batch that each belongs to."""

    bucket: TableBucket
    keys: list[bytes]
    rows: np.ndarray
    routed_by: int
    """The number of buckets among which this one was computed."""


class KvReader:
    """Reads rows of one primary-key table in the schema that it had when the reader was created.

    Safe for use by many threads. It also finds partitions that are created later. Keys and values
    are single byte strings in Fluss's messages, so Python handles them one by one; rows are encoded
    and decoded as columns.
    """

    def __init__(
        self, connection: Connection, admin: Admin, path: TablePath, info: TableInfo | None = None
    ) -> None:
        """:param info: the table's description, if the caller has just read it.

        :raises TableNotExist: the table does not exist.
        :raises NonPrimaryKeyTable: the table is a log table.
        """
        self.info = info or admin.table_info(path)
        if not self.info.has_primary_key:
            raise NonPrimaryKeyTable(
                f"table {path} has no primary key: read its log with log_reader"
            )
        self._connection = connection
        self._admin = admin
        self._schemas = TableSchemas(admin, self.info)
        properties = self.info.descriptor.properties
        self._row_format = properties.get("table.kv.format", "COMPACTED").upper()

    def lookup(self, keys: pa.Table | pa.RecordBatch) -> pa.Table:
        """Returns one row per key, in the order of the keys; all columns are null without a row.

        :param keys: the columns of the primary key.
        :raises InvalidTable: ``keys`` has other columns, or a null.
        :raises SchemaNotExist: a row was written with a newer schema than this reader's.
        :raises RecordTooLarge: a single row does not fit into one response.
        """
        batch = self._conformed(keys, self.info.schema.primary_key)
        found: list[bytes | None] = [None] * batch.num_rows
        for wanted in self._wanted(batch, primary_keys(batch, self.info)):
            values = self._halving(apis.LOOKUP, wanted, _values, _KEYS_MAX)
            for row, value in zip(wanted.rows.tolist(), values, strict=True):
                found[row] = value
        return self._table(found)

    def prefix_lookup(self, prefixes: pa.Table | pa.RecordBatch) -> pa.Table:
        """Returns all rows whose primary key starts with a prefix, in the order of the prefixes.

        :param prefixes: the columns of the bucket key, which must be the first columns of the
            primary key (but not all of them), and of the partition keys.
        :raises InvalidTable: the table has no such bucket key, or ``prefixes`` has other columns
            or a null.
        :raises FlussError: see :meth:`lookup`.
        """
        columns = self._prefix_columns()
        batch = self._conformed(prefixes, self.prefix_columns)
        encoded = encode_key(batch, columns, self.info.schema, key_format(self.info))
        found: list[list[bytes]] = [[] for _ in range(batch.num_rows)]
        for wanted in self._wanted(batch, encoded):
            lists = self._halving(apis.PREFIX_LOOKUP, wanted, _value_lists, _PREFIXES_MAX)
            for row, values in zip(wanted.rows.tolist(), lists, strict=True):
                found[row] = values
        return self._table([value for values in found for value in values])

    @property
    def prefix_columns(self) -> tuple[str, ...]:
        """The columns for :meth:`prefix_lookup`: partition keys, then bucket key.

        :raises InvalidTable: the table does not support look-ups by prefix.
        """
        return (*self.info.descriptor.partition_keys, *self._prefix_columns())

    def limit_scan(self, limit: int, partition: str | None = None) -> pa.Table:
        """Returns at most ``limit`` rows, bucket by bucket, each bucket in key order.

        :param partition: the name of a partition, required for a partitioned table.
        :raises InvalidScanRequest: the limit is not a valid number of rows.
        :raises PartitionNotExists: the partition does not exist, or none is named.
        :raises RecordTooLarge: the rows of one bucket do not fit into one response.
        """
        if not 0 < limit <= _LIMIT_MAX:
            raise InvalidScanRequest(f"limit = {limit}: use 1 to {_LIMIT_MAX} rows")
        tables: list[pa.Table] = []
        left, found = limit, self._partition(partition)
        partition_id = None if found is None else found.partition_id
        for number in range(bucket_count_in(self.info, found)):
            if not left:
                break
            bucket = TableBucket(self.info.table_id, partition_id, number)
            request = pb.LimitScanRequest(limit=left, **bucket_ids(bucket))
            values = self._call(bucket, apis.LIMIT_SCAN, request, _scanned)
            tables.append(self._decoded(values))
            left -= tables[-1].num_rows
        return pa.concat_tables(tables)

    # ---- requests ----

    def _conformed(self, data: pa.Table | pa.RecordBatch, columns: Sequence[str]) -> pa.RecordBatch:
        fields = tuple(column for column in self.info.schema.columns if column.name in columns)
        return conform(data, Schema(fields))

    def _prefix_columns(self) -> tuple[str, ...]:
        columns, primary_key = bucket_keys(self.info), physical_primary_key(self.info)
        lake = (key_format(self.info) or "").lower()
        if columns != primary_key[: len(columns)] or columns == primary_key or lake == "paimon":
            raise InvalidTable(
                f"table {self.info.path}: a look-up by prefix needs a bucket key that is a prefix"
                f" of the primary key ({', '.join(primary_key)}); the bucket key is"
                f" {', '.join(columns)}"
            )
        return columns

    def _wanted(self, batch: pa.RecordBatch, keys: pa.Array) -> list[_BucketKeys]:
        """Groups keys by bucket; keys of missing partitions are left out."""
        partitions = {one.values: one for one in self._partitions()}
        found = []
        for values, indices in partition_values(batch, self.info):
            if values and values not in partitions:
                continue
            partition = partitions[values] if values else None
            partition_id = None if partition is None else partition.partition_id
            hashes = bucket_hashes(batch.take(pa.array(indices)), self.info)
            assert hashes is not None, "a primary-key table has a bucket key"
            count = bucket_count_in(self.info, partition)
            numbers = numbered(hashes, count)
            for number in np.unique(numbers).tolist():
                rows = indices[numbers == number]
                bucket = TableBucket(self.info.table_id, partition_id, number)
                together = keys.take(pa.array(rows)).to_pylist()
                found.append(_BucketKeys(bucket, together, rows, count))
        return found

    def _partitions(self) -> list[Partition]:
        return self._admin.partitions_of(self.info) if self.info.is_partitioned else []

    def _partition(self, name: str | None) -> Partition | None:
        if not self.info.is_partitioned and name is None:
            return None
        for partition in self._partitions():
            if partition.name == name:
                return partition
        given = f"partition {name}" if name is not None else "partition without a name"
        raise PartitionNotExists(f"table {self.info.path} has no {given}")

    # ---- calls ----

    def _halving(
        self, api: Api, wanted: _BucketKeys, read: Callable[[Any], list[T]], most: int
    ) -> list[T]:
        """Calls with as many keys at once as fit into a response; returns one result per key."""
        found: list[T] = []
        while len(found) < len(wanted.keys):
            keys = wanted.keys[len(found) : len(found) + most]
            try:
                found += self._of_keys(api, wanted, keys, read)
            except RecordTooLarge:
                if len(keys) == 1:
                    raise
                most = len(keys) // 2
        return found

    def _of_keys(
        self, api: Api, wanted: _BucketKeys, keys: list[bytes], read: Callable[[Any], list[T]]
    ) -> list[T]:
        bucket = wanted.bucket
        request: Any = api.request(table_id=bucket.table_id)
        request.buckets_req.add(
            partition_id=bucket.partition_id, bucket_id=bucket.bucket, keys=keys
        )

        def unpack(reply: Any) -> list[T]:
            _check_count(len(reply.buckets_resp), 1, api.name)
            raise_in_body(reply.buckets_resp[0])
            found = read(reply.buckets_resp[0])
            _check_count(len(found), len(keys), api.name)
            return found

        return self._call(bucket, api, request, unpack, wanted.routed_by)

    def _call(
        self,
        bucket: TableBucket,
        api: Api,
        request: Any,
        unpack: Callable[[Any], T],
        routed_by: int | None = None,
    ) -> T:
        return self._connection.call_leader(
            self.info.path, bucket, api, request, unpack, routed_by=routed_by
        )

    # ---- responses ----

    def _table(self, values: Sequence[bytes | None]) -> pa.Table:
        return self._decoded(pa.array(values, pa.binary()))

    def _decoded(self, values: pa.Array) -> pa.Table:
        """Decodes rows of any schema; every column is nullable, since a row may be missing."""
        batch = decode_values(values, self._schemas, self.info.schema, self._row_format)
        return pa.Table.from_arrays(batch.columns, schema=result_schema(self.info))


def result_schema(info: TableInfo) -> pa.Schema:
    """Returns the Arrow schema of results: the table's columns, all nullable."""
    return pa.schema([field.with_nullable(True) for field in arrow_schema(info.schema)])


def _scanned(reply: Any) -> pa.Array:
    raise_in_body(reply)
    return values_of(reply.records) if reply.records else pa.array([], pa.binary())


def _values(answer: Any) -> list[bytes | None]:
    return [one.values if one.HasField("values") else None for one in answer.values]


def _value_lists(answer: Any) -> list[list[bytes]]:
    return [list(one.values) for one in answer.value_lists]


def _check_count(found: int, asked: int, name: str) -> None:
    if found != asked:
        raise CorruptMessage(f"{name}: the server returned {found} results for {asked} keys")
