"""`sluice create-table`: a log table from a schema text, or like a file."""

from __future__ import annotations

from pathlib import Path

import click

from sluice.cli.options import DURATION, TABLE_PATH, cluster_options, configuration
from sluice.errors import InvalidTable
from sluice.model import Schema, TableDescriptor, TablePath


def _checked(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """A duration stays as it was written, once it could be read."""
    if value is not None:
        DURATION.convert(value, param, ctx)
    return value


@click.command(
    "create-table",
    short_help="Create a log table.",
    epilog="""
\b
Examples:
  sluice create-table shop.orders --schema "id BIGINT NOT NULL, item STRING, price DECIMAL(10, 2)"
  sluice create-table shop.visits --like visits.parquet --partition-by country --freshness 1min
\b
Types: BOOLEAN TINYINT SMALLINT INT BIGINT FLOAT DOUBLE CHAR(n) STRING BINARY(n) BYTES
DECIMAL(p, s) DATE TIME[(p)] TIMESTAMP[(p)] TIMESTAMP_LTZ[(p)]; a type may be followed by NOT NULL.
""",
)
@click.argument("table", type=TABLE_PATH)
@click.option(
    "--schema", "schema_text", metavar="TEXT", help='Columns: "NAME TYPE [NOT NULL], ...".'
)
@click.option(
    "--like",
    "like_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Take the columns of this .parquet or .csv file.",
)
@click.option("--buckets", type=click.IntRange(min=1), metavar="N", help="Number of buckets.")
@click.option("--bucket-key", metavar="COLUMN", help="Rows with one value share a bucket.")
@click.option(
    "--partition-by", "partition_keys", multiple=True, metavar="COLUMN", help="A STRING column."
)
@click.option(
    "--datalake/--no-datalake", default=True, show_default=True, help="Tier it to the lake."
)
@click.option(
    "--freshness",
    metavar="TIME",
    callback=_checked,
    help="How old the lake may be, as in 30s, 1min.  [default: 3min]",
)
@click.option("--if-not-exists", is_flag=True, help="Leave an existing table as it is.")
@cluster_options
def create_table(
    table: TablePath,
    schema_text: str | None,
    like_file: Path | None,
    buckets: int | None,
    bucket_key: str | None,
    partition_keys: tuple[str, ...],
    datalake: bool,
    freshness: str | None,
    if_not_exists: bool,
    bootstrap: str | None,
    config_file: str | None,
) -> None:
    """Create the log table TABLE (DATABASE.NAME), and its database if it is missing."""
    config = configuration(config_file, {"client.bootstrap": bootstrap})
    schema = _schema(schema_text, like_file, partition_keys)
    properties = {"table.datalake.enabled": "true" if datalake else "false"}
    if freshness:
        properties["table.datalake.freshness"] = freshness
    descriptor = TableDescriptor(
        schema,
        partition_keys=partition_keys,
        bucket_keys=(bucket_key,) if bucket_key else (),
        bucket_count=buckets,
        properties=properties,
    )
    from sluice.client import connect

    with connect(config.client) as client:
        client.admin.create_database(table.database, ignore_if_exists=True)
        client.admin.create_table(table, descriptor, ignore_if_exists=if_not_exists)
        info = client.admin.table_info(table)
    lake = f", tiered as {info.datalake_format}" if info.datalake_enabled else ""
    click.echo(f"{table}: table {info.table_id}, {info.bucket_count} buckets{lake}")


def _schema(text: str | None, like_file: Path | None, partition_keys: tuple[str, ...]) -> Schema:
    if (text is None) == (like_file is None):
        raise click.UsageError("give either --schema TEXT or --like FILE")
    if text is not None:
        from sluice.cli.schema_text import parse_schema

        try:
            return parse_schema(text)
        except InvalidTable as error:
            raise click.BadParameter(str(error), param_hint="--schema") from error
    assert like_file is not None
    from sluice.cli.files import schema_of
    from sluice.formats.types import schema_from_arrow

    return schema_from_arrow(schema_of(like_file, not_null=partition_keys))
