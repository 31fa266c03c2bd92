"""``sys.lake_tiering_status`` as a Python data source: one row per lake table of a cluster.

The properties ``spark.sluice.client.*`` of the session name the cluster, or else the variables
``SLUICE_CLIENT_*``. A filter on database and table becomes a request for that table only.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import LongType, StringType, StructType, TimestampType

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import EqualTo, Filter

    from sluice.config import ClientConfig
    from sluice.model import TablePath, TieringStatus

NAME = "lake_tiering_status"
CONNECT_TIMEOUT_MS = 10_000
"""Longest wait for a server that refuses connections, as during a coordinator's fail-over. In
`sluice sql` the query fails within a second."""
_CONF_PREFIX = "spark.sluice.client."
_PATH = ("database_name", "table_name")


class LakeTieringStatus(DataSource):
    """``USING lake_tiering_status``."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        schema = StructType()
        for column, kind, comment in (
            ("database_name", StringType(), "Database name"),
            ("table_name", StringType(), "Table name"),
            (
                "status",
                StringType(),
                "New, Initialized, Scheduled, Pending, Tiering, Tiered, Failed or Unknown",
            ),
            ("tiering_epoch", LongType(), "Current tiering epoch: how often the table became due"),
            ("last_tiered_time", TimestampType(), "End of the last successful round"),
            ("last_error", StringType(), "Why the last round failed; null if it succeeded"),
            (
                "last_error_time",
                TimestampType(),
                "When the last round failed; null if it succeeded",
            ),
        ):
            schema.add(column, kind, metadata={"comment": comment})
        return schema

    def reader(self, schema: StructType) -> LakeTieringStatusReader:  # noqa: ARG002  (Spark's)
        return LakeTieringStatusReader()


class LakeTieringStatusReader(DataSourceReader):
    """Reads all rows in one task, which has the session's settings. Can be pickled."""

    def __init__(self) -> None:
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
        """Yields one batch with the columns of :meth:`LakeTieringStatus.schema`.

        A table that does not exist has no row.

        :raises NetworkError: the cluster cannot be reached within ``CONNECT_TIMEOUT_MS``.
        """
        from sluice.client import connect
        from sluice.client.reachability import OF_COMMAND, require_listener
        from sluice.errors import TableNotExist
        from sluice.model import TablePath

        path: TablePath | None = TablePath(*self._path) if self._path else None
        config = _client_config()
        if OF_COMMAND in os.environ:  # a session of its own may query during a fail-over: it waits
            require_listener(config)
        with connect(config) as client:
            try:
                statuses = client.statuses.list(path)
            except TableNotExist:
                statuses = []
        yield _batch(statuses)


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


def _batch(statuses: Sequence[TieringStatus]) -> pa.RecordBatch:
    """Returns the columns of the schema, one row per lake table."""
    import pyarrow as pa

    time = pa.timestamp("us", "UTC")  # Spark's own resolution

    def times(values: Iterable[int | None]) -> pa.Array:
        return pa.array(list(values), pa.timestamp("ms", "UTC")).cast(time)

    return pa.RecordBatch.from_pydict(
        {
            "database_name": pa.array([s.path.database for s in statuses], pa.string()),
            "table_name": pa.array([s.path.table for s in statuses], pa.string()),
            "status": pa.array([s.status for s in statuses], pa.string()),
            "tiering_epoch": pa.array([s.tiering_epoch for s in statuses], pa.int64()),
            "last_tiered_time": times(s.last_tiered_ms for s in statuses),
            "last_error": pa.array([s.last_error for s in statuses], pa.string()),
            "last_error_time": times(s.last_error_ms for s in statuses),
        }
    )
