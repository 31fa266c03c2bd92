"""Fetches jars from Maven Central with Ivy, which is part of Spark, and checks their SHA-256.

A jar appears under its name only after its SHA-256 was checked.
"""

from __future__ import annotations

import contextlib
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
from sluice.cache_folder import cache_folder
from sluice.clock import Clock, SystemClock
from sluice.errors import ConfigurationError
from sluice.masking import line as safe_line
from sluice.masking import mask

_FETCH_TIMEOUT_S = 300
_PAUSES_S = (5.0, 20.0)
"""Seconds between attempts, because network failures may be transient."""

# Every jar is shaded and has no dependencies. Without poms, Ivy fetches the jar alone.
_IVY_SETTINGS = """<ivysettings>
  <settings defaultResolver="jars"/>
  <resolvers><ibiblio name="jars" m2compatible="true" usepoms="false"/></resolvers>
</ivysettings>
"""


@dataclass(frozen=True, slots=True)
class Jar:
    """A jar on Maven Central."""

    group: str
    artifact: str
    version: str
    sha256: str
    megabytes: int

    @property
    def name(self) -> str:
        """The file name."""
        return f"{self.artifact}-{self.version}.jar"

    @property
    def coordinates(self) -> str:
        """GROUP:ARTIFACT:VERSION, as in ``spark.jars.packages``."""
        return f"{self.group}:{self.artifact}:{self.version}"


def print_to_stderr(line: str) -> None:
    """Writes a line to standard error."""
    sys.stderr.write(safe_line(line) + "\n")
    sys.stderr.flush()


def fetch(
    jar: Jar,
    folder: Path,
    report: Callable[[str], None] = print_to_stderr,
    clock: Clock | None = None,
) -> Path:
    """Fetches a jar into a folder, or checks the one that is there; returns its path.

    :param report: called with one line before a download; default: prints to standard error.
    :param clock: the clock for pauses between attempts; default: the system's.
    :raises ConfigurationError: Java is missing or too old; or the jar cannot be fetched or
        stored, or has another SHA-256.
    """
    target = folder / jar.name
    try:
        if not target.is_file():
            folder.mkdir(parents=True, exist_ok=True)
            with _locked(folder, report):
                if not target.is_file():
                    ivy = _ivy(jar)
                    java_version()  # names a Java that is missing or too old
                    report(f"fetching {jar.name} ({jar.megabytes} MB, once) to {folder}")
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


def kept_places(jar: Jar) -> list[Path]:
    """Where a jar may be on this machine: in Sluice's cache, or where Ivy keeps its downloads.

    :raises ConfigurationError: the user has no home directory, and XDG_CACHE_HOME is not set.
    """
    homes: list[Path] = []
    with contextlib.suppress(RuntimeError):  # a user without a home
        homes = sorted(Path.home().glob(".ivy2*"), reverse=True)
    return [
        cache_folder() / "jars" / jar.name,
        *(h / "cache" / jar.group / jar.artifact / "jars" / jar.name for h in homes),
        *(h / "jars" / f"{jar.group}_{jar.name}" for h in homes),
    ]


def kept_copy(jar: Jar) -> Path | None:
    """A copy of a jar on this machine with the right SHA-256; None if there is none."""
    try:
        places = [path for path in kept_places(jar) if path.is_file()]
        return next((path for path in places if sha256(path) == jar.sha256), None)
    except (ConfigurationError, OSError):
        return None


@contextmanager
def _locked(folder: Path, report: Callable[[str], None]) -> Iterator[None]:
    """Locks a folder for one process; others wait for its download, which has a timeout."""
    with (folder / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report(f"waiting for another process that is fetching jars to {folder}")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def sha256(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal."""
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
    last = mask(" | ".join(line for line in lines[-8:] if line))[-600:]
    raise ConfigurationError(
        f"{jar.name} could not be fetched from Maven Central; copy it to {folder} yourself. Ivy's"
        f" output: {last}"
    )


def _check(jar: Jar, found: Path) -> None:
    digest = sha256(found)
    if digest != jar.sha256:
        raise ConfigurationError(
            f"{jar.name} was fetched with SHA-256 {digest}, but {jar.sha256} is expected, so it was"
            f" deleted; get version {jar.version} from another source and copy it to the folder"
        )


def _run_ivy(ivy: Path, jar: Jar, work: Path) -> str:
    """Fetches the jar into ``work``, if possible; returns Ivy's output."""
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
