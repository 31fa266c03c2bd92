"""Downloads the jars of Apache Fluss once, through Spark's Ivy, into a folder.

The server is one jar and the lake plugin another. The plugin uses Hadoop's classes from Spark's
jars, and the servers use Spark's logging. The S3 plugin is downloaded for tests that need it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from sluice.artifacts.jars import Jar, fetch, print_to_stderr
from sluice.cache_folder import cache_folder
from sluice.clock import Clock
from sluice.errors import ConfigurationError

_GROUP, VERSION = "org.apache.fluss", "0.9.1-incubating"
SERVER = Jar(
    _GROUP,
    "fluss-server",
    VERSION,
    "fdda82aa7cc936086c420090920836066d48d741cf7e0aadde3c0e6f0832a169",
    86,
)
LAKE_PLUGIN = Jar(
    _GROUP,
    "fluss-lake-iceberg",
    VERSION,
    "b9d8aa37a1a1a1eb14c1a365ae40e8114dcff26367cdc08156ae4f6d0d911d93",
    37,
)
S3_PLUGIN = Jar(
    _GROUP,
    "fluss-fs-s3",
    VERSION,
    "9d85c2d83daa0ad5a7c3980162e96022154467f378b08333faa9d37beab682e3",
    31,
)
VARIABLE = "SLUICE_FLUSS_JARS"
"""Environment variable that names the folder with the jars."""


def default_folder() -> Path:
    """``SLUICE_FLUSS_JARS``, else ``.cache/fluss`` of the checkout, else in the user's cache."""
    if named := os.environ.get(VARIABLE):
        return Path(named)
    checkout = Path(__file__).resolve().parents[3]
    if (checkout / "pyproject.toml").is_file():
        return checkout / ".cache" / "fluss"
    return cache_folder() / "fluss"


def jar_names(version: str = VERSION, *, lake: bool = True) -> tuple[str, ...]:
    """The file names of the server's jar and, with a lake, of its plugin."""
    jars = (SERVER, LAKE_PLUGIN) if lake else (SERVER,)
    return tuple(replace(jar, version=version).name for jar in jars)


def server_jars(version: str, into: Path | None = None, *, lake: bool = True) -> Path:
    """Returns the folder with the server's jars of a version.

    Those of ``VERSION`` are downloaded if they are missing. Of others, Sluice does not know the
    SHA-256, so somebody must have put them there.

    :raises ConfigurationError: jars are missing; names each.
    """
    if version == VERSION:
        return fetch_jars(into)
    folder = into or default_folder()
    missing = [name for name in jar_names(version, lake=lake) if not (folder / name).is_file()]
    if missing:
        places = ", ".join(
            f"{_GROUP}:{name.removesuffix(f'-{version}.jar')}:{version}" for name in missing
        )
        raise ConfigurationError(
            f"Fluss {version} cannot be run: {' and '.join(missing)} ({places}) not found in"
            f" {folder}. Sluice downloads {VERSION} only; copy the jars of {version} there, or set"
            f" {VARIABLE} to a folder that has them"
        )
    return folder


def fetch_jars(
    into: Path | None = None,
    say: Callable[[str], None] = print_to_stderr,
    jars: Sequence[Jar] = (SERVER, LAKE_PLUGIN),
    clock: Clock | None = None,
) -> Path:
    """Downloads missing jars (about 10 s the first time) and returns the folder.

    :param into: the folder; by default ``default_folder()``.
    :param say: receives one line before each download; by default standard error.
    :param clock: waits before a download is retried; by default the system clock.
    :raises ConfigurationError: jars are missing and cannot be downloaded, or are damaged.
    """
    folder = into or default_folder()
    try:
        for jar in jars:
            fetch(jar, folder, say, clock)
    except ConfigurationError as error:
        raise ConfigurationError(
            f"the jars of Fluss {VERSION} are missing: {error}; or set {VARIABLE} to a folder"
            " that contains them"
        ) from error
    return folder
