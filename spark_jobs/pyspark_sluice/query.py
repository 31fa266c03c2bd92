"""Runs one query in its own Spark process, for `sluice sql`: python -m pyspark_sluice.query FOLDER.

Standard input: one line, a JSON object with ``query``, ``limit`` (maximum number of rows) and
``class_path`` (Iceberg's jars; empty: no lake). Standard input then stays open. When it closes, the
caller has ended, and this process exits.

Standard output: JSON lines. ``{"phase": "query"}`` comes first. The last line is
``{"done": {"cut": BOOL}}``, with the rows in ``FOLDER/result.arrow``, or
``{"failed": {"kind": CLASS, "reason": TEXT}}``.

The environment (``SLUICE_SETTINGS``) has the settings of cluster and lake. Spark's Python workers
inherit it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import sys
import threading
from pathlib import Path
from typing import Any, TextIO

import pyarrow as pa
from py4j.java_gateway import is_instance_of
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pyspark_sluice import add_sys_tables
from sluice.artifacts.spark_log import REDACTED, REDACTION
from sluice.catalog_options import sql_names
from sluice.config import load_config

_SLUICE_ERROR = re.compile(r"^sluice\.errors\.\w+\.(\w+): (.+)$", re.MULTILINE)
_END_TIMEOUT_S = 20
_READING = ("Show", "Describe", "Explain", "Call", "SetCatalogAndNamespace")
"""How the names of Spark's commands begin that change neither rows nor tables."""


def main() -> int:
    parser = argparse.ArgumentParser(description="Run one query in its own Spark process.")
    parser.add_argument(
        "folder", type=Path, metavar="FOLDER", help="folder for the result and temporary files"
    )
    folder: Path = parser.parse_args().folder
    with os.fdopen(os.dup(1), "w", buffering=1) as answers:
        os.dup2(2, 1)  # Java's output must not mix with the answers
        request = json.loads(sys.stdin.readline())
        threading.Thread(target=_exit_with_caller, daemon=True).start()
        spark = None
        try:
            spark = _session(folder, request["class_path"])
            _send(answers, phase="query")
            cut = _run_query(spark, request["query"], request["limit"], folder)
        except Exception as error:
            kind, reason = _failure_of(error)  # calls Java, which must still run
            if spark is None:
                kind = "DriverRefused"
            _send(answers, failed={"kind": kind, "reason": reason})
            return 1
        # The result is complete. The caller kills the remaining processes if Java does not end.
        with contextlib.suppress(Exception):
            _stop_spark(spark)
        _send(answers, done={"cut": cut})
    return 0


def _exit_with_caller() -> None:
    """Exits when standard input closes. Java then ends, because its own input closes."""
    with contextlib.suppress(OSError):
        while os.read(0, 4096):
            pass
    os._exit(1)


def _session(folder: Path, class_path: str) -> SparkSession:
    """Starts a session with the system tables and, if ``class_path`` is given, the lake."""
    java = f"-Djava.io.tmpdir={folder} -XX:TieredStopAtLevel=1 -XX:-UsePerfData"
    spark = (
        SparkSession.builder.master("local[*]" if class_path else "local[1]")
        .appName("sluice-sql")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.extraJavaOptions", java)
        .config("spark.driver.extraClassPath", class_path)
        .config("spark.local.dir", str(folder))
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.sql.python.filterPushdown.enabled", "true")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .config(REDACTION, REDACTED)
        .getOrCreate()
    )
    add_sys_tables(spark)
    if class_path:
        _add_lake(spark)
    return spark


def _add_lake(spark: SparkSession) -> None:
    """Adds the lake's catalog after Java has started: by its name, and as ``lake`` if that works.

    Its options may hold keys, and Java's command line shows the options of a new session.
    """
    options = load_config(environment=os.environ).datalake.iceberg
    for catalog in sql_names(options):
        for name, value in options.items():
            spark.conf.set(f"spark.sql.catalog.{catalog}.{name}", value)
        spark.conf.set(f"spark.sql.catalog.{catalog}", "org.apache.iceberg.spark.SparkCatalog")


def _run_query(spark: SparkSession, query: str, limit: int, folder: Path) -> bool:
    """Writes the rows and returns whether there were more than ``limit``."""
    _refuse_changes(spark, query)
    frame = spark.sql(query)
    rows = frame.limit(limit + 1).toArrow() if frame.columns else pa.table({})
    cut = rows.num_rows > limit
    if cut:
        rows = rows.slice(0, limit)
    target = folder / "result.arrow"
    temporary = target.with_suffix(".tmp")
    with pa.OSFile(str(temporary), "wb") as file, pa.ipc.new_stream(file, rows.schema) as writer:
        writer.write_table(rows)
    temporary.rename(target)
    return bool(cut)


def _refuse_changes(spark: SparkSession, query: str) -> None:
    """Refuses a statement that changes rows or tables: no round would copy deleted rows again.

    CALL is allowed, since Iceberg's procedures keep the rows. A statement that cannot be parsed is
    left to the session, whose error is better.

    :raises ValueError: names the statement.
    """
    jvm: Any = spark.sparkContext._jvm
    gateway: Any = spark.sparkContext._gateway
    session: Any = spark._jsparkSession
    try:
        plan = session.sessionState().sqlParser().parsePlan(query)
    except Exception:
        return
    logical = "org.apache.spark.sql.catalyst.plans.logical"
    pending = [plan]
    while pending:
        node = pending.pop()
        name = node.getClass().getSimpleName()
        changes = any(
            is_instance_of(gateway, node, f"{logical}.{kind}")
            for kind in ("Command", "ParsedStatement")
        )
        if changes and not name.startswith(_READING):
            raise ValueError(
                f"sluice sql only reads, and this statement ({name}) changes rows or tables: change"
                " rows in Fluss, with `sluice append` or `sluice delete`, and columns or partition"
                " fields of a lake table in a Spark session of your own (docs/lake.md#spark)"
            )
        pending += list(jvm.scala.jdk.javaapi.CollectionConverters.asJava(node.children()))


def _stop_spark(spark: SparkSession) -> None:
    """Stops Spark and waits until its Java process has ended."""
    gateway: Any = spark.sparkContext._gateway
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(_END_TIMEOUT_S)


def _failure_of(error: Exception) -> tuple[str, str]:
    """Returns class and reason in one line: of Sluice's own error if a worker raised one."""
    text = str(error)
    if raised := _SLUICE_ERROR.findall(text):
        kind, reason = raised[-1]
        return kind, reason
    if isinstance(error, PySparkException):
        text = error.getMessage() or text
    # A plan or a trace follows the first blank line, or a semicolon at the end of a line.
    words = re.split(r";?\n\s*\n|;\n|\n\s+at ", text.strip())[0]
    return type(error).__name__, " ".join(words.split())


def _send(answers: TextIO, **answer: Any) -> None:
    answers.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    sys.exit(main())
