"""`sluice append`: rows of a file into a log table."""

from __future__ import annotations

import time
from pathlib import Path

import click

from sluice.cli.options import TABLE_PATH, cluster_options, configuration
from sluice.model import TablePath


@click.command(
    short_help="Append the rows of a file to a log table.",
    epilog="""
\b
Examples:
  sluice append shop.orders orders.parquet
  sluice append shop.visits visits.csv --create-partitions
""",
)
@click.argument("table", type=TABLE_PATH)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--create-partitions", is_flag=True, help="Create partitions that the table does not have yet."
)
@cluster_options
def append(
    table: TablePath,
    file: Path,
    create_partitions: bool,
    bootstrap: str | None,
    config_file: str | None,
) -> None:
    """Append the rows of FILE (.parquet or .csv) to the log table TABLE.

    Columns go by name and are cast without loss; a CSV file's empty fields, NA and NULL are nulls.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    from sluice.cli import files
    from sluice.client import connect
    from sluice.formats.types import arrow_schema

    config = configuration(config_file, {"client.bootstrap": bootstrap})
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
    with connect(config.client) as client, progress:
        schema = arrow_schema(client.admin.table_info(table).schema)
        task = progress.add_task(f"append {table}", total=files.row_count(file))
        with client.log_writer(table, dynamic_partitions=create_partitions) as writer:
            for batch in files.batches(file, schema):
                writer.write(batch)
                rows += batch.num_rows
                progress.update(task, completed=rows)
            writer.flush()
    click.echo(f"{table}: {rows:,} rows appended in {time.monotonic() - started:.1f} s")
