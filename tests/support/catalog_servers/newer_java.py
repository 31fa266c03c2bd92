"""A Java that is new enough for a server, wherever it is on this machine."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
from pathlib import Path

from sluice.errors import ConfigurationError


def java_of(version_min: int) -> str:
    """The java command of the first Java that is new enough.

    :raises ConfigurationError: there is none; says what to install.
    """
    found = _first(version_min)
    if found is None:
        raise ConfigurationError(
            f"no Java {version_min} or newer in JAVA_HOME, on the PATH or in /usr/lib/jvm:"
            f" install one, such as Temurin {version_min}, and set JAVA_HOME to its folder"
        )
    return found


@functools.cache
def _first(version_min: int) -> str | None:
    homes = [Path(home) for home in (os.environ.get("JAVA_HOME"),) if home]
    on_path = [Path(found) for found in (shutil.which("java"),) if found]
    installed = sorted(Path("/usr/lib/jvm").glob("*/bin/java"))
    for command in (*(home / "bin" / "java" for home in homes), *on_path, *installed):
        if _version(command) >= version_min:
            return str(command)
    return None


def _version(command: Path) -> int:
    """The major version; 0 if the program does not say it."""
    try:
        done = subprocess.run(
            [str(command), "-version"], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = re.search(r'version "(?:1\.)?(\d+)', done.stderr + done.stdout)
    return int(found[1]) if found else 0
