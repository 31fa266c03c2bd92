"""Jars of servers and clients from Maven, pinned by SHA-256 and kept between runs."""

from __future__ import annotations

import fcntl
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sluice.artifacts.jars import sha256
from sluice.artifacts.java import java, pyspark_jars
from sluice.errors import ConfigurationError

CACHE = Path(__file__).resolve().parents[3] / ".cache"
_TIMEOUT_S = 540
# Without poms Ivy fetches the named files alone.
_SETTINGS = """<ivysettings>
  <settings defaultResolver="jars"/>
  <resolvers><ibiblio name="jars" m2compatible="true" usepoms="false"/></resolvers>
</ivysettings>
"""
_MODULE = """<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="tests" module="jars"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>
{lines}
  </dependencies>
</ivy-module>
"""


@dataclass(frozen=True, slots=True)
class MavenJar:
    """One file on Maven Central; its dependencies are files of their own."""

    group: str
    artifact: str
    version: str
    sha256: str
    classifier: str = ""

    @property
    def name(self) -> str:
        """The file name."""
        ending = f"-{self.classifier}" if self.classifier else ""
        return f"{self.artifact}-{self.version}{ending}.jar"

    @property
    def ivy_line(self) -> str:
        """The dependency in Ivy's XML."""
        classifier = f' m:classifier="{self.classifier}"' if self.classifier else ""
        return (
            f'<dependency org="{self.group}" name="{self.artifact}" rev="{self.version}"'
            f' transitive="false" conf="default"><artifact name="{self.artifact}" type="jar"'
            f' ext="jar"{classifier}/></dependency>'
        )


def pinned(file: Path) -> list[MavenJar]:
    """The jars that a file lists: ``GROUP ARTIFACT VERSION SHA256`` on each line."""
    return [MavenJar(*line.split()) for line in file.read_text().splitlines() if line]


def fetch_jars(jars: Sequence[MavenJar], folder: str) -> Path:
    """Fetches what is missing into a folder of the cache, in one start of Ivy; returns the folder.

    :raises ConfigurationError: a jar cannot be fetched, or is another one.
    """
    place = CACHE / folder
    place.mkdir(parents=True, exist_ok=True)
    with (place / ".lock").open("w") as lock:  # several test runs may begin at once
        fcntl.flock(lock, fcntl.LOCK_EX)
        if missing := [jar for jar in jars if not (place / jar.name).is_file()]:
            with tempfile.TemporaryDirectory(dir=place) as work:
                _fetch(missing, Path(work))
                for jar in missing:
                    _check(jar, Path(work) / jar.name)
                    (Path(work) / jar.name).replace(place / jar.name)
    for jar in jars:
        _check(jar, place / jar.name)
    return place


def _fetch(jars: Sequence[MavenJar], work: Path) -> None:
    (work / "settings.xml").write_text(_SETTINGS)
    (work / "ivy.xml").write_text(_MODULE.format(lines="\n".join(jar.ivy_line for jar in jars)))
    command = [
        java(), "-jar", str(next(pyspark_jars().glob("ivy-*.jar"))),
        "-settings", str(work / "settings.xml"), "-cache", str(work / "cache"),
        "-ivy", str(work / "ivy.xml"), "-confs", "default",
        "-retrieve", f"{work}/[artifact]-[revision](-[classifier]).[ext]",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    lacking = [jar.name for jar in jars if not (work / jar.name).is_file()]
    if lacking:
        raise ConfigurationError(f"not fetched: {', '.join(lacking)}: {done.stdout[-1500:]}")


def _check(jar: MavenJar, found: Path) -> None:
    digest = sha256(found)
    if digest != jar.sha256:
        raise ConfigurationError(f"{found}: SHA-256 is {digest}, not {jar.sha256}; delete it")
