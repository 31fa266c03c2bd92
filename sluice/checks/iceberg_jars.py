"""Checks that the Spark of a round will find Iceberg, in the given jars or in its own."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from sluice.artifacts.classes import has_class, read_central_directory
from sluice.artifacts.iceberg import (
    CATALOGS,
    FENCE,
    installed_iceberg,
    is_pyspark_program,
    spark_jars,
)
from sluice.artifacts.spark_submit import spark_submit
from sluice.checks.findings import Check, NotChecked
from sluice.checks.spark import listed, path_here, seen_files
from sluice.errors import ConfigurationError

_BRINGS = re.compile(r"\s*spark\.(jars|driver\.extraClassPath)\b")
"""Spark properties that add jars from elsewhere."""


def iceberg_jars(
    jars: str, binary: str, remedy: str, properties: Iterable[str], driver_is_here: bool
) -> Check:
    """Checks comma-separated jars, as in ``--jars``: they exist, and one or Spark has Iceberg.

    :param properties: names of the other Spark properties of the run.
    """
    named = [name for name in properties if _BRINGS.match(name)]

    def run() -> str | NotChecked:
        seen = seen_files(jars)
        here = [path for path in map(path_here, listed(jars)) if path is not None]
        directories = [read_central_directory(path) for path in here]
        if isinstance(seen, NotChecked) or _are_there(directories, CATALOGS, FENCE):
            return seen
        is_old = _are_there(directories, CATALOGS)
        iceberg = "Iceberg new enough for Sluice" if is_old else "Iceberg"
        none = f"no {iceberg} in {seen or 'the options jars and packages, which are empty'}"
        if not driver_is_here:
            return NotChecked(f"{none}: the driver's Spark, on the cluster, must provide it")
        if named:
            return NotChecked(f"{none}: it may come from {', '.join(named)}")
        return _own_of_spark(none, binary)

    return Check("jars", run, remedy)


def _own_of_spark(none: str, binary: str) -> str | NotChecked:
    """:raises ConfigurationError: Spark has no Iceberg of its own."""
    submit = spark_submit(binary)
    try:
        folder = spark_jars(submit) if submit else None
    except ConfigurationError as error:
        return NotChecked(f"{none}; {error}")
    if folder is None:
        return NotChecked(f"{none}: Spark must provide it")
    if _are_there(_directories(folder), CATALOGS, FENCE):
        return f"Iceberg is among Spark's own jars in {folder}"
    if where := _named_elsewhere(folder):
        return NotChecked(f"{none}: it may come from {where}")
    if not _is_of(submit, folder):
        return NotChecked(f"{none}, nor in Spark's own {folder}: {submit} must provide it")
    wanted = installed_iceberg(submit).name
    raise ConfigurationError(f"{none}, nor in Spark's own {folder}: add {wanted}")


def _is_of(submit: Path | None, folder: Path) -> bool:
    """Whether the program is Spark's own spark-submit, not a wrapper script that may add jars."""
    if submit is None:
        return False
    program = submit.resolve()
    return is_pyspark_program(program) or program.parent.parent / "jars" == folder.resolve()


def _directories(folder: Path) -> list[bytes]:
    """The central directories of all readable jars in a folder."""
    found = []
    for path in folder.glob("*.jar"):
        with contextlib.suppress(ConfigurationError, OSError):
            found.append(read_central_directory(path))
    return found


def _are_there(directories: Sequence[bytes], *classes: str) -> bool:
    return all(any(has_class(each, name) for each in directories) for name in classes)


def _named_elsewhere(jars: Path) -> str:
    """The setting of this Spark that may add further jars; empty if there is none."""
    conf = Path(os.environ.get("SPARK_CONF_DIR") or jars.parent / "conf")
    for name, says in (("spark-defaults.conf", _BRINGS.match), ("spark-env.sh", _has_class_path)):
        try:
            lines = (conf / name).read_text(errors="replace").splitlines()
        except OSError:
            continue
        if any(map(says, lines)):
            return str(conf / name)
    return "SPARK_DIST_CLASSPATH" if os.environ.get("SPARK_DIST_CLASSPATH") else ""


def _has_class_path(line: str) -> bool:
    return "CLASSPATH" in line
