"""`sluice create-lake-table`: makes lake tables before any round."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import click

from sluice.catalog_options import LAYOUT
from sluice.cli.terminal.options import (
    TABLE_PATH,
    Settings,
    examples,
    format_option,
    warehouse_option,
    with_settings,
)
from sluice.cli.terminal.output import say
from sluice.iceberg_rules.layout import Layout
from sluice.model import TablePath
from sluice.model.patterns import is_pattern
from sluice.stop_signals import explain_stop, sigterm_raises

if TYPE_CHECKING:
    from sluice.config import Config
    from sluice.driver.lake_tables import LakeTableReport

_STOPPED = ": lake tables that were made stay; call the command again for the rest"


@click.command(
    "create-lake-table",
    short_help="Create lake tables before any round.",
    epilog=examples(
        "sluice create-lake-table shop.orders --warehouse ./lake",
        "sluice create-lake-table shop.clicks --partition-by 'days(at)'",
        "sluice create-lake-table --all --config sluice.toml",
        "sluice create-lake-table --all --warehouse ./lake --format json",
    ),
)
@click.argument("table", type=TABLE_PATH, required=False)
@click.option("--all", "all_tables", is_flag=True, help="All tables that are tiered.")
@click.option(
    "--layout",
    type=click.Choice([one.value for one in Layout]),
    help="Layout of new lake tables: clean has the columns of the Fluss table alone; legacy has"
    " three system columns more, which Fluss before 1.0 needs.  [default: datalake.iceberg.layout,"
    " here or at the server; else what the cluster's version makes]",
)
@click.option(
    "--partition-by",
    "partition_by",
    multiple=True,
    metavar="FIELD",
    help="Partition the lake table of a log table by years, months, days or hours(COLUMN),"
    " bucket(N, COLUMN), truncate(W, COLUMN) or COLUMN, too. Repeatable. Fluss's own tiering job"
    " refuses such a table.",
)
@warehouse_option
@format_option
@with_settings
def create_lake_table(
    table: TablePath | None,
    all_tables: bool,
    layout: str | None,
    partition_by: tuple[str, ...],
    output_format: str,
    settings: Settings,
) -> None:
    """Create the lake table of TABLE, or of all tiered tables, if it is missing.

    The rounds of Sluice do this themselves. Fluss's own tiering service on Flink does not: it stops
    at a tiered table without a lake table. Call this command before that service sees the table.
    The safe order is: create the table with --no-datalake, call this command, set the table's
    option table.datalake.enabled to true.

    The lake table has the columns, partitions and properties that Fluss gives it. If it exists, the
    command checks it, and adds columns that the Fluss table has got since. A lake table keeps its
    layout. The command writes no rows and holds no claim.

    Needs a cluster, and Java 17 or newer. Exit code 1: a lake table could not be created, or it
    exists and does not fit. 130: Ctrl-C ended the command. 143: SIGTERM ended it.
    """
    if (table is None) != all_tables:
        raise click.UsageError("give either TABLE or --all")
    if table is not None and is_pattern(str(table)):
        raise click.UsageError(f"TABLE: {str(table)!r} is a pattern; give one name, or --all")
    if partition_by and table is None:
        raise click.UsageError("--partition-by needs one TABLE, not --all")
    config = settings.lake_config(must_exist=False)
    if layout is not None:
        catalog = {**config.datalake.iceberg, LAYOUT: layout}
        config = replace(config, datalake=replace(config.datalake, iceberg=catalog))
    from sluice.cli.terminal.cluster import require_cluster, suggested_names
    from sluice.cli.terminal.output import print_json

    require_cluster(config.client)
    reports: list[LakeTableReport] = []
    is_complete = False
    with suggested_names(config.client), sigterm_raises():
        try:
            _create(config, table, partition_by, reports, is_json=output_format == "json")
            is_complete = True
        except KeyboardInterrupt as stop:
            explain_stop(stop, _STOPPED)
            raise
        finally:  # what was made is reported, also if an error ends the run
            if output_format == "json" and (reports or is_complete):
                tables = [report.to_json() for report in reports]
                print_json({"complete": is_complete, "tables": tables})
    if not reports:
        say("note: no table of the cluster is tiered; `sluice tables` lists all", err=True)
    if any(report.error for report in reports):
        raise click.exceptions.Exit(1)


def _create(
    config: Config,
    table: TablePath | None,
    partition_by: tuple[str, ...],
    reports: list[LakeTableReport],
    *,
    is_json: bool,
) -> None:
    """:param reports: receives the report of each table as soon as it is done."""
    from sluice.client.admin.enabling import how_to_enable
    from sluice.driver.lake_tables import create_lake_tables

    for report in create_lake_tables(config, table, partition_by=partition_by):
        reports.append(report)
        if is_json:
            continue
        made = f"{report.outcome} at {report.location} ({report.layout})"
        say(f"{report.table}: {report.error or made}")
        if report.note:
            say(f"  note: {report.note}")
        if not report.is_tiered:
            say(f"  it is not tiered yet: {how_to_enable(TablePath.parse(report.table))}")
