"""`sluice spark-files`: the files that spark-submit needs to run a round."""

from __future__ import annotations

import contextlib
import shutil
import uuid
from pathlib import Path

import click

from sluice.cli.terminal.options import examples, format_option, spark_option
from sluice.cli.terminal.output import say

_KEPT_S = 86_400
"""Every spark-submit has read its zip after this time."""


@click.command(
    "spark-files",
    short_help="Print or copy the files for spark-submit.",
    epilog=examples(
        "sluice spark-files",
        "sluice spark-files --copy /srv/sluice/spark",
        "sluice spark-files --spark 4.0 --format json",
    ),
)
@click.option(
    "--copy",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Copy scripts and zip into this folder, and create it if it is missing.",
)
@spark_option
@format_option
def spark_files(folder: Path | None, spark: str | None, output_format: str) -> None:
    """Print the paths of the files that spark-submit needs to tier a table.

    \b
    script    the program of the driver; maintain_tables.py, which maintains
              lake tables, is beside it
    py-files  a zip of Sluice's packages, for executors without fluss-sluice;
              they still need its dependencies, as pyarrow and grpcio
    packages  Iceberg's runtime, for spark.jars.packages; `sluice jars fetch
              DIR` downloads it as a file

    Without --copy, the script is the installed one, and the zip is in the user's cache folder.
    """
    from sluice.artifacts.iceberg import iceberg_runtime, installed_iceberg
    from sluice.artifacts.spark_files import (
        driver_script,
        has_compiled_loops,
        maintenance_script,
        make_zip,
    )
    from sluice.cli.terminal.output import print_json
    from sluice.errors import ConfigurationError
    from sluice.extras import install_command

    try:
        runtime = iceberg_runtime(spark) if spark else installed_iceberg()
    except ConfigurationError as error:
        raise error if spark else ConfigurationError(f"{error}; or give --spark VERSION") from error
    script = driver_script()
    try:
        if folder is None:
            archive = cached_zip()
        else:
            folder = folder.absolute()
            archive = folder / "sluice.zip"
            make_zip(archive)
            script = copied(script, folder)
            copied(maintenance_script(), folder)
    except OSError as error:
        raise ConfigurationError(f"the files cannot be written: {error}") from error
    found = {"script": str(script), "py-files": str(archive), "packages": runtime.coordinates}
    if output_format == "json":
        print_json(found)
        return
    for name, value in found.items():
        say(f"{name:<9} {value}")
    if not has_compiled_loops(archive):
        say(
            "note: the zip has no compiled loops, because Sluice is not installed from a wheel:"
            f" executors that read primary-key tables need {install_command('compile')}",
            err=True,
        )


def copied(script: Path, folder: Path) -> Path:
    """Copies the script into a folder, in one step that other processes cannot see half done.

    :raises OSError: it cannot be written.
    """
    new = folder / f"{script.name}.{uuid.uuid4().hex}.tmp"
    try:
        shutil.copyfile(script, new)
        return new.replace(folder / script.name)
    finally:
        new.unlink(missing_ok=True)


def cached_zip() -> Path:
    """Makes the zip in the user's cache folder, under a name that changes with its content.

    Deletes zips older than a day: each release and each change of a checkout makes another one.

    :raises OSError: it cannot be written. :raises ConfigurationError: the user has no home.
    """
    from sluice.artifacts.jars import sha256
    from sluice.artifacts.spark_files import make_zip
    from sluice.cache_folder import cache_folder

    cache = cache_folder() / "spark"
    new = cache / f"sluice-{uuid.uuid4().hex}.new"
    make_zip(new)
    found = new.replace(cache / f"sluice-{sha256(new)[:16]}.zip")
    oldest_s = found.stat().st_mtime - _KEPT_S
    for path in cache.glob("sluice-*"):
        with contextlib.suppress(OSError):  # another process also deletes it
            if path.stat().st_mtime < oldest_s:
                path.unlink()
    return found
