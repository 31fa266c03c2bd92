"""Whether the Spark of a round will find Iceberg: in the jars it is given, or in its own."""

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
"""Spark properties by which jars come from elsewhere."""


def iceberg_jars(
    jars: str, binary: str, remedy: str, properties: Iterable[str], driver_is_here: bool
) -> Check:
    """Files with commas between, as ``--jars`` takes them; one of them has Iceberg, or Spark has.

    :param properties: names of the Spark properties that the run is given besides.
    """
    named = [name for name in properties if _BRINGS.match(name)]

    def look() -> str | NotChecked:
        seen = seen_files(jars)
        here = [path for path in map(path_here, listed(jars)) if path is not None]
        directories = [read_central_directory(path) for path in here]
        if isinstance(seen, NotChecked) or _are_there(directories, CATALOGS, FENCE):
            return seen
        is_old = _are_there(directories, CATALOGS)
        iceberg = "Iceberg new enough for Sluice" if is_old else "Iceberg"
        none = f"no {iceberg} in {seen or 'jars or packages, which are empty'}"
        if not driver_is_here:
            return NotChecked(f"{none}: the driver's Spark, on the cluster, has to bring it")
        if named:
            return NotChecked(f"{none}: left to {', '.join(named)}")
        return _own_of_spark(none, binary)

    return Check("jars", look, remedy)


def _own_of_spark(none: str, binary: str) -> str | NotChecked:
    """:raises ConfigurationError: Spark has no Iceberg of its own."""
    submit = spark_submit(binary)
    try:
        folder = spark_jars(submit) if submit else None
    except ConfigurationError as error:
        return NotChecked(f"{none}; {error}")
    if folder is None:
        return NotChecked(f"{none}: Spark has to bring it")
    if _are_there(_directories(folder), CATALOGS, FENCE):
        return f"Spark's own in {folder}"
    if where := _named_elsewhere(folder):
        return NotChecked(f"{none}: left to {where}")
    if not _is_of(submit, folder):
        return NotChecked(f"{none}, nor in Spark's own {folder}: {submit} has to bring it")
    wanted = installed_iceberg(submit).name
    raise ConfigurationError(f"{none}, nor in Spark's own {folder}: give {wanted}")


def _is_of(submit: Path | None, folder: Path) -> bool:
    """Whether the program is that Spark's own, and no script around it that may name jars."""
    if submit is None:
        return False
    program = submit.resolve()
    return is_pyspark_program(program) or program.parent.parent / "jars" == folder.resolve()


def _directories(folder: Path) -> list[bytes]:
    """Those of all jars in it that can be read."""
    found = []
    for path in folder.glob("*.jar"):
        with contextlib.suppress(ConfigurationError, OSError):
            found.append(read_central_directory(path))
    return found


def _are_there(directories: Sequence[bytes], *classes: str) -> bool:
    return all(any(has_class(each, name) for each in directories) for name in classes)


def _named_elsewhere(jars: Path) -> str:
    """The setting of this Spark that may bring further jars; empty if none does."""
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
