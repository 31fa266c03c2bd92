"""A table with a primary key, what it holds, and what Spark reads of it in the lake."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from sluice.client import Client
from sluice.model import Column, Schema, TableDescriptor, TablePath
from sluice.model import types as t

KEYS = (
    Column("day", t.STRING.not_null(), 0),
    Column("id", t.BIGINT.not_null(), 1),
)
ITEMS = (Column("item", t.STRING, 2), Column("n", t.INT, 3))
DUE = {"table.datalake.enabled": "true", "table.datalake.freshness": "0s"}

Held = dict[tuple[str, int], tuple[str | None, int | None]]
"""(item, n) by (day, id)."""


def stock_table(
    properties: dict[str, str] | None = None,
    *,
    partitioned: bool = False,
    version: int | None = None,
) -> TableDescriptor:
    """Due at once, whenever one asks.

    :param version: of the lake table's format; None: the default.
    """
    columns = (*KEYS, *ITEMS)
    return TableDescriptor(
        Schema(columns, ("day", "id"), len(columns) - 1),
        partition_keys=("day",) if partitioned else (),
        bucket_keys=("id",),
        bucket_count=2,
        properties=DUE | (properties or {}),
        custom_properties={} if version is None else {"iceberg.format-version": str(version)},
    )


@dataclass
class Stock:
    """One table and what was acknowledged of it."""

    client: Client
    path: TablePath
    sql: Callable[[str], list[Any]]
    """Asks Spark; ``{lake}`` stands for the lake table."""
    held: Held = field(default_factory=dict)

    def put(self, rows: dict[int, int | None], day: str = "mon", item: str | None = "pen") -> None:
        """Upserts n by id."""
        keys = list(rows)
        table = pa.table(
            {
                "day": pa.array([day] * len(keys)),
                "id": pa.array(keys, pa.int64()),
                "item": pa.array([item] * len(keys), pa.string()),
                "n": pa.array([rows[key] for key in keys], pa.int32()),
            }
        )
        with self.client.kv_writer(self.path) as writer:
            writer.upsert(table)
        self.held |= {(day, key): (item, rows[key]) for key in keys}

    def delete(self, *keys: int, day: str = "mon") -> None:
        columns = {"day": pa.array([day] * len(keys)), "id": pa.array(keys, pa.int64())}
        with self.client.kv_writer(self.path) as writer:
            writer.delete(pa.table(columns))
        for key in keys:
            self.held.pop((day, key), None)

    def forget(self, day: str) -> None:
        """A partition was dropped."""
        self.held = {key: row for key, row in self.held.items() if key[0] != day}

    def rows(self, query: str) -> list[Any]:
        return self.sql(query.replace("{lake}", f"lake.{self.path}"))

    def in_lake(self) -> Held:
        rows = self.rows("SELECT day, id, item, n FROM {lake}")
        found = {(row.day, row.id): (row.item, row.n) for row in rows}
        assert len(found) == len(rows), "a key is there twice"
        return found

    def assert_equal(self) -> None:
        """The lake, deletes applied, is what was acknowledged."""
        assert self.in_lake() == self.held
