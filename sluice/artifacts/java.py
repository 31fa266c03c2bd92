"""Finds Java and Spark's jars on this machine."""

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
"""The oldest Java that Spark 4 supports."""
_VERSION_TIMEOUT_S = 30


def java() -> str:
    """The java command: the one in JAVA_HOME, or else the one on the PATH."""
    if home := os.environ.get("JAVA_HOME"):
        return str(Path(home) / "bin" / "java")
    return shutil.which("java") or "java"


def java_version() -> int:
    """The major version of :func:`java`; runs it, which takes about 0.1 s.

    :raises ConfigurationError: Java is missing, does not run, or is too old; names the Java that
        was found, the version that is needed, and JAVA_HOME.
    """
    try:
        done = subprocess.run(
            [java(), "-version"],
            capture_output=True,
            text=True,
            timeout=_VERSION_TIMEOUT_S,
            check=False,
        )
    except FileNotFoundError as error:
        raise _unfit(_missing()) from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _unfit(f"{_found()} does not run: {error}") from error
    printed = " ".join((done.stderr + done.stdout).split())
    found = re.search(r'version "(?:1\.)?(\d+)', printed)
    if found is None:
        raise _unfit(f"{_found()} prints no version, but {printed[:200]!r}")
    if int(found[1]) < VERSION_MIN:
        raise _unfit(f"{_found()} is Java {found[1]}")
    return int(found[1])


def _missing() -> str:
    if home := os.environ.get("JAVA_HOME"):
        return f"JAVA_HOME={home} has no bin/java"
    return "there is no java on the PATH, and JAVA_HOME is not set"


def _found() -> str:
    """The java command and where it was found."""
    return f"{java()} ({'from JAVA_HOME' if os.environ.get('JAVA_HOME') else 'on the PATH'})"


def _unfit(why: str) -> ConfigurationError:
    return ConfigurationError(
        f"Java {VERSION_MIN} or newer is needed, but {why}: install Java {VERSION_MIN}, or set"
        " JAVA_HOME to its folder"
    )


def pyspark_jars() -> Path:
    """The jars folder of SPARK_HOME, or of the installed pyspark.

    :raises ConfigurationError: neither exists.
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
        f"Spark's jars are missing: {install_command('spark')}, or set SPARK_HOME"
    )
