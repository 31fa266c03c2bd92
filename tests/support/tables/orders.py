"""One table of orders, and the shortest ways to write and read it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pyarrow as pa

from sluice.client import Client
from sluice.model import Column, Schema, TableBucket, TableDescriptor, TablePath
from sluice.model import types as t
from sluice.rounds.values.types import LogRecords

PATH = TablePath("shop", "orders")
SCHEMA = Schema((Column("id", t.BIGINT, 0), Column("region", t.STRING, 1)), highest_field_id=1)
PLAIN = TableDescriptor(SCHEMA, bucket_count=1)


def orders(first: int, count: int, region: str = "eu") -> pa.Table:
    return pa.table(
        {"id": pa.array(range(first, first + count), pa.int64()), "region": [region] * count}
    )


def bucket(client: Client, number: int = 0, partition_id: int | None = None) -> TableBucket:
    return TableBucket(client.admin.table_info(PATH).table_id, partition_id, number)


def ids(records: Iterable[LogRecords]) -> list[int]:
    return [i for r in records for i in r.batch["id"].to_pylist()]


def create(client: Client, descriptor: TableDescriptor, **changes: Any) -> None:
    client.admin.create_table(PATH, replace(descriptor, **changes))


def write(client: Client, *tables: pa.Table) -> None:
    """Each table becomes at least one batch of its own."""
    with client.log_writer(PATH) as writer:
        for table in tables:
            writer.write(table)
            writer.flush()
