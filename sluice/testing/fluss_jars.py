"""The jars of a real Fluss: fetched once by Ivy, which Spark brings, and kept in a folder.

The server is one jar (86 MB); the lake plugin is another (37 MB) and takes Hadoop's classes from
Spark's own jars, as the servers take their logging. The S3 plugin (31 MB) is fetched where a test
wants it.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from sluice.clock import Clock, SystemClock
from sluice.driver.jvm import java, pyspark_jars
from sluice.errors import ConfigurationError

VERSION = "0.9.1-incubating"
SERVER, LAKE_PLUGIN, S3_PLUGIN = "fluss-server", "fluss-lake-iceberg", "fluss-fs-s3"
VARIABLE = "SLUICE_FLUSS_JARS"
"""Environment variable that names the folder with the jars."""

_FETCH_TIMEOUT_S = 300
_PAUSES_S = (5.0, 20.0)
"""Before a fetch is tried again: a network may fail for a moment."""
_MEGABYTES = {SERVER: 86, LAKE_PLUGIN: 37, S3_PLUGIN: 31}

# The lake plugin's parent pom was never published for this version. Without poms Ivy takes the jar
# alone, which is all that is needed: both jars are shaded.
_IVY_SETTINGS = """<ivysettings>
  <settings defaultResolver="jars"/>
  <resolvers><ibiblio name="jars" m2compatible="true" usepoms="false"/></resolvers>
</ivysettings>
"""


def jar_name(artifact: str) -> str:
    return f"{artifact}-{VERSION}.jar"


def default_folder() -> Path:
    """``SLUICE_FLUSS_JARS``; else ``.cache/fluss`` of the checkout; else below the user's cache."""
    if named := os.environ.get(VARIABLE):
        return Path(named)
    checkout = Path(__file__).resolve().parents[2]
    if (checkout / "pyproject.toml").is_file():
        return checkout / ".cache" / "fluss"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sluice" / "fluss"


def fetch_jars(
    into: Path | None = None,
    say: Callable[[str], None] | None = None,
    artifacts: Sequence[str] = (SERVER, LAKE_PLUGIN),
    clock: Clock | None = None,
) -> Path:
    """Fetches what the folder lacks (about 10 s the first time); answers the folder.

    :param into: the folder; ``default_folder()`` if not given.
    :param say: gets one line before each fetch; standard error if not given.
    :param clock: waits before a fetch is tried again; the system's if not given.
    :raises ConfigurationError: the jars are nowhere and cannot be fetched.
    """
    folder = into or default_folder()
    if all((folder / jar_name(artifact)).is_file() for artifact in artifacts):
        return folder
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / ".lock").open("w") as lock:  # several test runs may begin at once
            fcntl.flock(lock, fcntl.LOCK_EX)
            for artifact in artifacts:
                if not (folder / jar_name(artifact)).is_file():
                    size = f"{_MEGABYTES[artifact]} MB, once"
                    (say or _say)(f"fetching {jar_name(artifact)} ({size}) to {folder}")
                    _fetch(artifact, folder, clock or SystemClock())
    except OSError as error:
        raise ConfigurationError(
            f"the jars of Fluss {VERSION} are missing and {folder} cannot take them: {error};"
            f" set {VARIABLE} to a folder that has them"
        ) from error
    return folder


def _fetch(artifact: str, folder: Path, clock: Clock) -> None:
    ivy = next(pyspark_jars().glob("ivy-*.jar"), None)
    if ivy is None:
        raise ConfigurationError(
            f"Spark's jars in {pyspark_jars()} have no Ivy to fetch Fluss with"
        )
    for pause_s in (*_PAUSES_S, None):
        with tempfile.TemporaryDirectory(dir=folder) as name:
            said = _run_ivy(ivy, artifact, Path(name))
            found = Path(name) / jar_name(artifact)
            if found.is_file():
                found.replace(folder / jar_name(artifact))
                return
        if pause_s is not None:
            clock.sleep(pause_s)
    lines = [x.strip() for x in said.splitlines() if not x.startswith((".", "\t--"))]
    last = " | ".join(lines[-8:])[-600:]
    raise ConfigurationError(
        f"{jar_name(artifact)} could not be fetched from Maven Central; put it into"
        f" {folder} or set {VARIABLE}. Ivy said: {last}"
    )


def _run_ivy(ivy: Path, artifact: str, work: Path) -> str:
    """What it says; the jar lies in ``work`` then, if it could be fetched."""
    (work / "settings.xml").write_text(_IVY_SETTINGS)
    command = [
        java(), "-jar", str(ivy), "-settings", str(work / "settings.xml"),
        "-cache", str(work / "cache"), "-confs", "default",
        "-dependency", "org.apache.fluss", artifact, VERSION,
        "-retrieve", f"{work}/[artifact]-[revision].[ext]",
    ]  # fmt: skip
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_FETCH_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise ConfigurationError(
            f"{jar_name(artifact)} was not fetched within {_FETCH_TIMEOUT_S} s"
        ) from error
    return done.stdout


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()
