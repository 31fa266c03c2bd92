"""The definition of a new table from Arrow columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from sluice.errors import InvalidTable
from sluice.formats.types.types import schema_from_arrow
from sluice.model import TableDescriptor


def table_descriptor(
    columns: pa.Schema,
    *,
    primary_key: Sequence[str] = (),
    auto_increment: str | None = None,
    partition_by: Sequence[str] = (),
    bucket_key: Sequence[str] = (),
    buckets: int | None = None,
    datalake: bool = False,
    properties: Mapping[str, str] | None = None,
    custom_properties: Mapping[str, str] | None = None,
) -> TableDescriptor:
    """Returns the definition of a table, for :meth:`Admin.create_table`, which checks it further.

    :param columns: names, types and NOT NULL (``nullable=False``) of the columns. Columns of the
        primary key become NOT NULL.
    :param primary_key: the table keeps the newest row of each key; without one it is a log.
    :param auto_increment: the INT or BIGINT column in which the server numbers new rows.
    :param buckets: the number of buckets; by default the server's.
    :param datalake: whether the table is tiered to the lake.
    :param properties: options of Fluss (``table.*``).
    :param custom_properties: any others, such as ``iceberg.format-version``.
    :raises UnsupportedType: Fluss has no type for an Arrow type; names the column.
    :raises InvalidTable: a key or auto-increment column does not exist, or a name is repeated.
    :raises TypeError: a text is given where a sequence of names is meant.
    """
    lists = {"primary_key": primary_key, "partition_by": partition_by, "bucket_key": bucket_key}
    for name, given in lists.items():
        if isinstance(given, str):
            raise TypeError(f"{name}: {given!r} is a text; write [{given!r}]")
    schema = schema_from_arrow(columns, primary_key)
    if auto_increment is not None:
        if auto_increment not in schema.names:
            raise InvalidTable(
                f"auto-increment column {auto_increment!r} is missing from the columns"
                f" {', '.join(schema.names)}"
            )
        schema = replace(schema, auto_increment=(auto_increment,))
    return TableDescriptor(
        schema,
        partition_keys=tuple(partition_by),
        bucket_keys=tuple(bucket_key),
        bucket_count=buckets,
        properties={
            "table.datalake.enabled": "true" if datalake else "false",
            **(properties or {}),
        },
        custom_properties=dict(custom_properties or {}),
    )
