"""Reads the lake with Spark SQL and writes its facts. Runs as its own program.

``python -m demo.comparison.read_lake QUESTIONS.json ANSWERS.json``
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from demo import flight_status
from demo.comparison.compare import (
    joined_rows_sql,
    lake_facts,
    offset_differences,
    with_joined_rows,
)
from demo.data import SHORT_LIVED_JAVA, read_sources
from sluice.artifacts.iceberg import installed_iceberg


def session(options: Mapping[str, str], jars: str) -> Any:
    """Starts a local Spark session with the catalog ``lake``.

    :param options: of the catalog.
    :param jars: with Iceberg's runtime; empty: Spark fetches it.
    """
    from pyspark.sql import SparkSession

    builder = (
        SparkSession.builder.master("local[2]")
        .appName("sluice-demo-reader")
        .config("spark.sql.catalog.lake", "org.apache.iceberg.spark.SparkCatalog")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.extraJavaOptions", SHORT_LIVED_JAVA)
    )
    for name, value in options.items():
        builder = builder.config(f"spark.sql.catalog.lake.{name}", value)
    if jars:
        return builder.config("spark.jars", jars).getOrCreate()
    return builder.config("spark.jars.packages", installed_iceberg().coordinates).getOrCreate()


def main(questions: str, answers: str) -> None:
    """Writes facts and offset differences of every table of the demo as JSON."""
    asked = json.loads(Path(questions).read_text())
    end_offsets: Mapping[str, int] = asked["end_offsets"]
    spark = session(asked["options"], asked["jars"])

    def sql(text: str) -> Sequence[Mapping[str, Any]]:
        return [row.asDict() for row in spark.sql(text).collect()]

    found: dict[str, Any] = {}
    for source in read_sources():
        table = f"lake.nyc.{source.name}"
        facts = lake_facts(sql, table, source.rows.schema)
        offsets = offset_differences(
            sql, source.name, table, source.partition_by, end_offsets[source.name]
        )
        found[source.name] = {
            "facts": asdict(facts),
            "offsets": [asdict(difference) for difference in offsets],
        }
    table, schema = f"lake.nyc.{flight_status.NAME}", flight_status.SCHEMA
    whole = with_joined_rows(schema.empty_table()).schema
    found[flight_status.NAME] = {
        when: asdict(lake_facts(sql, joined_rows_sql(table, schema, snapshot_id), whole))
        for when, snapshot_id in (("first", asked["first_run"]), ("second", None))
    }
    spark.stop()
    Path(answers).write_text(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:3])
