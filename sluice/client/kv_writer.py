"""Puts Arrow data into a table with a primary key: upserts, deletes, partial updates."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from sluice.client.admin import Admin
from sluice.client.bucket_writer import ACKS_ALL, BucketWriter
from sluice.client.connection import Connection
from sluice.client.sent_batches import WriterJournal
from sluice.errors import InvalidTargetColumn, NonPrimaryKeyTable
from sluice.formats.kv_batch import build_kv_batch
from sluice.formats.primary_keys import primary_keys
from sluice.formats.row_arrays import encode_rows
from sluice.formats.types import arrow_schema
from sluice.model import Schema, TableBucket, TableInfo, TablePath
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb


class KvWriter(BucketWriter):
    """Upserts and deletes rows of one table. Use it as a context manager: leaving it flushes.

    Changes of one key are applied in the order of the calls. See ``BucketWriter`` for what every
    writer keeps to.
    """

    _API = apis.PUT_KV

    def __init__(
        self,
        connection: Connection,
        admin: Admin,
        path: TablePath,
        *,
        target_columns: Sequence[str] | None = None,
        dynamic_partitions: bool = False,
        journal: WriterJournal | None = None,
    ) -> None:
        """:param target_columns: writes these columns only, the primary key among them; the others
            of a row keep their values, or are null in a new one. A delete makes the target columns
            null, and the row goes once the others are null too.
        :param dynamic_partitions: creates a partition when the first row for it comes.
        :param journal: see ``BucketWriter``.

        :raises TableNotExist: :raises NonPrimaryKeyTable: for a log table.
        :raises InvalidTargetColumn: for columns that cannot be written alone.
        """
        start = journal.start if journal else None
        info = admin.table_info(path, start.schema_id if start else None)
        if not info.has_primary_key:
            raise NonPrimaryKeyTable(f"table {path} has no primary key: append rows to its log")
        self._targets = _targets(info, target_columns)
        schema = info.schema
        self._written = _part(schema, target_columns or schema.names)
        self._keys = _part(schema, schema.primary_key)
        self._columns = arrow_schema(schema)
        self._types = [column.data_type for column in schema.columns]
        self._row_format = info.descriptor.properties.get("table.kv.format", "COMPACTED").upper()
        super().__init__(
            connection, admin, info, dynamic_partitions=dynamic_partitions, journal=journal
        )

    def upsert(self, data: pa.Table | pa.RecordBatch) -> None:
        """Takes rows that replace those of the same key; columns go by name and are cast where
        nothing is lost by it. A nullable column that the data lack is null.

        Returns before they are stored: see :meth:`flush`. If the rows do not fit the table, or a
        partition is missing, none of them is taken. Data of many rows are encoded at once: hand
        over a few million at a time, each call holds a copy until its rows are on their way.

        :raises FlussError: what is wrong with the rows, or the failure of an earlier batch, with
            the name of its bucket.
        """
        self._take(data, self._written, self._upserts)

    def delete(self, keys: pa.Table | pa.RecordBatch) -> None:
        """Takes keys whose rows go; nothing happens where there is none, or no such partition.

        :param keys: the columns of the primary key; others are passed over.
        :raises InvalidTable: a column of the primary key is missing, or holds nulls.
        :raises FlussError: as ``upsert``; DeletionDisabled where the table allows none.
        """
        self._take(self._key_part(keys), self._keys, self._deletes, where_partitions_are=True)

    def check_upsert(self, data: pa.Table | pa.RecordBatch) -> set[tuple[str, ...]]:
        """Raises what :meth:`upsert` would say of these rows, and takes none.

        :returns: the partitions that they belong to; whether these exist is not looked up.
        :raises FlussError: what is wrong with the rows.
        """
        return self._check(data, self._written, self._upserts)

    def check_delete(self, keys: pa.Table | pa.RecordBatch) -> set[tuple[str, ...]]:
        """As :meth:`check_upsert`, for :meth:`delete`."""
        return self._check(self._key_part(keys), self._keys, self._deletes)

    def _key_part(self, keys: pa.Table | pa.RecordBatch) -> pa.Table | pa.RecordBatch:
        return keys.select([n for n in keys.schema.names if n in self.info.schema.primary_key])

    def _upserts(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        whole = rows
        if self._targets:  # what is not among the targets is null, and not looked at
            arrays = [
                rows.column(field.name)
                if field.name in rows.schema.names
                else pa.nulls(rows.num_rows, field.type)
                for field in self._columns
            ]
            whole = pa.RecordBatch.from_arrays(arrays, schema=self._columns)
        encoded = encode_rows(whole, self._types, self._row_format)
        return _content(primary_keys(rows, self.info), encoded)

    def _deletes(self, keys: pa.RecordBatch) -> pa.RecordBatch:
        return _content(primary_keys(keys, self.info), pa.nulls(keys.num_rows, pa.binary()))

    def _batch(self, content: pa.RecordBatch, writer_id: int, sequence: int) -> bytes:
        keys, rows = content.columns
        return build_kv_batch(keys, rows, self.info.schema_id, writer_id, sequence)

    def _request(self, bucket: TableBucket, records: bytes) -> pb.PutKvRequest:
        request = pb.PutKvRequest(
            acks=ACKS_ALL,
            table_id=bucket.table_id,
            timeout_ms=self._connection.config.request_timeout_ms,
            target_columns=self._targets,
        )
        request.buckets_req.add(
            partition_id=bucket.partition_id, bucket_id=bucket.bucket, records=records
        )
        return request


def _content(keys: pa.Array, rows: pa.Array) -> pa.RecordBatch:
    """What waits for a bucket: keys and their rows; a null row deletes its key."""
    return pa.RecordBatch.from_arrays([keys, rows], ["key", "row"])


def _part(schema: Schema, names: Sequence[str]) -> Schema:
    """Some columns of a schema, in its order."""
    return Schema(tuple(column for column in schema.columns if column.name in names))


def _targets(info: TableInfo, names: Sequence[str] | None) -> list[int]:
    """Positions of the target columns; none for whole rows."""
    if names is None:
        return []
    schema, path = info.schema, info.path
    if not names:
        raise InvalidTargetColumn(f"table {path}: name target columns, or leave them out")
    for name in names:
        if name not in schema.names:
            raise InvalidTargetColumn(
                f"table {path} has no column {name!r}; it has {', '.join(schema.names)}"
            )
    for column in schema.columns:
        if column.name in names:
            continue
        if column.name in schema.primary_key:
            raise InvalidTargetColumn(
                f"table {path}: the target columns lack the key column {column.name!r}"
            )
        if not column.data_type.nullable:
            raise InvalidTargetColumn(
                f"table {path}: column {column.name!r} is NOT NULL, so each write must have it"
            )
    return [at for at, column in enumerate(schema.columns) if column.name in names]
