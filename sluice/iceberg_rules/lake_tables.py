"""Which tables can have a lake table: all rules together."""

from __future__ import annotations

from sluice.iceberg_rules.keys import check_bucket_key, check_partition_keys, check_primary_key
from sluice.iceberg_rules.names_and_types import check_names_and_types
from sluice.iceberg_rules.properties import check_lake_properties
from sluice.model import TableInfo

NAME_OPTIONS = ("table.datalake.database-name", "table.datalake.table-name")
"""Fluss's table options of the lake table's name, if it is not the table's own (Fluss 1.0)."""


def check_lake_table(info: TableInfo) -> None:
    """Checks that a table can have a lake table.

    :raises UnsupportedLakeOption: see :func:`check_primary_key`, :func:`check_bucket_key`,
        :func:`check_partition_keys`, :func:`check_names_and_types` and
        :func:`check_lake_properties`.
    """
    check_primary_key(info)
    check_bucket_key(info)
    check_partition_keys(info)
    check_names_and_types(info)
    check_lake_properties(info)
