"""Compares a round of 10,000 changed keys in a large table with the same round in a small one.

The cost of a round should depend on the changes and not on the table, so the ratio should be near
1. The cost includes this process and the JVM. The server is measured separately: it answers fetches
during a round, and its RocksDB may still compact earlier rows and changes.
"""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path

from bench.measure import Cost, Line, report
from bench.rounds.keyed import Rounds, put_updates, tables
from sluice.model import TablePath

CHANGED = 10_000
SMALL_KEYS = 100_000
ROUNDS = 5
SMALL, LARGE = TablePath("bench", "small"), TablePath("bench", "large")


def run(rows: int) -> None:
    """:param rows: keys of the large table."""
    large = max(rows, SMALL_KEYS)
    keys = {SMALL: SMALL_KEYS, LARGE: large}
    with (
        tempfile.TemporaryDirectory(prefix="sluice-bench-") as tmp,
        tables(Path(tmp), keys) as rounds,
    ):
        for path in keys:
            rounds.round(path)
        costs: dict[TablePath, list[Cost]] = {path: [] for path in keys}
        for number in range(ROUNDS):
            for path, count in keys.items():  # in turns: both see the same machine
                costs[path].append(_delta(rounds, path, count, number))
    small, big = (statistics.median(c.cpu_s for c in costs[path]) for path in (SMALL, LARGE))
    text = f"a table of {SMALL_KEYS:,} keys ({small:.2f} core-s); median of {ROUNDS} rounds of"
    text += f" {CHANGED:,} changed keys in {large:,}"
    report(Line("delta_cost", big, "core-s a round", big / small, text))
    small, big = (statistics.median(c.others_s["server"] for c in costs[p]) for p in (SMALL, LARGE))
    text = f"measured separately; small table: {small:.2f}"
    report(Line("  server_cpu", big, "core-s a round", None, text))


def _delta(rounds: Rounds, path: TablePath, keys: int, number: int) -> Cost:
    put_updates(rounds.client, path, CHANGED, keys, number)
    found, result = rounds.round(path)
    assert result.rows == CHANGED, result
    return found
