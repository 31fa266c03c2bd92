"""`sluice create-table`: a table from a schema text, or like a file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sluice.cli.tables.table_properties import checked_properties, notes_on, options_of_fluss
from sluice.cli.terminal.options import DURATION, TABLE_PATH, Settings, WholeNumber, with_settings
from sluice.cli.terminal.output import say
from sluice.errors import (
    InvalidTable,
    LakeTableAlreadyExist,
    TableAlreadyExist,
    UnsupportedLakeOption,
)
from sluice.model import Schema, TableDescriptor, TableInfo, TablePath, TypeRoot

if TYPE_CHECKING:
    from sluice.client import Client

_ONLY_OF_LAKE = "is a table of the lake already, but not of Fluss: choose another name"
_NOT_A_LAKE_TABLE = "or leave table.datalake.enabled at false"
"""The advice of Sluice's server about a key that no lake table can have."""


def _checked(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """The text of a duration, checked."""
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
  sluice create-table shop.stock --schema "item STRING PRIMARY KEY, n INT"
\b
Types: BOOLEAN TINYINT SMALLINT INT BIGINT FLOAT DOUBLE DECIMAL(p, s) CHAR(n)
STRING BINARY(n) BYTES DATE TIME[(p)] TIMESTAMP[(p)] TIMESTAMP_LTZ[(p)].
Spark cannot read an Iceberg table that has a TIME column. ARRAY, MAP and ROW
come from a Parquet file, with --like.
""",
)
@click.argument("table", type=TABLE_PATH)
@click.option(
    "--schema",
    "schema_text",
    metavar="TEXT",
    help='Columns: "NAME TYPE [NOT NULL] [PRIMARY KEY], ... [, PRIMARY KEY (NAME, ...)]".',
)
@click.option(
    "--like",
    "like_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Copy the columns of this .parquet, .csv or .jsonl file.",
)
@click.option(
    "--primary-key",
    metavar="COLUMN[,COLUMN]",
    callback=_columns,
    help="Keep only the newest row of each key. Without a key the table is a log.",
)
@click.option(
    "--auto-increment",
    "numbered",
    metavar="COLUMN",
    help="Have the server number new rows in this INT or BIGINT column. Needs a primary key.",
)
@click.option("--buckets", type=WholeNumber(min=1), metavar="N", help="Number of buckets.")
@click.option(
    "--bucket-key",
    metavar="COLUMN",
    help="Store rows that have the same value in the same bucket. A primary key of several columns"
    " needs it, also with --no-datalake, unless the server has no lake (datalake.format=none).",
)
@click.option(
    "--partition-by",
    "partition_keys",
    multiple=True,
    metavar="COLUMN",
    help="Partition by a STRING column. Repeatable.",
)
@click.option(
    "--datalake/--no-datalake", default=True, show_default=True, help="Tier the table to the lake."
)
@click.option(
    "--freshness",
    metavar="TIME",
    callback=_checked,
    help="How far the lake may lag behind, for example 30s or 1min.  [default: 3min]",
)
@click.option(
    "--property",
    "given",
    multiple=True,
    metavar="KEY=VALUE",
    callback=checked_properties,
    help="Set an option of Fluss, such as table.datalake.auto-compaction=true, or a custom"
    " property, such as iceberg.format-version=3. Repeatable.",
)
@click.option("--if-not-exists", is_flag=True, help="Succeed without a change if the table exists.")
@with_settings
def create_table(
    table: TablePath,
    schema_text: str | None,
    like_file: Path | None,
    primary_key: tuple[str, ...],
    numbered: str | None,
    buckets: int | None,
    bucket_key: str | None,
    partition_keys: tuple[str, ...],
    datalake: bool,
    freshness: str | None,
    given: dict[str, str],
    if_not_exists: bool,
    settings: Settings,
) -> None:
    """Create the table TABLE (DATABASE.NAME), and its database if that does not exist.

    The command waits until Fluss has leaders for the buckets. If there is none after ten seconds,
    it says what to do and exits with 1; the table exists then. Where --if-not-exists finds a table
    that has no leader for the moment, the command notes it and exits with 0. A partitioned table
    has no buckets before its first partition: of a tiered one, the command checks that the
    coordinator knows it, and of another one nothing.

    A table without a primary key is a log of rows. A table with one keeps the newest row of each
    key.
    """
    config = settings.config()
    schema = _schema(schema_text, like_file, partition_keys)
    schema = _with_keys(schema, primary_key, partition_keys, bucket_key)
    schema = _with_numbers(schema, numbered) if numbered else schema
    properties = {"table.datalake.enabled": "true" if datalake else "false"}
    if freshness:
        properties["table.datalake.freshness"] = freshness
    of_fluss = options_of_fluss(given)
    custom = {key: value for key, value in given.items() if key not in of_fluss}
    descriptor = TableDescriptor(
        schema,
        partition_keys=partition_keys,
        bucket_keys=(bucket_key,) if bucket_key else (),
        bucket_count=buckets,
        properties={**properties, **of_fluss},
        custom_properties=custom,
    )
    from sluice.cli.terminal.cluster import connect

    with connect(config.client) as client:
        client.admin.create_database(table.database, ignore_if_exists=True)
        try:
            client.admin.create_table(table, descriptor)
        except InvalidTable as error:
            error.message = error.message.replace(_NOT_A_LAKE_TABLE, "or use --no-datalake")
            raise
        except (TableAlreadyExist, LakeTableAlreadyExist) as error:
            # Fluss makes the lake table first, and then says nothing of its own table.
            if isinstance(error, LakeTableAlreadyExist) and not client.admin.table_exists(table):
                error.message = f"{table} {_ONLY_OF_LAKE}"
                raise
            if not if_not_exists:
                raise TableAlreadyExist(
                    f"table {table} exists already; --if-not-exists accepts an existing table"
                ) from None
            _tell_existing(client, table)
            return
        info = client.admin.table_info(table)
        say(_made(info))
        client.admin.await_leaders(info)
    for note in [*notes(info), *notes_on(custom)]:
        say(f"note: {note}", err=True)


def _tell_existing(client: Client, table: TablePath) -> None:
    say(f"{table}: exists already, unchanged")
    lack = client.admin.await_leaders(client.admin.table_info(table), is_new=False)
    if lack is not None:
        say(f"note: table {table} cannot be written or tiered now: {lack}", err=True)


def notes(info: TableInfo) -> list[str]:
    """Warnings about a new table that concern its copy in the lake."""
    from sluice.iceberg_rules.lake_tables import check_lake_table
    from sluice.iceberg_rules.names_and_types import cautions

    if not info.datalake_enabled or info.datalake_format is None:
        return []
    if info.datalake_format.lower() != "iceberg":
        return [
            f"the lake of this cluster has the format {info.datalake_format}: Sluice tiers only to"
            " Iceberg, so Fluss's own tiering service has to tier this table"
        ]
    found = cautions(info)
    try:
        check_lake_table(info)
    except UnsupportedLakeOption as error:
        found.append(f"tiering will refuse this table: {error.message}")
    return found


def _made(info: TableInfo) -> str:
    """The line that describes a new table."""
    from sluice.quantities import counted

    lake = ", will be tiered" if info.datalake_enabled else ""
    if lake and info.datalake_format:
        lake += f" as {info.datalake_format.capitalize()}"
    key = ""
    if info.has_primary_key:
        key = f", primary key {', '.join(info.schema.primary_key)}"
    for name in info.schema.auto_increment:
        key += f", column {name} numbered by the server"
    return f"{info.path}: table {info.table_id}, {counted(info.bucket_count, 'bucket')}{key}{lake}"


def _schema(text: str | None, like_file: Path | None, partition_keys: tuple[str, ...]) -> Schema:
    """The columns that --schema or --like names, with the primary key of --schema."""
    if (text is None) == (like_file is None):
        raise click.UsageError("give either --schema TEXT or --like FILE")
    if text is not None:
        from sluice.cli.tables.schema_text import parse_schema

        with _naming("--schema"):
            return parse_schema(text)
    assert like_file is not None
    from sluice.cli.rows.columns import schema_of
    from sluice.formats.types.types import schema_from_arrow

    return schema_from_arrow(schema_of(like_file, not_null=partition_keys))


def _with_keys(
    schema: Schema,
    primary_key: tuple[str, ...],
    partition_keys: tuple[str, ...],
    bucket_key: str | None,
) -> Schema:
    """The schema with the primary key of --primary-key; the other keys are checked.

    :raises click.BadParameter: names the option and the column.
    """
    from sluice.cli.tables.schema_text import check_column, with_primary_key

    for name in partition_keys:
        with _naming("--partition-by"):
            check_column(schema, name)
    for name in [bucket_key] if bucket_key else []:
        with _naming("--bucket-key"):
            check_column(schema, name)
    if not primary_key:
        return schema
    with _naming("--primary-key"):
        if schema.primary_key:
            raise InvalidTable("--schema has a primary key already; give it once")
        return with_primary_key(schema, primary_key)


def _with_numbers(schema: Schema, name: str) -> Schema:
    """The schema with an auto-increment column.

    :raises click.BadParameter: Fluss could not number it, or nobody could write such rows.
    """
    from sluice.cli.tables.schema_text import check_column

    with _naming("--auto-increment"):
        check_column(schema, name)
        found = schema.column(name).data_type
        if not schema.primary_key:
            raise InvalidTable("only a table with a primary key has numbered rows")
        if name in schema.primary_key:
            raise InvalidTable(f"column {name} is in the primary key; name another one")
        if found.root not in (TypeRoot.INT, TypeRoot.BIGINT):
            raise InvalidTable(f"column {name} has the type {found}; use INT or BIGINT")
        for column in schema.columns:
            if column.name not in schema.primary_key and not column.data_type.nullable:
                raise InvalidTable(
                    f"column {column.name} is NOT NULL: in a table with numbered rows only the key"
                    " can be"
                )
    return replace(schema, auto_increment=(name,))


@contextmanager
def _naming(option: str) -> Iterator[None]:
    """Errors inside are errors of this option."""
    try:
        yield
    except InvalidTable as error:
        reason = (
            str(error).removeprefix("primary key: ") if option == "--primary-key" else str(error)
        )
        raise click.BadParameter(reason, param_hint=option) from error
