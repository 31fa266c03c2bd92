"""Reads all rows of the lake with Spark. Runs as its own program.

``python -m demo.comparison.spark_rows QUESTIONS.json FOLDER`` writes a file for each table, and
``offsets.json`` with the differences of the log tables' offsets.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pyarrow import feather

from demo.comparison.compare import Difference, offset_differences
from demo.comparison.read_lake import session
from demo.data import read_sources
from demo.tables import DATABASE


def main(questions: str, folder: str) -> None:
    """Answers the questions of :class:`demo.comparison.readers.Questions`."""
    asked = json.loads(Path(questions).read_text())
    spark = session(asked["options"], asked["jars"])

    def sql(text: str) -> Sequence[Mapping[str, Any]]:
        return [row.asDict() for row in spark.sql(text).collect()]

    for name, columns in asked["columns"].items():
        rows = spark.table(f"lake.{DATABASE}.{name}").select(*columns).toArrow()
        feather.write_feather(rows, f"{folder}/{name}.arrow")
    found: list[Difference] = []
    for source in read_sources():
        table, end = f"lake.{DATABASE}.{source.name}", asked["end_offsets"][source.name]
        found += offset_differences(sql, source.name, table, source.partition_by, end)
    (Path(folder) / "offsets.json").write_text(json.dumps([asdict(entry) for entry in found]))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:3])
