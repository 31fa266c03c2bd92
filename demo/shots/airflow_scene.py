"""An Airflow with runs to look at: some tables reach the lake, one fails, and some are idle.

It has a cluster of its own, real Spark, and a triggerer, all on loopback in one folder.
"""

from __future__ import annotations

import copy
import json
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa

from demo.airflow import DAG_ID, ROOT, Airflow, Json, spark_environment
from demo.lakes import folder_lake
from demo.processes import Processes
from demo.run import inherited_environment
from sluice.client import Client, connect
from sluice.config import ServerConfig
from sluice.formats.types.types import schema_from_arrow
from sluice.model import TableDescriptor, TablePath
from sluice.server.cluster import EmbeddedCluster

START_S = 400.0
RUN_S = 600.0
DUE_S = 120.0
POLL_S = 0.5
DATABASE = "sales"
BAD = "returns"
ROWS = {"orders": 60_000, "customers": 8_000, "payments": 12_000, "shipments": 9_000, BAD: 50_000}
"""Rows of each table at first. Two of them are large enough for an application of their own."""
ROWS_PER_APPLICATION = 40_000
SPARK_CONF = {"spark.ui.enabled": "false", "spark.driver.memory": "1g"}
ENDED = ("success", "failed")
REPORT = "orders_report"
WAITING = "wait_for_returns"
DAGS = f'''"""DAGs of other teams: one starts after a table, one waits for a table that fails."""

from airflow.sdk import DAG, task

from sluice_airflow.assets import lake_table
from sluice_airflow.sensors.table import SluiceTableSensor

with DAG("{REPORT}", schedule=lake_table("{DATABASE}.orders")):

    @task
    def report():
        print("new orders are in the lake")

    report()

with DAG("{WAITING}", schedule=None):
    SluiceTableSensor(task_id="wait", table="{DATABASE}.{BAD}", deferrable=True, poke_interval=1)
'''
PAGES = {
    "AIRFLOW__SLUICE__LAKE_TABLE_URL": "https://catalog.example/{database}/{table}?at={snapshot_id}",
    "AIRFLOW__SLUICE__HEALTH_URL": "https://grafana.example/d/sluice?var-table={database}.{table}",
    "AIRFLOW__SLUICE__SPARK_HISTORY_URL": "https://spark.example:18080",
}
"""Of pages that the tier tasks link to."""


@dataclass(frozen=True)
class Scene:
    """Where the Airflow is, and which runs it has."""

    folder: str
    """Where its data, lake and logs are."""
    url: str
    user: str
    password: str
    runs: Mapping[str, str]
    """Run ids: ``dry`` only looked, ``good`` tiered all tables but one, ``bad`` failed at that.
    A run of another DAG waits for that table."""

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=2)

    @classmethod
    def from_json(cls, text: str) -> Scene:
        """:raises ValueError, TypeError: the text is no scene."""
        return cls(**json.loads(text))


@contextmanager
def running_scene(folder: Path, say: Callable[[str], None]) -> Iterator[Scene]:
    """Starts cluster and Airflow, runs the DAG three times, and stops all processes at the end.

    :param folder: a new folder for data, lake and logs.
    :raises AirflowFailed, ProcessFailed, TimeoutError: a step failed.
    """
    (folder / "logs").mkdir(parents=True)
    processes = Processes(folder / "logs", inherited_environment())
    config = ServerConfig(
        data_dir=str(folder / "data"), listen="grpc://127.0.0.1:0", tiering_backoff_ms=0
    )
    with EmbeddedCluster(config) as cluster, connect(cluster.address) as client:
        airflow = Airflow(
            folder / "home", processes, _settings(folder, cluster.address), triggerer=True
        )
        try:
            airflow.prepare()
            _create(client)
            block(folder / "lake")
            _write_dags(folder / "dags")
            airflow.start()
            airflow.wait_until_ready(START_S, say)
            runs = _runs(client, airflow, say)
            yield Scene(str(folder), airflow.url, airflow.user, airflow.password, runs)
        finally:
            processes.stop_all()


