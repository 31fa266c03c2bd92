"""Projects columns of log batches without decoding values.

See docs/fluss/messages.md#fetch-log. A projected batch keeps header, offset and compressed buffers
as they were written. Its checksum is stale, as Apache Fluss leaves it too: a client does not check
a projected batch.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa

from sluice.errors import CorruptRecord, InvalidColumnProjection
from sluice.formats.log.arrow_message import read_layout, write_head
from sluice.formats.log.batch import (
    LENGTH_OVERHEAD,
    LogBatchHeader,
    change_types,
    decode_log_batch,
    encode_log_batch,
    set_offset_and_timestamp,
)
from sluice.formats.types.evolution import align
from sluice.formats.types.types import arrow_schema
from sluice.model import Schema

_LENGTH_AT = 8
_LENGTH = struct.Struct("<i")
_ALIGNMENT = 8


@dataclass(frozen=True, slots=True)
class Projection:
    """Which nodes and buffers of a batch's Arrow part belong to the chosen columns."""

    nodes: np.ndarray
    buffers: np.ndarray
    node_count: int
    buffer_count: int


def check_positions(positions: Sequence[int], schema: Schema) -> None:
    """:raises InvalidColumnProjection: empty, not ascending, or beyond the schema's columns."""
    count = len(schema.columns)
    ascending = all(a < b for a, b in itertools.pairwise(positions))
    if not positions or not ascending or positions[0] < 0 or positions[-1] >= count:
        raise InvalidColumnProjection(
            f"projected_fields {list(positions)}: use one or more distinct column positions from"
            f" 0 to {count - 1}, in ascending order"
        )


@lru_cache(maxsize=256)
def projection(schema: Schema, positions: tuple[int, ...]) -> Projection:
    """:raises InvalidColumnProjection: see ``check_positions``."""
    check_positions(positions, schema)
    nodes: list[int] = []
    buffers: list[int] = []
    node = buffer = 0
    for position, field in enumerate(arrow_schema(schema)):
        node_count, buffer_count = _counts(field.type)
        if position in positions:
            nodes += range(node, node + node_count)
            buffers += range(buffer, buffer + buffer_count)
        node, buffer = node + node_count, buffer + buffer_count
    return Projection(np.array(nodes), np.array(buffers), node, buffer)


@lru_cache(maxsize=256)
def buffer_counts(schema: Schema) -> tuple[int, int]:
    """Field nodes and buffers of a batch of this schema."""
    counts = [_counts(field.type) for field in arrow_schema(schema)]
    return sum(nodes for nodes, _ in counts), sum(buffers for _, buffers in counts)


def project(
    view: memoryview, header: LogBatchHeader, chosen: Projection
) -> list[bytes | memoryview]:
    """The parts of a batch with only the chosen columns; the values are views of ``view``.

    :raises CorruptRecord: its Arrow part is not a record batch of the projection's schema.
    """
    if header.record_count == 0:
        return [view]
    start = header.records_at + (0 if header.append_only else header.record_count)
    message = view[start : header.size]
    layout = read_layout(message)
    if (len(layout.nodes), len(layout.buffers)) != (chosen.node_count, chosen.buffer_count):
        raise CorruptRecord(
            f"log batch at offset {header.base_offset}: it has {len(layout.nodes)} fields in"
            f" {len(layout.buffers)} buffers, but its schema {header.schema_id} has"
            f" {chosen.node_count} in {chosen.buffer_count}"
        )
    buffers = layout.buffers[chosen.buffers]
    padded = -(-buffers[:, 1] // _ALIGNMENT) * _ALIGNMENT
    placed = np.column_stack((np.cumsum(padded) - padded, buffers[:, 1]))
    body_length = int(padded.sum())
    if body_length > layout.body_length + _ALIGNMENT * len(buffers):
        raise CorruptRecord(f"log batch at offset {header.base_offset}: its buffers overlap")
    head = write_head(
        layout.version, layout.rows, layout.codec, layout.nodes[chosen.nodes], placed, body_length
    )
    body = message[layout.body_start :]
    parts: list[bytes | memoryview] = [head]
    for offset, length, padded_length in zip(
        buffers[:, 0].tolist(), buffers[:, 1].tolist(), padded.tolist(), strict=True
    ):
        parts += [body[offset : offset + length], bytes(padded_length - length)]
    between = [] if header.append_only else [view[start - header.record_count : start]]
    size = start - header.statistics_length + len(head) + body_length
    return [_log_header(view, header, size), *between, *parts]


def project_evolved(
    view: memoryview,
    header: LogBatchHeader,
    written: Schema,
    now: Schema,
    now_id: int,
    positions: Sequence[int],
) -> bytes:
    """Encodes a batch of an older schema again, with nulls in the columns that it lacks.

    Only for such batches, since it decodes values. The result is a batch of the schema ``now``.

    :raises CorruptRecord: its Arrow part is not of the schema ``written``.
    """
    batch = align(decode_log_batch(view, header, arrow_schema(written)), written, now)
    encoded = bytearray(
        encode_log_batch(
            batch.select(list(positions)),
            now_id,
            writer_id=header.writer_id,
            batch_sequence=header.batch_sequence,
            change_types=change_types(view, header),
        )
    )
    set_offset_and_timestamp(encoded, header.base_offset, header.timestamp_ms)
    return bytes(encoded)


def _log_header(view: memoryview, header: LogBatchHeader, size: int) -> bytes:
    """The batch's own header with another length and without statistics."""
    fixed = bytearray(view[: header.records_at - header.statistics_length])
    _LENGTH.pack_into(fixed, _LENGTH_AT, size - LENGTH_OVERHEAD)
    if header.magic > 0:
        _LENGTH.pack_into(fixed, len(fixed) - _LENGTH.size, 0)
    return bytes(fixed)


def _counts(data_type: pa.DataType) -> tuple[int, int]:
    """Field nodes and buffers of a column of this type, children included."""
    if pa.types.is_struct(data_type):
        own = 1
    elif pa.types.is_string(data_type) or pa.types.is_binary(data_type):
        own = 3
    else:
        own = 2
    children = [_counts(data_type.field(i).type) for i in range(data_type.num_fields)]
    return 1 + sum(c[0] for c in children), own + sum(c[1] for c in children)
