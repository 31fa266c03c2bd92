"""A tablet's view of a primary-key table: its merge rules and its row format."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from sluice.errors import CorruptRecord, InvalidTargetColumn, SchemaNotExist
from sluice.formats.keys.key_rows import decode_keys
from sluice.formats.keys.primary_keys import primary_keys
from sluice.formats.kv.kv_batch import KvBatch
from sluice.formats.kv.value_batch import decode_values, stored_values
from sluice.formats.log.log_format import LogFormat
from sluice.formats.rows.arrays import encode_rows
from sluice.formats.types.nested import forbidden_null
from sluice.formats.types.types import arrow_schema
from sluice.model import Schema
from sluice.server.tablet.buckets.ports import HostedTable
from sluice.server.tablet.buckets.schemas import parsed_schema

INSERT, UPDATE_BEFORE, UPDATE_AFTER, DELETE = 1, 2, 3, 4
"""Change types in the log."""

ALLOW, IGNORE, DISABLE = "ALLOW", "IGNORE", "DISABLE"
FIRST_ROW, VERSIONED = "FIRST_ROW", "VERSIONED"


class KvTable:
    """An immutable description of a table for puts, replaced when the table changes."""

    def __init__(self, hosted: HostedTable) -> None:
        self.hosted = hosted
        info = hosted.info
        properties = info.descriptor.properties
        self.schema = info.schema
        self.schema_id = info.schema_id
        self.row_format = properties.get("table.kv.format", "COMPACTED").upper()
        self.merge_engine = properties.get("table.merge-engine", "").upper()
        self.version_column = properties.get("table.merge-engine.versioned.ver-column", "")
        default = IGNORE if self.merge_engine else ALLOW
        self.delete_behavior = properties.get("table.delete.behavior", default).upper()
        self.is_wal = properties.get("table.changelog.image", "FULL").upper() == "WAL"
        self.log_format = LogFormat.of(properties)
        numbered = info.schema.auto_increment
        self.auto_increment = info.schema.names.index(numbered[0]) if numbered else None
        """The position of the column whose numbers the server gives to new rows."""

    def rows_added(self, change_types: bytes) -> int | None:
        """The number of rows that changes add; None for the WAL image, which does not show it."""
        if self.is_wal:
            return None
        return change_types.count(INSERT) - change_types.count(DELETE)

    def schemas(self) -> Mapping[int, Schema]:
        """All schemas of the table, by id."""
        return {schema_id: parsed_schema(json) for schema_id, json in self.hosted.schemas.items()}

    def schema_of(self, schema_id: int) -> Schema:
        """Returns a schema by id.

        :raises SchemaNotExist: the table has no such schema.
        """
        found = self.hosted.schemas.get(schema_id)
        if found is None:
            raise SchemaNotExist(
                f"table {self.hosted.info.path} has no schema {schema_id}; the newest is"
                f" {self.schema_id}"
            )
        return parsed_schema(found)

    def keys(self, batch: pa.RecordBatch) -> pa.Array:
        """Encodes the primary key of each row, as used in the store."""
        return primary_keys(batch, self.hosted.info)

    @property
    def key_positions(self) -> list[int]:
        """The positions of the primary key's columns."""
        return [self.schema.names.index(name) for name in self.schema.primary_key]

    def rows_of_keys(self, keys: pa.Array) -> KvBatch:
        """Rows that have only a key; the other columns are null.

        :raises CorruptRecord: a key is not valid.
        :raises InvalidTargetColumn: the table is partitioned: its keys lack the partition's values.
        :raises UnsupportedLakeOption: see ``decode_keys``.
        """
        info = self.hosted.info
        if info.is_partitioned:
            raise InvalidTargetColumn(
                f"table {info.path} is partitioned: a look-up cannot insert rows into it; use PutKv"
            )
        columns = decode_keys(keys, info)
        fields = [field.with_nullable(True) for field in arrow_schema(self.schema)]
        arrays = [columns.get(f.name, pa.nulls(len(keys), f.type)) for f in fields]
        batch = pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))
        types = [column.data_type for column in self.schema.columns]
        rows = encode_rows(batch, types, self.row_format)
        return KvBatch(self.schema_id, -1, -1, keys, rows)

    def decode(self, values: pa.Array) -> pa.RecordBatch:
        """Decodes stored values to columns of the newest schema.

        :raises CorruptRecord: the bytes are not rows, or a NOT NULL column has nulls.
        """
        batch = decode_values(values, self.schemas(), self.schema, self.row_format)
        for field, column in zip(arrow_schema(self.schema), batch.columns, strict=True):
            if named := forbidden_null(field, column):
                raise CorruptRecord(f"column {named} is NOT NULL but contains nulls")
        return batch

    def encode(self, batch: pa.RecordBatch, schema_id: int, schema: Schema) -> pa.Array:
        """Encodes rows of a schema as stored values."""
        types = [column.data_type for column in schema.columns]
        return stored_values(encode_rows(batch, types, self.row_format), schema_id)
