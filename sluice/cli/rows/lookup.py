"""`sluice lookup` and `sluice snapshots`: rows and KV snapshots of a table with a primary key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from sluice.cli.terminal.errors import RowNotFound
from sluice.cli.terminal.options import (
    TABLE_PATH,
    Settings,
    WholeNumber,
    examples,
    format_option,
    with_settings,
)
from sluice.cli.terminal.output import print_json, print_table
from sluice.did_you_mean import did_you_mean
from sluice.errors import InvalidTable
from sluice.model import TablePath

if TYPE_CHECKING:
    import pyarrow as pa

    from sluice.client import Client, KvReader

_FIRST_ROWS = 10


@click.command(
    short_help="Look up rows of a table with a primary key.",
    epilog=examples(
        "sluice lookup shop.stock item=pen",
        "sluice lookup shop.orders region=eu customer=ann --format json",
        "sluice lookup shop.stock --limit 20",
    ),
)
@click.argument("table", type=TABLE_PATH)
@click.argument("key", nargs=-1, metavar="[COLUMN=VALUE]...")
@click.option(
    "--limit",
    type=WholeNumber(1, 2**31 - 1),
    metavar="N",
    help=f"Number of rows to show without a key.  [default: {_FIRST_ROWS}]",
)
@click.option("--partition", metavar="NAME", help="Show rows of this partition. Not with a key.")
@format_option
@with_settings
def lookup(
    table: TablePath,
    key: tuple[str, ...],
    limit: int | None,
    partition: str | None,
    output_format: str,
    settings: Settings,
) -> None:
    """Show the row of TABLE that has this key, or its first rows.

    Give every column of the primary key. If the bucket key consists of the first columns of the
    primary key, those columns (and the partition keys) are enough, and all matching rows are shown.

    The exit code is 1 if no row matches.
    """
    if key and (limit is not None or partition is not None):
        raise click.UsageError("--limit and --partition cannot be combined with a key")
    from sluice.cli.terminal.cluster import replaced_advice
    from sluice.cli.terminal.shown_values import shown_rows

    with settings.connect() as client:
        with replaced_advice("`sluice tier` copies its rows to the lake, `sluice sql` shows them"):
            reader = client.kv_reader(table)
        first = limit or _FIRST_ROWS
        if not key and partition is None and reader.info.descriptor.partition_keys:
            names = [found.name for found in client.admin.partitions_of(reader.info)]
            raise click.UsageError(
                f"{table} has partitions: give a key, or --partition with one of"
                f" {', '.join(names[:10]) or 'them (none exists yet)'}"
            )
        rows = _found(reader, key) if key else reader.limit_scan(first, partition)
    if key and not rows.num_rows:
        raise RowNotFound(f"{table} has no row with {' '.join(key)}")
    shown = shown_rows(rows)
    if output_format == "json":
        print_json([dict(zip(rows.schema.names, row, strict=True)) for row in shown], is_data=True)
        return
    print_table(rows.schema.names, shown, empty=f"{table} has no rows", exact=True, is_data=True)


def _found(reader: KvReader, key: Sequence[str]) -> pa.Table:
    """The rows that have a complete key or a prefix of it.

    :raises click.UsageError: the key is neither; names the missing columns.
    """
    import pyarrow.compute as pc

    requested = _key_row(reader, key)
    primary_key = reader.info.schema.primary_key
    missing = [name for name in primary_key if name not in requested.schema.names]
    if missing:
        try:
            prefix = reader.prefix_columns
        except InvalidTable:
            prefix = ()
        if set(requested.schema.names) == set(prefix):
            return reader.prefix_lookup(requested)
        raise click.UsageError(
            f"{reader.info.path}: the key lacks {', '.join(missing)};"
            f" the primary key is ({', '.join(primary_key)}). {_prefix_text(reader, prefix)}"
        )
    found = reader.lookup(requested)
    return found.filter(pc.is_valid(found[primary_key[0]]))


def _prefix_text(reader: KvReader, prefix: Sequence[str]) -> str:
    """A sentence about the columns that a lookup needs."""
    if prefix:
        return f"{', '.join(prefix)} alone shows all rows with that prefix"
    bucket, partition = reader.info.descriptor.bucket_keys, reader.info.descriptor.partition_keys
    if {*bucket, *partition} == set(reader.info.schema.primary_key):
        return "Give all of them"
    return (
        f"Give all of them: the bucket key ({', '.join(bucket)}) is not a prefix of the primary key"
    )


def _key_row(reader: KvReader, key: Sequence[str]) -> pa.Table:
    """COLUMN=VALUE as a table of one row."""
    import pyarrow as pa

    from sluice.cli.rows.columns import columns_of
    from sluice.cli.rows.values import expected, from_text

    schema = reader.info.schema
    fields = {field.name: field for field in columns_of(schema, schema.primary_key)}
    columns: dict[str, pa.Array] = {}
    for text in key:
        name, equals, value = text.partition("=")
        if not equals:
            example = next(iter(fields))
            raise click.BadParameter(f"expected COLUMN=VALUE such as {example}=1, found {text!r}")
        if name in columns:
            raise click.BadParameter(f"{text!r}: column {name} is given twice")
        if name not in fields:
            hint = did_you_mean(name, fields) or f"; the primary key is ({', '.join(fields)})"
            raise click.BadParameter(f"{text!r}: {name} is not in the primary key{hint}")
        try:
            columns[name] = from_text(pa.array([value]), fields[name])
        except pa.ArrowException as error:
            raise click.BadParameter(expected(fields[name], value)) from error
    return pa.table(columns)


@click.command(
    short_help="List KV snapshots of a table with a primary key.",
    epilog=examples(
        "sluice snapshots shop.stock",
        "sluice snapshots shop.stock --format json",
    ),
)
@click.argument("table", type=TABLE_PATH)
@format_option
@with_settings
def snapshots(table: TablePath, output_format: str, settings: Settings) -> None:
    """Show the newest KV snapshot of each bucket of TABLE.

    A snapshot holds the bucket's rows as of its log offset.
    """
    with settings.connect() as client:
        rows = _snapshots(client, table)
    if output_format == "json":
        print_json(rows)
        return
    headings = ["partition", "bucket", "snapshot", "log_offset"]
    shown = [[row[heading] for heading in headings] for row in rows]
    print_table(headings, shown, empty=f"{table} has no KV snapshots yet")


def _snapshots(client: Client, table: TablePath) -> list[dict[str, Any]]:
    info = client.admin.table_info(table)
    partitions = client.admin.partitions_of(info) if info.is_partitioned else [None]
    return [
        {
            "partition": partition.name if partition else None,
            "bucket": bucket.bucket,
            "snapshot": found.snapshot_id,
            "log_offset": found.log_offset,
        }
        for partition in partitions
        for bucket, found in sorted(
            client.leases.latest(table, partition).snapshots.items(), key=lambda e: e[0].bucket
        )
    ]
