"""Columns, schema and descriptor of a table, and what the server reports about the table.

See docs/fluss/types-and-options.md#schemas and
docs/fluss/types-and-options.md#table-descriptors
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sluice.errors import InvalidConfig, TableNotExist
from sluice.model.paths import TableBucket, TablePath
from sluice.model.types import DataType

_VALUE_LAYOUT_VERSION = "table.kv.value-layout-version"
_TAG_SIZES = {"1": 0, "2": 8}
"""Of each value layout: bytes before the schema id (``KvValueLayout`` of the client jar 1.0.0)."""

CHANGE_TYPE, LOG_OFFSET, COMMIT_TIMESTAMP = "_change_type", "_log_offset", "_commit_timestamp"
"""Columns that Fluss adds to the changelog of a table. No column of a user has these names."""


@dataclass(frozen=True, slots=True)
class AggFunction:
    """How the aggregation merge engine combines a column's values."""

    name: str
    parameters: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Column:
    """A column; its ``column_id`` stays the same when other columns are added."""

    name: str
    data_type: DataType
    column_id: int
    comment: str | None = None
    agg_function: AggFunction | None = None


@dataclass(frozen=True, slots=True)
class Schema:
    """Columns in order, and the primary key (empty for a log table)."""

    columns: tuple[Column, ...]
    primary_key: tuple[str, ...] = ()
    highest_field_id: int = -1
    auto_increment: tuple[str, ...] = ()

    def column(self, name: str) -> Column:
        """Returns a column by name.

        :raises KeyError: the schema has no such column.
        """
        for column in self.columns:
            if column.name == name:
                return column
        raise KeyError(name)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)


@dataclass(frozen=True, slots=True)
class TableDescriptor:
    """The definition of a table by its creator: schema, keys, bucket count, options."""

    schema: Schema
    partition_keys: tuple[str, ...] = ()
    bucket_keys: tuple[str, ...] = ()
    bucket_count: int | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    custom_properties: Mapping[str, str] = field(default_factory=dict)
    comment: str | None = None


@dataclass(frozen=True, slots=True)
class TableInfo:
    """A table as the server reports it, with defaults filled in. Times are epoch milliseconds."""

    path: TablePath
    table_id: int
    schema_id: int
    descriptor: TableDescriptor
    created_ms: int
    modified_ms: int

    @property
    def schema(self) -> Schema:
        return self.descriptor.schema

    @property
    def bucket_count(self) -> int:
        """The buckets of a table without partitions; else those of partitions to come."""
        return self.descriptor.bucket_count or 1

    @property
    def is_partitioned(self) -> bool:
        return bool(self.descriptor.partition_keys)

    @property
    def has_primary_key(self) -> bool:
        return bool(self.schema.primary_key)

    def check_bucket(self, bucket: TableBucket) -> None:
        """Checks that a bucket belongs to this table.

        :raises TableNotExist: it belongs to another table, such as a dropped one of this path.
        """
        if bucket.table_id != self.table_id:
            raise TableNotExist(
                f"bucket {bucket} does not belong to table {self.path} (id {self.table_id})"
            )

    @property
    def value_tag_size(self) -> int:
        """Bytes before each value in the KV store: Fluss 1.0 puts a time there for a row TTL.

        :raises InvalidConfig: its values have a layout that Sluice does not know.
        """
        version = self.descriptor.properties.get(_VALUE_LAYOUT_VERSION, "1")
        if version not in _TAG_SIZES:
            raise InvalidConfig(
                f"table {self.path}: {_VALUE_LAYOUT_VERSION} {version!r} is not supported, only 1"
                " and 2: use a Sluice that is as new as the cluster"
            )
        return _TAG_SIZES[version]

    @property
    def datalake_enabled(self) -> bool:
        return self.descriptor.properties.get("table.datalake.enabled", "false") == "true"

    @property
    def datalake_format(self) -> str | None:
        """The lake format, fixed at creation; it selects bucketing and key encoder in any case."""
        return self.descriptor.properties.get("table.datalake.format")
