"""Which of Iceberg's runtimes goes with which Spark."""

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
"""In place of coordinates: those of :func:`installed_iceberg`."""
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
"""A class that a round cannot do without; Iceberg has it since one of its newer versions."""

_CORE = re.compile(r"spark-core_\d+\.\d+-(\d+\.\d+\.\d+.*)\.jar")


def iceberg_runtime(spark_version: str) -> Jar:
    """Iceberg's runtime for a version of Spark, such as 4.1.3 or 4.1.

    :raises ConfigurationError: Sluice does not run on that Spark.
    """
    minor = ".".join(spark_version.split(".")[:2])
    if minor not in RUNTIMES:
        raise ConfigurationError(
            f"Spark {spark_version} is not supported: Sluice runs on Spark"
            f" {' and '.join(RUNTIMES)}; pip install 'pyspark=={list(RUNTIMES)[-1]}.*'"
        )
    return RUNTIMES[minor]


def install_spark() -> str:
    """The command that brings Spark to an Airflow. `airflow connections test` drops words in
    brackets, so it is not that of an extra.

    pyspark and pyspark-client, which Airflow's provider brings, have to be of one version.
    """
    try:
        return f"pip install pyspark=={importlib.metadata.version('pyspark-client')}"
    except importlib.metadata.PackageNotFoundError:
        return f"pip install 'pyspark=={list(RUNTIMES)[-1]}.*'"


def spark_version(jars: Path) -> str:
    """The version of the Spark whose jars folder that is.

    :raises ConfigurationError: the folder has no spark-core.
    """
    found = [
        match[1] for path in jars.glob("spark-core_*.jar") if (match := _CORE.match(path.name))
    ]
    if len(found) != 1:
        raise ConfigurationError(
            f"{jars} is not the jars folder of one Spark: it has {len(found)} spark-core jars;"
            " install Spark again, or correct SPARK_HOME"
        )
    return found[0]


def spark_jars(submit: Path | None = None) -> Path | None:
    """The jars folder of the Spark that runs here; None if spark-submit does not tell its Spark.

    :param submit: the program spark-submit; it may belong to a Spark other than pyspark's.
    :raises ConfigurationError: there is none.
    """
    if submit is None or os.environ.get("SPARK_HOME"):
        return pyspark_jars()
    program = submit.resolve()
    beside = program.parent.parent / "jars"
    if any(beside.glob("spark-core_*.jar")):
        return beside
    return pyspark_jars() if is_pyspark_program(program) else None


def is_pyspark_program(program: Path) -> bool:
    """Whether it is pyspark's own spark-submit, which pip puts beside this file, far from jars."""
    return program.name == NAME and (program.parent / "find_spark_home.py").is_file()


def installed_iceberg(submit: Path | None = None) -> Jar:
    """Iceberg's runtime for the Spark that runs here; parameter as of :func:`spark_jars`.

    The newest where spark-submit does not tell its Spark.

    :raises ConfigurationError: there is no Spark, Sluice does not run on it, or pyspark and
        pyspark-client do not fit together.
    """
    jars = spark_jars(submit)
    if jars is None:
        return NEWEST
    version = spark_version(jars)
    if jars.parent.name == "pyspark":
        _check_client(version)
    return iceberg_runtime(version)


def _check_client(version: str) -> None:
    """pyspark and pyspark-client write the same files: whichever came last has the say."""
    try:
        client = importlib.metadata.version("pyspark-client")
    except importlib.metadata.PackageNotFoundError:
        return
    if client.split(".")[:2] != version.split(".")[:2]:
        raise ConfigurationError(
            f"pyspark {version} and pyspark-client {client} share a folder and have to be of one"
            f" version: pip install --force-reinstall --no-deps pyspark=={version}"
            f" pyspark-client=={version}"
        )
