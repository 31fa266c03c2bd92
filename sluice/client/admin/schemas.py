"""The schemas that a table's rows were written with, requested on first use."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping

from sluice.client.admin.admin import Admin
from sluice.errors import SchemaNotExist
from sluice.model import Schema, TableInfo


class TableSchemas(Mapping[int, Schema]):
    """Schemas of a table by id, for rows that are read with the schema of ``info``.

    Safe for use by many threads. Length and iteration cover only the schemas used so far.
    """

    def __init__(self, admin: Admin, info: TableInfo) -> None:
        self._admin = admin
        self._info = info
        self._lock = threading.Lock()  # guards _known
        self._known: dict[int, Schema] = {info.schema_id: info.schema}

    def __getitem__(self, schema_id: int) -> Schema:
        """:raises SchemaNotExist: it is newer than the schema of ``info``, or never existed."""
        with self._lock:
            found = self._known.get(schema_id)
        if found is None:
            if schema_id > self._info.schema_id:
                raise SchemaNotExist(
                    f"table {self._info.path} has rows of schema {schema_id}, but the reader uses"
                    f" schema {self._info.schema_id}, without the new columns: create a new reader"
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
