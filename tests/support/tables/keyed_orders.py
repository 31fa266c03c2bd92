"""One table of orders by their id, and the shortest ways to change and read it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pyarrow as pa

from sluice.client import Client
from sluice.model import ChangeType, Column, Schema, TableBucket, TableDescriptor, TablePath
from sluice.model import types as t
from sluice.rounds.values.types import LogRecords

PATH = TablePath("shop", "orders")
SCHEMA = Schema(
    (
        Column("id", t.BIGINT.not_null(), 0),
        Column("item", t.STRING, 1),
        Column("n", t.INT, 2),
    ),
    ("id",),
    2,
)
KEYED = TableDescriptor(SCHEMA, bucket_count=1)
REGIONAL = TableDescriptor(
    Schema(
        (
            Column("region", t.STRING.not_null(), 0),
            Column("customer", t.STRING.not_null(), 1),
            Column("id", t.BIGINT.not_null(), 2),
            Column("n", t.INT, 3),
        ),
        ("region", "customer", "id"),
        3,
    ),
    partition_keys=("region",),
    bucket_keys=("customer",),
    bucket_count=3,
)
"""Partitioned, and its keys begin with the bucket key."""

Row = tuple[Any, ...]


def create(client: Client, descriptor: TableDescriptor = KEYED, **changes: Any) -> None:
    client.admin.create_table(PATH, replace(descriptor, **changes))


def rows(*rows: Row) -> pa.Table:
    """Orders as (id, item, n)."""
    columns = list(zip(*rows, strict=True)) or [(), (), ()]
    types = (pa.int64(), pa.string(), pa.int32())
    arrays = [pa.array(c, of) for c, of in zip(columns, types, strict=True)]
    return pa.table(dict(zip(SCHEMA.names, arrays, strict=True)))


def keys(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})


def tuples(table: pa.Table | pa.RecordBatch) -> list[Row]:
    return [tuple(row.values()) for row in table.to_pylist()]


def changes_of(records: Iterable[LogRecords]) -> list[tuple[str, Row]]:
    """Every change: its symbol and its row."""
    found = []
    for each in records:
        assert each.change_types is not None
        kinds = [ChangeType(kind).symbol for kind in each.change_types.to_pylist()]
        found += list(zip(kinds, tuples(each.batch), strict=True))
    return found


def changelog(client: Client, path: TablePath = PATH) -> list[tuple[str, Row]]:
    """The changes of all buckets, bucket by bucket."""
    info = client.admin.table_info(path)
    reader = client.log_reader(path)
    buckets = [TableBucket(info.table_id, None, n) for n in range(info.bucket_count)]
    return [change for bucket in buckets for change in changes_of(reader.read(bucket))]


def replayed(changes: Iterable[tuple[str, Row]]) -> dict[Any, Row]:
    """What a reader of a changelog holds in the end, by the first column."""
    found: dict[Any, Row] = {}
    for kind, row in changes:
        if kind in ("+I", "+U"):
            found[row[0]] = row
        elif kind == "-D":
            del found[row[0]]
        else:
            assert (kind, found[row[0]]) == ("-U", row)
    return found
