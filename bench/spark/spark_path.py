"""Tiers a log, KV snapshots and a changelog by spark-submit and by `sluice tier`, as users do.

Both are measured as complete process trees, start included, for a small and a large table. Their
difference is the marginal cost of rows; what is left of the small one is the start. Spark's UI is
on in both, as in an application of many rows. Three repetitions, in turns; medians count, and the
range of each is shown. A log is also compared with pyarrow, which writes the same rows in this run
(``bench.rounds.log_to_iceberg``). A changelog counts changes: an update is two.
"""

from __future__ import annotations

import math
import statistics
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from bench.cluster import load, server, wait_until_due
from bench.measure import Line, report
from bench.reference import CLEAN, LEGACY, pyarrow_limit
from bench.rounds import keyed
from bench.spark.submit import Applications, Tree, measured, submitting
from sluice.client import Client, connect
from sluice.config import ClientConfig
from sluice.model import TablePath

REPEATS = 3
REFERENCE_ROWS_MAX = 5_000_000
CHANGES_PER_OPERATION = 1.7
"""70 % of the operations are updates, which are two changes each."""
SUBMIT, EXECUTORS, LOCAL = "spark-submit", "spark-submit, executors", "sluice tier"
"""With a local master, the driver copies rounds of these sizes itself. The second way leaves that
to executors, as it is on a cluster."""


@dataclass(frozen=True)
class Sizes:
    """Rows of the small and of the large round of each kind."""

    log: tuple[int, int]
    kv: tuple[int, int]
    changelog: tuple[int, int]

    @classmethod
    def of(cls, rows: int) -> Sizes:
        small = rows // 10
        return cls((4 * small, 2 * rows), (small, 6 * small), (small, 6 * small))


Way = Callable[[TablePath, int], Tree]
"""Tiers a table with so many rows to tier."""


@dataclass
class Found:
    """All rounds of one kind of table."""

    name: str
    unit: str
    trees: dict[tuple[str, int], list[Tree]] = field(default_factory=dict)
    """By way and count of rows or changes."""

    def add(self, way: str, count: int, tree: Tree) -> None:
        self.trees.setdefault((way, count), []).append(tree)

    def report(self, way: str, reference: Sequence[float] = ()) -> tuple[float, float]:
        """Prints the lines of a way.

        :param reference: million rows per core-second of pyarrow.
        :returns: core-seconds of a start, and of a million rows.
        """
        small, large = sorted(count for found, count in self.trees if found == way)
        for count in (small, large):
            trees = self.trees[way, count]
            cpu_s = statistics.median(tree.cpu_s for tree in trees)
            rates = [count / 1e6 / tree.cpu_s for tree in trees]
            wall_s = statistics.median(tree.wall_s for tree in trees)
            text = f"{_span(rates)}; {cpu_s:.1f} core-s, {wall_s:.1f} s wall"
            name = f"{self.name}, {way}, {count / 1e6:.3g}M"
            report(Line(name, statistics.median(rates), self._rate, None, text))
        pairs = zip(self.trees[way, small], self.trees[way, large], strict=True)
        per_m = [(b.cpu_s - a.cpu_s) / (large - small) * 1e6 for a, b in pairs]
        each_s = self.cpu_s(way, large) - self.cpu_s(way, small)
        marginal = each_s / (large - small) * 1e6
        ratio = 1 / marginal / statistics.median(reference) if reference else None
        text = "of pyarrow; " if reference else ""
        # With noise, a large round may have cost less than a small one.
        text += _span([1 / value if value > 0 else math.inf for value in per_m])
        report(Line(f"  marginal: {self.name}, {way}", 1 / marginal, self._rate, ratio, text))
        start = self.cpu_s(way, small) - marginal * small / 1e6
        starts = [t.cpu_s - marginal * small / 1e6 for t in self.trees[way, small]]
        report(Line(f"  start: {self.name}, {way}", start, "core-s", None, _span(starts)))
        return start, marginal

    def cpu_s(self, way: str, count: int) -> float:
        return statistics.median(tree.cpu_s for tree in self.trees[way, count])

    @property
    def _rate(self) -> str:
        return f"M {self.unit}/core-s"


def ways(submitted: Applications) -> Mapping[str, Way]:
    """Tiering as the DAG submits it, and as a user's command runs it."""

    def locally(path: TablePath, rows: int) -> Tree:
        del rows
        wait_until_due(submitted.client, path)
        command = [str(Path(sys.executable).with_name("sluice")), "tier", str(path)]
        command += ["--warehouse", str(submitted.lake), "--wait", "1min"]
        command += ["--bootstrap", submitted.client.config.bootstrap]
        return measured(command, submitted.home)

    return {
        SUBMIT: lambda path, rows: submitted.tier([path], rows, is_small=False),
        EXECUTORS: lambda path, rows: submitted.tier(
            [path], rows, tiering={"driver_copy_rows": 0}, is_small=False
        ),
        LOCAL: locally,
    }


