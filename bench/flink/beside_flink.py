"""Tiers a log, KV snapshots and a changelog of one Apache Fluss by Flink and by Sluice on Spark.

Runs only with FLINK=1, and only if the jars of Flink are there (``bench.flink.flink_job``). Each
repetition starts Fluss's own tiering job, lets it tier a small table of each kind, measures it with
tables of its own while it is warm, and ends it. Then spark-submit tiers tables with the same rows,
as the tier task submits it: a small and a large one, to know its start and its marginal cost. From
the medians follows from how many rows on a Spark application is cheaper than the warm job.

Fluss's writer makes GZIP files, whatever the table says. So an estimate stands beside its log: less
what pyarrow pays in this run for GZIP instead of zstd, for the same rows.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from bench import data
from bench.cluster import BUCKETS
from bench.flink.flink_job import FlinkJob, flink_jars
from bench.measure import Line, report
from bench.reference import REFERENCE_OPTIONS, pyarrow_limit
from bench.rounds import keyed
from bench.server.kv_put import put
from bench.spark.spark_path import (
    CHANGES_PER_OPERATION,
    SUBMIT,
    Found,
    Way,
    check_tiered,
    log_end,
    ways,
)
from bench.spark.submit import Applications, submitting
from sluice.client import Client, connect
from sluice.config import ClientConfig
from sluice.model import TableDescriptor, TablePath
from tests.support.fluss.real_fluss import RealFluss
from tests.support.fluss.table_creation import create_table

REPEATS = 3
TABLET_HEAP_MB = 1536
WARM_ROWS = 100_000
SNAPSHOTS_S = 120
LOG, KV, CHANGELOG = "log", "KV snapshot", "changelog"
LEVELS = {"gzip": 6, "zstd": 3}
"""The levels of Java's writers by default; those of pyarrow are 9 and 1."""
FLINK = "Flink, warm"
SOON, LATER = "1s", "20s"
"""Freshness of tables. Flink must not begin with changes before all of them are made: that would be
another round. What it spends on waiting does not count."""
_CONF = {"kv.snapshot.interval": "3s"}


@dataclass
class Cluster:
    """A running Fluss, and its tables, which are not tiered at first."""

    client: Client
    lake: Path
    made: int = 0

    def log(self, rows: int) -> TablePath:
        path = self._create(data.descriptor(BUCKETS), SOON)
        with self.client.log_writer(path) as writer:
            for batch in data.batches(rows):
                writer.write(batch)
        return path

    def keyed(self, rows: int, freshness: str = SOON) -> TablePath:
        """A table whose keys are all in KV snapshots."""
        path = self._create(data.keyed_descriptor(BUCKETS), freshness)
        put(self.client, path, data.batches(rows))
        ends, deadline = self.client.admin.list_offsets(path), time.monotonic() + SNAPSHOTS_S
        while True:
            found = self.client.leases.latest(path).snapshots
            if {b.bucket: s.log_offset for b, s in found.items()} == ends:
                return path
            if time.monotonic() > deadline:
                raise SystemExit(f"{path}: Fluss took no KV snapshots within {SNAPSHOTS_S} s")
            time.sleep(0.2)

    def begin(self, path: TablePath) -> None:
        """Turns tiering on. Fluss refuses to turn it off and on again once it has a lake table."""
        self.client.admin.set_options(path, {"table.datalake.enabled": "true"})

    def change(self, path: TablePath, rows: int, keys: int) -> int:
        """Makes about so many changes; returns how many."""
        before = log_end(self.client, path)
        keyed.operate(self.client, path, int(rows / CHANGES_PER_OPERATION), keys)
        return log_end(self.client, path) - before

    def drop(self, *paths: TablePath) -> None:
        for path in paths:
            self.client.admin.drop_table(path)

    def _create(self, descriptor: TableDescriptor, freshness: str) -> TablePath:
        self.made += 1
        path = TablePath("bench", f"table_{self.made}")
        options = {"table.datalake.enabled": "false", "table.datalake.freshness": freshness}
        create_table(self.client, path, replace(descriptor, properties=options), self.lake)
        return path


