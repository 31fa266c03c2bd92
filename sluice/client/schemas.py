"""The schemas that a table's rows were written with, asked for when they are met."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping

from sluice.client.admin import Admin
from sluice.errors import SchemaNotExist
from sluice.model import Schema, TableInfo


class TableSchemas(Mapping[int, Schema]):
    """Schemas of a table by id, for rows that are read in that of ``info``. Safe for many threads.

    Only what was met so far is counted and listed.
    """

    def __init__(self, admin: Admin, info: TableInfo) -> None:
        self._admin = admin
        self._info = info
        self._lock = threading.Lock()  # guards _known
        self._known: dict[int, Schema] = {info.schema_id: info.schema}

    def __getitem__(self, schema_id: int) -> Schema:
        """:raises SchemaNotExist: newer than that of ``info``, or the table never had it."""
        with self._lock:
            found = self._known.get(schema_id)
        if found is None:
            if schema_id > self._info.schema_id:
                raise SchemaNotExist(
                    f"table {self._info.path} has rows of schema {schema_id}, but is read in schema"
                    f" {self._info.schema_id}, which would drop columns: read it anew"
                )
            found = self._admin.schema(self._info.path, schema_id)
            with self._lock:
                self._known[schema_id] = found
        return found

    def __iter__(self) -> Iterator[int]:
        with self._lock:
            return iter(list(self._known))

    def __len__(self) -> int:
        with self._lock:
            return len(self._known)
