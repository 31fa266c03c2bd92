"""`sluice jars`: fetches and checks the jars that a lake needs."""

from __future__ import annotations

from pathlib import Path

import click

from sluice.cli.terminal.command_group import CommandGroup
from sluice.cli.terminal.options import examples, spark_option
from sluice.cli.terminal.output import say


@click.group(
    cls=CommandGroup,
    short_help="Fetch the jars that a lake needs.",
    epilog=examples("sluice jars fetch ./jars"),
)
def jars() -> None:
    """Fetch the jars that a lake needs."""


@jars.command(
    "fetch",
    short_help="Fetch Iceberg's runtime for Spark into a folder.",
    epilog=examples(
        "sluice jars fetch ./jars",
        "sluice jars fetch ./jars --spark 4.0",
        "SLUICE_TIERING_JARS=./jars sluice tier shop.orders --warehouse ./lake",
    ),
)
@click.argument("folder", metavar="DIR", type=click.Path(file_okay=False, path_type=Path))
@spark_option
def fetch(folder: Path, spark: str | None) -> None:
    """Fetch Iceberg's runtime for Spark into DIR, and check its SHA-256.

    The jar comes from Maven Central. A jar that is already in DIR is only checked. The command
    prints the path of the jar. It needs Java 17 or newer and pip install 'fluss-sluice[spark]'.
    """
    from sluice.artifacts.iceberg import iceberg_runtime, installed_iceberg
    from sluice.artifacts.jars import fetch as fetch_jar

    runtime = iceberg_runtime(spark) if spark else installed_iceberg()
    say(str(fetch_jar(runtime, folder.absolute())))
