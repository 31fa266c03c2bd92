"""`sluice warm`: compiles the loops before a round or a writer needs them."""

from __future__ import annotations

import time

import click

from sluice.cli.options import examples
from sluice.errors import ConfigurationError


@click.command(
    short_help="Compile the loops for primary-key tables ahead.",
    epilog=examples(
        "sluice warm",
        "NUMBA_CACHE_DIR=/opt/sluice/cache sluice warm",
    ),
)
def warm() -> None:
    """Compile the loops that read and write primary-key tables, unless they are compiled already.

    An installation for x86-64 or ARM Linux usually has compiled loops. Elsewhere the first use
    compiles them, once for a user and machine, in about 10 seconds. Run this command to compile
    them earlier, for example in an image.

    Compilation needs pip install 'fluss-sluice[compile]'. The compiled loops are kept in
    NUMBA_CACHE_DIR, or in the user's cache folder.
    """
    started = time.monotonic()
    from sluice.formats.kernel_objects import Origin
    from sluice.formats.kernels import LOADED

    if LOADED.origin is Origin.PACKAGE:
        click.echo(f"nothing to do: the installation has {LOADED.file} ({LOADED.compiler})")
    elif LOADED.origin is Origin.CACHE:
        click.echo(f"nothing to do: the loops are compiled already, in {LOADED.file}")
    elif LOADED.file is None:
        raise ConfigurationError(
            "the loops are compiled, but cannot be kept: set NUMBA_CACHE_DIR to a writable folder"
        )
    else:
        took_s = time.monotonic() - started
        click.echo(f"compiled in {took_s:.0f} s, kept in {LOADED.file}")
