"""Selects Iceberg's runtime for a Spark version."""

from __future__ import annotations

import importlib.metadata
import os
import re
from pathlib import Path

from sluice.artifacts.jars import Jar
from sluice.artifacts.java import pyspark_jars
from sluice.artifacts.spark_submit import NAME
from sluice.errors import ConfigurationError

AUTO = "auto"
"""The option value that stands for the coordinates of :func:`installed_iceberg`."""
_GROUP = "org.apache.iceberg"
RUNTIMES = {
    # Iceberg has no newer runtime for Spark 4.0 than 1.11.0.
    "4.0": Jar(
        _GROUP,
        "iceberg-spark-runtime-4.0_2.13",
        "1.11.0",
        "63c3b812549dc232c1920865ff42436df8604a9bbacd693930985c06bd97e6dc",
        46,
    ),
    "4.1": Jar(
        _GROUP,
        "iceberg-spark-runtime-4.1_2.13",
        "1.12.0",
        "3123c3798af642dd537230923548e013ef41cc28b6626e5225808cf5670a0f82",
        46,
    ),
}
"""By Spark's major and minor version, oldest first."""
NEWEST = list(RUNTIMES.values())[-1]
CATALOGS = "org.apache.iceberg.CatalogUtil"
FENCE = "org.apache.iceberg.SnapshotAncestryValidator"
"""A class that every round needs, and that older versions of Iceberg do not have."""

_CORE = re.compile(r"spark-core_\d+\.\d+-(\d+\.\d+\.\d+.*)\.jar")


def iceberg_runtime(spark_version: str) -> Jar:
    """Iceberg's runtime for a version of Spark, such as 4.1.3 or 4.1.

    :raises ConfigurationError: Sluice does not support that Spark version.
    """
    minor = ".".join(spark_version.split(".")[:2])
    if minor not in RUNTIMES:
        raise ConfigurationError(
            f"Spark {spark_version} is not supported: Sluice runs on Spark"
            f" {' and '.join(RUNTIMES)}; pip install 'pyspark=={list(RUNTIMES)[-1]}.*'"
        )
    return RUNTIMES[minor]


def install_spark() -> str:
    """The command that installs Spark for Airflow.

    It does not name an extra, because `airflow connections test` drops words in brackets. pyspark
    must have the version of pyspark-client, which Airflow's provider installs.
    """
    try:
        return f"pip install pyspark=={importlib.metadata.version('pyspark-client')}"
    except importlib.metadata.PackageNotFoundError:
        return f"pip install 'pyspark=={list(RUNTIMES)[-1]}.*'"


def spark_version(jars: Path) -> str:
    """The Spark version of a jars folder.

    :raises ConfigurationError: the folder does not have exactly one spark-core jar.
    """
    found = [
        match[1] for path in jars.glob("spark-core_*.jar") if (match := _CORE.match(path.name))
    ]
    if len(found) != 1:
        raise ConfigurationError(
            f"{jars} is not the jars folder of a Spark: it has {len(found)} spark-core jars instead"
            " of one; install Spark again, or correct SPARK_HOME"
        )
    return found[0]


def spark_jars(submit: Path | None = None) -> Path | None:
    """The jars folder of the Spark on this machine; None if spark-submit does not show it.

    :param submit: the program spark-submit; it may belong to a Spark other than pyspark's.
    :raises ConfigurationError: there is no Spark.
    """
    if submit is None or os.environ.get("SPARK_HOME"):
        return pyspark_jars()
    program = submit.resolve()
    beside = program.parent.parent / "jars"
    if any(beside.glob("spark-core_*.jar")):
        return beside
    return pyspark_jars() if is_pyspark_program(program) else None


def is_pyspark_program(program: Path) -> bool:
    """Whether it is pyspark's own spark-submit, which pip installs far from the jars folder."""
    return program.name == NAME and (program.parent / "find_spark_home.py").is_file()


def installed_iceberg(submit: Path | None = None) -> Jar:
    """Iceberg's runtime for the Spark on this machine; the parameter is as in :func:`spark_jars`.

    It is the newest runtime if spark-submit does not show its Spark.

    :raises ConfigurationError: there is no Spark, Sluice does not support it, or pyspark and
        pyspark-client have different versions.
    """
    jars = spark_jars(submit)
    if jars is None:
        return NEWEST
    version = spark_version(jars)
    if jars.parent.name == "pyspark":
        _check_client(version)
    return iceberg_runtime(version)


def _check_client(version: str) -> None:
    """Checks the versions of pyspark and pyspark-client, which install files of the same names."""
    try:
        client = importlib.metadata.version("pyspark-client")
    except importlib.metadata.PackageNotFoundError:
        return
    if client.split(".")[:2] != version.split(".")[:2]:
        raise ConfigurationError(
            f"pyspark {version} and pyspark-client {client} share a folder and must have the same"
            f" version: pip install --force-reinstall --no-deps pyspark=={version}"
            f" pyspark-client=={version}"
        )
