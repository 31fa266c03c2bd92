"""Validates descriptors of primary-key tables and fills in their defaults.

See docs/fluss/messages.md#catalog-changes, docs/fluss/types-and-options.md#descriptor-rules and
docs/fluss/types-and-options.md#table-options
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa

from sluice.errors import InvalidConfig, InvalidTable, UnsupportedLakeOption, UnsupportedType
from sluice.formats.keys.keys import encode_key
from sluice.formats.keys.primary_keys import KV_FORMAT_VERSION, primary_keys
from sluice.formats.log.log_format import ARROW, LOG_FORMAT
from sluice.formats.rows.plan import COMPACTED, INDEXED
from sluice.formats.types.types import arrow_schema
from sluice.model import Schema, TableDescriptor, TableInfo, TablePath, TypeRoot
from sluice.server.coordinator.catalog.options import AUTO_INCREMENT_CACHE_SIZE

KV_FORMAT = "table.kv.format"
_CACHE_SIZE_MAX = 2**31 - 1
"""Most numbers that a bucket reserves at once; the counter of the table ends at 2**63."""
MERGE_ENGINE = "table.merge-engine"
VERSION_COLUMN = "table.merge-engine.versioned.ver-column"
DELETE_BEHAVIOR = "table.delete.behavior"

NESTED = (TypeRoot.ARRAY, TypeRoot.MAP, TypeRoot.ROW)
_VERSIONS = (TypeRoot.INT, TypeRoot.BIGINT, TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ)


def with_kv_defaults(properties: Mapping[str, str]) -> dict[str, str]:
    """Adds the properties that Fluss 0.9.1 stores with every primary-key table.

    Later versions also store ``table.kv.standby-replica.enabled``.
    """
    result = dict(properties)
    result.setdefault(KV_FORMAT_VERSION, "2")
    if MERGE_ENGINE in result:
        result.setdefault(DELETE_BEHAVIOR, "IGNORE")
    return result


def with_bucket_key(descriptor: TableDescriptor, schema: Schema) -> TableDescriptor:
    """Sets a missing bucket key to the primary key without the partition keys."""
    if descriptor.bucket_keys:
        return descriptor
    partition_keys = descriptor.partition_keys
    key = tuple(name for name in schema.primary_key if name not in partition_keys)
    return replace(descriptor, bucket_keys=key)


def check_kv_table(
    path: TablePath, descriptor: TableDescriptor, schema: Schema, properties: Mapping[str, str]
) -> None:
    """Validates keys and options.

    :raises InvalidTable: keys are not valid, or the server does not support a feature.
    :raises InvalidConfig: options are not valid, alone or together.
    """
    key = schema.primary_key
    _check_key_columns(path, schema)
    for name in descriptor.partition_keys:
        if name not in key:
            raise InvalidTable(
                f"table {path}: partition key {name!r} is not in the primary key {', '.join(key)}"
            )
    physical = [name for name in key if name not in descriptor.partition_keys]
    if not physical:
        raise InvalidTable(
            f"table {path}: the primary key {', '.join(key)} needs a column in addition to the"
            " partition keys"
        )
    for name in descriptor.bucket_keys:
        if name not in physical:
            raise InvalidTable(
                f"table {path}: bucket key {name!r} is not one of {', '.join(physical)}, the"
                " primary key without the partition keys"
            )
    if properties[KV_FORMAT_VERSION] not in ("1", "2"):
        raise InvalidConfig(
            f"table {path}: {KV_FORMAT_VERSION} = {properties[KV_FORMAT_VERSION]}: use 1 or 2"
        )
    _check_auto_increment(path, schema, properties)
    _check_formats(path, properties)
    _check_encoders(path, replace(descriptor, schema=schema, properties=properties))
    _check_engine(path, schema, properties)


def _check_auto_increment(path: TablePath, schema: Schema, properties: Mapping[str, str]) -> None:
    cache_size = properties.get(AUTO_INCREMENT_CACHE_SIZE, "1")
    if not 1 <= int(cache_size) <= _CACHE_SIZE_MAX:
        raise InvalidConfig(
            f"table {path}: {AUTO_INCREMENT_CACHE_SIZE} = {cache_size}: use 1 to {_CACHE_SIZE_MAX}"
        )
    if not schema.auto_increment:
        return
    name = schema.auto_increment[0]
    if len(schema.auto_increment) > 1:
        raise InvalidTable(
            f"table {path}: auto-increment columns {', '.join(schema.auto_increment)}: a table can"
            " have only one"
        )
    data_type = schema.column(name).data_type
    if data_type.root not in (TypeRoot.INT, TypeRoot.BIGINT):
        raise InvalidTable(
            f"table {path}: auto-increment column {name!r} has the type {data_type}; use INT or"
            " BIGINT"
        )
    if name in schema.primary_key:
        raise InvalidTable(
            f"table {path}: auto-increment column {name!r} cannot be in the primary key"
        )
    if MERGE_ENGINE in properties:
        raise InvalidTable(
            f"table {path}: auto-increment column {name!r} excludes {MERGE_ENGINE} ="
            f" {properties[MERGE_ENGINE]}: rows are written without that column, but this engine"
            " takes only complete ones"
        )


def _check_formats(path: TablePath, properties: Mapping[str, str]) -> None:
    log_format = properties.get(LOG_FORMAT, ARROW)
    kv_format = properties.get(KV_FORMAT, COMPACTED)
    if log_format.upper() == INDEXED and kv_format.upper() == COMPACTED:
        raise InvalidConfig(
            f"table {path}: {LOG_FORMAT} = {log_format} requires {KV_FORMAT} = {INDEXED}: Fluss"
            f" does not convert compacted rows; use {ARROW} or {COMPACTED} for the log"
        )


def _check_encoders(path: TablePath, descriptor: TableDescriptor) -> None:
    """Encodes the keys of zero rows, to check that the encoders support the columns."""
    info = TableInfo(path, -1, 1, descriptor, 0, 0)
    no_rows = pa.RecordBatch.from_pylist([], schema=arrow_schema(descriptor.schema))
    try:
        primary_keys(no_rows, info)
        encode_key(no_rows, descriptor.bucket_keys, info.schema, info.datalake_format)
    except (InvalidTable, UnsupportedType, UnsupportedLakeOption) as error:
        raise InvalidTable(f"table {path}: its key cannot be encoded: {error}") from error


def _check_key_columns(path: TablePath, schema: Schema) -> None:
    key = schema.primary_key
    if len(set(key)) != len(key):
        raise InvalidTable(f"table {path}: a primary key column is listed twice: {', '.join(key)}")
    for name in key:
        data_type = schema.column(name).data_type
        if data_type.root in NESTED:
            raise InvalidTable(
                f"table {path}: column {name!r} has the type {data_type}, which a key cannot have"
            )


def _check_engine(path: TablePath, schema: Schema, properties: Mapping[str, str]) -> None:
    engine = properties.get(MERGE_ENGINE, "").lower()
    if any(column.agg_function is not None for column in schema.columns) or engine == "aggregation":
        raise InvalidTable(
            f"table {path}: this server does not support aggregation: {MERGE_ENGINE} must be"
            " first_row or versioned, and columns must not have an aggregation function"
        )
    if engine and properties[DELETE_BEHAVIOR].upper() == "ALLOW":
        raise InvalidConfig(
            f"table {path}: {MERGE_ENGINE} = {engine} does not support deletes: set"
            f" {DELETE_BEHAVIOR} to IGNORE or DISABLE"
        )
    if engine != "versioned":
        return
    name = properties.get(VERSION_COLUMN)
    if name is None or name not in schema.names:
        raise InvalidConfig(
            f"table {path}: {MERGE_ENGINE} = versioned needs {VERSION_COLUMN} to name a column of"
            f" the table, not {name!r}"
        )
    data_type = schema.column(name).data_type
    if data_type.root not in _VERSIONS:
        raise InvalidConfig(
            f"table {path}: version column {name!r} has the type {data_type}; use INT, BIGINT,"
            " TIMESTAMP or TIMESTAMP_LTZ"
        )
