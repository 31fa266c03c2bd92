"""Adds columns to an Iceberg table, before those that Fluss adds to each table."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from sluice.lake.iceberg_schema import column_type_json
from sluice.model import LAKE_COLUMNS, Column


def add_columns(jvm: Any, table: Any, columns: Sequence[Column]) -> None:
    """Commits the columns, and refreshes the table. Java throws if the catalog refuses.

    :param table: Iceberg's table object.
    """
    update = table.updateSchema()
    for column in columns:
        content = column_type_json(column)
        if isinstance(content, str):
            kind = jvm.org.apache.iceberg.types.Types.fromPrimitiveString(content)
        else:
            kind = _nested_type(jvm, content)
        update = update.addColumn(column.name, kind, column.comment)
        update = update.moveBefore(column.name, LAKE_COLUMNS[0])
    update.commit()
    table.refresh()


def _nested_type(jvm: Any, content: dict[str, Any]) -> Any:
    field = {"id": 1, "name": "x", "required": False, "type": content}
    schema = json.dumps({"type": "struct", "schema-id": 0, "fields": [field]})
    return jvm.org.apache.iceberg.SchemaParser.fromJson(schema).findType("x")