def run(rows: int) -> None:
    sizes = Sizes.of(rows)
    with submitting() as jar:
        _logs(sizes.log, jar)
        _keyed(sizes, jar)


def _logs(sizes: tuple[int, int], jar: Path) -> None:
    """Both layouts of lake tables in turns, each on a server of its own."""
    found = {layout: Found(f"log, {layout}", "rows") for layout in (LEGACY, CLEAN)}
    references: dict[str, list[float]] = {layout: [] for layout in found}
    row_bytes = dict.fromkeys(found, 0.0)
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sluice-bench-")))
        places = {}
        for layout in found:
            address, pid = stack.enter_context(server(home / layout, layout))
            client = stack.enter_context(connect(ClientConfig(address)))
            client.admin.create_database("bench")
            places[layout] = Applications(client, home, home / f"lake_{layout}", jar), pid
        for repeat in range(REPEATS):
            count = min(sizes[1], REFERENCE_ROWS_MAX)
            for layout, (submitted, pid) in places.items():
                target = home / "reference.parquet"
                spent = pyarrow_limit(count, target, layout=layout, server=pid)
                references[layout].append(count / 1e6 / spent.cpu_s)
                for size in sizes:
                    for way, tier in ways(submitted).items():
                        path = TablePath("bench", f"log_{repeat}_{size}_{len(way)}")
                        load(submitted.client, path, size, submitted.lake)
                        found[layout].add(way, size, tier(path, size))
                        check_tiered(submitted.client, path)
                        folder = submitted.lake / path.database / path.table
                        files = [one.stat().st_size for one in folder.rglob("*.parquet")]
                        row_bytes[layout] = sum(files) / size
                        submitted.client.admin.drop_table(path)
    for layout, reference in references.items():
        median = statistics.median(reference)
        name = f"pyarrow_zstd_parquet, {layout}"
        report(Line(name, median, "M rows/core-s", None, _span(reference)))
        for way in (SUBMIT, EXECUTORS, LOCAL):
            found[layout].report(way, reference)
    for layout, each in row_bytes.items():
        ratio = each / row_bytes[LEGACY]
        report(Line(f"bytes of a row, {layout}", each, "bytes", ratio, "of legacy"))


def check_tiered(client: Client, path: TablePath) -> None:
    """Checks that the lake has the complete table, as the cluster knows it."""
    snapshot = client.admin.lake_snapshot(path)
    assert snapshot is not None, path
    assert sum(snapshot.offsets.values()) == log_end(client, path), (path, snapshot)


def _keyed(sizes: Sizes, jar: Path) -> None:
    snapshots, changes = Found("KV snapshot", "rows"), Found("changelog", "changes")
    for _ in range(REPEATS):
        with tempfile.TemporaryDirectory(prefix="sluice-bench-") as tmp:
            home, lake = Path(tmp), Path(tmp) / "lake"
            tables = {
                (way, size): TablePath("bench", f"kv_{size}_{len(way)}")
                for size in sizes.kv
                for way in (SUBMIT, EXECUTORS, LOCAL)
            }
            keyed.load_snapshots(
                home / "fluss", lake, {path: size for (_, size), path in tables.items()}
            )
            with (
                server(home / "fluss") as (address, _),
                connect(ClientConfig(address)) as client,
            ):
                by = ways(Applications(client, home, lake, jar))
                for (way, size), path in tables.items():
                    snapshots.add(way, size, by[way](path, size))
                    check_tiered(client, path)
                for seed, size in enumerate(sizes.changelog):
                    for way, tier in by.items():
                        keys = sizes.kv[1]
                        path = tables[way, keys]
                        before = log_end(client, path)
                        made = int(size / CHANGES_PER_OPERATION)
                        keyed.operate(client, path, made, keys, seed)
                        count = log_end(client, path) - before
                        changes.add(way, count, tier(path, count))
                        check_tiered(client, path)
    for found in (snapshots, changes):
        for way in (SUBMIT, EXECUTORS, LOCAL):
            found.report(way)


def log_end(client: Client, path: TablePath) -> int:
    return sum(client.admin.list_offsets(path).values())


def _span(values: Sequence[float]) -> str:
    return f"{min(values):.2f} to {max(values):.2f}"
