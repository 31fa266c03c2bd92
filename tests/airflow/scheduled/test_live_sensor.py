"""A table sensor in a real Airflow: scheduler, triggerer, and a DAG as a user writes it."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest

from sluice.client import connect
from sluice.model import TableBucket, TablePath
from tests.airflow.live import Live, running_live
from tests.airflow.place import ROOT, AirflowProcess, Place
from tests.docs.blocks import claimed_blocks
from tests.docs.outputs import matches

pytestmark = [pytest.mark.airflow, pytest.mark.timeout(1200)]
DAG, LOG = (block.content for block in claimed_blocks("docs/airflow-sensor.md", __file__))
DAG_ID, TASK_ID = "orders_report", "wait_for_orders"
BACKOFF_MS = 6_000
"""Long enough for a look at a failed table, which is Pending afterwards."""


def dags_folder(folder: Path, *tables: str) -> Path:
    """The DAG of Sluice, and that of the page for each table, with a quicker sensor."""
    dags = folder / "dags"
    dags.mkdir(parents=True)
    shutil.copy(ROOT / "dags/sluice_lake_tiering.py", dags)
    for table in tables:
        code = DAG.replace('schedule="@daily"', "schedule=None")
        code = code.replace("poke_interval=30", "poke_interval=1").replace("shop.orders", table)
        code = code.replace(DAG_ID, dag_of(table))
        if table == "shop.restarted":
            code = code.replace("{{ data_interval_end }}", "now")
        (dags / f"{table}.py").write_text(code)
    return dags


def dag_of(table: str) -> str:
    return f"{DAG_ID}_{table.partition('.')[2]}"


class Sensing:
    """A live Airflow, and the runs of the page's DAG."""

    def __init__(self, live: Live) -> None:
        self.live = live

    def begin(self, path: TablePath) -> str:
        """Starts the DAG for the rows that are written by now."""
        now = datetime.now(UTC).isoformat()
        body = {"logical_date": now, "run_after": now, "conf": {}}
        dag_id = dag_of(str(path))
        self.live.wait(lambda: self._is_known(dag_id), f"the DAG {dag_id}")
        run = self.live.airflow._send("POST", f"/api/v2/dags/{dag_id}/dagRuns", body)
        return f"/api/v2/dags/{dag_id}/dagRuns/{run['dag_run_id']}"

    def _is_known(self, dag_id: str) -> bool:
        found = self.live.airflow._get(f"/api/v2/dags?dag_id_pattern={dag_id}")["dags"]
        return any(one["dag_id"] == dag_id for one in found)

    def state(self, run: str) -> str:
        return str(self.live.airflow._get(run)["state"])

    def task_state(self, run: str) -> str:
        return str(self.live.airflow._get(f"{run}/taskInstances/{TASK_ID}")["state"])

    def ended(self, run: str) -> str:
        self.live.wait(lambda: self.state(run) in ("success", "failed"), f"{run} to end")
        return self.state(run)

    def xcom(self, run: str) -> dict[str, Any]:
        entry = f"{run}/taskInstances/{TASK_ID}/xcomEntries/return_value?deserialize=true"
        value = self.live.airflow._get(entry)["value"]
        found: dict[str, Any] = json.loads(value) if isinstance(value, str) else value
        return found

    def log(self, path: TablePath) -> list[str]:
        """What the sensor has said of its table, by worker and triggerer, in order."""
        root = Path(self.live.airflow.environment["AIRFLOW__LOGGING__BASE_LOG_FOLDER"])
        found = []
        for file in root.rglob(f"dag_id={dag_of(str(path))}/**/task_id={TASK_ID}/**/*"):
            if file.is_file():
                entries = [json.loads(line) for line in file.read_text().splitlines()]
                found += [(one["timestamp"], str(one["event"])) for one in entries]
        return [event for _, event in sorted(found) if event.startswith(f"{path}: ")]

    def says(self, path: TablePath, words: str, times: int = 1) -> None:
        """Waits until so many lines of the sensor begin like this."""

        def done() -> bool:
            lines = [line for line in self.log(path) if line.startswith(f"{path}: {words}")]
            return len(lines) >= times

        self.live.wait(done, f"the sensor of {path} to say {words!r}")


@pytest.fixture(scope="module")
def sensing(
    airflow_environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Sensing]:
    folder = tmp_path_factory.mktemp("sensing")
    dags = dags_folder(folder / "files", "shop.once_orders", "shop.restarted")
    more = {
        "AIRFLOW__CORE__DAGS_FOLDER": str(dags),
        "AIRFLOW__TRIGGERER__TRIGGERER_HEALTH_CHECK_THRESHOLD": "10",
    }
    with running_live(folder, airflow_environment, tiering_backoff_ms=BACKOFF_MS, **more) as live:
        yield Sensing(live)


