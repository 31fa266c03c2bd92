"""Writes Arrow data to a primary-key table: upserts, deletes, partial updates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from sluice.client.admin.admin import Admin
from sluice.client.batches.bucket_writer import NO_WRITER_ID, BucketWriter
from sluice.client.connection.connection import Connection
from sluice.errors import DeletionDisabled, InvalidTargetColumn, NonPrimaryKeyTable
from sluice.formats.keys.primary_keys import primary_keys
from sluice.formats.kv.kv_batch import build_kv_batch
from sluice.formats.rows.arrays import encode_rows
from sluice.formats.types.types import arrow_schema
from sluice.model import Schema, TableBucket, TableInfo, TablePath
from sluice.wire import apis


class KvWriter(BucketWriter):
    """Upserts and deletes rows of one primary-key table; a ``with`` block flushes at its end.

    Changes of one key are applied in the order of the calls. See :class:`BucketWriter` for the
    guarantees of every writer.
    """

    _API = apis.PUT_KV

    def __init__(
        self,
        connection: Connection,
        admin: Admin,
        path: TablePath,
        *,
        info: TableInfo | None = None,
        target_columns: Sequence[str] | None = None,
        dynamic_partitions: bool = False,
        idempotent: bool = True,
    ) -> None:
        """:param info: the table's description, if the caller has just read it.
        :param target_columns: write these columns only; they must include the primary key. The
            other columns keep their values, or are null in a new row. A delete sets the target
            columns to null; the row is deleted when all other columns are null too. By default all
            columns but one that the server numbers (auto-increment).
        :param dynamic_partitions: create a partition when its first row arrives.
        :param idempotent: False: a batch that is sent again is stored again, which saves a request.

        :raises TableNotExist: the table does not exist.
        :raises NonPrimaryKeyTable: the table is a log table.
        :raises InvalidTargetColumn: these columns cannot be written without the others.
        """
        info = info or admin.table_info(path)
        if not info.has_primary_key:
            raise NonPrimaryKeyTable(
                f"table {path} has no primary key: append rows with log_writer"
            )
        schema = info.schema
        self._numbered = schema.auto_increment[0] if schema.auto_increment else None
        if self._numbered is not None:
            _check_numbered(info, self._numbered, target_columns)
        self._deletes_rows = target_columns is not None or self._numbered is None
        if not self._deletes_rows:
            target_columns = [name for name in schema.names if name != self._numbered]
        self._targets = _targets(info, target_columns)
        self._written = _part(schema, target_columns or schema.names)
        self._keys = _part(schema, schema.primary_key)
        self._columns = arrow_schema(schema)
        self._types = [column.data_type for column in schema.columns]
        self._row_format = info.descriptor.properties.get("table.kv.format", "COMPACTED").upper()
        super().__init__(connection, admin, info, dynamic_partitions=dynamic_partitions)
        if not idempotent:
            self._writer_id = NO_WRITER_ID

    def upsert(self, data: pa.Table | pa.RecordBatch) -> None:
        """Inserts rows, or replaces the rows with the same key.

        Columns are matched by name and cast where no value changes; a missing nullable column is
        null. The call returns before the rows are stored: see :meth:`flush`. If the rows do not fit
        the table, or a partition is missing, no row is accepted. Pass at most a few million rows at
        once: each call holds an encoded copy until its rows are sent.

        :raises FlussError: the rows are not valid, or an earlier batch failed; the message names
            the column or the bucket.
        """
        self._check_upserted(data)
        self._take(data, self._written, self._upserts)

    def delete(self, keys: pa.Table | pa.RecordBatch) -> None:
        """Deletes the rows with these keys; keys without a row or partition are skipped.

        :param keys: the columns of the primary key; other columns are ignored.
        :raises InvalidTable: a column of the primary key is missing or has nulls.
        :raises DeletionDisabled: the table does not allow deletes, or numbers its rows.
        :raises FlussError: see :meth:`upsert`.
        """
        self._check_deletes()
        self._take(self._key_part(keys), self._keys, self._deletes, where_partitions_are=True)

    def check_upsert(self, data: pa.Table | pa.RecordBatch) -> set[tuple[str, ...]]:
        """Validates rows as :meth:`upsert` does, without writing them.

        :returns: the partitions of the rows, which need not exist.
        :raises FlussError: the rows are not valid.
        """
        self._check_upserted(data)
        return self._check(data, self._written, self._upserts)

    def check_delete(self, keys: pa.Table | pa.RecordBatch) -> set[tuple[str, ...]]:
        """Validates keys as :meth:`delete` does, without deleting; see :meth:`check_upsert`."""
        self._check_deletes()
        return self._check(self._key_part(keys), self._keys, self._deletes)

    def _check_upserted(self, data: pa.Table | pa.RecordBatch) -> None:
        if self._numbered is not None and self._numbered in data.schema.names:
            raise InvalidTargetColumn(
                f"table {self.info.path}: the server numbers column {self._numbered!r}: leave it"
                " out of the data"
            )

    def _check_deletes(self) -> None:
        if not self._deletes_rows:
            raise DeletionDisabled(
                f"table {self.info.path}: Fluss never deletes a row that has a number, which column"
                f" {self._numbered!r} has: name target_columns to set these to null"
            )

    def _key_part(self, keys: pa.Table | pa.RecordBatch) -> pa.Table | pa.RecordBatch:
        return keys.select([n for n in keys.schema.names if n in self.info.schema.primary_key])

    def _upserts(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        whole = rows
        if self._targets:  # the server ignores the other columns: they are null
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

    def _request(self, bucket: TableBucket, records: bytes) -> Any:
        request = super()._request(bucket, records)
        request.target_columns.extend(self._targets)
        return request


def _content(keys: pa.Array, rows: pa.Array) -> pa.RecordBatch:
    """Joins keys and rows in the form in which they are buffered; a null row deletes its key."""
    return pa.RecordBatch.from_arrays([keys, rows], ["key", "row"])


def _part(schema: Schema, names: Sequence[str]) -> Schema:
    """Returns the named columns of a schema, in its order."""
    return Schema(tuple(column for column in schema.columns if column.name in names))


def _check_numbered(info: TableInfo, column: str, names: Sequence[str] | None) -> None:
    """Checks an auto-increment column, which a new row gets from the server.

    :raises InvalidTargetColumn: it is a target column, or Fluss could not leave it out.
    """
    if names is not None and column in names:
        raise InvalidTargetColumn(
            f"table {info.path}: the server numbers column {column!r}: leave it out of the target"
            " columns"
        )
    if not info.schema.column(column).data_type.nullable:
        raise InvalidTargetColumn(
            f"table {info.path}: auto-increment column {column!r} is NOT NULL, so Fluss takes no"
            " rows without it: create the table with a nullable column"
        )


def _targets(info: TableInfo, names: Sequence[str] | None) -> list[int]:
    """Returns the positions of the target columns; none to write all columns."""
    if names is None:
        return []
    schema, path = info.schema, info.path
    if not names:
        raise InvalidTargetColumn(
            f"table {path}: target_columns is empty: name columns, or omit it to write all columns"
        )
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
                f"table {path}: add the key column {column.name!r} to the target columns"
            )
        if not column.data_type.nullable:
            raise InvalidTargetColumn(
                f"table {path}: add column {column.name!r} to the target columns: it is NOT NULL"
            )
    return [at for at, column in enumerate(schema.columns) if column.name in names]
