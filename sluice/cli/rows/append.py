"""`sluice append` and `sluice delete`: add the rows of a file to a table, or delete them."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sluice.cli.terminal.errors import InvalidFile
from sluice.cli.terminal.options import TABLE_PATH, Settings, examples, with_settings
from sluice.cli.terminal.output import say
from sluice.did_you_mean import did_you_mean
from sluice.model import TableInfo, TablePath
from sluice.stop_signals import sigterm_raises

if TYPE_CHECKING:
    from sluice.cli.rows.append_recorder import AppendRecorder
    from sluice.cli.rows.resume import AppendJob
    from sluice.cli.rows.row_files import RowFile
    from sluice.cli.rows.sending import Check, FileSender, Send
    from sluice.client import Client
    from sluice.client.batches.bucket_writer import BucketWriter

_FILE = click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
_SKIP_ROWS = click.option(
    "--skip-rows",
    type=click.IntRange(0),
    metavar="N",
    help="Skip the first N rows of the file. An interrupted run prints N.",
)


@click.command(
    short_help="Append or upsert the rows of a file.",
    epilog=examples(
        "sluice append shop.orders orders.parquet",
        "sluice append shop.visits visits.csv --create-partitions",
        "sluice append shop.stock counted.csv --columns item,n",
        "sluice append shop.orders orders.csv --skip-rows 131072",
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
@click.option(
    "--again",
    is_flag=True,
    help="Append the complete file, although an earlier run of it is unfinished.",
)
@with_settings
@click.pass_context
def append(
    context: click.Context,
    table: TablePath,
    file: Path,
    create_partitions: bool,
    columns: str | None,
    skip_rows: int | None,
    again: bool,
    settings: Settings,
) -> None:
    """Append the rows of FILE (.parquet or .csv) to TABLE.

    In a table with a primary key, each row replaces the row with the same key. Columns are matched
    by name. Values must fit their column without loss.

    The complete file is checked before the first row is sent. An error names line, column, value
    and expected form. In a CSV file, empty fields, NA and NULL without quotes are nulls.

    An interrupted run prints the command that resumes it. No row is then lost or stored twice.
    docs/append.md has the details and the limits.
    """
    from sluice.cli.rows.resume import AppendJob, rows_to_skip
    from sluice.cli.rows.resume_command import ResumeCommand
    from sluice.cli.rows.sending import FileSender, nothing_sent

    targets = [name.strip() for name in columns.split(",")] if columns else None
    command = ResumeCommand(context)
    with settings.connect() as client, sigterm_raises(), ExitStack() as stack:
        info = expected = client.admin.table_info(table)
        job = AppendJob(info, file, targets)
        if _duplicates_count(info) and not again:
            expected = _table_at_start(client, job)
        rows = _rows(job, expected)
        recorder, skipped = None, skip_rows or 0
        if _duplicates_count(info):
            recorder = stack.enter_context(job.recorder(rows))
            if recorder.earlier is None and expected is not info:
                raise InvalidFile(f"{file}: the file was changed while it was read")
            skipped = rows_to_skip(recorder, job, rows, command, skip_rows, again=again)
        with nothing_sent():
            writing = _writing(client, info, targets, create_partitions, recorder)
        sender = FileSender(table, rows, *writing, command, create_partitions, recorder=recorder)
        _send(sender, skipped, "row", "upserted" if info.has_primary_key else "appended")
        if recorder is not None:
            job.delete_records_of_other_contents(rows)


@click.command(
    short_help="Delete rows by their primary keys.",
    epilog=examples("sluice delete shop.stock sold-out.csv"),
)
@click.argument("table", type=TABLE_PATH)
@_FILE
@_SKIP_ROWS
@with_settings
@click.pass_context
def delete(
    context: click.Context,
    table: TablePath,
    file: Path,
    skip_rows: int | None,
    settings: Settings,
) -> None:
    """Delete the rows of TABLE whose keys are in FILE (.parquet or .csv).

    FILE needs the columns of the primary key. Other columns are ignored. A key that has no row is
    sent and counted too.

    The complete file is checked before the first delete is sent. After an interruption run the
    command again, or the command that it prints.
    """
    from sluice.cli.rows import files
    from sluice.cli.rows.resume_command import ResumeCommand
    from sluice.cli.rows.sending import FileSender, nothing_sent
    from sluice.cli.terminal.cluster import replaced_advice

    with settings.connect() as client, sigterm_raises():
        with replaced_advice("`sluice append` adds rows to its log"):
            writer = client.kv_writer(table)
        schema, keys = writer.info.schema, files.keys_of(writer.info)
        rows = files.rows_of(file, files.columns_of(schema, schema.primary_key, keys))
        with nothing_sent():
            rows.read_through()
        check, send, command = writer.check_delete, writer.delete, ResumeCommand(context)
        sender = FileSender(
            table, rows, writer, check, send, command, needs_partitions=False, done="deleted"
        )
        _send(sender, skip_rows or 0, "delete", "sent")


def _send(sender: FileSender, skipped: int, noun: str, done: str) -> None:
    """Checks a file, sends its rows, and prints their number.

    :param skipped: the number of rows at the start of the file that are not sent.
    """
    from sluice.quantities import counted

    total, recorder = sender.check_all(), sender.recorder
    if skipped > total:
        raise click.BadParameter(
            f"{skipped} rows are more than {sender.rows.path} has: {counted(total, 'row')}",
            param_hint="--skip-rows",
        )
    before = skipped
    if recorder is not None:
        before = recorder.stored_rows if recorder.is_unfinished else skipped
        recorder.expect(total, skipped)
    started = time.monotonic()
    sender.send_all(total, skipped)
    seconds = time.monotonic() - started
    after = f", after the first {before:,}" if before else ""
    say(f"{sender.table}: {counted(total - before, noun)} {done} in {seconds:.1f} s{after}")


def _duplicates_count(info: TableInfo) -> bool:
    """Whether a row that is sent twice is stored or aggregated twice."""
    merge_engine = info.descriptor.properties.get("table.merge-engine", "")
    return not info.has_primary_key or merge_engine.lower() == "aggregation"


def _rows(job: AppendJob, expected: TableInfo) -> RowFile:
    """The rows of a file, read once.

    :param expected: the table with the columns that the file must have.
    """
    from sluice.cli.rows import files
    from sluice.cli.rows.sending import nothing_sent

    names, targets = expected.schema.names, job.targets
    if targets is not None and not expected.has_primary_key:
        raise click.BadParameter(
            f"table {expected.path} has no primary key, so rows have all columns",
            param_hint="--columns",
        )
    for name in targets or []:
        if name not in names:
            hint = did_you_mean(name, names) or f"; the columns are {', '.join(names)}"
            raise click.BadParameter(f"no column {name!r}{hint}", param_hint="--columns")
    numbered = () if targets else expected.schema.auto_increment
    written = targets or [name for name in names if name not in numbered]
    columns = files.columns_of(expected.schema, written, files.keys_of(expected))
    notes, keys = expected is job.table, () if targets else expected.schema.primary_key
    rows = files.rows_of(job.file, columns, notes=notes, keys=keys, numbered=numbered)
    with nothing_sent():
        rows.read_through()
    return rows


def _table_at_start(client: Client, job: AppendJob) -> TableInfo:
    """The table with the columns that it had when an unfinished run of this file started."""
    now, schema_id = job.table, job.schema_id()
    if schema_id in (None, now.schema_id):
        return now
    then = client.admin.table_info(now.path, schema_id)
    added = [name for name in now.schema.names if name not in then.schema.names]
    say(
        f"note: {now.path} has new columns since the unfinished run of {job.file.name}:"
        f" {', '.join(added)}; rows of the resumed run have nulls in them",
        err=True,
    )
    return then


def _writing(
    client: Client,
    info: TableInfo,
    targets: list[str] | None,
    create_partitions: bool,
    recorder: AppendRecorder | None,
) -> tuple[BucketWriter, Check, Send]:
    """A writer for a table, its check of rows, and its function that sends them."""
    if info.has_primary_key:
        keyed = client.kv_writer(
            info.path, targets, dynamic_partitions=create_partitions, journal=recorder
        )
        return keyed, keyed.check_upsert, keyed.upsert
    log = client.log_writer(info.path, dynamic_partitions=create_partitions, journal=recorder)
    return log, log.check, log.write
