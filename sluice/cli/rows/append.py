"""`sluice append` and `sluice delete`: add the rows of a file to a table, or delete them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sluice.cli.terminal.options import TABLE_PATH, Settings, WholeNumber, examples, with_settings
from sluice.cli.terminal.output import say
from sluice.did_you_mean import did_you_mean
from sluice.model import TableInfo, TablePath
from sluice.stop_signals import sigterm_raises

if TYPE_CHECKING:
    from sluice.cli.rows.readers import RowFile
    from sluice.cli.rows.sending import Check, FileSender, Send
    from sluice.client import Client
    from sluice.client.batches.bucket_writer import BucketWriter

_FILE = click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
_SKIP_ROWS = click.option(
    "--skip-rows",
    type=WholeNumber(0),
    metavar="N",
    default=0,
    help="Skip the first N rows of the file. An interrupted run prints N.",
)


@click.command(
    short_help="Append or upsert the rows of a file.",
    epilog=examples(
        "sluice append shop.orders orders.parquet",
        "sluice append shop.visits visits.csv --create-partitions",
        "sluice append shop.stock counted.csv --columns item,n",
        "sluice append shop.orders orders.jsonl --skip-rows 131072",
    ),
)
@click.argument("table", type=TABLE_PATH)
@_FILE
@click.option("--create-partitions", is_flag=True, help="Create missing partitions.")
@click.option(
    "--columns",
    metavar="COLUMN[,COLUMN]",
    help="Write only these columns, with the primary key among them. Other columns of a row keep"
    " their values.",
)
@_SKIP_ROWS
@with_settings
def append(
    table: TablePath,
    file: Path,
    create_partitions: bool,
    columns: str | None,
    skip_rows: int,
    settings: Settings,
) -> None:
    """Append the rows of FILE (.parquet, .csv or .jsonl) to TABLE.

    In a table with a primary key, each row replaces the row with the same key. Columns are matched
    by name. Values must fit their column without loss.

    The complete file is checked before the first row is sent. An error names line, column, value
    and expected form. In a CSV file, empty fields, NA and NULL without quotes are nulls.

    An interrupted run prints how many rows are acknowledged, and the command that continues after
    them. No row is then lost. In a log table, rows that were on their way may be stored twice.
    """
    from sluice.cli.rows.sending import FileSender, nothing_sent

    targets = [name.strip() for name in columns.split(",")] if columns else None
    with settings.connect() as client, sigterm_raises():
        info = client.admin.table_info(table)
        rows = _rows(file, info, targets)
        with nothing_sent():
            words = _writing(client, info, targets, create_partitions)
        sender = FileSender(table, rows, *words, _again(info), create_partitions)
        _send(sender, skip_rows, "row", "upserted" if info.has_primary_key else "appended")


@click.command(
    short_help="Delete rows by their primary keys.",
    epilog=examples("sluice delete shop.stock sold-out.csv"),
)
@click.argument("table", type=TABLE_PATH)
@_FILE
@_SKIP_ROWS
@with_settings
def delete(table: TablePath, file: Path, skip_rows: int, settings: Settings) -> None:
    """Delete the rows of TABLE whose keys are in FILE (.parquet, .csv or .jsonl).

    FILE needs the columns of the primary key. Other columns are ignored. A key that has no row is
    sent and counted too.

    The complete file is checked before the first delete is sent. After an interruption run the
    command again, or the command that it prints.
    """
    from sluice.cli.rows import columns
    from sluice.cli.rows.sending import FileSender
    from sluice.cli.terminal.cluster import replaced_advice

    with settings.connect() as client, sigterm_raises():
        with replaced_advice("`sluice append` adds rows to its log"):
            writer = client.kv_writer(table)
        schema, keys = writer.info.schema, columns.keys_of(writer.info)
        wanted = columns.columns_of(schema, schema.primary_key, keys)
        rows = columns.rows_of(file, wanted, is_part=True)
        again = "deleting them again changes nothing"
        sender = FileSender(
            table, rows, writer, writer.check_delete, writer.delete, again, needs_partitions=False
        )
        _send(sender, skip_rows, "delete", "sent")


def _send(sender: FileSender, skipped: int, noun: str, done: str) -> None:
    """Checks a file, sends its rows, and prints their number.

    :param skipped: the number of rows at the start of the file that are not sent.
    """
    from sluice.cli.rows.sending import nothing_sent
    from sluice.quantities import counted

    with nothing_sent():
        total = sender.check_all()
    if skipped > total:
        raise click.BadParameter(
            f"{skipped} rows are more than {sender.rows.path} has: {counted(total, 'row')}",
            param_hint="--skip-rows",
        )
    started = time.monotonic()
    sender.send_all(total, skipped)
    seconds = time.monotonic() - started
    after = f", after the first {skipped:,}" if skipped else ""
    say(f"{sender.table}: {counted(total - skipped, noun)} {done} in {seconds:.1f} s{after}")


def _again(info: TableInfo) -> str:
    """What it does to send a row of this table twice."""
    if not info.has_primary_key:
        return "appending them again stores them twice"
    if info.descriptor.properties.get("table.merge-engine", "").lower() == "aggregation":
        return "upserting them again aggregates them twice"
    return "upserting them again changes nothing"


def _rows(file: Path, info: TableInfo, targets: list[str] | None) -> RowFile:
    """The rows of a file, for these columns of a table; None: all."""
    from sluice.cli.rows import columns

    names = info.schema.names
    if targets is not None and not info.has_primary_key:
        raise click.BadParameter(
            f"table {info.path} has no primary key, so rows have all columns",
            param_hint="--columns",
        )
    for name in targets or []:
        if name not in names:
            hint = did_you_mean(name, names) or f"; the columns are {', '.join(names)}"
            raise click.BadParameter(f"no column {name!r}{hint}", param_hint="--columns")
    numbered = () if targets else info.schema.auto_increment
    written = targets or [name for name in names if name not in numbered]
    schema = columns.columns_of(info.schema, written, columns.keys_of(info))
    keys = info.schema.primary_key
    return columns.rows_of(file, schema, is_part=targets is not None, keys=keys, numbered=numbered)


def _writing(
    client: Client, info: TableInfo, targets: list[str] | None, create_partitions: bool
) -> tuple[BucketWriter, Check, Send]:
    """A writer for a table, its check of rows, and its function that sends them."""
    if info.has_primary_key:
        keyed = client.kv_writer(info.path, targets, dynamic_partitions=create_partitions)
        return keyed, keyed.check_upsert, keyed.upsert
    log = client.log_writer(info.path, dynamic_partitions=create_partitions)
    return log, log.check, log.write
