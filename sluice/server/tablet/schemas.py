"""The schemas with which batches were written."""

from __future__ import annotations

from functools import lru_cache

from sluice.formats.descriptors import schema_from_json

parsed_schema = lru_cache(maxsize=256)(schema_from_json)
"""Parses a schema of ``HostedTable.schemas``; each text once."""
