"""How the log of a table stores rows: as Arrow, or row by row in one of the row formats.

See docs/fluss/log-batches.md#arrow-records and docs/fluss/log-batches.md#row-records
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from sluice.errors import CorruptRecord
from sluice.formats.log.batch import (
    MAX_UNCOMPRESSED,
    Buffer,
    LogBatchHeader,
    change_types,
    decode_log_batch,
    encode_log_batch,
)
from sluice.formats.log.row_log import build_row_log_batch, parse_row_log_batch
from sluice.formats.rows.arrays import decode_rows, encode_rows
from sluice.formats.types.types import arrow_schema
from sluice.model import DataType, Schema

ARROW = "ARROW"
LOG_FORMAT = "table.log.format"

_VALUE_BYTES = 16
"""Memory of a value of a row in Arrow, at most, without its content."""


@dataclass(frozen=True, slots=True)
class LogFormat:
    """Encodes and decodes the log batches of one table."""

    name: str = ARROW
    """ARROW, INDEXED or COMPACTED."""
    compression: str = "ZSTD"
    level: int = 3

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> LogFormat:
        """:param properties: those of the table."""
        return cls(
            properties.get(LOG_FORMAT, ARROW).upper(),
            properties.get("table.log.arrow.compression.type", "ZSTD").upper(),
            int(properties.get("table.log.arrow.compression.zstd.level", "3")),
        )

    @property
    def is_arrow(self) -> bool:
        return self.name == ARROW

    def rows(self, batch: pa.RecordBatch, schema: Schema) -> pa.RecordBatch:
        """Rows in the form that :meth:`encode` takes: in a row format, one column of their bytes.

        :raises InvalidTable: a value does not fit its column.
        """
        if self.is_arrow:
            return batch
        encoded = encode_rows(batch, _types(schema), self.name)
        return pa.RecordBatch.from_arrays([encoded], ["row"])

    def encode(
        self,
        rows: pa.RecordBatch,
        schema_id: int,
        *,
        writer_id: int = -1,
        batch_sequence: int = -1,
        change_types: bytes | None = None,
    ) -> bytes:
        """Builds one batch of rows that :meth:`rows` returned.

        :param change_types: one for each row; None: all are appends.
        :raises RecordTooLarge: the batch has more than 2 GiB.
        """
        if self.is_arrow:
            return encode_log_batch(
                rows,
                schema_id,
                writer_id=writer_id,
                batch_sequence=batch_sequence,
                compression=self.compression,
                level=self.level,
                change_types=change_types,
            )
        return build_row_log_batch(
            rows.column(0),
            schema_id,
            writer_id=writer_id,
            batch_sequence=batch_sequence,
            change_types=change_types,
        )

    def decode(
        self, view: Buffer, header: LogBatchHeader, schema: Schema
    ) -> tuple[pa.RecordBatch, bytes | None]:
        """Returns the rows of a batch, and one change type for each; None if all are appends.

        :param schema: the schema that the batch was written with.
        :raises CorruptRecord: the bytes are not rows of this schema, or take too much memory.
        """
        if self.is_arrow:
            batch = decode_log_batch(view, header, arrow_schema(schema))
            return batch, change_types(view, header)
        what = f"log batch at offset {header.base_offset}"
        types = _types(schema)
        memory = rows_bytes(header, schema)
        if memory > MAX_UNCOMPRESSED:
            raise CorruptRecord(
                f"{what}: {header.record_count} rows take up to {memory} bytes, more than"
                f" {MAX_UNCOMPRESSED}"
            )
        log = parse_row_log_batch(view, header)
        try:
            arrays = decode_rows(log.rows, types, self.name)
        except CorruptRecord as error:
            raise CorruptRecord(f"{what}: {error.message}") from error
        for column, array in zip(schema.columns, arrays, strict=True):
            if array.null_count and not column.data_type.nullable:
                raise CorruptRecord(
                    f"{what}: column {column.name!r} is NOT NULL but has {array.null_count} nulls"
                )
        batch = pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(schema))
        return batch, None if header.append_only else log.change_types.tobytes()


def rows_bytes(header: LogBatchHeader, schema: Schema) -> int:
    """The memory in Arrow of a batch that stores rows, at most, without contents of its values."""
    return header.record_count * _VALUE_BYTES * sum(map(_leaves, _types(schema)))


def _types(schema: Schema) -> list[DataType]:
    return [column.data_type for column in schema.columns]


def _leaves(data_type: DataType) -> int:
    """The number of columns that a value takes, not counting elements, which take bytes of rows."""
    return 1 + sum(_leaves(field.data_type) for field in data_type.fields)
