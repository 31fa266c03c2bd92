"""A pass over many small tables by the DAG, in a real Airflow with real Spark.

Airflow runs with SQLite, LocalExecutor and a triggerer. The CPU seconds are those of all of its
processes: API server, scheduler, DAG processor, triggerer, tasks and Spark. What they use while
nothing runs is measured before, and subtracted. The server is another process and is not measured.
The first pass creates the lake tables, also of the tables without rows. Three more passes add rows
to the others; the median counts.
"""

from __future__ import annotations

import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import psutil

from bench import data
from bench.cluster import server
from bench.measure import Line, report
from demo.airflow import Airflow, spark_environment
from demo.processes import Processes
from sluice.client import Client, connect
from sluice.driver.lakes.jvm import iceberg_jar
from sluice.driver.lakes.start_archive import make_start_archive
from sluice.model import TableDescriptor, TablePath
from tests.support.fluss.table_creation import create_table

TABLES = 100
IDLE_TABLES = 20
TABLE_ROWS = 1_000
REPEATS = 3
IDLE_S = 20.0
READY_S = 300.0
RUN_S = 1_200.0
FRESHNESS = "1s"


def run(rows: int) -> None:  # noqa: ARG001  (tables are small)
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as tmp:
        home = Path(tmp)
        (home / "logs").mkdir()
        with server(home / "fluss") as (address, pid), connect(address) as client:
            client.admin.create_database("bench")
            names = [TablePath("bench", f"small_{n:03}") for n in range(TABLES)]
            idle = [TablePath("bench", f"idle_{n:02}") for n in range(IDLE_TABLES)]
            for path in [*names, *idle]:
                create_table(client, path, _descriptor(), home / "lake")
            processes = Processes(home / "logs", dict(os.environ))
            airflow = Airflow(home / "airflow", processes, _settings(address, home), triggerer=True)
            try:
                airflow.prepare()
                airflow.start()
                airflow.wait_until_ready(READY_S, lambda _: None)
                time.sleep(IDLE_S)
                idle_rate = _spent(pid, lambda: time.sleep(IDLE_S))[0] / IDLE_S
                report(Line("Airflow while nothing runs", idle_rate, "core-s a second", None, ""))
                made = f"first pass, {TABLES + IDLE_TABLES} tables"
                later = f"later pass, {TABLES} tables with rows, {IDLE_TABLES} idle"
                for name, repeats in ((made, 1), (later, REPEATS)):
                    passes = []
                    for _ in range(repeats):
                        _append(client, names)
                        passes.append(_pass(airflow, pid, idle_rate))
                    _report(name, passes)
            finally:
                processes.stop_all()


def _pass(airflow: Airflow, server_pid: int, idle_rate: float) -> tuple[float, float, float]:
    """CPU seconds less those of Airflow's idle work, with them, and wall seconds."""

    def one() -> None:
        airflow.follow(airflow.trigger({"tables": ["bench.*"]}), RUN_S, lambda _: None)

    cpu_s, wall_s = _spent(server_pid, one)
    return cpu_s - idle_rate * wall_s, cpu_s, wall_s


def _report(name: str, passes: Sequence[tuple[float, float, float]]) -> None:
    own, cpu, wall = (statistics.median(values) for values in zip(*passes, strict=True))
    text = f"{min(p[0] for p in passes):.1f} to {max(p[0] for p in passes):.1f}; {wall:.0f} s wall"
    report(Line(name, own, "core-s", None, f"{text}, {cpu:.1f} with Airflow's idle work"))


def _descriptor() -> TableDescriptor:
    made = data.descriptor(1)
    return replace(made, properties={**made.properties, "table.datalake.freshness": FRESHNESS})


def _append(client: Client, paths: list[TablePath]) -> None:
    for path in paths:
        with client.log_writer(path) as writer:
            for batch in data.batches(TABLE_ROWS):
                writer.write(batch)
    time.sleep(2)  # longer than the freshness: all tables are due


def _spent(server_pid: int, work: Callable[[], None]) -> tuple[float, float]:
    """CPU and wall seconds of some work, by all processes below this one except the server."""
    before, started = _total(server_pid), time.perf_counter()
    work()
    return _total(server_pid) - before, time.perf_counter() - started


def _total(server_pid: int) -> float:
    """CPU seconds of the living processes, and of those that they have waited for."""
    total = 0.0
    for process in psutil.Process().children(recursive=True):
        if process.pid == server_pid:
            continue
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system + times.children_user + times.children_system
    return total


def _settings(address: str, home: Path) -> dict[str, str]:
    host, port = address.removeprefix("grpc://").split(":")
    extra = {
        "work_uri": f"file://{home}/work",
        "datalake": {"iceberg.type": "hadoop", "iceberg.warehouse": str(home / "lake")},
    }
    fluss = {"conn_type": "fluss", "host": host, "port": int(port), "extra": extra}
    jar = iceberg_jar(os.environ.get("SLUICE_TIERING_JARS", "")).absolute()
    make_start_archive(str(jar))
    return {
        **spark_environment(),
        "AIRFLOW_CONN_FLUSS_DEFAULT": json.dumps(fluss),
        "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": "local[2]"}),
        "AIRFLOW__SLUICE__SCHEDULE": "none",
        "AIRFLOW__SLUICE__JARS": str(jar),
    }
