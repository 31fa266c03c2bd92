"""What a user of pyfluss does with tables, call by call; run in a process of its own.

Usage: python -m tests.support.clients.pyfluss_tour HOST:PORT [TABLE COLUMN...]. Prints one JSON
document: what each step answered or, with a table of the database tour, the values of those columns
in bucket 0.
"""

from __future__ import annotations

import asyncio
import faulthandler
import json
import os
import sys
from collections.abc import Awaitable
from typing import Any

import fluss
import pyarrow as pa

from tests.support.clients.official_client import flush

LIMIT_S = 200.0
SCHEMA = pa.schema(
    [("id", pa.int64()), ("text", pa.string()), ("day", pa.string()), ("n", pa.int32())]
)
DAYS = ("2026-01-01", "2026-01-02")
PLAIN, DAILY = fluss.TablePath("tour", "plain"), fluss.TablePath("tour", "daily")
KEYED = fluss.TablePath("tour", "keyed")


def rows(first: int, count: int, day: str) -> pa.RecordBatch:
    ids = range(first, first + count)
    return pa.record_batch(
        {
            "id": ids,
            "text": [None if i % 3 == 0 else f"t{i}" for i in ids],
            "day": [day] * count,
            "n": list(ids),
        },
        schema=SCHEMA,
    )


def values(table: pa.Table) -> dict[str, list[Any]]:
    if "id" in table.column_names:
        table = table.sort_by("id")
    return table.to_pydict()


async def error(call: Awaitable[Any]) -> list[Any]:
    """Code and text of the error that a call ends with."""
    try:
        return ["no error", str(await call)]
    except fluss.FlussError as raised:
        return [raised.error_code, raised.message]


async def scan(table: Any, buckets: dict[Any, int], columns: list[str] | None = None) -> Any:
    scanning = table.new_scan()
    if columns:
        scanning = scanning.project_by_name(columns)
    scanner = await scanning.create_record_batch_log_scanner()
    if isinstance(next(iter(buckets)), tuple):
        scanner.subscribe_partition_buckets(buckets)
    else:
        scanner.subscribe_buckets(buckets)
    return values(await scanner.to_arrow())


async def plain(connection: Any, said: dict[str, Any]) -> None:
    admin = connection.get_admin()
    described = fluss.TableDescriptor(fluss.Schema(SCHEMA), bucket_count=2, comment="a tour")
    await admin.create_table(PLAIN, described)
    said["created twice"] = await error(admin.create_table(PLAIN, described))
    info = await admin.get_table_info(PLAIN)
    said["info"] = [info.num_buckets, info.comment, info.get_column_names(), info.schema_id]
    table = await connection.get_table(PLAIN)
    writer = table.new_append().create_writer()
    for start in range(0, 1000, 100):
        writer.write_arrow_batch(rows(start, 100, DAYS[0]))
    writer.append({"id": 1000, "text": "one row", "day": DAYS[1], "n": None})
    await flush(writer)
    spec = fluss.OffsetSpec
    ends = await admin.list_offsets(PLAIN, [0, 1], spec.latest())
    said["rows"] = sum(ends.values())
    said["earliest"] = sum((await admin.list_offsets(PLAIN, [0, 1], spec.earliest())).values())
    said["since 1970"] = sum((await admin.list_offsets(PLAIN, [0, 1], spec.timestamp(0))).values())
    everywhere = dict.fromkeys((0, 1), fluss.EARLIEST_OFFSET)
    said["scan"] = await scan(table, everywhere)
    said["one column"] = await scan(table, everywhere, ["id"])
    said["two columns"] = await scan(table, everywhere, ["n", "id"])
    said["from the end"] = await scan(table, dict(ends))
    scanner = await table.new_scan().create_log_scanner()
    scanner.subscribe_buckets(everywhere)
    found = 0
    while found < 1001:
        found += (await scanner.poll(1000)).count()
    said["records"] = found
    fullest = max(ends, key=lambda bucket: ends[bucket])
    bucket = fluss.TableBucket(info.table_id, fullest)
    last = table.new_scan().limit(3).create_bucket_batch_scanner(bucket)
    said["last rows"] = (await last.to_arrow()).num_rows
    said["lake"] = await error(admin.get_latest_lake_snapshot(PLAIN))


async def daily(connection: Any, said: dict[str, Any]) -> None:
    admin = connection.get_admin()
    described = fluss.TableDescriptor(fluss.Schema(SCHEMA), partition_keys=["day"], bucket_count=2)
    await admin.create_table(DAILY, described)
    for day in DAYS:
        await admin.create_partition(DAILY, {"day": day})
    said["partition twice"] = await error(admin.create_partition(DAILY, {"day": DAYS[0]}))
    partitions = await admin.list_partition_infos(DAILY)
    said["partitions"] = [each.partition_name for each in partitions]
    table = await connection.get_table(DAILY)
    writer = table.new_append().create_writer()
    for number, day in enumerate(DAYS):
        writer.write_arrow_batch(rows(100 * number, 50, day))
    await flush(writer)
    latest = fluss.OffsetSpec.latest()
    ends = [await admin.list_partition_offsets(DAILY, day, [0, 1], latest) for day in DAYS]
    said["partition rows"] = [sum(end.values()) for end in ends]
    everywhere = {
        (each.partition_id, bucket): fluss.EARLIEST_OFFSET
        for each in partitions
        for bucket in (0, 1)
    }
    said["partition scan"] = await scan(table, everywhere)
    said["partition column"] = await scan(table, everywhere, ["day"])
    await admin.drop_partition(DAILY, {"day": DAYS[0]})
    said["partitions left"] = [
        each.partition_name for each in await admin.list_partition_infos(DAILY)
    ]


