"""The columns of one Iceberg table: compared with those of Fluss, and added if it has more."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from sluice.errors import LakeTableMismatch
from sluice.iceberg_rules.layout import Layout, layout_of
from sluice.iceberg_rules.matched_schema import (
    LakeSide,
    MatchedSchema,
    WrittenColumn,
    check_parts,
    columns_of,
    match,
)
from sluice.iceberg_rules.names_and_types import check_names_and_types
from sluice.iceberg_rules.types import column_type_json
from sluice.iceberg_rules.written_schema import WrittenSchema
from sluice.lake.iceberg.catalog.java import iterate, lake_errors
from sluice.lake.iceberg.catalog.loaded_table import LoadedTable
from sluice.lake.iceberg.snapshots.history import IcebergHistory
from sluice.lake.iceberg.snapshots.part_files import PartFiles, schema_json
from sluice.model import Column, TableInfo, TablePath
from sluice.rounds.commit.recover import check_owner

_OF_FLUSS = "fluss."
"""How the names of the properties begin that a lake table has from its Fluss table."""


class TableColumns:
    """The columns of one table, in the metadata that was read last. Used by one thread."""

    def __init__(
        self,
        gateway: Any,
        loaded: LoadedTable,
        path: TablePath,
        parts: PartFiles,
        history: IcebergHistory,
    ) -> None:
        self._jvm, self._loaded, self._path = gateway.jvm, loaded, path
        self._parts, self._history = parts, history
        self._matched: MatchedSchema | None = None
        """How they were last compared with those of Fluss."""

    @property
    def layout(self) -> Layout:
        """Whether the table has Fluss's system columns.

        :raises LakeTableMismatch: it has some of them only.
        """
        if self._matched is not None:
            return self._matched.layout
        return layout_of(self._path, [one["name"] for one in self.schema()["fields"]])

    def schema(self) -> dict[str, Any]:
        """The table's schema, as Iceberg's JSON."""
        with lake_errors(f"read the schema of lake table {self._path}"):
            return schema_json(self._jvm, self._loaded.java)

    def written(self, schema: dict[str, Any]) -> Sequence[WrittenColumn]:
        """The columns that writers write."""
        return columns_of(schema) if self._matched is None else self._matched.columns

    def summary(self) -> dict[str, str]:
        """What a round writes down of its schemas; nothing if they were not compared."""
        return {} if self._matched is None else self._matched.written.to_summary()

    def compare(self, info: TableInfo) -> MatchedSchema:
        """Compares columns, identifier fields and partition fields with those of Fluss.

        :raises LakeTableMismatch: names what differs, and what mends it; or the table has the rows
            of another Fluss table.
        """
        with lake_errors(f"read the schema of lake table {self._path}"):
            newest = self._history.find({})
            names = str(self._loaded.java.properties().keySet())
            side = LakeSide(
                schema_json(self._jvm, self._loaded.java),
                WrittenSchema.of_summary(newest.summary) if newest else None,
                newest is not None or _OF_FLUSS in names,
                self._earlier,
                self._has_rows(),
            )
            found = self._parts.found()
        if newest is not None:
            check_owner(self._path, info.table_id, newest)
        matched = match(info, side)
        types = {one["name"]: one["type"] for one in side.schema["fields"]}
        known = check_parts(info, matched, found, types, is_of_fluss=side.is_of_fluss)
        self._parts.compared(known)
        self._matched = matched
        return matched

    def add_missing(self, info: TableInfo) -> Sequence[str]:
        """Compares, and adds the columns that Fluss has added.

        :returns: what others have changed in the lake since the last round, for users.
        :raises LakeTableMismatch: as :meth:`compare`.
        :raises UnsupportedLakeOption: as ``check_names_and_types``, if columns would be added.
        """
        found = self.compare(info)
        if found.added:
            check_names_and_types(info)
            with lake_errors(f"add columns to lake table {self._path}"):
                self._add(found.layout, found.added)
            if left := self.compare(info).added:
                names = [column.name for column in left]
                raise LakeTableMismatch(f"lake table {self._path} still lacks columns {names}")
        return found.notes

    def _add(self, layout: Layout, columns: Sequence[Column]) -> None:
        """Commits columns after those of the user. Java throws if the catalog refuses."""
        update = self._loaded.java.updateSchema()
        for column in columns:
            kind = _java_type(self._jvm, column_type_json(column))
            update = update.addColumn(column.name, kind, column.comment)
            for first in layout.system_columns[:1]:
                update = update.moveBefore(column.name, first.name)
        update.commit()
        self._loaded.java.refresh()

    def _has_rows(self) -> bool:
        """Whether main has rows; Java throws if the metadata cannot be read."""
        current = self._loaded.java.currentSnapshot()
        if current is None:
            return False
        return str(current.summary().getOrDefault("total-records", "?")) != "0"

    def _earlier(self) -> list[dict[str, Any]]:
        """All schemas that the table has had, the oldest first."""
        with lake_errors(f"read the schemas of lake table {self._path}"):
            schemas = self._loaded.java.schemas()
            parser = self._jvm.org.apache.iceberg.SchemaParser
            ids = sorted(int(one) for one in iterate(schemas.keySet()))
            return [json.loads(parser.toJson(schemas.get(one))) for one in ids]


def _java_type(jvm: Any, content: str | dict[str, Any]) -> Any:
    if isinstance(content, str):
        return jvm.org.apache.iceberg.types.Types.fromPrimitiveString(content)
    field = {"id": 1, "name": "x", "required": False, "type": content}
    schema = json.dumps({"type": "struct", "schema-id": 0, "fields": [field]})
    return jvm.org.apache.iceberg.SchemaParser.fromJson(schema).findType("x")
