"""`python bench/lake/lake_reader.py ENGINE WAREHOUSE`: answers questions about lake tables.

It reads a JSON line for each question, and writes one for each answer. Its first line says that the
engine is loaded. The interpreter is that of the engine's environment, so this file imports nothing
of the project. Tables are ``DATABASE.TABLE``, snapshots are named by their ids, and amounts are
answered in cents. A point query is answered with all rows of the key, so that a lost or a double
row is no error but a wrong answer.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Callable
from decimal import Decimal
from typing import Any

Answer = list[Any]
TOTALS = "SELECT count(*), sum(id), sum(amount) FROM"
SPARK_SETTINGS = {
    "spark.driver.memory": "2g",
    "spark.log.level": "ERROR",
    "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
    "spark.sql.catalog.lake.type": "hadoop",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
}
ERROR_CHARS = 160


class Spark:
    """A local session with two task slots. It also answers which files a table has."""

    def __init__(self, warehouse: str) -> None:
        builder = importlib.import_module("pyspark.sql").SparkSession.builder.master("local[2]")
        settings = {
            **SPARK_SETTINGS,
            "spark.jars": os.environ["ICEBERG_JAR"],
            "spark.sql.catalog.lake.warehouse": warehouse,
        }
        for name, value in settings.items():
            builder = builder.config(name, value)
        self._session = builder.getOrCreate()

    def full(self, table: str, snapshot: int | None = None) -> Answer:
        return self._rows(f"{TOTALS} lake.{table}{_version(snapshot)}")[0]

    def point(self, table: str, key: int) -> list[Answer]:
        return self._rows(f"SELECT amount FROM lake.{table} WHERE id = {key}")

    def files(self, table: str, snapshot: int | None = None) -> list[Answer]:
        """[content, path, bytes] of each file; the content as in manifests, and "manifest"."""
        at = _version(snapshot)
        named = f"SELECT content, file_path, file_size_in_bytes FROM lake.{table}.files{at}"
        manifests = f"SELECT 'manifest', path, length FROM lake.{table}.manifests{at}"
        return [*self._rows(named), *self._rows(manifests)]

    def snapshots(self, table: str) -> Answer:
        """The number of snapshots that the table has."""
        return self._rows(f"SELECT count(*) FROM lake.{table}.snapshots")[0]

    def _rows(self, query: str) -> list[Answer]:
        return [list(row) for row in self._session.sql(query).collect()]


class DuckDb:
    """DuckDB with its extension, which reads the table's folder."""

    def __init__(self, warehouse: str) -> None:
        self._warehouse = warehouse
        self._duckdb = importlib.import_module("duckdb")
        self._duckdb.sql("LOAD iceberg")

    def full(self, table: str, snapshot: int | None = None) -> Answer:
        return self._rows(f"{TOTALS} {self._scan(table, snapshot)}")[0]

    def point(self, table: str, key: int) -> list[Answer]:
        return self._rows(f"SELECT amount FROM {self._scan(table)} WHERE id = {key}")

    def _scan(self, table: str, snapshot: int | None = None) -> str:
        at = "" if snapshot is None else f", snapshot_from_id => {snapshot}"
        return f"iceberg_scan('{_folder(self._warehouse, table)}'{at})"

    def _rows(self, query: str) -> list[Answer]:
        return [list(row) for row in self._duckdb.sql(query).fetchall()]


class PyIceberg:
    """PyIceberg, which reads the table's folder into Arrow."""

    def __init__(self, warehouse: str) -> None:
        self._warehouse = warehouse
        self._static = importlib.import_module("pyiceberg.table").StaticTable
        importlib.import_module("pyiceberg.io.pyarrow")
        self._compute = importlib.import_module("pyarrow.compute")

    def full(self, table: str, snapshot: int | None = None) -> Answer:
        opened = self._open(table)
        rows = opened.scan(selected_fields=("id", "amount"), snapshot_id=snapshot).to_arrow()
        sums = (self._compute.sum(rows[name]).as_py() for name in ("id", "amount"))
        return [rows.num_rows, *sums]

    def point(self, table: str, key: int) -> list[Answer]:
        scan = self._open(table).scan(row_filter=f"id == {key}", selected_fields=("amount",))
        return [[amount] for amount in scan.to_arrow()["amount"].to_pylist()]

    def _open(self, table: str) -> Any:
        return self._static.from_metadata(_folder(self._warehouse, table))


class Polars:
    """polars' own reader, which reads the table's folder."""

    def __init__(self, warehouse: str) -> None:
        self._warehouse = warehouse
        self._polars = importlib.import_module("polars")
        for name in ("polars_iceberg", "pyiceberg.table", "pyiceberg.io.pyarrow"):
            importlib.import_module(name)  # or the first query would

    def full(self, table: str, snapshot: int | None = None) -> Answer:
        column = self._polars.col
        totals = (self._polars.len(), column("id").sum(), column("amount").sum())
        return list(self._scan(table, snapshot).select(*totals).collect().row(0))

    def point(self, table: str, key: int) -> list[Answer]:
        found = self._scan(table).filter(self._polars.col("id") == key).select("amount")
        return [list(row) for row in found.collect().rows()]

    def _scan(self, table: str, snapshot: int | None = None) -> Any:
        return self._polars.scan_iceberg(_folder(self._warehouse, table), snapshot_id=snapshot)


ENGINES: dict[str, Callable[[str], Any]] = {
    "spark": Spark,
    "pyiceberg": PyIceberg,
    "polars": Polars,
    "duckdb": DuckDb,
}


def _version(snapshot: int | None) -> str:
    """Spark's words for a snapshot; None: the newest."""
    return "" if snapshot is None else f" VERSION AS OF {snapshot}"


def _folder(warehouse: str, table: str) -> str:
    return f"{warehouse}/{table.replace('.', '/')}"


def _plain(value: Any) -> Any:
    """A value for JSON: an amount becomes cents."""
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return int(value.scaleb(2)) if isinstance(value, Decimal) else value


def main(engine: str, warehouse: str) -> None:
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever the engine prints is no answer

    def say(**what: object) -> None:
        answers.write(json.dumps(what) + "\n")
        answers.flush()

    loaded = ENGINES[engine](warehouse)
    say(loaded=engine)
    for line in sys.stdin:
        question = json.loads(line)
        try:
            answer = getattr(loaded, question.pop("what"))(**question)
        except Exception as error:
            [first, *_] = f"{type(error).__name__}: {error}".splitlines()
            say(refused=first[:ERROR_CHARS])
        else:
            say(answer=_plain(answer))


if __name__ == "__main__":
    main(*sys.argv[1:])
