"""The Spark session with which tests read the lake."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sluice.driver.lakes.jvm import iceberg_jar


def start_session(warehouse: Path) -> Any:
    """A new session in a JVM of its own; ``warehouse`` is for tables of Spark itself."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    from pyspark import java_gateway
    from pyspark.sql import SparkSession

    builder = (
        SparkSession.builder.master("local[2]")
        .appName("sluice-tests")
        .config("spark.jars", str(iceberg_jar(os.environ.get("SLUICE_TIERING_JARS", ""))))
        .config(
            "spark.sql.extensions",
            "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        )
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.driver.memory", "1g")
        .config("spark.sql.warehouse.dir", str(warehouse))
        .config("spark.log.level", "ERROR")
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(java_gateway, "Popen", _start_without_fork)
        return builder.getOrCreate()


def _start_without_fork(
    command: list[str],
    *,
    preexec_fn: object,  # keeps Ctrl-C from Java, as the process group does
    **arguments: Any,
) -> subprocess.Popen[bytes]:
    """Python between fork and exec has gRPC, if it is in use, start its threads again in the child.

    They end one child in fifty before it is Java.
    """
    return subprocess.Popen(command, process_group=0, **arguments)
