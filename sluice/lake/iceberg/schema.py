"""The lake table that a Fluss table needs, as Iceberg's own JSON.

See docs/fluss/iceberg.md#types and docs/fluss/iceberg.md#tables

Pure functions: they return JSON, which Iceberg's parsers read in the driver's JVM. Field ids count
from 1. Iceberg assigns its own ids when it creates a table, so ids are never compared.
"""

from __future__ import annotations

from itertools import count
from typing import Any

from sluice.iceberg_rules.keys import check_primary_key
from sluice.iceberg_rules.layout import Layout, PartFields, sort_columns
from sluice.iceberg_rules.names_and_types import check_names_and_types
from sluice.iceberg_rules.properties import check_lake_properties
from sluice.iceberg_rules.types import iceberg_field
from sluice.model import TableInfo

_LAKE_OPTIONS = "table.datalake.iceberg."


def schema_json(info: TableInfo, layout: Layout) -> dict[str, Any]:
    """The schema: user columns, then those of the layout; the primary key as identifier fields.

    :raises UnsupportedLakeOption: as ``check_primary_key`` and ``check_names_and_types``.
    """
    check_primary_key(info)
    check_names_and_types(info)
    columns = [(c.name, c.data_type, c.comment) for c in info.schema.columns]
    columns += [(one.name, one.data_type, None) for one in layout.system_columns]
    top = {name: i for i, (name, _, _) in enumerate(columns, start=1)}
    ids = count(len(columns) + 1)
    fields = [iceberg_field(top[name], name, kind, doc, ids) for name, kind, doc in columns]
    schema: dict[str, Any] = {"type": "struct", "schema-id": 0, "fields": fields}
    if info.has_primary_key:
        schema["identifier-field-ids"] = [top[name] for name in info.schema.primary_key]
    return schema


def spec_json(fields: PartFields, schema: dict[str, Any]) -> dict[str, Any]:
    """The partition spec of a new table."""
    ids = {field["name"]: field["id"] for field in schema["fields"]}
    return {
        "spec-id": 0,
        "fields": [
            {
                "name": one.name,
                "transform": one.transform,
                "source-id": ids[one.column],
                "field-id": 1000 + i,
            }
            for i, one in enumerate(fields.fields)
        ],
    }


def sort_order_json(layout: Layout, schema: dict[str, Any]) -> dict[str, Any]:
    """The sort order of a new table; Iceberg's order 0 is none."""
    ids = {field["name"]: field["id"] for field in schema["fields"]}
    fields = [
        {
            "transform": "identity",
            "source-id": ids[name],
            "direction": "asc",
            "null-order": "nulls-first",
        }
        for name in sort_columns(layout)
    ]
    return {"order-id": 1 if fields else 0, "fields": fields}


def table_properties(info: TableInfo) -> dict[str, str]:
    """The lake table's properties: ``iceberg.x`` becomes ``x``, other keys become ``fluss.KEY``.

    Without the options of the lake itself, which a cluster adds to what it tells of a table.

    :raises UnsupportedLakeOption: as ``check_lake_properties``.
    """
    check_lake_properties(info)
    properties = {}
    if info.has_primary_key:
        for mode in ("write.delete.mode", "write.update.mode", "write.merge.mode"):
            properties[mode] = "merge-on-read"
    for options in (info.descriptor.properties, info.descriptor.custom_properties):
        for key, value in options.items():
            if key.startswith(_LAKE_OPTIONS):
                continue
            if key.startswith("iceberg."):
                properties[key.removeprefix("iceberg.")] = value
            else:
                properties[f"fluss.{key}"] = value
    return properties
