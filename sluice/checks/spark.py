"""Whether this machine has what spark-submit takes: its program, Java, script, jars, packages."""

from __future__ import annotations

import os
from pathlib import Path

from sluice.artifacts import spark_files
from sluice.artifacts.iceberg import install_spark, installed_iceberg, spark_jars
from sluice.artifacts.java import java, java_version
from sluice.artifacts.spark_submit import spark_submit
from sluice.checks.findings import Check, NotChecked
from sluice.checks.folders import local_path
from sluice.errors import ConfigurationError


def driver_script(path: str, remedy: str) -> Check:
    """The script that spark-submit runs; the one of the installed package if ``path`` is empty."""
    return Check(
        "the driver's script", lambda: seen_files(path or str(spark_files.driver_script())), remedy
    )


def files(what: str, paths: str, remedy: str) -> Check:
    """Files with commas between, as ``--jars`` and ``--py-files`` take them."""
    return Check(what, lambda: seen_files(paths), remedy)


def program(binary: str, remedy: str) -> Check:
    """spark-submit itself, by name or path."""

    def look() -> str:
        found = spark_submit(binary)
        if found is None:
            raise ConfigurationError(
                f"there is no program {binary!r}: {install_spark()} brings spark-submit"
            )
        return str(found)

    return Check("spark-submit", look, remedy)


def java_of(binary: str, driver_is_here: bool) -> Check:
    """The Java that spark-submit starts. A driver on a cluster has another one."""

    def look() -> str | NotChecked:
        found = spark_submit(binary)
        if found is None:
            return NotChecked("there is no spark-submit to start it")
        if why := _brings_java(found):
            return NotChecked(why)
        return _java() + ("" if driver_is_here else "; the driver's, on the cluster: not checked")

    return Check("Java", look)


def java_here() -> Check:
    """The Java that this process would start."""
    return Check("Java", _java)


def packages(coordinates: str, remedy: str) -> Check:
    """Coordinates as ``spark.jars.packages`` takes them; spark-submit resolves them."""

    def look() -> str | NotChecked:
        for each in coordinates.split(","):
            parts = each.replace("/", ":").split(":")
            if len(parts) != 3 or not all(part.strip() for part in parts):
                raise ConfigurationError(f"{each.strip()!r} is not GROUP:ARTIFACT:VERSION")
        return NotChecked(f"spark-submit fetches {coordinates}")

    return Check("packages", look, remedy)


def iceberg_packages(binary: str, remedy: str) -> Check:
    """The coordinates of Iceberg's runtime for the Spark that spark-submit starts."""

    def look() -> NotChecked:
        submit = spark_submit(binary)
        runtime = installed_iceberg(submit).coordinates
        if spark_jars(submit) is None:
            return NotChecked(
                f"{submit} does not tell its Spark's version: Iceberg's newest runtime, {runtime};"
                f" {remedy}"
            )
        return NotChecked(f"spark-submit fetches {runtime}")

    return Check("packages", look, remedy)


def _java() -> str:
    return f"{java()} is Java {java_version()}"


def listed(paths: str) -> list[str]:
    """Files with commas between, one by one."""
    return [path.strip() for path in paths.split(",") if path.strip()]


def path_here(given: str) -> Path | None:
    """The file that this machine can look at; None for what Spark fetches or expands."""
    path = local_path(given)
    return None if path is None or not set(path).isdisjoint("*?[{") else Path(path)


def seen_files(paths: str) -> str | NotChecked:
    """:raises ConfigurationError: one of them is not there, or cannot be read."""
    left = []
    for given in listed(paths):
        path = path_here(given)
        if path is None:
            left.append(given)
        elif path.is_dir():
            raise ConfigurationError(f"{given} is a folder: name the file in it")
        elif not path.is_file():
            raise ConfigurationError(f"there is no file {given}")
        elif not os.access(path, os.R_OK):
            raise ConfigurationError(f"{given} cannot be read")
    if left:
        return NotChecked(f"left to Spark: {', '.join(left)}")
    return ", ".join(listed(paths))


def _brings_java(submit: Path) -> str:
    """Why the Java of this environment need not be the one that spark-submit starts."""
    home = os.environ.get("SPARK_HOME")
    folder = Path(home) / "bin" if home else submit.resolve().parent
    if not (folder / "spark-class").is_file():
        return f"{submit} is a program of its own and may bring it"
    conf = Path(os.environ.get("SPARK_CONF_DIR") or folder.parent / "conf")
    try:
        settings = (conf / "spark-env.sh").read_text(errors="replace")
    except OSError:
        return ""
    return f"{conf / 'spark-env.sh'} names it" if "JAVA_HOME" in settings else ""
