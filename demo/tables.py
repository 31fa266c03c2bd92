"""Creates and loads the tables of the demo with Sluice's client."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import pyarrow as pa

from demo import flight_status
from demo.data import Source
from sluice.client import Client
from sluice.errors import UnsupportedVersion
from sluice.formats.types.types import arrow_schema, schema_from_arrow
from sluice.model import Claim, Reason, TableDescriptor, TablePath

DATABASE = "nyc"
SLICE_ROWS = 32 * 1024


FLIGHT_STATUS = TablePath(DATABASE, flight_status.NAME)
TIERED = {"table.datalake.enabled": "true", "table.datalake.freshness": "1s"}


def path_of(source: Source) -> TablePath:
    return TablePath(DATABASE, source.name)


def paths_of(sources: Sequence[Source]) -> list[TablePath]:
    """Returns the paths of all tables: one per source, and the primary-key table."""
    return [*map(path_of, sources), FLIGHT_STATUS]


Create = Callable[[TablePath, TableDescriptor], None]


def create(client: Client, sources: Sequence[Source], create_table: Create) -> None:
    """Creates the database and its tables, with tiering on and a freshness of one second."""
    client.admin.create_database(DATABASE)
    for source in sources:
        descriptor = TableDescriptor(
            schema_from_arrow(source.rows.schema),
            partition_keys=(source.partition_by,) if source.partition_by else (),
            bucket_keys=(source.bucket_key,) if source.bucket_key else (),
            bucket_count=source.buckets,
            properties=TIERED,
        )
        create_table(path_of(source), descriptor)
    keyed = TableDescriptor(
        replace(schema_from_arrow(flight_status.SCHEMA), primary_key=flight_status.KEY),
        bucket_keys=(flight_status.BUCKET_KEY,),
        bucket_count=flight_status.BUCKETS,
        properties=TIERED,
    )
    create_table(FLIGHT_STATUS, keyed)


def load(client: Client, source: Source, rows: pa.Table, say: Callable[[str], None]) -> None:
    """Appends rows to a table. The first row of a partition creates it."""
    path = path_of(source)
    wanted = arrow_schema(client.admin.table_info(path).schema)
    with client.log_writer(path, dynamic_partitions=True) as writer:
        for start in range(0, rows.num_rows, SLICE_ROWS):
            writer.write(rows.slice(start, SLICE_ROWS).cast(wanted))
            done = min(start + SLICE_ROWS, rows.num_rows)
            say(f"{source.name}: {done:,} of {rows.num_rows:,} rows")
        writer.flush()


def replay_flights(
    client: Client, flights: pa.Table, *, first: bool, say: Callable[[str], None]
) -> int:
    """Writes the changes of the flights to the primary-key table. Returns their number."""
    done = 0
    with client.kv_writer(FLIGHT_STATUS) as writer:
        for change in flight_status.changes(flights, first=first):
            if change.deletes:
                writer.delete(change.rows)
            else:
                writer.upsert(change.rows)
            done += change.rows.num_rows
            say(f"{flight_status.NAME}: {done:,} changes")
        writer.flush()
    return done


def wait_for_snapshots(client: Client, timeout_s: float, say: Callable[[str], None]) -> None:
    """Waits until each bucket of the primary-key table has a KV snapshot.

    :raises TimeoutError: names the number of buckets that have one.
    """
    deadline = time.monotonic() + timeout_s
    while (found := len(client.leases.latest(FLIGHT_STATUS).snapshots)) < flight_status.BUCKETS:
        waiting_for = f"{found} of {flight_status.BUCKETS} buckets have a KV snapshot"
        if time.monotonic() > deadline:
            raise TimeoutError(f"{FLIGHT_STATUS}: {waiting_for} after {timeout_s:.0f} s")
        say(waiting_for)
        time.sleep(0.1)


def end_offsets(client: Client, source: Source) -> int:
    """Returns the sum of the end offsets of all buckets."""
    path = path_of(source)
    partitions: list[int | None] = [None]
    if source.partition_by:
        partitions = [partition.partition_id for partition in client.admin.partitions(path)]
    buckets = list(range(source.buckets))
    return sum(
        sum(client.admin.list_offsets(path, buckets, partition_id=partition).values())
        for partition in partitions
    )


def wait_until_pending(
    client: Client, paths: Sequence[TablePath], timeout_s: float, say: Callable[[str], None]
) -> None:
    """Waits until every table is due, one freshness after its last round.

    :raises TimeoutError: names the tables and their states.
    """
    deadline = time.monotonic() + timeout_s
    while waiting_for := _not_due(client, paths):
        if time.monotonic() > deadline:
            raise TimeoutError(f"not all tables are due after {timeout_s:.0f} s: {waiting_for}")
        say(waiting_for)
        time.sleep(0.1)


def _not_due(client: Client, paths: Sequence[TablePath]) -> str:
    """Returns the tables that are not due yet, and their states."""
    try:
        statuses = [s for path in paths for s in client.statuses.of_coordinator(path)]
    except UnsupportedVersion:
        return _not_claimable(client, paths)
    waiting = [f"{s.path} {s.status}" for s in statuses if s.status.upper() != "PENDING"]
    known = {status.path for status in statuses}
    waiting += [f"{path} unknown" for path in paths if path not in known]
    return ", ".join(sorted(waiting))


def _not_claimable(client: Client, paths: Sequence[TablePath]) -> str:
    """Returns the same for Apache Fluss, which lists no statuses: claims and releases tables."""
    claims: list[Claim] = []
    left = list(paths)
    try:
        while left and (claim := client.tiering.claim(left)) is not None:
            claims.append(claim)
            left.remove(claim.path)
    finally:
        for claim in claims:
            reason = Reason.from_text("the demo checked whether the table is due")
            client.tiering.release(claim, reason)
    return ", ".join(f"{path} not due" for path in left)
