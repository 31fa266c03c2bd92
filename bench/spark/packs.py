"""Tiers many small tables in one Spark application, as the DAG submits it.

Two packs of different sizes show what one more table costs (`marginal`), with the copy on driver
threads and with the copy on executors. Then one table of more and more rows shows up to which
number driver threads should copy (`tiering.driver_copy_rows`).
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from bench.cluster import BUCKETS, load
from bench.measure import Line, report
from bench.spark.submit import Applications, Tree, applications
from sluice.model import TablePath

TABLE_ROWS = 1_000
SIZES = (10, 60)
"""Tables of the two packs whose difference is the marginal cost."""
ONE_TABLE_ROWS = (10_000, 100_000, 1_000_000, 3_000_000, 10_000_000)
REPEATS = 3
COPIES = {"driver threads": 1_000_000_000, "executors": 0}
"""tiering.driver_copy_rows of each kind of copy."""


@dataclass
class Tables:
    """Makes new tables for each application, and drops them after it."""

    submitted: Applications
    made: int = 0

    def tier(self, count: int, rows: int, buckets: int, copied_by: str) -> Tree:
        paths = []
        for _ in range(count):
            self.made += 1
            paths.append(TablePath("bench", f"table_{self.made}"))
            load(self.submitted.client, paths[-1], rows, self.submitted.lake, buckets)
        settings = {"driver_copy_rows": COPIES[copied_by]}
        spent = self.submitted.tier(paths, count * rows, tiering=settings)
        assert {(result.rows, result.copied_by) for result in spent.results} == {(rows, copied_by)}
        for path in paths:
            self.submitted.client.admin.drop_table(path)
        return spent


def run(rows: int) -> None:
    """:param rows: the most rows of the one table."""
    with applications() as submitted:
        tables = Tables(submitted)
        for copied_by in COPIES:
            _marginal(tables, copied_by)
        for size in ONE_TABLE_ROWS:
            if size <= rows:
                _one_table(tables, size)


def _marginal(tables: Tables, copied_by: str) -> None:
    packs: dict[int, list[Tree]] = {size: [] for size in SIZES}
    for _ in range(REPEATS):
        for size in SIZES:
            packs[size].append(tables.tier(size, TABLE_ROWS, 1, copied_by))
    small, large = (_report(f"pack of {size} tables, {copied_by}", packs[size]) for size in SIZES)
    marginal = (large - small) / (SIZES[1] - SIZES[0])
    report(Line(f"  marginal table, {copied_by}", marginal, "core-s", None, "spark-submit"))


def _one_table(tables: Tables, rows: int) -> None:
    found: dict[str, list[Tree]] = {copied_by: [] for copied_by in COPIES}
    for _ in range(REPEATS):
        for copied_by in COPIES:
            found[copied_by].append(tables.tier(1, rows, BUCKETS, copied_by))
    for copied_by, trees in found.items():
        copy_s = statistics.median(tree.results[0].seconds["copy"] for tree in trees)
        _report(f"{rows:,} rows, {copied_by}", trees, f", copy {copy_s:.2f} s")


def _report(name: str, trees: list[Tree], more: str = "") -> float:
    cpu = sorted(tree.cpu_s for tree in trees)
    wall_s = statistics.median(tree.wall_s for tree in trees)
    text = f"{cpu[0]:.2f} to {cpu[-1]:.2f}; {wall_s:.2f} s wall{more}"
    report(Line(name, statistics.median(cpu), "core-s, whole tree", None, text))
    return statistics.median(cpu)