@pytest.fixture(scope="module")
def triggerer(sensing: Sensing) -> psutil.Process:
    return started_triggerer(sensing.live, "airflow-triggerer")


def started_triggerer(live: Live, name: str) -> psutil.Process:
    command = [sys.executable, "-m", "airflow", "triggerer", "--skip-serve-logs"]
    process = live.processes.start(name, command, live.airflow.environment)
    live.wait(live.triggerer_is_alive, "the triggerer")
    return psutil.Process(process.pid)


@pytest.mark.long
@pytest.mark.usefixtures("triggerer")
def test_the_log_of_a_sensor_says_why_its_table_is_late(sensing: Sensing) -> None:
    """The first driver of the table is killed; the next run tiers it."""
    live = sensing.live
    path = live.place.table("once_orders")
    live.place.wait(path)
    run = sensing.begin(path)
    sensing.says(path, "Pending")
    first = live.trigger(str(path))
    driver = live.driver(f"{path}-slept")
    sensing.says(path, "Tiering by")
    live.wait(lambda: sensing.task_state(run) == "deferred", "the sensor to be deferred")
    os.kill(driver.pid, signal.SIGKILL)
    sensing.says(path, "Failed, next attempt at")
    assert live.ended(first) == "failed"
    sensing.says(path, "Pending", times=2)
    assert live.ended(live.trigger(str(path))) == "success"
    assert sensing.ended(run) == "success"
    snapshot = live.place.client.admin.lake_snapshot(path)
    assert snapshot is not None
    assert sensing.xcom(run) == {"lake_snapshot_id": str(snapshot.snapshot_id), "offsets_sum": 3}
    seen = [line.replace(str(path), "shop.orders") for line in sensing.log(path)]
    assert matches(comparable(LOG.splitlines()), comparable(seen)), "\n".join(seen)


def comparable(lines: list[str]) -> list[str]:
    """The lines without what differs from run to run.

    A run that has just claimed a table has not yet written its name: then its lease is named first.
    """
    run = r"the run \S+ of DAG \S+|sluice-airflow-[0-9a-f-]+"
    lines = [re.sub(run, "RUN", line) for line in lines]
    lines = [re.sub(r"(?<= after ).*?(?=;)", "TIME", line) for line in lines]
    return [line for line, before in zip(lines, ["", *lines], strict=False) if line != before]


@pytest.mark.long
def test_a_triggerer_that_is_killed_leaves_the_same_goal(
    sensing: Sensing, triggerer: psutil.Process
) -> None:
    """Rows that are written until the next triggerer starts are not waited for."""
    live = sensing.live
    path = live.place.table("restarted")
    live.place.wait(path)
    run = sensing.begin(path)
    live.wait(lambda: sensing.task_state(run) == "deferred", "the sensor to be deferred")
    for process in [triggerer, *triggerer.children(recursive=True)]:
        process.kill()
    with live.place.client.log_writer(path) as writer:
        writer.write(pa.table({"id": pa.array(range(3, 8), pa.int64())}))
    live.wait(lambda: not live.triggerer_is_alive(), "the triggerer to be missed")
    started_triggerer(live, "airflow-triggerer-2")
    assert live.ended(live.trigger(str(path))) == "success"
    assert sensing.ended(run) == "success"
    lines = sensing.log(path)
    assert [line for line in lines if "waiting until" in line] == [
        f"{path}: waiting until 3 rows in 1 bucket are tiered; there is no lake snapshot yet"
    ]
    assert lines[-1].startswith(f"{path}: 3 rows in 1 bucket are tiered after ")


@pytest.mark.long
def test_airflow_dags_test_runs_the_dag_of_the_page(
    airflow_environment: dict[str, str], embedded: str, tmp_path: Path
) -> None:
    """Without a triggerer and an API server."""
    with connect(embedded) as client:
        client.admin.create_database("shop")
        none: AirflowProcess = None  # type: ignore[assignment]
        place = Place(none, client, embedded, tmp_path / "work")
        path = place.table("tested")
        place.wait(path)
        claim = client.tiering.claim([path])
        assert claim is not None
        end = {TableBucket(claim.table_id, None, 0): 3}
        file = client.tiering.prepare_lake_snapshot(claim.table_id, path, end)
        client.tiering.commit_lake_snapshot(claim, 4711, file, end, {}, -1)
        folder = dags_folder(tmp_path / "files", str(path))
        done = subprocess.run(
            [sys.executable, "-m", "airflow", "dags", "test", dag_of(str(path))],
            env={
                **airflow_environment,
                **place.connection(),
                "AIRFLOW__CORE__DAGS_FOLDER": str(folder),
            },
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert "a test run has no triggerer; this task looks itself every 1 s" in said
    assert "the orders are in lake snapshot 4711" in said