def block(lake: Path) -> None:
    """Puts a file where the folder of the failing table would be: root cannot write there."""
    (lake / DATABASE).mkdir(parents=True)
    (lake / DATABASE / BAD).write_text("a file in the way of the table\n")


def _settings(folder: Path, address: str) -> dict[str, str]:
    parts = urlsplit(address)
    lake = folder_lake(folder / "lake")
    extra = {"work_uri": (folder / "work").as_uri(), "datalake": lake.datalake}
    fluss = {"conn_type": "fluss", "host": parts.hostname, "port": parts.port, "extra": extra}
    return {
        **spark_environment(),
        **lake.jar_setting,
        **PAGES,
        "AIRFLOW__CORE__DAGS_FOLDER": str(folder / "dags"),
        "AIRFLOW__CORE__TEST_CONNECTION": "Enabled",
        "AIRFLOW_CONN_FLUSS_DEFAULT": json.dumps(fluss),
        "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": "local[2]"}),
        "AIRFLOW__SLUICE__SCHEDULE": "none",
        "AIRFLOW__SLUICE__TIER_RETRIES": "0",
        "AIRFLOW__SLUICE__ROWS_PER_APPLICATION": str(ROWS_PER_APPLICATION),
    }


def _write_dags(folder: Path) -> None:
    folder.mkdir()
    shutil.copy(ROOT / "dags" / f"{DAG_ID}.py", folder)
    (folder / "other_teams.py").write_text(DAGS)


def _runs(client: Client, airflow: Airflow, say: Callable[[str], None]) -> dict[str, str]:
    good = [f"{DATABASE}.{name}" for name in ROWS if name != BAD]
    asked: dict[str, Json] = {
        "dry": {"tables": [f"{DATABASE}.*"], "dry_run": True},
        "good": {"tables": good, "spark_conf": SPARK_CONF},
        "bad": {"tables": [f"{DATABASE}.*"], "spark_conf": SPARK_CONF},
    }
    found = {}
    for name, conf in asked.items():
        if name == "bad":
            for table in ("orders", "payments", "shipments"):
                _append(client, table, ROWS[table], ROWS[table] // 10)
        _wait_until_due(client)
        if name == "bad":
            other = copy.copy(airflow)
            other.dag_id = WAITING
            other.trigger({})
        found[name] = airflow.trigger(conf)
        _wait_for_end(airflow, found[name], say)
    return found


def _create(client: Client) -> None:
    client.admin.create_database(DATABASE)
    for name, rows in ROWS.items():
        descriptor = TableDescriptor(
            schema=schema_from_arrow(_data(0, 0).schema),
            bucket_count=2,
            properties={"table.datalake.enabled": "true", "table.datalake.freshness": "1 s"},
        )
        client.admin.create_table(TablePath(DATABASE, name), descriptor)
        _append(client, name, 0, rows)


def _append(client: Client, table: str, first: int, rows: int) -> None:
    with client.log_writer(TablePath(DATABASE, table)) as writer:
        writer.write(_data(first, rows))


def _data(first: int, rows: int) -> pa.Table:
    ids = range(first, first + rows)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "customer": pa.array([f"customer {i % 997}" for i in ids], pa.string()),
            "cents": pa.array([i * 7 % 90_000 for i in ids], pa.int64()),
        }
    )


def _wait_until_due(client: Client) -> None:
    deadline = time.monotonic() + DUE_S
    while any(status.status != "Pending" for status in client.statuses.list()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"the tables of {DATABASE} were not due after {DUE_S:.0f} s")
        time.sleep(POLL_S)


def _wait_for_end(airflow: Airflow, run_id: str, say: Callable[[str], None]) -> None:
    deadline = time.monotonic() + RUN_S
    while True:
        state, tasks = airflow.run_state(run_id)
        if state in ENDED and all(_is_over(task) for task in tasks):
            say(f"run {run_id}: {state}")
            return
        if time.monotonic() > deadline:
            raise TimeoutError(f"run {run_id} of {DAG_ID} did not end in {RUN_S:.0f} s: {state}")
        time.sleep(POLL_S)


def _is_over(task: Any) -> bool:
    return task["state"] in (*ENDED, "skipped", "upstream_failed", "removed")
