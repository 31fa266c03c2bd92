"""Spark, PyIceberg and DuckDB as readers of a catalog, each in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from tests.support.catalog_servers.catalog import Catalog
from tests.support.lake.lake_engines import catalog_engines

Rows = list[list[Any]]
_TIMEOUT_S = 200
_PYICEBERG = """
import json
print(json.dumps([[row[name] for name in {columns}] for row in rows.to_pylist()], default=str))
"""
_DUCKDB = """
import json, sys
import duckdb
for extension in ("avro", "httpfs", "iceberg"):
    duckdb.sql(f"LOAD {extension}")
*before, last = [each for each in sys.argv[1].split(";") if each.strip()]
for statement in before:
    duckdb.sql(statement)
rows = duckdb.sql(f"SELECT {sys.argv[2]} FROM ({last})").fetchall()
print(json.dumps(rows, default=str))
"""
_SPARK = """
import json, sys
from pyspark.sql import SparkSession
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
for name, value in json.loads(sys.argv[1]).items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
for query in sys.argv[2:]:
    rows = [list(row) for row in spark.sql(query).collect()]
    print("ROWS " + json.dumps(rows, default=str))
"""


def spark_rows(
    catalog: Catalog, properties: Mapping[str, str], queries: Sequence[str]
) -> list[Rows]:
    """The sorted rows of each query, in one session with these properties.

    :raises AssertionError: Spark fails; with what it said.
    """
    out = run([sys.executable, "-c", _SPARK, json.dumps(properties), *queries], catalog)
    found = [json.loads(line[5:]) for line in out.splitlines() if line.startswith("ROWS ")]
    return [sorted(rows) for rows in found]


def pyiceberg_rows(catalog: Catalog, code: str, columns: Sequence[str]) -> Rows:
    """The sorted rows that some Python with PyIceberg leaves in ``rows``.

    :raises AssertionError: it fails; with what it said.
    """
    engines = catalog_engines()
    code += _PYICEBERG.format(columns=list(columns))
    out = run([engines.python, "-c", code], catalog, engines.variables)
    return sorted(json.loads(out.splitlines()[-1]))


def duckdb_rows(catalog: Catalog, statements: str, columns: Sequence[str]) -> Rows:
    """The sorted rows of the last of some statements, each ended by ``;``.

    :raises AssertionError: one fails; with what DuckDB said.
    """
    engines = catalog_engines()
    words = [statements, ", ".join(columns)]
    out = run([engines.python, "-c", _DUCKDB, *words], catalog, engines.variables)
    return sorted(json.loads(out.splitlines()[-1]))


def run(command: list[str], catalog: Catalog, env: dict[str, str] | None = None) -> str:
    """What a program prints; it has the catalog's environment."""
    done = subprocess.run(
        command,
        env={**(env or os.environ), **catalog.env, "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    said = f"{done.stdout}{done.stderr}"
    causes = [line for line in said.splitlines() if line.startswith("Caused by")]
    assert done.returncode == 0, "\n".join([*causes, said[-4000:]])
    return done.stdout
