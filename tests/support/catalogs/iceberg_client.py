"""Iceberg's own Java client of a catalog, for tests of the servers themselves."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from sluice.driver.lakes.jvm import Jvm
from sluice.lake.iceberg.catalog.java import java_errors, java_map

_SCHEMA = {
    "type": "struct",
    "schema-id": 0,
    "fields": [{"id": 1, "name": "id", "type": "long", "required": False}],
}


class IcebergClient:
    """One open catalog in a JVM. Not thread safe."""

    def __init__(self, jvm: Jvm, options: Mapping[str, str], name: str = "tests") -> None:
        self._gateway = jvm.gateway
        self._iceberg = jvm.gateway.jvm.org.apache.iceberg
        conf = jvm.gateway.jvm.org.apache.hadoop.conf.Configuration()
        for key, value in options.items():
            if key.startswith("hadoop."):
                conf.set(key.removeprefix("hadoop."), value)
        with java_errors():
            self.catalog = self._iceberg.CatalogUtil.buildIcebergCatalog(
                name, java_map(self._gateway, options), conf
            )

    def create(self, table: str) -> Any:
        """Creates a table of one column, and its namespace.

        :param table: such as ``db.t``.
        :raises JavaThrew: the catalog or the store refuses.
        """
        name = self._name(table)
        schema = self._iceberg.SchemaParser.fromJson(json.dumps(_SCHEMA))
        with java_errors():
            if not self.catalog.namespaceExists(name.namespace()):
                self.catalog.createNamespace(name.namespace())
            return self.catalog.buildTable(name, schema).create()

    def load(self, table: str) -> Any:
        """Loads a table.

        :raises JavaThrew: the catalog or the store refuses.
        """
        with java_errors():
            return self.catalog.loadTable(self._name(table))

    def drop(self, table: str) -> bool:
        """Drops a table, but not its files; returns whether there was one.

        :raises JavaThrew: the catalog refuses.
        """
        with java_errors():
            return bool(self.catalog.dropTable(self._name(table), False))

    def write(self, table: Any, text: str, name: str = "words.txt") -> str:
        """Writes a file below a table through its own FileIO; returns the address.

        :raises JavaThrew: the store refuses.
        """
        where = f"{table.location()}/data/{name}"
        with java_errors():
            sink = table.io().newOutputFile(where).createOrOverwrite()
            sink.write(text.encode())
            sink.close()
        return where

    def read(self, table: Any, where: str) -> str:
        """Reads a file through a table's own FileIO.

        :raises JavaThrew: the store refuses.
        """
        with java_errors():
            source = table.io().newInputFile(where).newStream()
            content = bytes(source.readAllBytes())
            source.close()
        return content.decode()

    def add_column(self, table: Any, name: str, *, first: bool = False) -> None:
        """Adds a column of integers: a commit that goes through the catalog.

        :param first: in front of all others, in place of behind them.
        :raises JavaThrew: the catalog or the store refuses.
        """
        kind = self._iceberg.types.Types.IntegerType.get()
        with java_errors():
            update = table.updateSchema().addColumn(name, kind)
            (update.moveFirst(name) if first else update).commit()

    def rows(self, table: str, *columns: str) -> list[tuple[Any, ...]]:
        """All rows of a table, deletes applied, by Iceberg's own reader, in order.

        :raises JavaThrew: the catalog or the store refuses.
        """
        lists = self._iceberg.relocated.com.google.common.collect.Lists
        with java_errors():
            reader = self._iceberg.data.IcebergGenerics.read(self.load(table)).build()
            records = lists.newArrayList(reader.iterator())
            reader.close()
            found = [tuple(record.getField(name) for name in columns) for record in records]
        return sorted(found)

    def io_properties(self, table: Any) -> dict[str, str]:
        """The properties of a table's FileIO."""
        return dict(table.io().properties())

    def io_credentials(self, table: Any) -> dict[str, dict[str, str]]:
        """The storage credentials of a table's FileIO, by prefix; empty if it takes none."""
        loader = table.io().getClass().getClassLoader()
        kind = loader.loadClass("org.apache.iceberg.io.SupportsStorageCredentials")
        if not kind.isInstance(table.io()):
            return {}
        return {found.prefix(): dict(found.config()) for found in table.io().credentials()}

    def _name(self, table: str) -> Any:
        return self._iceberg.catalog.TableIdentifier.parse(table)


@contextmanager
def opened(jvm: Jvm, options: Mapping[str, str], name: str = "tests") -> Iterator[IcebergClient]:
    """Opens a catalog for the block."""
    client = IcebergClient(jvm, options, name)
    try:
        yield client
    finally:
        client.catalog.close()
