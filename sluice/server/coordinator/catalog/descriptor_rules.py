"""Validates table descriptors and fills in their defaults. Stateless.

See docs/fluss/messages.md#catalog-changes and docs/fluss/types-and-options.md#descriptor-rules
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

from sluice.errors import (
    BucketMaxNum,
    InvalidAlterTable,
    InvalidConfig,
    InvalidReplicationFactor,
    InvalidTable,
    PartitionSpecInvalid,
)
from sluice.formats.types.descriptors import field_ids
from sluice.iceberg_rules.layout import SYSTEM_NAMES
from sluice.model import (
    CHANGE_TYPE,
    COMMIT_TIMESTAMP,
    LOG_OFFSET,
    Column,
    DataType,
    Schema,
    TableDescriptor,
    TableInfo,
    TablePath,
    TypeRoot,
)
from sluice.server.coordinator.catalog.auto_partition_rules import check_auto_partitions
from sluice.server.coordinator.catalog.kv_table_rules import (
    NESTED,
    check_kv_table,
    with_bucket_key,
    with_kv_defaults,
)
from sluice.server.coordinator.catalog.lake_rules import ServerLake, check_new_table
from sluice.server.coordinator.catalog.options import (
    ALTERABLE,
    AUTO_PARTITION_ENABLED,
    AUTO_PARTITION_PRECREATE,
    DATALAKE_FORMAT,
    REPLICATION_FACTOR,
    checked_option,
)

BUCKETS_MAX = 4_096
"""max.bucket.num: buckets in all partitions of one table."""

PARTITIONS_MAX = 1_000
"""max.partition.num: partitions of one table."""

_RESERVED = SYSTEM_NAMES | {CHANGE_TYPE, LOG_OFFSET, COMMIT_TIMESTAMP}
"""Names that no column may have, also of a table without a lake."""

_ICEBERG_BUCKET_KEYS = frozenset(
    {
        TypeRoot.INT,
        TypeRoot.DATE,
        TypeRoot.BIGINT,
        TypeRoot.TIME,
        TypeRoot.TIMESTAMP,
        TypeRoot.FLOAT,
        TypeRoot.DOUBLE,
        TypeRoot.DECIMAL,
        TypeRoot.STRING,
        TypeRoot.CHAR,
        TypeRoot.BINARY,
        TypeRoot.BYTES,
    }
)
_NOT_IN_PARTITION_NAMES = (*NESTED, TypeRoot.DECIMAL)
_PARTITION_VALUE = re.compile(r"[A-Za-z0-9_-]{1,200}")


@dataclass(frozen=True, slots=True)
class Defaults:
    """The server's defaults for options that a table does not set."""

    bucket_count: int = 1
    lake: ServerLake = field(default_factory=ServerLake)


def complete(path: TablePath, descriptor: TableDescriptor, defaults: Defaults) -> TableDescriptor:
    """Validates a descriptor and returns it with the server's defaults, as it is stored.

    :raises InvalidTable, InvalidConfig, InvalidReplicationFactor, BucketMaxNum: it is not valid.
    """
    schema = _checked_schema(path, descriptor.schema)
    properties = dict(descriptor.properties)
    properties.setdefault(REPLICATION_FACTOR, "1")
    if defaults.lake.format is not None:
        properties.setdefault(DATALAKE_FORMAT, defaults.lake.format)
    if schema.primary_key:
        properties = with_kv_defaults(properties)
    properties = {key: checked_option(key, value) for key, value in properties.items()}
    if properties.get(AUTO_PARTITION_ENABLED) == "true" and len(descriptor.partition_keys) > 1:
        properties.setdefault(AUTO_PARTITION_PRECREATE, "0")
    _check_values(path, properties)
    if schema.primary_key:
        descriptor = with_bucket_key(descriptor, schema)
        check_kv_table(path, descriptor, schema, properties)
    else:
        _check_log_table(path, schema, properties)
    bucket_count = (
        defaults.bucket_count if descriptor.bucket_count is None else descriptor.bucket_count
    )
    if bucket_count < 1:
        raise InvalidTable(
            f"table {path}: the number of buckets must be at least 1, not {bucket_count}"
        )
    if bucket_count > BUCKETS_MAX:
        raise BucketMaxNum(
            f"table {path}: {bucket_count} buckets exceed the maximum of {BUCKETS_MAX}"
        )
    done = replace(descriptor, schema=schema, properties=properties, bucket_count=bucket_count)
    _check_keys(path, done)
    check_auto_partitions(path, properties, done.partition_keys)
    for key in done.custom_properties:
        if key.startswith("table."):
            raise InvalidTable(f"table {path}: custom property {key!r} may not begin with 'table.'")
    check_new_table(TableInfo(path, -1, 1, done, 0, 0), defaults.lake)
    return done


