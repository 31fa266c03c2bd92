"""`sluice append` and `sluice delete`: rows of a file into a table, or out of it."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sluice.cli.options import TABLE_PATH, cluster_options, configuration
from sluice.model import TableInfo, TablePath

if TYPE_CHECKING:
    from sluice.cli.row_files import RowFile
    from sluice.cli.send_journal import SendJournal
    from sluice.cli.sending import Sending
    from sluice.client.bucket_writer import BucketWriter

_FILE = click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
_SKIP_ROWS = click.option(
    "--skip-rows",
    type=click.IntRange(0),
    metavar="N",
    help="Start after the first N rows of the file. A run that breaks off prints N.",
)


@click.command(
    short_help="Append the rows of a file to a table, or upsert them by its key.",
    epilog="""
\b
Examples:
  sluice append shop.orders orders.parquet
  sluice append shop.visits visits.csv --create-partitions
  sluice append shop.stock counted.csv --columns item,n
  sluice append shop.orders orders.csv --skip-rows 131072
""",
)
@click.argument("table", type=TABLE_PATH)
@_FILE
@click.option(
    "--create-partitions", is_flag=True, help="Create partitions that the table does not have yet."
)
@click.option(
    "--columns",
    metavar="COLUMN[,COLUMN]",
    help="Of a table with a primary key: write only these, the key among them; the others of a row"
    " stay as they are.",
)
@_SKIP_ROWS
@click.option(
    "--again",
    is_flag=True,
    help="Append the file from its first row, although an earlier run of it broke off.",
)
@cluster_options
@click.pass_context
def append(
    context: click.Context,
    table: TablePath,
    file: Path,
    create_partitions: bool,
    columns: str | None,
    skip_rows: int | None,
    again: bool,
    bootstrap: str | None,
    config_file: str | None,
) -> None:
    """Append the rows of FILE (.parquet or .csv) to TABLE.

    A table with a primary key keeps the newest row of each key: there, rows replace those of the
    same key. Columns go by name and are cast without loss. In a CSV file empty fields, NA and NULL
    are nulls, unless they stand in quotes. A TIMESTAMP_LTZ may have a zone, as in
    2024-05-01T12:00:00+02:00; without one it is UTC.

    The whole file is checked before the first row is sent. An error names line, column, value and
    what was expected.

    If sending breaks off, the command prints how many rows are stored, and the command that goes
    on. A second run of the same file is then refused; on a terminal it asks. Going on is exact: no
    row is lost, none comes twice. That takes the same user and machine, within six days: a record
    lies in $XDG_STATE_HOME/sluice/append (by default ~/.local/state). Without the record, rows
    after N that are stored already come twice. A table with a primary key needs no record: there,
    run the command again.
    """
    from sluice.cli import files
    from sluice.cli.sending import Sending, rows_to_skip, stopped_by_sigterm
    from sluice.client import connect

    config = configuration(config_file, {"client.bootstrap": bootstrap})
    targets = [name.strip() for name in columns.split(",")] if columns else None
    command = _command(context)
    with connect(config.client) as client, stopped_by_sigterm(), ExitStack() as stack:
        info = client.admin.table_info(table)
        if targets is not None and not info.has_primary_key:
            raise click.BadParameter(f"{table} has no primary key", param_hint="--columns")
        wanted = files.columns_of(info.schema, targets or info.schema.names, files.keys_of(info))
        rows = files.rows_of(file, wanted)
        rows.read_through()
        journal = stack.enter_context(_journal(info, rows)) if _comes_twice(info) else None
        skipped = skip_rows or 0
        if journal is not None:
            skipped = rows_to_skip(journal, file.name, command, skip_rows, again=again)
        writer: BucketWriter
        if info.has_primary_key:
            writer = keyed = client.kv_writer(
                table, targets, dynamic_partitions=create_partitions, journal=journal
            )
            check, send = keyed.check_upsert, keyed.upsert
        else:
            writer = log = client.log_writer(
                table, dynamic_partitions=create_partitions, journal=journal
            )
            check, send = log.check, log.write
        sending = Sending(
            table, rows, writer, check, send, command, create_partitions, journal=journal
        )
        _send(sending, skipped, "row", "upserted" if info.has_primary_key else "appended")


@click.command(
    short_help="Delete rows of a table with a primary key.",
    epilog="""
