"""Table descriptions for tests, as a server would return them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sluice.model import Column, DataType, Schema, TableDescriptor, TableInfo, TablePath

_PATH = TablePath("db", "t")


def table_info(
    columns: Mapping[str, DataType],
    *,
    path: TablePath = _PATH,
    table_id: int = 1,
    partition_keys: Sequence[str] = (),
    bucket_keys: Sequence[str] = (),
    primary_key: Sequence[str] = (),
    buckets: int = 1,
    properties: Mapping[str, str] | None = None,
    custom_properties: Mapping[str, str] | None = None,
) -> TableInfo:
    """A table with these columns, in this order; a log table unless ``key`` is given."""
    fields = tuple(Column(name, t, i) for i, (name, t) in enumerate(columns.items()))
    schema = Schema(fields, tuple(primary_key), len(fields) - 1)
    descriptor = TableDescriptor(
        schema,
        tuple(partition_keys),
        tuple(bucket_keys),
        buckets,
        {"table.datalake.enabled": "true", **(properties or {})},
        custom_properties or {},
    )
    return TableInfo(path, table_id, 1, descriptor, 0, 0)
