"""`sluice`: the group of all commands, and the one place where errors become lines and exit codes.

Modules of this room import only click and light rooms at the top; what a command needs is imported
when it runs, so that `sluice --help` stays fast.
"""

from __future__ import annotations

import logging
import os
from typing import Any, NoReturn

import click

from sluice import __version__
from sluice.cli.airflow_dag import airflow_dag
from sluice.cli.append import append, delete
from sluice.cli.clean import clean
from sluice.cli.create_table import create_table
from sluice.cli.doctor import doctor
from sluice.cli.jars import jars
from sluice.cli.leases import leases
from sluice.cli.lookup import lookup, snapshots
from sluice.cli.pause import pause, resume, retier, retry
from sluice.cli.repair import repair
from sluice.cli.serve import serve
from sluice.cli.show import tables
from sluice.cli.spark_files import spark_files
from sluice.cli.sql import sql
from sluice.cli.status import status
from sluice.cli.tier import tier
from sluice.cli.warm import warm
from sluice.errors import ConfigurationError, DatabaseNotExist, SluiceError, TableNotExist
from sluice.masking import MaskingFormatter, mask

EXIT_FAILED = 1
EXIT_WRONG_ARGUMENTS = 2
_MISSING = (DatabaseNotExist, TableNotExist)


class _Commands(click.Group):
    """Turns errors into one line each; `--debug` lets the traceback through."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except SluiceError as error:
            wrong = isinstance(error, ConfigurationError)
            code = EXIT_WRONG_ARGUMENTS if wrong else EXIT_FAILED
            is_all = not getattr(error, "__notes__", [])  # or a command to copy follows
            hint = "; `sluice tables` lists what there is"
            hint = hint if is_all and isinstance(error, _MISSING) else ""
            self._fail(ctx, error, f"{type(error).__name__}: {error}{hint}", code)
        except (click.exceptions.Exit, click.ClickException, click.Abort, BrokenPipeError):
            raise
        except OSError as error:
            self._fail(ctx, error, str(error), EXIT_FAILED)
        except Exception as error:
            line = f"{type(error).__name__}: {error} (not expected: --debug shows where)"
            self._fail(ctx, error, line, EXIT_FAILED)

    @staticmethod
    def _fail(ctx: click.Context, error: BaseException, line: str, code: int) -> NoReturn:
        if ctx.params.get("debug"):
            raise error
        click.secho(f"sluice: {mask(' '.join(line.split()))}", fg="red", err=True)
        for command in getattr(error, "__notes__", []) if isinstance(error, SluiceError) else []:
            click.echo(command, err=True)  # to be copied: neither joined nor masked
        ctx.exit(code)


EXAMPLES = """
\b
Examples:
  sluice serve --data-dir ./data --listen grpc://127.0.0.1:9123
  sluice create-table shop.orders --schema "id BIGINT NOT NULL, item STRING"
  sluice append shop.orders orders.parquet
  sluice tier shop.orders --warehouse ./lake
  sluice status
  sluice clean shop.orders --warehouse ./lake
"""


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=EXAMPLES,
)
@click.version_option(__version__, prog_name="sluice", message="%(prog)s %(version)s")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
def cli(debug: bool) -> None:
    """Move Apache Fluss tables into a lakehouse.

    Settings come from --config FILE (TOML), then SLUICE_SECTION_KEY variables, then options.
    Exit code 0: done; 1: tried and failed, with the reason on standard error; 2: wrong arguments or
    settings; 3: a round lost its claim before its commit, and another one brings the rows.
    """
    del debug  # read by _Commands from the context


for command in (
    serve,
    create_table,
    append,
    delete,
    lookup,
    tier,
    tables,
    status,
    clean,
    repair,
    leases,
    snapshots,
    pause,
    resume,
    retry,
    retier,
    doctor,
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
    if logging.lastResort is not None:  # writes the warnings of commands that set up no logs
        logging.lastResort.setFormatter(MaskingFormatter("%(message)s"))
    cli(prog_name="sluice")


if __name__ == "__main__":
    main()
