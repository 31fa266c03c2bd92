"""Where Java and the jars of Spark are on this machine."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from pathlib import Path

from sluice.errors import ConfigurationError
from sluice.extras import install_command

VERSION_MIN = 17
"""Spark 4 runs on Java 17 and newer."""
_VERSION_TIMEOUT_S = 30


def java() -> str:
    """The java command: of JAVA_HOME, or on the path."""
    if home := os.environ.get("JAVA_HOME"):
        return str(Path(home) / "bin" / "java")
    return shutil.which("java") or "java"


def java_version() -> int:
    """The major version of :func:`java`; starts it, which takes about 0.1 s.

    :raises ConfigurationError: there is no Java, it does not run, or it is too old.
    """
    command, remedy = java(), f"install Java {VERSION_MIN} or newer, or set JAVA_HOME to it"
    try:
        done = subprocess.run(
            [command, "-version"],
            capture_output=True,
            text=True,
            timeout=_VERSION_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigurationError(f"Java does not run: {command}: {error}; {remedy}") from error
    found = re.search(r'version "(?:1\.)?(\d+)', done.stderr + done.stdout)
    if found is None:
        said = " ".join((done.stderr + done.stdout).split())[:200]
        raise ConfigurationError(f"{command} -version names no version: {said!r}; {remedy}")
    if int(found[1]) < VERSION_MIN:
        raise ConfigurationError(f"{command} is Java {found[1]}, too old for Spark 4; {remedy}")
    return int(found[1])


def pyspark_jars() -> Path:
    """The jars folder of SPARK_HOME, or of the installed pyspark.

    :raises ConfigurationError: if there is neither.
    """
    folders = []
    if home := os.environ.get("SPARK_HOME"):
        folders.append(Path(home) / "jars")
    spec = importlib.util.find_spec("pyspark")
    if spec is not None and spec.origin:
        folders.append(Path(spec.origin).parent / "jars")
    for folder in folders:
        if any(folder.glob("py4j-*.jar")):
            return folder
    raise ConfigurationError(
        f"the jars of Spark are missing: {install_command('spark')}, or set SPARK_HOME"
    )
