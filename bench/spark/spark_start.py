"""Submits a Spark application of an empty round and of 1,000 rows, as the tier task does.

The reference is the same command without the properties that make the start quick, and without the
archive of Java's classes. The median of three of each kind counts.
"""

from __future__ import annotations

import statistics

from bench import data
from bench.cluster import BUCKETS, load
from bench.measure import Line, report
from bench.spark.submit import Applications, applications
from sluice.model import TablePath
from tests.support.fluss.table_creation import create_table

REPEATS = 3
ROWS = 1_000
LARGE_ROWS = 100_000
"""From this number on, ``--rows`` adds a table of so many rows, to see what C1 costs there."""


def run(rows: int) -> None:
    """:param rows: rows of the large table; none below 100,000."""
    sizes = [0, ROWS, *([rows] if rows >= LARGE_ROWS else [])]
    cpu_s: dict[tuple[int, bool], list[float]] = {}
    with applications() as submitted:
        for repeat in range(REPEATS):
            for size in sizes:
                for is_plain in (True, False):  # in turns: both see the same machine
                    path = TablePath("bench", f"events_{repeat}_{size}_{is_plain:d}")
                    found = cpu_s.setdefault((size, is_plain), [])
                    found.append(_cpu_s(submitted, path, size, is_plain))
    for size in sizes:
        plain, quick = (statistics.median(cpu_s[size, is_plain]) for is_plain in (True, False))
        name = f"spark_start, {size:,} rows" if size else "spark_start, empty"
        span = f"{min(cpu_s[size, False]):.2f} to {max(cpu_s[size, False]):.2f}"
        text = f"of the plain start ({plain:.2f}); median of {REPEATS}, {span}"
        report(Line(name, quick, "core-s, whole tree", quick / plain, text))


def _cpu_s(submitted: Applications, path: TablePath, rows: int, is_plain: bool) -> float:
    if rows:
        load(submitted.client, path, rows, submitted.lake)
    else:
        create_table(submitted.client, path, data.descriptor(BUCKETS), submitted.lake)
    spent = submitted.tier([path], rows, is_plain=is_plain)
    assert spent.rows == rows, spent
    submitted.client.admin.drop_table(path)
    return spent.cpu_s
