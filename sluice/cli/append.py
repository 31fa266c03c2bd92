"""`sluice append` and `sluice delete`: rows of a file into a table, or out of it."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sluice.cli.options import TABLE_PATH, cluster_options, configuration
from sluice.model import TableInfo, TablePath

if TYPE_CHECKING:
    from sluice.cli.earlier_runs import Appended
    from sluice.cli.row_files import RowFile
    from sluice.cli.send_journal import SendJournal
    from sluice.cli.sending import Check, Send, Sending
    from sluice.client import Client
    from sluice.client.bucket_writer import BucketWriter

_FILE = click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
_SKIP_ROWS = click.option(
    "--skip-rows",
    type=click.IntRange(0),
    metavar="N",
    help="Start after the first N rows of the file. A run that breaks off prints N.",
)


@click.command(
    short_help="Append or upsert the rows of a file.",
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
    same key. Columns go by name and are cast without loss. Text for FLOAT or DOUBLE becomes the
    nearest number. A time for TIMESTAMP_LTZ that has no zone is UTC; text may have one, as in
    2024-05-01T12:00:00+02:00. In a CSV file empty fields, NA and NULL are nulls, unless they stand
    in quotes; so is an empty line in a file of one column.

    The whole file is checked before the first row is sent. An error names line, column, value and
    what was expected.

    If sending breaks off, the command prints how many rows are stored, and the command that goes
    on. A second run of the same file is then refused; on a terminal it asks. Going on is exact: no
    row is lost, none comes twice. That takes the same user, machine and file, within six days, or
    fewer where the cluster's server.writer-id.expiration-time is shorter than its seven. A record
    lies in $XDG_STATE_HOME/sluice/append (by default ~/.local/state). Without it, rows after N that
    are stored already come twice. A table with a primary key needs no record: there, run the
    command again, unless the table aggregates.
    """
    from sluice.cli.earlier_runs import Appended, rows_to_skip
    from sluice.cli.going_on import Command
    from sluice.cli.sending import Sending, nothing_sent, stopped_by_sigterm
    from sluice.client import connect

    config = configuration(config_file, {"client.bootstrap": bootstrap})
    targets = [name.strip() for name in columns.split(",")] if columns else None
    command = Command(context)
    with connect(config.client) as client, stopped_by_sigterm(), ExitStack() as stack:
        info = begun = client.admin.table_info(table)
        appended = Appended(info, file, targets)
        if _comes_twice(info) and not again:
            begun = _as_begun(client, appended)
        rows = _rows(appended, begun)
        journal, skipped = None, skip_rows or 0
        if _comes_twice(info):
            journal = stack.enter_context(appended.journal(rows))
            if journal.earlier is None and begun is not info:
                raise click.ClickException(f"{file} was changed while it was read")
            skipped = rows_to_skip(journal, appended, rows, command, skip_rows, again=again)
        with nothing_sent():
            into = _into(client, info, targets, create_partitions, journal)
        sending = Sending(table, rows, *into, command, create_partitions, journal=journal)
        _send(sending, skipped, "row", "upserted" if info.has_primary_key else "appended")
        if journal is not None:
            appended.forget_other_contents(rows)


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
    from sluice.cli.going_on import Command
    from sluice.cli.sending import Sending, nothing_sent, stopped_by_sigterm
    from sluice.client import connect

    config = configuration(config_file, {"client.bootstrap": bootstrap})
    with connect(config.client) as client, stopped_by_sigterm():
        writer = client.kv_writer(table)
        schema, keys = writer.info.schema, files.keys_of(writer.info)
        rows = files.rows_of(file, files.columns_of(schema, schema.primary_key, keys), tell=False)
        with nothing_sent():
            rows.read_through()
        check, send, command = writer.check_delete, writer.delete, Command(context)
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


def _rows(appended: Appended, begun: TableInfo) -> RowFile:
    """The rows of a file, read through once.

    :param begun: the table with the columns that are looked for.
    """
    from sluice.cli import files
    from sluice.cli.sending import nothing_sent

    names, targets = begun.schema.names, appended.targets
    if targets is not None and not begun.has_primary_key:
        raise click.BadParameter(f"{begun.path} has no primary key", param_hint="--columns")
    wanted = files.columns_of(begun.schema, targets or names, files.keys_of(begun))
    rows = files.rows_of(appended.file, wanted, tell=begun is appended.table)
    with nothing_sent():
        rows.read_through()
    return rows


def _as_begun(client: Client, appended: Appended) -> TableInfo:
    """The table, with the columns that it had when an earlier run of this file began."""
    now, schema_id = appended.table, appended.schema_id()
    if schema_id in (None, now.schema_id):
        return now
    then = client.admin.table_info(now.path, schema_id)
    added = [name for name in now.schema.names if name not in then.schema.names]
    click.echo(
        f"note: {now.path} has got columns since an earlier run of {appended.file.name} broke off:"
        f" {', '.join(added)}; going on leaves them null in its rows",
        err=True,
    )
    return then


def _into(
    client: Client,
    info: TableInfo,
    targets: list[str] | None,
    create_partitions: bool,
    journal: SendJournal | None,
) -> tuple[BucketWriter, Check, Send]:
    """A writer for a table, with what checks rows for it and what sends them."""
    if info.has_primary_key:
        keyed = client.kv_writer(
            info.path, targets, dynamic_partitions=create_partitions, journal=journal
        )
        return keyed, keyed.check_upsert, keyed.upsert
    log = client.log_writer(info.path, dynamic_partitions=create_partitions, journal=journal)
    return log, log.check, log.write