async def keyed(connection: Any, said: dict[str, Any]) -> None:
    """A table with a primary key: written, looked up, its changelog and its first rows read."""
    admin = connection.get_admin()
    schema = fluss.Schema(SCHEMA, primary_keys=["id"])
    await admin.create_table(KEYED, fluss.TableDescriptor(schema, bucket_count=2))
    table = await connection.get_table(KEYED)
    writer = table.new_upsert().create_writer()
    for row in rows(0, 100, DAYS[0]).to_pylist():
        writer.upsert(row)
    await flush(writer)
    writer.upsert({"id": 1, "text": "again", "day": DAYS[1], "n": -1})
    writer.delete({"id": 2})
    await flush(writer)
    partial = table.new_upsert().partial_update_by_name(["id", "n"]).create_writer()
    partial.upsert({"id": 3, "n": 333})
    await flush(partial)
    lookuper = table.new_lookup().create_lookuper()
    said["looked up"] = [await lookuper.lookup({"id": i}) for i in (1, 2, 3, 4, 1000)]
    scanner = await table.new_scan().create_log_scanner()
    scanner.subscribe_buckets(dict.fromkeys((0, 1), fluss.EARLIEST_OFFSET))
    changes: list[Any] = []
    while len(changes) < 105:
        for record in await scanner.poll(1000):
            if record.row["id"] in (1, 2, 3):
                change = record.change_type.short_string()
                changes.append([record.row["id"], change, record.row["n"]])
            else:
                changes.append(None)
    said["changes"] = sorted(change for change in changes if change)
    said["change count"] = len(changes)
    info = await admin.get_table_info(KEYED)
    first = [
        await table.new_scan()
        .limit(5)
        .create_bucket_batch_scanner(fluss.TableBucket(info.table_id, bucket))
        .to_arrow()
        for bucket in (0, 1)
    ]
    said["first rows"] = [part.num_rows for part in first]
    said["key options"] = {
        key: value for key, value in info.get_properties().items() if key.startswith("table.kv")
    }


async def refusals(admin: Any, said: dict[str, Any]) -> None:
    nowhere = fluss.TablePath("tour", "nowhere")
    said["no table"] = await error(admin.get_table_info(nowhere))
    said["no database"] = await error(admin.list_tables("nowhere"))
    unknown = {"table.merge-engine": "aggregation"}
    keyed = fluss.Schema(SCHEMA, primary_keys=["id"])
    said["aggregation"] = await error(
        admin.create_table(
            nowhere, fluss.TableDescriptor(keyed, bucket_count=1, properties=unknown)
        )
    )
    said["not empty"] = await error(admin.drop_database("tour", cascade=False))


async def tour(bootstrap: str) -> dict[str, Any]:
    said: dict[str, Any] = {}
    connection = await fluss.FlussConnection.create(fluss.Config({"bootstrap.servers": bootstrap}))
    admin = connection.get_admin()
    nodes = await admin.get_server_nodes()
    said["nodes"] = sorted([str(node.server_type), node.host, node.port] for node in nodes)
    await admin.create_database("tour")
    said["database twice"] = await error(admin.create_database("tour"))
    said["databases"] = [await admin.list_databases(), await admin.database_exists("tour")]
    await plain(connection, said)
    await daily(connection, said)
    await keyed(connection, said)
    await refusals(admin, said)
    said["tables"] = sorted(await admin.list_tables("tour"))
    await admin.drop_table(PLAIN)
    said["dropped"] = await admin.table_exists(PLAIN)
    await admin.drop_database("tour", cascade=True)
    said["databases left"] = await admin.list_databases()
    await connection.close()
    return said


async def columns(bootstrap: str, name: str, wanted: list[str]) -> dict[str, Any]:
    connection = await fluss.FlussConnection.create(fluss.Config({"bootstrap.servers": bootstrap}))
    table = await connection.get_table(fluss.TablePath("tour", name))
    found: dict[str, Any] = await scan(table, {0: fluss.EARLIEST_OFFSET}, wanted)
    return found


if __name__ == "__main__":
    faulthandler.dump_traceback_later(LIMIT_S, exit=True)  # where it hangs
    address, *more = sys.argv[1:]
    work = columns(address, more[0], more[1:]) if more else tour(address)
    print(json.dumps(asyncio.run(work)), flush=True)
    os._exit(0)  # it may abort when its interpreter ends
