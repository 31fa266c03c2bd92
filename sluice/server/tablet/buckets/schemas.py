"""The schemas with which batches were written."""

from __future__ import annotations

from functools import lru_cache

from sluice.errors import CorruptRecord
from sluice.formats.log.batch import LogBatchHeader
from sluice.formats.types.descriptors import schema_from_json
from sluice.model import Schema
from sluice.server.tablet.buckets.ports import HostedTable

parsed_schema = lru_cache(maxsize=256)(schema_from_json)
"""Parses a schema of ``HostedTable.schemas``; each text once."""


def schema_of(table: HostedTable, header: LogBatchHeader) -> Schema:
    """The schema that a batch was written with.

    :raises CorruptRecord: the table has no such schema.
    """
    found = table.schemas.get(header.schema_id)
    if found is None:
        raise CorruptRecord(
            f"log batch at offset {header.base_offset}: the table has no schema {header.schema_id}"
        )
    return parsed_schema(found)
