"""Runs Flink SQL with Fluss's connector, in one Java process with a local Flink cluster."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from bench.flink.flink_job import flink_jars
from sluice.artifacts.java import java, pyspark_jars
from tests.support.clients.flink_rounds import MAVEN_S, fetched_flink_jars
from tests.support.fluss.fluss_jars import LAKE_PLUGIN, fetch_jars
from tests.support.programs.processes import ROOT

FOLDER = ROOT / ".cache" / "flink-sql"
PROGRAM = ROOT / "tests/support/clients/FlinkSql.java"
ALL = 1_000_000
"""More rows than any query here has."""
_HEAP = "768m"
_OF_SPARK = ("slf4j-api-2*", "log4j-slf4j2-impl-*", "log4j-core-*", "log4j-api-*")
_HADOOP = ("hadoop-client-api-*", "hadoop-client-runtime-*", "jcl-over-slf4j-*")
"""Jars of Spark: in front of Flink's, and behind them (bench/flink/flink_job.py)."""


def fetched_sql_jars() -> list[Path]:
    """The jars of Flink SQL, of Fluss's connector and of Iceberg's. Maven fetches missing ones."""
    fetched_flink_jars()
    if not any(FOLDER.glob("flink-connector-files-*.jar")):
        command = [
            "mvn",
            "-q",
            "-f",
            "tests/support/clients/flink_sql.xml",
            "package",
            f"-Dinto={FOLDER}",
        ]
        subprocess.run(command, cwd=ROOT, check=True, timeout=MAVEN_S)
    found = {jar.name: jar for folder in (flink_jars()[0], FOLDER.glob("*.jar")) for jar in folder}
    return [found[name] for name in sorted(found)]


def flink_sql(
    folder: Path, mode: str, statements: Sequence[tuple[int, str]], timeout_s: float = 240
) -> list[list[str]]:
    """Runs statements, and returns the rows of each as Flink prints them (``+I[1, pen]``).

    :param mode: batch or streaming.
    :param statements: the most rows to read of each, and its text; 0 for one that is no query.
    """
    asked, answered, log = folder / "sql.txt", folder / "answers.txt", folder / "flink-sql.log"
    asked.write_text("".join(f"{most}\t{' '.join(sql.split())}\n" for most, sql in statements))
    spark = pyspark_jars()
    path = [jar for name in _OF_SPARK for jar in spark.glob(f"{name}.jar")]
    path += [*fetched_sql_jars(), fetch_jars() / LAKE_PLUGIN.name]
    path += [jar for name in _HADOOP for jar in spark.glob(f"{name}.jar")]
    command = [
        java(), f"-Xmx{_HEAP}", "-XX:+UseSerialGC", "-Dlog4j2.level=WARN",
        *(f"--add-opens=java.base/java.{name}=ALL-UNNAMED" for name in ("lang", "nio", "util")),
        "-cp", os.pathsep.join(map(str, path)), str(PROGRAM), mode, str(asked), str(answered),
    ]  # fmt: skip
    with log.open("ab") as said:
        try:
            ran = subprocess.run(command, stdout=said, stderr=said, timeout=timeout_s, check=False)
        except subprocess.TimeoutExpired:
            count = answered.read_text().count("\n") if answered.exists() else 0
            pytest.fail(f"Flink gave {count} rows in {timeout_s} s: {log.read_text()[-2000:]}")
    assert ran.returncode == 0, log.read_text()[-4000:]
    rows: list[list[str]] = [[] for _ in statements]
    for line in answered.read_text().splitlines():
        number, _, row = line.partition("\t")
        rows[int(number)].append(row)
    return rows
