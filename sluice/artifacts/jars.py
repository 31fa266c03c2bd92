"""Jars from Maven Central: their coordinates, their SHA-256, and how they are fetched.

Ivy, which Spark brings, fetches them. A jar appears under its name only when its SHA-256 is the one
that stands here.
"""

from __future__ import annotations

import fcntl
import hashlib
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sluice.artifacts.java import java, java_version, pyspark_jars
from sluice.clock import Clock, SystemClock
from sluice.errors import ConfigurationError

_FETCH_TIMEOUT_S = 300
_PAUSES_S = (5.0, 20.0)
"""Before a fetch is tried again: a network may fail for a moment."""

# Every jar here is shaded and needs no other. Without poms Ivy takes the jar alone.
_IVY_SETTINGS = """<ivysettings>
  <settings defaultResolver="jars"/>
  <resolvers><ibiblio name="jars" m2compatible="true" usepoms="false"/></resolvers>
</ivysettings>
"""


@dataclass(frozen=True, slots=True)
class Jar:
    """One jar of Maven Central."""

    group: str
    artifact: str
    version: str
    sha256: str
    megabytes: int

    @property
    def name(self) -> str:
        """The file's name."""
        return f"{self.artifact}-{self.version}.jar"

    @property
    def coordinates(self) -> str:
        """GROUP:ARTIFACT:VERSION, as ``spark.jars.packages`` takes it."""
        return f"{self.group}:{self.artifact}:{self.version}"


def print_line(line: str) -> None:
    """Writes a line to standard error."""
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def fetch(
    jar: Jar,
    folder: Path,
    say: Callable[[str], None] = print_line,
    clock: Clock | None = None,
) -> Path:
    """Fetches a jar into a folder, or checks the jar that is already there; returns its path.

    :param say: gets one line before a fetch; standard error if not given.
    :param clock: waits before a fetch is tried again; the system's if not given.
    :raises ConfigurationError: Java is missing or too old; or the jar cannot be fetched or
        written, or has another SHA-256.
    """
    target = folder / jar.name
    try:
        if not target.is_file():
            folder.mkdir(parents=True, exist_ok=True)
            with _locked(folder, say):
                if not target.is_file():
                    ivy = _ivy(jar)
                    java_version()  # names a Java that is missing or too old
                    say(f"fetching {jar.name} ({jar.megabytes} MB, once) to {folder}")
                    _fetch(ivy, jar, folder, clock or SystemClock())
                    return target
        found = sha256(target)
    except OSError as error:
        raise ConfigurationError(f"{jar.name} in {folder}: {error}") from error
    if found != jar.sha256:
        raise ConfigurationError(
            f"{target}: SHA-256 is {found}, not {jar.sha256}: the file is damaged or another one;"
            " delete it and run the command again"
        )
    return target


@contextmanager
def _locked(folder: Path, say: Callable[[str], None]) -> Iterator[None]:
    """For one process at a time; the others wait while it fetches, which has time-outs."""
    with (folder / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another process that fetches jars to {folder}")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def sha256(path: Path) -> str:
    """The digest of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _ivy(jar: Jar) -> Path:
    ivy = next(pyspark_jars().glob("ivy-*.jar"), None)
    if ivy is None:
        raise ConfigurationError(
            f"{jar.name} is missing, and {pyspark_jars()} has no ivy jar to fetch it"
        )
    return ivy


def _fetch(ivy: Path, jar: Jar, folder: Path, clock: Clock) -> None:
    said = ""
    for pause_s in (*_PAUSES_S, None):
        with tempfile.TemporaryDirectory(dir=folder) as name:
            said = _run_ivy(ivy, jar, Path(name))
            found = Path(name) / jar.name
            if found.is_file():
                _check(jar, found)
                found.replace(folder / jar.name)
                return
        if pause_s is not None:
            clock.sleep(pause_s)
    lines = [line.strip() for line in said.splitlines() if not line.startswith((".", "\t--"))]
    last = " | ".join(line for line in lines[-8:] if line)[-600:]
    raise ConfigurationError(
        f"{jar.name} could not be fetched from Maven Central; put it into {folder}."
        f" Ivy said: {last}"
    )


def _check(jar: Jar, found: Path) -> None:
    digest = sha256(found)
    if digest != jar.sha256:
        raise ConfigurationError(
            f"{jar.name} as fetched has SHA-256 {digest}, not {jar.sha256}: it was not kept;"
            f" get version {jar.version} in another way and put it into the folder"
        )


def _run_ivy(ivy: Path, jar: Jar, work: Path) -> str:
    """What it says; the jar lies in ``work`` then, if it could be fetched."""
    (work / "settings.xml").write_text(_IVY_SETTINGS)
    command = [
        java(), "-jar", str(ivy), "-settings", str(work / "settings.xml"),
        "-cache", str(work / "cache"), "-confs", "default",
        "-dependency", jar.group, jar.artifact, jar.version,
        "-retrieve", f"{work}/[artifact]-[revision].[ext]",
    ]  # fmt: skip
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_FETCH_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise ConfigurationError(
            f"{jar.name} was not fetched within {_FETCH_TIMEOUT_S} s"
        ) from error
    return done.stdout
