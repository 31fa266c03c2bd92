"""`sluice warm`: compiled loops are there before a round or a writer needs them."""

from __future__ import annotations

import time

import click

from sluice.errors import ConfigurationError


@click.command(
    short_help="Compile ahead what rows of tables with a key need.",
    epilog="""
\b
Examples:
  sluice warm
  NUMBA_CACHE_DIR=/opt/sluice/cache sluice warm
""",
)
def warm() -> None:
    """Compile Sluice's loops ahead, or say that there is nothing to do.

    Tables with a primary key are read and written by compiled loops. An installation for x86-64 or
    ARM Linux usually holds them. Elsewhere they are compiled once for a user and machine. It
    takes some 10 seconds. It needs `pip install 'fluss-sluice[compile]'`. They are kept in
    NUMBA_CACHE_DIR, or in the user's cache folder.
    """
    started = time.monotonic()
    from sluice.formats.kernel_objects import Origin
    from sluice.formats.kernels import LOADED

    if LOADED.origin is Origin.PACKAGE:
        click.echo(f"nothing to do: the installation holds {LOADED.file} ({LOADED.compiler})")
    elif LOADED.origin is Origin.CACHE:
        click.echo(f"nothing to do: the loops were compiled before, and lie in {LOADED.file}")
    elif LOADED.file is None:
        raise ConfigurationError(
            "the loops were compiled, but could not be kept: "
            "set NUMBA_CACHE_DIR to a folder that can be written"
        )
    else:
        took_s = time.monotonic() - started
        click.echo(f"compiled in {took_s:.0f} s, and kept in {LOADED.file}")
