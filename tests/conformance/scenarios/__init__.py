"""Runs the same scenarios through the client against any Fluss server and compares the answers.

A scenario records each answer in a form that is the same everywhere: names instead of ids, and
class names of errors. The expected answer, next to each question, is that of Apache Fluss 0.9.1.
`python -m tests.conformance` runs them against several servers and prints a matrix.
"""

from tests.conformance.scenario import SCENARIOS, Answer, ScenarioContext, run
from tests.conformance.scenarios import (
    catalog,
    fields_of_catalog,
    fields_of_lake,
    fields_of_rows,
    leases,
    log,
    tiering,
)

__all__ = [
    "SCENARIOS",
    "Answer",
    "ScenarioContext",
    "catalog",
    "fields_of_catalog",
    "fields_of_lake",
    "fields_of_rows",
    "leases",
    "log",
    "run",
    "tiering",
]
