"""`sluice sql`: one query on system tables and lake tables, in Spark SQL."""

from __future__ import annotations

import csv
import json
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from sluice.catalog_options import sql_names
from sluice.cli.terminal.options import (
    DURATION,
    Settings,
    WholeNumber,
    check_warehouse,
    examples,
    warehouse_option,
    with_settings,
)
from sluice.cli.terminal.output import print_json, print_table, say
from sluice.errors import NetworkError, QueryFailed
from sluice.quantities import counted

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

_NO_LAKE = re.compile(r"^\[REQUIRES_SINGLE_PART_NAMESPACE\].* but got `lake`\.")
_NO_TABLE = re.compile(r"^\[TABLE_OR_VIEW_NOT_FOUND\] The table or view (\S+) cannot be found")
_PHASES = {"start": "starting Spark", "query": "running the query"}


@click.command(
    short_help="Query system tables and lake tables in Spark SQL.",
    epilog=examples(
        'sluice sql "SELECT * FROM sys.lake_tiering_status"',
        'sluice sql "SELECT * FROM sys.lake_tiering_status" --format json',
        'sluice sql "SELECT count(*) FROM lake.shop.orders" --warehouse ./lake',
        'sluice sql "SHOW TABLES IN sys"',
        'sluice sql "DESCRIBE sys.lake_tiering_rounds"',
    ),
)
@click.argument("query")
@click.option(
    "--format",
    "output_format",
    type=click.Choice(["table", "json", "csv"]),
    default="table",
    show_default=True,
    help="A table to read, one JSON document, or CSV with a heading.",
)
@click.option(
    "--limit",
    type=WholeNumber(1, 1_000_000),
    default=1000,
    show_default=True,
    metavar="N",
    help="Print at most N rows; a note on standard error says if there are more.",
)
@click.option(
    "--timeout",
    "timeout_ms",
    type=DURATION,
    default="5min",
    show_default=True,
    metavar="DURATION",
    help="Stop the query after this time, as in 30s, 5min.",
)
@warehouse_option
@with_settings
def sql(
    query: str,
    output_format: str,
    limit: int,
    timeout_ms: int,
    settings: Settings,
) -> None:
    """Run QUERY, one Spark SQL statement, in a local Spark.

    System tables: sys.lake_tiering_status has a row for each tiered table, and
    sys.lake_tiering_rounds has a row for each of the newest 100 rounds of each table. DESCRIBE
    prints their columns. Times are in UTC.

    Lake tables: give --warehouse PATH, or a lake in --config FILE, and name them
    lake.DATABASE.TABLE. The rows in the lake may be older than those in Fluss by the lag that
    `sluice status` shows.

    A JDBC catalog stores its own name, so lake finds nothing there: name its tables
    `fluss-iceberg-catalog`.DATABASE.TABLE, in backquotes. If datalake.iceberg.name is set, use that
    name instead.

    Spark takes about 10 seconds to start. It needs Java 17 or newer
    and pip install 'fluss-sluice[spark]'.
    """
    check_warehouse(settings.warehouse)
    config = settings.config()
    from sluice.client.connection.addresses import parse_bootstrap
    from sluice.driver.spark.sql import query as run

    parse_bootstrap(config.client.bootstrap)  # a wrong address is reported before Spark starts
    try:
        with _progress() as phase:
            answer = run(config, query, limit, timeout_ms / 1000, phase)
    except QueryFailed as error:
        raise explained(error, config.datalake.iceberg) from error
    except NetworkError:
        from sluice.cli.terminal.cluster import require_cluster

        require_cluster(config.client)  # its error names the next step
        raise
    _print(answer.rows, output_format)
    if answer.truncated:
        say(f"only the first {counted(limit, 'row')}: --limit shows more", err=True)


def explained(error: QueryFailed, lake_options: Mapping[str, str]) -> QueryFailed:
    """The error with the names that `sluice sql` has, in place of Spark's advice on schemas.

    :param lake_options: the properties of the lake's catalog; empty if no lake is configured.
    """
    if not lake_options and _NO_LAKE.search(str(error)):
        return QueryFailed(
            "no lake is configured: give --warehouse PATH, or --config FILE with [datalake]"
        )
    catalog = sql_names(lake_options)[0]
    catalog = f"`{catalog}`" if "-" in catalog else catalog
    if catalog != "lake" and _NO_LAKE.search(str(error)):
        return QueryFailed(
            f"no catalog lake: a JDBC catalog stores its name, so write {catalog}.DATABASE.TABLE"
        )
    found = _NO_TABLE.search(str(error))
    if found is None:
        return error
    name = found[1].replace("`", "")
    lake = f"lake tables are {catalog}.DATABASE.TABLE"
    if not lake_options:
        lake += ", with --warehouse PATH or a lake in --config FILE"
    elif name.count(".") == 1 and not name.startswith("sys."):
        lake = f"did you mean {catalog}.{name}?"
    elif name.startswith("lake.") and catalog != "lake":
        lake = f"a JDBC catalog stores its name: write {catalog}.{name.removeprefix('lake.')}"
    system = "the system tables are sys.lake_tiering_status and sys.lake_tiering_rounds"
    return QueryFailed(f"no table {name}: {system}; {lake}")


def _print(rows: pa.Table, output_format: str) -> None:
    from sluice.cli.terminal.shown_values import shown_rows

    names = rows.schema.names
    content = shown_rows(rows if output_format == "table" else _with_complete_times(rows))
    if output_format == "json":
        print_json([dict(zip(names, row, strict=True)) for row in content], is_data=True)
    elif output_format == "csv":
        writer = csv.writer(sys.stdout, lineterminator="\n")
        if names:
            writer.writerow(names)
        writer.writerows([_csv_cell(value) for value in row] for row in content)
    else:
        print_table(names, content, empty="no rows" if names else "done", exact=True, is_data=True)


def _csv_cell(value: object) -> object:
    """A cell: empty for None, JSON for booleans, lists and maps."""
    return json.dumps(value) if isinstance(value, bool | list | dict) else value


def _with_complete_times(rows: pa.Table) -> pa.Table:
    """Timestamps as text of complete ISO 8601, for programs; Z is UTC."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for index, field in enumerate(rows.schema):
        if pa.types.is_timestamp(field.type):
            form = "%Y-%m-%dT%H:%M:%S" + ("Z" if field.type.tz else "")
            rows = rows.set_column(index, field.name, pc.strftime(rows.column(index), form))
    return rows


@contextmanager
def _progress() -> Iterator[Callable[[str], None]]:
    """Shows the phase on a terminal's standard error until the block ends."""
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda _: None
        return
    with console.status("") as line:
        yield lambda name: line.update(_PHASES.get(name, name))
