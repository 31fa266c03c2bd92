"""Catches up a log table of one bucket with one executor and with two.

The bucket's window is divided into parts, so that the second executor has work, too. `threads` are
those of `sluice tier`, and Arrow uses both cores for a single one of them as well. `spark` is a
local session with one and with two task slots. The shortest round of each kind counts. Every round
has a table of its own with the same rows, and follows rounds of other tables that warm up its
processes. CPU seconds include the JVM and Spark's Python workers; the server is measured
separately.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bench import data
from bench.cluster import hadoop_config, server, wait_until_due
from bench.measure import Cost, Line, report, tree_cost
from sluice.client import Client, Heartbeats, connect
from sluice.config import Config
from sluice.driver.lakes.jvm import Jvm, iceberg_jar
from sluice.driver.local import tier_once
from sluice.driver.spark import round as spark_driver
from sluice.model import TablePath
from sluice.rounds.records.json_files import read_json, write_json
from sluice.rounds.records.plan_file import PlanFile, plan_uri
from sluice.rounds.records.result import RoundResult, result_uri
from tests.support.fluss.table_creation import create_table

REPEATS = 2
WARM_ROUNDS = 3
WARM_ROWS = 2_500_000
"""Enough for two parts, which start both Python workers of a Spark session."""

Round = Callable[[TablePath], RoundResult]


@dataclass(frozen=True)
class RoundCost:
    """The cost of one round, and the wall time of its copy phase."""

    cost: Cost
    copy_s: float


@dataclass
class Tables:
    """Makes tables of one bucket on a server, and measures their rounds."""

    client: Client
    config: Config
    server_pid: int
    lake: Path
    made: int = 0

    def cost(self, rows: int, run_round: Round) -> RoundCost:
        self.made += 1
        path = TablePath("bench", f"events_{self.made}")
        create_table(self.client, path, data.descriptor(1), self.lake)
        with self.client.log_writer(path) as writer:
            for batch in data.batches(rows):
                writer.write(batch)
        wait_until_due(self.client, path)
        with tree_cost(server=self.server_pid) as found:
            result = run_round(path)
        assert result.rows == rows, result
        self.client.admin.drop_table(path)
        return RoundCost(found, result.seconds["copy"])


def run(rows: int) -> None:
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as tmp:
        home = Path(tmp)
        with server(home / "fluss") as (address, pid):
            settings = {"tiering.max_round_ms": "3600000"}
            config = hadoop_config(address, home / "lake", settings)
            with connect(config.client) as client:
                client.admin.create_database("bench")
                tables = Tables(client, config, pid, home / "lake")
                _compare("threads", rows, _on_threads(tables, rows))
                _compare("spark", rows, _on_spark(tables, rows, home))


def _on_threads(tables: Tables, rows: int) -> dict[int, RoundCost]:
    with Jvm(tables.config.tiering.jars) as jvm:

        def tier(parallelism: int) -> Round:
            tiering = replace(tables.config.tiering, parallelism=parallelism)
            return lambda path: tier_once(replace(tables.config, tiering=tiering), path, jvm=jvm)

        for _ in range(WARM_ROUNDS):
            tables.cost(WARM_ROWS, tier(2))
        return _shortest(
            (cores, tables.cost(rows, tier(cores))) for _ in range(REPEATS) for cores in (1, 2)
        )


def _on_spark(tables: Tables, rows: int, home: Path) -> dict[int, RoundCost]:
    def costs() -> Iterator[tuple[int, RoundCost]]:
        for cores in (1, 2):
            with _session(cores, tables.config, home) as session:

                def tier(path: TablePath, session: Any = session) -> RoundResult:
                    return _round_on_spark(tables, session, path, f"file://{home}/work")

                for _ in range(WARM_ROUNDS):
                    tables.cost(WARM_ROWS, tier)
                for _ in range(REPEATS):
                    yield cores, tables.cost(rows, tier)

    return _shortest(costs())


@contextmanager
def _session(cores: int, config: Config, home: Path) -> Iterator[Any]:
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    settings = {
        "spark.jars": str(iceberg_jar(config.tiering.jars)),
        "spark.ui.enabled": "false",
        "spark.log.level": "ERROR",
        "spark.sql.warehouse.dir": str(home / "spark"),
    }
    builder = SparkSession.builder.master(f"local[{cores}]").appName("sluice-bench")
    session = builder.config(map=settings).getOrCreate()
    try:
        yield session
    finally:
        session.stop()


def _round_on_spark(tables: Tables, session: Any, path: TablePath, work_uri: str) -> RoundResult:
    claim = tables.client.tiering.claim([path])
    assert claim is not None, path
    uri = plan_uri(work_uri, "bench", claim)
    write_json(uri, PlanFile(claim, "bench", tables.config.client.bootstrap).to_json())
    context = session.sparkContext
    with Heartbeats(tables.client.tiering) as beats:  # as the tier task's
        beats.add(claim)
        assert spark_driver.run(context, uri, "1", tables.config, _task_id) == 0, uri
    content = read_json(result_uri(uri, "1"))
    assert content is not None
    tables.client.tiering.finished(claim)
    return RoundResult.from_json(content)


def _task_id() -> int:
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    return int(context.taskAttemptId())


def _shortest(costs: Iterator[tuple[int, RoundCost]]) -> dict[int, RoundCost]:
    found: dict[int, RoundCost] = {}
    for cores, one in costs:
        if cores not in found or one.cost.wall_s < found[cores].cost.wall_s:
            found[cores] = one
    return found


def _compare(name: str, rows: int, found: dict[int, RoundCost]) -> None:
    unit = f"s wall, {rows / 1e6:g}M rows"

    def line(what: str, one_s: float, two_s: float) -> None:
        report(Line(what, two_s, unit, one_s / two_s, f"as fast as with 1 ({one_s:.2f} s)"))

    line(f"one_bucket_{name}_2", found[1].cost.wall_s, found[2].cost.wall_s)
    line(f"  phase: copy, {name}", found[1].copy_s, found[2].copy_s)
    for cores, one in found.items():
        text = f"and {one.cost.others_s['server']:.2f} of the server"
        report(Line(f"  cpu: {name}, {cores}", one.cost.cpu_s, "core-s", None, text))
