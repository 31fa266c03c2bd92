"""`sluice create-table`: a table from a schema text, or like a file."""

from __future__ import annotations

from pathlib import Path

import click

from sluice.cli.options import DURATION, TABLE_PATH, cluster_options, configuration
from sluice.errors import InvalidTable, TableAlreadyExist, UnsupportedLakeOption
from sluice.model import Schema, TableDescriptor, TableInfo, TablePath, TypeRoot


def _checked(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """A duration stays as it was written, once it could be read."""
    if value is not None:
        DURATION.convert(value, param, ctx)
    return value


def _columns(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[str, ...]:
    del ctx, param
    return tuple(name.strip() for name in value.split(",")) if value else ()


@click.command(
    "create-table",
    short_help="Create a table.",
    epilog="""
\b
Examples:
  sluice create-table shop.orders --schema "id BIGINT NOT NULL, item STRING"
  sluice create-table shop.visits --like visits.parquet --partition-by country
  sluice create-table shop.stock --schema "item STRING, PRIMARY KEY (item)"

Types: BOOLEAN TINYINT SMALLINT INT BIGINT FLOAT DOUBLE CHAR(n) STRING BINARY(n) BYTES
DECIMAL(p, s) DATE TIME[(p)] TIMESTAMP[(p)] TIMESTAMP_LTZ[(p)]; a type may be followed by NOT NULL.
Spark reads no Iceberg table that has a column of TIME.
""",
)
@click.argument("table", type=TABLE_PATH)
@click.option(
    "--schema",
    "schema_text",
    metavar="TEXT",
    help='Columns: "NAME TYPE [NOT NULL], ... [, PRIMARY KEY (NAME, ...)]".',
)
@click.option(
    "--like",
    "like_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Take the columns of this .parquet or .csv file.",
)
@click.option(
    "--primary-key",
    metavar="COLUMN[,COLUMN]",
    callback=_columns,
    help="Rows with one key replace each other; without it the table is a log.",
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
    primary_key: tuple[str, ...],
    buckets: int | None,
    bucket_key: str | None,
    partition_keys: tuple[str, ...],
    datalake: bool,
    freshness: str | None,
    if_not_exists: bool,
    bootstrap: str | None,
    config_file: str | None,
) -> None:
    """Create the table TABLE (DATABASE.NAME), and its database if it is missing.

    It is a log of rows, or with a primary key the newest row of each key.
    """
    config = configuration(config_file, {"client.bootstrap": bootstrap})
    schema = _schema(schema_text, like_file, partition_keys, primary_key)
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
        try:
            client.admin.create_table(table, descriptor)
        except TableAlreadyExist:
            if not if_not_exists:
                raise TableAlreadyExist(
                    f"table {table} exists already; with --if-not-exists it is left as it is"
                ) from None
            click.echo(f"{table}: exists already, left as it is")
            return
        info = client.admin.table_info(table)
    click.echo(_made(info))
    for note in notes(info):
        click.echo(f"note: {note}", err=True)


def notes(info: TableInfo) -> list[str]:
    """What a user should know of a new table before there are rows in its lake."""
    from sluice.formats.lake_keys import check_lake_keys

    if not info.datalake_enabled or info.datalake_format != "iceberg":
        return []
    found = []
    if times := [c.name for c in info.schema.columns if c.data_type.root is TypeRoot.TIME]:
        found.append(
            f"Spark reads no Iceberg table that has a column of TIME ({', '.join(times)}); engines"
            " that know the type do"
        )
    try:
        check_lake_keys(info)
    except UnsupportedLakeOption as error:
        found.append(f"every round will refuse it: {error.message}")
    return found


def _made(info: TableInfo) -> str:
    """The line about a new table."""
    from sluice.cli.output import counted

    lake = f", tiered as {info.datalake_format}" if info.datalake_enabled else ""
    key = ""
    if info.has_primary_key:
        key = f", primary key {', '.join(info.schema.primary_key)}"
    return f"{info.path}: table {info.table_id}, {counted(info.bucket_count, 'bucket')}{key}{lake}"


def _schema(
    text: str | None,
    like_file: Path | None,
    partition_keys: tuple[str, ...],
    primary_key: tuple[str, ...],
) -> Schema:
    if (text is None) == (like_file is None):
        raise click.UsageError("give either --schema TEXT or --like FILE")
    from sluice.cli.schema_text import parse_schema, with_primary_key

    if text is not None:
        try:
            return parse_schema(text, primary_key)
        except InvalidTable as error:
            raise click.BadParameter(str(error), param_hint="--schema") from error
    assert like_file is not None
    from sluice.cli.files import schema_of
    from sluice.formats.types import schema_from_arrow

    schema = schema_from_arrow(schema_of(like_file, not_null=partition_keys))
    try:
        return with_primary_key(schema, primary_key)
    except InvalidTable as error:
        raise click.BadParameter(str(error), param_hint="--primary-key") from error
