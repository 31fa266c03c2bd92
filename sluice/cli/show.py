"""`sluice tables` and `sluice status`: what there is, and how its tiering stands."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from sluice.cli.options import TABLE_PATH, cluster_options, configuration, format_option
from sluice.cli.output import print_json, print_table, when
from sluice.model import TablePath

if TYPE_CHECKING:
    from sluice.model import TableInfo, TieringStatus


@click.command(
    short_help="List tables.",
    epilog="""
\b
Examples:
  sluice tables
  sluice tables shop --format json
""",
)
@click.argument("database", required=False)
@format_option
@cluster_options
def tables(
    database: str | None, output_format: str, bootstrap: str | None, config_file: str | None
) -> None:
    """List the tables of DATABASE, or of all databases."""
    config = configuration(config_file, {"client.bootstrap": bootstrap})
    from sluice.client import connect

    with connect(config.client) as client:
        admin = client.admin
        databases = [database] if database else admin.list_databases()
        rows = [
            _table_row(info, len(admin.partitions(info.path)) if info.is_partitioned else None)
            for name in databases
            for table in admin.list_tables(name)
            for info in [admin.table_info(TablePath(name, table))]
        ]
    if output_format == "json":
        print_json(rows)
        return
    headings = ["table", "id", "kind", "columns", "buckets", "partitions", "datalake", "freshness"]
    shown = [[row[heading] for heading in headings] for row in rows]
    print_table(headings, shown, empty="no tables")


def _table_row(info: TableInfo, partitions: int | None) -> dict[str, Any]:
    properties = info.descriptor.properties
    return {
        "table": str(info.path),
        "id": info.table_id,
        "kind": "primary key" if info.has_primary_key else "log",
        "columns": len(info.schema.columns),
        "buckets": info.bucket_count,
        "partitions": partitions,
        "datalake": info.datalake_enabled,
        "freshness": properties.get("table.datalake.freshness"),
    }


@click.command(
    short_help="Show how the tiering of tables stands.",
    epilog="""
\b
Examples:
  sluice status
  sluice status shop.orders --format json
""",
)
@click.argument("table", type=TABLE_PATH, required=False)
@format_option
@cluster_options
def status(
    table: TablePath | None, output_format: str, bootstrap: str | None, config_file: str | None
) -> None:
    """Show how the tiering of TABLE stands, or of every lake table.

    The state is the coordinator's word (New, Initialized, Scheduled, Pending, Tiering, Tiered,
    Failed); the epoch counts the rounds that were begun.
    """
    config = configuration(config_file, {"client.bootstrap": bootstrap})
    from sluice.client import connect

    with connect(config.client) as client:
        statuses = client.admin.list_tiering_statuses(table)
    if output_format == "json":
        print_json([_status_json(entry) for entry in statuses])
        return
    rows = [
        [
            str(entry.path),
            entry.status,
            entry.tiering_epoch,
            when(entry.last_tiered_ms) or "never",
            entry.last_error,
            when(entry.last_error_ms),
        ]
        for entry in statuses
    ]
    headings = ["table", "state", "epoch", "last tiered", "last error", "at"]
    print_table(headings, rows, empty=_not_tiered(table))


def _not_tiered(table: TablePath | None) -> str:
    if table is None:
        return "no table is tiered"
    from sluice.driver.not_due import how_to_enable

    return f"table {table} is not tiered: {how_to_enable(table)}"


def _status_json(entry: TieringStatus) -> dict[str, Any]:
    return {**asdict(entry), "path": str(entry.path)}