def _checked_schema(path: TablePath, schema: Schema) -> Schema:
    if not schema.columns:
        raise InvalidTable(f"table {path} has no columns")
    seen: set[str] = set()
    for column in schema.columns:
        _check_column_name(path, column.name)
        if column.name in seen:
            raise InvalidTable(f"table {path}: two columns are named {column.name!r}")
        seen.add(column.name)
    ids = [field_id for field_id in field_ids(schema.columns) if field_id >= 0]
    if len(set(ids)) != len(ids):
        raise InvalidTable(f"table {path}: two columns or fields have the same id")
    return replace(schema, highest_field_id=max([schema.highest_field_id, *ids]))


def _check_column_name(path: TablePath, name: str) -> None:
    if not name or name in _RESERVED:
        raise InvalidTable(f"table {path}: column name {name!r} is reserved for a system column")


def _check_values(path: TablePath, properties: Mapping[str, str]) -> None:
    if int(properties[REPLICATION_FACTOR]) != 1:
        raise InvalidReplicationFactor(
            f"table {path}: {REPLICATION_FACTOR} = {properties[REPLICATION_FACTOR]}: it must be 1,"
            " because the cluster has only one tablet server"
        )


def _check_log_table(path: TablePath, schema: Schema, properties: Mapping[str, str]) -> None:
    if schema.auto_increment:
        raise InvalidTable(
            f"table {path}: auto-increment column {schema.auto_increment[0]!r} requires a primary"
            " key"
        )
    for key in ("table.merge-engine", "table.delete.behavior"):
        if key in properties:
            raise InvalidConfig(f"table {path}: {key} requires a primary key")


def _check_keys(path: TablePath, descriptor: TableDescriptor) -> None:
    schema = descriptor.schema
    for kind, keys in (
        ("partition", descriptor.partition_keys),
        ("bucket", descriptor.bucket_keys),
    ):
        for key in keys:
            if key not in schema.names:
                raise InvalidTable(f"table {path}: {kind} key {key!r} is not a column of the table")
        if len(set(keys)) != len(keys):
            raise InvalidTable(f"table {path}: a {kind} key is listed twice: {', '.join(keys)}")
    for key in descriptor.partition_keys:
        kind_of = schema.column(key).data_type
        if kind_of.root in _NOT_IN_PARTITION_NAMES:
            raise InvalidTable(
                f"table {path}: partition key {key!r} has the type {kind_of}, which Fluss cannot"
                " write into a partition's name"
            )
        if key in descriptor.bucket_keys:
            raise InvalidTable(f"table {path}: {key!r} cannot be both partition key and bucket key")
    for key in descriptor.bucket_keys:
        kind_of = schema.column(key).data_type
        if kind_of.root in NESTED:
            raise InvalidTable(
                f"table {path}: bucket key {key!r} has the type {kind_of}, which a key cannot have"
            )
    if descriptor.properties.get(DATALAKE_FORMAT) == "iceberg":
        _check_iceberg_buckets(path, descriptor)


