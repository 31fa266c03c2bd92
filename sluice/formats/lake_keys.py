"""Which keys a lake table can have: what Iceberg would cut, or takes for no key, is refused."""

from __future__ import annotations

from dataclasses import replace

from sluice.errors import UnsupportedLakeOption
from sluice.model import TableInfo, TypeRoot

_TIMESTAMPS = (TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ)
_TIMES = (*_TIMESTAMPS, TypeRoot.TIME)
_FLOATS = (TypeRoot.FLOAT, TypeRoot.DOUBLE)
_MICROS = 6


def check_lake_keys(info: TableInfo) -> None:
    """Whether a table's keys can be those of an Iceberg table.

    :raises UnsupportedLakeOption: as :func:`check_primary_key` and :func:`check_bucket_key`.
    """
    check_primary_key(info)
    check_bucket_key(info)


def check_primary_key(info: TableInfo) -> None:
    """Whether equality deletes can name each row of a table with a primary key.

    :raises UnsupportedLakeOption: a key column whose values Iceberg keeps cut, or takes for no key.
    """
    for name in info.schema.primary_key:
        found = info.schema.column(name).data_type
        if found.root in _FLOATS:
            raise UnsupportedLakeOption(
                f"table {info.path}: column {name} of the primary key is {found}, which Iceberg"
                " takes for no key; use DECIMAL, or a whole number"
            )
        if found.root in _TIMES and (found.precision or 0) > _MICROS:
            raise UnsupportedLakeOption(
                f"table {info.path}: column {name} of the primary key is {found}, and Iceberg keeps"
                f" microseconds: two keys could become one; use {replace(found, precision=_MICROS)}"
            )


def check_bucket_key(info: TableInfo) -> None:
    """Whether Iceberg's buckets are Fluss's.

    :raises UnsupportedLakeOption: more than one bucket key, one of nanoseconds, or one of a type
        that Iceberg does not bucket by.
    """
    keys = info.descriptor.bucket_keys
    if len(keys) > 1:
        raise UnsupportedLakeOption(
            f"table {info.path} has bucket keys {', '.join(keys)}: Iceberg takes one;"
            " set a single bucket.key"
        )
    for name in keys:
        found = info.schema.column(name).data_type
        if found.root in _FLOATS:
            raise UnsupportedLakeOption(
                f"table {info.path}: bucket key {name} is {found}, and Iceberg does not bucket by"
                " it; use DECIMAL, or a whole number"
            )
        if found.root in _TIMESTAMPS and (found.precision or 0) > _MICROS:
            raise UnsupportedLakeOption(
                f"table {info.path}: bucket key {name} is {found}, and Iceberg keeps"
                " microseconds: its buckets would not be Fluss's; use TIMESTAMP(6)"
            )
