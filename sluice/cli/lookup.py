"""`sluice lookup` and `sluice snapshots`: what a table with a primary key has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from sluice.cli.options import TABLE_PATH, cluster_options, configuration, format_option
from sluice.cli.output import as_json, print_json, print_table
from sluice.errors import InvalidTable
from sluice.model import TablePath

if TYPE_CHECKING:
    import pyarrow as pa

    from sluice.client import Client, KvReader

_FIRST_ROWS = 10


@click.command(
    short_help="Look up rows of a table with a primary key.",
    epilog="""
\b
Examples:
  sluice lookup shop.stock item=pen
  sluice lookup shop.orders region=eu customer=ann --format json
  sluice lookup shop.stock --limit 20
""",
)
@click.argument("table", type=TABLE_PATH)
@click.argument("key", nargs=-1, metavar="[COLUMN=VALUE]...")
@click.option(
    "--limit",
    type=click.IntRange(1, 2**31 - 1),
    metavar="N",
    help=f"Without a key: so many rows.  [default: {_FIRST_ROWS}]",
)
@click.option("--partition", metavar="NAME", help="Without a key: rows of this partition.")
@format_option
@cluster_options
def lookup(
    table: TablePath,
    key: tuple[str, ...],
    limit: int | None,
    partition: str | None,
    output_format: str,
    bootstrap: str | None,
    config_file: str | None,
) -> None:
    """Show the row of TABLE that has this key.

    Give every column of the primary key. Where the bucket key is its first columns, those alone
    (with the partition keys) show all rows that begin so. Without a key, the first rows are shown.

    Exit code 1 if there is no such row.
    """
    if key and (limit is not None or partition is not None):
        raise click.UsageError("--limit and --partition are for a look without a key")
    config = configuration(config_file, {"client.bootstrap": bootstrap})
    from sluice.client import connect

    with connect(config.client) as client:
        reader = client.kv_reader(table)
        first = limit or _FIRST_ROWS
        if not key and partition is None and reader.info.descriptor.partition_keys:
            names = [found.name for found in client.admin.partitions_of(reader.info)]
            raise click.UsageError(
                f"{table} has partitions: give a key, or --partition with one of"
                f" {', '.join(names[:10]) or 'them (there is none yet)'}"
            )
        rows = _found(reader, key) if key else reader.limit_scan(first, partition)
    if key and not rows.num_rows:
        raise click.ClickException(f"{table} has no row with {' '.join(key)}")
    if output_format == "json":
        print_json(
            [{name: as_json(value) for name, value in row.items()} for row in rows.to_pylist()]
        )
        return
    shown = [[as_json(value) for value in row.values()] for row in rows.to_pylist()]
    print_table(rows.schema.names, shown, empty=f"{table} has no rows", exact=True)


def _found(reader: KvReader, key: Sequence[str]) -> pa.Table:
    """The rows of a whole key or of a prefix.

    :raises click.UsageError: it is neither; names what is missing.
    """
    import pyarrow.compute as pc

    asked = _asked(reader, key)
    primary_key = reader.info.schema.primary_key
    missing = [name for name in primary_key if name not in asked.schema.names]
    if missing:
        try:
            prefix = reader.prefix_columns
        except InvalidTable:
            prefix = ()
        if set(asked.schema.names) == set(prefix):
            return reader.prefix_lookup(asked)
        raise click.UsageError(
            f"{reader.info.path}: of the primary key ({', '.join(primary_key)}) these are missing:"
            f" {', '.join(missing)}. {_prefix_words(reader, prefix)}"
        )
    found = reader.lookup(asked)
    return found.filter(pc.is_valid(found[primary_key[0]]))


def _prefix_words(reader: KvReader, prefix: Sequence[str]) -> str:
    """What can be asked by a part of the key."""
    if prefix:
        return f"With {', '.join(prefix)} alone it shows all rows that begin so"
    bucket, partition = reader.info.descriptor.bucket_keys, reader.info.descriptor.partition_keys
    if {*bucket, *partition} == set(reader.info.schema.primary_key):
        return "Give all of them"
    return f"Give all of them: its bucket key ({', '.join(bucket)}) is not the first part of it"


def _asked(reader: KvReader, key: Sequence[str]) -> pa.Table:
    """COLUMN=VALUE as a table of one row."""
    import pyarrow as pa

    from sluice.cli.file_values import from_text
    from sluice.cli.files import columns_of

    schema = reader.info.schema
    fields = {field.name: field for field in columns_of(schema, schema.primary_key)}
    columns: dict[str, pa.Array] = {}
    for text in key:
        name, equals, value = text.partition("=")
        if not equals or name not in fields or name in columns:
            raise click.BadParameter(
                f"{text!r}: write COLUMN=VALUE, once for each column of the primary key:"
                f" {', '.join(fields)}"
            )
        try:
            columns[name] = from_text(pa.array([value]), fields[name])
        except pa.ArrowException as error:
            raise click.BadParameter(f"{text!r} is no {fields[name].type}: {error}") from error
    return pa.table(columns)


@click.command(
    short_help="List KV snapshots of a table with a primary key.",
    epilog="""
\b
Examples:
  sluice snapshots shop.stock
  sluice snapshots shop.stock --format json
""",
)
@click.argument("table", type=TABLE_PATH)
@format_option
@cluster_options
def snapshots(
    table: TablePath, output_format: str, bootstrap: str | None, config_file: str | None
) -> None:
    """Show the newest KV snapshot of each bucket of TABLE.

    A snapshot holds what the log of its bucket has below the offset.
    """
    config = configuration(config_file, {"client.bootstrap": bootstrap})
    from sluice.client import connect

    with connect(config.client) as client:
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