def _check_iceberg_buckets(path: TablePath, descriptor: TableDescriptor) -> None:
    """Checks bucket keys that clients encode as Iceberg does, tiered or not."""
    if len(descriptor.bucket_keys) > 1:
        raise InvalidTable(
            f"table {path}: bucket keys {', '.join(descriptor.bucket_keys)}: Iceberg supports only"
            " one bucket column; set bucket.key to one of them, or use a server without a lake"
            " (datalake.format=none)"
        )
    for key in descriptor.bucket_keys:
        kind_of = descriptor.schema.column(key).data_type
        if kind_of.root not in _ICEBERG_BUCKET_KEYS:
            raise InvalidTable(
                f"table {path}: bucket key {key!r} has the type {kind_of}, by which Iceberg cannot"
                " bucket"
            )


def with_columns(info: TableInfo, added: Sequence[tuple[str, DataType, str | None]]) -> Schema:
    """The schema with columns added at the end, with the next free field ids.

    :raises InvalidAlterTable: a name is in use or not allowed, or a column is not nullable.
    """
    schema, ids = info.schema, count(info.schema.highest_field_id + 1)
    columns = list(schema.columns)
    for name, data_type, comment in added:
        if name in {column.name for column in columns}:
            raise InvalidAlterTable(f"table {info.path} already has a column {name!r}")
        if not name or name in _RESERVED:
            raise InvalidAlterTable(f"table {info.path}: {name!r} is not a valid column name")
        if not data_type.nullable:
            raise InvalidAlterTable(
                f"table {info.path}: column {name!r} has the type {data_type}: a new column must be"
                " nullable, because existing rows have no value for it"
            )
        column_id = next(ids)
        columns.append(Column(name, _with_new_ids(data_type, ids), column_id, comment))
    return replace(schema, columns=tuple(columns), highest_field_id=next(ids) - 1)


def _with_new_ids(data_type: DataType, ids: Iterable[int]) -> DataType:
    numbers = iter(ids)

    def inner(part: DataType | None) -> DataType | None:
        return None if part is None else _with_new_ids(part, numbers)

    # The ids of a row's own fields precede those of nested fields.
    own = [next(numbers) for _ in data_type.fields]
    fields = tuple(
        replace(field, field_id=field_id, data_type=_with_new_ids(field.data_type, numbers))
        for field, field_id in zip(data_type.fields, own, strict=True)
    )
    return replace(
        data_type,
        element=inner(data_type.element),
        key=inner(data_type.key),
        value=inner(data_type.value),
        fields=fields,
    )


def with_options(
    info: TableInfo, changes: Sequence[tuple[str, str | None]]
) -> tuple[dict[str, str], dict[str, str]]:
    """Properties and custom properties after changes; a value of None removes the key.

    :raises InvalidAlterTable: an option cannot change. :raises InvalidConfig: a wrong value.
    """
    properties = dict(info.descriptor.properties)
    custom = dict(info.descriptor.custom_properties)
    for key, value in changes:
        if key.startswith("table."):
            if key not in ALTERABLE:
                raise InvalidAlterTable(
                    f"table {info.path}: option {key} cannot be changed;"
                    f" these options can: {', '.join(sorted(ALTERABLE))}"
                )
            if value is not None:
                value = checked_option(key, value)
        target = properties if key.startswith("table.") else custom
        if value is None:
            target.pop(key, None)
        else:
            target[key] = value
    return properties, custom


def partition_values(info: TableInfo, spec: Mapping[str, str]) -> tuple[str, ...]:
    """A partition's values in key order.

    :raises PartitionSpecInvalid: the keys are not the table's, or a value cannot be in a name.
    """
    keys = info.descriptor.partition_keys
    if set(spec) != set(keys):
        raise PartitionSpecInvalid(
            f"table {info.path} is partitioned by {', '.join(keys)}; the partition spec names"
            f" {', '.join(spec) or 'nothing'}"
        )
    for key, value in spec.items():
        if not _PARTITION_VALUE.fullmatch(value) or value.startswith("__"):
            raise PartitionSpecInvalid(
                f"table {info.path}: {key} = {value!r} is not a valid partition name: use 1 to 200"
                " letters, digits, '_' and '-', and do not start with '__'"
            )
    return tuple(spec[key] for key in keys)
