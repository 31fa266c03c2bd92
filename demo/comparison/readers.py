"""Reads the whole lake through its catalog with Spark and PyIceberg, and compares every value."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import pyarrow as pa
from pyarrow import feather

from demo import flight_status
from demo.airflow import ROOT, spark_environment
from demo.comparison.compare import Difference
from demo.comparison.row_compare import row_differences
from demo.data import Source
from demo.lakes import Lake
from demo.processes import Processes
from demo.steps import Say, Steps

READ_S = 400.0
READERS = {"Spark": "demo.comparison.spark_rows", "PyIceberg": "demo.comparison.pyiceberg_rows"}
"""Their programs. Spark's also reads the offsets."""


@dataclass(frozen=True, slots=True)
class Questions:
    """What the programs of the readers are asked."""

    options: Mapping[str, str]
    """Of the catalog, without keys."""
    jars: str
    """For Spark."""
    columns: Mapping[str, Sequence[str]]
    """The columns to read of each table."""
    end_offsets: Mapping[str, int]
    """The sum of the end offsets of each log table."""


class Readers:
    """Both readers of one lake."""

    def __init__(self, lake: Lake, work: Path, processes: Processes, steps: Steps) -> None:
        """:param work: the folder for questions and answers."""
        self._lake = lake
        self._work = work
        self._processes = processes
        self._steps = steps

    def compare(
        self, sources: Sequence[Source], end_offsets: Mapping[str, int], *, first: bool
    ) -> list[Difference]:
        """Returns every difference that a reader sees after a run.

        :param first: after the first run; else after both.
        """
        wanted = expected(sources, first=first)
        columns = {name: rows.column_names for name, rows in wanted.items()}
        asked = Questions(self._lake.options, self._lake.jar_list, columns, end_offsets)
        run = "first" if first else "second"
        questions = self._work / f"questions-{run}.json"
        questions.write_text(json.dumps(asdict(asked)))
        differing: list[Difference] = []
        for reader, program in READERS.items():
            with self._steps.step(f"Read the lake with {reader}, compare") as say:
                name = f"{reader.lower()}-{run}"
                answers = self._work / name
                answers.mkdir()
                command = [sys.executable, "-m", program, str(questions), str(answers)]
                environment = {**spark_environment(), "PYTHONPATH": str(ROOT)}
                self._processes.run(name, command, environment, READ_S)
                differing += _differing(reader, run, wanted, answers, say)
        return differing


def expected(sources: Sequence[Source], *, first: bool) -> dict[str, pa.Table]:
    """Returns the rows that each table must have after the first run, or after both."""
    rows = {s.name: s.first_months if first else s.rows for s in sources}
    return rows | {flight_status.NAME: flight_status.replay(sources[0].rows, first=first)}


def _differing(
    reader: str, run: str, wanted: Mapping[str, pa.Table], answers: Path, say: Say
) -> list[Difference]:
    """Compares what a reader wrote, and says how many rows of each table it read."""
    differing: list[Difference] = []
    seen = []
    for name, rows in wanted.items():
        lake = feather.read_table(answers / f"{name}.arrow", memory_map=False)
        seen.append(f"{name} {lake.num_rows:,} rows")
        differing += row_differences(f"{name} by {reader}, {run} run", rows, lake)
    offsets = answers / "offsets.json"
    if offsets.is_file():
        differing += (Difference(**entry) for entry in json.loads(offsets.read_text()))
    say(", ".join(seen))
    return differing
