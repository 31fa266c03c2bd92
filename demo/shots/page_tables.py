"""The lake tables of the page's scene: plausible names, schemas, and which of them are stuck."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from sluice.client import Client
from sluice.formats.types.types import schema_from_arrow
from sluice.model import TableDescriptor, TablePath

NOUNS = {
    "sales": "orders order_lines customers carts coupons quotes returns stores prices targets",
    "billing": "invoices payments refunds accounts credits reminders taxes ledger fees payouts",
    "logistics": "shipments stock_levels parcels routes drivers depots scans pallets claims fleet",
    "web": "page_views sessions clicks searches experiments signups reviews banners mails errors",
    "support": "tickets agents calls chats surveys escalations articles shifts tags feedback",
}
REGIONS = ("eu", "us", "apac", "latam")
KEYED = frozenset(
    ("customers", "prices", "accounts", "ledger", "stock_levels", "fleet", "agents", "experiments")
)
"""Nouns whose tables have a primary key."""

FAILING = TablePath("billing", "invoices_eu")
LATE = TablePath("logistics", "stock_levels_us")
WAITING = TablePath("support", "surveys_latam")
PAUSED = (TablePath("web", "experiments_apac"), TablePath("sales", "quotes_latam"))
LEASED = (LATE, TablePath("sales", "customers_eu"), TablePath("billing", "accounts_us"))
"""Tables with KV snapshots that somebody has leased."""
SPECIAL = tuple(dict.fromkeys((FAILING, LATE, WAITING, *PAUSED, *LEASED)))
TABLES_MIN = len(SPECIAL)

FRESHNESS_MINUTES = (10, 20, 60, 60)
BUCKETS = 2
KEYS = 20_000
STATES = ("new", "paid", "sent", "closed")
LOG_SCHEMA = pa.schema([("id", pa.int64()), ("state", pa.string()), ("cents", pa.int64())])
KEYED_SCHEMA = LOG_SCHEMA.set(0, pa.field("id", pa.int64(), nullable=False))


@dataclass(frozen=True, slots=True)
class SceneTable:
    """One table, and how many rows it gets."""

    path: TablePath
    has_key: bool
    freshness_minutes: int
    rows: int
    """In a usual round."""


def scene_tables(count: int) -> list[SceneTable]:
    """The first tables, those with a part of their own among them; always the same.

    :param count: at least TABLES_MIN.
    """
    paths = list(SPECIAL)
    number = 0
    while len(paths) < count:
        turn = f"_{number}" if number else ""
        names = (
            TablePath(database, f"{noun}_{region}{turn}")
            for region in REGIONS
            for database, nouns in NOUNS.items()
            for noun in nouns.split()
        )
        paths += [path for path in names if path not in SPECIAL][: count - len(paths)]
        number += 1
    return [_table(path) for path in paths]


def _table(path: TablePath) -> SceneTable:
    chance = random.Random(str(path))
    noun = path.table.rpartition("_")[0]
    minutes = 20 if path in SPECIAL else chance.choice(FRESHNESS_MINUTES)
    rows = 1_400 if path in SPECIAL else round(chance.lognormvariate(5.7, 0.9)) + 3
    return SceneTable(path, noun in KEYED, minutes, rows)


def create(client: Client, tables: Sequence[SceneTable]) -> None:
    """Creates the databases and the tables, with tiering enabled."""
    for database in sorted({table.path.database for table in tables}):
        client.admin.create_database(database)
    for table in tables:
        schema = schema_from_arrow(KEYED_SCHEMA if table.has_key else LOG_SCHEMA)
        descriptor = TableDescriptor(
            replace(schema, primary_key=("id",)) if table.has_key else schema,
            bucket_count=BUCKETS,
            properties={
                "table.datalake.enabled": "true",
                "table.datalake.freshness": f"{table.freshness_minutes} min",
            },
            comment=f"{table.path.table.replace('_', ' ')}, as the shop writes them",
        )
        client.admin.create_table(table.path, descriptor)


def append(client: Client, table: SceneTable, first: int, count: int) -> None:
    """Appends rows to a log table, or upserts those with a key."""
    if not count:
        return
    if table.has_key:
        with client.kv_writer(table.path) as keyed:
            keyed.upsert(_rows(first, count, table.has_key))
        return
    with client.log_writer(table.path) as writer:
        writer.write(_rows(first, count, table.has_key))


def _rows(first: int, count: int, has_key: bool) -> pa.Table:
    numbers = range(first, first + count)
    columns = [
        pa.array([n % KEYS if has_key else n for n in numbers], pa.int64()),
        pa.array([STATES[n % len(STATES)] for n in numbers], pa.string()),
        pa.array([n * 7919 % 90_000 for n in numbers], pa.int64()),
    ]
    return pa.table(columns, schema=KEYED_SCHEMA if has_key else LOG_SCHEMA)
