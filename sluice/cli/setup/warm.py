"""`sluice warm`: compiles the loops and archives Java's classes before a round needs them."""

from __future__ import annotations

import time

import click

from sluice.cli.terminal.options import examples
from sluice.cli.terminal.output import say
from sluice.errors import ConfigurationError


@click.command(
    short_help="Prepare the loops and Spark's start ahead.",
    epilog=examples(
        "sluice warm",
        "sluice warm --jars /opt/jars/iceberg-spark-runtime-4.1_2.13-1.12.0.jar",
        "NUMBA_CACHE_DIR=/opt/sluice/cache sluice warm --loops-only",
    ),
)
@click.option(
    "--jars",
    default="",
    metavar="FILES",
    help="Iceberg's jars, as in section [sluice] of Airflow (default: the runtime that"
    " packages = auto means).",
)
@click.option("--loops-only", is_flag=True, help="Do not prepare Spark's start.")
def warm(jars: str, loops_only: bool) -> None:
    """Prepare this machine, unless that was done before: compiled loops, and Spark's start.

    The loops read and write primary-key tables. An installation for x86-64 or ARM Linux usually
    has compiled loops. Elsewhere the first use compiles them, once for a user and machine, in
    about 10 seconds. Run this command to compile them earlier, for example in an image.

    Compilation needs pip install 'fluss-sluice[compile]'. The compiled loops are kept in
    NUMBA_CACHE_DIR, or in the user's cache folder.

    Spark's drivers under Airflow start with about half of the CPU time if this machine has an
    archive of Java's classes. It is made in about 20 seconds, and has about 90 MB. Run the command
    as the user of the Airflow worker, and again after an upgrade of Java, Spark or Iceberg.
    The archive is kept in sluice below XDG_CACHE_HOME, or in the user's cache folder.
    """
    _warm_loops()
    if not loops_only:
        _warm_start(jars)


def _warm_loops() -> None:
    started = time.monotonic()
    from sluice.formats.kernels.compiled import LOADED
    from sluice.formats.kernels.objects import Origin

    if LOADED.origin is Origin.PACKAGE:
        say(f"nothing to do: the installation has {LOADED.file} ({LOADED.compiler})")
    elif LOADED.origin is Origin.CACHE:
        say(f"nothing to do: the loops are compiled already, in {LOADED.file}")
    elif LOADED.file is None:
        raise ConfigurationError(
            "the loops are compiled, but cannot be kept: set NUMBA_CACHE_DIR to a writable folder"
        )
    else:
        took_s = time.monotonic() - started
        say(f"compiled in {took_s:.0f} s, kept in {LOADED.file}")


def _warm_start(jars: str) -> None:
    """Makes the archive. Without Spark on this machine there is none to make."""
    from sluice.driver.lakes.start_archive import make_start_archive

    started = time.monotonic()
    try:
        archive, is_new = make_start_archive(jars)
    except ConfigurationError as error:
        if jars:
            raise
        say(f"no archive of classes for Spark's start: {error}")
        return
    if is_new:
        took_s = time.monotonic() - started
        say(f"archive of classes made in {took_s:.0f} s, kept in {archive}")
    else:
        say(f"nothing to do: Spark's start has {archive}")