def run(rows: int) -> None:
    jars, missing = flink_jars()
    if not jars:
        print(f"beside_flink: not run: {missing}", flush=True)
        return
    found = {LOG: Found(LOG, "rows"), KV: Found(KV, "rows"), CHANGELOG: Found(CHANGELOG, "changes")}
    flink: dict[str, list[float]] = {name: [] for name in (LOG, KV, CHANGELOG, "cold", "idle")}
    gzip_s = []
    with submitting() as jar:
        for _ in range(REPEATS):
            with tempfile.TemporaryDirectory(prefix="sluice-bench-") as tmp:
                home = Path(tmp)
                gzip_s.append(_gzip_instead_of_zstd(rows, home))
                with (
                    RealFluss(home / "fluss", conf=_CONF, tablet_heap_mb=TABLET_HEAP_MB) as fluss,
                    connect(ClientConfig(fluss.bootstrap)) as client,
                ):
                    client.admin.create_database("bench")
                    cluster = Cluster(client, fluss.warehouse)
                    with FlinkJob(fluss, jars, home / "flink.log") as job:
                        _by_flink(cluster, job, rows, flink)
                    submitted = Applications(client, home, fluss.warehouse, jar)
                    _by_spark(cluster, ways(submitted)[SUBMIT], rows, found)
    _report(found, flink, statistics.median(gzip_s))


def _by_flink(cluster: Cluster, job: FlinkJob, rows: int, flink: Mapping[str, list[float]]) -> None:
    """Adds core-seconds per million rows; for ``cold``, those of the start and of small tables; for
    ``idle``, those of a second in which the job waits.
    """

    def spent(path: TablePath) -> float:
        return job.spent(cluster.client, path, lambda: cluster.begin(path))

    def spent_on_changes(path: TablePath, count: int, keys: int) -> tuple[float, int]:
        made = log_end(cluster.client, path)
        found = job.spent(cluster.client, path, lambda: cluster.change(path, count, keys))
        return found, log_end(cluster.client, path) - made

    keys = rows // 5
    warm, small, large = (
        cluster.log(WARM_ROWS),
        cluster.keyed(WARM_ROWS, LATER),
        cluster.keyed(keys, LATER),
    )
    spent(warm)
    spent(small)
    spent_on_changes(small, WARM_ROWS, WARM_ROWS)
    flink["cold"].append(job.cpu_s())
    cluster.drop(warm, small)
    flink["idle"].append(job.measure_idle())
    log = cluster.log(rows)
    flink[LOG].append(spent(log) / rows * 1e6)
    flink[KV].append(spent(large) / keys * 1e6)
    cpu_s, changes = spent_on_changes(large, keys, keys)
    flink[CHANGELOG].append(cpu_s / changes * 1e6)
    cluster.drop(log, large)


def _by_spark(cluster: Cluster, tier: Way, rows: int, found: Mapping[str, Found]) -> None:
    def submitted(path: TablePath, count: int, kind: str) -> None:
        found[kind].add(SUBMIT, count, tier(path, count))
        check_tiered(cluster.client, path)

    for count in (rows // 5, rows):
        path = cluster.log(count)
        cluster.begin(path)
        submitted(path, count, LOG)
        cluster.drop(path)
    for count in (rows // 25, rows // 5):
        path = cluster.keyed(count)
        cluster.begin(path)
        submitted(path, count, KV)
        submitted(path, cluster.change(path, count, count), CHANGELOG)
        cluster.drop(path)


def _gzip_instead_of_zstd(rows: int, home: Path) -> float:
    """Core-seconds per million rows that GZIP costs more than zstd."""
    spent = [
        pyarrow_limit(
            rows,
            home / "reference.parquet",
            REFERENCE_OPTIONS | {"compression": name, "compression_level": level},
        )
        for name, level in LEVELS.items()
    ]
    return (spent[0].cpu_s - spent[1].cpu_s) / rows * 1e6


def _report(
    found: Mapping[str, Found],
    flink: Mapping[str, list[float]],
    gzip_s: float,
) -> None:
    cold = statistics.median(flink["cold"])
    text = f"with {WARM_ROWS:,} rows of each kind"
    report(Line("Flink's start", cold, "core-s", None, text))
    idle = statistics.median(flink["idle"])
    report(Line("Flink while it waits", idle, "core-s a second", None, "left out below"))
    for name, rounds in found.items():
        start_s, marginal_s = rounds.report(SUBMIT)
        per_m = sorted(flink[name])
        costs = {FLINK: statistics.median(per_m)}
        if name == LOG:
            costs[f"{FLINK}, if zstd"] = costs[FLINK] - gzip_s
        for way, cost_s in costs.items():
            text = f"{1 / per_m[-1]:.3f} to {1 / per_m[0]:.3f}"
            if way != FLINK:
                text = f"an estimate: {gzip_s:.2f} core-s per M rows less"
            unit = f"M {rounds.unit}/core-s"
            report(Line(f"{name}, {way}", 1 / cost_s, unit, None, text))
            even = start_s / (cost_s - marginal_s) if cost_s > marginal_s else float("inf")
            text = f"then Spark is cheaper than {way}"
            report(Line(f"  break-even: {name}", even, f"M {rounds.unit}", None, text))
