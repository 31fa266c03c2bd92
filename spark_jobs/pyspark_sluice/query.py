"""One query in a Spark of its own, for `sluice sql`: python -m pyspark_sluice.query FOLDER.

Standard input gets one line, a JSON object with ``query``, ``limit`` (most rows) and ``class_path``
(Iceberg's jars; empty: no lake), and then stays open: when it ends, the caller has ended, and this
process ends too. Standard output gets JSON lines: ``{"phase": "query"}``, at the end
``{"done": {"cut": BOOL}}`` with the rows in ``FOLDER/result.arrow``, or
``{"failed": {"kind": CLASS, "reason": TEXT}}``. The environment (``SLUICE_SETTINGS``) says how
cluster and lake are reached. Spark's Python workers inherit it.
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
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pyspark_sluice import add_sys_tables
from sluice.config import load_config

_OURS = re.compile(r"^sluice\.errors\.\w+\.(\w+): (.+)$", re.MULTILINE)
_END_TIMEOUT_S = 20


def main() -> int:
    parser = argparse.ArgumentParser(description="One query in a Spark of its own.")
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="for all files")
    folder: Path = parser.parse_args().folder
    with os.fdopen(os.dup(1), "w", buffering=1) as answers:
        os.dup2(2, 1)  # what Java prints is no answer
        request = json.loads(sys.stdin.readline())
        threading.Thread(target=_leave_with_asker, daemon=True).start()
        spark = None
        try:
            spark = _session(folder, request["class_path"])
            _tell(answers, phase="query")
            cut = _answer(spark, request["query"], request["limit"], folder)
        except Exception as error:
            kind, reason = _told(error)  # asks Java, which lives as long as this process then
            if spark is None:
                kind = "DriverRefused"
            _tell(answers, failed={"kind": kind, "reason": reason})
            return 1
        # The answer is there, however Java ends; whoever asked kills what is left of it.
        with contextlib.suppress(Exception):
            _end(spark)
        _tell(answers, done={"cut": cut})
    return 0


def _leave_with_asker() -> None:
    """Java ends by itself when this process, the other end of its input, is gone."""
    with contextlib.suppress(OSError):
        while os.read(0, 4096):
            pass
    os._exit(1)


def _session(folder: Path, class_path: str) -> SparkSession:
    """A Spark in this process with the system tables and, given Iceberg's jars, the lake."""
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
        .getOrCreate()
    )
    add_sys_tables(spark)
    if class_path:
        _add_lake(spark)
    return spark


def _add_lake(spark: SparkSession) -> None:
    """The catalog ``lake``. Set once Java runs: its options may hold keys, and those that a session
    begins with stand on Java's command line.
    """
    options = load_config(environment=os.environ).datalake.iceberg
    for name, value in options.items():
        spark.conf.set(f"spark.sql.catalog.lake.{name}", value)
    spark.conf.set("spark.sql.catalog.lake", "org.apache.iceberg.spark.SparkCatalog")


def _answer(spark: SparkSession, query: str, limit: int, folder: Path) -> bool:
    """Writes the rows; whether there were more than ``limit``."""
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


def _end(spark: SparkSession) -> None:
    """Stops Spark and waits until its Java is gone."""
    gateway: Any = spark.sparkContext._gateway
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(_END_TIMEOUT_S)


def _told(error: Exception) -> tuple[str, str]:
    """Class and reason in one line: ours, if one of ours was raised in a worker."""
    text = str(error)
    if ours := _OURS.findall(text):
        kind, reason = ours[-1]
        return kind, reason
    if isinstance(error, PySparkException):
        text = error.getMessage() or text
    # What follows the first blank line, or a semicolon at a line's end, is a plan or a trace.
    words = re.split(r";?\n\s*\n|;\n|\n\s+at ", text.strip())[0]
    return type(error).__name__, " ".join(words.split())


def _tell(answers: TextIO, **answer: Any) -> None:
    answers.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    sys.exit(main())
