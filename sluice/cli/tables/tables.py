"""`sluice tables`: the tables of a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from sluice.cli.terminal.options import Settings, examples, format_option, with_settings
from sluice.cli.terminal.output import print_json, print_table
from sluice.model import TablePath

if TYPE_CHECKING:
    from sluice.model import TableInfo


@click.command(
    short_help="List tables and their freshness in the lake.",
    epilog=examples(
        "sluice tables",
        "sluice tables shop --format json",
    ),
)
@click.argument("database", required=False)
@format_option
@with_settings
def tables(database: str | None, output_format: str, settings: Settings) -> None:
    """List the tables of DATABASE, or of all databases.

    The freshness is how often a table is tiered into the lake. --format json also has table ids.
    """
    with settings.connect() as client:
        admin = client.admin
        if database:
            paths = [TablePath(database, name) for name in admin.list_tables(database)]
        else:
            paths = admin.all_tables()
        rows = [
            _table_row(info, len(admin.partitions(info.path)) if info.is_partitioned else None)
            for info in map(admin.table_info, paths)
        ]
    if output_format == "json":
        print_json(rows)
        return
    headings = ["table", "kind", "columns", "buckets", "partitions", "freshness"]
    shown = [[row[heading] for heading in headings[:-1]] + [_freshness(row)] for row in rows]
    print_table(headings, shown, empty="no tables")


def _freshness(row: dict[str, Any]) -> object:
    """The freshness that a table's lake has: the table's own, or the server's default."""
    from sluice.statuses import DEFAULT_FRESHNESS_MS

    if not row["datalake"]:
        return "not tiered"
    return row["freshness"] or f"{DEFAULT_FRESHNESS_MS // 60_000} min (default)"


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
