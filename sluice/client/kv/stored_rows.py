"""Decodes stored values, from KV snapshots and scans, as rows of one schema of the table."""

from __future__ import annotations

import pyarrow as pa

from sluice.client.admin.admin import Admin
from sluice.client.admin.schemas import TableSchemas
from sluice.errors import CorruptRecord
from sluice.formats.kv.value_batch import decode_values
from sluice.model import TableInfo


class StoredRows:
    """Decodes stored values with the schema of ``info``. Safe for use by many threads."""

    def __init__(self, admin: Admin, info: TableInfo, name: str, tag_size: int = 0) -> None:
        """:param name: the source of the values in error messages.
        :param tag_size: bytes before each value, which are not read.
        """
        self._info = info
        self._name = name
        self._tag_size = tag_size
        self._schemas = TableSchemas(admin, info)
        properties = info.descriptor.properties
        self._row_format = properties.get("table.kv.format", "COMPACTED").upper()

    def decode(self, values: pa.Array) -> pa.RecordBatch:
        """Decodes rows that were written with any earlier schema of the table.

        :raises CorruptRecord: a value is not a row of this table.
        :raises SchemaNotExist: a row was written with a newer schema.
        """
        try:
            batch = decode_values(
                values, self._schemas, self._info.schema, self._row_format, self._tag_size
            )
        except CorruptRecord as error:
            raise CorruptRecord(f"{self._name}: {error}") from error
        for column, array in zip(self._info.schema.columns, batch.columns, strict=True):
            if array.null_count and not column.data_type.nullable:
                raise CorruptRecord(
                    f"{self._name}: column {column.name!r} is NOT NULL, but has"
                    f" {array.null_count} nulls"
                )
        return batch
