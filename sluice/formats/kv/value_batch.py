"""Encodes and decodes stored values and the value batches of scans.

See docs/fluss/kv-batches.md#stored-values and docs/fluss/kv-batches.md#value-batches
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sluice.errors import CorruptRecord, SchemaNotExist, UnsupportedType
from sluice.formats.log.batch import Buffer
from sluice.formats.rows import records
from sluice.formats.rows.arrays import decode_rows
from sluice.formats.rows.column_memory import bounds_of
from sluice.formats.types.types import arrow_schema, arrow_type
from sluice.model import Schema

_HEAD = struct.Struct("<ibi")
_LENGTH_OVERHEAD = 4
SCHEMA_ID_SIZE = 2
"""Bytes of a stored value before its row."""


def values_of(view: Buffer) -> pa.Array:
    """Returns a batch's stored values without decoding, for ``decode_values``.

    They are copied from ``view``, whose length bounds the memory.

    :raises CorruptRecord: the bytes are not a value batch.
    """
    view = memoryview(view)
    if len(view) < _HEAD.size:
        raise CorruptRecord(
            f"value batch: it has {len(view)} bytes, but its header needs {_HEAD.size}"
        )
    length, magic, count = _HEAD.unpack_from(view)
    if magic != 0:
        raise CorruptRecord(f"value batch: magic {magic} is not supported, only 0")
    if length + _LENGTH_OVERHEAD != len(view):
        raise CorruptRecord(f"value batch: it has {len(view)} of {length + _LENGTH_OVERHEAD} bytes")
    return records.find("value batch", view[_HEAD.size :], count).joined()


def build_value_batch(values: pa.Array) -> bytes:
    """Builds one batch of stored values (binary, no nulls).

    :raises RecordTooLarge: the batch has more than 2 GiB.
    """
    batch = records.frame(values, _HEAD.size)
    _HEAD.pack_into(batch, 0, len(batch) - _LENGTH_OVERHEAD, 0, len(values))
    return bytes(batch)


def stored_values(rows: pa.Array, schema_id: int) -> pa.Array:
    """Puts the schema id before each row, as the KV store does; a null row stays null."""
    head = pa.scalar(struct.pack("<h", schema_id), pa.binary())
    return pc.binary_join_element_wise(head, rows, b"")


def decode_values(
    values: pa.Array,
    schemas: Mapping[int, Schema],
    target: Schema,
    row_format: str,
    tag_size: int = 0,
) -> pa.RecordBatch:
    """Decodes stored values of any schema to a batch with ``target``'s columns.

    Columns are found by their id; a column that the value's schema lacks is null, and so is every
    column of a null value.

    :param tag_size: bytes before each value that are not read; see ``TableInfo.value_tag_size``.
    :raises CorruptRecord: names the row whose bytes are not valid.
    :raises SchemaNotExist: ``schemas`` lacks a schema id.
    :raises UnsupportedType: a column was written with another type.
    """
    there = _is_there(values) if values.null_count else None
    schema_ids = _schema_ids(values, there, tag_size)
    known = _distinct(schema_ids if there is None else schema_ids[there])
    found: list[pa.Array] = []
    for schema_id in known:
        schema = _schema(schemas, schema_id)
        some, mask = values, there
        if len(known) > 1:
            mask = schema_ids == schema_id
            if there is not None:
                mask &= there
            # rows of other schemas are null here, so that each row keeps its number
            some = _masked(values, mask)
        arrays = _columns(some, schema, target, row_format, tag_size)
        choice = pa.array(mask) if found else None
        found = [
            pc.if_else(choice, array, old) if choice is not None else array
            for array, old in zip(arrays, found or arrays, strict=True)
        ]
    fields = arrow_schema(target)
    if not known:
        found = [pa.nulls(len(values), field.type) for field in fields]
    if values.null_count:
        fields = pa.schema([field.with_nullable(True) for field in fields])
    return pa.RecordBatch.from_arrays(found, schema=fields)


def _schema(schemas: Mapping[int, Schema], schema_id: int) -> Schema:
    try:
        return schemas[schema_id]
    except KeyError:
        known = ", ".join(map(str, sorted(schemas)))
        raise SchemaNotExist(
            f"a stored value was written with schema {schema_id}; only {known} are available"
        ) from None


def _columns(
    values: pa.Array, schema: Schema, target: Schema, row_format: str, tag_size: int
) -> list[pa.Array]:
    """The columns of ``target``, read from rows of ``schema``."""
    types = [column.data_type for column in schema.columns]
    arrays = decode_rows(values, types, row_format, skipped=tag_size + SCHEMA_ID_SIZE)
    if schema == target:
        return arrays
    by_id = {c.column_id: a for c, a in zip(schema.columns, arrays, strict=True)}
    chosen = []
    for column in target.columns:
        wanted = arrow_type(column.data_type)
        array = by_id.get(column.column_id)
        if array is None:
            array = pa.nulls(len(values), wanted)
        elif array.type != wanted:
            raise UnsupportedType(
                f"column {column.name!r} is {column.data_type}, but was written as {array.type}:"
                " Sluice does not convert stored rows to another type"
            )
        chosen.append(array)
    return chosen


def _masked(values: pa.Array, mask: np.ndarray) -> pa.Array:
    """The same values, null where the mask is not set; nothing is copied."""
    _, offsets, data = values.buffers()
    bits = pa.py_buffer(np.packbits(mask, bitorder="little"))
    buffers = [bits, offsets.slice(4 * values.offset), data]
    return pa.Array.from_buffers(pa.binary(), len(values), buffers)


def _is_there(values: pa.Array) -> np.ndarray:
    return values.is_valid().to_numpy(zero_copy_only=False)


def _schema_ids(values: pa.Array, there: np.ndarray | None, tag_size: int) -> np.ndarray:
    """The schema id of each value; 0 where ``there`` is not set.

    :param there: which values are not null; None: all of them.
    """
    bounds = bounds_of(values)
    sizes = np.diff(bounds)
    least = tag_size + SCHEMA_ID_SIZE
    if there is not None:
        sizes[~there] = least
    if len(sizes) and sizes.min() < least:
        row = int(np.argmax(sizes < least))
        tag = f"a tag of {tag_size} bytes and " if tag_size else ""
        raise CorruptRecord(f"value {row} is shorter than {tag}a schema id of 2 bytes")
    starts = tag_size + (bounds[:-1] if there is None else bounds[:-1][there])
    if not len(starts):
        return np.zeros(len(values), np.int16)
    content = np.frombuffer(values.buffers()[2], np.uint8)
    found = content.take(starts + 1).astype(np.int16)
    found <<= 8
    found |= content.take(starts)
    if there is None:
        return found
    ids = np.zeros(len(values), np.int16)
    ids[there] = found
    return ids


def _distinct(numbers: np.ndarray) -> list[int]:
    """The distinct numbers, ascending; nearly always there is one."""
    if len(numbers) and (numbers == numbers[0]).all():
        return [int(numbers[0])]
    found: list[int] = np.unique(numbers).tolist()
    return found
