"""`sluice`: the group of all commands.

Modules of this package import only click and light packages at the top. A command imports the rest
when it runs, so that `sluice --help` stays fast.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

import click

from sluice import __version__
from sluice.cli.rows.append import append, delete
from sluice.cli.rows.lookup import lookup, snapshots
from sluice.cli.rows.sql import sql
from sluice.cli.servers.exporter import exporter
from sluice.cli.servers.serve import serve
from sluice.cli.servers.ui import ui
from sluice.cli.setup.airflow_dag import airflow_dag
from sluice.cli.setup.doctor import doctor
from sluice.cli.setup.jars import jars
from sluice.cli.setup.spark_files import spark_files
from sluice.cli.setup.warm import warm
from sluice.cli.tables.create_lake_table import create_lake_table
from sluice.cli.tables.create_table import create_table
from sluice.cli.tables.tables import tables
from sluice.cli.terminal.command_group import CommandGroup
from sluice.cli.terminal.errors import show, show_stop
from sluice.cli.terminal.logs import show_warnings
from sluice.cli.terminal.options import examples
from sluice.cli.tiering.clean import clean
from sluice.cli.tiering.history import history
from sluice.cli.tiering.leases import leases
from sluice.cli.tiering.maintain import maintain
from sluice.cli.tiering.pause import compact, pause, resume, retier, retry
from sluice.cli.tiering.repair import repair
from sluice.cli.tiering.skip_damaged import skip_damaged
from sluice.cli.tiering.status import status
from sluice.cli.tiering.tier import tier
from sluice.masking import know_environment


class _Commands(CommandGroup):
    """Prints each error as one line; `--debug` lets the traceback through."""

    def main(  # type: ignore[override]
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        if not standalone_mode:
            return super().main(args, prog_name, standalone_mode=False, **extra)
        know_environment(os.environ)  # before any argument is quoted
        try:
            code = super().main(args, prog_name, standalone_mode=False, **extra)
        except click.ClickException as error:
            sys.exit(show(error))
        except click.Abort as error:
            sys.exit(show_stop(error.__cause__ or error.__context__))
        sys.exit(code if isinstance(code, int) else 0)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (click.exceptions.Exit, click.ClickException, click.Abort, BrokenPipeError):
            raise
        except Exception as error:
            if ctx.params.get("debug"):
                raise
            ctx.exit(show(error))


@click.group(
    "sluice",
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=examples(
        "sluice serve --data-dir ./data --listen grpc://127.0.0.1:9123",
        'sluice create-table shop.orders --schema "id BIGINT NOT NULL, item STRING"',
        "sluice append shop.orders orders.parquet",
        "sluice tier shop.orders --warehouse ./lake",
        "sluice status",
        "sluice clean shop.orders --warehouse ./lake",
    ),
)
@click.version_option(__version__, prog_name="sluice", message="%(prog)s %(version)s")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
def cli(debug: bool) -> None:
    """Copy Apache Fluss tables into an Iceberg lake.

    Settings come from --config FILE (TOML). SLUICE_SECTION_KEY variables override the file, and
    options override both.

    \b
    Exit codes:
      0  The command did its work.
      1  The command failed. Standard error has the reason.
      2  An argument, a setting or the installation is wrong.
      3  The round lost its claim before its commit. A later round copies the
         rows, unless the table was dropped.
    130  Ctrl-C ended the command before its work was done.
    143  SIGTERM ended it before its work was done.
    """
    del debug  # _Commands reads it from the context


for command in (
    serve,
    create_table,
    create_lake_table,
    append,
    delete,
    lookup,
    maintain,
    tier,
    tables,
    status,
    history,
    clean,
    repair,
    skip_damaged,
    leases,
    snapshots,
    pause,
    resume,
    retry,
    retier,
    compact,
    doctor,
    exporter,
    ui,
    sql,
    jars,
    spark_files,
    airflow_dag,
    warm,
):
    cli.add_command(command)


def main() -> None:
    """Entry point of the console script."""
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    show_warnings()
    cli(prog_name="sluice")


if __name__ == "__main__":
    main()
