"""Checks that this machine has what spark-submit needs: program, Java, script, jars, packages."""

from __future__ import annotations

import os
from pathlib import Path

from sluice.artifacts import spark_files
from sluice.artifacts.iceberg import install_spark, installed_iceberg, spark_jars
from sluice.artifacts.jars import kept_places
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
    """Checks comma-separated files, as in ``--jars`` and ``--py-files``."""
    return Check(what, lambda: seen_files(paths), remedy)


def program(binary: str, remedy: str) -> Check:
    """Checks that spark-submit exists, by name or path."""

    def run() -> str:
        found = spark_submit(binary)
        if found is None:
            raise ConfigurationError(
                f"the program {binary!r} does not exist: `{install_spark()}` installs spark-submit"
            )
        return str(found)

    return Check("spark-submit", run, remedy)


def java_of(binary: str, driver_is_here: bool) -> Check:
    """Checks the Java that spark-submit starts. A driver on a cluster has its own Java."""

    def run() -> str | NotChecked:
        found = spark_submit(binary)
        if found is None:
            return NotChecked("there is no spark-submit")
        if why := _brings_java(found):
            return NotChecked(why)
        return _java() + ("" if driver_is_here else "; the driver's, on the cluster: not checked")

    return Check("Java", run)


def java_here() -> Check:
    """Checks the Java that this process starts."""
    return Check("Java", _java)


def packages(coordinates: str, remedy: str) -> Check:
    """Checks the form of Maven coordinates, as in ``spark.jars.packages``."""

    def run() -> str | NotChecked:
        for each in coordinates.split(","):
            parts = each.replace("/", ":").split(":")
            if len(parts) != 3 or not all(part.strip() for part in parts):
                raise ConfigurationError(
                    f"{each.strip()!r} does not have the form GROUP:ARTIFACT:VERSION"
                )
        return NotChecked(f"spark-submit fetches {coordinates}")

    return Check("packages", run, remedy)


def iceberg_packages(binary: str, remedy: str) -> Check:
    """Shows the coordinates of Iceberg's runtime for the Spark that spark-submit starts."""

    def run() -> str | NotChecked:
        submit = spark_submit(binary)
        jar = installed_iceberg(submit)
        runtime = jar.coordinates
        if spark_jars(submit) is None:
            return NotChecked(
                f"the Spark version of {submit} is unknown, so Iceberg's newest runtime is used,"
                f" {runtime}; {remedy}"
            )
        # A driver of this machine gets the file: sluice_airflow/submit/process_group.py.
        here = next((path for path in kept_places(jar) if path.is_file()), None)
        return NotChecked(f"spark-submit fetches {runtime}") if here is None else str(here)

    return Check("packages", run, remedy)


def _java() -> str:
    return f"{java()} is Java {java_version()}"


def listed(paths: str) -> list[str]:
    """Splits comma-separated files."""
    return [path.strip() for path in paths.split(",") if path.strip()]


def path_here(given: str) -> Path | None:
    """The local path of a file; None if Spark fetches it or expands a pattern."""
    path = local_path(given)
    return None if path is None or not set(path).isdisjoint("*?[{") else Path(path)


def seen_files(paths: str) -> str | NotChecked:
    """Checks that comma-separated files exist and are readable.

    :raises ConfigurationError: one of them does not exist, or cannot be read.
    """
    left = []
    for given in listed(paths):
        path = path_here(given)
        if path is None:
            left.append(given)
        elif path.is_dir():
            raise ConfigurationError(f"{given} is a folder: give a file")
        elif not path.is_file():
            raise ConfigurationError(f"file {given} does not exist")
        elif not os.access(path, os.R_OK):
            raise ConfigurationError(f"file {given} is not readable for this user")
    if left:
        return NotChecked(f"only Spark can check {', '.join(left)}")
    return ", ".join(listed(paths))


def _brings_java(submit: Path) -> str:
    """Why spark-submit may start another Java than this process; empty if it does not."""
    home = os.environ.get("SPARK_HOME")
    folder = Path(home) / "bin" if home else submit.resolve().parent
    if not (folder / "spark-class").is_file():
        return f"{submit} is not Spark's own program and may have its own Java"
    conf = Path(os.environ.get("SPARK_CONF_DIR") or folder.parent / "conf")
    try:
        settings = (conf / "spark-env.sh").read_text(errors="replace")
    except OSError:
        return ""
    return f"{conf / 'spark-env.sh'} sets JAVA_HOME" if "JAVA_HOME" in settings else ""
