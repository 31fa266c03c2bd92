"""Checks that readers can decode a log batch, before a server stores it.

A checksum shows that the bytes are those that the client sent, not that they are rows of the table.
See docs/design/embedded-server.md#batches-of-clients
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from sluice.errors import CorruptRecord
from sluice.formats.log.arrow_message import Layout, inspect_message, read_layout
from sluice.formats.log.batch import ROW_BYTES, Buffer, LogBatchHeader, decode_log_batch
from sluice.formats.log.log_format import ARROW, LogFormat, rows_bytes
from sluice.formats.log.projection import buffer_counts
from sluice.formats.rows.plan import COMPACTED, INDEXED
from sluice.formats.types.nested import forbidden_null
from sluice.formats.types.types import arrow_schema
from sluice.model import Schema

_ANY = 1 << 62


@dataclass(frozen=True, slots=True)
class BatchCheck:
    """What a server asks of a batch in one log format."""

    declared_bytes: Callable[[Buffer, LogBatchHeader, Schema], int]
    """The memory that the rows need decoded, as the batch says. Raises CorruptRecord."""
    check: Callable[[Buffer, LogBatchHeader, Schema, int], None]
    """Takes batch, header, schema and ``declared_bytes``. Raises CorruptRecord."""


def declared_bytes(view: Buffer, header: LogBatchHeader, schema: Schema) -> int:  # noqa: ARG001
    """The uncompressed bytes of a batch in ARROW format, as it says and as nobody has checked.

    :raises CorruptRecord: it has no valid Arrow message.
    """
    if not header.record_count:
        return 0
    message = _message(view, header)
    return max(inspect_message(message, _ANY).uncompressed_length, header.record_count * ROW_BYTES)


def check_arrow_batch(view: Buffer, header: LogBatchHeader, schema: Schema, declared: int) -> None:
    """Decodes a batch in ARROW format, as a reader does.

    Only that shows damage inside a compressed buffer.

    :param declared: the result of ``declared_bytes``, which bounds the memory.
    :raises CorruptRecord: it is no batch of that schema, or a NOT NULL column has nulls.
    """
    what = f"log batch at offset {header.base_offset}"
    message = _message(view, header)
    if not header.record_count:
        if len(message):
            raise CorruptRecord(f"{what}: it has no records, but {len(message)} bytes of them")
        return
    _check_counts(what, read_layout(message), schema)
    columns = arrow_schema(schema)
    batch = decode_log_batch(view, header, columns, max_uncompressed=declared)
    for field, column in zip(columns, batch.columns, strict=True):
        if named := forbidden_null(field, column):
            raise CorruptRecord(f"{what}: column {named} is NOT NULL but contains nulls")


def _row_bytes(view: Buffer, header: LogBatchHeader, schema: Schema) -> int:
    return len(view) + rows_bytes(header, schema)


def _row_check(log_format: str) -> BatchCheck:
    def check(view: Buffer, header: LogBatchHeader, schema: Schema, declared: int) -> None:  # noqa: ARG001
        """Decodes a batch that stores rows, as a reader does."""
        batch, _ = LogFormat(log_format).decode(view, header, schema)
        for field, column in zip(batch.schema, batch.columns, strict=True):
            if named := forbidden_null(field, column):
                what = f"log batch at offset {header.base_offset}"
                raise CorruptRecord(f"{what}: column {named} is NOT NULL but contains nulls")

    return BatchCheck(_row_bytes, check)


CHECKS: Mapping[str, BatchCheck] = MappingProxyType(
    {
        ARROW: BatchCheck(declared_bytes, check_arrow_batch),
        **{name: _row_check(name) for name in (INDEXED, COMPACTED)},
    }
)
"""The check of each log format (``table.log.format``)."""


def _message(view: Buffer, header: LogBatchHeader) -> memoryview:
    start = header.records_at + (0 if header.append_only else header.record_count)
    return memoryview(view)[start : header.size]


def _check_counts(what: str, layout: Layout, schema: Schema) -> None:
    """Fields and buffers must be exactly those of the schema, and no buffer two columns' at once.

    A projection finds columns by the positions of their buffers.
    """
    wanted = buffer_counts(schema)
    if (found := (len(layout.nodes), len(layout.buffers))) != wanted:
        raise CorruptRecord(
            f"{what}: it has {found[0]} fields in {found[1]} buffers, but its schema has"
            f" {wanted[0]} in {wanted[1]}"
        )
    if int(layout.buffers[:, 1].sum()) > layout.body_length:
        raise CorruptRecord(f"{what}: its buffers overlap")
