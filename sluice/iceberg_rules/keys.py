"""Which keys a table with a lake table may have.

The encodings of keys and buckets by lake format are Fluss's own rules: see ``sluice/formats``.
"""

from __future__ import annotations

from dataclasses import replace

from sluice.errors import UnsupportedLakeOption
from sluice.model import TableInfo, TypeRoot

_TIMESTAMPS = (TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ)
_TIMES = (*_TIMESTAMPS, TypeRoot.TIME)
_FLOATS = (TypeRoot.FLOAT, TypeRoot.DOUBLE)
_MILLIS, _MICROS = 3, 6


def check_primary_key(info: TableInfo) -> None:
    """Checks that equality deletes can identify each row of a primary-key table.

    :raises UnsupportedLakeOption: Iceberg truncates a key column, or does not allow it in a key.
    """
    for name in info.schema.primary_key:
        found = info.schema.column(name).data_type
        if found.root in _FLOATS:
            raise UnsupportedLakeOption(
                f"table {info.path}: column {name} of the primary key is {found}, which"
                " Iceberg does not allow in a key; use DECIMAL or an integer type"
            )
        if found.root in _TIMES and (found.precision or 0) > _MICROS:
            kept = _MILLIS if found.root is TypeRoot.TIME else _MICROS  # of TIME, Fluss keeps fewer
            raise UnsupportedLakeOption(
                f"table {info.path}: column {name} of the primary key is {found}, but Iceberg has"
                f" only microseconds, so two keys could become one;"
                f" use {replace(found, precision=kept)}"
            )


def check_bucket_key(info: TableInfo) -> None:
    """Checks that Iceberg's buckets equal Fluss's.

    :raises UnsupportedLakeOption: more than one bucket key, one of nanoseconds, or one of a type
        that Iceberg does not bucket by.
    """
    keys = info.descriptor.bucket_keys
    if len(keys) > 1:
        raise UnsupportedLakeOption(
            f"table {info.path} has the bucket keys {', '.join(keys)}, but Iceberg allows"
            " one: set bucket.key to one column"
        )
    for name in keys:
        found = info.schema.column(name).data_type
        if found.root in (*_FLOATS, TypeRoot.BOOLEAN):
            raise UnsupportedLakeOption(
                f"table {info.path}: bucket key {name} is {found}, which Iceberg does not support"
                " in a bucket transform; use DECIMAL or an integer type"
            )
        if found.root in _TIMESTAMPS and (found.precision or 0) > _MICROS:
            raise UnsupportedLakeOption(
                f"table {info.path}: bucket key {name} is {found}, but Iceberg has only"
                " microseconds, so its buckets would differ from Fluss's; use TIMESTAMP(6)"
            )


def check_partition_keys(info: TableInfo) -> None:
    """Checks that the lake table can be partitioned by the partition keys, as Fluss does it.

    :raises UnsupportedLakeOption: a partition key is not a STRING.
    """
    for name in info.descriptor.partition_keys:
        found = info.schema.column(name).data_type
        if found.root is not TypeRoot.STRING:
            raise UnsupportedLakeOption(
                f"table {info.path}: partition key {name} has type {found}, but only STRING can be"
                " tiered to Iceberg"
            )
