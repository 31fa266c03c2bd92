"""Converts rows of one schema to another, by column id.

See docs/fluss/kv-batches.md#schema-changes
"""

from __future__ import annotations

import pyarrow as pa

from sluice.errors import InvalidTable
from sluice.formats.types.types import arrow_schema
from sluice.model import Schema


def align(batch: pa.RecordBatch, from_: Schema, to: Schema) -> pa.RecordBatch:
    """Returns the columns of ``to``, found by id; null where ``from_`` has none. Copies no values.

    :raises InvalidTable: a column has another type, or is new and NOT NULL.
    """
    if from_.columns == to.columns:
        return batch
    position_of = {column.column_id: i for i, column in enumerate(from_.columns)}
    target = arrow_schema(to)
    arrays = []
    for column, field in zip(to.columns, target, strict=True):
        position = position_of.get(column.column_id)
        if position is None:
            if not field.nullable:
                raise InvalidTable(f"column {column.name!r} is NOT NULL, but older rows lack it")
            arrays.append(pa.nulls(batch.num_rows, field.type))
            continue
        array = batch.column(position)
        if array.type != field.type:
            raise InvalidTable(
                f"column {column.name!r} is {field.type}, but older rows have {array.type}"
            )
        arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, schema=target)
