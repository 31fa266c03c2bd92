"""`sluice append` and `sluice delete`: rows of a file into a table, or out of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sluice.cli.options import TABLE_PATH, cluster_options, configuration
from sluice.errors import PartitionNotExists
from sluice.model import TablePath

if TYPE_CHECKING:
    import pyarrow as pa

    from sluice.client.bucket_writer import BucketWriter

_FILE = click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))


@click.command(
    short_help="Append the rows of a file to a table, or upsert them by its key.",
    epilog="""
\b
Examples:
  sluice append shop.orders orders.parquet
  sluice append shop.visits visits.csv --create-partitions
  sluice append shop.stock counted.csv --columns item,n
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
@cluster_options
def append(
    table: TablePath,
    file: Path,
    create_partitions: bool,
    columns: str | None,
    bootstrap: str | None,
    config_file: str | None,
) -> None:
    """Append the rows of FILE (.parquet or .csv) to TABLE.

    A table with a primary key keeps the newest row of each key: there, rows replace those of the
    same key. Columns go by name and are cast without loss. In a CSV file empty fields, NA and NULL
    are nulls, unless they stand in quotes. A TIMESTAMP_LTZ may have a zone, as in
    2024-05-01T12:00:00+02:00; without one it is UTC.
    """
    from sluice.cli import files
    from sluice.client import connect

    config = configuration(config_file, {"client.bootstrap": bootstrap})
    targets = [name.strip() for name in columns.split(",")] if columns else None
    with connect(config.client) as client:
        info = client.admin.table_info(table)
        content = files.batches(file, files.columns_of(info.schema, targets or info.schema.names))
        if info.has_primary_key:
            with client.kv_writer(table, targets, dynamic_partitions=create_partitions) as keyed:
                _send(keyed, keyed.upsert, table, file, content, "row", "upserted")
        elif targets is not None:
            raise click.BadParameter(f"{table} has no primary key", param_hint="--columns")
        else:
            with client.log_writer(table, dynamic_partitions=create_partitions) as log:
                _send(log, log.write, table, file, content, "row", "appended")


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
@cluster_options
def delete(table: TablePath, file: Path, bootstrap: str | None, config_file: str | None) -> None:
    """Delete the rows of TABLE whose keys are in FILE (.parquet or .csv).

    FILE needs the columns of the primary key; others are passed over. A key without a row is none
    to delete, but counts as a delete that was sent.
    """
    from sluice.cli import files
    from sluice.client import connect

    config = configuration(config_file, {"client.bootstrap": bootstrap})
    with connect(config.client) as client, client.kv_writer(table) as writer:
        schema = writer.info.schema
        content = files.batches(file, files.columns_of(schema, schema.primary_key), tell=False)
        _send(writer, writer.delete, table, file, content, "delete", "sent")


def _send(
    writer: BucketWriter,
    send: Callable[[pa.RecordBatch], None],
    table: TablePath,
    file: Path,
    content: Iterable[pa.RecordBatch],
    noun: str,
    done: str,
) -> None:
    """Sends a file's rows, with a bar on a terminal, and says how many.

    :raises PartitionNotExists: a row's partition is missing; names the option that makes it.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    from sluice.cli import files
    from sluice.cli.output import counted

    started = time.monotonic()
    rows = 0
    console = Console(stderr=True)
    progress = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    with progress:
        task = progress.add_task(f"{file.name} to {table}", total=files.row_count(file))
        for batch in content:
            try:
                send(batch)
            except PartitionNotExists as error:
                raise _explained(error, table) from error
            rows += batch.num_rows
            progress.update(task, completed=rows)
        writer.flush()
    click.echo(f"{table}: {counted(rows, noun)} {done} in {time.monotonic() - started:.1f} s")


def _explained(error: PartitionNotExists, table: TablePath) -> PartitionNotExists:
    """The writer's error in words of the command line, if it is of a partition to be made."""
    spec = error.details.get("partition")
    if spec is None:
        return error
    return PartitionNotExists(
        f"table {table} has no partition {spec}: create it first, or let this command do so with"
        " --create-partitions"
    )