\b
Examples:
  sluice delete shop.stock sold-out.csv
""",
)
@click.argument("table", type=TABLE_PATH)
@_FILE
@_SKIP_ROWS
@cluster_options
@click.pass_context
def delete(
    context: click.Context,
    table: TablePath,
    file: Path,
    skip_rows: int | None,
    bootstrap: str | None,
    config_file: str | None,
) -> None:
    """Delete the rows of TABLE whose keys are in FILE (.parquet or .csv).

    FILE needs the columns of the primary key; others are passed over. A key without a row is none
    to delete, but counts as a delete that was sent.

    The whole file is checked before the first delete is sent. If sending breaks off, run the
    command again, or the command that it prints.
    """
    from sluice.cli import files
    from sluice.cli.sending import Sending, stopped_by_sigterm
    from sluice.client import connect

    config = configuration(config_file, {"client.bootstrap": bootstrap})
    with connect(config.client) as client, stopped_by_sigterm():
        writer = client.kv_writer(table)
        schema, keys = writer.info.schema, files.keys_of(writer.info)
        rows = files.rows_of(file, files.columns_of(schema, schema.primary_key, keys), tell=False)
        rows.read_through()
        check, send, command = writer.check_delete, writer.delete, _command(context)
        sending = Sending(
            table, rows, writer, check, send, command, needs_partitions=False, done="deleted"
        )
        _send(sending, skip_rows or 0, "delete", "sent")


def _send(sending: Sending, skipped: int, noun: str, done: str) -> None:
    """Checks a file, sends its rows, and says how many.

    :param skipped: so many rows at the beginning are not sent.
    """
    from sluice.cli.output import counted

    total, journal = sending.check_all(), sending.journal
    if skipped > total:
        raise click.BadParameter(
            f"{sending.rows.path} has {counted(total, 'row')}", param_hint="--skip-rows"
        )
    before = skipped
    if journal is not None:
        before = journal.stored_rows if journal.is_unfinished else skipped
        journal.expect(total, skipped)
    started = time.monotonic()
    sending.send_all(total, skipped)
    seconds = time.monotonic() - started
    after = f", after the first {before:,}" if before else ""
    click.echo(f"{sending.table}: {counted(total - before, noun)} {done} in {seconds:.1f} s{after}")


def _comes_twice(info: TableInfo) -> bool:
    """Whether a row that is sent twice counts twice."""
    merge_engine = info.descriptor.properties.get("table.merge-engine", "")
    return not info.has_primary_key or merge_engine.lower() == "aggregation"


def _journal(info: TableInfo, rows: RowFile) -> SendJournal:
    """The record of these rows on their way into this table, whatever the file's name is."""
    from sluice.cli.send_journal import SendJournal

    size_bytes, checksum = rows.fingerprint
    return SendJournal(
        {
            "table": str(info.path),
            "table_id": info.table_id,
            "created_ms": info.created_ms,
            "columns": rows.schema.names,
            "size_bytes": size_bytes,
            "checksum": checksum,
        }
    )


def _command(context: click.Context) -> Callable[[int], str]:
    """The command as it was given, but to start after so many rows."""
    words = ["sluice", str(context.command.name)]
    for parameter in context.command.params:
        value = context.params.get(str(parameter.name))
        if value in (None, False) or parameter.name in ("skip_rows", "again"):
            continue
        if isinstance(parameter, click.Option):
            words.append(parameter.opts[0])
        if value is not True:
            words.append(str(value))
    return lambda rows: shlex.join([*words, "--skip-rows", str(rows)])
