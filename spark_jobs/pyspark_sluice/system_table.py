"""Tables of ``sys`` as Python data sources: what a cluster records of its lake tables.

The properties ``spark.sluice.client.*`` of the session name the cluster, or else the variables
``SLUICE_CLIENT_*``. A filter on database and table becomes a request for that table only.
"""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, ClassVar

from pyspark import TaskContext
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import EqualTo, Filter

    from sluice.client import Client
    from sluice.config import ClientConfig
    from sluice.model import TablePath

CONNECT_TIMEOUT_MS = 10_000
"""Longest wait for a server that refuses connections, as during a coordinator's fail-over. In
`sluice sql` the query fails within a second."""
_CONF_PREFIX = "spark.sluice.client."
_PATH = ("database_name", "table_name")


class SystemTable(DataSource):
    """``USING NAME``: the name of a table, then the described fields of a recorded class."""

    NAME: ClassVar[str]

    @classmethod
    def name(cls) -> str:
        return cls.NAME

    @classmethod
    @abstractmethod
    def recorded(cls) -> type:
        """The class of the records."""

    @classmethod
    @abstractmethod
    def records(cls, client: Client, path: TablePath | None) -> Sequence[tuple[TablePath, Any]]:
        """The records of one table or of all, with the path of the table.

        :raises TableNotExist: the table does not exist.
        """

    @classmethod
    def columns(cls) -> dict[str, tuple[pa.DataType, str]]:
        """The columns with their types and comments: those of the path, then the fields."""
        import pyarrow as pa

        from sluice.formats.types.types import arrow_type
        from sluice.model.record_fields import fields_of

        path = {
            "database_name": (pa.string(), "Database name"),
            "table_name": (pa.string(), "Table name"),
        }
        return path | {
            entry.column: (
                pa.timestamp("us", "UTC") if entry.is_time else arrow_type(entry.data_type),
                entry.comment,
            )
            for entry in fields_of(cls.recorded())
        }

    def schema(self) -> StructType:
        from pyspark.sql.pandas.types import from_arrow_type

        schema = StructType()
        for name, (kind, comment) in self.columns().items():
            schema.add(name, from_arrow_type(kind), metadata={"comment": comment})
        return schema

    def reader(self, schema: StructType) -> SystemTableReader:
        return SystemTableReader(type(self), schema.names)


class SystemTableReader(DataSourceReader):
    """Reads all rows in one task, which has the session's settings. Can be pickled."""

    def __init__(self, table: type[SystemTable], names: Sequence[str]) -> None:
        """:param names: the columns to read. A metastore may have those of an earlier version."""
        self._table = table
        self._names = tuple(names)
        self._path: tuple[str, str] | None = None

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802  (Spark's)
        """Accepts ``database_name = ...`` and ``table_name = ...`` if the query has both.

        Spark 4.0 has no filter pushdown: it filters the rows of all tables itself.
        """
        from pyspark.sql.datasource import EqualTo

        taken: dict[str, EqualTo] = {}
        for entry in filters:
            if isinstance(entry, EqualTo) and len(entry.attribute) == 1 and entry.value:
                taken.setdefault(entry.attribute[0], entry)
        if not all(name in taken for name in _PATH):
            return filters
        database, table = (taken[name] for name in _PATH)
        self._path = (database.value, table.value)
        return [entry for entry in filters if entry is not database and entry is not table]

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:  # noqa: ARG002  (Spark's)
        """Yields one batch with the columns of :meth:`SystemTable.columns`.

        A table that does not exist has no row.

        :raises NetworkError: the cluster cannot be reached within ``CONNECT_TIMEOUT_MS``.
        """
        from sluice.client import connect
        from sluice.client.connection.reachability import OF_COMMAND, require_listener
        from sluice.errors import TableNotExist
        from sluice.model import TablePath

        path: TablePath | None = TablePath(*self._path) if self._path else None
        config = _client_config()
        if OF_COMMAND in os.environ:  # a session of its own may query during a fail-over: it waits
            require_listener(config)
        with connect(config) as client:
            try:
                records = self._table.records(client, path)
            except TableNotExist:
                records = []
        yield _batch(self._table, records, self._names)


def _client_config() -> ClientConfig:
    """:raises ConfigurationError: names the setting, never a password."""
    from sluice.config import ClientConfig, load_config

    context = TaskContext.get()
    overrides: dict[str, Any] = {}
    for field in fields(ClientConfig):
        value = context.getLocalProperty(_CONF_PREFIX + field.name) if context else None
        if value is not None:
            overrides[f"client.{field.name}"] = value
    config = load_config(None, os.environ, overrides).client
    first_ms = min(config.connect_timeout_ms, CONNECT_TIMEOUT_MS)
    return replace(config, connect_timeout_ms=first_ms)


def _batch(
    table: type[SystemTable], records: Sequence[tuple[TablePath, Any]], names: Sequence[str]
) -> pa.RecordBatch:
    """Returns the named columns, one row for each record."""
    import pyarrow as pa

    from sluice.model.record_fields import fields_of

    values: dict[str, list[Any]] = {
        "database_name": [path.database for path, _ in records],
        "table_name": [path.table for path, _ in records],
    }
    for entry in fields_of(table.recorded()):
        values[entry.column] = [getattr(record, entry.name) for _, record in records]
    known = table.columns()
    arrays = {}
    for name in names:
        kind = known[name][0]
        stored = pa.timestamp("ms", "UTC") if pa.types.is_timestamp(kind) else kind
        arrays[name] = pa.array(values[name], stored).cast(kind)
    return pa.RecordBatch.from_pydict(arrays)
